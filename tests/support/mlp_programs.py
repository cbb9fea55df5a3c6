"""Programs of the MLP core, put together at random: every field, waits for everything before, lines used once; and
mistakes in them.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gen.compiler.emb import encode
from golden.mlp.program import ENGINES, OTHERS, Rules, Waits, stored_beats
from hw.isa import MLP
from hw.isa.kernel import Decoded
from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.config import MlpConfig
from tests.support.differential import Draw
from tests.support.program_mutator import ProgramMutator, shorter

MUTATOR = ProgramMutator(MLP)
LAYER = MLP.instruction("LAYER").opcode
FIELDS = ("wait_rows", "wait_weights", "wait_layers")       # by engine
WAITS = {"LOAD_ROWS": "wait_rows", "LOAD_WEIGHTS": "wait_weights", "LOAD_ADDENDS": "wait_weights"}


class Full(Exception):
    """A memory has no lines left for what was drawn."""


@dataclass
class Run:
    """A program with all that it needs."""

    words: np.ndarray       # (instructions, 16)
    inputs: np.ndarray      # (beats, words of a beat)
    weights: np.ndarray     # (beats, words of a beat)
    outputs_beats: int
    count: int | None = None
    mistake: str = ""
    wild: bool = False      # it reads what it has not loaded
    refused: bool = False   # an instruction of it is

    def copy(self) -> "Run":
        return Run(self.words.copy(), self.inputs.copy(), self.weights.copy(), self.outputs_beats, self.count)


class Mix:
    """A program that grows. Everything waits for all that stands before it.

    reuse: how often a region lies in one that was used before, else regions never overlap, but wrap; eager: whether a
    load to lines that nothing before it uses may wait for less.
    """

    def __init__(self, config: MlpConfig, draw: np.random.Generator, *, rows_from: int | None = None,
                 weights_from: int | None = None, addends_from: int | None = None, reuse: float = 0.0,
                 eager: bool = False):
        self.config, self.draw, self.reuse, self.eager = config, draw, reuse, eager
        self.words: list[np.ndarray] = []
        self.inputs: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []
        self.at = {"inputs": 0, "weights": 0, "outputs": 0}
        self.before = {"wait_rows": 0, "wait_weights": 0, "wait_layers": 0}
        depths = {"rows": config.row_lines, "weights": config.weight_lines, "addends": config.addend_lines}
        given = {"rows": rows_from, "weights": weights_from, "addends": addends_from}
        self.depths = depths
        self.next = {name: int(draw.integers(depth)) if given[name] is None else given[name]
                     for name, depth in depths.items()}
        self.used = dict.fromkeys(depths, 0)
        self.regions: dict[str, list[tuple[int, int]]] = {name: [] for name in depths}
        self.fresh = False      # the region that was drawn last

    def run(self) -> Run:
        words = self.config.words
        inputs, weights = (np.concatenate(parts) if parts else np.zeros((0, words), np.uint32)
                           for parts in (self.inputs, self.weights))
        return Run(np.stack(self.words), inputs, weights, self.at["outputs"])

    def lines(self, space: str, lines: int) -> int:
        """A region that nothing else uses, or a part of one."""
        depth = self.depths[space]
        before = [region for region in self.regions[space] if region[1] >= lines]
        self.fresh = not before or self.draw.random() >= self.reuse
        if not self.fresh:
            at, most = before[int(self.draw.integers(len(before)))]
            return (at + int(self.draw.integers(most - lines + 1))) % depth
        if self.used[space] + lines > depth:
            raise Full
        at = self.next[space]
        self.next[space] = (at + lines) % depth
        self.used[space] += lines
        self.regions[space].append((at, lines))
        return at

    def data(self, arena: str, beats: int, half: int = 0) -> int:
        """Random words in a buffer, or twice as many binary16 ones, behind a gap."""
        gap = int(self.draw.integers(3))
        numbers = self.draw.standard_normal((gap + beats, self.config.words * (1 + half)))
        getattr(self, arena).append(numbers.astype(np.float16 if half else np.float32).view(np.uint32))
        at = self.at[arena] + gap
        self.at[arena] += gap + beats
        return at

    def add(self, name: str, **values: int) -> None:
        self.words.append(MUTATOR.garble(self.draw, encode(name, {**self.before, **values}, MLP)))
        self.before[WAITS.get(name, "wait_layers")] += 1

    def take_back(self) -> None:
        """The last instruction."""
        opcode = int(self.words.pop()[0]) & 0xFF
        self.before[WAITS.get(MLP.opcodes[opcode], "wait_layers")] -= 1

    def load(self, name: str, fresh: bool, **values: int) -> None:
        """fresh: whether nothing before it uses its lines."""
        waits = {wait: int(self.draw.integers(count + 1)) for wait, count in self.before.items()}
        self.add(name, **(waits if fresh and self.eager else {}), **values)

    def samples(self, count: int) -> int:
        return -(-count // self.config.samples)

    def upto(self, most: int) -> int:
        return int(self.draw.integers(1, most + 1))

    # Operands. A plain region is (line, line_stride, count, steps): so many a layer may take of it.

    def plain(self, count: int, beats: int) -> tuple[int, int, int, int]:
        line_stride = self.samples(count) + int(self.draw.integers(2))
        steps = beats * self.config.words // self.config.width
        return self.lines("rows", beats * line_stride), line_stride, count, steps

    def rows(self, count: int, beats: int) -> tuple[int, int, int, int]:
        line, line_stride, _, _ = region = self.plain(count, beats)
        fresh = self.fresh
        half = int(self.draw.integers(2))
        stored = stored_beats(beats, half)
        stride = stored + int(self.draw.integers(2)) * self.upto(3)
        source = self.data("inputs", (count - 1) * stride + stored, half)
        self.load("LOAD_ROWS", fresh, half=half, count=count, source=source, stride=stride, row_beats=beats, features=1,
                  line=line, line_stride=line_stride)
        return region

    def layer(self, region: tuple[int, int, int, int], *, target: int, groups: int, steps: int | None = None,
              mode: int | None = None, addend: int | None = None, partials: int = 0, activation: int | None = None,
              **where: int) -> None:
        """A layer of its own weights and addends over a plain region. partials: their line, with addend PARTIAL."""
        config, draw = self.config, self.draw
        line, line_stride, count, most = region
        mode = int(draw.integers(2)) if mode is None else mode
        addend = int(draw.integers(2)) if addend is None else addend
        steps = int(draw.choice([most, self.upto(most)])) if steps is None else steps
        if activation is None:
            activation = int(draw.integers({TARGET.PARTIAL: 1, TARGET.MEMORY: 3}.get(target, 2)))
        weight_line = self.lines("weights", -(-groups // config.units) * steps)
        self.load("LOAD_WEIGHTS", self.fresh, count=groups, steps=steps, weight_line=weight_line,
                  source=self.data("weights", groups * steps * config.line_beats))
        addend_line = partials
        if addend == ADDEND.BIAS:
            addend_line = self.lines("addends", groups)
            self.load("LOAD_ADDENDS", self.fresh, count=groups, addend_line=addend_line,
                      source=self.data("weights", -(-groups // config.groups_per_beat)))
        self.add("LAYER", mode=mode, addend=addend, target=target, activation=activation, count=count, line=line,
                 line_stride=line_stride, steps=steps, groups=groups, weight_line=weight_line,
                 last_columns=self.upto(config.columns),
                 addend_line=addend_line, **where)

    def to_rows(self, region: tuple[int, int, int, int], groups: int, **more: int) -> tuple[int, int, int, int]:
        """Behind the last group its beat stays as it was: it may be read where the region was loaded before."""
        beats, loaded = -(-groups // self.config.groups_per_beat), self.draw.integers(2)
        line, line_stride, count, steps = (self.rows if loaded else self.plain)(region[2], beats)
        self.layer(region, target=TARGET.ROWS, groups=groups, to_line=line, to_line_stride=line_stride, **more)
        return line, line_stride, count, steps if loaded else groups * self.config.columns // self.config.width

    def partials_lines(self, count: int, groups: int, mode: int) -> int:
        config, samples = self.config, self.samples(count)
        if mode:
            return -(-groups // config.units) * samples * config.units * config.rows
        return groups * samples * config.rows

    def to_memory(self, region: tuple[int, int, int, int], groups: int, **more: int) -> None:
        beats = -(-groups // self.config.groups_per_beat)
        stride = beats + int(self.draw.integers(2)) * self.upto(2)
        out = self.at["outputs"] + int(self.draw.integers(3))
        self.at["outputs"] = out + (region[2] - 1) * stride + beats
        self.layer(region, target=TARGET.MEMORY, groups=groups, out=out, out_stride=stride, **more)

    def in_parts(self, count: int) -> None:
        """A layer to partials and one that adds to them, in the same mode, into memory."""
        mode, groups = int(self.draw.integers(2)), self.upto(4)
        lines = self.partials_lines(count, groups, mode)
        first, second = (self.rows(count, self.upto(2)) for _ in range(2))
        at = self.lines("addends", lines)
        self.layer(first, target=TARGET.PARTIAL, groups=groups, mode=mode, activation=0, to_line=at)
        if self.draw.integers(2):
            self.layer(self.rows(count, 1), target=TARGET.PARTIAL, groups=groups, mode=mode, activation=0,
                       addend=ADDEND.PARTIAL, partials=at, to_line=at)
        self.to_memory(second, groups, mode=mode, addend=ADDEND.PARTIAL, partials=at)

    def interact(self, count: int, features: int, beats: int) -> None:
        """Features that are loaded and one that a layer makes, their products, and a layer of these. With `reuse` a
        sample's features may lie where other samples' do."""
        config = self.config
        groups = -(-features // config.rows)
        least = beats if self.draw.random() < self.reuse else groups * beats
        line_stride = int(self.draw.integers(least, groups * beats + 2))
        line = self.lines("rows", self.samples(count) * config.rows * max(line_stride, groups * beats))
        fresh = self.fresh
        made = int(self.draw.integers(features))
        for first, last in ((0, made), (made + 1, features)):
            if first < last:
                half = int(self.draw.integers(2))
                stored = stored_beats(beats, half)
                stride = stored + int(self.draw.integers(2))
                number = count * (last - first)
                self.load("LOAD_ROWS", fresh, features_in=1, half=half, count=count, stride=stride, row_beats=beats,
                          source=self.data("inputs", (number - 1) * stride + stored, half), features=last - first,
                          feature=first, line=line, line_stride=line_stride)
        self.layer(self.rows(count, 1), target=TARGET.FEATURE, groups=beats * config.groups_per_beat, feature=made,
                   to_line=line + made // config.rows * beats, to_line_stride=line_stride)
        pieces = 0
        for a in range(groups):
            for f in range(a * config.rows, min(features, (a + 1) * config.rows)):
                for b in range(-(-(min(features, (a + 1) * config.rows) - 1) // config.columns)):
                    pieces += -(-min(max(f - b * config.columns, 0), config.columns) // config.piece)
        products = self.plain(count, -(-pieces // config.pieces))
        self.add("INTERACT", count=count, row_beats=beats, features=features, line=line, line_stride=line_stride,
                 to_line=products[0], to_line_stride=products[1])
        self.to_memory(products, self.upto(3), steps=pieces * config.piece // config.width)


def any_program(config: MlpConfig, draw: np.random.Generator, *, reuse: float = 0.0, eager: bool = False) -> Run:
    """One to three times: layers over each other's results, partial results, an interaction. reuse, eager: see Mix."""
    rules = Rules(config)
    while True:
        mix = Mix(config, draw, reuse=reuse, eager=eager)
        try:
            for _ in range(mix.upto(3)):
                kind, count = int(draw.integers(3)), mix.upto(3 * config.samples)
                if kind == 0:
                    region = mix.rows(count, mix.upto(3))
                    for _ in range(int(draw.integers(3))):
                        region = mix.to_rows(region, mix.upto(4))
                    mix.to_memory(region, mix.upto(5))
                elif kind == 1:
                    mix.in_parts(count)
                else:
                    mix.interact(min(count, 2 * config.samples), int(draw.integers(2, 3 * config.rows + 1)),
                                 mix.upto(2))
            run = mix.run()
        except Full:
            continue        # draw another one
        if all(rules.apart(MLP.decode(words.tolist())) for words in run.words):
            return run


