"""The calibration: its paths are the reports', the table holds the fit, errors are of designs left out."""

import numpy as np
import pytest

from fpga.synth.timing import calibrate, delays
from fpga.synth.timing.calibrate import calibration, designs, fitted, predicted


def test_table_holds_the_fit():
    assert delays.table()["net"] == calibration().terms == fitted(designs())


def test_paths_are_those_of_the_reports():
    """Data path delays of the reports, with the set-up of the end: by hand from three of them."""
    by_name = {design.name: [path.ps for path in design.paths] for design in designs()}
    assert by_name["card"] == [2735 + 636 - 44]
    assert by_name["compute"][0] == pytest.approx(4444 + 462, abs=2)     # Vivado rounds each step
    assert by_name["feeder"] == pytest.approx([4412 + 428, 4420 + 412], abs=2)
    assert {design.part for design in designs()} == {"xck26", "xcku15p"}


def test_a_path_is_predicted_from_its_places():
    """The card's own: URAM without a register, one net over a column and three rows, a register."""
    (card,) = (design for design in designs() if design.name == "card")
    (path,) = card.paths
    (net,) = path.nets
    assert (net.fanout, net.dx, net.dy) == (2, 1, 3.25)
    terms = dict.fromkeys(calibrate.TERMS, 0.0) | {"base": 50.0, "column": 10.0, "row": 4.0, "fanout": 7.0}
    assert predicted(path, terms) == pytest.approx(2735 + 50 + 10 + 13 + 7 - 44)


def test_errors_are_of_designs_left_out(monkeypatch):
    """A design whose wires are three times as slow does not move its own prediction."""
    before = calibration().errors["feeder"]
    known = designs()
    slow = tuple(calibrate.Design(one.name, one.part, one.source, tuple(
        calibrate.Path_(path.ps, path.cells_ps, tuple(calibrate.Net(3 * net.ps, *list(vars(net).values())[1:])
                                                      for net in path.nets)) for path in one.paths))
        if one.name == "feeder" else one for one in known)
    monkeypatch.setattr(calibrate, "designs", lambda: slow)
    again = calibrate.calibration.__wrapped__()
    assert again.errors["feeder"] == pytest.approx(before, abs=1e-3)
    assert not np.allclose(again.errors["conv"], calibration().errors["conv"], atol=1e-3)
