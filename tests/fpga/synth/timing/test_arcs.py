"""Arrival times of small netlists against sums by hand, cell kind by cell kind; all cells lie in one slice."""

import numpy as np
import pytest

from fpga.synth.timing.delays import Family, Sink, net
from tests.support.netlists import cell, ff, graph, module, netlist

pytestmark = pytest.mark.regress


def wire(sink, driver=Family.FF, fanout=1):
    return float(net(0, 0, fanout, driver, sink))


NET, FROM_MEMORY = wire(Sink.LOGIC), wire(Sink.LOGIC, Family.BRAM)
TO_FF, TO_DSP, TO_MEMORY, CONTROL = wire(Sink.DATA), wire(Sink.DSP), wire(Sink.MEMORY), wire(Sink.CONTROL)


def longest(*cells):
    """The longest path in ps: from a register behind net 10, to one before net 20, where a cell does not say other."""
    known = netlist(module({f"c{number}": one for number, one in enumerate(cells)}, clk=[1]))
    flat = np.zeros(len(known.family))
    return float(graph(known).times(flat, flat).ends.max())


FIRST, LAST = ff(9, 10), ff(20, 21)
WIDE = [2, 3, 4, 5]


@pytest.mark.parametrize("cells, by_hand", [
    # A register straight into the next: 114 out, -44 in.
    ((FIRST, ff(10, 21)), 114 + TO_FF - 44),
    ((FIRST, ff("0", 21, ce=10)), 114 + CONTROL + 80),
    ((FIRST, ff("0", 21, r=10)), 114 + CONTROL + 119),
    # A LUT and the register behind it share a slice: 67 between them; not where the LUT has a second load.
    ((FIRST, cell("LUT2", I0=10, I1="1", O=20), LAST), 114 + NET + 126 + 67 - 44),
    ((FIRST, cell("LUT2", I0=10, I1="1", O=20), LAST, ff(20, 22)),
     114 + NET + 126 + wire(Sink.DATA, fanout=2) - 44),
    ((FIRST, cell("LUT1", I0=10, O=11), cell("LUT1", I0=11, O=20), LAST), 114 + 2 * (NET + 126) + 67 - 44),
    # A multiplexer behind a LUT, and by its select.
    ((FIRST, cell("LUT1", I0=10, O=11), cell("MUXF7", I0=11, I1="0", S="0", O=20), LAST),
     114 + NET + 126 + 15 + 97 + 67 - 44),
    ((FIRST, cell("MUXF7", I0="0", I1="1", S=10, O=20), LAST), 114 + NET + 97 + 67 - 44),
    # Into a carry chain by a LUT, over to the next four bits, out to a register.
    ((FIRST, cell("LUT1", I0=10, O=11),
      cell("CARRY4", S=[11, "0", "0", "0"], DI=["0"] * 4, CI="0", CYINIT="0", CO=[31, 32, 33, 34], O=WIDE),
      cell("CARRY4", S=["0"] * 4, DI=["0"] * 4, CI=34, CYINIT="0", CO=[35, 36, 37, 38], O=[20, 6, 7, 8]), LAST),
     114 + NET + 126 + 15 + 232 + 15 + 106 + 33 - 44),
    # Bits below do not follow those above.
    ((FIRST, cell("CARRY4", S=["0", "0", 10, "0"], DI=["0"] * 4, CI="0", CYINIT="0", CO=[31, 32, 33, 34],
                  O=[20, 3, 4, 5]), LAST, ff(4, 22)), 114 + wire(Sink.CARRY) + 250 + 33 - 44),
    # LUT memory: read through the address, out after a write, and into it.
    ((FIRST, cell("RAM64X1S", WCLK=1, A0=10, D="0", WE="0", O=11), cell("LUT1", I0=11, O=12),
      cell("LUT1", I0=12, O=20), LAST), 417 + 2 * (NET + 126) + 67 - 44),
    ((FIRST, cell("LUT1", I0=10, O=11), cell("LUT1", I0=11, O=12), cell("LUT1", I0=12, O=13),
      cell("RAM64X1S", WCLK=1, A0=13, D="0", WE="0", O=14), cell("LUT1", I0=14, O=20), LAST),
     114 + 5 * (NET + 126) + 67 - 44),
    ((FIRST, cell("RAM64X1S", WCLK=1, A0=10, D="0", WE="0")), 114 + NET + 156),
    ((FIRST, cell("RAM64X1S", WCLK=1, A0="0", D="0", WE=10, O=20)), 114 + NET + 266),
    ((cell("SRL16E", CLK=1, A0="0", D="0", CE="1", Q=20), LAST), 542 + TO_FF - 44),
    ((FIRST, cell("SRL16E", CLK=1, A0="0", D=10, CE="1", Q=20)), 114 + NET + 134),
    # Block memories: with their own register and without; behind logic no register can be taken in.
    ((cell("RAMB36E2", {"DOA_REG": "0"}, CLKARDCLK=1, DOUTADOUT=[10]), cell("LUT1", I0=10, O=20), LAST),
     1280 + FROM_MEMORY + 126 + 67 - 44),
    ((cell("RAMB36E2", {"DOA_REG": "1"}, CLKARDCLK=1, DOUTADOUT=[10]), cell("LUT1", I0=10, O=20), LAST),
     306 + FROM_MEMORY + 126 + 67 - 44),
    ((cell("URAM288", {"OREG_B": "FALSE"}, CLK=1, DOUT_B=[10]), cell("LUT1", I0=10, O=20), LAST),
     2735 + FROM_MEMORY + 126 + 67 - 44),
    ((cell("URAM288", {"OREG_B": "TRUE"}, CLK=1, DOUT_B=[10]), cell("LUT1", I0=10, O=20), LAST),
     1040 + FROM_MEMORY + 126 + 67 - 44),
    ((cell("URAM288", {"OREG_A": "TRUE", "OREG_ECC_A": "TRUE"}, CLK=1, DOUT_A=[10]), cell("LUT1", I0=10, O=20), LAST),
     467 + FROM_MEMORY + 126 + 67 - 44),
    ((FIRST, cell("URAM288", {"IREG_PRE_B": "TRUE"}, CLK=1, ADDR_B=[10])), 114 + TO_MEMORY + 413),
    ((FIRST, cell("URAM288", {"IREG_PRE_B": "TRUE"}, CLK=1, ADDR_A=[10])), 114 + TO_MEMORY + 697),
    ((FIRST, cell("RAMB36E2", CLKARDCLK=1, ADDRARDADDR=[10])), 114 + TO_MEMORY + 470),
    ((FIRST, cell("URAM288", CLK=1, EN_A=10)), 114 + TO_MEMORY + 629),
    # DSP slices by the registers that they use.
    ((FIRST, cell("DSP48E2", A=[10], P=[11]), cell("LUT1", I0=11, O=20), LAST),
     114 + TO_DSP + 2080 + NET + 126 + 67 - 44),
    ((FIRST, cell("DSP48E2", {"AREG": "1", "MREG": "1", "PREG": "1"}, A=[10])), 114 + TO_DSP + 505),
    ((FIRST, cell("DSP48E2", {"MREG": "1", "PREG": "1"}, A=[10])), 114 + TO_DSP + 1230),
    ((cell("DSP48E2", {"PREG": "1"}, P=[20]), LAST), 277 + TO_FF - 44),
    ((FIRST, cell("DSP48E2", {"CREG": "1", "MREG": "1", "PREG": "1"}, C=[10])), 114 + TO_DSP + 505),
    # Each operand by its own register: without one C goes into the adder, A of a slice with B's through the multiplier.
    ((FIRST, cell("DSP48E2", {"AREG": "1", "CREG": "0", "MREG": "1", "PREG": "1"}, C=[10])), 114 + TO_DSP + 734),
    ((FIRST, cell("DSP48E2", {"AREG": "0", "BREG": "1", "MREG": "1", "PREG": "1"}, A=[10])), 114 + TO_DSP + 1230),
    # Cascades into the adder and from operand to operand, and a control pin.
    ((FIRST, cell("DSP48E2", {"AREG": "1", "MREG": "1"}, ACIN=[10])), 114 + 15 + 505),
    ((cell("DSP48E2", {"PREG": "1"}, PCOUT=[20]), cell("DSP48E2", {"PREG": "1"}, PCIN=[20])), 277 + 15 + 734),
    ((FIRST, cell("DSP48E2", {"PREG": "1"}, RSTP=10)), 114 + TO_DSP + 354),
])
def test_by_hand(cells, by_hand):
    assert longest(*cells) == pytest.approx(by_hand, abs=0.01)


