"""The folder of a custom logic for AWS F2: its Verilog under the tools, its scripts under stand-ins for the HDK."""

import json
import os
import re
import shutil
import subprocess

import pytest

from fpga.synth import lint
from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.vitis import gate, hdk
from gen.base.tools import environment, verilator
from gen.model.device import Device
from gen.model.platform import Platform
from gen.rtl.config import load
from gen.rtl.f2 import top
from gen.rtl.verilog import convert, interface
from hw.f2.logic import ADDRESS_BITS, CustomLogic
from tests.support.command import call
from verif.f2.shell import CL, Registers, ports, texts

MODULE = "hotrail_emb_f2"


@pytest.fixture(scope="module")
def logic():
    """The Verilog around registers alone, which takes a second."""
    return convert(CustomLogic(Registers()), MODULE)[0]


@pytest.fixture
def quick(monkeypatch, logic):
    """What the gate finds: the LUTs of it, at 6 levels."""
    monkeypatch.setattr(hdk, "custom_logic", lambda preset, core: None)
    monkeypatch.setattr(hdk.verilog, "convert", lambda component, name: (logic, {}) if name == MODULE else None)
    found, depth = {"lut": 1000}, Depth(6, 1, ("in Part", "a.Q (FDRE)", "b.D (FDRE)"))
    monkeypatch.setattr(gate, "measure", lambda *arguments: Report(MODULE, Area(**found), {}, depth, depth, depth))
    return found


@pytest.mark.turns(1, of="syntheses")
def test_logic_is_clean(logic, tmp_path):
    """By Verilator, Yosys, slang and Icarus, of the interconnect and what is around it; cores are looked at by `make
    lint`."""
    for name, text in logic.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert lint.check(tmp_path.glob("*.v"), MODULE) == []


def top_findings(logic, folder, change=lambda text: text):
    """What Verilator says of the top between the shell's ports, sh_ddr and the ports of the logic."""
    found = texts({f"{MODULE}.v": interface(logic[f"{MODULE}.v"])}, MODULE)
    found[f"{CL}.sv"] = change(found[f"{CL}.sv"])
    for name, text in found.items():
        (folder / name).write_text(text, "utf-8")
    run = subprocess.run([str(verilator()[0]), "--lint-only", "-Wall", "-Wno-UNUSED", "-Wno-PINCONNECTEMPTY",
                          "--top-module", CL, *found], cwd=folder, env=environment(), text=True, capture_output=True)
    return [line for line in run.stderr.splitlines() if f"{CL}.sv" in line and line.startswith("%")]


def test_top_is_clean(logic, tmp_path):
    """Every pin of the shell, of sh_ddr and of the logic is connected, with its width, and each output driven."""
    assert top_findings(logic, tmp_path) == []
    tree = lint._slang([_write(tmp_path / "all.sv", "\n".join(texts(
        {"l": interface(logic[f"{MODULE}.v"])}, MODULE).values()))], CL)
    assert [finding for finding in tree if finding.name == "error"] == []


def _write(path, text):
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("old, new, says", [
    ("  assign tdo = '0;\n", "", "UNDRIVEN"),
    ("    .ddr__rid       (ddr_rid),\n", "", "PINMISSING"),
    ("(cl_sh_dma_pcis_bid)", "(cl_sh_dma_pcis_bresp)", "WIDTH"),
    ("(ocl_cl_araddr)", "(ocl_cl_araddr_)", "IMPLICIT"),
])
def test_top_seen(logic, tmp_path, old, new, says):
    found = top_findings(logic, tmp_path, lambda text: text.replace(old, new))
    assert old in top(CL, MODULE) and any(says in line for line in found), found


def test_every_output_of_the_shell_is_driven_once():
    text = top(CL, MODULE)
    for name, (kind, _) in ports().items():
        if kind != "input":
            assert len(re.findall(rf"\({name}\)|assign {name} ", text)) == 1, name


def test_board_and_logic_agree():
    device = Device.load(hdk.BOARD)
    assert (device.memory.base, device.memory.bytes) == (0, 1 << ADDRESS_BITS)
    assert device.kernel_mhz == 250 and Platform.load(hdk.BOARD).clocks_mhz == (250,), "clk_main_a0"


def test_folder(quick, tmp_path):
    """What the HDK asks for lies where it looks; the same preset gives the same bytes; every file is listed."""
    folder = hdk.package("smartssd", "emb", out=tmp_path).folder
    assert folder == tmp_path / "smartssd/f2/cl_hotrail_emb"
    told = json.loads((folder / "package.json").read_text("utf-8"))
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*told["files"], "package.json"} and told["part"] == "xcvu47p-fsvh2892-2-e"
    assert there >= {"design/cl_hotrail_emb.sv", "design/hotrail_emb_f2.v", "design/cl_id_defines.vh",
                     "build/scripts/synth_cl_hotrail_emb.tcl", "build/constraints/cl_timing_user.xdc",
                     "build/constraints/cl_synth_user.xdc", "build/constraints/small_shell_cl_pnr_user.xdc"}
    assert told["gate"]["passed"] and told["gate"]["percent"]["small"]["lut"] == 0.1
    preset = load("smartssd")
    again = hdk.contents(preset, hdk.logic(preset, "emb"))
    assert again == {name: (folder / name).read_text("utf-8") for name in told["files"]}
    # As aws_build_dcp_from_cl.py takes the IDs apart for the manifest of an image.
    ids = [re.search(rf"`define\s+CL_SH_ID{number}\s+32'h(\w{{4}})_(\w{{4}})",
                     (folder / "design/cl_id_defines.vh").read_text("utf-8")) for number in range(2)]
    assert tuple(int(word, 16) for found in ids for word in found.groups()) == hdk.IDS
    assert 0xF000 <= hdk.IDS[0] <= 0xF0FF and hdk.IDS[1] == 0x1D0F and all(hdk.IDS[2:])


