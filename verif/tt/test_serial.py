"""The serial TT unit against its golden model: vectors bit for bit, and the cycle each is complete in."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from gen.compiler import serial
from gen.data.shapes import column_modes
from gen.rtl.config import load
from golden.fp import fp32
from golden.tt import serial as golden
from hw.tt.serial import SerialConfig, SerialTTUnit
from verif.bench import reset, rng, seed, start
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import Monitor, Scoreboard, Sink, Source, bursty, never, sometimes
from verif.systolic.test_array import SPECIAL, mixed

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SMALL = SerialConfig(rows=4, columns=8, a_lines=512, b_lines=32, c_lines=2048, tables=16, index_bits=10,
                     mode_bits=6, rank_max=8, dim_max=64, in_flight=4)
PAPER = load("screc").cores["serial"]
# Modes I, modes J and ranks: 2 to 4 cores, unequal modes and ranks, one and many tiles either way.
SMALL_SHAPES = [
    ((3, 5, 2), (4, 4, 4), (1, 4, 4, 1)), ((4, 3), (8, 8), (1, 8, 1)), ((5, 4), (1, 4), (1, 5, 1)),
    ((2, 2, 64, 2), (2, 2, 4, 2), (1, 3, 5, 2, 1)), ((3, 2, 2, 4), (2, 4, 2, 2), (1, 8, 8, 8, 1)),
    ((7, 2, 3), (2, 2, 2), (1, 1, 7, 1)), ((2, 3, 2), (8, 4, 2), (1, 8, 8, 1)),
    ((2, 2, 2), (1, 1, 64), (1, 2, 3, 1)), ((3, 2, 2), (2, 8, 4), (1, 6, 8, 1)),
    ((11, 3, 2), (16, 2, 2), (1, 2, 4, 1)), ((1, 6, 1), (4, 1, 2), (1, 8, 1, 1)),
    ((2, 3, 1), (1, 32, 2), (1, 1, 8, 1)), ((2, 3), (64, 1), (1, 2, 1)),
    # The largest modes.
    ((64, 5, 3), (2, 2, 2), (1, 1, 1, 1)), ((5, 64, 3), (2, 2, 2), (1, 1, 1, 1)), ((3, 5, 64), (2, 2, 2), (1, 1, 1, 1)),
]
PAPER_SHAPES = [((3, 2, 3), column_modes(dim), (1, rank, rank, 1))
                for dim in (16, 32, 64, 128, 256, 512) for rank in (4, 8, 16, 32)]


def _cores(random, modes, columns, ranks, draw=None):
    """Random cores of a shape; `draw(size)` gives their bit patterns (default: normal numbers)."""
    shapes = zip(ranks[:-1], modes, columns, ranks[1:], strict=True)
    if draw is None:
        return [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [fp32.value(draw(shape)) for shape in shapes]


def _expected(image, table, values, outside) -> list[dict]:
    """The beats of one vector."""
    width = image.plan.width
    words = np.zeros(image.plan.beats * width, np.uint32)
    words[:len(values)] = fp32.bits(values)
    return [{"data": words[at:at + width].tolist(), "last": int(at + width >= len(words)),
             "outside": int(outside), "table": table} for at in range(0, len(words), width)]


class Bench:
    """A loaded unit with its drivers, and the answers that are due."""

    def __init__(self, dut, config, tables):
        self.dut, self.config, self.tables = dut, config, tables
        self.images = serial.place(tables, config)

    @classmethod
    async def begin(cls, dut, *, draw=None, pattern=None, consumer=None):
        config, shapes = {"small": (SMALL, SMALL_SHAPES), "paper": (PAPER, PAPER_SHAPES)}[os.environ["SIZE"]]
        random = np.random.default_rng(seed("cores"))
        pick = draw and (lambda size: draw(random, size))
        bench = cls(dut, config, [_cores(random, *shape, draw=pick) for shape in shapes])
        start(dut)
        dut.i_lookups__valid.value = 0      # nothing is asked while the tables load
        await reset(dut)
        loader = Source(dut, "i_load")
        loader.put(*serial.load(bench.images, config))
        await loader.drained()
        bench.drive(pattern, consumer)
        return bench

    def drive(self, pattern=None, consumer=None):
        self.board = Scoreboard("vectors", show=_show)
        self.source = Source(self.dut, "i_lookups", pattern=pattern)
        self.sink = Sink(self.dut, "o_vectors", pattern=consumer, on_beat=self.board.got)
        self.plans = []

    def ask(self, lookups):
        """Queues lookups (table, index) and what they must give."""
        wanted = {}
        for table in {table for table, _ in lookups}:
            indices = sorted({index for t, index in lookups if t == table})
            wanted |= {(table, index): row for index, row in zip(
                indices, golden.rows(self.tables[table], np.array(indices)), strict=True)}
        for table, index in lookups:
            plan = self.images[table].plan
            self.board.expect(*_expected(self.images[table], table, wanted[table, index],
                                               index >= plan.rows))
            self.plans.append(plan)
        self.source.put(*({"table": table, "index": index} for table, index in lookups))

    async def finish(self):
        beats = sum(plan.beats for plan in self.plans)
        await self.sink.wait(beats, cycles=2000 + 20 * sum(plan.cycles for plan in self.plans))
        await ClockCycles(self.dut.clk, 40)
        self.board.done()

    def random_lookups(self, random, count):
        tables = random.integers(0, len(self.tables), count)
        return [(int(t), int(random.integers(0, self.images[t].plan.rows))) for t in tables]

    def check_cycles(self):
        """Every vector is complete in the cycle that the golden model says."""
        ends, at = [], -1
        for plan in self.plans:
            at += plan.beats
            ends.append(self.sink.at[at] - self.source.taken_at[0])
        want = golden.finish(self.plans, index_bits=self.config.index_bits, in_flight=self.config.in_flight)
        assert ends == want


def _show(beat):
    words = " ".join(f"{w:08x}" for w in beat["data"])
    return f"{words} last={beat['last']} outside={beat['outside']} table={beat['table']}"


@cocotb.test()
async def smoke(dut):
    """Three lookups of one table, the same row twice."""
    bench = await Bench.begin(dut)
    bench.ask([(0, 0), (0, 17), (0, 0)])
    await bench.finish()


@cocotb.test()
async def random_match_golden(dut):
    """Random lookups of tables of many shapes, any bit patterns in the cores: every D in 16..512 and R in 4..32 on the
    paper's array, 2 to 4 cores on a small one."""
    bench = await Bench.begin(dut, draw=mixed)
    bench.ask(bench.random_lookups(np.random.default_rng(seed("lookups")), 150 if REGRESS else 70))
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Lookups in bursts, a consumer that is ready in one cycle of twenty."""
    bench = await Bench.begin(dut, pattern=bursty(rng("i"), 400), consumer=sometimes(0.05, rng("o")))
    Monitor(dut, "i_lookups")
    bench.ask(bench.random_lookups(np.random.default_rng(seed("lookups")), 60))
    await bench.finish()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The golden cycle model holds for every vector of a mixed stream, and for each table alone."""
    bench = await Bench.begin(dut)
    bench.ask(bench.random_lookups(np.random.default_rng(seed("lookups")), 40))
    await bench.finish()
    bench.check_cycles()
    for table in range(len(bench.tables)):
        bench.source.stop()
        bench.sink.stop()
        bench.drive()
        bench.ask([(table, 0)] * 5)
        await bench.finish()
        bench.check_cycles()
        ends = [cycle for cycle, beat in zip(bench.sink.at, bench.sink.beats) if beat["last"]]
        assert np.diff(ends)[-2:].tolist() == [bench.images[table].plan.cycles] * 2, f"table {table}"


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def queue_fills_while_the_consumer_sleeps(dut):
    """Two vectors are kept, the lookups behind them wait, and nothing is lost when the consumer wakes."""
    bench = await Bench.begin(dut, consumer=never(6000))
    bench.ask(bench.random_lookups(np.random.default_rng(seed("lookups")), 20))
    await ClockCycles(dut.clk, 5900)
    # One vector in each half, one of whose beats may stand in the output register, and the queue.
    assert bench.config.in_flight + 2 <= bench.source.sent <= bench.config.in_flight + 3
    assert not bench.sink.beats
    await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("rows_outside_the_table")
