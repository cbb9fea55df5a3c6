"""Programs of the Hotline core that nobody compiles: registers, images, learning and dealing in any order, with a GPU
that goes by the program alone; and mistakes in them.
"""

from collections import Counter

import numpy as np

from fpga.api.gpu import GATHERED, Gpu, Places, Times
from gen.compiler.emb import encode
from golden.hotline.bank import WAYS
from hw.isa import HOTLINE
from hw.isa.hotline import JOIN
from tests.support import hotline_logs as make
from tests.support.differential import Differential, Draw, opened
from tests.support.hotline_bench import Bench, run_of
from tests.support.program_mutator import shorter

FLOAT = (0, 0x80000000, 0x3F800000, 0xBE800000, 0x7F800000, 0x7FC00001, 1, 0x00800000, 0xFFFFFFFF)


class Dealing:
    """Where the mini-batches of a program's TRAIN lie; of several TRAINs, all must be alike. how: its fields."""

    def __init__(self, words):
        joins, self.how = {}, None
        for line in words.tolist():
            item = HOTLINE.decode(line)
            kind = HOTLINE.opcodes.get(item.opcode)
            if kind == "S_WR":
                joins[item.position] = item.join
            elif kind == "TRAIN":
                self.how = item
                break
        how = self.how
        self.vectors = sum(joins.get(at, JOIN.BEGIN) == JOIN.BEGIN for at in range(how.indices)) if how else 0

    def beats(self, header):
        """Of the mini-batch with this header."""
        _, kind, samples, cold = (int(word) for word in header[:4])
        rest = (samples * self.vectors if self.how.pooled else cold) << self.how.row_beats_log2
        return 1 + samples * self.how.sample_beats + (-(-rest // (1 + self.how.half)) if kind == GATHERED else 0)


def gradients(words, cold, row_words):
    """Of all words of a mini-batch, (cold, row_words)."""
    mixed = int(words.sum(dtype=np.uint64) % 1009) + 31 * np.arange(cold)[:, None] + 7 * np.arange(row_words)
    return ((mixed % 61 - 30) / 16).astype(np.float32)


class WordGpu(Gpu):
    """GPUs that know a program's words and no tables."""

    def __init__(self, run, watch):
        super().__init__(run.log.layout, None, run.times, watch=watch)
        self.dealing = Dealing(run.words)

    def places(self, _how):
        how, gpus = self.dealing.how, self.layout.config.gpus
        return Places(gpus, how.mailbox_slots, how.mailbox_pitch, how.gradients_pitch) if how else Places(gpus, 1, 0, 0)

    def beats(self, _how, header):
        return self.dealing.beats(header)

    def train(self, _how, words):
        made = gradients(words, int(words[0, 3]), words.shape[1] << self.dealing.how.row_beats_log2)
        return made, made


class ProgramBench(Bench):
    """A bench whose GPU goes by the program."""

    def device(self, run):
        return WordGpu(run, self.seen.append)

    def answer(self, run, batch, words):
        rows, row_words = batch.updates.shape
        return gradients(words.reshape(-1), rows, row_words)


class Programs(Draw):
    """Draws programs for a core, whose image is `oracle.image`."""

    def __init__(self, config, random):
        super().__init__(HOTLINE, random)
        self.config, self.image = config, np.zeros((config.banks, config.sets, WAYS), np.uint32)

    def draw(self, wrong=False):
        run = self.program()
        for words in run.words:
            self.mutator.garble(self.r, words)
        if wrong:
            self.spoil(run, self.edge, self.edge, self.edge, self.reserved, self.order, self.word, self.index,
                       self.alias, self.shorter)
        return run

    def program(self):
        r, config = self.r, self.config
        log, how = make.wild(r, config)
        run = run_of(log, how, 0, saves=False, times=Times(int(2 ** r.uniform(0, 11)), int(r.integers(20))))
        registers = run.words[:len(log.layout.positions)]
        train = self.fields(run.words[-1], "TRAIN")
        gaps = [int(r.integers(3)) for _ in range(4)]
        # Other places, and room between them.
        run.inputs = self.behind(run.inputs, gaps[0])
        run.rows = self.behind(run.rows, gaps[1])
        for words in registers:
            if not self.mutator.value_of(words, "pinned"):
                self.mutator.set(words, "base", self.mutator.value_of(words, "base") + gaps[1])
        train |= {"source": gaps[0], "mailbox_pitch": train["mailbox_pitch"] + gaps[2],
                  "gradients_pitch": train["gradients_pitch"] + gaps[3],
                  "rate": int(self.one(FLOAT)) if r.random() < 0.3 else train["rate"]}
        mailbox_beats = config.gpus * train["mailbox_slots"] * train["mailbox_pitch"]
        run.mailbox_beats = mailbox_beats + log.layout.image_beats + 1
        run.gradients_beats = config.gpus * train["mailbox_slots"] * train["gradients_pitch"]
        image = len(run.inputs)
        run.inputs = np.concatenate([run.inputs, self.an_image().reshape(-1, config.words)])
        steps = []
        for _ in range(int(r.integers(4))):
            kind = self.one(("LEARN", "LEARN", "CLEAR", "SAVE", "LOAD"))
            first = int(r.integers(train["count"]))
            steps.append(encode(kind, {
                "LEARN": {"source": train["source"] + first * train["sample_beats"],
                          "count": self.upto(train["count"] - first, 1),
                          **{name: train[name] for name in ("sample_beats", "indices")}},
                "CLEAR": {},
                "SAVE": {"out": mailbox_beats + int(r.integers(2))},
                "LOAD": {"source": image}}[kind], HOTLINE))
        at = self.upto(len(steps))
        # Registers in any order, some written twice: the last counts.
        order = r.permutation(len(registers))
        early = [registers[number] for number in order if r.random() < 0.2]
        run.words = np.stack([*early, *registers[r.permutation(len(registers))], *steps[:at],
                              encode("TRAIN", train, HOTLINE), *steps[at:]])
        return run

    def behind(self, beats, gap):
        return np.concatenate([self.r.integers(1 << 32, size=(gap, self.config.words), dtype=np.uint32), beats])

    def fields(self, words, name):
        return {use.field: self.mutator.value_of(words, use.field) for use in HOTLINE.instruction(name).uses}

    def an_image(self):
        """What was learned before, its ways in another order, some entries there twice; bits behind it are ignored."""
        image = self.r.permuted(self.image, axis=2)
        twice = self.r.random(image.shape[:2]) < 0.1
        image[twice, 1] = image[twice, 0]
        above = self.r.integers(1 << 15, size=image.shape, dtype=np.uint32) << np.uint32(17)
        return (image | above).swapaxes(0, 1).reshape(-1)

    # Mistakes.

    def word(self, run, number):
        word = self.upto(12)
        run.words[number, word] = self.r.integers(1 << 32)
        return f"word {word} = {run.words[number, word]:#x}"

    def index(self, run, number):
        at = tuple(int(self.r.integers(size)) for size in run.inputs.shape)
        run.inputs[at] = self.one((0, 1 << 31, (1 << 32) - 1, self.r.integers(2000)))
        return f"word {at} of the inputs = {run.inputs[at]:#x}"

    def alias(self, run, number):
        """A register with what another one says of rows."""
        writes = [at for at, words in enumerate(run.words) if int(words[0]) & 0xFF == 1]
        here, there = self.one(writes), self.one(writes)
        name = self.one(("base", "first_low", "table_rows", "join", "pinned"))
        return f"{here}: {self.put(run, here, name, self.mutator.value_of(run.words[there], name))}"

    def shorter(self, run, number):
        buffer = self.one(("inputs", "rows", "mailbox", "gradients"))
        shorter(buffer, self.upto(3, 1))(run)
        return f"{buffer} shorter"


class Trials(Differential):
    """Programs on the core and the oracle; there is no twin."""

    twins = False

    def __init__(self, config=make.TINY, memory="ideal", seed=1):
        self.config = config
        super().__init__(Programs(config, np.random.default_rng(seed)), memory)

    def bench(self, kind):
        bench = ProgramBench(Counter(), config=self.config,
                             opened=opened(kind, "hotline", self.config, memory=self.memory))
        self.programs.image = bench.core.image
        return bench

    def again(self):
        """The logger forgets."""
        run = self.programs.program()
        run.words = encode("CLEAR", {}, HOTLINE)[None]
        assert not self.compare(run)
