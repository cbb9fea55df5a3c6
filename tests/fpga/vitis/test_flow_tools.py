"""From a package on, with programs that stand in for Vivado and v++: bitstreams, failures, and the commands."""

import json
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest

from fpga.synth.map import Area, Report
from fpga.vitis import check as checks
from fpga.vitis import flow, toolchain
from fpga.vitis.check import check
from tests.support.command import call
from tests.support.vitis_flow import CORE, FLAT, STANDARD, build, files, make, shown
from tests.support.vitis_kernels import prepared

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.turns(12, of="tools")]


# ---- with Vitis ----


@pytest.mark.turns(1, of="processes")
def test_two_targets_at_once(tmp_path, tools):
    """While hw is linked another package is made in the same place and built for simulation; the same is refused."""
    made, met = make(tmp_path), []

    def meanwhile(line):
        if line.startswith("link: v++ begins"):
            met.append(build(make(tmp_path, clock_mhz=200), "hw_emu"))
            with pytest.raises(flow.Busy, match="mlp-hw is being made by process"):
                build(made)

    path = build(made, say=meanwhile)
    assert path.read_text("utf-8") == met[0].read_text("utf-8") == "xclbin"
    for place, clock_mhz in ((path, 250), (met[0], 200)):
        assert json.loads((place.parent / "kernel" / "package.json").read_text("utf-8"))["clock_mhz"] == clock_mhz
    with pytest.raises(toolchain.VitisError, match=f"{made.folder} was made anew by another process meanwhile"):
        build(made)
    assert path.read_text("utf-8") == "xclbin"


def test_bitstream_for_the_card(tmp_path, tools):
    made, said = make(tmp_path, clock_mhz=250), []
    path = build(made, say=said.append)
    assert path == tmp_path / "tiny/vitis/mlp-hw/hotrail_mlp.xclbin" and path.read_text("utf-8") == "xclbin"
    xpfm = str(next((tmp_path / "platforms").rglob(f"{STANDARD}.xpfm")))
    folder = f"{path.parent}-new"
    logs = ["--temp_dir", "_x", "--log_dir", "logs", "--report_dir", "reports"]
    assert tools() == [
        ["vivado", folder, "-mode", "batch", "-notrace", "-log", "vivado.log", "-journal", "vivado.jou", "-source",
         f"{folder}/kernel/package.tcl"],
        ["v++", folder, "-l", "-t", "hw", "--platform", xpfm, *logs, "--config", f"{folder}/kernel/link.cfg",
         "--kernel_frequency", "250", "-o", "hotrail_mlp.link.xclbin", "hotrail_mlp.xo"],
        ["v++", folder, "-p", "-t", "hw", "--platform", xpfm, *logs, "--package.out_dir", "package", "-o",
         "hotrail_mlp.xclbin", "hotrail_mlp.link.xclbin"],
    ]
    assert "line 39 of v++" in (path.parent / "logs" / "link.log").read_text("utf-8")
    assert "link: [10:00:00] Run vpl: Step synth: Started" in said and not any("line 39" in line for line in said)
    assert files(path.parent / "kernel") == files(made.folder), "what it was made of lies beside it"
    assert check(made.folder) == [], "the tools wrote into the package"


def test_the_experimental_script_is_for_the_card_alone_and_not_by_default(tmp_path, tools):
    asked = lambda: [call[call.index("--advanced.param") + 1] for call in tools() if "--advanced.param" in call]
    assert "memory.tcl" not in files(make(tmp_path).folder)
    made = make(tmp_path, experimental_memory=True)
    assert files(made.folder)["memory.tcl"].startswith(b"# EXPERIMENTAL")
    build(made, "hw_emu")
    assert asked() == []
    path = build(made)
    assert asked() == [f"compiler.userPostSysLinkOverlayTcl={path.parent}-new/kernel/memory.tcl"]


@pytest.mark.turns(1, of="syntheses")
def test_bitstream_for_simulation(tmp_path, tools):
    made = make(tmp_path)
    xpfm = next((tmp_path / "platforms").rglob(f"{STANDARD}.xpfm"))
    path = build(made, "hw_emu", str(xpfm))
    assert path == tmp_path / "tiny/vitis/mlp-hw_emu/hotrail_mlp.xclbin"
    assert (path.parent / "emconfig.json").exists()
    assert [call[0] for call in tools()] == ["vivado", "v++", "v++", "emconfigutil"]
    assert tools()[3][2:] == ["--platform", str(xpfm), "--nd", "1", "--od", "."]
    assert [call[2:5] for call in tools()[1:3]] == [["-l", "-t", "hw_emu"], ["-p", "-t", "hw_emu"]]
    assert tools()[1][-2:][0] == tools()[2][-1] == "hotrail_mlp.link.xclbin"
    assert build(made, "hw_emu", str(xpfm)) == path     # once more, afresh


