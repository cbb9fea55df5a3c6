"""The TT unit against its golden model: values bit for bit, marks, counters and the cycle of every vector."""

import os
from dataclasses import replace
from itertools import repeat

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from gen.rtl.config import load
from golden.tt.cycles import cycles, grid_latency
from golden.tt.load import Loader, X, Y
from golden.tt.rows import rows
from hw.tt.config import TTConfig
from hw.tt.grid import Grid
from hw.tt.unit import TTUnit
from verif.bench import reset, rng, seed, start
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, never, sometimes
from verif.tt.bench import Bench, limits_of

CONFIGS = {
    "tiny": lambda: load("tiny").cores["tt"],
    "two_lanes": lambda: replace(load("tiny").cores["tt"], lanes=2, reuse_entries=4),
    "smartssd": lambda: load("smartssd").cores["tt"],
}
COLUMNS = {
    1: [(2, 2, 4), (2, 2, 2), (4, 4, 4), (1, 2, 8), (3, 3, 3), (4, 4), (3, 5), (2, 2, 2, 2), (2, 4, 8), (3, 2, 2, 5)],
    2: [(4, 4, 4), (2, 2, 4), (2, 4, 4), (4, 4, 8), (8, 8, 8), (4, 8, 8), (2, 2, 32), (5, 5, 5), (8, 8), (4, 4, 4, 4),
        (2, 2, 16), (3, 2, 5, 3), (4, 4, 32), (16, 32)],
}


class Table:
    """Random cores of one shape, and what the unit makes of them."""

    def __init__(self, random, modes, columns, ranks, existing=None):
        ranks = (1, *ranks, 1)
        self.cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                      for k in range(len(modes))]
        self.rows = int(np.prod(modes)) if existing is None else existing


def _config():
    return CONFIGS[os.environ["TT_CONFIG"]]()


def _tables(config, random, shapes, rank_of):
    out = []
    for columns in shapes:
        modes = [int(v) for v in random.integers(1, 8, len(columns))]
        out.append(Table(random, modes, columns, [rank_of() for _ in columns[1:]]))
    return out


async def _load(bench, config, tables):
    """Loads the tables; returns their layouts."""
    loader = Loader(limits_of(config))
    layouts = []
    for table in tables:
        _, layout, beats = loader.add(table.cores, rows=table.rows)
        layouts.append(layout)
        await bench.load(beats)
    return layouts


class Recorded:
    """A pattern that remembers what it said."""

    def __init__(self, pattern):
        self._pattern = pattern
        self.said = []

    def __iter__(self):
        return self

    def __next__(self):
        self.said.append(next(self._pattern))
        return self.said[-1]


def _timing(config, layouts, asked, **patterns):
    names = ("lanes", "index_bits", "t_lines", "t_middle_lines", "reuse_entries", "in_flight", "output_beats")
    return cycles(layouts, *zip(*asked, strict=True), **{name: getattr(config, name) for name in names}, **patterns)


def _check_timing(config, layouts, asked, bench, found, pauses=None, ready=None):
    """Every lookup taken and every vector delivered in the predicted cycle; counters as predicted.

    The bench is new since reset. pauses, ready: what its patterns said.
    """
    taken = np.array(bench.lookup_source.taken_at[:len(asked)])
    begin = taken[0]
    patterns = {}
    if pauses is not None:
        gaps, run = [], 0
        for go in pauses.said:
            if go:
                gaps.append(run)
            run = 0 if go else run + 1
        patterns["gaps"] = gaps[: len(asked)]
    if ready is not None:
        length = min(len(one.said) for one in ready) - begin + 1
        patterns["ready"] = [one.said[begin - 1:begin - 1 + length] for one in ready]
    timing = _timing(config, layouts, asked, **patterns)
    assert np.array_equal(taken - begin, timing.taken_at), "the cycles in which lookups were taken"
    last = np.array([at for _, _, at in found]) - begin
    wrong = np.flatnonzero(last != timing.last_at)
    assert not len(wrong), (f"vector {wrong[0]} left in cycle {last[wrong[0]]}, "
                            f"predicted {timing.last_at[wrong[0]]}; {len(wrong)} differ")
    return timing


