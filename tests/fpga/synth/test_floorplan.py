"""Places that nextpnr is told: multipliers of a product together, and slices left empty where the part is crowded."""

import random
import re
from itertools import count

import pytest

from fpga.synth import floorplan
from fpga.synth.floorplan import held, multiplier_sites, planned, products, spread

pytestmark = pytest.mark.regress

PART = "LFE5U-85F"


class Netlist:
    """Cells as Yosys writes them, of products that are taken apart as `synth_ecp5` does it."""

    def __init__(self):
        self.cells, self._bits = {}, count(2)

    def wires(self, width):
        return [next(self._bits) for _ in range(width)]

    def add(self, name, kind, outputs, **inputs):
        ports = {**inputs, **outputs}
        self.cells[name] = {"type": kind, "connections": ports, "attributes": {"src": "some.v:1"},
                            "port_directions": {port: "output" if port in outputs else "input" for port in ports}}

    def multiplier(self, name, *operands):
        bits = [bit for operand in operands for bit in operand]
        self.add(name, "MULT18X18D", {"P": self.wires(36)}, A=bits, B=["0", "x"])
        return name

    def product(self, unit, number, x=None):
        """24 x 17 bits and, a cycle later, 24 x 7: four multipliers. Returns their names."""
        x, low, high = x or self.wires(24), self.wires(17), self.wires(7)
        later = []
        for bit in (*x, *high):
            later += self.wires(1)
            self.add(f"{unit}.ff{number}_{bit}", "TRELLIS_FF", {"Q": later[-1:]}, DI=[bit], CLK=[0])
        xx, held_high = later[:24], later[24:]
        return [self.multiplier(f"{unit}.{name}{number}", *operands) for name, operands in (
            ("p", (x[:18], low)), ("z", (x[18:], low)), ("a", (xx[:18], held_high)), ("m", (xx[18:], held_high)))]


def bels(cells):
    return {name: cell["attributes"]["BEL"] for name, cell in cells.items()}


def place(bel):
    column, row, name = re.fullmatch(r"X(\d+)/Y(\d+)/(?:SLICED\.)?(\w+)", bel).groups()
    return int(row), int(column), name


@pytest.mark.parametrize("part, rows, blocks", [
    (PART, [58, 34, 10], 13), ("LFE5U-45F", [46, 22], 9), ("LFE5U-25F", [13], 7), ("LFE5U-12F", [13], 7),
    ("LFE5UM5G-85F", [58, 34, 10], 13)])
def test_the_sites_of_a_part(part, rows, blocks):
    """156 multipliers of an LFE5U-85F, 72 and 28 of its smaller ones, as their data sheet says."""
    sites = multiplier_sites(floorplan._tiles(part))
    assert [{row for block in line for _, row, _ in block} for line in sites] == [{row} for row in rows]
    assert [len(line) for line in sites] == [blocks] * len(rows)
    for line in sites:
        for block in line:
            assert [name for *_, name in block] == ["MULT18_0", "MULT18_1", "MULT18_4", "MULT18_5"]
            assert [column - block[0][0] for column, *_ in block] == [0, 1, 4, 5]


def test_a_product_is_found_by_its_operands():
    netlist, wanted = Netlist(), []
    shared = netlist.wires(24)      # one operand of all four cells' first products
    for unit in ("top.cell_0", "top.cell_1", "top.cell_2", "top.cell_3"):
        wanted += [sorted(netlist.product(unit, number, None if number else shared)) for number in range(4)]
    shuffled = list(netlist.cells.items())
    random.Random(1).shuffle(shuffled)
    assert sorted(products(dict(shuffled))) == sorted(wanted)


def test_an_operand_of_many_joins_nothing():
    netlist = Netlist()
    scale = netlist.wires(18)
    names = [netlist.multiplier(f"top.unit.m{k}", scale, netlist.wires(10)) for k in range(9)]
    assert sorted(products(netlist.cells)) == [[name] for name in sorted(names)]
    few = {name: netlist.cells[name] for name in names[:8]}
    assert sorted(map(len, products(few))) == [4, 4]


