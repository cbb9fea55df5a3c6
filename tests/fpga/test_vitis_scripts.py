"""package.tcl run by tclsh with stand-ins for Vivado's commands; link.cfg written, read back and refused."""

import re
import subprocess
from dataclasses import replace

import pytest

from fpga.vitis import rehearsal
from fpga.vitis.link import Links, check_cfg, instance_names, link_cfg, read_cfg
from fpga.vitis.scripts import SCRIPT, _word, package_tcl
from tests.vitis_kernels import KERNELS, prepared

tcl = pytest.mark.skipif(not rehearsal.available(), reason="tclsh is missing (apt-get install tcl)")


def folder_of(tmp_path, core="mlp", change=lambda text: text):
    """As much of a package as the script needs."""
    kernel, texts = prepared(core)
    (tmp_path / "src").mkdir(exist_ok=True)
    for name, text in texts.items():
        (tmp_path / "src" / name).write_text(text)
    (tmp_path / "kernel.xml").write_text("")
    (tmp_path / SCRIPT).write_text(change(package_tcl(kernel)))
    return tmp_path, kernel


@tcl
@pytest.mark.parametrize("core", KERNELS)
def test_calls_are_what_the_description_says(tmp_path, core):
    folder, kernel = folder_of(tmp_path, core)
    calls = rehearsal.rehearse(folder)
    assert rehearsal.findings(calls, kernel) == []
    # And not by finding nothing to compare: each of these is there as often as the description has it.
    count = {name: sum(call[0] == name for call in calls) for name in ("add_files", "ipx::add_register", "package_xo",
                                                                       "ipx::add_register_parameter")}
    assert count == {"add_files": len(kernel.files), "ipx::add_register": len(kernel.registers), "package_xo": 1,
                     "ipx::add_register_parameter": sum(item.pointer for item in kernel.arguments)}
    clocked = [call for call in calls if call[:2] == ("ipx::associate_bus_interfaces", "-busif")]
    assert [call[2] for call in clocked] == [bus.name for bus in kernel.buses]


def test_script_is_the_same_everywhere(tmp_path):
    kernel, _ = prepared("mlp")
    text = package_tcl(kernel)
    assert text == package_tcl(kernel) and "/tmp" not in text
    assert "[file dirname [file normalize [info script]]]" in text
    assert all(len(line) <= 200 for line in text.splitlines())


@tcl
@pytest.mark.parametrize("fault, sentence", [
    ("drop=hotrail_mlp.v", "ERROR: Vivado dropped hotrail_mlp.v from xilinx_anylanguagesynthesis: look for syntax"),
    ("extra=other.v", "ERROR: xilinx_anylanguagesynthesis has the file other.v, which was not given"),
    ("top=other", "ERROR: the top module is other, not hotrail_mlp: its Verilog was not read"),
    ("blind", "ERROR: the ports of ap_clk were not recognised as an interface xilinx.com:signal:clock_rtl:1.0"),
    ("integrity", "integrity check failed"),
    ("noxo", "ERROR: package_xo made no hotrail_mlp.xo"),
])
def test_what_goes_wrong_in_vivado_ends_the_script(tmp_path, fault, sentence):
    folder, _ = folder_of(tmp_path)
    with pytest.raises(rehearsal.RehearsalError, match=re.escape(sentence)):
        rehearsal.rehearse(folder, [fault])


@tcl
def test_a_missing_source_wrong(tmp_path):
    folder, _ = folder_of(tmp_path)
    (folder / "src" / "hotrail_mlp.v").unlink()
    with pytest.raises(rehearsal.RehearsalError, match="ERROR: src/hotrail_mlp.v is missing beside the script"):
        rehearsal.rehearse(folder)


