"""The commands timing and failfast, on a mapped circuit in place of a core, and what a mistake gives."""

import errno
import json
import re
from statistics import median

import pytest

from fpga.synth import map as synth
from fpga.synth.timing.calibrate import calibration
from gen.base import kept, tools
from gen.rtl import config
from tests.support import circuits
from tests.support.command import call


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """Every core of tiny is the same small circuit."""
    report = circuits.mapped("parent", circuits.PARENT, circuits.THROUGH)
    monkeypatch.setattr(synth, "synthesise", lambda *_, **__: report)
    monkeypatch.setattr(tools, "build_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.turns(1, of="syntheses")
def test_timing(mapped):
    done = call("timing", "tiny", "tt")
    assert done.exit_code == 0, done.output
    assert "longest path 1,088 ps" in done.output
    assert "slack at 4 ns: +2.67" in done.output and "slack at 3.333 ns: +2.01" in done.output
    assert " 1. " in done.output and "from_here" in done.output and "% wire" in done.output
    found = calibration()
    off, worst, bias = (f"{100 * abs(error):.1f} %" for error in (found.median, found.worst, median(found.violated)))
    assert len(found.violated) == 24 and median(found.violated) < 0
    assert (f"51 routed paths of 18 designs are predicted {off} off on the median, {worst} at worst; violated ones, "
            f"with the sign, {bias} too fast on the median\n") in done.output
    picture = mapped / "tiny" / "timing" / "tt.svg"
    assert picture.read_text("utf-8").startswith("<svg ") and str(picture) in done.output


@pytest.mark.turns(1, of="syntheses")
def test_timing_as_json(mapped):
    done = call("timing", "tiny", "tt", "--json", "--out", mapped / "here")
    (told,) = json.loads(done.stdout)["cores"].values()
    assert told["slack_ns"]["4.0"] > told["slack_ns"]["3.333"] > 0
    assert told["paths"][0]["steps"][0]["kind"] == "FDRE" and told["clock_ps"] == 234
    assert json.loads(done.stdout)["calibration"] == {
        "median": calibration().median, "worst": calibration().worst, "bias": calibration().bias,
        "violated_bias": median(calibration().violated)}
    assert (mapped / "here" / "tt.svg").exists()


def test_failfast(mapped):
    done = call("failfast", "tiny", "tt")
    assert done.exit_code == 0 and "all 12 within their guidelines" in done.output
    told = json.loads(call("failfast", "tiny", "tt", "--json").stdout)["cores"]["tiny/tt"]
    assert told["lut"] == {"value": pytest.approx(100 * (14 + 38_373) / 342_496), "guide": 70, "over": False}
    other = call("failfast", "tiny", "tt", "--platform", "u55c")
    assert "all 8 within their guidelines" in other.output and "of 1,303,680 by the core" in other.output
    assert "platform must be one of smartssd, " in call("failfast", "tiny", "tt", "--platform", "u9").output


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_folder_that_cannot_be_is_named_before_the_work(tmp_path, monkeypatch, where):
    monkeypatch.setattr(synth, "synthesise", lambda *_, **__: pytest.fail("mapped"))
    (tmp_path / "file").touch()
    done = call("timing", "tiny", "tt", "--out", tmp_path / where)
    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert done.output.startswith(f"Error: {tmp_path / where} cannot be written: ")


def test_a_picture_that_cannot_be_written_costs_no_figures(mapped):
    """The text is out by then; the picture's place is named."""
    (mapped / "here" / "tt.svg").mkdir(parents=True)
    done = call("timing", "tiny", "tt", "--out", mapped / "here")
    assert done.exit_code == 1 and "slack at 4 ns: +2.67" in done.output
    assert done.output.splitlines()[-1] == f"Error: {mapped / 'here' / 'tt.svg'} cannot be written: Is a directory"
    assert [path.name for path in (mapped / "here").iterdir()] == ["tt.svg"]


@pytest.mark.turns(1, of="syntheses")
@pytest.mark.parametrize("command", ["timing", "failfast"])
def test_a_netlist_that_cannot_be_kept_is_said(tmp_path, monkeypatch, command):
    """A full disk ends the command with the file and the reason; afterwards the same folder serves."""
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def tree(texts, top, **options):
        return synthesise({"tree.v": circuits.TREE}, "tree", **options)

    synthesise = synth.synthesise
    monkeypatch.setattr(tools, "build_folder", lambda: tmp_path)
    monkeypatch.setattr(synth, "synthesise", tree)
    with monkeypatch.context() as patch:
        patch.setattr(kept, "replace", full)
        done = call(command, "tiny", "tt")
    assert done.exit_code == 1 and not done.stdout
    assert re.fullmatch(rf"Error: {tmp_path}/synth/tree-\w+\.mapped cannot be written: No space left on device",
                        done.stderr.splitlines()[-1])
    again = call(command, "tiny", "tt")
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("command", ["timing", "failfast"])
def test_a_preset_without_kernels(tmp_path, command):
    text = (config.FOLDER / "tiny.toml").read_text("utf-8")
    preset = tmp_path / "none.toml"
    preset.write_text(text[:text.index("[emb]")], "utf-8")
    done = call(command, preset)
    assert done.exit_code == 1 and done.output.count("\n") == 1 and "describes no kernel" in done.output


@pytest.mark.parametrize("command", ["timing", "failfast"])
def test_a_core_that_is_not_there(command):
    done = call(command, "tiny", "nothing")
    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert "preset tiny has no core nothing: it has" in done.output
