"""The index splitter and its divider: every remainder, every mode size, rows past the table, loads beside lookups."""

import os
from collections import deque
from dataclasses import replace
from functools import partial
from math import prod

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gen.rtl.config import load
from golden.tt.rows import split
from hw.tt.descriptor import STRIDE_BITS
from hw.tt.index import Divider, IndexSplitter
from hw.tt.serial_config import Splitting
from verif.bench import reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate

SHAPES = {
    "tiny": lambda: load("tiny").cores["tt"],
    # Of a unit whose rows leave one by one.
    "serial": lambda: Splitting(replace(load("screc").cores["serial"], index_bits=12, mode_bits=8, tables=4)),
    # Row numbers of no more bits than a mode's index.
    "narrow": lambda: replace(load("tiny").cores["tt"], index_bits=8, tables=2),
}
SLICES = ("first", "middle", "last", "second")


def _config():
    return SHAPES[os.environ["SPLITTER"]]()


@cocotb.test()
async def divider_exhaustive(dut):
    """Every dividend by every divisor, one a cycle, each after `bits` cycles."""
    bits, divisor_bits = map(int, os.environ["DIVIDER"].split())
    start(dut)
    await reset(dut)
    edge = RisingEdge(dut.clk)
    pairs = [(a, b) for b in range(1, 1 << divisor_bits) for a in range(1 << bits)] + [(7, 1 << divisor_bits)]
    for at in range(len(pairs) + bits):
        dividend, divisor = pairs[min(at, len(pairs) - 1)]
        dut.dividend.value, dut.less_one.value = dividend, divisor - 1
        await edge
        # What shows right after an edge is what stood there before it: `bits` edges after the operands'.
        if at >= bits:
            dividend, divisor = pairs[at - bits]
            got = int(dut.quotient.value), int(dut.remainder.value)
            assert got == divmod(dividend, divisor), f"{dividend} / {divisor} gave {got}"


class Table:
    """A table of four cores; modes, rows, bases and strides that are not given are drawn, often at their limits."""

    def __init__(self, config, random, *, modes=None, rows=None):
        self.config = config
        most = 1 << config.mode_bits
        self.modes = modes or [random.choice((1, 2, most - 1, most, random.randint(1, 60), random.randint(1, most)))
                               for _ in range(4)]
        most = min(prod(self.modes), 1 << config.index_bits)
        self.rows = rows or random.choice((most, random.randint(1, most)))
        self.bits = {name: config.y_bits if name == "second" else config.x_bits for name in SLICES}
        self.bases = {name: random.choice((random.getrandbits(bits), (1 << bits) - 1))
                      for name, bits in self.bits.items()}
        self.strides = {name: random.choice((random.getrandbits(STRIDE_BITS), (1 << STRIDE_BITS) - 1))
                        for name in SLICES}

    def parts(self):
        """The words that are loaded as parts 0 and 1, as hw.tt.descriptor lays them out."""
        config, (_, second, middle, last) = self.config, (size - 1 for size in self.modes)
        for fields in ([(self.rows, config.index_bits + 1)]
                       + [(size, config.mode_bits) for size in (last, middle, second)],
                       [(self.bases[name], self.bits[name]) for name in SLICES]
                       + [(self.strides[name], STRIDE_BITS) for name in SLICES]):
            word, at = 0, 0
            for value, bits in fields:
                word, at = word | value << at, at + bits
            yield word

    def slices(self, index):
        """What the splitter says of a row number."""
        inside = index < self.rows
        at = dict(zip(("first", "second", "middle", "last"),
                      map(int, split(index if inside else 0, self.modes)), strict=True))
        return {"outside": int(not inside), "first_index": at["first"], "second_index": at["second"],
                **{name: (self.bases[name] + at[name] * self.strides[name]) % (1 << self.bits[name])
                   for name in SLICES}}

    def corners(self):
        """Row numbers next to the table's ends and to the last of all."""
        most = (1 << self.config.index_bits) - 1
        return sorted({index for index in (0, 1, self.rows - 1, self.rows, self.rows + 1, most - 1, most)
                       if 0 <= index <= most})


