"""package.tcl run by tclsh with recorders in the place of Vivado's commands; link.cfg read back."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from fpga.vitis.checks import ports
from fpga.vitis.checks import tcl as script
from fpga.vitis.checks.expected import expected
from fpga.vitis.checks.link import link
from fpga.vitis.link import instance_names, link_cfg
from fpga.vitis.scripts import _word, package_tcl
from tests.support.vitis_kernels import KERNELS, prepared

tcl = pytest.mark.skipif(not shutil.which("tclsh"), reason="tclsh is missing (apt-get install tcl)")


def found(core, change=lambda text: text):
    """What the reader says of a core's script."""
    kernel, texts = prepared(core)
    wanted = expected(core)
    top = ports.top({f"src/{name}": text for name, text in texts.items()}, wanted)
    said = script.package_tcl(change(package_tcl(kernel)), wanted, top, kernel.vlnv, [*texts], kernel.config)
    return list(dict.fromkeys(said))


def calls(core, fault=""):
    """The calls of its script, or the error that it ends with."""
    kernel, texts = prepared(core)
    return script._calls(package_tcl(kernel), tuple(sorted(texts)), fault)


@tcl
@pytest.mark.parametrize("core", KERNELS)
def test_calls_are_what_the_description_says(core):
    kernel, _ = prepared(core)
    assert found(core) == []
    # And not by finding nothing to compare: each of these is there as often as the description has it.
    for world in ("", "inferred"):
        made = calls(core, world)
        count = {name: sum(call[0] == name for call in made) for name in (
            "add_files", "ipx::add_register", "package_xo", "ipx::add_register_parameter")}
        assert count == {"add_files": len(kernel.files), "ipx::add_register": len(kernel.registers), "package_xo": 1,
                         "ipx::add_register_parameter": sum(item.pointer for item in kernel.arguments)}
        clocked = [call[2] for call in made if call[:2] == ("ipx::associate_bus_interfaces", "-busif")]
        assert clocked == [bus.name for bus in kernel.buses]
        inferred = [call[1].split()[0] for call in made if call[0] == "ipx::infer_bus_interface"]
        assert len(inferred) == (1 if world else 3 + len(kernel.buses)) and "interrupt" in inferred


def test_script_is_the_same_everywhere(tmp_path):
    kernel, _ = prepared("mlp")
    text = package_tcl(kernel)
    assert text == package_tcl(kernel) and "/tmp" not in text
    assert "[file dirname [file normalize [info script]]]" in text
    assert all(len(line) <= 200 for line in text.splitlines())


@tcl
@pytest.mark.parametrize("fault, sentence", [
    ("dropped", "ERROR: Vivado dropped Add_operands"),
    ("added", "ERROR: *synthesis has the file stranger.v, which was not given"),
    ("lost", "ERROR: *synthesis names src/Add_operands"),
    ("ungrouped", "ERROR: Vivado dropped Add_operands"),
    ("topless", "ERROR: the top module is other, not hotrail_mlp: its Verilog was not read"),
    ("blind", "ERROR: the ports of ap_clk were not recognised as an interface xilinx.com:signal:clock_rtl:1.0"),
    ("unsound", "ERROR: ipx::check_integrity finds faults in the kernel: see the messages above"),
    ("broken", "integrity check failed"),
    ("unpacked", "ERROR: package_xo made no hotrail_mlp.xo"),
    ("absent", "ERROR: src/Add_operands"),
])
def test_what_goes_wrong_in_vivado_ends_the_script(fault, sentence):
    assert fault in script._FAULTS
    said = calls("mlp", fault)
    assert isinstance(said, str) and sentence in said