@pytest.mark.parametrize("block, registered", [
    (cell("RAMB36E2", {"DOB_REG": "0"}, CLKBWRCLK=1, DOUTBDOUT=[30, 31]), 306),
    (cell("URAM288", {"OREG_A": "FALSE"}, CLK=1, DOUT_A=[30, 31]), 1040),
])
def test_registers_are_taken_into_memories(block, registered):
    """Where every bit has a register of one control set and no other load; else the memory is read without."""
    behind = cell("LUT2", I0=40, I1=41, O=20)
    taken = longest(block, ff(30, 40), ff(31, 41), behind, LAST)
    assert taken == pytest.approx(registered + FROM_MEMORY + 126 + 67 - 44, abs=0.01)
    plain = {306: 1280, 1040: 2735}[registered]
    straight = plain + wire(Sink.DATA, Family.BRAM) - 44
    assert longest(block, ff(30, 40), ff(31, 41, ce=50), behind, LAST) == pytest.approx(straight, abs=0.01)
    assert longest(block, ff(30, 40), ff(31, 41), behind, LAST, ff(30, 42)) > plain


def test_registers_are_taken_into_dsp_slices():
    """One becomes P, two become M and P, a third stays outside."""
    bare = cell("DSP48E2", A=[10], P=[30])
    assert longest(FIRST, bare, ff(30, 31)) == pytest.approx(114 + TO_DSP + 1936, abs=0.01)
    assert longest(FIRST, bare, ff(30, 31), ff(31, 32)) == pytest.approx(114 + TO_DSP + 1230, abs=0.01)
    chain = longest(bare, ff(30, 31), ff(31, 32), ff(32, 33))
    assert chain == pytest.approx(277 + TO_FF - 44, abs=0.01)


