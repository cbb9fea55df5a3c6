"""The TT unit against its golden model: sums of chunks bit for bit, marks, counters and the cycle of every sum."""

import os
from collections import Counter
from itertools import repeat

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from gen.rtl.config import load
from golden.tt.block16 import rounded_cores
from golden.tt.cycles import ENTRY_CYCLES, grid_latency
from golden.tt.image import image
from golden.tt.load import Limits, Loader, X, Y
from golden.tt.rows import MOST_ROWS
from hw.tt.config import TTConfig
from hw.tt.grid import Grid
from hw.tt.intermediate import Intermediate
from hw.tt.unit import TTUnit
from verif.bench import rng, seed
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import bursty, never, sometimes
from verif.tt.bench import CONFIGS, Bench, Recorded, Table, chunks_of, expected, most_rows

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
# Of all formats and numbers of cores; tiles with sub-dots combined, pairs of tiles with an end inside.
COLUMNS = {
    1: [(2, 2, 4), (2, 2, 2), (4, 4, 4), (1, 2, 8), (4, 4), (2, 2, 2, 2), (2, 4, 8), (2, 4), (1, 2, 2), (4, 2, 2),
        (3, 2, 4), (5, 2, 2), (1, 2), (1, 8, 4), (1, 16, 4), (1, 8, 2, 2), (3, 4), (3, 2, 2, 4)],
    2: [(4, 4, 4), (2, 2, 4), (2, 4, 4), (4, 4, 8), (8, 8, 8), (4, 8, 8), (2, 2, 32), (8, 8), (4, 4, 4, 4),
        (2, 2, 16), (4, 4, 32), (16, 32), (2, 2, 8), (3, 4, 4), (5, 4, 4), (5, 4, 32), (2, 4, 4, 8), (6, 16),
        (3, 8, 8), (6, 4, 4), (7, 4, 8), (1, 12, 16), (30, 16), (2, 8, 4, 16), (4, 2, 4, 32), (1, 8, 4, 4)],
}


_turns: Counter[tuple[int, ...]] = Counter()     # how often tables of these columns were drawn


def _tables(config, random, count, rank_of, having=()):
    """Tables of the shapes that the unit takes, as many as go into its memories, in half the bits or not; `having`
    first, then shapes that had fewer turns. One mode of each is as large as it may be, or as goes in.
    """
    shapes = COLUMNS[config.grid_log2]
    loader, tables = Loader(Limits.of(config)), list(having)
    for table in tables:
        loader.add(table.cores, block16=table.block16)
    drawn = [shapes[at] for at in random.permutation(len(shapes))]
    for columns in sorted(drawn, key=_turns.__getitem__):
        ranks, one = [rank_of() for _ in columns[1:]], 2 if len(columns) == 4 else int(random.integers(len(columns)))
        block16 = config.block16_only or (config.grouped and random.random() < 0.6)
        for bits in (config.mode_bits, 6, 3):
            modes = [int(v) for v in random.integers(1, 8, len(columns))]
            modes[one] = 1 + int(random.integers(1 << bits))
            table = Table(random, modes, columns, ranks, block16=block16)
            try:
                loader.add(table.cores, block16=table.block16)
            except ValueError:
                continue
            tables.append(table)
            _turns[columns] += 1
            break
        if len(tables) == min(count, config.tables):
            break
    assert tables
    return tables


def _config():
    return CONFIGS[os.environ["TT_CONFIG"]]()


async def _begin(dut):
    config = _config()
    return config, await Bench.begin(dut, config=config)


@cocotb.test()
async def smoke(dut):
    """One table, its cores all ones: every element is the product of the ranks times the rows of the chunk."""
    config, bench = await _begin(dut)
    side = config.side
    table = Table(np.random.default_rng(0), (2, 3, 2), (side,) * 3, (side, side), block16=config.block16_only)
    table.cores = [np.ones_like(core) for core in table.cores]
    await bench.load([table])
    most = most_rows(config, table.layout)
    chunks = [(0, [0]), (0, [11] * most), (0, list(range(most))), (0, [3, 1])]
    bench.ask(chunks)
    found = await bench.sums(len(chunks))
    for (words, error, _), (_, rows) in zip(found, chunks, strict=True):
        assert not error
        assert np.array_equal(words.view(np.float32), np.full(side**3, len(rows) * side**2, np.float32))
    bench.timing([table], chunks, found)