def _expected(config, tables, asked):
    """Vectors of lookups [(table, index)] as words."""
    out = [None] * len(asked)
    for number, table in enumerate(tables):
        mine = [at for at, (t, _) in enumerate(asked) if t == number]
        found = rows(table.cores, [i if i < table.rows else 0 for _, i in (asked[at] for at in mine)],
                     grid_log2=config.grid_log2)
        for at, row in zip(mine, found, strict=True):
            out[at] = row.view(np.uint32)
    return out


def _check(config, tables, asked, found):
    for at, ((words, error, _), want) in enumerate(zip(found, _expected(config, tables, asked), strict=True)):
        number, index = asked[at]
        assert error == (index >= tables[number].rows), f"lookup {at}: error mark {error}"
        assert np.array_equal(words, want), (
            f"lookup {at}, row {index} of table {number}: {np.flatnonzero(words != want)[:4]} of {len(want)} differ")


def _lookups(random, tables, count, runs=0.5):
    """Lookups that stay with a table, and near a row, for a while."""
    asked, table, index = [], 0, 0
    for _ in range(count):
        if random.random() > runs:
            table = int(random.integers(len(tables)))
            index = int(random.integers(tables[table].rows))
        else:
            index = (index + int(random.integers(3))) % tables[table].rows
        asked.append((table, index))
    return asked


@cocotb.test()
async def smoke(dut):
    """One table, its cores all ones: every element is the product of the ranks."""
    config = _config()
    bench = await Bench.begin(dut, config)
    side = config.side
    table = Table(np.random.default_rng(0), (2, 3, 2), (side,) * 3, (side, side))
    table.cores = [np.ones_like(core) for core in table.cores]
    await _load(bench, config, [table])
    bench.ask([0, 0], [0, 11])
    for words, error, _ in await bench.vectors(2):
        assert not error
        assert np.array_equal(words.view(np.float32), np.full(side**3, side**2, np.float32))


