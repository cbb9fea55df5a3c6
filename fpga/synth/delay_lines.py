"""Delay lines of flip-flops as memories: a slice of LUT memory holds four bits back by up to sixteen cycles.

Where other families have shift registers, Yosys leaves rows of flip-flops, each with a wire to the next. Here all of a
row but the last becomes a memory, read and written at a place that goes round: it gives what went in a round before.
Like the flip-flops it begins with zeros, so the two are equal from the first cycle on.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

Cells = dict[str, dict[str, Any]]

SHORTEST = 8        # flip-flops of a row that becomes a memory
PLACES, BITS = 16, 4
PREFIX = "hotrail_round_"


def stored(module: Mapping[str, Any]) -> Cells:
    """The cells of a mapped netlist with its rows of SHORTEST flip-flops and more in memories.

    Parameters  module: the top of Yosys' JSON; its cells, ports and names of nets stay as they are
    """
    cells: Cells = dict(module["cells"])
    bits = count(1 + max((bit for _, bit, _ in _pins(module) if isinstance(bit, int)), default=0))
    alike: dict[tuple[Any, int], list[list[str]]] = defaultdict(list)
    for row in rows(module):
        alike[cells[row[0]]["connections"]["CLK"][0], len(row)].append(row)
    rounds: dict[tuple[Any, int], list[Any]] = {}
    for (clock, length), found in alike.items():
        memories = -(-(length - 1) // PLACES)
        steps = [(length - 1 + number) // memories for number in range(memories)]
        for group in (found[k:k + BITS] for k in range(0, len(found), BITS)):
            data = [cells[row[0]]["connections"]["DI"][0] for row in group]
            for number, step in enumerate(steps):
                if (clock, step) not in rounds:
                    rounds[clock, step] = _round(cells, clock, step, bits)
                given = [next(bits) for _ in range(BITS)]
                cells[f"{group[0][0]}_line{number}"] = _memory(clock, rounds[clock, step], data, given)
                data = given[:len(group)]
            for row, bit in zip(group, data):
                for name in row[:-1]:
                    del cells[name]
                last = cells[row[-1]]
                cells[row[-1]] = {**last, "connections": {**last["connections"], "DI": [bit]}}
    return cells


def rows(module: Mapping[str, Any]) -> list[list[str]]:
    """Rows of SHORTEST flip-flops and more, always enabled and never reset, of which each but the last goes to the next
    alone; in the order of their names."""
    cells = module["cells"]
    plain = {name: cell["connections"] for name, cell in cells.items() if cell["type"] == "TRELLIS_FF"
             and cell["parameters"]["CEMUX"].strip() == "1" and cell["connections"]["LSR"] == ["0"]
             and cell["parameters"]["REGSET"] == "RESET" and cell["parameters"]["CLKMUX"] == "CLK"}
    users = Counter(bit for _, bit, drives in _pins(module) if not drives)
    driver = {pins["Q"][0]: name for name, pins in plain.items() if users[pins["Q"][0]] == 1}
    following = {driver[pins["DI"][0]]: name for name, pins in plain.items()
                 if pins["DI"][0] in driver and plain[driver[pins["DI"][0]]]["CLK"] == pins["CLK"]}
    found = []
    for name in sorted(plain.keys() - set(following.values())):
        row = [name]
        while row[-1] in following:
            row.append(following[row[-1]])
        if len(row) >= SHORTEST:
            found.append(row)
    return found


def _pins(module: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Port, bit, and whether the port drives it, of all cells and of the module itself."""
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            yield from ((port, bit, cell["port_directions"][port] == "output") for bit in bits)
    for port, about in module["ports"].items():
        yield from ((port, bit, about["direction"] == "input") for bit in about["bits"])


def _round(cells: Cells, clock: Any, steps: int, bits: Iterator[int]) -> list[Any]:
    """A counter that goes round in so many steps, from 0 on."""
    now, after = ([next(bits) for _ in range(BITS)] for _ in range(2))
    for at in range(BITS):
        table = "".join(str((place + 1) % steps >> at & 1) for place in reversed(range(PLACES)))
        name = f"{PREFIX}{clock}_{steps}_{at}"
        cells[f"{name}_next"] = _cell("LUT4", {"INIT": table}, {"Z": [after[at]]},
                                      **{port: [bit] for port, bit in zip("ABCD", now)})
        cells[name] = _cell("TRELLIS_FF", {"CEMUX": "1 ", "CLKMUX": "CLK", "GSR": "DISABLED", "LSRMUX": "LSR",
                                           "REGSET": "RESET"}, {"Q": [now[at]]}, CLK=[clock], DI=[after[at]], LSR=["0"])
    return now


def _memory(clock: Any, place: list[Any], data: list[Any], given: list[Any]) -> dict[str, Any]:
    return _cell("TRELLIS_DPR16X4", {"INITVAL": "0" * PLACES * BITS, "WCKMUX": "WCK", "WREMUX": "WRE"}, {"DO": given},
                 DI=data + ["0"] * (BITS - len(data)), RAD=place, WAD=place, WCK=[clock], WRE=["1"])


def _cell(kind: str, parameters: dict[str, str], outputs: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    return {"hide_name": 0, "type": kind, "parameters": parameters, "attributes": {},
            "port_directions": {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")},
            "connections": {**inputs, **outputs}}
