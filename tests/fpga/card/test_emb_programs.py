"""Programs that no compiler writes, on the EMB core, its twin and its oracle: what hw.isa allows is right, what it does
not allow is refused, and all three say the same.

The preset `tiny`, whose models other tests build anyway. A program has at most one mistake, so the place of its first
fault is the only one.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, SsdStream
from gen.compiler.emb import encode
from gen.rtl.config import load
from golden.emb.core import Emb, Memory
from hw.isa import EMB
from tests.support.emb_bench import QUICK, TIMEOUT
from tests.support.emb_programs import PAGE, Drawn, Programs, images
from tests.support.faulty import FILL, UNTOUCHED, named, place

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
ROWS_BEATS, RING_PAGES, PAGES = 512, 8, 11
CONFIG = load("tiny").cores["emb"]
BEAT = CONFIG.beat_bytes
LOAD = EMB.instruction("LOAD").opcode
PLACE = ("code", "instruction", "bag", "index", "detail")


class OneCard:
    """A card with the buffers of a program."""

    def __init__(self, kind, rows, ring_beats):
        self.card = card.open(kind, device=QUICK, core="emb", preset="tiny", memory="ideal")
        self.buffers = {"rows": self.card.allocate(rows.nbytes, "rows"),
                        "ring": self.card.allocate(ring_beats * BEAT, "ring", fill=0)}
        self.ring_beats = ring_beats
        self.card.write(self.buffers["rows"], rows)

    def place(self, name, data):
        return place(self.card, self.buffers, name, data)

    def run(self, drawn, pages):
        """The result block, and what lies in the outputs and among the rows."""
        block = np.zeros(EMB.result_words, np.uint32)
        block[[EMB.value(name).word for name in ("released", "filled")]] = drawn.first
        result = self.place("result", block)
        self.place("outputs", np.full(max(drawn.outputs_beats, 1) * BEAT, FILL, np.uint8))
        self.place("program", drawn.words)
        self.place("inputs", drawn.inputs if drawn.inputs.size else np.zeros(BEAT, np.uint8))
        numbers = np.arange(drawn.pages)
        positions = (drawn.first + numbers * (PAGE // BEAT)) % (1 << 30)
        self.card.stream(SsdStream(
            pages, PAGE, np.stack([numbers, positions], axis=1), self.buffers["ring"],
            result.address + 4 * EMB.value("released").word, result.address + 4 * EMB.value("filled").word, BEAT))
        self.card.run({
            "program": self.buffers["program"], "program_count": len(drawn.words), "inputs": self.buffers["inputs"],
            "inputs_beats": drawn.inputs.nbytes // BEAT, "outputs": self.buffers["outputs"],
            "outputs_beats": drawn.outputs_beats, "rows": self.buffers["rows"], "rows_beats": ROWS_BEATS,
            "ring": self.buffers["ring"], "ring_beats": self.ring_beats, "result": result, "timeout": TIMEOUT})
        self.card.wait(200_000)
        block = self.card.read(result, np.uint32)
        told = named(EMB, block)
        outputs = self.card.read(self.buffers["outputs"], np.uint32)[:drawn.outputs_beats * CONFIG.words]
        return told, outputs, self.card.read(self.buffers["rows"], np.uint32)


class Three:
    """The core, its twin and its oracle, with the same tables loaded and the same rows."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.images = images(self.random, CONFIG)
        self.rows = self.random.standard_normal(ROWS_BEATS * CONFIG.words).astype(np.float32).view(np.uint32)
        self.pages = self.random.standard_normal((PAGES, PAGE // 4)).astype(np.float32).view(np.uint32)
        self.ring_beats = RING_PAGES * PAGE // BEAT
        self.sim, self.twin = (OneCard(kind, self.rows, self.ring_beats) for kind in ("sim", "twin"))
        self.twin.card.tensor_trains(self.images.cores)
        self.oracle = Emb.of(CONFIG, self.images.cores)
        self.programs = Programs(self.random, self.images, rows_beats=ROWS_BEATS, ring_beats=self.ring_beats)
        self.load()

    def load(self):
        """All tables, on all three."""
        item = {"count": self.images.load_beats, "indices": 0}
        words = np.stack([encode("LOAD", item)])
        assert not self.compare(Drawn(words, self.images.load.reshape(-1).copy(), 0, 0, 0))

    def compare(self, drawn):
        """Carries it out on all three; how it ended, which is the same. After a LOAD with a mistake, or one that a
        fault may have broken off, all tables are loaded again."""
        code = self._compare(drawn)
        if (code or drawn.mistake) and (drawn.words[:, 0] & 0xFF == LOAD).any():
            self.load()
        return code

    def _compare(self, drawn):
        outputs, rows = np.full(drawn.outputs_beats * CONFIG.words, UNTOUCHED, np.uint32), self.rows.copy()
        result = self.oracle.run(Memory(
            drawn.words.reshape(-1), drawn.inputs, outputs, rows,
            self.pages[np.arange(drawn.pages)].reshape(-1), drawn.first, self.ring_beats))
        told, found, left = self.sim.run(drawn, self.pages)
        assert {name: told[name] for name in PLACE} == {name: getattr(result, name) for name in PLACE}, drawn
        if result.code:
            beats, right = (words.reshape(-1, CONFIG.words) for words in (found, outputs))
            untouched = (beats == UNTOUCHED).all(axis=1)
            assert (untouched | (beats == right).all(axis=1) | (right == UNTOUCHED).all(axis=1)).all(), drawn
            name = next(code.name for code in EMB.codes if code.code == result.code)
            with pytest.raises(CardError, match=f"instruction {result.instruction} would end the run in {name}$"):
                self.twin.run(drawn, self.pages)
            for each in self.sim, self.twin:    # rows that were copied before
                each.card.write(each.buffers["rows"], self.rows)
            return result.code
        twin = self.twin.run(drawn, self.pages)
        for those in (found, left), twin[1:]:
            assert (those[0] == outputs).all() and (those[1] == rows).all(), drawn
        assert twin[0] == told, drawn       # every counter and the cycles
        assert {name: told[name] for name in result.counters} == result.counters
        assert told["released"] == result.released
        self.rows = rows
        return 0

    def close(self):
        for each in self.sim, self.twin:
            each.card.close()


@pytest.fixture(scope="module")
def three():
    made = Three(int(os.environ.get("HOTRAIL_SEED", "1")))
    yield made
    made.close()


@pytest.mark.parametrize("wrong", [False, True], ids=["allowed", "wrong"])
def test_all_three_say_the_same(three, wrong):
    ends = []
    for _ in range(600 if REGRESS else 30):
        ends.append(three.compare(three.programs.draw(wrong)))
    if wrong:
        assert len(set(ends)) > 4, ends
    else:
        assert sum(map(bool, ends)) < len(ends) / 3, ends


def bags(indices, **fields):
    """BAGS of one index each over rows of a beat, as Drawn takes it with its inputs."""
    return {"count": len(indices), "lengths": 0, "indices": 16, "indices_count": len(indices), "dram_rows": 8,
            "row_beats": 1, "chunk_rows": 1, "out_stride": 1, **fields}


def by_hand(indices, *items, first=0, pages=0):
    """Bags of the same indices, one of each, in every instruction."""
    inputs = np.zeros((24, CONFIG.words), np.uint32)
    inputs[:16] = 1
    inputs.reshape(-1)[64:64 + len(indices)] = indices
    words = np.stack([encode("BAGS", bags(indices, **{"out": number * 64, **item}))
                      for number, item in enumerate(items)])
    return Drawn(words, inputs.reshape(-1), 64 * len(items), first, pages)


def test_rows_in_pieces_are_not_taken_for_whole_ones(three):
    """Nor the other way round, where all else of them is the same."""
    row = {"row_beats": 4, "out_stride": 4}
    pieces = [{**row, "piece_beats": piece} for piece in (0, 1, 2, 0, 1)]
    assert not three.compare(by_hand([0, 1, 0, 1], *pieces))


def after(free, drawn):
    """The program behind an instruction of one empty bag that releases the ring up to `free`."""
    empty = encode("BAGS", {**bags([]), "count": 1, "lengths": len(drawn.inputs) // CONFIG.words, "release": free})
    inputs = np.concatenate([drawn.inputs, np.zeros(CONFIG.words, np.uint32)])
    return replace(drawn, words=np.concatenate([empty[None], drawn.words]), inputs=inputs)


@pytest.mark.parametrize("first", [0, 4096, (1 << 30) - 256])
def test_a_ring_begins_anywhere_and_is_released_ahead(three, first):
    """Positions that have not landed are released; rows behind them land and are read."""
    behind = (first + 10 * 256) % (1 << 30)
    stretch = {"ring_first": behind, "ring_count": 256, "release": behind}
    drawn = by_hand([2 << 30 | behind, 2 << 30 | behind + 3], stretch, first=first, pages=11)
    assert not three.compare(after(behind, drawn))


def test_what_is_released_stays_so(three):
    """Whatever later instructions say, and from the run's first position on."""
    rows = [2 << 30 | 4096 + place for place in (256, 300)]
    stretch = {"ring_first": 4096 + 256, "ring_count": 512}
    assert not three.compare(after(0, by_hand(rows, stretch, {**stretch, "release": 4096 + 256}, stretch,
                                              {**stretch, "release": 9}, stretch, first=4096, pages=8)))


def test_a_row_that_the_ring_has_no_room_for_never_lands(three):
    """Before the instruction in front of it has released what lies there."""
    last = three.ring_beats
    drawn = by_hand([2 << 30 | last], {"ring_first": 256, "ring_count": last, "release": 256}, pages=9)
    assert three.compare(drawn) == EMB.code("TIMEOUT")
    assert not three.compare(after(256, drawn))
