"""The systolic array against its golden model: values, bit for bit, and the cycle of every word."""
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from golden.systolic import array as systolic
from hw.fp.group import Aligner
from hw.systolic import ProcessingElement, SystolicArray
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate

SPECIAL = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
                    0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32)


class Shape:
    """The array under test, from the environment that `_simulate` sets."""

    def __init__(self):
        self.rows, self.columns, self.width, aligned, grouped, self.reach = map(
            int, os.environ["ARRAY"].split())
        self.aligned, self.grouped = bool(aligned), bool(grouped)


class Tile:
    """Operands as bit patterns, K a multiple of the width; `blank` beats have any and count as none."""

    def __init__(self, shape, random, beats, live, pick):
        terms = beats * shape.width
        self.x, self.y = pick(random, (shape.rows, terms)), pick(random, (terms, shape.columns))
        self.beats, self.live = beats, live
        self.blank = random.random(beats) < 0.1
        counts = ~np.repeat(self.blank, shape.width)
        self.want = fp32.bits(systolic.tiles(np.where(counts, self.x[:live], np.uint32(0)),
                                             np.where(counts[:, None], self.y, np.uint32(0)),
                                             shape.width, grouped=shape.grouped))


def normal(random, size):
    return fp32.bits(random.standard_normal(size).astype(np.float32))


def mixed(random, size):
    """Any bit pattern, with many special ones and many that cancel."""
    words = random.integers(0, 1 << 32, size, np.uint32)
    near = (words & 0x81FFFFFF) | 0x3E000000
    words = np.where(random.random(size) < 0.6, near, words).astype(np.uint32)
    return np.where(random.random(size) < 0.03, random.choice(SPECIAL, size), words).astype(np.uint32)


def _pack(words):
    return int.from_bytes(np.ascontiguousarray(words, dtype="<u4").tobytes(), "little")