@cocotb.test()
async def random_match_golden(dut):
    """Tables of 2, 3 and 4 cores and all shapes that are taken, chunks of 1 to 8 rows back to back, rows that come
    back: values, marks, counters, the lane of every chunk and the cycle of every sum."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("tables"))
    for turn in range(6 if REGRESS else 1):
        if turn:
            bench = await bench.fresh()
        tables = _tables(config, random, 8, lambda: int(random.integers(1, config.rank_max + 1)))
        await bench.load(tables)
        chunks = chunks_of(config, random, tables, 120 if REGRESS else 60)
        timing = await bench.run(tables, chunks)
        counted = bench.counters()
        assert (counted["lookups"], counted["computed"], counted["reused"], counted["slots"]) == (
            sum(len(rows) for _, rows in chunks), timing.computed, timing.reused, timing.slots)
        assert counted["corrected"] == counted["uncorrectable"] == counted["outside"] == 0


@cocotb.test()
async def backpressure_both_sides(dut):
    """Pauses of the source between and inside chunks, slow, bursting and long blocked consumers; the cycle model
    follows all of them."""
    config = _config()
    random = np.random.default_rng(seed("tables"))
    tables = _tables(config, random, 8, lambda: int(random.integers(1, 9)))
    for label, lookups, consumer in [
            ("sparse source", lambda r: sometimes(0.2, r), lambda r: repeat(True)),
            ("slow consumer", lambda r: repeat(True), lambda r: sometimes(0.1, r)),
            ("bursts", bursty, bursty),
            ("blocked for long", lambda r: repeat(True), lambda r: never(2000))]:
        bench = await Bench.begin(dut, config=config, lookups=Recorded(lookups(rng(label))),
                                  ready=Recorded(consumer(rng(f"{label} consumer"))))
        await bench.load(tables)
        # In the last run most chunks are single rows, which fill every queue.
        chunks = chunks_of(config, random, tables, 100 if REGRESS else 30)
        if label == "blocked for long":
            chunks = [(t, rows[:1]) for t, rows in (chunks * 8)[:300]]
        await bench.run(tables, chunks)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Full chunks of 1, 2, 4 and 8 rows, nothing reused: a slot is empty only where the consumer's beats, a lane's
    tiles, places for sums or the lookups are the limit; a lone row's latency."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("rate"))
    side = config.side
    tables = [Table(random, (5, 7, 6), columns, (rank, rank), block16=config.block16_only)
              for columns in COLUMNS[config.grid_log2][:2] for rank in (side, 2 * side)]
    await bench.load(tables)
    for number, layout in enumerate(table.layout for table in tables):
        most = most_rows(config, layout)
        for size in sorted({min(size, most) for size in (1, 2, 4, most)}):
            bench = await bench.fresh()
            # No two lookups that follow each other share a first product.
            rows = [at * 13 % 35 * 6 + at % 6 for at in range((120 if REGRESS else 80) * config.lanes // size * size)]
            chunks = [(number, rows[at:at + size]) for at in range(0, len(rows), size)]
            timing = await bench.run(tables, chunks)
            half = len(chunks) // 2
            steady = (timing.last_at[-1] - timing.last_at[half]) / (len(chunks) - 1 - half) / size
            if timing.reused == 0:
                beats = -(-layout.dim // config.beat_words)
                # A lookup is on its way through the splitter for so long; so many may be under way.
                split = (3 * config.index_bits + 14) / config.in_flight / config.lanes
                tiles = layout.last.tiles * side / config.lanes
                # A sum has its place in the output memory from its last product on: through the grid until it has left.
                way = grid_latency(config.grid_log2, beats=config.timing["beats"]) + (23 if config.grouped else 17)
                stay = (way + layout.last.tiles * side + beats) / config.vectors / config.lanes
                wanted = max(1, split, layout.slots / config.lanes, beats / size, tiles / size, stay / size)
                assert steady <= 1.06 * wanted, (
                    f"{layout.columns}, rank {layout.ranks[1]}, {size} rows: {steady} cycles a row, not {wanted}")
    # A lone row in an idle unit.
    bench = await bench.fresh()
    await bench.run(tables, [(0, [0])])


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any moment, inside chunks too, drops rows and sums; cores stay, the next sums and their
    cycles are right."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("reset"))
    tables = _tables(config, random, 6, lambda: int(random.integers(1, 9)))
    await bench.load(tables)
    for wait in [int(random.integers(1, 120 + 3 * config.index_bits)) for _ in range(20 if REGRESS else 4)]:
        bench = await bench.fresh()
        bench.ask(chunks_of(config, random, tables, 40))
        await ClockCycles(dut.clk, wait)
        bench = await bench.fresh()
        chunks = chunks_of(config, random, tables, 12)
        await bench.run(tables, chunks)
        assert bench.counters()["lookups"] == sum(len(rows) for _, rows in chunks)


@cocotb.test()
async def corner_values(dut):
    """Zeros, subnormals, extreme numbers, infinities and NaNs in the cores, beside padding, in block16 what is finite;
    first products past the largest number, with padding in all ranks; zeros, first products that vanish and infinities
    against each other, one product an element; chunks with a row past the table."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("corners"))
    special = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                        0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x5F000000, 0x20000000], np.uint32)
    held = np.array([0, 0x80000000, 1, 0x00800000, 0x3F800000, 0x7F7FF800, 0xFF7FF800, 0x5F000000], np.uint32)
    past = Table(random, (3, 2, 3), (config.side,) * 3, (config.side + 1,) * 2, block16=config.grouped)
    past.cores = [(core * np.float32(2**80 if k < 2 else 1)).astype(np.float32) for k, core in enumerate(past.cores)]
    # As many rows as a shape of this size may have, or nearly.
    many = Table(random, (128, 256, 31), (config.side,) * 3, (1, 1), block16=config.block16_only)
    # Of one product an element: zeros, first products below the smallest number and infinities meet.
    meeting = Table(random, (5, 4, 6), (config.side,) * 3, (1, 1), block16=config.block16_only)
    if not config.block16_only:
        met = np.array([sign | word for sign in (0, 1 << 31) for word in (0, 0x3F800000, 0x0D800000, 0x7F800000)],
                       np.uint32)
        for core in meeting.cores:
            core.view(np.uint32)[...] = random.choice(met, core.shape)
    tables = _tables(config, random, 8, lambda: int(random.integers(1, 9)), having=[past, meeting, many])
    for table in tables[2:]:
        for core in table.cores:
            spots = random.random(core.shape) < 0.06
            core.view(np.uint32)[spots] = random.choice(held if table.block16 else special, int(spots.sum()))
        if table.block16:
            table.cores = list(rounded_cores(table.cores))
        table.rows = max(1, table.rows - 3)
    await bench.load(tables)
    chunks = chunks_of(config, random, tables, 100) + [(1, [row]) for row in range(meeting.rows)]
    outside = 0
    for number, rows in chunks[::3]:
        at = int(random.integers(len(rows)))
        rows[at] = int(random.choice([tables[number].rows, tables[number].rows + 2, (1 << config.index_bits) - 1]))
        outside += 1
    bench.ask(chunks)
    bench.judge(tables, chunks, await bench.sums(len(chunks)))
    assert bench.counters()["outside"] == outside