def test_build_script(quick, tmp_path):
    """build.sh runs the HDK's build in the CL's folder, with its name and the options that it was given."""
    folder = hdk.package("smartssd", "emb", out=tmp_path, gated=False).folder
    shell = tmp_path / "hdk/build/scripts"
    shell.mkdir(parents=True)
    for name in ("build_all.tcl", "build_level_1_cl.tcl", "encrypt.tcl"):
        (shell / name).write_text("", "utf-8")
    (shell / "aws_build_dcp_from_cl.py").write_text(
        "import os, sys\nprint(os.getcwd(), os.environ['CL_DIR'], *sys.argv[1:], *sorted(os.listdir()))\n", "utf-8")
    command = ["sh", str(folder / "build/scripts/build.sh"), "--flow", "SynthCL"]
    clean = {name: value for name, value in os.environ.items() if name != "HDK_SHELL_DIR"}
    run = subprocess.run(command, env=clean | {"HDK_SHELL_DIR": str(tmp_path / "hdk")}, capture_output=True, text=True)
    assert run.stdout.split()[:8] == [str(folder / "build/scripts"), str(folder), "--cl", "cl_hotrail_emb", "--mode",
                                      "small_shell", "--flow", "SynthCL"], run
    assert {"build_all.tcl", "encrypt.tcl", "build_level_1_cl.tcl"} < set(run.stdout.split())
    run = subprocess.run(command, env=clean, capture_output=True, text=True)
    assert run.returncode and "HDK_SHELL_DIR: is not set: run 'source hdk_setup.sh'" in run.stderr


@pytest.mark.skipif(not shutil.which("tclsh"), reason="tclsh is missing (apt-get install tcl)")
def test_synthesis_script(quick, tmp_path):
    """Under tclsh, with Vivado's commands recorded: all Verilog and the DDR's IP are read before the top is
    synthesised."""
    folder = hdk.package("smartssd", "emb", out=tmp_path, gated=False).folder
    (tmp_path / "build/scripts").mkdir(parents=True)
    for name in ("synth_cl_header.tcl", "synth_cl_footer.tcl"):
        (tmp_path / "build/scripts" / name).write_text(f"puts {{{name}}}\n", "utf-8")
    names = "read_verilog read_ip read_xdc set_property get_files update_compile_order synth_design"
    script = [f"set HDK_SHELL_DIR {tmp_path}", f"set HDK_IP_SRC_DIR {tmp_path}",
              f"set src_post_enc_dir {folder}/design", "set constraints_dir C", "set CL cl_hotrail_emb",
              "set DEVICE_TYPE xcvu47p",
              *(f"proc {name} {{args}} {{puts \"{name} $args\"; return x}}" for name in names.split()),
              f"source {folder}/build/scripts/synth_cl_hotrail_emb.tcl"]
    run = subprocess.run(["tclsh"], input="\n".join(script), capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if not line.startswith(("get_files", "set_property"))]
    assert [line.split()[0] for line in lines] == [
        "synth_cl_header.tcl", "read_verilog", "read_verilog", "read_ip", "read_xdc", "update_compile_order",
        "synth_design", "synth_cl_footer.tcl"], run
    assert "hotrail_emb_f2.v" in lines[1] and lines[2].endswith("cl_hotrail_emb.sv")
    assert lines[3].endswith("/cl_ddr4/cl_ddr4.xci") and "-top cl_hotrail_emb" in lines[6]


def test_command(quick, tmp_path):
    """`hotrail package --platform f2`, and what it does not take."""
    command = ["package", "smartssd", "emb", "--platform", "f2", "--out", str(tmp_path)]
    run = call(*command)
    assert run.exit_code == 0 and "custom logic complete in" in run.output, run.output
    run = call(*command, "--instances", "2")
    assert run.exit_code and "--instances is for packages that Vitis links" in run.output


def test_gate(quick, tmp_path):
    """What does not fit the board is refused with the sentence of any gate, and written when it is forced."""
    quick["lut"] = 1_100_000
    command = "package", "smartssd", "emb", "--platform", "f2", "--out", tmp_path
    run = call(*command)
    assert run.exit_code == 1 and not list(tmp_path.rglob("*.sv")), run.output
    assert "refused: hotrail_emb_f2: 1,100,000 LUT, 79,000 more than the F2 Small Shell's 1,021,000" in run.output
    assert "over AMD's guideline, with the platform's logic: LUT: 106.1 %, guideline 70 %" in run.output
    for option, record in (("--force", {"passed": False, "forced": True}), ("--no-gate", {"passed": None})):
        run = call(*command, option)
        told = json.loads((tmp_path / "smartssd/f2/cl_hotrail_emb/package.json").read_text("utf-8"))
        assert run.exit_code == 0 and record.items() <= told["gate"].items()


def test_command_refuses(tmp_path):
    run = call("package", "tiny", "emb", "--platform", "f2", "--out", tmp_path)
    assert run.exit_code and "has beats of 16 bytes, and F2's memory has beats of 64" in run.output
    for option in ("--monitors", "--experimental-xo", "--host=m01_axi", "--clock=250"):
        run = call("package", "smartssd", "emb", "--platform", "f2", "--out", tmp_path, option)
        assert run.exit_code and f"{option.split('=')[0]} is for packages that Vitis links" in run.output, run.output
    assert not list(tmp_path.rglob("*.sv"))