@tcl
@pytest.mark.parametrize("old, new, finding", [
    (r"    program 0x010", "    program 0x014", "register (offset, bits, access, bus) program is (20, "),
    (r"(    program 0x010) 64", r"\1 32", "register (offset, bits, access, bus) program is (16, '32'"),
    (r"    program_count .*\n", "", "register (offset, bits, access, bus) program_count is missing"),
    (r"m00_axi \{instr", "m01_axi {instr", "'m01_axi'), not"),
    (r"    hotrail_mlp\.v\n", "", "file hotrail_mlp.v is missing"),
    (r"ipx::associate_bus_interfaces -busif m01_axi .*\n", "", "clock of m01_axi is missing"),
    (r"-reset ap_rst_n", "-reset interrupt", "reset of ap_clk is interrupt, not ap_rst_n"),
    (r"ACTIVE_LOW", "ACTIVE_HIGH", "parameter ('ap_rst_n', 'POLARITY') is ACTIVE_HIGH, not ACTIVE_LOW"),
    (r"MAX_BURST_LENGTH \d+", "MAX_BURST_LENGTH 512", "'MAX_BURST_LENGTH') is 512"),
    (r"set_property sdx_kernel true", "set_property sdx_kernel false", "the kernel's sdx_kernel is false"),
    (r"supported_families \{\}", "supported_families kintexuplus", "supported_families is kintexuplus, not "),
    (r"set_property version 0.1", "set_property version 1.0", "the kernel's version is 1.0"),
    (r"set_property range 4096", "set_property range 128", "address block's range is 128, not 4096"),
    (r"set_property slave_memory_map_ref .*\n", "", "memory map of core/bus=s_axi_control is missing"),
    (r"-kernel_name \$name", "-kernel_name other", "package_xo's -kernel_name is other"),
    (r"-part \S+", "-part xcu250", "part of project hotrail_mlp is xcu250"),
    (r"-library RTLKernel", "-library user", "package_project's -library is user, not RTLKernel"),
    (r"check_integrity -kernel", "check_integrity", "ipx::check_integrity is called without -kernel"),
    (r"ipx::update_checksums .*\n", "", "ipx::update_checksums is never called"),
    (r"(ipx::save_core .*\n)", r"\1set_property ipi_drc {ignore_freq_hz true} $core\n",
     "set_property is called after ipx::create_xgui_files"),
    (r"(ipx::create_xgui_files .*\n)(ipx::update_checksums .*\n)", r"\2\1",
     "ipx::update_checksums is called before the last ipx::create_xgui_files"),
    (r"set_property top \$name \[get_filesets sim_1\]\n", "", "top of fileset/sim_1 is missing"),
])
def test_a_changed_script_is_found(tmp_path, old, new, finding):
    def change(text):
        changed, times = re.subn(old, new, text, count=1)
        assert times == 1, f"{old} is not in the script"
        return changed

    folder, kernel = folder_of(tmp_path, change=change)
    found = rehearsal.findings(rehearsal.rehearse(folder), kernel)
    assert any(finding in sentence for sentence in found), found
    assert len(found) <= 2, found


@tcl
def test_any_text_is_one_word(tmp_path):
    texts = ["", "plain", "two words", "a{b", "a}b", "}{", "$x [y] \"z\" ; #", "back\\slash", "end\\", "line\nnext",
             "{x}", "beats of the inputs' buffer"]
    script = tmp_path / "words.tcl"
    lines = [f"puts [string length [lindex [list {_word(text)}] 0]]" for text in texts]
    lines.append(f"puts [list {' '.join(_word(text) for text in texts if chr(10) not in text)}]")
    script.write_text("\n".join(lines) + "\n")
    run = subprocess.run(["tclsh", script], capture_output=True, text=True)
    assert not run.stderr
    *lengths, listed = run.stdout.splitlines()
    assert [int(length) for length in lengths] == [len(text) for text in texts]
    assert rehearsal.split(listed) == [text for text in texts if "\n" not in text]


def test_link_is_read_back():
    kernel, _ = prepared("mlp")
    links = read_cfg(link_cfg(kernel, 2))
    assert links.instances == (("hotrail_mlp", ("hotrail_mlp_1", "hotrail_mlp_2")),)
    assert links.ports == tuple((f"hotrail_mlp_{n}", bus.name, "bank0") for n in (1, 2) for bus in kernel.masters)
    assert links.properties and all(text.startswith("run.impl_1.") for text in links.properties)
    assert instance_names(kernel) == ("hotrail_mlp_1",)
    assert check_cfg(link_cfg(kernel, 2), kernel) == []


