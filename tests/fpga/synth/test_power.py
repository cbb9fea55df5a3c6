"""Power of a register behind a NAND, by a library whose energies are known."""

import pytest

from fpga.synth.power import ACTIVITY, GLITCHES, WIRES, Nets, Pin, library_cells, lines, nets, power
from gen.rtl.verilog import TOP

LIBRARY = """library (two) {
  capacitive_load_unit (1, ff); nom_voltage : 2.0; leakage_power_unit : "1nW";
  cell (NAND2) { pin (A) { direction : input; capacitance : 1; } pin ("B") { direction : "input"; capacitance : 2; }
    pin (Y) { direction : output; function : "!(A*B)";
      timing () { cell_rise (x) { values ("900"); } }
      internal_power () { related_pin : "A"; rise_power (x) { index_1 ("0.1, 0.2"); values ("1, 3", \\
        "2, 5"); } fall_power (x) { index_1 ("0.1, 0.2"); values ("3, 4"); } }
      internal_power () { related_pin : "B"; power (scalar) { values ("-1.0"); } } } }
  cell (DFF) { cell_leakage_power : 5; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; capacitance : 3; clock : true; } pin (D) { direction : input; capacitance : 1; }
    pin (Q) { direction : output; function : "IQ"; } pin (QN) { direction : output; function : "IQN"; } }
}
"""
FF = 0.5e-15 * 4        # joules that charge 1 fF to 2 V, of a change
#: q[1] <= ~(q[1] & a), where the NAND's output has no name, and a's is 1 where nothing drives it.
PLACED = [("NAND2", {"A": 2, "B": 3, "Y": 4}), ("DFF", {"C": 5, "D": 4, "Q": 3}), ("NAND2", {"A": "1", "B": 2}),
          ("part", {})]
NAMES = [(2, "a", ""), (5, "clk", ""), (9, "q", "0"), (3, "q", "1")]


def test_pins_of_a_library():
    cells = library_cells(LIBRARY)
    assert cells.keys() == {"NAND2", "DFF"} and cells["NAND2"].pins.keys() == {"A", "B", "Y"}
    # The mean of rise and fall, least and most over tables and related pins.
    assert cells["NAND2"].pins["Y"] == Pin(False, pytest.approx((-1e-15, 4.5e-15)))
    assert cells["NAND2"].pins["B"].change_j == pytest.approx((2 * FF * (1 + WIRES[0]), 2 * FF * (1 + WIRES[1])))
    assert cells["DFF"].pins["C"].clock and not cells["DFF"].pins["D"].clock
    assert cells["DFF"].leakage_w == pytest.approx(5e-9)


@pytest.fixture
def of_module():
    return nets(PLACED, NAMES, library_cells(LIBRARY))


def test_nets_of_a_module(of_module):
    least, most = 1 + WIRES[0], 1 + WIRES[1]
    assert of_module.named["q", "1"] == pytest.approx((2 * FF * least, 2 * FF * most))
    assert of_module.named["a", ""] == pytest.approx((3 * FF * least, 3 * FF * most))
    assert of_module.clock_j == pytest.approx((6 * FF * least, 6 * FF * most))
    assert of_module.others_j == pytest.approx((FF * least - 1e-15, FF * most + 4.5e-15))
    changes = sum(each[1] for each in of_module.named.values()) + of_module.others_j[1]
    assert of_module.cycle_j[1] == pytest.approx(of_module.clock_j[1] + ACTIVITY[1] * changes)


def test_changes_of_a_run(of_module):
    """Two places of the module in 100 cycles: q changes 50 times, a was not counted; of its 2 x 3 bits 60 changes."""
    changes = {("core", "clk", ""): 200, ("leaf", "clk", ""): 400, ("leaf", "q", "1"): 50, ("leaf", "q", "0"): 10,
               ("leaf", "$1", ""): 0, ("other", "q", "1"): 9}
    found = power("core", {"core": (Nets(), 1), "leaf": (of_module, 2)}, changes)
    assert found.cycles == 100 and found.rate == pytest.approx(60 / 6 / 100)
    assert found.counted_j == pytest.approx([0.5 * each for each in of_module.named["q", "1"]])
    assert found.clock_j == pytest.approx([2 * each for each in of_module.clock_j])
    # The mean of all signals is 0.1; of the nets that have an energy only q[1] was counted, 0.25 in each place.
    others = [a + other for a, other in zip(of_module.named["a", ""], of_module.others_j, strict=True)]
    assert found.others_j == pytest.approx((2 * 0.1 * others[0], 2 * 0.25 * GLITCHES * others[1]))
    least, most = found.watts(100)
    assert most == pytest.approx(1e-8 + 1e8 * (found.clock_j[1] + found.counted_j[1] + found.others_j[1]))
    assert 1e-8 < least < most
    assert f"{1e3 * least:.3g} to {1e3 * most:.3g} mW at 100 MHz" in next(iter(lines(found, 100)))
    with pytest.raises(ValueError, match="of another core than tt, or of no run"):
        power("tt", {"tt": (Nets(), 1)}, changes)


def test_changes_of_a_card_and_of_parts_in_a_file(of_module):
    """A card calls its top otherwise; Yosys has the part `leaf.fifo` flattened into `leaf`."""
    named = Nets(named={("fifo.level", "2"): (1.0, 2.0)})
    changes = {(TOP, "clk", ""): 20, ("leaf", "a", ""): 0, ("leaf.fifo", "level", "2"): 5}
    assert power("core", {"core": (Nets(), 1), "leaf": (named, 1)}, changes).counted_j == (0.5, 1.0)
    with pytest.raises(ValueError, match="of another core than core"):
        power("core", {"core": (Nets(), 1), "other": (named, 1)}, changes)
