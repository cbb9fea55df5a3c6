"""The rows' memory against golden.mlp.store: slots, results and loads in every cycle, and flipped bits."""
import os

import cocotb
import numpy as np
import pytest

from golden.mlp.store import Rows
from hw.mlp.records import LATENCY, SOURCE
from hw.mlp.rows import RowMemory
from hw.mlp.store import Store, codewords
from verif.bench import seed
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import NARROW, TINY, MemoryBench, some_flips, words_of

CONFIGS = {"tiny": TINY, "narrow": NARROW}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
ALL = (1 << CONFIG.samples) - 1
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
FLAG_LATENCY = RowMemory(CONFIG).flag_latency


class Bench(MemoryBench):
    model = Rows(units=CONFIG.units, rows=CONFIG.rows, pieces=CONFIG.pieces, piece=CONFIG.piece, width=CONFIG.width,
                 lines=CONFIG.row_lines)

    quiet, packed = ("valid", "i_rows", "i_load__valid"), ("slot", "i_rows", "i_load__payload")
    flag_latency = FLAG_LATENCY

    async def fill(self, random):
        """Every line of every row, by loads."""
        for line in range(CONFIG.row_lines):
            for unit in range(CONFIG.units):
                for row in range(CONFIG.rows):
                    assert await self.step(load=a_load(random, unit=unit, row=row, line=line))

    async def step(self, slot=None, rows=None, load=None):
        """A cycle; True if the load was taken."""
        dut, now = self.dut, self.cycle
        self.settle()
        dut.valid.value = slot is not None
        if slot is not None:
            dut.slot.value = self.layouts["slot"].pack(slot)
            self._expect(slot)
        dut.i_rows.value = self.layouts["i_rows"].pack({**rows, "valid": 1}) if rows else 0
        dut.i_load__valid.value = load is not None
        if load is not None:
            dut.i_load__payload.value = self.layouts["i_load__payload"].pack(load)
        await self.edge
        taken = load is not None and dut.i_load__ready.value == 1
        if load is not None:
            assert taken == (rows is None), f"cycle {now}: load taken {taken}, rows written {rows is not None}"
        due = now + RowMemory.write_latency
        if rows:
            self.writes.append((due, lambda: self._write(rows)))
        if taken:
            self.writes.append((due, lambda: self._load(load)))
        self.judge()
        return taken

    def _write(self, rows):
        self.model.write(rows["lanes"], rows["banks"], rows["lines"], np.array(rows["words"]))
        self.rewritten(lambda key: rows["lanes"] >> (key[0] * CONFIG.rows + key[1]) & rows["banks"] >> key[2] & 1
                       and rows["lines"][key[2]] == key[4])

    def _load(self, load):
        self.model.load(load["unit"], load["row"], load["line"], load["turn"], load["words"])
        self.rewritten(lambda key: (key[0], key[1], key[4]) == (load["unit"], load["row"], load["line"]))

    def _expect(self, slot):
        """What the slot gives, with the flips that lie in its way."""
        whole, found = self.model.words, []
        if self.flipped:
            self.model.words = whole.copy()
            told = {}
            for (unit, row, bank, pair, line), bits in self.flipped.items():
                words = self.model.words[unit, row, bank, line, 2 * pair:2 * pair + 2]
                told.setdefault((unit, row, bank, line), []).append(self.misread(words, bits))
            for unit in range(CONFIG.units):
                own = slot["lanes"] >> unit * CONFIG.rows & (1 << CONFIG.rows) - 1
                for row in range(CONFIG.rows):
                    banks = [slot["x_bank"]] if own >> row & 1 and not slot["keep"] else []
                    if slot["source"] == SOURCE.FEATURES and own and not slot["blank"]:
                        banks += [bank for m, bank in enumerate(slot["y_banks"]) if slot["y_groups"] >> m & 1
                                  and (own >> row & 1 or not slot["y_own"] >> m & 1)]
                    for bank in banks:
                        found += told.get((unit, row, bank, slot["lines"][bank]), [])
        x, f = self.model.read(slot["lines"], slot["x_bank"], slot["part"], slot["y_banks"])
        self.expect(LATENCY, {"x": x, "f": f}, found)
        self.model.words = whole

    async def look(self, random):
        """At every piece."""
        for line in range(CONFIG.row_lines):
            for bank in range(CONFIG.pieces):
                await self.step(a_slot(random, lines=[line] * CONFIG.pieces, x_bank=bank))

    def flip_at(self, unit, row, bank, pair, line, bits):
        lane = getattr(getattr(self.dut, f"unit_{unit}"), f"lane_{row}")
        self.flip(getattr(getattr(lane, f"bank_{bank}"), f"store_{pair}"), line, (unit, row, bank, pair, line), bits)


def draw_words(random, count):
    return random.integers(0, 1 << 32, count).tolist()