def test_products_lie_in_blocks_and_units_side_by_side():
    netlist = Netlist()
    units = [f"top.grid.cell_{k}" for k in range(4)] + [f"top.pool.lane{k}" for k in range(2)]
    groups = [netlist.product(unit, number) for unit in units for number in range(4 if "cell" in unit else 1)]
    loose = [netlist.multiplier(f"top.split.m{k}", netlist.wires(30)) for k in range(3)]
    places = planned(netlist.cells, PART)
    where = {name: place(bel) for name, bel in bels(places).items()}
    assert set(where) == {name for group in groups for name in group} | set(loose)
    assert len(set(where.values())) == len(where)
    for group in [*groups, loose]:
        assert len({where[name][0] for name in group}) == 1
        columns = [where[name][1] for name in group]
        assert max(columns) - min(columns) <= 5
    for unit in units:
        mine = [spot for name, spot in where.items() if name.startswith(unit)]
        assert len({row for row, *_ in mine}) == 1
        others = [spot for name, spot in where.items() if not name.startswith(unit)]
        first, last = min(mine), max(mine)
        assert not [spot for spot in others if first < spot < last], unit
    assert {row for row, *_ in where.values()} == {10, 34, 58}, "no row is crowded while another is empty"
    for name in where:
        assert places[name] == {**netlist.cells[name], "attributes": {"src": "some.v:1", "BEL": bels(places)[name]}}
    assert "BEL" not in netlist.cells[groups[0][0]]["attributes"], "the netlist is not changed"


@pytest.mark.parametrize("unit, count, placed", [
    ("top.u{}", 39, True), ("top.u{}", 40, False), ("top.u", 13, True), ("top.u", 14, False)])
def test_more_multipliers_than_there_are(unit, count, placed):
    """39 blocks of the part, 13 in a row: what is more is the placer's."""
    netlist = Netlist()
    for number in range(count):
        netlist.product(unit.format(number), number)
    assert len(bels(planned(netlist.cells, PART))) == (4 * count if placed else 0)


def test_no_multiplier_no_place():
    assert planned({"ff": {"type": "TRELLIS_FF", "connections": {"DI": [2], "Q": [3]},
                           "port_directions": {"DI": "input", "Q": "output"}}}, PART) == {}


LOGIC = [(column, row) for row in range(1, 9) for column in range(1, 11)]       # 80 tiles, 640 LUTs, 120 of them held


@pytest.mark.parametrize("kinds, held_empty", [
    ({"LUT4": 255}, 0), ({"LUT4": 256}, 120), ({"LUT4": 424}, 120), ({"LUT4": 425}, 0),
    ({"CCU2C": 100, "TRELLIS_DPR16X4": 10, "TRELLIS_FF": 9000}, 120), ({"CCU2C": 100, "TRELLIS_DPR16X4": 9}, 0)])
def test_slices_stay_empty_in_a_crowded_part(kinds, held_empty):
    cells = {f"{kind}{k}": {"type": kind} for kind, number in kinds.items() for k in range(number)}
    empty = spread(cells, LOGIC)
    assert len(empty) == held_empty == held({**cells, **empty})
    spots = [place(bel) for bel in bels(empty).values()]
    assert len(set(spots)) == len(spots)
    assert {(column, row) for row, column, _ in spots} <= {(column, row) for column, row in LOGIC if row % 4}
    assert {name for *_, name in spots} <= {"K0", "K1"} or not spots
    for cell in empty.values():
        assert cell["type"] == "LUT4" and not any(cell["connections"].values())
        assert set(cell["connections"]) == set(cell["port_directions"]) == set("ABCDZ")


def test_the_tiles_of_logic():
    tiles = floorplan._logic(floorplan._tiles(PART))
    assert 8 * len(tiles) == 83_640, "LUTs of the part"
    assert not {row for _, row in tiles} & {10, 22, 34, 46, 58, 70, 82}, "multipliers and block memories"