async def rows_outside_are_marked(dut):
    """A row number past the table is marked, computed as row 0, and changes nothing else."""
    bench = await Bench.begin(dut)
    top = (1 << bench.config.index_bits) - 1
    lookups = []
    for table, image in enumerate(bench.images):
        lookups += [(table, image.plan.rows - 1), (table, image.plan.rows), (table, top), (table, 0)]
    bench.ask(lookups)
    await bench.finish()
    assert sum(beat["outside"] and beat["last"] for beat in bench.sink.beats) == 2 * len(bench.images)


@cocotb.test()
async def reset_midstream(dut):
    """Resets at random moments drop what is under way; the tables stay, the lookups after them are right, and
    on time."""
    bench = await Bench.begin(dut)
    random = np.random.default_rng(seed("lookups"))
    for _ in range(12 if REGRESS else 5):
        bench.source.put(*({"table": t, "index": i} for t, i in bench.random_lookups(random, 12)))
        bench.board.got = lambda beat: None
        bench.sink._on_beat = None
        await ClockCycles(dut.clk, int(random.integers(1, 700)))
        bench.source.stop()
        bench.sink.stop()
        await reset(dut, 1)
        await RisingEdge(dut.clk)
        assert dut.o_vectors__valid.value == 0
        bench.drive()
        bench.ask(bench.random_lookups(random, 3))
        await bench.finish()
        bench.check_cycles()


