"""From a preset to a package, and on with programs that stand in for Vivado and v++: whole folders or none."""

import json
import os
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

from fpga.depth import Depth
from fpga.synth import Area, Report
from fpga.vitis import flow, toolchain
from fpga.vitis.check import check
from hotrail.__main__ import main
from tests.vitis_kernels import prepared

# Every stand-in: writes its arguments to $RECORD, tells a version, makes what it is asked for unless told otherwise.
TOOL = """#!{python}
import json, os, sys, zipfile
from pathlib import Path
name, said = Path(sys.argv[0]).name, sys.argv[1:]
if said in (["-version"], ["--version"]):
    print("****** " + name + " v" + os.environ.get("FAKE_VERSION", "2022.1") + " (64-bit)")
    sys.exit(0)
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps([name, os.getcwd(), *said]) + "\\n")
option = lambda key: said[said.index(key) + 1]
print("\\n".join(f"line {{i}} of " + name for i in range(40)))
if os.environ.get("FAKE_FAIL") == name + ("-p" if "-p" in said else ""):
    print("ERROR: [" + name + " 1-1] it does not fit", file=sys.stderr)
    sys.exit(3)
if os.environ.get("FAKE_LAZY") == name:
    sys.exit(0)
if name == "vivado":
    sources = Path(option("-source")).parent / "src"
    core = Path(option("-source")).parent.name
    with zipfile.ZipFile(f"hotrail_{{core}}.xo", "w") as archive:
        for path in sorted(sources.iterdir()):
            if path.name != os.environ.get("FAKE_DROP"):
                archive.writestr("ip_repo/ip/src/" + path.name, path.read_text() + os.environ.get("FAKE_CHANGE", ""))
        if os.environ.get("FAKE_EXTRA"):
            archive.writestr("ip_repo/ip/src/" + os.environ["FAKE_EXTRA"], "")
elif name == "emconfigutil":
    (Path(option("--od")) / "emconfig.json").write_text("{{}}")
else:
    print("[10:00:00] Run vpl: Step synth: Started")
    Path(option("-o")).write_text("xclbin")
"""
CORE = "mlp"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The tiny core as converted before; the gate measures nothing, but finds what a test says."""
    depth = Depth(6, 1, ("in Part", "a", "b"))
    report = Report("hotrail_mlp", Area(lut=1000), {}, depth, depth, depth)
    monkeypatch.setattr(flow, "prepare", lambda preset, core: prepared(core))
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts: report)
    return report


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Stand-ins on PATH and a platform; gives the calls made so far."""
    folder, record = tmp_path / "bin", tmp_path / "record"
    folder.mkdir()
    for name in ("vivado", "v++", "emconfigutil"):
        (folder / name).write_text(TOOL.format(python=sys.executable))
        (folder / name).chmod(0o755)
    platform = tmp_path / "platforms" / "xilinx_u2_gen3x4_xdma_gc_2_202110_1"
    platform.mkdir(parents=True)
    (platform / f"{platform.name}.xpfm").write_text("")
    record.touch()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    monkeypatch.setenv("PLATFORM_REPO_PATHS", str(platform.parent))
    monkeypatch.delenv("XILINX_VITIS", raising=False)
    return lambda: [json.loads(line) for line in record.read_text().splitlines()]


def make(tmp_path, **options):
    return flow.package("tiny", CORE, out=tmp_path, **options)


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


# ---- the package ----


def test_package_is_complete(tmp_path):
    made = make(tmp_path)
    kernel, texts = prepared(CORE)
    assert made.folder == tmp_path / "tiny" / "vitis" / CORE
    found = files(made.folder)
    assert set(found) == {*(f"src/{name}" for name in texts), "kernel.xml", "component.xml", "package.tcl", "link.cfg",
                          "xgui/hotrail_mlp_v0_1.tcl", "hotrail_mlp.h", "hotrail_mlp.py", "mlp.md", "package.json"}
    assert all(found[f"src/{name}"].decode() == text for name, text in texts.items())
    told = json.loads(found.pop("package.json"))
    assert told["files"] == {name: sha256(data).hexdigest() for name, data in found.items()}
    assert (told["kernel"], told["vlnv"]) == (kernel.name, kernel.vlnv)
    assert (told["core"], told["preset"], told["config"]) == ("mlp", "tiny", kernel.config)
    assert (told["clock_mhz"], told["instances"], told["part"]) == (300, 1, "xcku15p-ffva1156-2LV-e")
    assert told["gate"]["passed"] is True and told["gate"]["forced"] is False
    assert {"hotrail", "amaranth", "pyosys"} <= set(told["tools"])
    assert check(made.folder) == []
    assert list(made.folder.parent.iterdir()) == [made.folder]


