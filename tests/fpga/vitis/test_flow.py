"""From a preset to a package: whole folders or none, one process at a time, on the platform's shell."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.vitis import flow
from fpga.vitis import gate as gates
from fpga.vitis.check import check
from fpga.vitis.xgui import xgui_path
from gen.model.device import FOLDER
from gen.model.platform import find
from tests.support.command import call
from tests.support.vitis_flow import CORE, FLAT, STANDARD, build, files, make, shown
from tests.support.vitis_kernels import prepared

pytestmark = pytest.mark.usefixtures("quick")


# ---- the package ----


def test_package_is_complete(tmp_path):
    made = make(tmp_path)
    kernel, texts = flow.named(*prepared(CORE))
    assert made.folder == tmp_path / "tiny" / "vitis" / CORE
    found = files(made.folder)
    assert set(found) == {*(f"src/{name}" for name in texts), "kernel.xml", "component.xml", "package.tcl", "link.cfg",
                          xgui_path(kernel), "src/hotrail_mlp.xdc", "hotrail_mlp.rdl", "hotrail_mlp.h",
                          "hotrail_mlp.py", "mlp.md", "package.json"}
    assert all(found[f"src/{name}"].decode() == text for name, text in texts.items())
    told = json.loads(found.pop("package.json"))
    assert told["files"] == {name: sha256(data).hexdigest() for name, data in found.items()}
    assert (told["kernel"], told["vlnv"]) == (kernel.name, kernel.vlnv)
    assert (told["core"], told["preset"], told["config"]) == ("mlp", "tiny", kernel.config)
    assert (told["clock_mhz"], told["instances"], told["part"]) == (250, 1, "xcku15p-ffva1156-2LV-e")
    assert told["gate"]["passed"] is True and told["gate"]["forced"] is False
    assert {"hotrail", "amaranth", "pyosys"} <= set(told["tools"])
    assert check(made.folder) == []
    assert shown(made.folder.parent) == [CORE]


def test_package_of_emb_has_its_host(tmp_path):
    folder = flow.package("tiny", "emb", out=tmp_path).folder
    assert (folder / "host.cpp").read_bytes() == (Path(flow.__file__).parent / "hosts/emb_bags.cpp").read_bytes()


def test_package_is_the_same_twice_and_replaces_the_last(tmp_path):
    first = files(make(tmp_path / "a").folder)
    folder = make(tmp_path / "b", clock_mhz=200, instances=3, experimental_xo=True).folder
    assert "hotrail_mlp.xo" in files(folder) and "nk=hotrail_mlp:3:" in (folder / "link.cfg").read_text("utf-8")
    assert files(make(tmp_path / "b").folder) == first
    assert shown(folder.parent) == [CORE]


def test_gate_refuses_and_force_says_so(tmp_path, quick, monkeypatch):
    before = files(make(tmp_path).folder)
    deep = Report(quick.core, Area(lut=400_000), {}, Depth(7, 1, ("in Part", "a", "b")), quick.most_chains,
                  quick.boundary)
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts, say: deep)
    with pytest.raises(flow.PackageError) as refused:
        make(tmp_path)
    assert len(refused.value.reasons) == 2 and "7 LUT levels" in refused.value.reasons[1]
    assert files(tmp_path / "tiny" / "vitis" / CORE) == before, "a refusal touched the last package"
    assert make(tmp_path, clock_mhz=200, force=True).gate.misses[0].startswith("hotrail_mlp: 400,000 LUT, 90,000 more")
    told = json.loads((tmp_path / "tiny" / "vitis" / CORE / "package.json").read_text("utf-8"))["gate"]
    assert (told["passed"], told["forced"], len(told["misses"])) == (False, True, 1)


def test_without_the_gate(tmp_path, monkeypatch):
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts, say: pytest.fail("measured"))
    assert make(tmp_path, gated=False).gate is None
    assert json.loads((tmp_path / "tiny" / "vitis" / CORE / "package.json").read_text())["gate"] == {"passed": None}


@pytest.mark.parametrize("fault", ["kernel_xml", "component_xml", "package_tcl", "xo"])
def test_nothing_is_left_half_written(tmp_path, monkeypatch, fault):
    def broken(*arguments):
        raise ValueError(f"{fault} broke")

    monkeypatch.setattr(flow, fault, broken)
    with pytest.raises(ValueError, match=f"{fault} broke"):
        make(tmp_path, experimental_xo=True)
    assert shown(tmp_path / "tiny" / "vitis") == []


@pytest.mark.parametrize("spoilt, sentence", [
    (lambda path, data: data[:-1], "link.cfg: its SHA-256 is "),
    (lambda path, data: path.with_name("link.cfg~").touch() or data, "link.cfg~ does not belong to the package"),
])
def test_what_is_not_on_disk_as_it_was_written_is_not_kept(tmp_path, monkeypatch, spoilt, sentence):
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: write(
        path, spoilt(path, data) if path.name == "link.cfg" else data))
    done = call("package", "tiny", CORE, "--out", tmp_path, "--no-gate")
    assert done.exit_code == 1 and f"refused: {sentence}" in done.output
    assert done.output.endswith("tiny/mlp: nothing was packaged\n") and shown(tmp_path / "tiny" / "vitis") == []


@pytest.mark.parametrize("options, sentence", [
    ({"clock_mhz": 310}, "clock must be one of 250, 300, 200 MHz, not 310"),
    ({"instances": 9}, "instances must be 1 to 7 for hotrail_mlp"),
])
def test_package_wrong(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# ---- platforms ----


def test_a_platform_decides_the_shell(quick):
    kernel, _ = prepared(CORE)
    assert [find(name)[1].name for name in ("", "smartssd", STANDARD, FLAT)] == ["standard"] * 3 + ["flat"]
    assert find(f"/somewhere/{FLAT}.xpfm")[1].platform == FLAT
    assert gates.judge(kernel, quick, clock_mhz=250, platform=STANDARD).notes == ()
    flat = gates.judge(kernel, quick, clock_mhz=250, platform=FLAT)
    assert flat.passed and flat.notes == (
        "hotrail_mlp: held against the standard shell's budget, as the flat shell's is not known",)
    with pytest.raises(ValueError, match=f"platform must be one of smartssd, .* AMD's platforms {STANDARD} .Samsung "
                                         f"SmartSSD, standard shell., {FLAT} .*, not 'xilinx_u200'"):
        gates.judge(kernel, quick, clock_mhz=250, platform="xilinx_u200")


def test_a_flat_shell_s_package_lies_by_itself(tmp_path, tools):
    standard = make(tmp_path)
    image = build(standard)
    image.write_text("hours of work", "utf-8")
    done = call("bitstream", "tiny", CORE, "--out", tmp_path, "--platform", FLAT)
    assert done.exit_code == 0 and "note: hotrail_mlp: held against the standard shell's budget" in done.output
    assert shown(image.parents[1]) == ["mlp", "mlp-flat", "mlp-flat-hw", "mlp-hw"]
    assert image.read_text("utf-8") == "hours of work"
    for folder, platform in (("mlp", STANDARD), ("mlp-flat", FLAT), ("mlp-flat-hw/kernel", FLAT)):
        assert json.loads((image.parents[1] / folder / "package.json").read_text("utf-8"))["platform"] == platform
    assert all(f"/{FLAT}/{FLAT}.xpfm" in " ".join(call) for call in tools()[-2:])


def test_a_package_for_another_board(tmp_path, quick):
    """By the board's name or AMD's: its part, each core at a channel and in a super logic region, its own budget."""
    made = make(tmp_path, platform="u55c", instances=4)
    manifest = json.loads(made.manifest)
    assert made.folder.name == "mlp-u55c" and check(made.folder) == []
    assert (manifest["part"], manifest["platform"]) == ("xcu55c-fsvh2892-2L-e", "xilinx_u55c_gen3x16_xdma_3_202210_1")
    link = (made.folder / "link.cfg").read_text("utf-8")
    assert [line.split(":")[-1] for line in link.splitlines() if line.startswith("sp=")] == [
        f"HBM[{number // 2}]" for number in range(8)]
    assert [line.split(":")[-1] for line in link.splitlines() if line.startswith("slr=")] == [
        "SLR0", "SLR0", "SLR1", "SLR2"]
    assert "xcu55c-fsvh2892-2L-e" in (made.folder / "package.tcl").read_text("utf-8")
    assert manifest["gate"]["percent"]["standard"]["lut"] == 0.3 and made.gate.notes == ()
    assert made.gate.table()[0] == ["", "4 x hotrail_mlp", "of the U55C shell", "of the U55C chip"]
    again = make(tmp_path / "other", platform="xilinx_u55c_gen3x16_xdma_3_202210_1", instances=4)
    assert again.manifest == made.manifest
    bare = make(tmp_path, platform="u250")
    assert bare.gate.notes == (
        "hotrail_mlp: held against the U250 chip's budget, as the U250 shell's is not known",)


def test_a_package_for_a_board_of_ones_own(tmp_path, quick):
    text = (FOLDER / "smartssd.toml").read_text("utf-8").replace("xcku15p-ffva1156-2LV-e", "my-part")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("xilinx_u2_gen3x4_xdma_gc_2_202110_1", "my_platform"), "utf-8")
    made = make(tmp_path / "out", platform=str(path))
    path.unlink()
    assert made.folder.name == "mlp-mine" and check(made.folder) == []
    assert json.loads(made.manifest)["platform"] == "my_platform"
    board = made.folder / "board.toml"
    board.write_text(board.read_text("utf-8").replace("my-part", "another"), "utf-8")
    assert [sentence.split(":")[0] for sentence in check(made.folder)] == ["package.json", "board.toml"]


@pytest.mark.parametrize("options, sentence", [
    ({"platform": "f2"}, "platform f2 .AWS EC2 F2.: Vitis does not link for it, so there is no package"),
    ({"platform": "u55c", "instances": 16}, "instances must be 1 to 15 for hotrail_mlp, .* at most 31"),
    ({"platform": "u55c", "experimental_memory": True}, "experimental_memory is for the memory of the Samsung "),
    ({"platform": "/nowhere.toml"}, "there is no file /nowhere.toml"),
])
def test_boards_that_take_no_such_package(tmp_path, quick, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# ---- one process at a time, and interruptions ----


@pytest.fixture
def place(tmp_path):
    """Where something good lies."""
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "made").write_text("hours of work", "utf-8")
    return tmp_path / "place"


def test_a_place_is_one_s_at_a_time(place):
    with flow.whole(place) as folder:
        (folder / "made").write_text("anew", "utf-8")
        with pytest.raises(flow.Busy, match=rf"{place} is being made by process {os.getpid()} \(.+\): wait for"):
            with flow.whole(place):
                pytest.fail("two at once")
    assert files(place) == {"made": b"anew"} and shown(place.parent) == ["place"]


@pytest.mark.turns(1, of="processes")
def test_a_process_that_dies_holds_nothing(place):
    text = f"""from pathlib import Path; from fpga.vitis.flow import whole; import time