@tcl
@pytest.mark.parametrize("old, new, finding", [
    (r"    program 0x010", "    program 0x014", "register[program].address_offset is '0x014'; it must be '16'"),
    (r"(    program 0x010) 64", r"\1 32", "register[program].size is '32'; it must be '64'"),
    (r"    program_count .*\n", "", "register[program_count] is missing"),
    (r"m00_axi \{instr", "m01_axi {instr", "is 'm01_axi'; it must be 'm00_axi'"),
    (r"    hotrail_mlp\.v\n", "", "file hotrail_mlp.v is missing"),
    (r"ipx::associate_bus_interfaces -busif m01_axi .*\n", "", "association of bus m01_axi is missing"),
    (r"-reset ap_rst_n", "-reset interrupt", "association of reset is '-clock ap_clk -reset interrupt'"),
    (r"ACTIVE_LOW", "ACTIVE_HIGH", "bus_parameter[POLARITY].value is 'ACTIVE_HIGH'; it must be 'ACTIVE_LOW'"),
    (r"MAX_BURST_LENGTH \d+", "MAX_BURST_LENGTH 512", "bus_parameter[MAX_BURST_LENGTH].value is '512'"),
    (r"set_property sdx_kernel true", "set_property sdx_kernel false", "core.sdx_kernel is 'false'"),
    (r"supported_families \{\}", "supported_families kintexuplus", "core.supported_families is 'kintexuplus'"),
    (r"set_property version 0.1", "set_property version 1.0", "core.version is '1.0'; it must be '0.1'"),
    (r"set_property range 4096", "set_property range 128", "address_block[reg0].range is '128'; it must be '4096'"),
    (r"set_property slave_memory_map_ref .*\n", "", "slave_memory_map_ref is missing"),
    (r"-kernel_name \$name", "-kernel_name other", "package_xo -kernel_name is 'other'; it must be 'hotrail_mlp'"),
    (r"-part \S+", "-part xcu250", "create_project hotrail_mlp -part is 'xcu250'"),
    (r"-library RTLKernel", "-library user", "ipx::package_project -library is 'user'; it must be 'RTLKernel'"),
    (r"check_integrity -kernel", "check_integrity", "ipx::check_integrity core -kernel is missing"),
    (r"ipx::update_checksums .*\n", "", "ipx::update_checksums core is missing"),
    (r"(ipx::save_core .*\n)", r"\1set_property ipi_drc {ignore_freq_hz true} $core\n",
     "set_property ipi_drc comes after ipx::create_xgui_files"),
    (r"(ipx::create_xgui_files .*\n)(ipx::update_checksums .*\n)", r"\2\1",
     "ipx::update_checksums is called before the last ipx::create_xgui_files"),
    (r"set_property top \$name \[get_filesets sim_1\]\n", "", "fileset/sim_1.top is missing"),
])
def test_a_changed_script_is_found(old, new, finding):
    def change(text):
        changed, times = re.subn(old, new, text, count=1)
        assert times == 1, f"{old} is not in the script"
        return changed

    said = found("mlp", change)
    assert any(finding in sentence for sentence in said), said
    assert all(sentence.startswith("package.tcl: ") for sentence in said)


@tcl
def test_any_text_is_one_word(tmp_path):
    texts = ["", "plain", "two words", "a{b", "a}b", "}{", "$x [y] \"z\" ; #", "back\\slash", "end\\", "line\nnext",
             "{x}", "beats of the inputs' buffer"]
    path = tmp_path / "words.tcl"
    path.write_text("".join(f"puts x[binary encode hex [lindex [list {_word(text)}] 0]]\n" for text in texts))
    run = subprocess.run(["tclsh", path], capture_output=True, text=True)
    assert not run.stderr
    assert [bytes.fromhex(line[1:]).decode() for line in run.stdout.splitlines()] == texts


def test_link_is_read_back():
    kernel, _ = prepared("mlp")
    assert instance_names(kernel) == ("hotrail_mlp_1",)
    for instances in (1, 2, 7):
        text = link_cfg(kernel, instances)
        assert list(link(text, expected("mlp"), instances)) == []
        assert text.count("\nsp=") == 2 * instances and "\nprop=run.impl_1." in text


def test_link_takes_other_memories():
    text = link_cfg(prepared("mlp")[0])
    assert list(link(text.replace("bank0", "plram # near"), expected("mlp"), 1)) == []


