"""The compute units against golden.systolic.array: tiles of all kinds back to back, bit for bit and cycle by cycle."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from golden.systolic import array as systolic
from hw.mlp.records import LATENCY, SOURCE
from hw.mlp.units import REACH, ComputeUnits, stages
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import TINY
from verif.systolic.test_array import SPECIAL, mixed, normal

CONFIGS = {
    "tiny": TINY,
    "wide": replace(TINY, units=4, width=4, lut_products=1),
    "narrow": replace(TINY, rows=4, width=1),
    "slices": replace(TINY, units=4, width=4, lut_products=2, family="ultrascale_plus"),
    "grouped": replace(TINY, units=4, width=4, grouped=True),
    "shipping": replace(TINY, units=4, width=4, grouped=True, family="ultrascale_plus"),
}
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SHARED, OWN, FEATURES = SOURCE.SHARED, SOURCE.OWN, SOURCE.FEATURES


class Tile:
    """Slots, each with what the memories show for it, and the results they have to give.

    Parameters  double: every operand takes two slots, a blank one that reads the rows and one that keeps them;
                blanks: of the other slots the share that is blank
    """

    def __init__(self, config, random, steps, live, source, *, pick=mixed, unit=None, double=False, blanks=0.0):
        self.live, self.source, self.double = live, source, double
        self.unit = int(random.integers(config.units)) if unit is None else unit
        units, rows, columns, width = config.units, config.rows, config.columns, config.width
        self.slots = []
        terms_x, terms_y = [], []
        for k in range(steps):
            def memory():
                return (pick(random, (units, rows, width)), pick(random, (units, columns, width)),
                        pick(random, (units, columns, width)))

            x, w, f = memory()
            taken = np.broadcast_to(x[self.unit], x.shape) if source == OWN else x
            given = {OWN: w, FEATURES: f, SHARED: np.broadcast_to(w[self.unit], w.shape)}[source]
            slot = {"source": source, "unit": self.unit, "live": live, "first": int(k == 0),
                    "last": int(k == steps - 1)}
            if double:
                first, other = memory(), memory()
                self.slots += [(slot | {"blank": 1, "last": 0}, (x, *first[1:])),
                               (slot | {"keep": 1, "first": 0}, (other[0], w, f))]
            elif random.random() < blanks:
                self.slots.append((slot | {"blank": 1}, (x, w, f)))
                taken = given = None
            else:
                self.slots.append((slot, (x, w, f)))
            if taken is not None:
                terms_x.append(taken)
                terms_y.append(given)
        if not terms_x:
            terms_x, terms_y = [np.zeros_like(x)], [np.zeros_like(w)]
        left, right = np.concatenate(terms_x, axis=-1), np.concatenate(terms_y, axis=-1)
        self.want = fp32.bits(systolic.tiles(left[:, :live], np.swapaxes(right, -1, -2), width, grouped=config.grouped))

    @property
    def beats(self):
        return len(self.slots)


def sequence(config, random, count, longest=12, **arguments):
    """Tiles of all sources, random lengths and live rows that may follow each other without a gap."""
    tiles, before = [], 0
    for _ in range(count):
        live = int(random.integers(1, config.rows + 1))
        source = int(random.integers(3))
        double = source == FEATURES and bool(random.integers(2))
        least = max(1, before, 2 * before - live)
        steps = int(random.integers(least, least + longest))
        tiles.append(Tile(config, random, steps, live, source, double=double, **arguments))
        before = live
    return tiles


def _number(words):
    return int.from_bytes(np.ascontiguousarray(words, dtype="<u4").tobytes(), "little")


class Bench:
    def __init__(self, dut):
        self.dut, self.config = dut, CONFIGS[os.environ["MLP_CONFIG"]]
        self.pack, self.unpack = layout_of("slot").pack, layout_of("o").unpack
        self.random = np.random.default_rng(seed("tiles"))
        # Cycles in which nothing is asked for: the memories show anything.
        self._garbage = np.random.default_rng(seed("garbage"))

    @classmethod
    async def begin(cls, dut):
        start(dut)
        dut.valid.value = 0
        await reset(dut)
        return cls(dut)

    @property
    def last_columns(self):
        """Cycles from a slot until the results of its tile are out, and some more."""
        config = self.config
        cell = systolic.pe_latency(config.width, grouped=config.grouped)
        return LATENCY + stages(config) + cell + 2 * config.rows + config.columns + 8

    async def run(self, tiles, gaps=None, holes=0.0, cycles=None):
        """Rows of results, each with its cycle, counted from the first slot. `gaps[i]`: cycles without a slot
        behind tile i; holes: the chance of one before any slot; cycles: how many to run.
        """
        config, random, edge = self.config, self._garbage, RisingEdge(self.dut.clk)
        plan = []
        for tile, gap in zip(tiles, gaps or [0] * len(tiles), strict=True):
            for slot in tile.slots:
                while random.random() < holes:
                    plan.append(None)
                plan.append(slot)
            plan += [None] * gap
        total = len(plan) + self.last_columns if cycles is None else cycles
        shapes = [(config.units, config.rows, config.width)] + [(config.units, config.columns, config.width)] * 2
        found = []
        for cycle in range(total):
            slot = plan[cycle] if cycle < len(plan) else None
            self.dut.valid.value = int(slot is not None)
            # What is said without `valid` means nothing.
            self.dut.slot.value = (self.pack(slot[0]) if slot
                                   else int(random.integers(1 << 62)) % (1 << len(self.dut.slot)))
            before = cycle - LATENCY
            shown = plan[before][1] if 0 <= before < len(plan) and plan[before] else \
                [mixed(random, shape) for shape in shapes]
            for name, words in zip("xwf", shown, strict=True):
                getattr(self.dut, name).value = _number(words)
            await edge
            if self.dut.o_valid.value == 1:
                found.append((cycle, self.unpack(int(self.dut.o.value))))
        self.dut.valid.value = 0
        return found

    def check(self, tiles, found):
        """Compares all rows; returns the cycles of each tile's first and last."""
        assert len(found) == sum(tile.live for tile in tiles), "number of result rows"
        at, cycles = 0, []
        for index, tile in enumerate(tiles):
            mine = found[at:at + tile.live]
            at += tile.live
            assert [row["row"] for _, row in mine] == list(range(tile.live)), f"tile {index}: row numbers"
            assert [row["last"] for _, row in mine] == [0] * (tile.live - 1) + [1], f"tile {index}: last"
            got = np.array([row["words"] for _, row in mine], np.uint32).swapaxes(0, 1)
            wrong = np.argwhere(got != tile.want)
            assert not len(wrong), (
                f"tile {index}, source {tile.source}, {len(wrong)} words, the first of unit, row, column {wrong[0]}: "
                f"{got[tuple(wrong[0])]:#010x}, expected {tile.want[tuple(wrong[0])]:#010x}")
            cycles.append((mine[0][0], mine[-1][0]))
        return cycles

    def schedule(self, tiles):
        config = self.config
        want = systolic.schedule([tile.beats for tile in tiles], [tile.live for tile in tiles],
                                 columns=config.columns, width=config.width, aligned=True,
                                 grouped=config.grouped, reach=REACH)
        late = LATENCY + stages(config)
        return [(first + late, last + late) for first, last in want]


