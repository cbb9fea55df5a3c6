"""A program of the MLP core in a run of its cycle model, without loads: whether a slot comes before what it reads."""

from bisect import bisect_right

from gen.compiler.mlp import Compiler
from gen.compiler.mlp_schedule import FREELY
from golden.mlp import results
from golden.mlp.core import INTERACT, LAYER, Mlp
from hw.isa import MLP
from tests.support.mlp_replay import Replay
from tests.support.mlp_sizes import SHAPES, plain
from verif.mlp.cycles import Sequencer

LAG = MLP.field("max_in_flight").word
NEVER_DONE, DONE = 0, 1 << 31   # loads
SETTLES = 1000                  # cycles, at most

# Of a first layer whose results take two tiles a pass: passes, the last one's first column group, and steps with which
# that one's results for the first samples are written as the second layer reads them: a tile lies between. In latency
# mode of `smartssd` a row's results are two writes, and so rows wait for each other.
EXACT = {("tiny", "throughput"): (9, 8, 29), ("tiny", "latency"): (7, 12, 21),
         ("smartssd", "throughput"): (11, 10, 34), ("smartssd", "latency"): (5, 16, 26),
         ("screc", "throughput"): (3, 2, 29)}


def two_layers(shape, mode, steps_less=0):
    """Two layers, and a batch of them with all weights on chip."""
    config, (_, last, steps) = SHAPES[shape], EXACT[shape, mode]
    # Two groups of samples, or two units' rows.
    count, more = (2 * config.samples, 1) if mode == "throughput" else (2 * config.rows, config.units)
    network = plain((steps - steps_less) * config.width, (last + more) * config.columns, 2 * config.columns)
    compiler = Compiler(network, config, batch=count)
    return compiler, compiler.compile(count, mode=mode)


def freed(words):
    """A program whose last layer waits for no tile."""
    words = words.copy()
    words[-1, LAG] = FREELY
    return words


class Timed(Replay):
    """Follows words as Replay does, but all that counts is when the run had each slot, and its results written.

    random: draws stalls, each cycle, of everything that a tile may wait for; None: there are none
    """

    def __init__(self, core: Mlp, held=(), random=None):
        super().__init__(core, held)
        self.random = random

    def run(self, words, settle=False):
        if not settle:
            self._measure(words)
        super().run(words, settle)

    def _measure(self, words):
        """Of each tile the cycles of its first and of its last slot, and of the first slot that finds its results."""
        items = [{**vars(MLP.decode(line)), "number": number} for number, line in enumerate(words)]
        items = [item | {"interact": item["opcode"] == INTERACT} for item in items
                 if item["opcode"] in (LAYER, INTERACT)]
        sequencer = Sequencer(self.shape)
        self.begins, self.ends_at, self.written_at = [], [], []
        cycle = quiet = turned = passed = 0
        while quiet < SETTLES:
            if sequencer.slot is not None and sequencer.slot[1] == 0:
                self.begins.append(cycle)
            if sequencer.tile is not None:
                self.ends_at.append(cycle)
                # As each row comes, or once those before have had a cycle for each of their writes.
                tile = sequencer.tile
                for row in range(tile.live):
                    turned = max(cycle + self.latency + tile.live + row, turned)
                    turned += results.beats(tile.fields, self.sizes)
                self.written_at.append(turned + results.WRITTEN)
            written = self.written_at[passed:passed + 1] == [cycle + 1]
            passed += written
            offered = items[0] if items and not self._stalls(0.9) else None
            taken = offered is not None and sequencer.ready
            sequencer.step(item=offered, rows_done=NEVER_DONE if self._stalls(0.5) else DONE,
                           weights_done=NEVER_DONE if self._stalls(0.5) else DONE, written=written,
                           room=not self._stalls(0.8))
            if taken:
                items.pop(0)
            cycle += 1
            quiet = quiet + 1 if not items and sequencer.idle else 0
        assert len(self.begins) == len(self.ends_at) == len(self.written_at)

    def _stalls(self, chance):
        return self.random is not None and self.random.random() < chance

    def _begin(self, tile):
        self.first, self.last = self.begins[self.tile], self.ends_at[self.tile]
        assert self.last - self.first == tile.slots - 1

    def _found(self, cycle):
        return bisect_right(self.written_at, cycle) - 1
