"""The Hotline core on the simulated card with a GPU beside it, and the oracle: what its tests share."""

from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from fpga import card as cards
from fpga.api.gpu import GATHERED, Batch, Gpu, Times
from gen.compiler.hotline import Train
from golden.hotline.train import Memory
from hw.isa import HOTLINE
from hw.isa.hotline import DISPATCHED, FINISHED
from tests.support import hotline_logs as make
from tests.support.faulty import UNSET, UNTOUCHED, FaultyBench, benches_of

PORTS = [("m00_axi", "read"), ("m01_axi", "read"), ("m00_axi", "write"), ("m01_axi", "write")]
COUNTED = ("instructions", "samples", "accesses", "hits", "popular", "batches_popular", "batches_gathered",
           "batches_updated", "dma_wr", "gpu_rd", "v_mul", "v_add")
TIMEOUT = 200_000
QUICK = Times(150, 4)


@dataclass
class Run:
    """A program and all that it uses. how: of its TRAIN; count: instructions told, if not all; most: mini-batches that
    the GPU takes before it stops for ever; timeout: the core's."""

    log: make.Log
    how: Train
    words: np.ndarray
    inputs: np.ndarray
    rows: np.ndarray
    hot: np.ndarray
    mailbox_beats: int
    gradients_beats: int
    times: Times = QUICK
    count: int | None = None
    most: int | None = None
    timeout: int = TIMEOUT
    mistake: str = ""
    image: np.ndarray | None = field(default=None)

    @property
    def outputs_beats(self):
        return self.mailbox_beats

    def copy(self, **values):
        return replace(self, words=self.words.copy(), inputs=self.inputs.copy(), rows=self.rows.copy(), **values)


def run_of(log, how, learned=0.4, *, saves=True, times=QUICK):
    """Learns from the first samples, saves the image behind the mini-batches, and deals all samples."""
    layout, samples = log.layout, log.samples
    words = layout.config.words
    mailbox = layout.mailbox_beats(how)
    parts = [layout.registers()]
    if learned:
        parts.append(layout.learn(max(1, int(learned * len(samples))), 0, mailbox)[:None if saves else 2])
    else:
        parts.append(layout.learn(1, 0)[:1])
    parts.append(layout.train(how, len(samples), 0, 0)[1:])
    hot = np.random.default_rng(3).standard_normal((layout.hot_numbers, layout.row_words), np.float32).view(np.uint32)
    return Run(log, how, np.concatenate(parts), samples.reshape(-1, words), layout.rows(),
               hot.reshape(-1, words) if how.pooled else np.zeros((0, words), np.uint32),
               mailbox + (layout.image_beats if saves and learned else 0), layout.gradients_beats(how),
               times)


def gradients(batch: Batch):
    """Of all that the GPU sees, and of nothing else."""
    seen = batch.pooled.sum(axis=(0, 1)) if batch.pooled is not None else batch.rows
    made = np.zeros((batch.cold, batch.rows.shape[1]), np.float32)
    made += seen * np.float32(0.25) + np.float32(batch.number % 5 - 2)
    made += np.arange(batch.cold, dtype=np.float32)[:, None]
    if batch.payload.shape[1]:
        made += batch.payload.view(np.float32).sum(dtype=np.float32)
    return made


