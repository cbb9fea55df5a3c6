"""The calibration: its paths are the reports', the table holds the fit, errors are of designs left out."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.synth.timing import calibrate, delays
from fpga.synth.timing.calibrate import calibration, designs, errors, fitted, predicted, through
from fpga.synth.timing.delays import Family, Sink, net

pytestmark = pytest.mark.regress


def test_table_holds_the_fit():
    assert delays.table()["net"] == calibration().terms == fitted(designs())
    for family in ("lut", "lutram", "srl"):
        assert delays.delay(family, "through") == through(designs())


def test_paths_are_those_of_the_reports():
    """Data path delays of the reports, with the set-up of the end: by hand."""
    by_name = {design.name: [path.ps for path in design.paths] for design in designs()}
    assert by_name["card"] == [2735 + 636 - 44]
    assert by_name["compute"] == pytest.approx([4444 + 462, 3542 + 462], abs=2)     # Vivado rounds each step
    assert by_name["feeder"] == pytest.approx([4412 + 428, 4456 + 428, 4840 - 44], abs=2)
    assert by_name["probe"] == pytest.approx([4789 - 35], abs=2)
    assert by_name["service"] == pytest.approx([4585 - 44, 4289 - 44], abs=2)
    assert by_name["gemm"] == pytest.approx([4524 - 43], abs=2)
    assert by_name["array"] == pytest.approx([4407 - 44], abs=2)
    assert by_name["window"] == pytest.approx([4280 + 79], abs=2)
    assert by_name["scheduler"] == pytest.approx([4437 + 80], abs=2)
    assert by_name["payload"] == pytest.approx([4983 - 44], abs=2)
    assert by_name["npu"][0] == pytest.approx(9898 - 44, abs=4)
    assert {design.part for design in designs()} == {"xck26", "xcku15p"}
    assert len(designs()) == 18 and len({design.repository for design in designs()}) == 7


def test_what_counts_is_decided_by_slack_and_nets():
    """Free paths have one to three nets, those that count and meet their clock have more; no path is there twice."""
    every = [path for design in designs() for path in (*design.paths, *design.free)]
    assert all(len(path.nets) <= 3 for design in designs() for path in design.free)
    assert all(len(path.nets) >= 4 for design in designs() for path in design.met)
    assert len(set(map(str, every))) == len(every)
    assert len(calibration().every) == sum(len(design.paths) for design in designs()) == 51


def test_free_paths_are_neither_fitted_to_nor_counted(monkeypatch):
    bound = tuple(replace(one, free=()) for one in designs())
    monkeypatch.setattr(calibrate, "designs", lambda: bound)
    without = calibrate.calibration.__wrapped__()
    assert without.every == calibration().every and without.terms == calibration().terms
    assert not any(without.free.values()) and sum(map(len, calibration().free.values())) == 50


def test_a_path_is_predicted_from_its_places():
    """The card's own: URAM without a register, one net over a column and three rows, a register."""
    (card,) = (design for design in designs() if design.name == "card")
    (path,) = card.paths
    (one,) = path.nets
    assert (one.fanout, one.dx, one.dy, one.driver) == (2, 1, 3.25, Family.URAM)
    terms = dict.fromkeys(calibrate.TERMS, 0.0) | {
        "base": 50.0, "column": 10.0, "row": 4.0, "near": 30.0, "fanout": 7.0, "from_memory": 100.0, "memory": 900.0}
    columns = 1 + 3.25 * 0.4
    assert predicted(path, terms) == pytest.approx(
        2735 + 50 + 10 * columns + (30 + 7) * columns / (columns + 4) + 100 - 44)


def test_long_nets_are_linear():
    """A column or a row more costs what it costs by itself: what is paid to leave the neighbourhood is paid by then."""
    terms = delays.table()["net"]
    far, farther = (float(net(0, rows, 2, Family.FF, Sink.LOGIC)) for rows in (270, 280))
    assert farther - far == pytest.approx(10 * terms["row"], rel=0.02)
    assert terms["row"] == pytest.approx(terms["column"] / 4, abs=0.01)


def test_a_luts_inputs_tell_its_delay_in_one_design_only():
    """Why all LUTs have one delay: those of six inputs take longer in `detector` and nowhere else."""
    def mean(inputs, where):
        return np.mean([ps for design in designs() if where(design.name)
                        for path in design.paths for size, ps in path.luts if size in inputs])
    assert mean({6}, lambda name: name == "detector") > 1.5 * mean({1, 2, 3}, lambda name: name == "detector")
    others = [mean(inputs, lambda name: name != "detector") for inputs in ({1, 2, 3}, {4, 5}, {6})]
    assert max(others) < 1.05 * min(others)


def test_errors_of_cells_are_with_nets_as_routed(monkeypatch):
    """The card's path has no LUT: its error is that of its two cells, however long its net; npu's are with the LUTs of
    other designs."""
    known = {design.name: design for design in designs()}
    found = dict(zip(known, np.split(calibration().cells, np.cumsum([len(one.paths) for one in known.values()])[:-1])))
    (path,) = known["card"].paths
    assert found["card"] == pytest.approx([(2735 - 44 + path.nets[0].ps) / path.ps - 1])
    without = [design for name, design in known.items() if name != "npu"]
    assert 1 + found["npu"] == pytest.approx([
        (path.cells_ps + sum(net.ps for net in path.nets) + through(without) * len(path.luts)) / path.ps
        for path in known["npu"].paths])
    long = replace(known["card"], violated=(), met=tuple(
        replace(path, ps=path.ps + 1000, nets=(replace(path.nets[0], ps=path.nets[0].ps + 1000),)) for path in
        known["card"].paths))
    monkeypatch.setattr(calibrate, "designs", lambda: (*(one for one in known.values() if one.name != "card"), long))
    (*_, last) = calibrate.calibration.__wrapped__().cells
    assert last * (path.ps + 1000) == pytest.approx(found["card"][0] * path.ps)


def test_errors_are_of_designs_left_out(monkeypatch):
    """A design whose wires are three times as slow, and its LUTs slow, does not move its own prediction."""
    before = calibration().errors["feeder"]
    known = designs()
    slow = tuple(replace(one, met=tuple(
        replace(path, ps=path.ps + 2 * sum(net.ps for net in path.nets),
                luts=tuple((size, 300) for size, _ in path.luts),
                nets=tuple(replace(net, ps=3 * net.ps) for net in path.nets)) for path in one.met))
        if one.name == "feeder" else one for one in known)
    monkeypatch.setattr(calibrate, "designs", lambda: slow)
    again = calibrate.calibration.__wrapped__()
    path = known[[one.name for one in known].index("feeder")].paths[0]
    slower = (path.ps + 2 * sum(net.ps for net in path.nets)) / path.ps
    assert 1 + again.errors["feeder"][0] == pytest.approx((1 + before[0]) / slower, abs=1e-3)
    assert not np.allclose(again.errors["conv"], calibration().errors["conv"], atol=1e-3)


def test_a_group_is_left_out_together():
    """The only design of a repository errs as it does alone; designs of one repository do not help each other."""
    together, _ = errors(lambda design: design.repository)
    assert together["gemm"] == pytest.approx(calibration().errors["gemm"])
    assert not np.allclose(together["compute"], calibration().errors["compute"], atol=1e-3)
    assert set(together) == {design.name for design in designs()}
