"""Real programs for the packaged tops, small ones: compiled by gen, carried out by golden, judged bit for bit."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gen.compiler.emb import Bags, Program
from gen.compiler.emb import Compiler as EmbCompiler
from gen.compiler.hotline import Layout, Position, Train
from gen.compiler.hotline import Table as HotlineTable
from gen.compiler.mlp import Compiler
from gen.compiler.tables import DRAM, SSD, TT, CardImages, Table
from gen.model.network import Model
from gen.rtl.config import load
from golden.emb.core import Emb, Memory
from golden.hotline.train import GATHERED, Hotline
from golden.hotline.train import Memory as HotlineMemory
from golden.mlp.core import Memory as MlpMemory
from golden.mlp.core import Mlp
from hw.isa import EMB, HOTLINE, MLP, Kernel
from verif.bench import seed
from verif.bench.xrt import Card, Run, Runs

PRESET = "tiny"
FILL = 0xAA
UNTOUCHED = bytes([FILL])
PAGE = 4096
RING_PAGES = 4
HOTLINE_SIZES = ("words", "positions", "banks", "sets", "frame_beats", "row_slots", "embedding_beats", "policy",
                 "insert_log2")


def words(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint32)


def same(got: bytes, wanted: np.ndarray, what: str) -> None:
    found, wanted = words(got)[:wanted.size], wanted.reshape(-1)
    different = np.flatnonzero(found != wanted)
    assert not len(different), f"{what}: {len(different)} of {wanted.size} words differ, the first is {different[0]}"


class _CoreRun(Run):
    """What the runs of all cores have alike: the program, and a result block that says how it ended."""

    kernel: Kernel

    def __init__(self, program: np.ndarray):
        self.buffers = {"program": (program.tobytes(), True, False),
                        "result": (bytes(4 * self.kernel.result_words), True, True)}
        self.scalars = {"program_count": len(program), "timeout": 20_000}

    def arena(self, name: str, content: np.ndarray | bytes, beat_bytes: int, *, readable: bool = True,
              writable: bool = False) -> None:
        text = content if isinstance(content, bytes) else content.tobytes()
        self.buffers[name] = text, readable, writable
        self.scalars[f"{name}_beats"] = len(text) // beat_bytes

    def told(self, card: Card, name: str) -> int:
        return card.word("result", self.kernel.value(name).word)

    def ended(self, card: Card, counters: dict[str, int], counted: tuple[str, ...]) -> None:
        assert self.told(card, "code") == 0, f"ended with code {self.told(card, 'code')}"
        assert {name: self.told(card, name) for name in counted} == {name: counters[name] for name in counted}


class Work:
    """Tables in all three memories, batches over them, and what the oracle makes of these."""

    def __init__(self, label):
        self.config = load(PRESET).cores["emb"]
        self.draw = np.random.default_rng(seed(label))
        # Rows of 4, 2 and 16 beats of values, stored in 4, 1 and 8, in DRAM in pieces of 2, in one, and of 4; results
        # in every format.
        self.tables = [self._mixed("items", 240, (2, 2, 4), (5, 5, 4), 4), self._mixed("shops", 90, (2, 4), (8, 9), 3),
                       self._wide("texts", 70, 64)]
        self.tables[1:] = [replace(table, results=results, row_format=rows) for table, results, rows in zip(
            self.tables[1:], ("float16", "bfloat16"), ("int8", "float16"), strict=True)]
        self.images = CardImages(self.tables, self.config, PAGE, {"items": 20, "texts": 12})
        assert [placed.lies.piece_beats for placed in self.images.placed.values()] == [2, 0, 4]
        self.ring_beats = RING_PAGES * self.images.page_beats
        self.compiler = EmbCompiler(self.images, ring_beats=self.ring_beats)
        self.oracle = Emb.of(self.config, self.images.cores)
        self.rows = self.images.rows.reshape(-1).copy()

    def _mixed(self, name, rows, columns, modes, rank):
        ranks = (1, *[rank] * (len(modes) - 1), 1)
        cores = [self.draw.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                 for k in range(len(modes))]
        device = self.draw.permutation(np.resize([DRAM, TT, SSD], rows))
        device[device == TT] = np.where(np.cumsum(device == TT)[device == TT] <= np.prod(modes), TT, DRAM)
        values = self.draw.standard_normal((rows, int(np.prod(columns)))).astype(np.float32)
        return Table.place(name, values, device, cores=cores, rank=self.draw.permutation(rows))

    def _wide(self, name, rows, dim):
        return Table.place(name, self.draw.standard_normal((rows, dim)).astype(np.float32),
                           self.draw.choice([DRAM, SSD], rows), rank=self.draw.permutation(rows))

    def batch(self, count=4, longest=6):
        """Requests of every mode over bags that mix the memories, empty bags among them."""
        requests = []
        for number in range(count):
            table = self.tables[number % len(self.tables)]
            lengths = self.draw.integers(0, longest + 1, int(self.draw.integers(2, 6)))
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            indices = self.draw.integers(0, table.rows, offsets[-1])
            mode = ("sum", "mean", "max", "sum")[number % 4]
            weights = self.draw.standard_normal(offsets[-1]).astype(np.float32) if number % 4 == 3 else None
            requests.append(Bags(table.name, indices, offsets, weights, mode))
        program = self.compiler.compile(requests)
        self.compiler.commit(program)
        return program

    def expected(self, program):
        outputs = np.full(program.outputs_beats * self.config.words, FILL * 0x01010101, np.uint32)
        memory = Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, self.rows,
                        self.images.pages[program.pages].reshape(-1), 0, self.ring_beats)
        return self.oracle.run(memory), outputs


class EmbRun(_CoreRun):
    """A program over tables in card memory, in tensor trains and on the SSD, whose pages the host lands."""

    kernel = EMB
    COUNTED = ("instructions", "bags", "indices", "dram_rows", "tt_rows", "ssd_rows", "cache_fills")
    other_writers = {"rows": "m00_axi"}     # the row cache is filled through the port of all writes

    def __init__(self, work: Work, program: Program):
        super().__init__(program.words)
        self.work, self.program = work, program
        self.beat = beat = work.config.beat_bytes
        self.ring = work.ring_beats
        self.arena("inputs", program.inputs, beat)
        self.arena("outputs", UNTOUCHED * (program.outputs_beats * beat), beat, readable=False, writable=True)
        self.arena("rows", work.rows.copy(), beat, writable=True)
        self.arena("ring", bytes(self.ring * beat), beat)
        self.result, self.outputs = work.expected(program)
        self.rows = work.rows.copy()

    def begin(self) -> None:
        self.landed = 0

    def meanwhile(self, card: Card) -> None:
        """Lands the next pages that the released ring has room for, and rings the doorbell."""
        pages, page_beats = self.program.pages, self.program.page_beats
        rang = self.landed
        while self.landed < len(pages) and (
                (self.landed + 1) * page_beats - self.told(card, "released") <= self.ring):
            place = self.landed * page_beats % self.ring * self.beat
            card.write("ring", place, self.work.images.pages[pages[self.landed]].tobytes())
            self.landed += 1
        if self.landed != rang:
            card.write("result", 4 * EMB.value("filled").word, (self.landed * page_beats).to_bytes(4, "little"))

    def judge(self, card: Card) -> None:
        self.ended(card, self.result.counters, self.COUNTED)
        same(card.read("outputs"), self.outputs, "outputs")
        same(card.read("rows"), self.rows, "card memory")


def emb(label: str) -> Runs:
    """Tables are loaded into the tensor-train unit; then batches of all modes that mix the three memories."""
    work = Work(label)
    yield EmbRun(work, work.compiler.load())
    while True:
        yield EmbRun(work, work.batch())


class MlpRun(_CoreRun):
    kernel = MLP
    COUNTED = ("instructions", "rows_beats", "weights_beats", "outputs_beats", "tiles", "slots")

    def __init__(self, oracle: Mlp, compiler: Compiler, dense: np.ndarray, sparse: np.ndarray):
        program, inputs = compiler.compile(len(dense), cold=True), compiler.inputs(dense, sparse)
        super().__init__(program.words)
        beat = 4 * compiler.config.words
        self.outputs = words(UNTOUCHED * (program.outputs_beats * beat)).copy()
        self.arena("inputs", inputs, beat)
        self.arena("weights", compiler.weights, beat)
        self.arena("outputs", self.outputs, beat, readable=False, writable=True)
        self.result = oracle.run(MlpMemory(program.words.reshape(-1), inputs.reshape(-1),
                                           compiler.weights.reshape(-1), self.outputs))

    def judge(self, card: Card) -> None:
        assert self.result.code == 0
        self.ended(card, self.result.counters, self.COUNTED)
        same(card.read("outputs"), self.outputs, "outputs")


def mlp(label: str) -> Runs:
    """Batches of a network with two bottom layers, an interaction by dot products, and two top layers."""
    config, draw = load(PRESET).cores["mlp"], np.random.default_rng(seed(label))
    features, dim = 3, 8
    network = Model("small", "", (9, 64, dim), "dot", features, dim, (9, 2), "relu", "sigmoid").network(seed(label))
    oracle = Mlp.of(config)
    while True:
        count = int(draw.integers(1, 8))
        dense, sparse = (draw.standard_normal((count, *shape), np.float32) for shape in ((network.inputs,),
                                                                                         (features, dim)))
        yield MlpRun(oracle, Compiler(network, config, batch=count), dense, sparse)


class HotlineRun(_CoreRun):
    """Learns from part of a log, saves what was learned and deals all of it to a GPU, which the host plays."""

    kernel = HOTLINE
    COUNTED = ("instructions", "samples", "accesses", "hits", "popular", "batches_popular", "batches_gathered",
               "dma_wr")

    def __init__(self, oracle: Hotline, layout: Layout, how: Train, samples: np.ndarray):
        self.oracle, self.layout, self.how = oracle, layout, how
        self.pitch, self.back = layout.mailbox_pitch(how), layout.gradients_pitch(how)
        mailbox = layout.mailbox_beats(how)
        self.code = np.concatenate([layout.registers(), layout.learn(len(samples) // 2, 0, mailbox),
                                    layout.train(how, len(samples), 0, 0)[1:]])
        super().__init__(self.code)
        self.beat = beat = 4 * layout.config.words
        self.samples, self.rows = samples, layout.rows()
        self.arena("inputs", samples, beat)
        self.arena("mailbox", UNTOUCHED * ((mailbox + layout.image_beats) * beat), beat, readable=False, writable=True)
        self.arena("gradients", UNTOUCHED * (how.slots * self.back * beat), beat)
        self.arena("rows", self.rows, beat, writable=True)
        self.arena("hot", b"", beat)
        self.scalars["timeout"] = 100_000

    @staticmethod
    def gradients(number: int, rows: np.ndarray) -> np.ndarray:
        return rows.view(np.float32) * np.float32(0.25) + np.float32(number % 5 - 2)

    def begin(self) -> None:
        self.seen: list[np.ndarray] = []
        self.kinds: list[int] = []

    def meanwhile(self, card: Card) -> None:
        """Takes the next mini-batch, returns the gradients of its cold rows, and says that it is finished."""
        number = len(self.seen)
        if self.told(card, "dispatched") <= number:
            return
        at = number % self.how.slots
        header = words(card.read("mailbox", at * self.pitch * self.beat, self.beat))
        _, kind, count, cold = header[:4].tolist()
        beats = 1 + count * self.layout.sample_beats + (cold << self.layout.row_beats_log2 if kind == GATHERED else 0)
        batch = words(card.read("mailbox", at * self.pitch * self.beat, beats * self.beat))
        self.seen.append(batch)
        self.kinds.append(kind)
        if kind == GATHERED:
            rows = batch[batch.size - cold * self.layout.row_words:]
            card.write("gradients", at * self.back * self.beat, self.gradients(number, rows).tobytes())
        card.write("result", 4 * HOTLINE.value("finished").word, (number + 1).to_bytes(4, "little"))

    def judge(self, card: Card) -> None:
        """Mini-batches may come in any order of the two kinds: the oracle takes them in the one that was seen."""
        mailbox = words(self.buffers["mailbox"][0]).copy()
        memory = HotlineMemory(self.code.reshape(-1), self.samples.reshape(-1), mailbox, self.rows.reshape(-1).copy(),
                               gradients_beats=self.scalars["gradients_beats"])
        wanted = self.oracle.run(memory, self.kinds, lambda batch: self.gradients(batch.number, batch.rows).view(
            np.uint32) if batch.kind == GATHERED else None)
        assert wanted.code == 0 and {0, GATHERED} == set(self.kinds), "mini-batches of both kinds"
        self.ended(card, wanted.counters, self.COUNTED)
        for got, batch in zip(self.seen, wanted.batches, strict=True):
            same(got[self.layout.config.words:].tobytes(),
                 np.concatenate([batch.samples.reshape(-1), batch.rows.reshape(-1)]), f"mini-batch {batch.number}")
        same(card.read("mailbox"), mailbox, "mailbox")
        same(card.read("rows"), memory.rows, "rows")


def hotline(label: str) -> Runs:
    """Logs over three tables, one of them pinned."""
    config, draw = load(PRESET).cores["hotline"], np.random.default_rng(seed(label))
    oracle = Hotline(**{name: getattr(config, name) for name in HOTLINE_SIZES})
    while True:
        tables = [HotlineTable(f"t{number}", draw.standard_normal((rows, 11), np.float32), number == 2)
                  for number, rows in enumerate((90, 60, 8))]
        layout = Layout(config, tables, [Position(table.name) for table in tables])
        drawn = [np.minimum(draw.zipf(1.4, 60) - 1, len(table.array) - 1) for table in tables]
        samples = layout.samples(np.stack(drawn, axis=1))
        yield HotlineRun(oracle, layout, Train(4, 2, -0.25), samples)


# By the kernel's name: what it is run with, endlessly, from a label of the random numbers.
RUNS: dict[str, Callable[[str], Runs]] = {"hotrail_emb": emb, "hotrail_mlp": mlp, "hotrail_hotline": hotline}
