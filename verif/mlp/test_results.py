"""The results' unit: tiles of all kinds back to back, each write's content against golden.mlp.results and its cycle
against the cycle model."""
import os
from collections import deque
from dataclasses import dataclass, replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from golden.mlp.results import Became, follow
from golden.systolic import array as systolic
from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.destinations import STORED
from hw.mlp.records import LATENCY
from hw.mlp.results import ADDEND_LATENCY, Results
from hw.mlp.units import REACH, stages
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import TINY
from verif.mlp.cycles import Results as Model
from verif.systolic.test_array import mixed, normal

CONFIGS = {
    # Writes of a row in latency mode: 2, 1, 4, 2. The first has a counter for everything.
    "double": replace(TINY, units=4, rows=4, width=2, words=16),
    "tiny": TINY,
    "whole": replace(TINY, units=4, rows=4, width=1),
    "coarse": replace(TINY, units=4, rows=4, width=4, words=16),
}
CONFIG = CONFIGS.get(os.environ.get("RESULTS", ""), CONFIGS["tiny"])
UNITS, ROWS, COLUMNS = CONFIG.units, CONFIG.rows, CONFIG.columns
BEATS = UNITS // CONFIG.groups_per_beat


def layer(random, **given):
    """A tile of a layer, drawn but for what is given. Lanes that drain and exist are what the sequencer makes."""
    latency = int(given.get("latency", random.integers(2)))
    target = int(given.get("target", random.integers(4)))
    live = int(given.get("live", random.integers(1, ROWS + 1)))
    drawn = {name: int(random.integers(1 << bits)) for name, bits in (
        ("line", 16), ("row_lines", 16), ("beat_lines", 16), ("out", 32), ("stride", 32), ("number", 16),
        ("fills", 1), ("sigmoid", 1), ("begin", 1), ("group", 8), ("block", 8))}
    below = {name: int(random.integers(count)) for name, count in (
        ("unit", UNITS), ("idle_units", UNITS), ("addend", 3), ("addend_line", CONFIG.addend_lines),
        ("start", CONFIG.pieces), ("fixed", 2), ("bank", ROWS), ("half", CONFIG.groups_per_beat), ("outs", BEATS + 1))}
    tile = {**drawn, **below, "latency": latency, "target": target, "live": live, "triangle": 0,
            "relu": int(target != TARGET.PARTIAL and random.integers(2)),
            "columns": int(random.integers(1, COLUMNS + 1)), **given}
    # Unit by unit fewer samples; in latency mode those of the unit. Lanes behind `live` mean nothing.
    exist = sorted((int(random.integers(ROWS + 1)) for _ in range(UNITS)), reverse=True)
    exist[tile["unit"] if latency else 0] = ROWS if latency or live == ROWS else live
    tile["lanes"] = sum((1 << count) - 1 << unit * ROWS for unit, count in enumerate(exist))
    return tile