with whole(Path({str(place)!r})) as folder:
    (folder / "half").touch(); print("begun", flush=True); time.sleep(60)"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "begun\n"
        with pytest.raises(flow.Busy, match=f"process {other.pid} "):
            flow.whole(place).__enter__()
        other.kill()
    with flow.whole(place) as folder:
        assert not list(folder.iterdir())
        (folder / "made").write_text("anew", "utf-8")
    assert files(place) == {"made": b"anew"} and shown(place.parent) == ["place"]


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_an_interruption_keeps_the_last_result_or_the_new_one(place, monkeypatch, number, after, keeps):
    rename, calls = os.replace, []

    def replace(*names):
        calls.append(names)
        if len(calls) == number and not after:
            raise KeyboardInterrupt
        rename(*names)
        if len(calls) == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt), flow.whole(place, keeps=keeps) as folder:
        (folder / "made").write_text("anew", "utf-8")
    done = number == 2 and after
    assert files(place) == {"made": b"anew" if done else b"hours of work"}
    assert shown(place.parent) == ["place", "place-new"] if keeps and not done else ["place"]


def test_a_process_that_died_between_the_renames_lost_nothing(place):
    place.rename(place.with_name("place-old"))
    with flow.whole(place) as folder:
        assert files(place) == {"made": b"hours of work"}, "it is back while another is made"
        (folder / "made").write_text("anew", "utf-8")
    assert files(place) == {"made": b"anew"} and shown(place.parent) == ["place"]


def test_a_process_that_died_after_the_renames_is_in_nobody_s_way(place):
    (place.parent / "place-old").mkdir()
    (place.parent / "place-old" / "made").write_text("of yesterday", "utf-8")
    with flow.whole(place) as folder:
        (folder / "made").write_text("anew", "utf-8")
    assert files(place) == {"made": b"anew"} and shown(place.parent) == ["place"]