async def _run(dut, shape, tiles, gaps=None):
    """Feeds tiles, `gaps[i]` idle cycles of garbage after tile i, and returns for each tile the results and
    the cycles of its first and last word.
    """
    random = np.random.default_rng(seed("garbage"))
    edge = RisingEdge(dut.clk)
    w, gaps = shape.width, gaps or [0] * len(tiles)
    unpack = layout_of("o").unpack
    beats = []
    for tile, gap in zip(tiles, gaps, strict=True):
        for k in range(tile.beats):
            terms = slice(k * w, (k + 1) * w)
            beats.append((tile.x[:, terms], tile.y[terms].T, tile.blank[k], k == 0, k == tile.beats - 1, tile.live))
        beats += [(mixed(random, (shape.rows, w)), mixed(random, (shape.columns, w)), False, False, False, 0)] * gap
    history, valid, last = [], [], []
    tail = systolic.pe_latency(w, grouped=shape.grouped) + 2 * shape.rows + 2 * shape.columns + 4
    dut.last.value = 0
    for cycle in range(len(beats) + tail):
        if cycle < len(beats):
            x, y, blank, first, end, live = beats[cycle]
            dut.x.value, dut.y.value, dut.blank.value = _pack(x), _pack(y), int(blank)
            dut.first.value, dut.last.value, dut.live_rows.value = int(first), int(end), live
        else:
            dut.first.value, dut.last.value = 0, 0
        await edge
        history.append(unpack(int(dut.o.value)))
        valid.append(dut.o_valid.value == 1)
        last.append(dut.o_last.value == 1)
    rows = [cycle for cycle, flag in enumerate(valid) if flag]
    assert len(rows) == sum(tile.live for tile in tiles), "number of result rows"
    results, at = [], 0
    for tile in tiles:
        mine = rows[at:at + tile.live]
        at += tile.live
        assert [last[cycle] for cycle in mine] == [False] * (tile.live - 1) + [True], "o_last"
        late = [0 if shape.aligned else c // shape.reach for c in range(shape.columns)]
        got = np.array([[history[cycle + late[c]][c] for c in range(shape.columns)] for cycle in mine],
                       np.uint32)
        results.append((got, mine[0], mine[-1] + late[-1]))
    return results


def _check(tiles, results):
    for index, (tile, (got, _, _)) in enumerate(zip(tiles, results, strict=True)):
        wrong = np.argwhere(got != tile.want)
        assert not len(wrong), (
            f"tile {index}, {len(wrong)} words, the first at row {wrong[0][0]}, column {wrong[0][1]}: "
            f"{got[tuple(wrong[0])]:#010x}, expected {tile.want[tuple(wrong[0])]:#010x}")


async def _begin(dut):
    start(dut)
    dut.first.value, dut.last.value = 0, 0
    await reset(dut)
    return Shape(), np.random.default_rng(seed("tiles"))


def _sequence(shape, random, count, longest=40):
    """Tiles of random length and liveness that may follow each other without a gap."""
    tiles, before = [], 0
    for _ in range(count):
        live = int(random.integers(1, shape.rows + 1))
        least = max(1, before, 2 * before - live)
        tiles.append(Tile(shape, random, int(random.integers(least, least + longest)), live, mixed))
        before = live
    return tiles


@cocotb.test()
async def smoke(dut):
    """One beat of ones against a ramp gives the ramp times the width."""
    shape, _ = await _begin(dut)
    ones = np.full((shape.rows, shape.width), fp32.bits(np.float32(1)), np.uint32)
    ramp = fp32.bits(np.tile(np.arange(shape.columns, dtype=np.float32), (shape.width, 1)))
    tile = Tile(shape, np.random.default_rng(0), 1, 1, normal)
    tile.x, tile.y, tile.blank = ones, ramp, np.zeros(1, bool)
    [(got, _, _)] = await _run(dut, shape, [tile])
    assert fp32.value(got[0]).tolist() == [float(shape.width * c) for c in range(shape.columns)]


@cocotb.test()
async def random_match_golden(dut):
    """Tiles of random length and liveness back to back, any bit patterns, on arrays of six shapes up to 16 x 32."""
    shape, random = await _begin(dut)
    tiles = _sequence(shape, random, 12)
    _check(tiles, await _run(dut, shape, tiles))


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def pauses_between_tiles(dut):
    """Garbage in the idle cycles between tiles, from none to many, disturbs nothing."""
    shape, random = await _begin(dut)
    tiles = _sequence(shape, random, 10, longest=4)
    _check(tiles, await _run(dut, shape, tiles, [int(random.integers(0, 30)) for _ in tiles]))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Tiles of as few beats as rows leave every `rows` cycles, each tile's first and last word in the predicted cycle:
    no bubble, every cell works in every cycle."""
    shape, random = await _begin(dut)
    tiles = [Tile(shape, random, shape.rows, shape.rows, normal) for _ in range(9)]
    results = await _run(dut, shape, tiles)
    _check(tiles, results)
    want = systolic.schedule([t.beats for t in tiles], [t.live for t in tiles], columns=shape.columns,
                             width=shape.width, aligned=shape.aligned, grouped=shape.grouped, reach=shape.reach)
    assert [(first, end) for _, first, end in results] == want
    firsts = [first for _, first, _ in results]
    assert np.diff(firsts).tolist() == [shape.rows] * 8, "a tile has to leave every `rows` cycles"

    tiles = _sequence(shape, random, 8)
    results = await _run(dut, shape, tiles)
    want = systolic.schedule([t.beats for t in tiles], [t.live for t in tiles], columns=shape.columns,
                             width=shape.width, aligned=shape.aligned, grouped=shape.grouped, reach=shape.reach)
    assert [(first, end) for _, first, end in results] == want


@cocotb.test()
async def reset_midstream(dut):
    """Wherever a reset falls, no row of the dropped tile is marked and the tile after it is right."""
    shape, random = await _begin(dut)
    edge = RisingEdge(dut.clk)
    length = 4 + systolic.pe_latency(shape.width, grouped=shape.grouped) + 2 * shape.rows + shape.columns
    for at in rng("reset").sample(range(3, length), min(10, length - 3)):
        lost = Tile(shape, random, 4, shape.rows, normal)
        w = shape.width
        for cycle in range(at):
            k = cycle if cycle < lost.beats else 0
            dut.x.value, dut.y.value = _pack(lost.x[:, k * w:k * w + w]), _pack(lost.y[k * w:k * w + w].T)
            dut.first.value, dut.last.value = int(cycle == 0), int(cycle == lost.beats - 1)
            dut.live_rows.value = shape.rows
            await edge
        dut.first.value, dut.last.value = 0, 0
        await reset(dut, 1)
        tiles = [Tile(shape, random, shape.rows, shape.rows, mixed)]
        _check(tiles, await _run(dut, shape, tiles))        # counts the marked rows as well


@cocotb.test()
async def corner_values(dut):
    """Zeros of both signs, subnormals, the smallest and largest numbers, infinities and NaNs against each other, in
    tiles of one beat and of many."""
    shape, random = await _begin(dut)

    def special(random, size):
        return random.choice(SPECIAL, size)

    tiles = [Tile(shape, random, shape.rows + 7 * (n % 2), shape.rows, special) for n in range(6)]
    tiles += [Tile(shape, random, 1, 1, special)]
    _check(tiles[:-1], await _run(dut, shape, tiles[:-1]))
    _check(tiles[-1:], await _run(dut, shape, tiles[-1:]))


def _simulate(rows, columns, width, aligned, number, grouped=False, reach=1, lut_products=0):
    array = SystolicArray(rows=rows, columns=columns, width=width, terms_log2=10, grouped=grouped, reach=reach,
                          aligned=aligned, lut_products=lut_products)
    name = f"systolic_{rows}x{columns}w{width}{'a' * aligned}{'g' * grouped}{'r' * (reach > 1)}{lut_products or ''}"
    simulate(array, "verif.systolic.test_array", name=name, tests=6, seed=number,
             env={"ARRAY": f"{rows} {columns} {width} {int(aligned)} {int(grouped)} {reach}"})


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize(("rows", "columns", "width", "aligned"), [
    *one_of([(3, 5, 1, False), (1, 1, 2, True), (5, 1, 2, False), (2, 3, 8, True)]),
    pytest.param(8, 4, 4, True, marks=pytest.mark.regress),
    pytest.param(16, 32, 1, False, marks=pytest.mark.regress),  # the paper's own array
])
def test_systolic(rows, columns, width, aligned, number):
    _simulate(rows, columns, width, aligned, number)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize(("width", "lut_products"), [(2, 2), (4, 1)])
@pytest.mark.testpoint("random_match_golden")
def test_products_made_of_luts(width, lut_products, number):
    """Two arrays with products made of LUTs in the first column alone: the same results in the same cycles."""
    _simulate(2, 3, width, True, number, lut_products=lut_products)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("random_match_golden", "latency_and_rate_as_documented")
def test_groups_that_share_an_exponent(number):
    """An array whose operands are brought to one exponent as they enter, two columns at a time."""
    _simulate(2, 5, 4, True, number, grouped=True, reach=2)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.testpoint("random_match_golden", "latency_and_rate_as_documented")
def test_several_columns_at_a_time(aligned, number):
    """Operands that enter three columns in the same cycle, of which the last group is short."""
    _simulate(3, 7, 1, aligned, number, reach=3)


@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_golden_latency_is_the_cells():
    """The golden model's latency of a cell is the cell's."""
    for width in (1, 2, 4, 8):
        for lut_products in {0, width - width % 2}:
            cell = ProcessingElement(width=width, terms_log2=10, lut_products=lut_products)
            assert systolic.pe_latency(width) == cell.latency
    cell = ProcessingElement(width=4, terms_log2=10, grouped=True)
    assert systolic.pe_latency(4, grouped=True) == Aligner.latency + cell.latency


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"rows": 0, "columns": 1, "width": 1, "terms_log2": 4}, "rows is 0, must be at least 1"),
    ({"rows": 1, "columns": -2, "width": 1, "terms_log2": 4}, "columns is -2, must be at least 1"),
    ({"rows": 1, "columns": 1, "width": 3, "terms_log2": 4}, "width is 3, must be 1, 2, 4 or 8"),
    ({"rows": 1, "columns": 1, "width": 4, "terms_log2": 1},
     "terms_log2 is 1, must be 2 to 16 for 4 terms a beat"),
    ({"rows": 1, "columns": 1, "width": 1, "terms_log2": 4, "lut_products": 1},
     "lut_products is 1, must be 0 to 0 for 1 terms a beat"),
    ({"rows": 1, "columns": 1, "width": 2, "terms_log2": 4, "lut_products": 3},
     "lut_products is 3, must be 0 to 2 for 2 terms a beat"),
])
def test_illegal_config_wrong(parameters, sentence):
    """Impossible sizes are refused with a sentence."""
    with pytest.raises(ValueError) as error:
        SystolicArray(**parameters)
    assert str(error.value) == sentence