def _operand(config, table, part, piece, random):
    """(memory, line, part of it) of one of a slice's operands, where the table begins at line 0."""
    packed = image(table.layout, table.cores, block16=table.block16)
    operand = (packed.starts[part] << packed.per_line_log2.get(part, 0)) + piece * packed.strides[part]
    if part == "second":
        return Y, operand, 0 if table.block16 else int(random.integers(config.side))
    return X, *divmod(operand + int(random.integers(packed.strides[part])), 1 << packed.per_line_log2[part])


@cocotb.test()
@pytest.mark.testpoint("memory_errors")
async def memory_errors(dut):
    """One flipped bit is corrected; two mark exactly the sums that have a row which reads it, through a reused first
    product too, and through a second product of four cores."""
    config = _config()
    random = np.random.default_rng(seed("errors"))
    side = config.side
    three, four = (3, 4, 5), (3, 4, 2, 5)
    cases = [] if config.block16_only else [(1, "all", three, False), (2, "all", four, False), *(
        (3, part, modes, False) for part, modes in (
            ("first", four), ("second", three), ("middle", four), ("last", three), ("last", four), ("all", four)))]
    # Of two lines that share one of the memory: slice 2 of the second core is the second half of slice 0's.
    if config.grouped:
        cases += [(1, "second", three, True), (2, "last", three, True), (3, "first", three, True),
                  (3, "second", three, True), (3, "last", three, True)]
    for flip, part, modes, block16 in cases:
        bench = await Bench.begin(dut, config=config)
        # Vectors of several tiles, between which the array may be with another row's first product.
        columns = (side, side, 4 * side) if modes is three else (side,) * 4
        table = Table(random, modes, columns, (side,) * (len(modes) - 1), block16=block16)
        _, table.layout, beats = Loader(Limits.of(config)).add(table.cores, block16=block16)
        core, piece = ("first", "second", *["middle"] * (modes is four), "last", "all").index(part), 2 if block16 else 1
        operand = _operand(config, table, part, piece, random) if part != "all" else None
        victims = [at for at, b in enumerate(beats) if (b.target, b.address, b.part) == operand
                   or operand is None and b.target in (X, Y)]
        assert (len(victims) == 1) == (operand is not None)
        await bench.send(beats, dict.fromkeys(victims, flip))
        chunks = chunks_of(config, random, [table], 40)
        rows = range(0, table.rows, table.rows // 60)
        chunks += [(0, [i]) for i in rows] + [(0, [i, i]) for i in reversed(rows)]
        bench.ask(chunks)
        found = await bench.sums(len(chunks))
        counted = bench.counters()
        if flip in (1, 2):
            bench.judge([table], chunks, found)
            assert counted["corrected"] > 0 and counted["uncorrectable"] == 0
        else:
            hit = np.array([part == "all" or any(np.unravel_index(i, modes)[core] == piece for i in rows)
                            for _, rows in chunks])
            errors = np.array([error for _, error, _ in found])
            assert np.array_equal(errors, hit), (part, modes, block16, np.flatnonzero(errors != hit)[:8])
            assert counted["uncorrectable"] > 0 and counted["corrected"] == 0
            good = [at for at in range(len(chunks)) if not hit[at]]
            for at, want in zip(good, expected(config, [table], [chunks[at] for at in good]), strict=True):
                assert np.array_equal(found[at][0], want)


@cocotb.test()
@pytest.mark.testpoint("reuse")
async def reuse_is_counted(dut):
    """Lookups with equal leading indices compute the first product once a lane at most, far ones again; the counters
    say so."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("reuse"))
    table = Table(random, (8, 16, 6), (config.side,) * 3, (config.side,) * 2, block16=config.block16_only)
    await bench.load([table])
    for again in (1, 2):
        chunks = [(0, list(range(first, first + 3))) for first in range(0, table.rows, 3)] * again
        bench = await bench.fresh()
        timing = await bench.run([table], chunks)
        counted = bench.counters()
        assert (counted["computed"], counted["reused"]) == (timing.computed, timing.reused)
        # Of 128 products a lane finds the last few again, never those of the round before.
        assert 128 * again <= counted["computed"] <= 128 * again * config.lanes
        assert counted["computed"] + counted["reused"] == table.rows * again


@cocotb.test()
@pytest.mark.testpoint("full_chunks_fill_the_buffers")
async def full_chunks_fill_the_buffers(dut):
    """Chunks of as many rows as a table may have, first products of as many lines as are allowed, hot rows between:
    nothing locks up."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("full"))
    side = config.side
    # A first product of as many lines as are allowed, of a few, of one; hot rows come back all the time.
    shapes = [((side,) * 3, (side, side)), ((2, side, side), (1, side)), ((side,) * 3, (side, 2 * side)),
              ((side,) * 4, (side,) * 3)]
    tables = [Table(random, [6, 6] + [2] * (len(columns) - 2), columns, ranks, block16=config.block16_only)
              for columns, ranks in shapes]
    large = next(rank for rank in range(config.rank_max, 0, -1) if side * side * rank <= config.t_lines // 4 * side**3)
    tables.append(Table(random, (6, 6, 2), (side, side, side), (side, large), block16=config.grouped))
    # Second products of five lines at a side of 2: twelve of them leave four of 64.
    tables.append(Table(random, (6, 6, 2, 2), (1, side, side, side), (side, side, 9), block16=config.block16_only))
    await bench.load(tables)
    for turn in range(3 if REGRESS else 1):
        chunks = []
        for _ in range(100):
            number = int(random.integers(len(tables)))
            most = most_rows(config, tables[number].layout)
            hot = random.random(most) < (0.5, 0.2, 0.8)[turn]
            rows = np.where(hot, random.integers(0, 4, most), random.integers(0, tables[number].rows, most))
            chunks.append((number, rows.tolist()))
        bench = await bench.fresh()
        await bench.run(tables, chunks)


def _simulate(name, number):
    # A side of 4 is work enough that the compiler's own time for it comes back threefold.
    config = CONFIGS[name]()
    simulate(TTUnit(config), "verif.tt.test_unit", name=f"tt_{name}", tests=9, seed=number, env={"TT_CONFIG": name},
             opt="-O1" if config.side >= 4 else "-O0")


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", [*one_of(["two_lanes", "uram", "tiny"]), *(
    pytest.param(name, marks=pytest.mark.regress) for name in ("grouped", "block16_only"))])