@pytest.mark.parametrize("instances", [0, -1, 8, True, "2"])
def test_link_instances_wrong(instances):
    kernel, _ = prepared("mlp")
    assert len(kernel.masters) == 2
    with pytest.raises(ValueError, match="instances must be 1 to 7 for hotrail_mlp, which has 2 masters of at most 15"
                                         f", not {instances!r}"):
        link_cfg(kernel, instances)


@pytest.mark.parametrize("old, new, sentence", [
    ("sp=hotrail_mlp_1.m00_axi:bank0", "sp=hotrail_mlp_1.m00_axi:DDR[0]",
     "sp=hotrail_mlp_1.m00_axi:DDR[0]: the platform has bank0 and plram, no 'DDR[0]'"),
    ("sp=hotrail_mlp_1.m00_axi:bank0", "sp=hotrail_mlp_1.m00_axi:plram",
     "link.cfg: hotrail_mlp_1 has its masters on bank0, plram; a buffer of one is the other's too"),
    ("sp=hotrail_mlp_1.m00_axi", "sp=hotrail_mlp_1.m02_axi", "sp=hotrail_mlp_1.m02_axi:bank0: there is no such port"),
    ("sp=hotrail_mlp_1.m01_axi:bank0\n", "", "link.cfg: hotrail_mlp_1.m01_axi has no bank: its line"),
    ("sp=hotrail_mlp_1.m01_axi", "sp=hotrail_mlp_2.m01_axi", "sp=hotrail_mlp_2.m01_axi:bank0: there is no such port"),
    ("sp=hotrail_mlp_1.m01_axi", "sp=hotrail_mlp_1.m00_axi", "hotrail_mlp_1.m00_axi has its bank already"),
    ("nk=hotrail_mlp:", "nk=hotrail_emb:", "link.cfg: nk is hotrail_emb:1:hotrail_mlp_1; it must be hotrail_mlp:1:"),
    ("nk=hotrail_mlp:1", "nk=hotrail_mlp:2", "link.cfg: nk is hotrail_mlp:2:hotrail_mlp_1; it must be"),
    ("nk=hotrail_mlp:1:hotrail_mlp_1\n", "", "link.cfg: nk is missing"),
    ("nk=hotrail_mlp:1:hotrail_mlp_1", "nk=hotrail_mlp:2:hotrail_mlp_1.hotrail_mlp_1", "link.cfg: nk is hotrail_mlp:2"),
    ("[connectivity]", "[connect]", "line 3: nk=hotrail_mlp:1:hotrail_mlp_1: it does not belong into [connect]"),
    ("sp=", "slr=", "slr=hotrail_mlp_1.m00_axi:bank0: it does not belong into [connectivity]"),
    (":bank0", "", "the platform has bank0 and plram, no ''"),
])
def test_a_wrong_link_is_found(old, new, sentence):
    text = link_cfg(prepared("mlp")[0])
    assert old in text
    said = list(link(text.replace(old, new, 1), expected("mlp"), 1))
    assert any(sentence in one for one in said), said
    assert all(one.startswith("link.cfg: ") for one in said)


def test_too_many_masters_are_found():
    kernel, _ = prepared("mlp")
    text = "[connectivity]\nnk=hotrail_mlp:8:" + ".".join(instance_names(kernel, 8)) + "\n" + "".join(
        f"sp={name}.{bus.name}:bank0\n" for name in instance_names(kernel, 8) for bus in kernel.masters)
    said, *_ = link(text, expected("mlp"), 8)
    assert said.endswith("has 16 masters; the platform has 15 ports")


def test_link_follows_the_description():
    kernel, _ = prepared("mlp")
    narrow = replace(kernel, buses=tuple(bus for bus in kernel.buses if bus.name != "m01_axi"))
    assert "m01_axi" not in link_cfg(narrow)
    assert list(link(link_cfg(narrow), expected("mlp"), 1)) == [
        "link.cfg: hotrail_mlp_1.m01_axi has no bank: its line sp=hotrail_mlp_1.m01_axi:bank0 is missing"]