def test_image_is_what_bitstream_made(tmp_path, tools, monkeypatch):
    """Each target's is found where it was left."""
    monkeypatch.setattr(toolchain, "build_folder", lambda: tmp_path)
    made = make(tmp_path)
    for target in toolchain.TARGETS:
        path = build(made, target)
        assert path == toolchain.image("tiny", CORE, target) and path.is_file()
    assert toolchain.image("tiny", CORE) == toolchain.image("tiny", CORE, target="hw") != path


def test_bitstream_in_a_relative_folder(tmp_path, tools, monkeypatch):
    """The tools work in folders of their own: what they are given must be absolute."""
    monkeypatch.chdir(tmp_path)
    done = call("bitstream", "tiny", CORE, "--out", "here", "--no-gate")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "here/tiny/vitis/mlp-hw/hotrail_mlp.xclbin").exists()
    for words in tools():
        for word in words:
            path = Path(word.replace("mlp-hw-new", "mlp-hw"))
            assert "here/" not in word or path.is_absolute() and path.exists(), words


def test_a_failure_keeps_the_last_bitstream(tmp_path, tools, monkeypatch):
    made = make(tmp_path)
    place = tmp_path / "tiny" / "vitis"
    path = build(made)
    assert shown(place) == ["mlp", "mlp-hw"]
    path.write_text("hours of work", "utf-8")
    for failing, step in (("v++", "link"), ("v++-p", "package"), ("vivado", "xo")):
        monkeypatch.setenv("FAKE_FAIL", failing)
        with pytest.raises(toolchain.VitisError) as failed:
            build(made)
        log = place / "mlp-hw-new" / "logs" / f"{step}.log"
        assert f"the end of {log}:" in str(failed.value) and "ERROR: [" in log.read_text("utf-8")
        assert path.read_text("utf-8") == "hours of work"
    monkeypatch.delenv("FAKE_FAIL")
    assert build(made).read_text("utf-8") == "xclbin"
    assert shown(place) == ["mlp", "mlp-hw"]


@pytest.mark.parametrize("variables, sentence", [
    ({"FAKE_FAIL": "vivado"}, "xo: vivado ended with code 3; the end of "),
    ({"FAKE_LAZY": "vivado"}, "xo: vivado made no hotrail_mlp.xo; the end of "),
    ({"FAKE_FAIL": "v++"}, "link: v++ ended with code 3"),
    ({"FAKE_FAIL": "v++-p"}, "package: v++ ended with code 3"),
    ({"FAKE_DROP": "hotrail_mlp.v"}, "hotrail_mlp.xo lacks hotrail_mlp.v: Vivado could not read it"),
    ({"FAKE_EXTRA": "other.v"}, "hotrail_mlp.xo holds other.v, which the package does not have"),
    ({"FAKE_CHANGE": "// x"}, "hotrail_mlp.v"),
])
def test_a_tool_that_fails(tmp_path, tools, monkeypatch, variables, sentence):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(toolchain.VitisError) as failed:
        build(make(tmp_path))
    assert sentence in str(failed.value)
    if "FAKE_FAIL" in variables:
        assert "  ERROR: [" in str(failed.value) and "line 0 of" not in str(failed.value)


def test_a_package_is_built_as_it_was_written_and_for_its_platform(tmp_path, tools):
    made = make(tmp_path)
    (made.folder / "src" / "hotrail_mlp.v").write_text("module hotrail_mlp;\nendmodule\n", "utf-8")
    with pytest.raises(toolchain.VitisError, match=f"{made.folder} is not the package that was written: src/hotrail_mlp"
                                                   ".v: its SHA-256 is "):
        build(made)
    with pytest.raises(toolchain.VitisError, match=f"{made.folder} is for the platform {STANDARD}, not for .*{FLAT}"):
        build(made, platform=FLAT)
    assert tools() == []


def test_an_xo_that_is_none(tmp_path):
    (tmp_path / "bad.xo").write_text("no zip", "utf-8")
    with pytest.raises(toolchain.VitisError, match="bad.xo: this is no .xo that can be read"):
        toolchain._compare(tmp_path / "bad.xo", {})