def interaction(random, features=None):
    """A sample's tiles of an interaction, in their order."""
    features = int(random.integers(2, 5 * ROWS)) if features is None else features
    exist = 1 | int(random.integers(1 << UNITS))
    shared = layer(random, latency=0, target=TARGET.ROWS, triangle=1, start=0, fixed=1, addend=ADDEND.NONE, relu=0)
    tiles = []
    for group in range(-(-features // ROWS)):
        live = min(ROWS, features - group * ROWS)
        last = min(features, (group + 1) * ROWS) - 1
        block = 0
        while block * COLUMNS < last:
            tiles.append({**shared, "live": live, "group": group, "block": block, "begin": int(not tiles),
                          "lanes": sum((1 << live) - 1 << u * ROWS for u in range(UNITS) if exist >> u & 1)})
            block += 1
    return tiles


def mixture(random, count, share=0.3):
    """Tiles of all kinds."""
    tiles = []
    while len(tiles) < count:
        tiles += interaction(random) if random.random() < share else [layer(random)]
    return tiles


def least(tile, before):
    """Slots that the sequencer gives a tile at least."""
    busy = tile["live"] * BEATS if tile["latency"] else 0
    return max(ROWS, busy, 2 * before - tile["live"])


@dataclass
class Row:
    """A row of a tile: dots of every unit as words, and the cycle in which they come."""

    tile: int
    row: int
    cycle: int
    dots: list


def modelled(tiles, ends):
    """The cycles of all that the model shows, by name; ends: of the tiles' last slots."""
    model, at, cycles = Model(CONFIG), dict(zip(ends, tiles, strict=True)), {name: [] for name in Model.shows}
    cycle = 0
    while len(cycles["written"]) < len(tiles):
        for name in model.shows:
            if getattr(model, name):
                cycles[name].append(cycle)
        model.step(at.get(cycle))
        cycle += 1
    return cycles


class Bench:
    """The array, the addends' memory and all that takes results, around the unit. The first slot is in cycle 0."""

    def __init__(self, dut, tiles, *, slots=None, pauses=None, pick=mixed, random=None):
        random = np.random.default_rng(seed("words")) if random is None else random
        self.dut, self.tiles = dut, tiles
        lives = [tile["live"] for tile in tiles]
        fewest = [least(tile, before) for tile, before in zip(tiles, [0, *lives], strict=False)]
        self.slots = fewest if slots is None else [max(a, b) for a, b in zip(fewest, slots, strict=True)]
        pauses = pauses or [0] * len(tiles)
        lengths = [count + pause for count, pause in zip(self.slots, pauses, strict=True)]
        self.ends = (np.cumsum(lengths) - 1).tolist()   # the cycles of the tiles' last slots
        leave = systolic.schedule(lengths, lives, columns=COLUMNS, width=CONFIG.width, aligned=True,
                                  grouped=CONFIG.grouped, reach=REACH)
        self.rows = []
        for number, (tile, (first, _)) in enumerate(zip(tiles, leave, strict=True)):
            dots = fp32.bits(fp32.flush(pick(random, (tile["live"], UNITS, COLUMNS))))
            self.rows += [Row(number, row, first + LATENCY + stages(CONFIG) + row, dots[row].tolist())
                          for row in range(tile["live"])]
        self.addends = pick(random, (UNITS, CONFIG.addend_lines, COLUMNS))
        self.got, self.written, self.idle = {name: [] for name in Became._fields}, [], []
        self.times = modelled(tiles, self.ends)
        self.expect()

    def expect(self):
        """Everything that leaves with its cycle; turns: of the rows that write anything, and when these came."""
        self.want, self.turns = {name: [] for name in Became._fields}, []
        times = {name: iter(self.times[name]) for name in ("rows", "addends", "store")}
        all_rows = ((self.tiles[one.tile], one.row, one.dots) for one in self.rows)
        for one, became in zip(self.rows, follow(all_rows, self.addends, CONFIG), strict=True):
            writes = [(name, next(times[name]), write) for name in times for write in getattr(became, name)]
            for name, cycle, write in writes:
                if name == "store":
                    write = {"words": write, "row": one.row, "last": int(cycle in self.times["last"]),
                             **{name: self.tiles[one.tile][name] for name in STORED}}
                self.want[name].append((cycle, write))
            if writes:
                turn = writes[0][1] - (Results.ROWS if became.rows else Results.STORE)
                self.turns.append((one.cycle, turn))
                self.want["reads"] += [(turn + 1, read) for read in became.reads]
        assert not any(list(rest) for rest in times.values()), "the model has more writes than the tiles make"

    @property
    def waiting(self):
        """Rows that wait for their turns at a time, at most."""
        return max(sum(turn > came for _, turn in self.turns[:at + 1]) for at, (came, _) in enumerate(self.turns))

    async def run(self, cycles=None):
        """Plays everything, or so many cycles of it, with anything on inputs that do not count."""
        dut, noise, edge = self.dut, rng("noise"), RisingEdge(self.dut.clk)
        tile, row, words = layout_of("i_tile"), layout_of("i"), layout_of("addends")
        layouts = {name: layout_of(name) for name in ("addend_lines", "o_rows", "o_addends", "o_store")}
        names = {field for field, _, _ in tile._fields}
        ends = {cycle: tile.pack({k: v for k, v in self.tiles[n].items() if k in names})
                for n, cycle in enumerate(self.ends)}
        rows = {one.cycle: row.pack({"words": one.dots, "row": one.row,
                                     "last": one.row == self.tiles[one.tile]["live"] - 1}) for one in self.rows}
        total = (self.times["written"][-1] + 20) if cycles is None else cycles
        coming = deque([None] * ADDEND_LATENCY)
        for cycle in range(total):
            dut.i_tile_valid.value, dut.i_valid.value = int(cycle in ends), int(cycle in rows)
            dut.i_tile.value = ends.get(cycle, noise.getrandbits(tile.width))
            dut.i.value = rows.get(cycle, noise.getrandbits(row.width))
            lines = coming.popleft()
            dut.addends.value = noise.getrandbits(words.width) if lines is None else words.pack(
                [self.addends[unit, line].tolist() for unit, line in enumerate(lines)])
            await edge
            lines = layouts["addend_lines"].unpack(int(dut.addend_lines.value))
            needed = int(dut.addend_read.value)
            coming.append(lines if needed else None)
            if needed:
                self.got["reads"].append((cycle, (lines, [u for u in range(UNITS) if needed >> u & 1])))
            self.idle.append(dut.idle.value == 1)
            if dut.written.value == 1:
                self.written.append(cycle)
            if int(dut.o_rows.value) & 1:
                self.got["rows"].append((cycle, self._rows(layouts["o_rows"].unpack(int(dut.o_rows.value)))))
            if int(dut.o_addends.value) & 1:
                one = layouts["o_addends"].unpack(int(dut.o_addends.value))
                units = {u: list(one["words"][u]) for u in range(UNITS) if one["units"] >> u & 1}
                self.got["addends"].append((cycle, (one["line"], units)))
            if dut.o_store_valid.value == 1:
                self.got["store"].append((cycle, layouts["o_store"].unpack(int(dut.o_store.value))))

    @staticmethod
    def _rows(write):
        return {(lane, bank): (write["lines"][bank],
                               list(write["words"][lane // ROWS][bank * CONFIG.piece:(bank + 1) * CONFIG.piece]))
                for lane in range(CONFIG.samples) if write["lanes"] >> lane & 1
                for bank in range(CONFIG.pieces) if write["banks"] >> bank & 1}

    def judge(self):
        written = self.times["written"]
        inside = [sum(end < cycle for end in self.ends) - sum(at < cycle for at in written)
                  for cycle in range(len(self.idle))]
        for name, got in self.got.items():
            self._compare(name, got, self.want[name])
        self._compare("written", self.written, written)
        self._compare("idle", self.idle, [count == 0 for count in inside])

    @staticmethod
    def _compare(name, got, want):
        for number, (a, b) in enumerate(zip(got, want)):
            assert a == b, f"{name}: {number} is {a}, expected {b}"
        assert len(got) == len(want), f"{name}: {len(got)}, expected {len(want)}"


async def play(dut, tiles, **arguments):
    start(dut)
    dut.i_tile_valid.value, dut.i_valid.value = 0, 0
    await reset(dut)
    bench = Bench(dut, tiles, **arguments)
    await bench.run()
    bench.judge()
    return bench


@cocotb.test()
async def smoke(dut):
    """A tile to each target in each mode with each addend, and a sample's interaction, each on its own."""
    random = np.random.default_rng(1)
    tiles = [layer(random, target=target, latency=latency, addend=addend)
             for target in range(4) for latency in range(2) for addend in range(3)]
    tiles += interaction(random, 3 * ROWS)
    await play(dut, tiles, pauses=[80] * len(tiles), pick=normal)


@cocotb.test()
async def random_match_golden(dut):
    """Tiles of all kinds as close as the sequencer puts them, on four shapes of core: every write's place, words and
    cycle, every read of addends, the tiles' pulses, idle."""
    random = np.random.default_rng(seed("tiles"))
    tiles = mixture(random, 150)
    longer = [int(random.integers(1, 6 * ROWS)) if random.random() < 0.3 else 0 for _ in tiles]
    await play(dut, tiles, slots=longer, random=random)


@cocotb.test()
@pytest.mark.testpoint("random_match_golden")
async def triangles(dut):
    """Interactions of all numbers of features: every length of a row, each way that it may straddle beats."""
    random = np.random.default_rng(seed("triangles"))
    await play(dut, [tile for features in range(2, 6 * ROWS + 2) for tile in interaction(random, features)])


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def pauses_anywhere(dut):
    """There is no backpressure: pauses between tiles instead, and anything on inputs that do not count."""
    random = np.random.default_rng(seed("pauses"))
    tiles = mixture(random, 80)
    await play(dut, tiles, pauses=[int(random.integers(0, 60)) if random.random() < 0.4 else 0 for _ in tiles])


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def queue_at_its_fullest(dut):
    """As many rows as may wait do wait: many rows of several writes, then what takes as few slots as it may."""
    random = np.random.default_rng(seed("fullest"))
    slow = {"latency": 1, "target": TARGET.ROWS, "idle_units": 0}
    most = 0
    for after in ({"latency": 0, "live": ROWS}, {**slow, "live": 1}, {**slow, "live": ROWS}):
        tiles = [layer(random, **slow, live=ROWS) for _ in range(3)] + [layer(random, **after) for _ in range(20)]
        bench = await play(dut, tiles)
        most = max(most, bench.waiting)
    assert most < (BEATS + 1) * ROWS
    # The first rows of a tile have had their turns when the next one's come: the bound is met but for those.
    assert most >= (BEATS - 1) * ROWS, f"{most} rows waited at most"


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Single rows leave in the documented cycles to each target in each mode, whatever golden says. Full tiles: a row
    a cycle to each target."""
    random = np.random.default_rng(seed("rate"))
    for target in range(4):
        for latency in range(2):
            bench = await play(dut, [
                layer(random, target=target, latency=latency, live=1, idle_units=0, addend=ADDEND.BIAS)])
            came = bench.rows[0].cycle
            writes = bench.got[{TARGET.PARTIAL: "addends", TARGET.MEMORY: "store"}.get(target, "rows")]
            several = BEATS if latency and target in (TARGET.ROWS, TARGET.FEATURE) else 1
            first = came + (Results.ROWS if target in (TARGET.ROWS, TARGET.FEATURE) else Results.STORE)
            assert [cycle for cycle, _ in bench.got["reads"]] == [came + 1]
            assert [cycle for cycle, _ in writes] == list(range(first, first + several))
            assert bench.written == [came + Results.ROWS + several]
        bench = await play(dut, [layer(random, target=target, latency=0, live=ROWS) for _ in range(12)])
        writes = bench.got[{TARGET.PARTIAL: "addends", TARGET.MEMORY: "store"}.get(target, "rows")]
        assert [cycle - writes[0][0] for cycle, _ in writes] == list(range(12 * ROWS))


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any point drops what is inside; what comes behind it is right, and the unit was idle."""
    random = np.random.default_rng(seed("reset"))
    for _ in range(6):
        tiles = mixture(random, 25)
        start(dut)
        bench = Bench(dut, tiles)
        await reset(dut)
        await bench.run(int(random.integers(20, bench.ends[-1] + 40)))
        dut.i_tile_valid.value, dut.i_valid.value = 0, 0
        await play(dut, mixture(random, 15))


@cocotb.test()
async def corner_values(dut):
    """Special words in dots and addends, with and without ReLU, to every target; lines that go round at the
    memories' ends."""
    random = np.random.default_rng(seed("corners"))
    special = np.array([s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001)], np.uint32)
    tiles = [layer(random, addend=addend, relu=relu, live=ROWS, columns=COLUMNS, idle_units=0, line=0xFFFF,
                   addend_line=CONFIG.addend_lines - 1, target=target)
             for addend in range(3) for relu in range(2) for target in range(4) for _ in range(2)]
    await play(dut, tiles, pick=lambda source, shape: source.choice(special, shape))


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("shape", one_of(CONFIGS))
def test_results(shape, number):
    simulate(Results(CONFIGS[shape]), "verif.mlp.test_results", name=f"mlp_results_{shape}", tests=8, seed=number,
             env={"RESULTS": shape})