def test_package_of_emb_has_its_host(tmp_path):
    folder = flow.package("tiny", "emb", out=tmp_path).folder
    assert (folder / "host.cpp").read_bytes() == (Path(flow.__file__).parents[1] / "host/emb_bags.cpp").read_bytes()


def test_package_is_the_same_twice_and_replaces_the_last(tmp_path):
    first = files(make(tmp_path / "a").folder)
    folder = make(tmp_path / "b", clock_mhz=200, instances=3, experimental_xo=True).folder
    assert "hotrail_mlp.xo" in files(folder) and "nk=hotrail_mlp:3:" in (folder / "link.cfg").read_text()
    assert files(make(tmp_path / "b").folder) == first
    assert list(folder.parent.iterdir()) == [folder]


def test_gate_refuses_and_force_says_so(tmp_path, quick, monkeypatch):
    before = files(make(tmp_path).folder)
    deep = Report(quick.core, Area(lut=400_000), {}, Depth(9, 1, ("in Part", "a", "b")), quick.most_chains,
                  quick.boundary)
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts: deep)
    with pytest.raises(flow.PackageError) as refused:
        make(tmp_path)
    assert len(refused.value.reasons) == 2 and "9 LUT levels" in refused.value.reasons[1]
    assert files(tmp_path / "tiny" / "vitis" / CORE) == before, "a refusal touched the last package"
    assert make(tmp_path, clock_mhz=200, force=True).gate.misses[0].startswith("hotrail_mlp: 400,000 LUT, 90,000 more")
    told = json.loads((tmp_path / "tiny" / "vitis" / CORE / "package.json").read_text())["gate"]
    assert (told["passed"], told["forced"], len(told["misses"])) == (False, True, 1)


def test_without_the_gate(tmp_path, monkeypatch):
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts: pytest.fail("measured"))
    assert make(tmp_path, gated=False).gate is None
    assert json.loads((tmp_path / "tiny" / "vitis" / CORE / "package.json").read_text())["gate"] == {"passed": None}


@pytest.mark.parametrize("fault", ["kernel_xml", "component_xml", "package_tcl", "write_xo"])
def test_nothing_is_left_half_written(tmp_path, monkeypatch, fault):
    def broken(*arguments):
        raise ValueError(f"{fault} broke")

    monkeypatch.setattr(flow, fault, broken)
    with pytest.raises(ValueError, match=f"{fault} broke"):
        make(tmp_path, experimental_xo=True)
    assert list((tmp_path / "tiny" / "vitis").iterdir()) == []


@pytest.mark.parametrize("file, change, sentence", [
    ("link_cfg", lambda made: lambda *a: made(*a).replace("bank0", "DDR[0]", 1), "the platform has bank0 and plram"),
    ("kernel_xml", lambda made: lambda *a: made(*a).replace(b'id="1"', b'id="0"'), "kernel.xml"),
    ("component_xml", lambda made: lambda *a: made(*a).replace(b"spirit:model>", b"spirit:modell>"), "component.xml"),
])
def test_a_faulty_package_is_not_kept(tmp_path, monkeypatch, file, change, sentence):
    monkeypatch.setattr(flow, file, change(getattr(flow, file)))
    with pytest.raises(flow.PackageError, match=sentence):
        make(tmp_path)
    assert list((tmp_path / "tiny" / "vitis").iterdir()) == []


