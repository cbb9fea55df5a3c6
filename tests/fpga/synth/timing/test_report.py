"""A mapped circuit end to end: Yosys' netlist of two modules, placed and timed, kept, and what is said of it."""

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fpga.synth import map as synth
from fpga.synth.timing import report as timings
from gen.base import kept
from tests.support import circuits
from tests.support.circuits import PARENT, THROUGH, TREE

pytestmark = pytest.mark.regress


@pytest.fixture(scope="module")
def mapped():
    return circuits.mapped("parent", PARENT, THROUGH)


def test_two_modules_are_timed_as_one(mapped):
    """36 bits through two instances of two levels: the path begins and ends outside of them and passes four LUTs."""
    found = timings.timing(mapped)
    path = found.paths[0]
    kinds = [step.kind for step in path.steps]
    assert kinds[0] == kinds[-1] == "FDRE" and [kind[:3] for kind in kinds[1:-1]] == ["LUT"] * (len(kinds) - 2)
    assert len(kinds) == 2 + mapped.worst.levels
    assert path.ps == pytest.approx(found.worst_ps, abs=1) and 0 < path.wire_ps < path.ps
    assert found.floor_ps <= found.worst_ps
    assert path.steps[0].name.startswith("from_here") and path.steps[-1].name == "o"
    assert {step.name.split(".")[0] for step in path.steps[1:-1]} >= {"part0", "part1"}


def test_slack_is_what_a_period_leaves(mapped):
    """Period less path, uncertainty (59 ps) and skew (175 ps)."""
    found = timings.timing(mapped)
    assert found.slack_ns(4.0) == pytest.approx(4.0 - found.worst_ps / 1000 - 0.234, abs=1e-3)
    assert found.failing == (0, 0) and found.ends == 1      # the others capture ports
    assert json.loads(json.dumps(found.as_dict()))["slack_ns"]["4.0"] == found.slack_ns(4.0)
    slow = dataclasses.replace(found, worst_ps=4000.0)
    assert any("-0.234 ns" in line for line in timings.lines(slow))


def test_the_best_placement_counts(mapped, monkeypatch):
    """Of two, one drawn apart, the other one in either order."""
    place = timings._placed
    placed = cache(lambda: place(timings.Design.of(timings.netlist_of(mapped)), 0.75, print))

    def drawn_apart(_design, fill, _say):
        design, at, window = placed()
        return design, at + (fill - 1) * np.arange(at.shape[1]), window

    def worst(*fills):
        monkeypatch.setattr(timings, "FILLS", fills)
        return timings._timed(mapped, print).worst_ps

    monkeypatch.setattr(timings, "_placed", drawn_apart)
    assert worst(9.0, 1.0) == worst(1.0, 9.0) == worst(1.0) < worst(9.0)


def test_what_decides_about_the_timing_is_in_its_key(mapped, monkeypatch):
    """The areas of cells are; the fit of the delays is not, whose result is in the table."""
    key = timings._place_of(mapped)
    read = Path.read_text
    changed = "calibrate.py"
    monkeypatch.setattr(Path, "read_text", lambda path, *of: read(path, *of) + "# more" * (path.name == changed))
    assert timings._place_of(mapped) == key
    changed = "refine.py"
    assert timings._place_of(mapped) != key
    monkeypatch.undo()
    monkeypatch.setitem(timings.LUT_COST, "INV", 0.5)
    assert timings._place_of(mapped) != key


def test_is_kept_with_its_netlists(mapped, monkeypatch):
    first = timings.timing(mapped)
    assert timings.known(mapped) == first
    monkeypatch.setattr(timings, "_timed", lambda *_: pytest.fail("computed again"))
    assert timings.timing(mapped) == first


@pytest.mark.parametrize("content", [{"hello": 1}, [1, 2], {"worst_ps": 1}])
def test_what_another_version_kept_is_made_again(mapped, content, monkeypatch):
    first, asked = timings.timing(mapped), []
    monkeypatch.setattr(timings, "_timed", lambda report, _: asked.append(report) or first)
    kept.write(timings._place_of(mapped), content)
    assert timings.known(mapped) is None
    assert timings.timing(mapped) == first == timings.known(mapped) and asked == [mapped]


def test_names_need_no_file(tmp_path):
    """What is kept can be removed at any time: once a netlist is read, its timing is found and named."""
    report = circuits.mapped("tree", TREE, cache=tmp_path)
    kept_too, alone = timings.netlist_of(report), timings.netlist_of(report)

    def longest(netlist):
        design = timings.Design.of(netlist)
        at = np.zeros((2, len(design.objects.luts)))
        return next(iter(timings._named(design, design.times(at), at)))

    want = longest(kept_too)
    for path in report.files.values():
        path.unlink()
    assert longest(alone) == want and want.steps[0].name.startswith("x") and want.steps[-1].name == "o"


def test_nothing_is_known_of_a_report_without_netlists(mapped):
    assert timings.known(dataclasses.replace(mapped, files={})) is None


def test_errors_are_sentences(tmp_path):
    """A core without registers has no path to time; a netlist that was removed is named."""
    with pytest.raises(ValueError, match="^through has no path from a register to a register$"):
        timings.timing(circuits.mapped("through", THROUGH))
    report = circuits.mapped("tree", TREE, cache=tmp_path)
    report.files["tree"].unlink()
    assert kept.read(report.files["tree"]) is None
    with pytest.raises(RuntimeError, match="tree-.*mapped is missing or changed: map the core again"):
        timings.timing(report)


def test_notes_of_the_gate(mapped):
    """The gate gives the slack of what was timed, and names what is over a guideline."""
    from types import SimpleNamespace

    from fpga.vitis import gate

    timings.timing(mapped)
    kernel = SimpleNamespace(name="parent", core="emb")
    (note,) = gate.judge(kernel, mapped, clock_mhz=250).notes
    assert note.startswith(f"parent: worst slack {timings.timing(mapped).slack_ns(4.0):+.2f} ns at 250 MHz, estimated")
    full = dataclasses.replace(mapped, total=synth.Area(lut=201_375), files={})
    assert gate.judge(kernel, full, clock_mhz=250).notes == (
        "parent: over AMD's guideline, with the platform's logic: LUT: 70 %, guideline 70 %, 201,375 of 342,496 by "
        "the core",)