def a_slot(random, within=CONFIG.row_lines, **fixed):
    c = CONFIG
    kind = int(random.integers(3))      # of a slot with features: read at once, or as two
    features = bool(random.integers(2))
    return {"lines": random.integers(0, within, c.pieces).tolist(), "x_bank": int(random.integers(c.pieces)),
            "part": int(random.integers(c.parts)), "y_banks": random.integers(0, c.pieces, 2).tolist(),
            "source": SOURCE.FEATURES if features else int(random.integers(2)),
            "keep": features and kind == 1, "blank": features and kind == 2,
            "lanes": int(random.integers(1 << c.samples)), "y_groups": int(random.integers(4)),
            "y_own": int(random.integers(4)), **fixed}


def some_rows(random, within=CONFIG.row_lines, **fixed):
    c = CONFIG
    return {"lanes": int(random.integers(1, 1 << c.samples)), "banks": int(random.integers(1 << c.pieces)),
            "lines": random.integers(0, within, c.pieces).tolist(),
            "words": [draw_words(random, c.words) for _ in range(c.units)], **fixed}


def a_load(random, within=CONFIG.row_lines, **fixed):
    c = CONFIG
    return {"unit": int(random.integers(c.units)), "row": int(random.integers(c.rows)),
            "line": int(random.integers(within)), "turn": int(random.integers(c.pieces)),
            "words": draw_words(random, c.words), **fixed}


async def traffic(bench, random, cycles, *, lines, slots=1.0, rows=0.5, loads=0.7):
    """Slots, results and loads at once; few lines, so that they meet. Returns how many loads had to wait."""
    load, waited = None, 0
    for _ in range(cycles):
        if load is None and random.random() < loads:
            load = a_load(random, lines)
        taken = await bench.step(a_slot(random, lines) if random.random() < slots else None,
                                 some_rows(random, lines) if random.random() < rows else None, load)
        waited += load is not None and not taken
        load = None if taken else load
    return waited