def test_tt(name, number):
    _simulate(name, number)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
def test_tt_full_size(number):
    """The shipping size; slow to build, so all its tests share one model."""
    _simulate("smartssd", number)


@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_golden_latency_is_the_grids():
    """The golden model's latency of a grid is the grid's."""
    for name in ("tiny", "smartssd", "side_4"):
        config = CONFIGS[name]()
        assert grid_latency(config.grid_log2, beats=config.beats) == Grid(config).latency
    assert ENTRY_CYCLES == Intermediate(CONFIGS["smartssd"]()).entry


def test_the_unit_alone_is_that_of_the_emb_core():
    """In every preset that has both."""
    for name in ("tiny", "smartssd", "smartssd_half"):
        cores = load(name).cores
        assert cores["tt"] == cores["emb"].tt


@pytest.mark.testpoint("illegal_config_wrong")
def test_chunk_rows():
    """The rows that a chunk may have, by the size of a table's first products."""
    config = CONFIGS["smartssd"]()
    loader = Loader(Limits.of(config))

    def rows(columns, *ranks):
        return most_rows(config, loader.layout(Table(np.random.default_rng(1), (2,) * len(columns), columns,
                                                     ranks).cores))

    assert rows((4, 4, 4), 4, 4) == rows((8, 8, 8), 8, 8) == MOST_ROWS
    assert rows((8, 8, 8), 16, 16) == 4
    assert rows((8, 8, 8), 32, 32) == 2
    assert rows((8, 8, 8), 64, 64) == 1
    # The intermediate products of a chunk take a quarter of T at most, beside the first row's.
    assert rows((16, 8, 4), 8, 8) == 5