@cocotb.test()
async def smoke(dut):
    """One tile with shared weights, one with shared rows, one with features."""
    bench = await Bench.begin(dut)
    for source in (SHARED, OWN, FEATURES):
        tiles = [Tile(bench.config, bench.random, 3, bench.config.rows, source, pick=normal, unit=1)]
        bench.check(tiles, await bench.run(tiles))


@cocotb.test()
async def random_match_golden(dut):
    """Tiles of all sources, lengths and live rows in random mixtures without a gap, blank slots among them, any bit
    patterns, on units of three shapes."""
    bench = await Bench.begin(dut)
    tiles = sequence(bench.config, bench.random, 40 if REGRESS else 20, blanks=0.1)
    bench.check(tiles, await bench.run(tiles))


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides")
async def pauses_anywhere(dut):
    """Cycles without a slot between tiles and within them, with anything on all other inputs."""
    bench = await Bench.begin(dut)
    tiles = sequence(bench.config, bench.random, 24, longest=6, blanks=0.1)
    gaps = [int(bench.random.integers(20)) for _ in tiles]
    bench.check(tiles, await bench.run(tiles, gaps, holes=0.3))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Tiles of as few slots as rows leave every `rows` cycles; with any lengths and live rows each row leaves in the
    cycle that golden says."""
    bench = await Bench.begin(dut)
    config = bench.config
    tiles = [Tile(config, bench.random, config.rows, config.rows, k % 3) for k in range(12)]
    cycles = bench.check(tiles, await bench.run(tiles))
    assert cycles == bench.schedule(tiles)
    assert np.diff([first for first, _ in cycles]).tolist() == [config.rows] * 11
    # The property that others reckon with.
    assert cycles[0][0] == tiles[0].beats - 1 + ComputeUnits(config).latency + config.rows

    tiles = sequence(config, bench.random, 30, longest=4)
    assert bench.check(tiles, await bench.run(tiles)) == bench.schedule(tiles)


@cocotb.test()
async def reset_midstream(dut):
    """Wherever a reset falls, nothing of the dropped tile is marked, and the tiles behind it are right."""
    bench = await Bench.begin(dut)
    # In every cycle in which the marks are on their way to the arrays, and in some behind.
    inside = LATENCY + stages(bench.config) + 5
    for at in (*range(2, inside), *rng("reset").sample(range(inside, bench.last_columns + 2), 6)):
        lost = [Tile(bench.config, bench.random, 4, bench.config.rows, OWN)]
        await bench.run(lost, cycles=at)
        await reset(dut, 1)
        tiles = sequence(bench.config, bench.random, 2, longest=2)
        bench.check(tiles, await bench.run(tiles))


@cocotb.test()
async def corner_values(dut):
    """Every special value against every other, those that blank slots and kept rows read included; tiles of nothing
    but blank slots."""
    bench = await Bench.begin(dut)

    def special(random, size):
        return random.choice(SPECIAL, size)

    def far(random, size):
        """Mostly zeros: whole results are +0 or a single product."""
        return np.where(random.random(size) < 0.8, random.choice(SPECIAL[:4], size), mixed(random, size))

    for pick in (special, far):
        tiles = sequence(bench.config, bench.random, 14, longest=3, pick=pick, blanks=0.3)
        bench.check(tiles, await bench.run(tiles))


@cocotb.test()
@pytest.mark.testpoint("random_match_golden", "corner_values")
async def rows_kept(dut):
    """Rows kept over several slots and over cycles without one; behind a blank slot and behind others."""
    bench = await Bench.begin(dut)
    config, random = bench.config, bench.random
    tiles = []
    for _ in range(6):
        tile = Tile(config, random, config.rows + 6, config.rows, FEATURES)
        held, left, right = None, [], []
        for index, (slot, (x, w, f)) in enumerate(tile.slots):
            keep = int(index > 0 and random.random() < 0.6)
            blank = int(random.random() < 0.4)
            held = held if keep else x
            tile.slots[index] = (slot | {"keep": keep, "blank": blank}, (x, w, f))
            left.append(np.zeros_like(held) if blank else held)
            right.append(np.zeros_like(f) if blank else f)
        tile.want = fp32.bits(systolic.tiles(np.concatenate(left, -1), np.swapaxes(np.concatenate(right, -1), -1, -2),
                                             config.width, grouped=config.grouped))
        tiles.append(tile)
    bench.check(tiles, await bench.run(tiles))
    bench.check(tiles, await bench.run(tiles, holes=0.4))


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_mlp_units(name, number):
    simulate(ComputeUnits(CONFIGS[name]), "verif.mlp.test_units", name=f"mlp_units_{name}", tests=7, seed=number,
             env={"MLP_CONFIG": name})


def test_illegal_config_wrong():
    """More products made of LUTs than a cell has, and any in groups, are refused with a sentence."""
    with pytest.raises(ValueError) as error:
        ComputeUnits(replace(TINY, lut_products=3))
    assert str(error.value) == "lut_products must be at most 2 at width 2, not 3"
    for sizes in ({"width": 2, "lut_products": 0}, {"width": 4, "lut_products": 1}):
        with pytest.raises(ValueError) as error:
            replace(TINY, grouped=True, **sizes)
        assert str(error.value) == (f"grouped must be false for width = {sizes['width']} and lut_products = "
                                    f"{sizes['lut_products']}: groups have four products, all in DSP slices")