class Bench(FaultyBench):
    """A card with the Hotline core. What a run leaves is compared with what the oracle makes of the mini-batches in
    the order in which they were dispatched."""

    limit = 2_000_000
    limit_cycles = limit
    ports = PORTS

    def __init__(self, tried, memory="ideal", process=False, seed=11, core="hotline", config=make.TINY, opened=None,
                 opt=None):
        opened = opened or cards.open("sim", core=core, preset=config, memory=memory, process=process, opt=opt)
        super().__init__(opened, HOTLINE, config, tried)
        self.draw = np.random.default_rng(seed)
        self.core = make.core(config)
        self.words = config.words
        self.holes = {}     # buffers by name of which only the first so many beats are ever written

    def left_s(self):
        return 1.0      # of the host's clock: never over

    def place(self, name, data):
        if name not in self.holes:
            return super().place(name, data)
        if name in self.buffers:
            self.card.free(self.buffers.pop(name))
        self.buffers[name] = self.card.allocate(data.nbytes, name)
        if self.holes[name]:
            self.card.write(self.buffers[name], data[:self.holes[name]])
        return self.buffers[name]

    def start(self, run):
        empty = np.zeros((1, self.words), np.uint32)
        self.busy, self.seen = True, []
        self.gpu = self.device(run)
        words = run.words if len(run.words) else np.zeros((1, HOTLINE.words), np.uint32)
        self.card.run({
            "program": self.place("program", words),
            "program_count": len(run.words) if run.count is None else run.count,
            "inputs": self.place("inputs", run.inputs if len(run.inputs) else empty), "inputs_beats": len(run.inputs),
            "mailbox": self.place("mailbox", np.full((max(1, run.mailbox_beats), self.words), UNTOUCHED, np.uint32)),
            "mailbox_beats": run.mailbox_beats,
            "gradients": self.place("gradients", np.full((max(1, run.gradients_beats), self.words), UNTOUCHED,
                                                         np.uint32)),
            "gradients_beats": run.gradients_beats,
            "rows": self.place("rows", run.rows if len(run.rows) else empty), "rows_beats": len(run.rows),
            "hot": self.place("hot", run.hot if len(run.hot) else empty), "hot_beats": len(run.hot),
            "timeout": run.timeout, "result": self.place("result", self.block(*DISPATCHED, *FINISHED))})

    def device(self, run):
        return Gpu(run.log.layout, gradients, run.times, watch=self.seen.append)

    def answer(self, run, batch, words):
        """The gradients (rows, words of a row) of a mini-batch, whose words are as in the mailbox."""
        layout = run.log.layout
        out = np.zeros(batch.updates.shape, np.float32)
        out[:, :layout.dim] = gradients(Batch.read(layout, run.how, words)) if batch.kind == GATHERED else 0
        return out

    def serve(self, run, until=None):
        """The GPU at work, until the core is done, or for so many cycles."""
        if until is not None or run.most is None or run.most:
            self.gpu.serve(self, run.how, None, most=run.most, until=None if until is None else int(until))

    def finish(self, run, cycles=None):
        if cycles is None:      # with too few of them the GPU does not come to anything
            self.serve(run)
        return super().finish(run, cycles)

    def finish_stalled(self, run):
        self.serve(run)
        super().finish_stalled(run)

    def kept(self, run):
        return {"program": run.words, "inputs": run.inputs, "hot": run.hot}

    def left(self, run):
        mailbox = self.card.read(self.buffers["mailbox"], np.uint32)[:run.mailbox_beats * self.words]
        rows = self.card.read(self.buffers["rows"], np.uint32)[:run.rows.size]
        return SimpleNamespace(mailbox=mailbox, rows=rows)

    def expected(self, run):
        """What the oracle makes of it where mini-batches come in the order in which the GPU took them."""
        mailbox = np.full(run.mailbox_beats * self.words, UNTOUCHED, np.uint32)
        memory = Memory(run.words.reshape(-1), run.inputs.reshape(-1), mailbox, run.rows.reshape(-1).copy(),
                        run.hot.reshape(-1), run.gradients_beats)
        self.wanted = []

        def gpu(batch):
            head = np.zeros(self.words, np.uint32)
            head[:4] = batch.number, batch.kind, len(batch.samples), len(batch.places)
            words = np.concatenate([head, batch.samples.reshape(-1), batch.rows.reshape(-1)]).reshape(-1, self.words)
            self.wanted.append(words)
            return self.answer(run, batch, words).view(np.uint32)

        result = self.core.run(memory, self.gpu.kinds, gpu, run.count, self.gpu.gpus)
        return result, SimpleNamespace(mailbox=mailbox, rows=memory.rows)

    def taken(self, run):
        """The oracle's result, all mini-batches that the GPU took being right."""
        result, wanted = self.expected(run)
        for words in self.seen:
            assert np.array_equal(words, self.wanted[words[0, 0]]), f"mini-batch {words[0, 0]} of {len(self.seen)}"
        return result, wanted

    def compare(self, run, told, left, unset=()):
        """unset: names of what was not written of the result block."""
        result, wanted = self.taken(run)
        assert (told["code"], result.code) == (0, 0), told
        self.equal(left.mailbox, wanted.mailbox)
        self.equal(left.rows, wanted.rows)
        counted = [name for name in COUNTED if name not in unset]
        assert {name: told[name] for name in counted} == {name: result.counters[name] for name in counted}
        assert unset or told["dma_rd"] + told["shared"] == result.cold
        assert self.count(told, DISPATCHED) == self.count(told, FINISHED) == len(self.seen) == len(result.batches)
        self.result = result
        return told["cycles"]

    @staticmethod
    def count(told, names):
        """Of all GPUs."""
        return sum(told[name] for name in names)

    def unset(self, told):
        """What is in a beat of the result block that was refused: as it was before, and in one beat alone."""
        values = {value.name: value for value in self.kernel.result}
        names = {name for name, value in told.items() if value in (UNSET, UNSET << 32 | UNSET)}
        assert len({values[name].word // self.words for name in names}) <= 1, names
        return names

    def cut(self, run, told, left, result=None):
        """Mini-batches that were taken are right, rows are as the gathered ones that are told as updated leave them.
        result: the oracle's, if it has run."""
        unset = self.unset(told)
        if told["code"] == 0:
            self.compare(run, told, left, unset)
            return False
        result = result or self.taken(run)[0]
        gathered = [batch for batch in result.batches if batch.kind == GATHERED]
        if "batches_updated" not in unset:
            assert told["batches_updated"] <= len(gathered)
            self.equal(left.rows, self.rows_after(run, gathered[:told["batches_updated"]]))
        assert self.count(told, FINISHED) == len(self.gpu.finished) <= self.count(told, DISPATCHED)
        assert self.count(told, DISPATCHED) >= len(self.seen)
        return False        # which mini-batches had to be dispatched cannot be said

    def rows_after(self, run, batches):
        """The rows' buffer as these mini-batches leave it."""
        rows = run.rows.copy().reshape(-1, self.words)
        for batch in batches:
            beats = batch.updates.shape[1] // self.words
            rows[batch.places[:, None] + np.arange(beats)] = batch.updates.reshape(-1, beats, self.words)
        return rows.reshape(-1)

    def judge(self, run, told, left, place):
        """Mini-batches that were taken are right."""
        result, _ = self.taken(run)
        assert result.code and told["code"], told
        assert {name: told[name] for name in place} == {name: getattr(result, name) for name in place}
        self.cut(run, told, left, result)
        return result


tried: Counter = Counter()      # faults by kind, of all files


def mixed(pooled, half=False, **options):
    """Learns, saves, deals: popular and gathered mini-batches, rows that several of them share."""
    log = make.log(21, 130, rows=(300, 200, 20), dim=11, exponent=0.8, **options)
    return run_of(log, Train(6, 3, -0.25, pooled, half), 0.4)


RUNS = {"rows": mixed(False), "pooled": mixed(True, bag=3)}
HALVES = {"rows": mixed(False, True), "pooled": mixed(True, True, bag=3)}


def fixtures():
    """The fixtures `benches`, `bench` and `standing` of a file: cards by memory, the one that faults are tried on,
    and what they are tried on with its cycles."""
    benches = benches_of(lambda memory="ideal", **options: Bench(tried, memory, **options), tried, "Hotline",
                         "HOTRAIL_HOTLINE_FAULTS")

    @pytest.fixture
    def bench(benches):
        return benches(seed=5)

    @pytest.fixture(scope="module", params=RUNS)
    def standing(benches, request):
        run = RUNS[request.param]
        return run, benches(seed=5).same(run)

    return benches, bench, standing