class Wild(Mix):
    """Instructions with any fields that are allowed one by one, over whatever lies in the memories: lines anywhere and
    past a memory's end, strides of nothing, features past the last, every kind of number."""

    WORDS = (0, 1, 0x80000000, 0x00800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001,
             0xFFFFFFFF)
    BEATS = 200     # of a buffer

    def __init__(self, config: MlpConfig, draw: np.random.Generator):
        super().__init__(config, draw)
        for arena in (self.inputs, self.weights):
            beats = draw.standard_normal((self.BEATS, config.words)).astype(np.float32).view(np.uint32)
            special = draw.random(beats.shape) < draw.choice((0, 0.02))
            beats[special] = draw.choice(np.array(self.WORDS, np.uint32), special.sum())
            arena.append(beats)
        self.at["outputs"] = self.BEATS

    def any(self, *values: int) -> int:
        """One of these, or of all below the last, which is not among them."""
        *values, end = values
        return int(self.draw.choice(values)) if values and self.draw.integers(2) else int(self.draw.integers(end))

    def of(self, lines: int) -> int:
        return self.any(0, lines - 1, lines, 0xFFFF, lines)

    def place(self, beats: int) -> int:
        """An offset in a buffer, mostly one that so many beats fit behind."""
        return self.any(self.BEATS - beats if beats < self.BEATS else 0, max(1, self.BEATS - beats + 1))

    def waiting(self, waits: Waits) -> Decoded:
        """The last instruction, waiting for as little as it has to or for anything more."""
        words = self.words[-1]
        item = MLP.decode(words.tolist())
        if waits.rules.allowed(item):
            for engine in OTHERS[ENGINES[item.opcode]]:
                least, most = waits.needed(item, engine), waits.before[engine]
                MUTATOR.set(words, FIELDS[engine], int(self.draw.choice((least, self.draw.integers(least, most + 1)))))
        return MLP.decode(words.tolist())

    def load_rows(self) -> None:
        config, features_in = self.config, self.any(2)
        count, half = 1 + self.any(config.samples, 3 * config.samples), self.any(2)
        features = self.any(1, config.rows, 254 if count == 1 else 2, 3 * config.rows) + 1 if features_in else 1
        row_beats = 1 + self.any(0, config.row_lines + 2 if features * count < 4 else 1, 5)
        stored = stored_beats(row_beats, half)
        stride = self.any(0, stored, 1, stored + 3)
        self.add("LOAD_ROWS", features_in=features_in, half=half, count=count, row_beats=row_beats, features=features,
                 feature=self.any(0, 255, 256), stride=stride,
                 source=self.place((count * features - 1) * stride + stored), line=self.of(config.row_lines),
                 line_stride=self.any(0, 1, 2, self.samples(count), config.row_lines, 0xFFFF, 20))

    def load_weights(self) -> None:
        config = self.config
        count, steps = 1 + self.any(0, config.units, 9), 1 + self.any(0, 12)
        self.add("LOAD_WEIGHTS", count=count, steps=steps, weight_line=self.of(config.weight_lines),
                 source=self.place(count * steps * config.line_beats))

    def load_addends(self) -> None:
        config = self.config
        count = 1 + self.any(0, config.addend_lines + 2, 20)
        self.add("LOAD_ADDENDS", count=count, addend_line=self.of(config.addend_lines),
                 source=self.place(-(-count // config.groups_per_beat)))

    def any_layer(self) -> None:
        config, target = self.config, self.any(4)
        count, groups = 1 + self.any(0, config.samples, 4 * config.samples), 1 + self.any(0, config.units, 12)
        beats = -(-groups // config.groups_per_beat)
        addend = self.any(3)
        addend_line = self.of(config.addend_lines)
        to_line = self.of(config.addend_lines if target == TARGET.PARTIAL else config.row_lines)
        least = {TARGET.ROWS: self.samples(count), TARGET.FEATURE: beats}.get(target, 0)
        out_stride = beats + self.any(0, 3)
        self.add("LAYER", mode=self.any(2), addend=addend, target=target,
                 activation=self.any({TARGET.PARTIAL: 1, TARGET.MEMORY: 3}.get(target, 2)), count=count,
                 feature=self.any(0, 255, 256), line=self.of(config.row_lines),
                 line_stride=self.any(0, 1, config.row_lines, 0xFFFF, 20), steps=1 + self.any(0, 12), groups=groups,
                 weight_line=self.of(config.weight_lines), last_columns=self.upto(config.columns),
                 addend_line=addend_line, to_line=addend_line if addend == ADDEND.PARTIAL and self.any(2) else to_line,
                 to_line_stride=least + self.any(0, 3), out=self.place((count - 1) * out_stride + beats),
                 out_stride=out_stride)

    def any_interact(self) -> None:
        config = self.config
        count = 1 + self.any(0, config.samples)
        self.add("INTERACT", count=count, row_beats=1 + self.any(0, 3), features=2 + self.any(0, 4 * config.rows),
                 line=self.of(config.row_lines), line_stride=self.any(0, 1, config.row_lines, 0xFFFF, 20),
                 to_line=self.of(config.row_lines), to_line_stride=self.samples(count) + self.any(0, 3))


def wild_program(config: MlpConfig, draw: np.random.Generator) -> Run:
    """Up to a dozen of any instructions that do not share lines with themselves; now and then one does, or reaches
    past a buffer."""
    mix, waits = Wild(config, draw), Waits(Rules(config))
    kinds = (mix.load_rows, mix.load_weights, mix.load_addends, mix.any_layer, mix.any_layer, mix.any_layer,
             mix.any_interact)
    refused = False
    for _ in range(mix.upto(12)):
        kinds[int(draw.integers(len(kinds)))]()
        item = mix.waiting(waits)
        if waits.refusal(item, [mix.BEATS] * 3):
            if draw.random() < 0.9:
                mix.take_back()
                continue
            refused = True
        waits.add(item)
    if not mix.words:
        mix.load_addends()
    run = mix.run()
    run.wild, run.refused = True, refused
    return run


def everything(config: MlpConfig, draw: np.random.Generator) -> Run:
    """Loads every line of every memory."""
    steps = min(config.weight_lines, MLP.field("steps").highest + 1 >> 1)       # divides the lines, a power of two
    groups = config.units * config.weight_lines // steps
    mix = Mix(config, draw, rows_from=0, weights_from=0, addends_from=0)
    mix.add("LOAD_ROWS", count=config.samples, source=mix.data("inputs", config.samples * config.row_lines),
            stride=config.row_lines, row_beats=config.row_lines, features=1, line=0, line_stride=1)
    mix.add("LOAD_WEIGHTS", count=groups, steps=steps, weight_line=0,
            source=mix.data("weights", groups * steps * config.line_beats))
    mix.add("LOAD_ADDENDS", count=config.addend_lines, addend_line=0,
            source=mix.data("weights", config.addend_lines // config.groups_per_beat))
    return mix.run()


class Programs(Draw):
    """Draws programs, and mistakes in them."""

    LONGEST = 20_000        # steps of an instruction

    def __init__(self, config: MlpConfig, random: np.random.Generator):
        super().__init__(MLP, random)
        self.config = config

    def draw(self, wrong: bool = False) -> Run:
        while True:
            if self.r.random() < 0.4:
                run = wild_program(self.config, self.r)
            else:
                run = any_program(self.config, self.r, reuse=float(self.one((0, 0.3, 0.7))), eager=not wrong)
            if (wrong or run.refused) and self.overwrites(run):     # when it ends decides which results are there
                continue
            if not wrong:
                return run
            self.spoil(run, self.edge, self.edge, self.edge, self.reserved, self.order, self.unlike, self.unlike,
                       self.word, self.late, self.early, self.early, self.shorter)
            if not self.long(run):
                return run

    def overwrites(self, run: Run) -> bool:
        """Whether results may lie in the outputs where others do."""
        items = [item for words in run.words if (item := MLP.decode(words.tolist())).opcode == LAYER
                 and item.target == TARGET.MEMORY]
        spans = sorted((item.out, item.out + (item.count - 1) * item.out_stride
                        - (-item.groups // self.config.groups_per_beat)) for item in items)
        return any(end > begin for (_, end), (begin, _) in pairwise(spans))

    def unlike(self, run: Run, number: int) -> str:
        """Fields that do not go together, or that mean another layer, or lines that may be those that are read."""
        words, value_of = run.words[number], self.mutator.value_of
        at = value_of(words, self.one(("line", "addend_line", "to_line"))) + int(self.r.integers(-2, 3))
        return self.put(run, number, *self.one((
            ("to_line_stride", int(self.r.integers(4))), ("to_line", at & 0xFFFF), ("addend_line", at & 0xFFFF),
            ("last_columns", self.config.columns + 1), ("features", 2), ("features_in", int(self.r.integers(2))),
            ("half", int(self.r.integers(2))), ("mode", int(self.r.integers(2))),
            ("out_stride", int(self.r.integers(4))),
            *((name, int(self.r.integers(4))) for name in ("addend", "target", "activation")))))

    def word(self, run: Run, number: int) -> str:
        """Anything in a word of sizes and places."""
        word = self.upto(11)
        run.words[number, word] = self.r.integers(1 << 32)
        return f"word {word} = {run.words[number, word]:#x}"

    def late(self, run: Run, number: int) -> str:
        """Waits for more than comes before it."""
        name = self.one(FIELDS)
        return self.put(run, number, name, self.one((self.mutator.value_of(run.words[number], name) + 1, 1 << 31)))

    def early(self, run: Run, number: int) -> str:
        """Waits for less."""
        name = self.one(FIELDS)
        value = self.mutator.value_of(run.words[number], name)
        return self.put(run, number, name, self.one((0, max(0, value - 1), int(self.r.integers(value + 1)))))

    def shorter(self, run: Run, number: int) -> str:
        buffer = self.one([name for name in ("inputs", "weights", "outputs")
                           if run.outputs_beats > 0 or name != "outputs"])
        shorter(buffer)(run)
        return f"{buffer} a beat shorter"

    def long(self, run: Run) -> bool:
        """Whether an instruction that may be allowed takes too long to be tried."""
        for words in run.words:
            item = MLP.decode(words.tolist())
            kind = MLP.opcodes.get(item.opcode)
            sizes = {use.field: getattr(item, use.field) for use in MLP.instruction(kind).uses} if kind else {}
            if any(value > MLP.field(name).highest for name, value in sizes.items()):
                continue
            steps = item.count * max(item.features, 1) * max(item.row_beats, 1) * max(item.groups, 1) * max(
                item.steps, 1) * (item.features if kind == "INTERACT" else 1)
            ends = {"LOAD_ROWS": (item.source + (item.count * item.features - 1) * item.stride, len(run.inputs)),
                    "LOAD_WEIGHTS": (item.source + item.count * item.steps, len(run.weights)),
                    "LOAD_ADDENDS": (item.source + item.count // self.config.groups_per_beat, len(run.weights))}
            end, size = ends.get(kind, (0, 0))
            if item.target == TARGET.MEMORY:
                end, size = item.out + (item.count - 1) * item.out_stride, run.outputs_beats
            if steps > self.LONGEST and end <= size:
                return True
        return False