@pytest.mark.parametrize("options, sentence", [
    ({"clock_mhz": 310}, "clock must be one of 300, 250, 200 MHz, not 310"),
    ({"instances": 9}, "instances must be 1 to 7 for hotrail_mlp"),
])
def test_package_wrong(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# ---- with Vitis ----


def test_bitstream_for_the_card(tmp_path, tools):
    made, said = make(tmp_path, clock_mhz=250), []
    path = toolchain.bitstream(made, "hw", "xilinx_u2_gen3x4_xdma_gc_2_202110_1", say=said.append)
    assert path == tmp_path / "tiny/vitis/mlp-hw/hotrail_mlp.xclbin" and path.read_text() == "xclbin"
    xpfm = str(next((tmp_path / "platforms").rglob("*.xpfm")))
    xo, folder = str(tmp_path / "tiny/vitis/mlp-xo"), f"{path.parent}-new"
    logs = ["--temp_dir", "_x", "--log_dir", "logs", "--report_dir", "reports"]
    assert tools() == [
        ["vivado", f"{xo}-new", "-mode", "batch", "-notrace", "-log", "vivado.log", "-journal", "vivado.jou", "-source",
         str(made.folder / "package.tcl")],
        ["v++", folder, "-l", "-t", "hw", "--platform", xpfm, *logs, "--config", str(made.folder / "link.cfg"),
         "--kernel_frequency", "250", "-o", "hotrail_mlp.link.xclbin", f"{xo}/hotrail_mlp.xo"],
        ["v++", folder, "-p", "-t", "hw", "--platform", xpfm, *logs, "--package.out_dir", "package", "-o",
         "hotrail_mlp.xclbin", "hotrail_mlp.link.xclbin"],
    ]
    assert "line 39 of v++" in (path.parent / "logs" / "link.log").read_text()
    assert "link: [10:00:00] Run vpl: Step synth: Started" in said and not any("line 39" in line for line in said)
    assert check(made.folder) == [], "the tools wrote into the package"


def test_bitstream_for_simulation(tmp_path, tools):
    made = make(tmp_path)
    xpfm = next((tmp_path / "platforms").rglob("*.xpfm"))
    path = toolchain.bitstream(made, "hw_emu", str(xpfm), say=lambda line: None)
    assert path == tmp_path / "tiny/vitis/mlp-hw_emu/hotrail_mlp.xclbin"
    assert (path.parent / "emconfig.json").exists()
    assert [call[0] for call in tools()] == ["vivado", "v++", "v++", "emconfigutil"]
    assert tools()[3][2:] == ["--platform", str(xpfm), "--nd", "1", "--od", "."]
    assert [call[2:5] for call in tools()[1:3]] == [["-l", "-t", "hw_emu"], ["-p", "-t", "hw_emu"]]
    assert tools()[1][-2:][0] == tools()[2][-1] == "hotrail_mlp.link.xclbin"
    assert toolchain.bitstream(made, "hw_emu", str(xpfm), say=lambda line: None) == path     # once more, afresh


def test_image_is_what_bitstream_made(tmp_path, tools, monkeypatch):
    """Each target's is found where it was left."""
    monkeypatch.setattr(toolchain, "build_folder", lambda: tmp_path)
    made, said = make(tmp_path), []
    for target in toolchain.TARGETS:
        path = toolchain.bitstream(made, target, "xilinx_u2_gen3x4_xdma_gc_2_202110_1", say=said.append)
        assert path == toolchain.image("tiny", CORE, target) and path.is_file()
    assert toolchain.image("tiny", CORE) == toolchain.image("tiny", CORE, target="hw") != path


def test_bitstream_in_a_relative_folder(tmp_path, tools, monkeypatch):
    """The tools work in folders of their own: what they are given must be absolute."""
    monkeypatch.chdir(tmp_path)
    done = command("bitstream", "tiny", CORE, "--out", "here", "--no-gate")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "here/tiny/vitis/mlp-hw/hotrail_mlp.xclbin").exists()
    for call in tools():
        for word in call:
            assert "here/" not in word or (Path(word).is_absolute() and (
                Path(word).exists() or "-new" in Path(word).name)), call