@cocotb.test()
async def random_match_golden(dut):
    """Tables of 2, 3 and 4 cores and many shapes resident at once, their lookups back to back: values, marks, counters
    and the cycle of every vector."""
    config = _config()
    random = np.random.default_rng(seed("tables"))
    bench = await Bench.begin(dut, config)
    tables = _tables(config, random, COLUMNS[config.grid_log2][: config.tables],
                     lambda: int(random.integers(1, config.rank_max // 2)))
    layouts = await _load(bench, config, tables)
    asked = _lookups(random, tables, 300)
    bench.ask(*zip(*asked, strict=True))
    found = await bench.vectors(len(asked))
    _check(config, tables, asked, found)
    timing = _check_timing(config, layouts, asked, bench, found)
    counted = bench.counters()
    assert (counted["lookups"], counted["computed"], counted["reused"], counted["slots"]) == (
        len(asked), timing.computed, timing.reused, timing.slots)
    assert counted["corrected"] == counted["uncorrectable"] == counted["outside"] == 0


@cocotb.test()
async def backpressure_both_sides(dut):
    """Sparse and bursting sources, slow, bursting and long blocked consumers; the cycle model follows all of them."""
    config = _config()
    random = np.random.default_rng(seed("tables"))
    shapes = COLUMNS[config.grid_log2][: config.tables]
    tables = _tables(config, random, shapes, lambda: int(random.integers(1, 9)))
    for label, lookups, consumer in [
            ("sparse source", lambda r: sometimes(0.2, r), lambda r: repeat(True)),
            ("slow consumers", lambda r: repeat(True), lambda r: sometimes(0.3, r)),
            ("bursts", bursty, bursty),
            ("blocked for long", lambda r: repeat(True), lambda r: never(1200))]:
        pauses = Recorded(lookups(rng(label)))
        ready = [Recorded(consumer(rng(f"{label} {lane}"))) for lane in range(config.lanes)]
        bench = Bench(dut, config.lanes, config.line_words, lookups=pauses, ready=ready)
        if label == "sparse source":
            start(dut)
        await reset(dut)
        layouts = await _load(bench, config, tables)
        asked = _lookups(random, tables, 120)
        bench.ask(*zip(*asked, strict=True))
        found = await bench.vectors(len(asked))
        _check(config, tables, asked, found)
        _check_timing(config, layouts, asked, bench, found, pauses=pauses, ready=ready)
        bench.stop()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """One table at a time: slots back to back, as many as the layout says; a lone lookup's latency."""
    config = _config()
    random = np.random.default_rng(seed("rate"))
    bench = await Bench.begin(dut, config)
    tables = [Table(random, (5, 7, 6), columns, (rank, rank)) for columns in COLUMNS[config.grid_log2][:2]
              for rank in (config.side, 2 * config.side)]
    layouts = await _load(bench, config, tables)
    for number, layout in enumerate(layouts):
        bench.stop()
        await reset(dut)
        bench = Bench(dut, config.lanes, config.line_words)
        # No two lookups that follow each other share a first product.
        asked = [(number, at * 13 % 35 * 6 + at % 6) for at in range(100 * config.lanes)]
        bench.ask(*zip(*asked, strict=True))
        found = await bench.vectors(len(asked))
        timing = _check_timing(config, layouts, asked, bench, found)
        middle = len(asked) // 2
        steady = (timing.last_at[-1] - timing.last_at[middle]) / (len(asked) - 1 - middle)
        # As many slots as the layout says, back to back, where enough first products can be on their way.
        if timing.reused == 0 and config.reuse_entries * layout.slots > 60:
            expected = max(1, layout.slots / config.lanes)
            assert steady <= 1.05 * expected, f"{layout.columns}: {steady} cycles a row, {expected} slots"
    # A lone lookup in an idle unit.
    bench.stop()
    await reset(dut)
    bench = Bench(dut, config.lanes, config.line_words)
    bench.ask([0], [0])
    _check_timing(config, layouts, [(0, 0)], bench, await bench.vectors(1))


@cocotb.test()
async def reset_midstream(dut):
    """Resets at random moments, in every stage of a lookup; cores stay, the next lookups and their cycles are
    right."""
    config = _config()
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut, config, watch=False)
    tables = _tables(config, random, COLUMNS[config.grid_log2][:6], lambda: int(random.integers(1, 9)))
    layouts = await _load(bench, config, tables)
    bench.stop()
    for wait in [int(random.integers(1, 60 + 3 * config.index_bits)) for _ in range(12)]:
        bench = Bench(dut, config.lanes, config.line_words)
        bench.ask(*zip(*_lookups(random, tables, 40), strict=True))
        await ClockCycles(dut.clk, wait)
        bench.stop()
        await reset(dut)
        bench = Bench(dut, config.lanes, config.line_words)
        asked = _lookups(random, tables, 20)
        bench.ask(*zip(*asked, strict=True))
        found = await bench.vectors(len(asked))
        _check(config, tables, asked, found)
        _check_timing(config, layouts, asked, bench, found)
        assert bench.counters()["lookups"] == len(asked)
        bench.stop()


@cocotb.test()
async def corner_values(dut):
    """Zeros, subnormals, extreme numbers, infinities and NaNs in the cores, beside padding; rows past the table."""
    config = _config()
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut, config)
    special = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                        0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x5F000000, 0x20000000], np.uint32)
    tables = _tables(config, random, COLUMNS[config.grid_log2][:6], lambda: int(random.integers(1, 9)))
    for table in tables:
        for core in table.cores:
            core.view(np.uint32)[random.random(core.shape) < 0.04] = random.choice(special)
            spots = random.random(core.shape) < 0.06
            core.view(np.uint32)[spots] = random.choice(special, int(spots.sum()))
        table.rows = max(1, table.rows - 3)
    await _load(bench, config, tables)
    asked = [(t, i) for t, table in enumerate(tables)
             for i in [*random.integers(0, table.rows, 12).tolist(), table.rows, table.rows + 2,
                       (1 << config.index_bits) - 1, table.rows - 1]]
    bench.ask(*zip(*asked, strict=True))
    _check(config, tables, asked, await bench.vectors(len(asked)))
    assert bench.counters()["outside"] == 3 * len(tables)


