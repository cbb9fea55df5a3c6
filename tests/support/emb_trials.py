"""Programs that no compiler writes on the EMB core, its twin and its oracle, with tables loaded."""

from collections import Counter

import numpy as np

from fpga.card import SsdStream
from gen.compiler.emb import load_instruction
from gen.rtl.config import load
from golden.emb.core import Emb, Memory
from hw.isa import EMB
from tests.support.differential import Differential, opened
from tests.support.emb_bench import QUICK
from tests.support.emb_programs import PAGE, POSITIONS, Drawn, Programs, images, numbers
from tests.support.faulty import FILL, UNTOUCHED, FaultyBench

ROWS_BEATS, RING_PAGES, PAGES = 512, 8, 11
# A page that comes in 100 cycles, so that most of a run's are the core's.
FAST = QUICK.replace("ssd", read_us=0.3, bus_gb_s=12.0).replace("link", gb_s=15.0, latency_us=0.1)
TIMEOUT = 3000      # cycles that a row of the SSD is waited for
TINY = load("tiny").cores["emb"]
LOAD = EMB.instruction("LOAD").opcode
BEGIN = [EMB.value(name).word for name in ("released", "filled")]


class Bench(FaultyBench):
    """A card with the buffers of a program. rows: as the oracle has them; pages: that the drive brings."""

    def __init__(self, kind, config, memory, oracle, rows, pages):
        super().__init__(opened(kind, "emb", config, device=FAST, memory=memory), EMB, config, Counter())
        self.oracle, self.pages, self.rows = oracle, pages, rows
        self.ring_beats = RING_PAGES * PAGE // config.beat_bytes

    def start(self, run):
        beat = self.config.beat_bytes
        for name, words in (("rows", self.rows), ("ring", np.zeros(self.ring_beats * self.config.words, np.uint32))):
            if name not in self.buffers:
                self.place(name, words)
        block = self.block()
        block[BEGIN] = run.first
        result = self.place("result", block)
        outputs = self.place("outputs", np.full(max(run.outputs_beats, 1) * beat, FILL, np.uint8))
        numbers = np.arange(run.pages)
        positions = (run.first + numbers * (PAGE // beat)) % POSITIONS
        self.busy = True
        self.card.stream(SsdStream(
            self.pages, PAGE, np.stack([numbers, positions], axis=1), self.buffers["ring"],
            *(result.address + 4 * word for word in BEGIN), beat))
        self.card.run({
            "program": self.place("program", run.words), "program_count": len(run.words),
            "inputs": self.place("inputs", run.inputs if run.inputs.size else np.zeros(beat, np.uint8)),
            "inputs_beats": run.inputs.nbytes // beat, "outputs": outputs, "outputs_beats": run.outputs_beats,
            "rows": self.buffers["rows"], "rows_beats": ROWS_BEATS, "ring": self.buffers["ring"],
            "ring_beats": self.ring_beats, "result": result, "timeout": TIMEOUT})

    def kept(self, run):
        return {"program": run.words, "inputs": run.inputs}

    def left(self, run):
        """The outputs, and behind them the rows."""
        return np.concatenate([super().left(run), self.card.read(self.buffers["rows"], np.uint32)])

    def expected(self, run):
        outputs, self.left_rows = np.full(run.outputs_beats * self.config.words, UNTOUCHED, np.uint32), self.rows.copy()
        result = self.oracle.run(Memory(run.words.reshape(-1), run.inputs, outputs, self.left_rows,
                                        self.pages[np.arange(run.pages)].reshape(-1), run.first, self.ring_beats,
                                        PAGE // self.config.beat_bytes))
        return result, outputs

    def judge(self, run, told, left, place):
        """Rows that were copied before the fault are of no interest."""
        return super().judge(run, told, left[:run.outputs_beats * self.config.words], place)

    def compare(self, run, told, left):
        result, outputs = self.expected(run)
        assert (told["code"], result.code) == (0, 0), told
        self.equal(left, np.concatenate([outputs, self.left_rows]))
        assert {name: told[name] for name in result.counters} == result.counters
        assert told["released"] == result.released and told["instructions_done"] == len(run.words)
        self.rows[:] = self.left_rows
        return told["cycles"]


class Trials(Differential):
    """With the same tables loaded and the same rows."""

    place = ("code", "instruction", "bag", "index", "detail")

    def __init__(self, config=TINY, memory="ideal", seed=1):
        random = np.random.default_rng(seed)
        self.config, self.images = config, images(random, config)
        self.rows = numbers(random, ROWS_BEATS * config.words)
        self.pages = numbers(random, PAGES, PAGE // 4)
        self.ring_beats = RING_PAGES * PAGE // config.beat_bytes
        super().__init__(Programs(random, self.images, rows_beats=ROWS_BEATS, ring_beats=self.ring_beats), memory)

    def bench(self, kind):
        bench = Bench(kind, self.config, self.memory, self.oracle, self.rows, self.pages)
        if kind == "twin":
            bench.card.tensor_trains(self.images.cores)
        return bench

    def begin(self):
        self.oracle = Emb.of(self.config, self.images.cores)
        super().begin()

    def again(self):
        """All tables, and rows as the oracle has them."""
        for bench in self.cards:
            bench.place("rows", self.rows)
        words = load_instruction(self.images.load, self.images.load_beats)[None]
        assert not self.compare(Drawn(words, self.images.load.reshape(-1).copy(), 0, 0, 0))

    def same(self, run, code):
        if (run.words[:, 0] & 0xFF == LOAD).any():      # it has a mistake or was broken off
            self.again()
        for bench in self.cards:
            bench.card.write(bench.buffers["rows"], self.rows)
