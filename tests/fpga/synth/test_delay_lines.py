"""Delay lines in memories give what the flip-flops gave, from the first cycle on; other flip-flops stay."""

import random

import pytest

from fpga.synth.delay_lines import PLACES, SHORTEST, rows, stored

CLOCK, IN, LONGEST = 2, 3, 3 * PLACES + 2
PLAIN = {"CEMUX": "1 ", "CLKMUX": "CLK", "GSR": "DISABLED", "LSRMUX": "LSR", "REGSET": "RESET"}


def flip_flop(given, out, clock=CLOCK, reset="0", **parameters):
    return {"type": "TRELLIS_FF", "parameters": {**PLAIN, **parameters}, "attributes": {},
            "port_directions": {"CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
            "connections": {"CLK": [clock], "DI": [given], "LSR": [reset], "Q": [out]}}


def lines(*lengths, **changes):
    """Rows of so many flip-flops from one input, the last of each an output. changes: of every third one."""
    cells, outs, bit = {}, [], 100
    for line, length in enumerate(lengths):
        given = IN
        for number in range(length):
            cells[f"a.line{line}_{number}"] = flip_flop(given, bit, **(changes if number % 3 == 2 else {}))
            given, bit = bit, bit + 1
        outs.append(given)
    return {"cells": cells, "ports": {"clock": {"direction": "input", "bits": [CLOCK]},
                                      "i": {"direction": "input", "bits": [IN]},
                                      "o": {"direction": "output", "bits": outs}}}


def played(cells, outs, given):
    """Outputs, cycle by cycle, of flip-flops, LUTs and LUT memories that begin with zeros."""
    state = {bit: 0 for cell in cells.values() for bits in cell["connections"].values() for bit in bits}
    state |= {"0": 0, "1": 1}
    memories = {name: [0] * PLACES * 4 for name, cell in cells.items() if cell["type"] == "TRELLIS_DPR16X4"}
    of = {kind: [(name, cell["parameters"], cell["connections"]) for name, cell in cells.items()
                 if cell["type"] == kind] for kind in ("TRELLIS_FF", "LUT4", "TRELLIS_DPR16X4")}

    def number(bits):
        return sum(state[bit] << at for at, bit in enumerate(bits))
    for state[IN] in given:
        for name, _, pins in of["TRELLIS_DPR16X4"]:
            place = 4 * number(pins["RAD"])
            state.update(zip(pins["DO"], memories[name][place:place + 4]))
        for _, parameters, pins in of["LUT4"]:
            state[pins["Z"][0]] = int(parameters["INIT"][15 - number([pins[port][0] for port in "ABCD"])])
        yield [state[bit] for bit in outs]
        for name, _, pins in of["TRELLIS_DPR16X4"]:
            place = 4 * number(pins["WAD"])
            memories[name][place:place + 4] = [state[bit] for bit in pins["DI"]]
        state.update([(pins["Q"][0], state[pins["DI"][0]]) for _, _, pins in of["TRELLIS_FF"]])


def test_every_length():
    """Each by itself, and all at once, up to four memories behind one another."""
    draw = random.Random(1)
    given = [draw.getrandbits(1) for _ in range(200)]
    for lengths in (*((length,) for length in range(1, LONGEST)), tuple(range(1, LONGEST)), (9,) * 6):
        module = lines(*lengths)
        cells, outs = stored(module), module["ports"]["o"]["bits"]
        assert list(played(cells, outs, given)) == list(played(module["cells"], outs, given)), lengths
        taken = [length for length in lengths if length >= SHORTEST]
        kinds = [cell["type"] for name, cell in cells.items() if name.startswith("a.")]
        assert kinds.count("TRELLIS_FF") == sum(1 if length >= SHORTEST else length for length in lengths)
        assert bool(kinds.count("TRELLIS_DPR16X4")) == bool(taken)


@pytest.mark.parametrize("changes", [{"CEMUX": "CE"}, {"REGSET": "SET"}, {"reset": 7}, {"clock": 8}, {"CLKMUX": "INV"}])
def test_flip_flops_that_are_no_delay_stay(changes):
    """Enabled, beginning with 1, reset, of another clock or another edge."""
    assert len(rows(lines(20))) == 1 and rows(lines(20, **changes)) == []


def test_a_row_ends_where_it_is_read():
    """By a LUT, or at a port of the module."""
    module = lines(40)
    module["cells"]["a.lut"] = {"type": "LUT4", "parameters": {"INIT": "0" * 16}, "attributes": {},
                                "port_directions": {"A": "input", "Z": "output"},
                                "connections": {"A": [111], "Z": [90]}}
    assert [len(row) for row in rows(module)] == [12, 28]
    module["ports"]["also"] = {"direction": "output", "bits": [125]}
    assert [len(row) for row in rows(module)] == [12, 14, 14]