class Bench:
    """Looks at every cycle: what was asked for `latency` cycles ago is there, and nothing else."""

    def __init__(self, dut, label):
        self.dut, self.config, self.random = dut, _config(), rng(label)
        self.latency = 3 * self.config.index_bits + 5
        self.pack, self.unpack = layout_of("i").pack, layout_of("o").unpack
        self.widths = {name: layout_of(name).width for name in ("i", "part", "table", "words")}
        self.tables = [None] * self.config.tables
        self.due = deque()      # (cycle, table, slices)
        self.cycle = self.seen = 0

    @classmethod
    async def begin(cls, dut, label):
        """With every table loaded."""
        bench = cls(dut, label)
        start(dut)
        dut.rst.value = 1
        await bench.step()
        await bench.step()
        dut.rst.value = 0
        for number in range(bench.config.tables):
            await bench.load(number, Table(bench.config, bench.random))
        return bench

    async def step(self, lookup=None, write=None):
        """A cycle. lookup: (table, index, begin, end); write: (part, table, word). What is not given is garbage."""
        dut, random = self.dut, self.random
        dut.i_valid.value, dut.write.value = lookup is not None, write is not None
        if lookup is None:
            dut.i.value = random.getrandbits(self.widths["i"])
        else:
            table, index, begin, end = lookup
            chunk = {"begin": begin, "end": end} if self.config.chunk_log2 else {}
            dut.i.value = self.pack({"table": table, "index": index, **chunk})
            if dut.rst.value != 1:
                self.due.append((self.cycle + self.latency, {"table": table, **self.tables[table].slices(index),
                                                             **({"end": end} if chunk else {})}))
        for name, value in zip(("part", "table", "words"), write or (None,) * 3, strict=True):
            getattr(dut, name).value = random.getrandbits(self.widths[name]) if value is None else value
        await RisingEdge(dut.clk)
        if self.due and self.due[0][0] == self.cycle:
            _, want = self.due.popleft()
            assert dut.o_valid.value == 1, f"cycle {self.cycle}: nothing came, expected {want}"
            got = self.unpack(int(dut.o.value))
            assert got == want, f"cycle {self.cycle}: {got}, expected {want}"
            self.seen += 1
        elif self.cycle:
            assert dut.o_valid.value == 0, f"cycle {self.cycle}: slices came unasked"
        self.cycle += 1

    async def load(self, number, table, lookups=lambda: None):
        """Loads a table of which no lookup is inside, in any order of its parts, among parts that are not its own."""
        words = list(enumerate(table.parts()))
        words += [(part, self.random.getrandbits(self.widths["words"])) for part in (2, 3)]
        self.random.shuffle(words)
        for part, word in words:
            await self.step(lookups(), (part, number, word))
        self.tables[number] = table

    async def rest(self):
        """Until nothing is inside."""
        for _ in range(self.latency + 2):
            await self.step()
        assert not self.due

    def draw(self, without=None):
        """A lookup of any table but one."""
        random = self.random
        number = random.choice([at for at in range(self.config.tables) if at != without])
        table = self.tables[number]
        index = random.choice((random.randrange(table.rows), random.choice(table.corners()),
                               random.getrandbits(self.config.index_bits)))
        return number, index, random.getrandbits(1), random.getrandbits(1)


@cocotb.test()
async def smoke(dut):
    """One lookup, whose slices come out."""
    bench = await Bench.begin(dut, "smoke")
    await bench.step((0, 0, 1, 1))
    await bench.rest()
    assert bench.seen == 1


@cocotb.test()
async def random_match_golden(dut):
    """Lookups of tables of any mode sizes, inside and past them, where a row counts as row 0, with gaps: slices and
    marks in their cycle, and nothing in any other."""
    bench = await Bench.begin(dut, "split")
    for _ in range(600):
        await bench.step(bench.draw() if bench.random.random() < 0.7 else None)
    await bench.rest()


