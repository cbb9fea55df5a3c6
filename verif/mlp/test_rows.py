"""The rows' memory against golden.mlp.store: slots, results and loads in every cycle, and flipped bits."""
import os
from itertools import product

import cocotb
import numpy as np
import pytest

from golden.mlp.store import Rows
from hw.mlp.records import SOURCE
from hw.mlp.rows import RowMemory
from verif.bench.runner import one_of, seeds, simulate
from verif.mlp.bench import (
    NARROW,
    TINY,
    MemoryBench,
    flips,
    latency,
    random_traffic,
    reset_with_flags_and_writes,
)

CONFIGS = {"tiny": TINY, "narrow": NARROW}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
ALL = (1 << CONFIG.samples) - 1
PAIRS = CONFIG.piece // 2
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


class Bench(MemoryBench):
    unit = RowMemory(CONFIG)
    model = Rows(units=CONFIG.units, rows=CONFIG.rows, pieces=CONFIG.pieces, piece=CONFIG.piece, width=CONFIG.width,
                 lines=CONFIG.row_lines)
    lines, codewords = CONFIG.row_lines, (CONFIG.units, CONFIG.rows, CONFIG.pieces, PAIRS)
    writes = "i_rows"
    cycles, rounds = (1000, 12) if REGRESS else (350, 4)

    def a_read(self, within=0, **fixed):
        c, random = CONFIG, self.random
        kind = int(random.integers(3))      # of a slot with features: read at once, or as two
        features = bool(random.integers(2))
        return {"lines": [self.within(within) for _ in range(c.pieces)], "x_bank": int(random.integers(c.pieces)),
                "part": int(random.integers(c.parts)), "y_banks": random.integers(0, c.pieces, 2).tolist(),
                "source": SOURCE.FEATURES if features else int(random.integers(2)),
                "keep": features and kind == 1, "blank": features and kind == 2,
                "lanes": int(random.integers(1 << c.samples)), "y_groups": int(random.integers(4)),
                "y_own": int(random.integers(4)), **fixed}

    def a_write(self, within=0, **fixed):
        c, random = CONFIG, self.random
        return {"lanes": int(random.integers(1, 1 << c.samples)), "banks": int(random.integers(1 << c.pieces)),
                "lines": [self.within(within) for _ in range(c.pieces)], "words": self.words(c.units, c.words), **fixed}

    def a_load(self, within=0, **fixed):
        c, random = CONFIG, self.random
        return {"unit": int(random.integers(c.units)), "row": int(random.integers(c.rows)), "line": self.within(within),
                "turn": int(random.integers(c.pieces)), "words": self.words(c.words), **fixed}

    def everything(self):
        return (("load", self.a_load(unit=unit, row=row, line=line))
                for line, unit, row in product(*map(range, (self.lines, CONFIG.units, CONFIG.rows))))

    def over(self, way, line):
        return (self.a_load(unit=0, row=0, line=line, turn=0) if way == "load"
                else self.a_write(lanes=1, banks=1, lines=[line] * CONFIG.pieces))

    def counted(self, line):
        return self.reads(line)[0]

    def reads(self, line):
        return [self.a_read(lines=[line] * CONFIG.pieces, x_bank=bank, part=0, lanes=1, keep=0)
                for bank in range(CONFIG.pieces)]

    def written(self, write):
        lanes, banks, lines = (write[name] for name in ("lanes", "banks", "lines"))
        self.model.write(lanes, banks, lines, np.array(write["words"]))
        return lambda place: (lanes >> (place[0] * CONFIG.rows + place[1]) & banks >> place[2] & 1
                              and lines[place[2]] == place[-1])

    def loaded(self, load):
        self.model.load(load["unit"], load["row"], load["line"], load["turn"], load["words"])
        return lambda place: (*place[:2], place[-1]) == (load["unit"], load["row"], load["line"])

    def expected(self, read):
        """With the flips that lie in its way."""
        whole, flags = self.model.words, []
        if self.flipped:
            self.model.words = whole.copy()
            told = {}
            for (unit, row, bank, pair, line), bits in self.flipped.items():
                words = self.model.words[unit, row, bank, line, 2 * pair:2 * pair + 2]
                told.setdefault((unit, row, bank, line), []).append(self.misread(words, bits))
            for unit in range(CONFIG.units):
                own = read["lanes"] >> unit * CONFIG.rows & (1 << CONFIG.rows) - 1
                for row in range(CONFIG.rows):
                    banks = [read["x_bank"]] if own >> row & 1 and not read["keep"] else []
                    if read["source"] == SOURCE.FEATURES and own and not read["blank"]:
                        banks += [bank for m, bank in enumerate(read["y_banks"]) if read["y_groups"] >> m & 1
                                  and (own >> row & 1 or not read["y_own"] >> m & 1)]
                    for bank in banks:
                        flags += told.get((unit, row, bank, read["lines"][bank]), [])
        x, f = self.model.read(read["lines"], read["x_bank"], read["part"], read["y_banks"])
        self.model.words = whole
        return {"x": x, "f": f}, flags

    def array(self, place):
        unit, row, bank, pair, _ = place
        lane = getattr(getattr(self.dut, f"unit_{unit}"), f"lane_{row}")
        return getattr(getattr(lane, f"bank_{bank}"), f"store_{pair}")


