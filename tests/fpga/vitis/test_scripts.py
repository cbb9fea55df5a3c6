"""package.tcl rehearsed under tclsh; link.cfg against the platform's rules."""

import re
import shutil
import subprocess

import pytest

from fpga.vitis.link import instance_names, link_cfg
from fpga.vitis.memory import memory_tcl
from fpga.vitis.scripts import _word, package_tcl
from gen.model.device import Device
from gen.model.platform import Platform
from tests.support.vitis_kernels import KERNELS, prepared
from tests.support.vitis_script import broken, calls

tcl = pytest.mark.skipif(not shutil.which("tclsh"), reason="tclsh is missing (apt-get install tcl)")


def rehearsed(core, fault="", change=lambda text: text):
    """The calls of a core's script, or the error that it ends with."""
    kernel, texts = prepared(core)
    return calls(change(package_tcl(kernel)), texts, fault)


@tcl
@pytest.mark.parametrize("core", KERNELS)
def test_script_follows_the_description(core):
    kernel, _ = prepared(core)
    assert list(broken(kernel, rehearsed(core))) == []
    inferred = rehearsed(core, "inferred")
    assert [call[1] for call in inferred if call[0] == "ipx::infer_bus_interface"] == ["interrupt"]


# What goes wrong in Vivado, and the error that the script must end with; Vivado ends with none but at the last.
FAULTS = {
    "dropped": "ERROR: Vivado dropped Add_registersNone",
    "added": "ERROR: *synthesis has the file stranger.v, which was not given",
    "lost": "ERROR: *synthesis names src/Add_registersNone",
    "ungrouped": "ERROR: Vivado dropped Add_registersNone",
    "topless": "ERROR: the top module is other, not hotrail_mlp: its Verilog was not read",
    "blind": "ERROR: the ports of ap_clk were not recognised as an interface xilinx.com:signal:clock_rtl:1.0",
    "unsound": "ERROR: ipx::check_integrity finds faults in the kernel: see the messages above",
    "unpacked": "ERROR: package_xo made no hotrail_mlp.xo",
    "absent": "ERROR: src/Add_registersNone",
    "unconstrained": "ERROR: src/hotrail_mlp.xdc is missing beside the script",
    "loose": "ERROR: Vivado dropped hotrail_mlp.xdc",
    "broken": "integrity check failed",
}


@tcl
@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_in_vivado_ends_the_script(fault):
    said = rehearsed("mlp", fault)
    assert isinstance(said, str) and FAULTS[fault] in said


@tcl
@pytest.mark.parametrize("old, new, finding", [
    (r"    program 0x010", "    program 0x014", "register program is {'address_offset': '0x014'"),
    (r"m00_axi \{instr", "m01_axi {instr", "} of 'm01_axi'"),
    (r"    hotrail_mlp\.v\n", "", "files are given; the kernel has"),
    (r"^    m01_axi_awlen\n", "", "ports; the kernel has"),
    (r"ipx::associate_bus_interfaces -busif m01_axi .*\n", "", "m01_axi has no clock"),
    (r"check_integrity -kernel", "check_integrity", "ipx::check_integrity -kernel is missing"),
    (r"-kernel_xml \[.*?\] ", "", "-kernel_xml HERE/kernel.xml is missing"),
    (r"(ipx::create_xgui_files .*\n)(ipx::update_checksums .*\n)", r"\2\1",
     "ipx::update_checksums is called before the last ipx::create_xgui_files"),
    (r"^    if \{\$found ne \"\"\} \{ return \$found \}\n", "", "is there already"),
    (r"^close_project", "exec touch stranger\nclose_project", "exec touch stranger is none of Vivado's"),
])
def test_a_changed_script_is_found(old, new, finding):
    """A script that makes parts which Vivado has inferred is among them, so the second world is tried too."""
    def change(text):
        changed, times = re.subn(old, new, text, count=1, flags=re.M)
        assert times == 1, f"{old} is not in the script"
        return changed

    kernel, _ = prepared("mlp")
    again = rehearsed("mlp", "inferred", change)
    said = [*broken(kernel, rehearsed("mlp", change=change)), *([again] if isinstance(again, str) else [])]
    assert any(finding in sentence for sentence in said), said


@tcl
def test_the_memory_is_asked_for_what_the_tuned_device_has():
    device = Device.load("smartssd_tuned")
    made = calls(memory_tcl(), ())
    assert [call[1:] for call in made if call[0] == "set_property"] == [
        ("CONFIG.C0.DDR4_Mem_Add_Map", "ROW_BANK_COLUMN", "/ddrmem_1"),
        *((f"CONFIG.{name}", value, cell) for cell in ("/axi_interconnect_0", "/axi_interconnect_1")
          for name, value in (("ENABLE_ADVANCED_OPTIONS", "1"), ("M00_ISSUANCE", str(device.port.bursts))))]
    assert {call[0] for call in made} == {"get_bd_cells", "get_property", "set_property"}
    assert device.controller.map == "row_bank_column" and device.port.bursts == 32     # the most that PG059 has