@cocotb.test()
async def backpressure_both_sides(dut):
    """There is none: lookups in any rhythm, and loads of other tables in the cycles of lookups and of results."""
    bench = await Bench.begin(dut, "loads")
    for _ in range(12):
        number = bench.random.randrange(bench.config.tables)
        for _ in range(bench.latency):
            await bench.step(bench.draw(number) if bench.random.random() < 0.5 else None)
        await bench.load(number, Table(bench.config, bench.random), partial(bench.draw, number))
        for _ in range(bench.random.randint(1, 30)):
            await bench.step(bench.draw())
    await bench.rest()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A lookup every cycle, each after 3 * index_bits + 5 cycles; then each alone."""
    bench = await Bench.begin(dut, "rate")
    assert bench.latency == IndexSplitter(bench.config).latency
    for _ in range(200):
        await bench.step(bench.draw())
    await bench.rest()
    for _ in range(4):
        await bench.step(bench.draw())
        await bench.rest()
    assert bench.seen == 204


@cocotb.test()
async def reset_midstream(dut):
    """Lookups that are inside never come out, wherever they are; the tables are still there."""
    bench = await Bench.begin(dut, "reset")
    for cycles in (1, 2, 5):
        for _ in range(bench.latency + bench.random.randint(1, 9)):
            await bench.step(bench.draw())
        dut.rst.value = 1
        await bench.step(bench.draw())
        bench.due.clear()
        for _ in range(cycles - 1):
            await bench.step(bench.draw())
        dut.rst.value = 0
        await bench.rest()
        for _ in range(20):
            await bench.step(bench.draw())
        await bench.rest()


@cocotb.test()
async def corner_values(dut):
    """Each mode of the greatest size beside ones of size 1, as many rows as row numbers, a single row, the rows around
    a table's end, parts that are not the splitter's."""
    bench = await Bench.begin(dut, "corners")
    config = bench.config
    most, all_rows = 1 << config.mode_bits, 1 << config.index_bits
    tables = [Table(config, bench.random, modes=[most if at == mode else 1 for at in range(4)]) for mode in range(4)]
    modes = [1, 1, 1, 1]
    while prod(modes) < all_rows:
        at = bench.random.choice([at for at, size in enumerate(modes) if size < most])
        modes[at] = min(most, 2 * modes[at])
    tables += [Table(config, bench.random, modes=modes, rows=all_rows),
               Table(config, bench.random, modes=[most] * 4, rows=1)]
    for table in tables:
        number = bench.random.randrange(config.tables)
        await bench.rest()
        await bench.load(number, table)
        known = min(prod(table.modes), all_rows)
        for index in (*table.corners(), *range(0, known, max(1, known // 40))):
            await bench.step((number, index, 1, 0))
    await bench.rest()


@pytest.mark.parametrize(("bits", "divisor_bits"), one_of([(6, 4), (7, 7)]))
@pytest.mark.testpoint("random_match_golden")
def test_divider(bits, divisor_bits):
    """The divider for every dividend and divisor."""
    simulate(Divider(bits=bits, divisor_bits=divisor_bits), "verif.tt.test_index", name=f"divider_{bits}",
             tests=1, only="divider_exhaustive", env={"DIVIDER": f"{bits} {divisor_bits}"})


@pytest.mark.parametrize("shape", one_of(SHAPES))
@pytest.mark.parametrize("number", seeds())
def test_splitter(number, shape):
    simulate(IndexSplitter(SHAPES[shape]()), "verif.tt.test_index", name=f"splitter_{shape}", tests=6,
             only=r"^(?!.*divider)", seed=number, env={"SPLITTER": shape})


def test_illegal_config_wrong():
    """Sizes that do not go together are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        Divider(bits=4, divisor_bits=5)
    assert str(caught.value) == "divisor_bits must be at most bits = 4, not 5"
    with pytest.raises(ValueError, match="index_bits must be at least mode_bits = 8, not 7"):
        IndexSplitter(replace(SHAPES["tiny"](), index_bits=7))