def test_a_failure_keeps_the_last_bitstream(tmp_path, tools, monkeypatch):
    made, platform = make(tmp_path), "xilinx_u2_gen3x4_xdma_gc_2_202110_1"
    place = tmp_path / "tiny" / "vitis"
    path = toolchain.bitstream(made, "hw", platform, say=lambda line: None)
    assert sorted(folder.name for folder in place.iterdir()) == ["mlp", "mlp-hw", "mlp-xo"]
    path.write_text("hours of work")
    for failing, step, folder in (("v++", "link", "mlp-hw-new"), ("v++-p", "package", "mlp-hw-new"),
                                  ("vivado", "xo", "mlp-xo-new")):
        monkeypatch.setenv("FAKE_FAIL", failing)
        with pytest.raises(toolchain.VitisError) as failed:
            toolchain.bitstream(made, "hw", platform, say=lambda line: None)
        log = place / folder / "logs" / f"{step}.log"
        assert f"the end of {log}:" in str(failed.value) and "ERROR: [" in log.read_text()
        assert path.read_text() == "hours of work" and (place / "mlp-xo" / "hotrail_mlp.xo").exists()
    monkeypatch.delenv("FAKE_FAIL")
    assert toolchain.bitstream(made, "hw", platform, say=lambda line: None).read_text() == "xclbin"
    assert sorted(folder.name for folder in place.iterdir()) == ["mlp", "mlp-hw", "mlp-xo"]


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
        toolchain.bitstream(make(tmp_path), "hw", "xilinx_u2_gen3x4_xdma_gc_2_202110_1", say=lambda line: None)
    assert sentence in str(failed.value)
    if "FAKE_FAIL" in variables:
        assert "  ERROR: [" in str(failed.value) and "line 0 of" not in str(failed.value)


def test_an_xo_that_is_none(tmp_path):
    (tmp_path / "bad.xo").write_text("no zip")
    with pytest.raises(toolchain.VitisError, match="bad.xo: this is no .xo that can be read"):
        toolchain._compare(tmp_path / "bad.xo", make(tmp_path))


@pytest.mark.parametrize("change, sentence", [
    (lambda bin, env: (bin / "v++").unlink(), "v++ is not on PATH: AMD Vitis 2021.1 to 2022.2 is needed"),
    (lambda bin, env: (bin / "vivado").unlink(), "vivado is not on PATH: AMD Vitis 2021.1 to 2022.2 is needed"),
    (lambda bin, env: env.setenv("FAKE_VERSION", "2023.2"),
     "is version 2023.2; the platform is known to Vitis 2021.1 to 2022.2"),
    (lambda bin, env: env.setenv("FAKE_VERSION", "2020.2"), "is version 2020.2; "),
    (lambda bin, env: env.setenv("FAKE_VERSION", "of today"), "tells no version"),
    (lambda bin, env: env.setenv("PLATFORM_REPO_PATHS", "/nowhere"),
     "the platform xilinx_u2_gen3x4_xdma_gc_2_202110_1 is in none of /nowhere, /opt/xilinx/platforms; install it"),
])
def test_what_is_missing_is_one_sentence(tmp_path, tools, monkeypatch, change, sentence):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    change(tmp_path / "bin", monkeypatch)
    done = command("bitstream", "tiny", CORE, "--out", tmp_path)
    folder = tmp_path / "tiny" / "vitis" / CORE
    assert done.exit_code == 1
    last = done.output.splitlines()[-1]
    assert last.startswith("Error: ") and sentence in last
    assert last.endswith(f"; the complete package lies in {folder}") and check(folder) == []
    assert tools() == []


def test_platform_file_wrong(tmp_path, tools):
    with pytest.raises(toolchain.VitisMissing, match="there is no platform file /nowhere/x.xpfm; the complete"):
        toolchain.bitstream(make(tmp_path), "hw", "/nowhere/x.xpfm")
    with pytest.raises(ValueError, match="target must be hw or hw_emu, not 'sw_emu'"):
        toolchain.bitstream(make(tmp_path), "sw_emu", "x")


# ---- the commands ----


def test_command_package(tmp_path):
    done = command("package", "tiny", "mlp", "--out", tmp_path, "--experimental-xo")
    assert done.exit_code == 0, done.output
    assert "0.3 % of 310,000" in done.output and "depth: LUT levels 6 of 6 allowed, carry chains 1 of 1;" in done.output
    assert "note: flat shell: no published budget" in done.output
    folder = tmp_path / "tiny" / "vitis" / "mlp"
    assert done.output.endswith(f"tiny/mlp: package complete in {folder}\n")
    with zipfile.ZipFile(folder / "hotrail_mlp.xo") as archive:
        assert "hotrail_mlp/kernel.xml" in archive.namelist()