@pytest.mark.parametrize("change, sentences", [
    (lambda bin, env: (bin / "v++").unlink(), ["v++ is not on PATH: AMD Vitis 2021.1 to 2022.2 is needed"]),
    (lambda bin, env: (bin / "vivado").unlink(), ["vivado is not on PATH: AMD Vitis 2021.1 to 2022.2 is needed"]),
    (lambda bin, env: env.setenv("FAKE_VERSION", "2023.2"),
     [f"{name} is version 2023.2; the platform is known to Vitis 2021.1 to 2022.2" for name in ("vivado", "v++")]),
    (lambda bin, env: env.setenv("FAKE_VERSION", "2020.2"), ["is version 2020.2; "]),
    (lambda bin, env: env.setenv("FAKE_VERSION", "of today"), ["tells no version"]),
    (lambda bin, env: env.setenv("PLATFORM_REPO_PATHS", "/nowhere"),
     [f"the platform {STANDARD} is in none of /nowhere, /opt/xilinx/platforms; install it"]),
    (lambda bin, env: [env.setenv("PLATFORM_REPO_PATHS", "/nowhere"), env.setenv("FAKE_VERSION", "2020.1"),
                       (bin / "v++").unlink(), (bin / "emconfigutil").unlink()],
     ["v++ and emconfigutil are not on PATH: AMD", "vivado is version 2020.1; ", f"platform {STANDARD} is in none"]),
])
def test_what_is_missing_is_one_sentence(tmp_path, tools, monkeypatch, change, sentences):
    """Said before the conversion, and nothing is made."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    change(tmp_path / "bin", monkeypatch)
    done = call("bitstream", "tiny", CORE, "--out", tmp_path, "--target", "hw_emu")
    assert done.exit_code == 1 and done.output.startswith("Error: ") and done.output.count("\n") == 1
    assert all(sentence in done.output for sentence in sentences)
    assert done.output.endswith(f"; without it `hotrail package tiny {CORE}` makes the package alone\n")
    assert tools() == [] and not (tmp_path / "tiny").exists()


def test_platform_file_wrong(tmp_path, tools):
    with pytest.raises(toolchain.VitisMissing, match=f"there is no platform file /nowhere/{STANDARD}.xpfm; the"):
        build(make(tmp_path), platform=f"/nowhere/{STANDARD}.xpfm")
    with pytest.raises(ValueError, match="target must be xo, hw, hw_emu, not 'sw_emu'"):
        toolchain.find("sw_emu")


# ---- the commands ----


def test_command_package(tmp_path):
    done = call("package", "tiny", "mlp", "--out", tmp_path, "--experimental-xo")
    assert done.exit_code == 0, done.output
    assert "0.3 % of 310,000" in done.output and "depth: LUT levels 6 of 6 allowed, carry chains 1 of 1;" in done.output
    assert "note: flat shell: no published budget" in done.output
    folder = tmp_path / "tiny" / "vitis" / "mlp"
    assert f"tiny/mlp: package complete in {folder}\n" in done.output
    with zipfile.ZipFile(folder / "hotrail_mlp.xo") as archive:
        assert "hotrail_mlp/kernel.xml" in archive.namelist()


def test_command_tells_of_tools_in_other_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "version", lambda name: "9.9")
    done = call("package", "tiny", "mlp", "--out", tmp_path, "--no-gate")
    assert done.exit_code == 0, done.output
    assert [line.split(" is installed; ")[0] for line in done.output.splitlines()[-3:]] == [
        "note: amaranth 9.9", "note: pyosys 9.9", "note: lxml 9.9"]


def test_command_refuses(tmp_path, quick, monkeypatch):
    big = Report(quick.core, Area(lut=1, dsp=2000), {}, quick.worst, quick.most_chains, quick.boundary)
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts, say: big)
    done = call("package", "tiny", CORE, "--out", tmp_path)
    assert done.exit_code == 1
    assert "refused: hotrail_mlp: 2,000 DSP, 662 more than the standard shell's 1,338" in done.output
    assert done.output.endswith("tiny/mlp: nothing was packaged\n") and not shown(tmp_path / "tiny" / "vitis")
    done = call("package", "tiny", CORE, "--out", tmp_path, "--force")
    assert done.exit_code == 0 and "forced: hotrail_mlp: 2,000 DSP" in done.output


def test_command_takes_all_kernels_of_a_preset(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(flow, "package", lambda preset, core, **options: asked.append((preset, core)) or flow.Package(
        tmp_path, prepared(CORE)[0], 300, 1, "", None))
    assert call("package", "tiny", "--no-gate").exit_code == 0
    assert asked == [("tiny", "emb"), ("tiny", "mlp"), ("tiny", "hotline")]


def test_commands_go_the_whole_way(tmp_path, tools):
    done = call("xo", "tiny", CORE, "--out", tmp_path, "--no-gate")
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"made {tmp_path}/tiny/vitis/mlp-xo/hotrail_mlp.xo\n")
    done = call("bitstream", "tiny", CORE, "--out", tmp_path, "--target", "hw_emu")
    assert done.exit_code == 0 and done.output.endswith(f"made {tmp_path}/tiny/vitis/mlp-hw_emu/hotrail_mlp.xclbin\n")


@pytest.mark.parametrize("arguments, sentence", [
    (("package", "huge"), "there is no preset 'huge'"),
    (("package", ""), "there is no preset ''"),
    (("xo", "huge"), "there is no preset 'huge'"),
    (("package", "tiny", "none"), "preset tiny describes no kernel 'none'; it has emb, mlp, hotline"),
    (("bitstream", "tiny", CORE, "--platform", "xilinx_u200"), f"{FLAT} (Samsung SmartSSD, flat shell)"),
    (("package", "tiny", CORE, "--platform", "/there/u250.xpfm", "--force"), "not '/there/u250.xpfm'"),
    (("package", "tiny", CORE, "--clock", 100), "clock must be one of 250, 300, 200 MHz, not 100"),
    (("package", "tiny", "--clock", 301), "clock must be one of 250, 300, 200 MHz, not 301"),
    (("package", "tiny", CORE, "--instances", 99), "instances must be 1 to 7 for hotrail_mlp, which has 2 masters"),
    (("bitstream", "tiny", CORE, "--target", "sw_emu"), "'sw_emu' is not one of 'hw', 'hw_emu'"),
])
def test_commands_wrong(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.setattr(flow, "prepare", lambda preset, core: pytest.fail("converted first"))
    done = call(*arguments, "--out", tmp_path)
    assert done.exit_code and sentence in done.output.splitlines()[-1] and "Yosys" not in done.output
    assert not list(tmp_path.iterdir())


def test_commands_where_nothing_can_be_written(tmp_path, tools):
    for command_name in ("package", "xo", "bitstream"):
        done = call(command_name, "tiny", CORE, "--out", "/dev/null")
        assert done.exit_code == 1 and done.output.endswith(
            "Error: nothing can be written to /dev/null/tiny/vitis: Not a directory\n")
    (tmp_path / "tiny").write_text("in the way", "utf-8")
    for out, why in ((tmp_path, "Not a directory"), ("/proc/x", "No such file or directory")):
        done = call("package", "tiny", CORE, "--out", out, "--no-gate")
        assert (done.exit_code, done.output) == (1, f"Error: nothing can be written to {out}/tiny/vitis: {why}\n")


@pytest.mark.parametrize("given, wanted", [
    (["PRESET=tiny", "CORE=mlp", "CLOCK=250", "TARGET=hw_emu"],
     {"package": "tiny mlp --clock 250", "bitstream": "tiny mlp --clock 250 --target hw_emu"}),
    (["CORE=emb mlp", "INSTANCES=2", "FLAGS=--force --no-gate"],
     {"package": "smartssd emb mlp --instances 2 --force --no-gate"}),
    (["PRESET=", "CORE=", "CLOCK=", "INSTANCES=", "TARGET=", "PLATFORM=", "FLAGS=", "BOARD="],
     {"package": "smartssd", "xo": "smartssd", "bitstream": "smartssd", "verilog": "", "ecp5": ""}),
    (["PRESET=a folder/it's.toml", "PLATFORM=/a folder/x.xpfm"],
     {"bitstream": """'a folder/it'"'"'s.toml' --platform '/a folder/x.xpfm'""",
      "verilog": """'a folder/it'"'"'s.toml'"""}),
    (["CORE=none", "PRESET=tiny", "BOARD=my board.toml"], {"ecp5": "none --preset tiny --board 'my board.toml'"}),
])
def test_makefile_asks_for_the_same(given, wanted):
    """Values may hold spaces, and empty ones are as if not given."""
    for what, line in wanted.items():
        target = {"ecp5": "bitstream-ecp5"}.get(what, what)
        run = subprocess.run(["make", "-n", "--no-print-directory", target, *given], cwd=Path(__file__).parents[3],
                             capture_output=True, text=True)
        assert shlex.split(run.stdout.splitlines()[-1])[1:] == shlex.split(f"{what} {line}")
