"""Whether a program of the MLP core can read anything before it is written, whatever its engines' speed.

All words of the on-chip memories are followed through the program. Of time only this is known:
    operations begin one after the other, and their results are written one after the other
    an operation begins when those loads and operations are done that it, or one before it, waits for
    a load begins when the operations that it, or a load of its engine before it, waits for have written all results
"""

import numpy as np

from golden.mlp.core import INTERACT, LAYER, LOAD_ADDENDS, LOAD_ROWS, LOAD_WEIGHTS, Mlp
from golden.mlp.order import LATENCY, blocks
from hw.isa import MLP
from hw.isa.mlp import ADDEND, TARGET

NEVER = -1      # a writer that there is not; a load of number n is -2 - n


class Race(AssertionError):
    pass


class Memory:
    """Who wrote each place last, and the last operation that read it."""

    def __init__(self, shape):
        self.writer, self.reader = np.full(shape, NEVER), np.full(shape, NEVER)


class Replay:
    def __init__(self, core: Mlp, held=()):
        """held: programs that ran before, whose loads are done."""
        self.core = core
        self.rows = Memory((core.units, core.rows, core.row_memory.shape[2], core.pieces))
        self.weights = Memory(core.weight_memory.shape[:2])
        self.addends = Memory(core.addend_memory.shape[:2])
        for program in held:
            self.run(program, settle=True)

    def run(self, words, settle=False):
        self.operation = 0      # the next one's number
        self.waits = {"rows": 0, "weights": 0, "layers": 0}     # of operations
        self.loads = {"rows": 0, "weights": 0}
        self.layers = {"rows": 0, "weights": 0}
        for number, line in enumerate(words):
            self.number, self.item = number, MLP.decode(line)
            if self.item.opcode in (LAYER, INTERACT):
                for engine in self.waits:
                    self.waits[engine] = max(self.waits[engine], getattr(self.item, f"wait_{engine}"))
                (self._layer if self.item.opcode == LAYER else self._interact)()
                self.operation += 1
            else:
                self._load()
        if settle:
            for memory in (self.rows, self.weights, self.addends):
                memory.writer[memory.writer != NEVER] = 1 << 60
                memory.reader[:] = NEVER

    def _race(self, what):
        raise Race(f"instruction {self.number}: {what}")

    # Loads.

    def _load(self):
        item, c = self.item, self.core
        engine = "rows" if item.opcode == LOAD_ROWS else "weights"
        mine = self.loads[engine]
        self.loads[engine] += 1
        self.layers[engine] = max(self.layers[engine], item.wait_layers)
        done = self.layers[engine]
        if item.opcode == LOAD_ROWS and not item.features_in:
            unit, row, line = c._plain(item.count, item.line, item.line_stride, item.row_beats)
            self._bring(self.rows, (unit, row, line), mine, done)
        elif item.opcode == LOAD_ROWS:
            for feature in range(item.feature, item.feature + item.features):
                self._bring(self.rows, self._feature(feature, item.count, item.line
                                                     + feature // c.rows * item.row_beats, item.line_stride,
                                                     item.row_beats), mine, done)
        elif item.opcode == LOAD_WEIGHTS:
            group = np.arange(item.count)
            at = item.weight_line + (group // c.units * item.steps)[:, None] + np.arange(item.steps)
            self._bring(self.weights, ((group % c.units)[:, None], at % self.weights.writer.shape[1]), mine, done)
        else:
            assert item.opcode == LOAD_ADDENDS
            at = (item.addend_line + np.arange(item.count)) % self.addends.writer.shape[1]
            self._bring(self.addends, (slice(None), at), mine, done)

    def _feature(self, feature, count, line, line_stride, beats):
        unit, row, lines, _ = self.core._features(np.array([feature]), count, np.array([line]), line_stride, beats)
        return unit[:, 0, 0], row[0, 0], lines[:, 0, :, 0]

    def _bring(self, memory, at, mine, done):
        if (memory.reader[at] >= done).any():
            self._race("the load takes the place of words that may not have been read")
        writer = memory.writer[at]
        if ((writer >= 0) & (writer < 1 << 60) & (writer >= done)).any():
            self._race("the load may come before what was to be written there earlier")
        memory.writer[at] = -2 - mine
        memory.reader[at] = NEVER

    # Operations.

    def _read(self, memory, at, engine):
        writer = memory.writer[at]
        if (writer == NEVER).any():
            self._race("a tile reads what was never written")
        if (writer <= -2 - self.waits[engine]).any():
            self._race("a tile reads what may not have been loaded")
        if ((writer < 1 << 60) & (writer >= self.waits["layers"])).any():
            self._race("a tile reads what may not have been written")
        memory.reader[at] = self.operation

    def _write(self, memory, at, engine):
        writer = memory.writer[at]
        if (writer <= -2 - self.waits[engine]).any():
            self._race("a tile writes where a load may still come")
        memory.writer[at] = self.operation
        memory.reader[at] = NEVER

    def _layer(self):
        item, c = self.item, self.core
        per = c.rows * c.units
        samples = -(-item.count // per)
        if item.mode == LATENCY:
            order = [(q, s, u) for q in range(-(-item.groups // c.units)) for s in range(samples)
                     for u in range(c.units) if s * per + u * c.rows < item.count]
        else:
            order = [(q * c.groups_per_beat + h, s,
                      None) for q in range(-(-item.groups // c.groups_per_beat)) for s in range(samples)
                     for h in range(c.groups_per_beat) if q * c.groups_per_beat + h < item.groups]
        for group, s, source in order:
            lane = s * per + np.arange(per)
            if source is not None:
                lane = lane[source * c.rows:(source + 1) * c.rows]
            lane = lane[lane < item.count]
            unit, row = lane // c.rows % c.units, lane % c.rows
            piece = np.arange(-(-item.steps * c.width // c.piece))
            line = item.line + piece // c.pieces * item.line_stride + s
            depth = self.rows.writer.shape[2]
            self._read(self.rows, (unit[:, None], row[:, None], line % depth, piece % c.pieces), "rows")
            for g in range(group * c.units, min(item.groups, (group + 1) * c.units)) if source is not None else (
                    group,):
                self._group(g, s, samples, source, unit, row)

    def _group(self, g, s, samples, source, unit, row):
        """A column group of a tile: its weights, addends and results."""
        item, c = self.item, self.core
        at = item.weight_line + g // c.units * item.steps + np.arange(item.steps)
        self._read(self.weights, (g % c.units, at % self.weights.writer.shape[1]), "weights")
        lines = self.addends.writer.shape[1]
        place, nth = unit, g * samples + s
        if source is not None:
            place, nth = np.full(len(unit), g % c.units), (g // c.units * samples + s) * c.units + source
        if item.addend == ADDEND.PARTIAL:
            self._read(self.addends, (place, (item.addend_line + nth * c.rows + row) % lines), "weights")
        elif item.addend:
            self._read(self.addends, (np.unique(place), (item.addend_line + g) % lines), "weights")
        q, h = divmod(g, c.groups_per_beat)
        banks = h * (c.columns // c.piece) + np.arange(c.columns // c.piece)
        depth = self.rows.writer.shape[2]
        if item.target == TARGET.PARTIAL:
            self._write(self.addends, (place, (item.to_line + nth * c.rows + row) % lines), "weights")
        elif item.target == TARGET.ROWS:
            self._write(self.rows, (unit[:, None], row[:, None], (item.to_line + q * item.to_line_stride + s) % depth,
                                    banks), "rows")
        elif item.target == TARGET.FEATURE:
            at = item.to_line + (s * c.rows + row) * item.to_line_stride + q
            self._write(self.rows, (unit[:, None], item.feature % c.rows, at[:, None] % depth,
                                    (banks + item.feature // c.rows) % c.pieces), "rows")
        else:
            assert item.target == TARGET.MEMORY

    def _interact(self):
        item, c = self.item, self.core
        per, depth = c.rows * c.units, self.rows.writer.shape[2]
        for s in range(-(-item.count // per)):
            for r in range(c.rows):
                lane = s * per + np.arange(c.units) * c.rows + r
                unit = np.flatnonzero(lane < item.count)
                piece = 0
                for a, b in blocks(c, item.features) if len(unit) else ():
                    live = range(a * c.rows, min(item.features, (a + 1) * c.rows))
                    for group in {a, *(m for m in (2 * b, 2 * b + 1) if m <= a)}:
                        row = np.arange(group * c.rows, min(item.features, (group + 1) * c.rows)) % c.rows
                        line = item.line + (s * c.rows + r) * item.line_stride + group * item.row_beats
                        line = (line + np.arange(item.row_beats)) % depth
                        self._read(self.rows, (unit[:, None, None], row[:, None], line), "rows")
                    kept = sum(-(-min(max(f - b * c.columns, 0), c.columns) // c.piece) for f in live)
                    number = piece + np.arange(kept)
                    piece += kept
                    self._write(self.rows, (unit[:, None], r,
                                            (item.to_line + number // c.pieces * item.to_line_stride + s)
                                            % depth, number % c.pieces), "rows")