def test_link_takes_names_by_default_and_other_memories():
    kernel, _ = prepared("mlp")
    text = "[connectivity]\nnk=hotrail_mlp:1\n" + "".join(f"sp=hotrail_mlp_1.{bus.name}:plram # near\n"
                                                         for bus in kernel.masters)
    assert check_cfg(text, kernel) == []
    assert read_cfg("") == Links()


@pytest.mark.parametrize("instances", [0, -1, 8, True, "2"])
def test_link_instances_wrong(instances):
    kernel, _ = prepared("mlp")
    assert len(kernel.masters) == 2
    with pytest.raises(ValueError, match="instances must be 1 to 7 for hotrail_mlp, which has 2 masters of at most 15"
                                         f", not {instances!r}"):
        link_cfg(kernel, instances)


@pytest.mark.parametrize("old, new, sentence", [
    ("sp=hotrail_mlp_1.m00_axi:bank0", "sp=hotrail_mlp_1.m00_axi:DDR[0]",
     "link.cfg: sp=hotrail_mlp_1.m00_axi:DDR[0]: the card has no memory DDR[0]; it has bank0, plram"),
    ("sp=hotrail_mlp_1.m00_axi:bank0", "sp=hotrail_mlp_1.m00_axi:plram",
     "link.cfg: the masters of hotrail_mlp_1 are in bank0 and plram; its buffers must be in one memory"),
    ("sp=hotrail_mlp_1.m00_axi", "sp=hotrail_mlp_1.m02_axi", "hotrail_mlp has no master m02_axi"),
    ("sp=hotrail_mlp_1.m01_axi:bank0\n", "", "link.cfg: hotrail_mlp_1.m01_axi has no memory: its sp is missing"),
    ("sp=hotrail_mlp_1.m01_axi", "sp=hotrail_mlp_2.m01_axi", "there is no instance hotrail_mlp_2"),
    ("sp=hotrail_mlp_1.m01_axi", "sp=hotrail_mlp_1.m00_axi", "hotrail_mlp_1.m00_axi has 2 memories"),
    ("nk=hotrail_mlp:", "nk=hotrail_emb:", "the kernel hotrail_emb is not hotrail_mlp"),
    ("nk=hotrail_mlp:1", "nk=hotrail_mlp:2",
     "link.cfg, line 3: nk=hotrail_mlp:2:hotrail_mlp_1: 2 instances, but 1 names"),
    ("nk=hotrail_mlp:1:hotrail_mlp_1\n", "", "no instance of hotrail_mlp: there is no nk"),
    ("nk=hotrail_mlp:1:hotrail_mlp_1", "nk=hotrail_mlp:2:hotrail_mlp_1.hotrail_mlp_1", "hotrail_mlp_1 is named twice"),
    ("nk=hotrail_mlp:1:hotrail_mlp_1", "nk=hotrail_mlp:8", "8 instances have 16 masters; the shell has ports for 15"),
    ("[connectivity]", "[connect]", "link.cfg, line 2: [connect]: unknown section; there are [connectivity], [vivado]"),
    ("sp=", "slr=", "'slr' is no key of [connectivity]"),
    (":bank0", "", "must be sp=<instance>.<bus>:<memory>"),
])
def test_a_wrong_link_is_found(old, new, sentence):
    kernel, _ = prepared("mlp")
    text = link_cfg(kernel)
    assert old in text
    found = check_cfg(text.replace(old, new, 1), kernel)
    assert any(sentence in one for one in found), found
    assert all(one.startswith("link.cfg") for one in found)


def test_link_follows_the_description():
    kernel, _ = prepared("mlp")
    narrow = replace(kernel, buses=tuple(bus for bus in kernel.buses if bus.name != "m01_axi"))
    assert "m01_axi" not in link_cfg(narrow)
    assert check_cfg(link_cfg(narrow), kernel) == ["link.cfg: hotrail_mlp_1.m01_axi has no memory: its sp is missing"]
