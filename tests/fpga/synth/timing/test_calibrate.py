"""The calibration: its paths are the reports', the table holds the fit, errors are of designs left out."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.synth.timing import calibrate, delays
from fpga.synth.timing.calibrate import calibration, designs, fitted, predicted
from fpga.synth.timing.delays import Family


def test_table_holds_the_fit():
    assert delays.table()["net"] == calibration().terms == fitted(designs())


def test_paths_are_those_of_the_reports():
    """Data path delays of the reports, with the set-up of the end: by hand from three of them."""
    by_name = {design.name: [path.ps for path in design.paths] for design in designs()}
    assert by_name["card"] == [2735 + 636 - 44]
    assert by_name["compute"][0] == pytest.approx(4444 + 462, abs=2)     # Vivado rounds each step
    assert by_name["feeder"] == pytest.approx([4412 + 428], abs=2)
    assert by_name["probe"] == pytest.approx([4789 - 35], abs=2)
    assert by_name["service"] == pytest.approx([4585 - 44], abs=2)
    assert by_name["npu"][0] == pytest.approx(9898 - 44, abs=4)
    assert {design.part for design in designs()} == {"xck26", "xcku15p"}


def test_what_counts_is_decided_by_slack_and_nets():
    """Free paths have one to three nets, those that count and meet their clock have more; no path is there twice."""
    every = [path for design in designs() for path in (*design.paths, *design.free)]
    assert all(len(path.nets) <= 3 for design in designs() for path in design.free)
    assert all(len(path.nets) >= 4 for design in designs() for path in design.met)
    assert len(set(map(str, every))) == len(every)
    assert len(calibration().every) == sum(len(design.paths) for design in designs()) == 41


def test_free_paths_are_neither_fitted_to_nor_counted(monkeypatch):
    bound = tuple(replace(one, free=()) for one in designs())
    monkeypatch.setattr(calibrate, "designs", lambda: bound)
    without = calibrate.calibration.__wrapped__()
    assert without.every == calibration().every and without.terms == calibration().terms
    assert not any(without.free.values()) and sum(map(len, calibration().free.values())) == 43


def test_a_path_is_predicted_from_its_places():
    """The card's own: URAM without a register, one net over a column and three rows, a register."""
    (card,) = (design for design in designs() if design.name == "card")
    (path,) = card.paths
    (net,) = path.nets
    assert (net.fanout, net.dx, net.dy, net.driver) == (2, 1, 3.25, Family.URAM)
    terms = dict.fromkeys(calibrate.TERMS, 0.0) | {"base": 50.0, "column": 10.0, "row": 4.0, "fanout": 7.0,
                                                   "from_memory": 100.0, "memory": 900.0}
    assert predicted(path, terms) == pytest.approx(2735 + 50 + 10 + 13 + 7 * (1 + 3.25 / 4) ** 0.5 + 100 - 44)


def test_errors_are_of_designs_left_out(monkeypatch):
    """A design whose wires are three times as slow does not move its own prediction."""
    before = calibration().errors["feeder"]
    known = designs()
    slow = tuple(replace(one, met=tuple(
        calibrate.Path_(path.ps + 2 * sum(net.ps for net in path.nets), path.cells_ps,
                        tuple(replace(net, ps=3 * net.ps) for net in path.nets)) for path in one.met))
        if one.name == "feeder" else one for one in known)
    monkeypatch.setattr(calibrate, "designs", lambda: slow)
    again = calibrate.calibration.__wrapped__()
    (path,) = known[[one.name for one in known].index("feeder")].paths
    slower = (path.ps + 2 * sum(net.ps for net in path.nets)) / path.ps
    assert 1 + again.errors["feeder"][0] == pytest.approx((1 + before[0]) / slower, abs=1e-3)
    assert not np.allclose(again.errors["conv"], calibration().errors["conv"], atol=1e-3)