@cocotb.test()
async def smoke(dut):
    """A load, a write of results and a slot that reads both."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut, random)
    assert await bench.step(load=a_load(random, unit=1, row=0, line=3, turn=1))
    await bench.step(rows=some_rows(random, lanes=0b11, banks=0b10, lines=[7] * CONFIG.pieces))
    await bench.step()
    for x_bank in range(CONFIG.pieces):
        for line in (3, 7):
            for part in range(CONFIG.parts):
                await bench.step(a_slot(random, x_bank=x_bank, part=part, lines=[line] * CONFIG.pieces))
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Reads and writes of every kind in every cycle, on few lines so that they meet and on all, equal to the golden
    model; a read before a write has settled gives the old line."""
    random = np.random.default_rng(seed("traffic"))
    bench = await Bench.begin(dut, random)
    await traffic(bench, random, 1000 if REGRESS else 400, lines=4)
    await traffic(bench, random, 1000 if REGRESS else 300, lines=CONFIG.row_lines, slots=0.5)
    await bench.flush()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Results take a load's row or others: it waits just as long as any is taken."""
    random = np.random.default_rng(seed("arbiter"))
    bench = await Bench.begin(dut, random)
    assert await traffic(bench, random, 400, lines=8, slots=0.2, rows=0.9, loads=1.0) > 100
    # Whether its row is written or all others are: it waits.
    lane = int(random.integers(CONFIG.samples))
    unit, row = divmod(lane, CONFIG.rows)
    for _ in range(20):
        for lanes in (ALL ^ 1 << lane, 1 << lane):
            assert not await bench.step(rows=some_rows(random, lanes=lanes), load=a_load(random, unit=unit, row=row))
        assert await bench.step(load=a_load(random, unit=unit, row=row))
    await bench.look(random)
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Operands come when the contract says; a write is seen by the slots `write_latency` later, not by one before."""
    random = np.random.default_rng(seed("latency"))
    bench = await Bench.begin(dut, random)
    fixed = {"lines": [9] * CONFIG.pieces, "x_bank": 0, "part": 0}
    for way in ("rows", "load"):
        words = draw_words(random, CONFIG.words)
        write = {"rows": some_rows(random, lanes=1, banks=1, lines=fixed["lines"], words=[words] * CONFIG.units)} \
            if way == "rows" else {"load": a_load(random, unit=0, row=0, line=9, turn=0, words=words)}
        seen = []
        for cycle in range(LATENCY + RowMemory.write_latency + 1):
            await bench.step(a_slot(random, **fixed) if cycle <= RowMemory.write_latency else None,
                             **(write if cycle == 0 else {}))
            if cycle >= LATENCY:
                seen.append(words_of(dut.x.value, 1)[0] == words[0])
        assert seen == [False] * RowMemory.write_latency + [True]
    await bench.flush()
    # A slot with nothing before or behind it.
    await bench.step(a_slot(random, **fixed))
    for _ in range(LATENCY):
        await bench.step()
    assert words_of(dut.x.value, 1)[0] == words[0]


@cocotb.test()
async def reset_midstream(dut):
    """Contents survive a reset; flags of slots before it do not come out behind it, nor do writes go on."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut, random)
    bench.flip_at(0, 0, 0, 0, 5, 0b11)
    for _ in range(bench.flag_latency):
        await bench.step(a_slot(random, lines=[5] * CONFIG.pieces, x_bank=0, lanes=1, keep=0))
    # A write in the cycle of the reset is dropped, and so is the one before.
    await bench.step(rows=some_rows(random, lanes=ALL))
    dut.i_rows.value = bench.layouts["i_rows"].pack({**some_rows(random, lanes=ALL), "valid": 1})
    await bench.reset_now()
    await bench.step(load=a_load(random, unit=0, row=0, line=5))
    await bench.look(random)
    await bench.flush()


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit; first and last line; every row, bank and turn by itself."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut, random)
    last = CONFIG.row_lines - 1
    for value in (0, 0xFFFFFFFF, 1, 0x80000000):
        for lane in range(CONFIG.samples):
            unit, row = divmod(lane, CONFIG.rows)
            for bank in range(CONFIG.pieces):
                line = random.choice([0, last])
                words = draw_words(random, CONFIG.words)
                words[int(random.integers(CONFIG.words))] = value
                await bench.step(rows=some_rows(random, lanes=1 << lane, banks=1 << bank,
                                                lines=[int(line)] * CONFIG.pieces, words=[words] * CONFIG.units))
                await bench.step(load=a_load(random, unit=unit, row=row, turn=bank, line=int(last - line),
                                             words=[value] * CONFIG.words))
                await bench.step()
                for at in (0, last):
                    await bench.step(a_slot(random, lines=[at] * CONFIG.pieces, x_bank=bank))
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """One flip is put right and counted where the slot needs the word, two are told there, neither elsewhere; what is
    written again is whole."""
    random = np.random.default_rng(seed("flips"))
    bench = await Bench.begin(dut, random)
    pairs, lines = CONFIG.piece // 2, 4
    for _ in range(12 if REGRESS else 4):
        for _ in range(20):
            key = (int(random.integers(CONFIG.units)), int(random.integers(CONFIG.rows)),
                   int(random.integers(CONFIG.pieces)), int(random.integers(pairs)), int(random.integers(lines)))
            if key not in bench.flipped:
                bench.flip_at(*key, some_flips(random))
        for _ in range(40):
            await bench.step(a_slot(random, lines))
        # What is written is whole again.
        for _ in range(4):
            await bench.step(rows=some_rows(random, lines))
            await bench.step(load=a_load(random, lines))
        await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """All rows read at once with a flip in each: the count is that of the decoders, as rows and as columns."""
    random = np.random.default_rng(seed("watched"))
    bench = await Bench.begin(dut, random)
    pairs = CONFIG.piece // 2
    for unit in range(CONFIG.units):
        for row in range(CONFIG.rows):
            for bank in range(CONFIG.pieces):
                for pair in range(pairs):
                    bench.flip_at(unit, row, bank, pair, 1, 1 << int(random.integers(72)))
    most = []
    for y_groups in range(4):
        slot = a_slot(random, lines=[1] * CONFIG.pieces, lanes=ALL, source=SOURCE.FEATURES, keep=0, blank=0,
                      y_groups=y_groups, y_own=int(random.integers(4)))
        await bench.step(slot)
        most.append(bench.flags[bench.cycle - 1 + FLAG_LATENCY][0])
        # A row less in each unit: it is no column of its own group.
        for y_own in range(4):
            lanes = ALL ^ sum(1 << u * CONFIG.rows + CONFIG.rows - 1 for u in range(CONFIG.units))
            await bench.step({**slot, "lanes": lanes, "y_own": y_own})
            rows = CONFIG.units * (CONFIG.rows - 1 - (y_groups & y_own).bit_count())
            assert bench.flags[bench.cycle - 1 + FLAG_LATENCY][0] == pairs * (
                rows + CONFIG.samples * y_groups.bit_count())
        await bench.step({**slot, "keep": 1})
        await bench.step({**slot, "blank": 1})
        await bench.step({**slot, "source": SOURCE.OWN})
    await bench.flush()
    assert most == [CONFIG.samples * pairs * reads for reads in (1, 2, 2, 3)]


@pytest.mark.parametrize("shape", one_of(CONFIGS))
@pytest.mark.parametrize("number", seeds())
def test_rows(number, shape):
    simulate(RowMemory(CONFIGS[shape]), "verif.mlp.test_rows", name=f"mlp_rows_{shape}", tests=8, seed=number,
             env={"HOTRAIL_SHAPE": shape}, memories=("store_*",))


def test_illegal_config_wrong():
    """What the memories are made of refuses a style or a width that it cannot have, with a sentence."""
    with pytest.raises(ValueError, match="style must be 'ultra' or 'block', not 'registers'"):
        Store(depth=64, words=1, style="registers")
    with pytest.raises(ValueError, match="codewords takes pairs of 32-bit words, not 32 bits"):
        codewords(RowMemory(TINY).x[0][0][0])
