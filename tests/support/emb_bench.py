"""The EMB core of the preset `tiny` on a card with tables on it, and the oracle: what its tests share."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from fpga import card
from fpga.card import Device, SsdStream
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import CardImages
from gen.rtl.config import load
from golden.emb.core import Emb, Memory
from hw.isa import EMB
from tests.support import emb_tables as make
from tests.support.faulty import FILL, UNTOUCHED, FaultyBench

# A drive and a host with short times, so that a run is bound by the core.
QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)
PAGE = 4096
TIMEOUT = 6000          # cycles that a row of the SSD is waited for
CODES = {code.name: code.code for code in EMB.codes}
COUNTED = ("instructions", "bags", "indices", "dram_rows", "dram_bytes", "tt_rows", "tt_bytes", "ssd_rows", "ssd_bytes",
           "cache_fills")
tried: Counter = Counter()      # faults by kind


@dataclass
class Run:
    """A program with all that it needs, and what the oracle makes of it."""

    words: np.ndarray       # (instructions, 16)
    inputs: np.ndarray      # (beats, words of a beat)
    outputs_beats: int
    pages: np.ndarray
    transfers: np.ndarray
    count: int | None = None


def run_of(program):
    return Run(program.words, program.inputs, program.outputs_beats, program.pages, program.transfers)


class Bench(FaultyBench):
    """A card with tables on it and the oracle beside it."""

    def __init__(self, memory, device=QUICK, ring_pages=8, cache=40, process=False, seed=11):
        super().__init__(card.open("sim", device=device, core="emb", preset="tiny", memory=memory, process=process),
                         EMB, load("tiny").cores["emb"], tried)
        self.draw = np.random.default_rng(seed)
        self.tables = [make.mixed(self.draw, "items"), make.mixed(self.draw, "shops", rows=120, columns=(2, 4, 8)),
                       make.only(self.draw, "users", make.SSD, 400, 20), make.only(self.draw, "ads", make.DRAM, 90, 64)]
        self.tables = [replace(table, results=results, row_format=rows) for table, results, rows in zip(
            self.tables, ("float32", "bfloat16", "float32", "float16"), ("int8", "float16", "int4", "bfloat16"),
            strict=True)]
        self.images = CardImages(self.tables, self.config, PAGE, {"items": cache} if cache else {})
        self.ring_beats = ring_pages * self.images.page_beats
        self.compiler = Compiler(self.images, ring_beats=self.ring_beats)
        self.oracle = Emb.of(self.config, self.images.cores)
        self.rows = self.images.rows.reshape(-1).copy()     # of DRAM, as the oracle has it
        self.beat = self.config.beat_bytes
        self.place("rows", self.images.rows)
        self.place("ring", np.zeros(self.ring_beats * self.config.words, np.uint32))
        self.loading = run_of(self.compiler.load())
        self.same(self.loading)

    def batch(self, count=6, longest=6):
        """A batch of requests of all modes to all tables, compiled."""
        requests = []
        for at in range(count):
            table = self.tables[at % len(self.tables)]
            indices, offsets = make.bags(self.draw, table.rows, int(self.draw.integers(1, 8)), longest, zipf=0.8)
            mode = ("sum", "mean", "max", "sum")[int(self.draw.integers(4))]
            weights = self.draw.standard_normal(len(indices)).astype(np.float32) if mode == "sum" else None
            requests.append(Bags(table.name, indices, offsets, weights if self.draw.random() < 0.7 else None, mode))
        program = self.compiler.compile(requests)
        self.compiler.commit(program)
        return run_of(program)

    def with_a_fill(self):
        """A batch with all modes, all memories and a fill; it has run once."""
        for _ in range(20):
            run = self.batch(8)
            self.same(run)
            if (run.words[:, 0] & 0xFF == EMB.instruction("FILL").opcode).any():
                return run
        raise AssertionError("no batch filled the row cache")

    def start(self, run):
        card, beat = self.card, self.beat
        self.busy = True
        result = self.place("result", self.block("released", "filled"))
        outputs = self.place("outputs", np.full(max(beat, run.outputs_beats * beat), FILL, np.uint8))
        empty = np.zeros(self.config.words, np.uint32)
        card.stream(None if not len(run.pages) else SsdStream(
            self.images.pages, PAGE, run.transfers, self.buffers["ring"],
            result.address + 4 * EMB.value("released").word, result.address + 4 * EMB.value("filled").word, beat))
        card.run({
            "program": self.place("program", run.words if len(run.words) else empty),
            "program_count": len(run.words) if run.count is None else run.count,
            "inputs": self.place("inputs", run.inputs if run.inputs.size else empty), "inputs_beats": len(run.inputs),
            "outputs": outputs, "outputs_beats": run.outputs_beats, "rows": self.buffers["rows"],
            "rows_beats": len(self.images.rows), "ring": self.buffers["ring"], "ring_beats": self.ring_beats,
            "result": result, "timeout": TIMEOUT})

    def kept(self, run):
        return {"program": run.words, "inputs": run.inputs}

    def expected(self, run):
        """What the oracle makes of it; its DRAM follows."""
        outputs = np.full(run.outputs_beats * self.config.words, UNTOUCHED, np.uint32)
        memory = Memory(run.words.reshape(-1), run.inputs.reshape(-1), outputs, self.rows,
                        self.images.pages[run.pages].reshape(-1), 0, self.ring_beats)
        return self.oracle.run(memory, run.count), outputs

    def compare(self, run, told, outputs):
        result, wanted = self.expected(run)
        assert (told["code"], result.code) == (0, 0), told
        self.equal(outputs, wanted)
        assert {name: told[name] for name in COUNTED} == {name: result.counters[name] for name in COUNTED}
        assert told["released"] == result.released and told["instructions_done"] == len(run.words)
        assert (self.card.read(self.buffers["rows"], np.uint32) == self.rows).all()
        return told["cycles"]

    def mend(self, run, loading=False):
        self.sound()
        if loading:
            self.same(self.loading)
        return self.same(run)