@cocotb.test()
async def smoke(dut):
    """A load, a write of results and a slot that reads both."""
    bench = await Bench.begin(dut, "smoke")
    assert await bench.step(load=bench.a_load(unit=1, row=0, line=3, turn=1))
    await bench.step(write=bench.a_write(lanes=0b11, banks=0b10, lines=[7] * CONFIG.pieces))
    await bench.step()
    for x_bank, line, part in product(range(CONFIG.pieces), (3, 7), range(CONFIG.parts)):
        await bench.step(bench.a_read(x_bank=x_bank, part=part, lines=[line] * CONFIG.pieces))
    await bench.flush()
    assert bench.model.words.any()


@cocotb.test()
async def random_match_golden(dut):
    """Traffic on few lines and on all, see verif.mlp.bench.random_traffic."""
    await random_traffic(dut, Bench)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Results take a load's row or others: it waits just as long as any is taken."""
    bench = await Bench.begin(dut, "arbiter")
    assert await bench.traffic(400, within=8, reads=0.2, writes=0.9, loads=1.0) > 100
    # Whether its row is written or all others are: it waits.
    lane = int(bench.random.integers(CONFIG.samples))
    unit, row = divmod(lane, CONFIG.rows)
    for _ in range(20):
        for lanes in (ALL ^ 1 << lane, 1 << lane):
            assert not await bench.step(write=bench.a_write(lanes=lanes), load=bench.a_load(unit=unit, row=row))
        assert await bench.step(load=bench.a_load(unit=unit, row=row))
    await bench.look()
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Of operands, and of what is written or loaded."""
    await latency(dut, Bench, "x")


@cocotb.test()
async def reset_midstream(dut):
    """With flags and writes under way."""
    await reset_with_flags_and_writes(dut, Bench)


@cocotb.test()
async def corner_values(dut):
    """Erased, all ones, one bit; first and last line; every row, bank and turn by itself."""
    bench = await Bench.begin(dut, "corners")
    last = CONFIG.row_lines - 1
    for value, lane, bank in product((0, 0xFFFFFFFF, 1, 0x80000000), range(CONFIG.samples), range(CONFIG.pieces)):
        unit, row = divmod(lane, CONFIG.rows)
        line = int(bench.random.choice([0, last]))
        words = bench.words(CONFIG.words)
        words[int(bench.random.integers(CONFIG.words))] = value
        await bench.step(write=bench.a_write(lanes=1 << lane, banks=1 << bank, lines=[line] * CONFIG.pieces,
                                             words=[words] * CONFIG.units))
        await bench.step(load=bench.a_load(unit=unit, row=row, turn=bank, line=last - line,
                                           words=[value] * CONFIG.words))
        await bench.step()
        for at in (0, last):
            await bench.step(bench.a_read(lines=[at] * CONFIG.pieces, x_bank=bank))
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """Anywhere, read and written again."""
    await flips(dut, Bench)


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def every_word_is_watched(dut):
    """All rows read at once with a flip in each: the count is that of the decoders, as rows and as columns."""
    bench = await Bench.begin(dut, "watched")
    bench.flip_all(1)
    most = []
    for y_groups in range(4):
        slot = bench.a_read(lines=[1] * CONFIG.pieces, lanes=ALL, source=SOURCE.FEATURES, keep=0, blank=0,
                            y_groups=y_groups)
        await bench.step(slot)
        most.append(bench.corrected)
        # A row less in each unit: it is no column of its own group.
        for y_own in range(4):
            lanes = ALL ^ sum(1 << u * CONFIG.rows + CONFIG.rows - 1 for u in range(CONFIG.units))
            await bench.step({**slot, "lanes": lanes, "y_own": y_own})
            rows = CONFIG.units * (CONFIG.rows - 1 - (y_groups & y_own).bit_count())
            assert bench.corrected == PAIRS * (rows + CONFIG.samples * y_groups.bit_count())
        await bench.step({**slot, "keep": 1})
        await bench.step({**slot, "blank": 1})
        await bench.step({**slot, "source": SOURCE.OWN})
    await bench.flush()
    assert most == [CONFIG.samples * PAIRS * reads for reads in (1, 2, 2, 3)]


@pytest.mark.parametrize("shape", one_of(CONFIGS))
@pytest.mark.parametrize("number", seeds())
def test_rows(number, shape):
    simulate(RowMemory(CONFIGS[shape]), "verif.mlp.test_rows", name=f"mlp_rows_{shape}", tests=8, seed=number,
             env={"HOTRAIL_SHAPE": shape}, memories=("store_*",))