def test_command_refuses(tmp_path, quick, monkeypatch):
    big = Report(quick.core, Area(lut=1, dsp=2000), {}, quick.worst, quick.most_chains, quick.boundary)
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts: big)
    done = command("package", "tiny", CORE, "--out", tmp_path)
    assert done.exit_code == 1
    assert "refused: hotrail_mlp: 2,000 DSP, 662 more than the standard shell's 1,338" in done.output
    assert done.output.endswith("tiny/mlp: nothing was packaged\n") and not list(tmp_path.iterdir())
    done = command("package", "tiny", CORE, "--out", tmp_path, "--force")
    assert done.exit_code == 0 and "forced: hotrail_mlp: 2,000 DSP" in done.output


def test_command_takes_all_kernels_of_a_preset(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(flow, "package", lambda preset, core, **options: asked.append((preset, core)) or flow.Package(
        tmp_path, prepared(CORE)[0], 300, 1, None))
    assert command("package", "tiny", "--no-gate").exit_code == 0
    assert asked == [("tiny", "emb"), ("tiny", "mlp"), ("tiny", "hotline")]


def test_commands_go_the_whole_way(tmp_path, tools):
    done = command("xo", "tiny", CORE, "--out", tmp_path, "--no-gate")
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"made {tmp_path}/tiny/vitis/mlp-xo/hotrail_mlp.xo\n")
    done = command("bitstream", "tiny", CORE, "--out", tmp_path, "--target", "hw_emu")
    assert done.exit_code == 0 and done.output.endswith(f"made {tmp_path}/tiny/vitis/mlp-hw_emu/hotrail_mlp.xclbin\n")


@pytest.mark.parametrize("arguments, sentence", [
    (("package", "huge"), "there is no preset 'huge'"),
    (("package", "tiny", CORE, "--clock", 100), "clock must be one of 300, 250, 200 MHz, not 100"),
    (("package", "tiny", "--clock", 301), "clock must be one of 300, 250, 200 MHz, not 301"),
    (("package", "tiny", CORE, "--instances", 99), "instances must be 1 to 7 for hotrail_mlp, which has 2 masters"),
    (("bitstream", "tiny", CORE, "--target", "sw_emu"), "'sw_emu' is not one of 'hw', 'hw_emu'"),
])
def test_commands_wrong(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.setattr(flow, "prepare", lambda preset, core: pytest.fail("converted first"))
    done = command(*arguments, "--out", tmp_path)
    assert done.exit_code and sentence in done.output and "Traceback" not in done.output
    assert not list(tmp_path.iterdir())


def test_commands_where_nothing_can_be_written(tmp_path, monkeypatch):
    for command_name in ("package", "xo", "bitstream"):
        done = command(command_name, "tiny", CORE, "--out", "/dev/null")
        assert done.exit_code == 1 and done.output.endswith(
            "Error: nothing can be written to /dev/null: /dev/null is no folder that can be written to\n")
    (tmp_path / "tiny").write_text("in the way")
    done = command("package", "tiny", CORE, "--out", tmp_path, "--no-gate")
    assert done.exit_code == 1 and done.output.endswith(f"Error: {tmp_path}/tiny/vitis: Not a directory\n")


def test_makefile_asks_for_the_same():
    lines = {}
    for target in ("package", "xo", "bitstream"):
        run = subprocess.run(["make", "-n", "--no-print-directory", target, "PRESET=tiny", "CORE=mlp", "CLOCK=250",
                              "TARGET=hw_emu"], cwd=Path(__file__).parents[2], capture_output=True, text=True)
        lines[target] = run.stdout.splitlines()[-1].split()[1:]
    assert lines == {
        "package": ["package", "tiny", "mlp", "--clock", "250", "--instances", "1"],
        "xo": ["xo", "tiny", "mlp", "--clock", "250", "--instances", "1"],
        "bitstream": ["bitstream", "tiny", "mlp", "--clock", "250", "--instances", "1", "--target", "hw_emu",
                      "--platform", "xilinx_u2_gen3x4_xdma_gc_2_202110_1"]}