@cocotb.test()
async def corner_values(dut):
    """Cores of zeros, subnormals, extremes, infinities and NaNs alone."""
    bench = await Bench.begin(dut, draw=lambda random, size: random.choice(SPECIAL, size))
    bench.ask(bench.random_lookups(np.random.default_rng(seed("lookups")), 60 if REGRESS else 30))
    await bench.finish()


@pytest.mark.parametrize(("change", "sentence"), [
    ({"rows": 16, "columns": 8}, "rows must be at most columns = 8, not 16: a beat of the intermediate takes "
                                 "one word from each of as many banks as there are rows"),
    ({"rank_max": 16}, "rank_max must be at most columns = 8, not 16"),
    ({"columns": 12}, "columns must be a power of two from 2 to 64, not 12"),
    ({"dim_max": 4}, "dim_max must be at least columns = 8, not 4"),
    ({"mode_bits": 11}, "index_bits must be at least mode_bits = 11, not 10"),
])
def test_illegal_config_wrong(change, sentence):
    """Impossible configurations are refused with a sentence."""
    with pytest.raises(ValueError) as error:
        replace(SMALL, **change)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("modes", "columns", "ranks", "sentence"), [
    ((64, 2, 2), (2, 2, 2), (1, 8, 8, 1), "table 0 ends at line 512 of 256 (a_lines)"),
    ((2, 60, 2), (2, 8, 2), (1, 8, 8, 1), "table 0 ends at line 3856 of 2048 (c_lines)"),
    ((2, 2, 2), (8, 8, 1), (1, 8, 8, 1), "table 0: an intermediate takes 64 lines of 32 (b_lines)"),
    ((2, 2, 2), (4, 8, 4), (1, 4, 4, 1), "table 0: D = 128 is above dim_max = 64"),
    ((65, 2), (4, 4), (1, 4, 1), "table 0: I1 is 65, mode_bits = 6 ends at 64"),
    ((60, 60), (4, 4), (1, 4, 1), "table 0 has 3600 rows, index_bits = 10 ends at 1024"),
])
@pytest.mark.testpoint("illegal_config_wrong")
def test_table_that_does_not_fit_wrong(modes, columns, ranks, sentence):
    """Tables that are too large, or of shapes that the unit cannot hold, are refused with a sentence."""
    config = replace(SMALL, a_lines=256)
    with pytest.raises(ValueError) as error:
        serial.place([_cores(np.random.default_rng(1), modes, columns, ranks)], config)
    assert str(error.value) == sentence


@pytest.mark.turns(1, of="beside the product")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("size", shapes(["small", "paper"], 1))
def test_tt_serial(size, number):
    config = {"small": SMALL, "paper": PAPER}[size]
    simulate(SerialTTUnit(config), "verif.tt.test_serial", name=f"tt_serial_{size}", tests=8, seed=number,
             env={"SIZE": size})