@tcl
@pytest.mark.parametrize("fault, said", [
    ("cell-less", "hotrail: this platform's block design has no cell /ddrmem_1"),
    ("another", "hotrail: /ddrmem_1 is xilinx.com:ip:axi_interconnect:2.2, no ddr4"),
    ("deaf", "hotrail: /ddrmem_1 keeps C0.DDR4_Mem_Add_Map at 0; asked for: ROW_BANK_COLUMN"),
])
def test_a_memory_that_is_not_as_expected_ends_the_script(fault, said):
    assert calls(memory_tcl(), (), fault) == said


@tcl
def test_any_text_is_one_word(tmp_path):
    texts = ["", "plain", "two words", "a{b", "a}b", "}{", "$x [y] \"z\" ; #", "back\\slash", "end\\", "line\nnext",
             "{x}", "beats of the inputs' buffer"]
    path = tmp_path / "words.tcl"
    path.write_text("".join(f"puts x[binary encode hex [lindex [list {_word(text)}] 0]]\n" for text in texts), "utf-8")
    run = subprocess.run(["tclsh", path], capture_output=True, text=True)
    assert not run.stderr
    assert [bytes.fromhex(line[1:]).decode() for line in run.stdout.splitlines()] == texts


def linked(text):
    """The settings of a link.cfg: section, key and value each."""
    section, found = "", []
    for line in filter(None, (line.split("#")[0].strip() for line in text.splitlines())):
        if line.startswith("["):
            section = line
        else:
            found.append((section, *line.split("=", 1)))
    return found


@pytest.mark.parametrize("instances", [1, 2, 7])
@pytest.mark.parametrize("core", KERNELS)
def test_link_gives_every_master_the_one_bank(core, instances):
    """Pointers of one buffer reach it by both masters, so all are at the same bank; the platform has 15 ports."""
    kernel, _ = prepared(core)
    names = instance_names(kernel, instances)
    assert names[0] == f"hotrail_{core}_1" and len(set(names)) == instances
    found = linked(link_cfg(kernel, instances))
    ports = [f"{name}.{bus.name}" for name in names for bus in kernel.masters]
    assert [line for line in found if line[0] == "[connectivity]"] == [
        ("[connectivity]", "nk", f"{kernel.name}:{instances}:{'.'.join(names)}"),
        *(("[connectivity]", "sp", f"{port}:bank0") for port in ports)]
    board = Platform.load()
    assert len(ports) <= 15 == board.masters_max and (board.memory_tag, *board.other_tags) == ("bank0", "plram")
    assert all(line[:2] == ("[vivado]", "prop") and line[2].startswith("run.impl_1.STEPS.") for line in found
               if line[0] != "[connectivity]")


def test_the_port_of_rows_may_be_linked_to_the_host_s_memory():
    kernel, _ = prepared("hotline")
    found, without = (linked(link_cfg(kernel, 2, platform="u250", host=host)) for host in (["m01_axi"], []))
    moved = [("[connectivity]", "sp", f"{name}.m01_axi:HOST[0]") for name in instance_names(kernel, 2)]
    assert [line for line in found if line not in without] == moved and len(found) == len(without)


@pytest.mark.parametrize("core, host, platform, sentence", [
    ("hotline", "m01_axi", "smartssd", "platform smartssd (Samsung SmartSSD) does not let kernels reach the host's "
     "memory (HOST[0]): without --host m01_axi its buffers lie in the card's own"),
    ("hotline", "m00_axi", "u250", "host must be masters of hotline whose buffers no other one reaches, m01_axi, not "
     "'m00_axi'"),
    ("mlp", "m01_axi", "u55c", "host must be masters of mlp whose buffers no other one reaches, of which it has none, "
     "not 'm01_axi'")])
def test_hosts_wrong(core, host, platform, sentence):
    kernel, _ = prepared(core)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        link_cfg(kernel, platform=platform, host=[host])


@pytest.mark.parametrize("core", KERNELS)
def test_monitors_are_at_every_port(core):
    """An analyzer and a protocol checker at each AXI interface of each instance, counters at each master; all else is
    as without them."""
    kernel, _ = prepared(core)
    found, without = linked(link_cfg(kernel, 2, monitors=True)), linked(link_cfg(kernel, 2))
    assert found[:len(without)] == without
    ports = [f"{kernel.name}_{number}:{bus.name}" for number in (1, 2) for bus in kernel.buses]
    assert found[len(without):] == [
        *(("[debug]", debug, port) for debug in ("chipscope", "protocol") for port in ports),
        *(("[profile]", "data", f"{kernel.name}:{port}:counters") for port in ports if "s_axi" not in port),
        *(("[profile]", "exec", f"{kernel.name}:{kernel.name}_{number}") for number in (1, 2))]


@pytest.mark.parametrize("instances", [0, -1, 8, True, "2"])
def test_link_instances_wrong(instances):
    kernel, _ = prepared("mlp")
    with pytest.raises(ValueError, match="instances must be 1 to 7 for hotrail_mlp, which has 2 masters of at most 15"
                                         f", not {instances!r}"):
        link_cfg(kernel, instances)