@cocotb.test()
@pytest.mark.testpoint("memory_errors")
async def memory_errors(dut):
    """One flipped bit of a codeword is corrected and counted; two mark exactly the vectors that read it, through a
    reused first product too."""
    config = _config()
    random = np.random.default_rng(seed("errors"))
    side = config.side
    for flip in (1, 2, 3):
        for part in ("first", "second", "last"):
            bench = Bench(dut, config.lanes, config.line_words)
            if (flip, part) == (1, "first"):
                start(dut)
            await reset(dut)
            table = Table(random, (3, 4, 5), (side,) * 3, (side, side))
            loader = Loader(limits_of(config))
            _, layout, beats = loader.add(table.cores)
            # Slice 2 of the core: its only operand.
            where = {"first": (X, 2), "second": (Y, 2), "last": (X, -(-3 // side) + 2 // side)}[part]
            line = where[1] if part == "second" else where[1] if part == "last" else 2 // side
            quarter = 0 if part == "second" else 2 % side
            victims = [at for at, b in enumerate(beats) if b.target == where[0]
                       and b.address == (line if part != "first" else 2 // side) and b.part == quarter]
            assert len(victims) == 1
            await bench.load(beats, {victims[0]: flip})
            asked = [(0, i) for i in range(60)] + [(0, i) for i in range(59, -1, -1)]
            bench.ask(*zip(*asked, strict=True))
            found = await bench.vectors(len(asked))
            axis = ("first", "second", "last").index(part)
            hit = np.array([np.unravel_index(i, (3, 4, 5))[axis] == 2 for _, i in asked])
            errors = np.array([error for _, error, _ in found])
            counted = bench.counters()
            if flip in (1, 2):
                _check(config, [table], asked, found)
                assert counted["corrected"] > 0 and counted["uncorrectable"] == 0
            else:
                assert np.array_equal(errors, hit), (part, np.flatnonzero(errors != hit)[:8])
                assert counted["uncorrectable"] > 0 and counted["corrected"] == 0
                good = [at for at in range(len(asked)) if not hit[at]]
                for at, want in zip(good, _expected(config, [table], [asked[at] for at in good]), strict=True):
                    assert np.array_equal(found[at][0], want)
            bench.stop()


@cocotb.test()
@pytest.mark.testpoint("reuse")
async def reuse_is_counted(dut):
    """Lookups with equal leading indices compute the first product once a lane, far ones again; the counters
    say so."""
    config = _config()
    random = np.random.default_rng(seed("reuse"))
    bench = await Bench.begin(dut, config)
    table = Table(random, (4, 8, 6), (config.side,) * 3, (config.side,) * 2)
    layouts = await _load(bench, config, [table])
    asked = [(0, i) for i in range(table.rows)]
    bench.ask(*zip(*asked, strict=True))
    found = await bench.vectors(len(asked))
    _check(config, [table], asked, found)
    _check_timing(config, layouts, asked, bench, found)
    counted = bench.counters()
    assert counted["computed"] == 32 * config.lanes
    assert counted["reused"] == table.rows - 32 * config.lanes


@cocotb.test()
@pytest.mark.testpoint("load_while_looking_up")
async def load_while_looking_up(dut):
    """A table is loaded while another is read: neither disturbs the other."""
    config = _config()
    random = np.random.default_rng(seed("load"))
    bench = await Bench.begin(dut, config)
    tables = [Table(random, (4, 4, 4), (config.side,) * 3, (6, 5)) for _ in range(3)]
    loader = Loader(limits_of(config))
    parts = [loader.add(table.cores)[2] for table in tables]
    await bench.load(parts[0])
    asked = [(0, int(i)) for i in random.integers(0, 64, 200)]
    bench.ask(*zip(*asked, strict=True))
    for part in parts[1:]:
        await bench.load(part)
    more = [(int(random.integers(3)), int(i)) for i in random.integers(0, 64, 100)]
    bench.ask(*zip(*more, strict=True))
    found = await bench.vectors(300)
    _check(config, tables, asked + more, found)


def _simulate(name, tests, number, only=None):
    return simulate(TTUnit(CONFIGS[name]()), "verif.tt.test_unit", name=f"tt_{name}", tests=tests, seed=number,
                    env={"TT_CONFIG": name}, only=only)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", ["tiny", pytest.param("two_lanes", marks=pytest.mark.regress)])
def test_tt(name, number):
    _simulate(name, 9, number)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
def test_tt_full_size(number):
    """The shipping size; slow to build, so all its tests share one model."""
    _simulate("smartssd", 9, number)


@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_golden_latency_is_the_grids():
    """The golden model's latency of a grid is the grid's."""
    for grid_log2, name in ((1, "tiny"), (2, "smartssd")):
        assert grid_latency(grid_log2) == Grid(CONFIGS[name]()).latency


GOOD = dict(lanes=1, grid_log2=1, lut_products=0, x_lines=64, y_lines=64, t_lines=64, t_middle_lines=64, tables=4,
            keep_lines=16, index_bits=12, mode_bits=8, rank_max=16, dim_max=64, reuse_entries=4, in_flight=16,
            output_beats=16, pool_log2=0)


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"lanes": 3}, "lanes must be one of 1, 2, not 3"),
    ({"grid_log2": 0}, "grid_log2 must be one of 1, 2, not 0"),
    ({"lut_products": 5}, "lut_products must be at most the 4 products of a cell, not 5"),
    ({"x_lines": 100}, "x_lines must be a power of two from 2 to 65536, not 100"),
    ({"index_bits": 31}, "index_bits must be a whole number from 4 to 30, not 31"),
    ({"mode_bits": 14}, "index_bits must be at least mode_bits = 14, not 12"),
    ({"t_lines": 2}, "t_lines must be at least reuse_entries = 4, not 2"),
    ({"pool_log2": 2}, "pool_log2 must be one of 0, 3, not 2"),
    ({"pool_log2": 3}, "reuse_entries must be at least 32 with pool_log2 = 3, not 4"),
    ({"pool_log2": 3, "reuse_entries": 32}, "output_beats must be at least 128, eight vectors of dim_max = 64, not 16"),
    ({"rank_max": True}, "rank_max must be a whole number from 1 to 256, not True"),
])
@pytest.mark.testpoint("illegal_config_wrong", unit="tt/unit: pooled")
def test_illegal_config_wrong(wrong, sentence):
    """Impossible sizes are refused with a sentence, with pooling those too that could lock a chunk out of its
    buffer."""
    with pytest.raises(ValueError) as caught:
        TTConfig(**GOOD | wrong)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("table", "sentence"), [
    (((2, 2, 2), (4, 4, 8), (4, 4)), "the embedding dimension is 128, this unit takes at most 64"),
    (((2, 2, 2), (4, 4, 4), (4, 17)), "rank R_2 is 17, this unit takes at most 16"),
    (((2, 300, 2), (4, 4, 4), (4, 4)), "mode I_2 is 300, this unit takes at most 256"),
    (((200, 200, 2), (2, 2, 2), (1, 1)), "80000 rows need more than the 12 index bits of this unit"),
    (((2, 100, 2), (2, 2, 2), (2, 2)), "the cores need 100 lines of Y memory, 64 of 64 are free"),
    (((256, 2, 2), (2, 2, 2), (2, 2)), "the cores need 129 lines of X memory, 64 of 64 are free"),
])
@pytest.mark.testpoint("illegal_config_wrong")
def test_table_too_large_wrong(table, sentence):
    """Tables that do not fit are refused with a sentence."""
    made = Table(np.random.default_rng(1), *table)
    with pytest.raises(ValueError) as caught:
        Loader(limits_of(TTConfig(**GOOD))).add(made.cores)
    assert str(caught.value) == sentence