def test_a_net_takes_its_distance_and_its_fanout():
    """By the formula of delays.toml, from the registers' places."""
    known = netlist(module({"a": ff(9, 10), "b": ff(10, 11), "c": ff(10, 12)}, clk=[1]))
    found = graph(known)
    x, y = np.array([0.0, 3.0, 0.0]), np.array([0.0, 4.0, 0.0])
    far = 111.7 + 36.7 * 3 + 9.18 * 4 + (137.0 + 41.7) / 2      # Four columns: half of what is paid near by
    assert found.times(x, y).ends.max() == pytest.approx(114 + far - 44, abs=0.01)


def test_drivers_and_pins_have_their_own():
    """Out of a carry chain and a memory, into a chain's S; a LUT lies before S, without the way through another."""
    assert wire(Sink.LOGIC, Family.CARRY) == pytest.approx(NET + 73.8)
    assert wire(Sink.LOGIC, Family.URAM) == FROM_MEMORY == pytest.approx(NET + 147.7)
    assert wire(Sink.CARRY) == pytest.approx(NET + 151.2)
    assert wire(Sink.CARRY, Family.LUT) == pytest.approx(NET)
    assert wire(Sink.MEMORY, Family.BRAM) == pytest.approx(NET + 147.7 + 122.0)
    assert wire(Sink.DSP, Family.CARRY) == pytest.approx(NET + 73.8 + 165.8)


def test_errors_are_sentences():
    loop = module({"a": cell("LUT1", I0=2, O=3), "b": cell("LUT1", I0=3, O=2)})
    with pytest.raises(ValueError, match="^2 nets lie on or behind a combinational loop$"):
        graph(netlist(loop))
    with pytest.raises(ValueError, match="cell type BUFG has no delays"):
        netlist(module({"a": cell("BUFG", I=2, O=3)}))