GOOD = dict(lanes=1, grid_log2=1, lut_products=0, x_lines=64, y_lines=64, t_lines=64, t_middle_lines=64, tables=4,
            index_bits=12, mode_bits=8, rank_max=16, dim_max=64, reuse_entries=32, reuse_findable=16,
            in_flight=16, output_beats=128)


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"lanes": 3}, "lanes must be one of 1, 2, not 3"),
    ({"grid_log2": 0}, "grid_log2 must be one of 1, 2, not 0"),
    ({"lut_products": 5}, "lut_products must be at most the 4 products of a cell, not 5"),
    ({"grouped": True}, "grouped must be false for grid_log2 = 1 and lut_products = 0: groups have four products, all "
                        "in DSP slices"),
    ({"block16_only": True}, "block16_only must be false for grouped = false, whose operands share no exponents"),
    ({"x_lines": 100}, "x_lines must be a power of two from 2 to 65536, not 100"),
    ({"index_bits": 31}, "index_bits must be a whole number from 4 to 30, not 31"),
    ({"mode_bits": 14}, "index_bits must be at least mode_bits = 14, not 12"),
    ({"t_lines": 16}, "t_lines must be at least reuse_entries = 32, not 16"),
    ({"reuse_findable": 32}, "reuse_findable must be at most half of reuse_entries = 32, not 32"),
    ({"reuse_entries": 16}, "reuse_entries must be at least 32, four chunks of 8 rows, not 16"),
    ({"grid_log2": 2, "grouped": True, "block16_only": True, "dim_max": 256, "x_lines": 4095},
     "x_lines must be a power of two from 2 to 65536, not 4095"),
    ({"family": "ultrascale_plus", "x_lines": 8192},
     "x_lines must be at most 4096 for family = 'ultrascale_plus', the words of its UltraRAMs, not 8192"),
    ({"family": "ultrascale_plus", "y_lines": 16384},
     "y_lines must be at most 8192 for family = 'ultrascale_plus', the words of its UltraRAMs, not 16384"),
    ({"output_beats": 64}, "output_beats must be at least 128, eight vectors of dim_max = 64, not 64"),
    ({"rank_max": True}, "rank_max must be a whole number from 1 to 256, not True"),
])
def test_illegal_config_wrong(wrong, sentence):
    """Impossible sizes are refused with a sentence, those too that could lock a chunk out of its buffer."""
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
    (((2, 2, 2), (3, 3, 3), (2, 2)), "column modes (3, 3, 3) and ranks (1, 2, 2, 1) leave holes inside a vector, "
                                     "which this unit cannot close"),
    (((2, 2, 2), (8, 4, 2), (4, 16)), "the first product takes 64 lines of the intermediate buffer, "
                                      "this unit has 16 a row"),
])
@pytest.mark.testpoint("illegal_config_wrong")
def test_table_wrong(table, sentence):
    """Tables that do not fit, with holes in a vector or with first products too large for chunks are refused with a
    sentence."""
    made = Table(np.random.default_rng(1), *table)
    with pytest.raises(ValueError) as caught:
        Loader(Limits.of(TTConfig(**GOOD))).add(made.cores)
    assert str(caught.value) == sentence
