"""AMD's guidelines on numbers that are counted by hand."""

import pytest

from fpga.synth import failfast
from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from tests.support.netlists import cell, ff, module, netlist

NONE = Depth(0, 0)


def of_area(instances=1, **used):
    lines = failfast.of_area(Report("core", Area(**used), {}, NONE, NONE, NONE), instances)
    return {line.key: line for line in lines}


def of_netlist(cells, **parts):
    return {line.key: line for line in failfast.of_netlist(netlist(module(cells, clk=[1]), **parts))}


def test_shares_hold_the_platform():
    """(used + platform) / region: (201,374 + 38,373) / 342,496 is 70 % and within, one LUT more is over."""
    found = of_area(lut=201_374, ff=100_000, carry4=21_126, lutram=22_569, bram36=103.5, uram=32, dsp=400)
    assert found["lut"].value == pytest.approx(70.0, abs=1e-3) and not found["lut"].over
    assert of_area(lut=201_375)["lut"].over
    assert found["ff"].value == pytest.approx(100 * (100_000 + 56_833) / 684_992)
    assert found["carry8"].value == pytest.approx(100 * (10_563 + 140) / 42_812)
    assert found["lutram"].value == pytest.approx(100 * (22_569 + 3_848) / 105_670)
    assert found["blocks"].value == pytest.approx((100 * 146 / 646 + 100 * 40 / 112 + 100 * 403 / 1344) / 3)
    assert str(found["lut"]) == "LUT: 70 %, guideline 70 %, 201,374 of 342,496 by the core"


def test_instances_add_up_and_the_platform_does_not():
    assert of_area(2, lut=10_000)["lut"].value == pytest.approx(100 * (20_000 + 38_373) / 342_496)


def test_counts_of_a_netlist():
    """Two multiplexers and three registers of two control sets; no large net."""
    found = of_netlist({"m": cell("MUXF7", I0=2, I1=3, S=4, O=5), "n": cell("MUXF7", I0=2, I1=3, S=5, O=6),
                        "a": ff(5, 7, ce=8), "b": ff(6, 9, ce=8), "c": ff(6, 10)})
    assert found["muxf7"].used == 2
    assert found["control_sets"].used == 2
    assert found["control_sets"].value == pytest.approx(100 * (2 + 2_453) / 85_624)
    assert found["large_nets"].value == 0 and found["fanout"].value == 0


def test_large_nets_and_fanout(monkeypatch):
    """A LUT with five loads and a register with five: the limit is four, the first alone is over. Mean fan-out of the
    part with the most: ten loads on two driven nets; the core has one more driver of one load."""
    monkeypatch.setitem(failfast.guidelines()["large_nets"], "loads", 4)
    monkeypatch.setitem(failfast.guidelines()["fanout"], "cells", 10)
    loads = {f"f{n}": ff(20, 30 + n) for n in range(5)} | {f"g{n}": ff(21, 40 + n) for n in range(5)}
    part = module(loads | {"lut": cell("LUT1", I0=22, O=20), "reg": ff("0", 21)}, i=[22], clk=[1])
    wired = {"connections": {"i": [2], "clk": [1]}, "port_directions": {"i": "input", "clk": "input"}}
    top = {"only": ff("0", 2), "part": {"type": "part", **wired}}
    found = of_netlist(top, part=part)
    assert found["large_nets"].value == 1 and found["large_nets"].over
    assert found["fanout"].value == pytest.approx(10 / 2) and found["fanout"].over
    told = list(failfast.lines(list(found.values())))
    assert told[-1] == "2 of 4 over their guidelines" and sum(line.startswith("OVER") for line in told) == 2
