"""The command: what it writes, and that a mistake gives one sentence and a code, never a traceback."""

import json
import re
from pathlib import Path

import pytest

from fpga.synth.cells import CellReport, Part
from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.synth.power import Nets
from gen.rtl import conversions
from gen.rtl.config import load, names
from hw.isa import EMB, HOTLINE, MLP
from tests.support.command import call

ROOT = Path(__file__).parents[2]
KERNELS = {"emb": EMB, "hotline": HOTLINE, "mlp": MLP}


def only(folder, core):
    """A preset of the same name and settings that has one core alone."""
    text = (ROOT / "gen" / "rtl" / "presets" / "tiny.toml").read_text("utf-8")
    tables = re.findall(r"(?ms)^\[.*?(?=^\[|\Z)", text)
    path = folder / "tiny.toml"
    path.write_text("".join([text[:text.index("[")], *(table for table in tables if table.startswith(f"[{core}]"))]))
    return path


def written(folder, preset="tiny"):
    """The files that the command writes of a preset."""
    done = call("verilog", preset, "--out", folder)
    assert done.exit_code == 0, done.output
    return {path.name: path.read_bytes() for path in (folder / "tiny").iterdir()}


@pytest.mark.regress
def test_verilog_of_all_cores_is_the_same_twice(tmp_path, monkeypatch):
    first = written(tmp_path / "a")
    monkeypatch.setattr(conversions, "FOLDER", tmp_path / "nothing is kept")
    assert written(tmp_path / "b") == first


def test_verilog(tmp_path, monkeypatch):
    """Of every core; of one of them it is the same once more, with nothing kept of earlier conversions."""
    first = written(tmp_path / "a")
    monkeypatch.setattr(conversions, "FOLDER", tmp_path / "nothing is kept")
    again = written(tmp_path / "b", only(tmp_path, "tt"))
    assert len(again) > 10 and again.items() <= first.items()
    cores = {name: json.loads(text) for name, text in first.items() if name.endswith(".json")}
    assert set(cores) == {f"hotrail_{name}.json" for name in load("tiny").cores}
    assert set().union(*(core["files"] for core in cores.values())) == {n for n in first if n.endswith(".v")}
    metadata = cores["hotrail_tt.json"]
    assert metadata["config"]["lanes"] == 1
    assert {s["name"] for s in metadata["streams"]} >= {"i_lookups", "i_load"}
    # A pointer argument names the port that its buffer is reached by: the kernel has just these ports.
    for name, kernel in KERNELS.items():
        metadata = cores[f"hotrail_{name}.json"]
        assert load("tiny").cores[name].words * 32 == metadata["ports"]["m00_axi__wdata"]["width"]
        assert {port.split("_axi_")[0] for port in metadata["ports"] if port.startswith("m")} == {
            argument.port for argument in kernel.arguments if argument.kind == "pointer"}
        assert {"s_axi_control__awaddr", "interrupt"} <= set(metadata["ports"])


def test_presets_have_the_kernels():
    assert {name: set(load(name).cores) & set(KERNELS) for name in names()} == {
        "tiny": {"emb", "mlp", "hotline"}, "smartssd": {"emb", "mlp"}, "smartssd_half": {"emb", "mlp"},
        "screc": {"mlp"}, "hotline_fpga": {"hotline"}, "hotline": {"hotline"}, "ecp5": {"emb"}}


def test_own_preset(tmp_path):
    text = (ROOT / "gen" / "rtl" / "presets" / "tiny.toml").read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("lanes = 1", "lanes = 3"), "utf-8")
    done = call("verilog", path, "--out", tmp_path)
    assert done.exit_code == 1
    assert done.output.startswith("Error: mine.toml: [tt] lanes = 3: lanes must be ")
    assert done.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["verilog", "lint", "synth"])
def test_unknown_preset(command):
    done = call(command, "tinny")
    assert done.exit_code == 1 and done.output.startswith("Error: there is no preset 'tinny'; there are ")


def test_unknown_bench():
    done = call("bench", "nothing")
    assert done.exit_code == 1 and done.output.startswith("Error: there is no bench 'nothing'; there are ")


def lints(preset, cores):
    done = call("lint", preset)
    assert done.exit_code == 0, done.output
    assert [line.partition(":")[0] for line in done.output.splitlines()] == [f"tiny/{core}" for core in cores]
    assert done.output.count("nothing but what is waived") == len(cores)


@pytest.mark.turns(1, of="syntheses")
def test_lint_of_a_core(tmp_path):
    lints(only(tmp_path, "tt"), ["tt"])


@pytest.mark.parametrize("levels, code", [(6, 0), (7, 1)])
def test_synth_fails_on_a_deep_path(monkeypatch, levels, code):
    depth = Depth(levels, 1, ("in here", "a", "b"))
    report = Report("hotrail_tt", Area(lut=1), {"here": (Area(lut=1), 1)}, depth, depth, depth, {"here": depth})
    monkeypatch.setattr("fpga.synth.map.synthesise", lambda *args, **kwargs: report)
    done = call("synth", "tiny", "tt")
    assert done.exit_code == code
    assert f"deepest: {levels} LUT levels" in done.output and "    in here" in done.output


def test_synth_in_standard_cells(monkeypatch, tmp_path):
    part = Part(20.0, 9, 1, 8192, {}, Nets((1e-12, 2e-12)))
    monkeypatch.setattr("fpga.synth.cells.map_cells", lambda texts, top, liberty, **options: CellReport(
        top, 20.0, 2.0, 9, 1, 8192, {top: (part, 1)}))
    library, activity = tmp_path / "cells.lib", tmp_path / "tt.toggles"
    library.write_text("", "utf-8")
    activity.write_text("".join(f"C '\1page\2v_toggle/hotrail_tt\1o\2clk:{way}' 9\n"
                                for way in ("0->1", "1->0")), "utf-8")
    done = call("synth", "tiny", "tt", "--liberty", str(library), "--node-nm", "45", "--activity", str(activity),
                "--mhz", "100")
    assert done.exit_code == 0 and "0.01 k gate equivalents" in done.output and "as macros in 45 nm" in done.output
    assert "0.1 to 0.2 mW at 100 MHz" in done.output and "counted: 9 cycles" in done.output
    done = call("synth", "tiny", "tt", "--node-nm", "45")
    assert done.exit_code and "--activity are for --liberty" in done.output


def test_hotline_deals_a_log(monkeypatch, tmp_path):
    from tests.fpga.api.test_dispatching import a_log
    from tests.support import hotline_logs as make
    from tests.support.hotline_card import OracleCard

    monkeypatch.setattr("fpga.card.runs.open_card",
                        lambda kind, *, core, preset, **options: OracleCard(make.core(preset)))
    done = call("hotline", a_log(tmp_path), "--learn", 0.5, "--samples", 100, "--out", tmp_path / "page")
    assert done.exit_code == 0, done.output
    assert "every mini-batch gathered" in done.output
    assert done.output.endswith(f"report     {tmp_path / 'page' / 'index.html'}\n")


@pytest.mark.parametrize("arguments, sentence", [
    (("nowhere.npz",), "nowhere.npz is not a file"),
    (("--preset", "screc"), "the preset screc has no [hotline]"),
    (("--learn", "2"), "learn must be more than 0 and less than 1, not 2"),
])
def test_hotline_says_what_is_wrong(arguments, sentence):
    done = call("hotline", *arguments)
    assert done.exit_code == 1 and done.output == f"Error: {sentence}\n"
