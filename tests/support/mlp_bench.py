"""The MLP core on a card, and the oracle: what its tests share."""

from collections import Counter

import numpy as np

from fpga import card
from gen.compiler.mlp import Compiler
from golden.mlp.core import Memory, Mlp
from hw.isa import MLP
from tests.support.differential import Differential, opened
from tests.support.faulty import UNTOUCHED, FaultyBench
from tests.support.mlp_programs import Programs, Run, everything
from tests.support.mlp_sizes import TINY, batch

TIMEOUT = 6000          # cycles without progress
COUNTED = ("instructions", "rows_beats", "weights_beats", "outputs_beats", "tiles", "slots")
REFUSED = tuple(MLP.code(name) for name in ("BAD_INSTRUCTION", "BAD_ORDER", "BOUNDS"))
STALLED = ("stall_rows", "stall_weights", "stall_in_flight", "stall_write", "stall_program")
tried: Counter = Counter()      # faults by kind


class Bench(FaultyBench):
    """A card with the MLP core. The programs that faults are tried on bring all that they use."""

    limit = 400_000
    spoiling = (MLP.code("EARLY"),)

    def __init__(self, memory="ideal", process=False, seed=11, core="mlp", config=TINY, opt=None, kind="sim",
                 on=None):
        on = on or card.open(kind, core=core, preset=config, memory=memory, process=process, opt=opt)
        super().__init__(on, MLP, config, tried)
        self.draw = np.random.default_rng(seed)
        self.oracle = Mlp.of(config)

    def network(self, network, count, cold=True):
        """A batch of a network."""
        compiler = Compiler(network, self.config, batch=count)
        program = compiler.compile(count, cold=cold)
        dense, sparse = batch(network, count, seed=int(self.draw.integers(1 << 30)))
        return Run(program.words, compiler.inputs(dense, sparse), compiler.weights, program.outputs_beats)

    def start(self, run):
        card, empty = self.card, np.zeros((1, self.config.words), np.uint32)
        self.busy = True
        outputs = np.full((max(1, run.outputs_beats), self.config.words), UNTOUCHED, np.uint32)
        card.run({
            "program": self.place("program", run.words if len(run.words) else np.zeros((1, MLP.words), np.uint32)),
            "program_count": len(run.words) if run.count is None else run.count,
            "inputs": self.place("inputs", run.inputs if len(run.inputs) else empty), "inputs_beats": len(run.inputs),
            "outputs": self.place("outputs", outputs), "outputs_beats": run.outputs_beats,
            "weights": self.place("weights", run.weights if len(run.weights) else empty),
            "weights_beats": len(run.weights), "timeout": TIMEOUT,
            "result": self.place("result", self.block("instructions_done"))})

    def kept(self, run):
        return {"inputs": run.inputs, "weights": run.weights}

    def expected(self, run, dry=False):
        """What the oracle makes of it, and the outputs. dry: would make, where nothing changes."""
        outputs = np.full(run.outputs_beats * self.config.words, UNTOUCHED, np.uint32)
        memory = Memory(run.words.reshape(-1), run.inputs.reshape(-1), run.weights.reshape(-1), outputs)
        return self.oracle.run(memory, run.count, dry), outputs

    def compare(self, run, told, outputs, corrected=0):
        result, wanted = self.expected(run)
        assert (told["code"], result.code) == (0, 0), told
        self.equal(outputs, wanted)
        assert {name: told[name] for name in COUNTED} == {name: result.counters[name] for name in COUNTED}
        assert told["instructions_done"] == result.instructions_done
        assert (told["corrected"], told["uncorrectable"]) == (corrected, 0)
        assert told["slots"] + sum(told[name] for name in STALLED) <= told["cycles"]
        return told["cycles"]


class Trials(Differential):
    """Programs on the core, its twin and the oracle. Every line of their memories is loaded before; and anew where a
    program that broke off has left other lines in each, before the next that may read a line that it has not loaded."""

    def __init__(self, config=TINY, memory="ideal", seed=1):
        random = np.random.default_rng(seed)
        self.config, self.whole = config, everything(config, random)
        super().__init__(Programs(config, random), memory)

    def bench(self, kind):
        return Bench(config=self.config, on=opened(kind, "mlp", self.config, memory=self.memory))

    def again(self):
        assert not self.compare(self.whole)
        self.stale = False

    def ready(self, run):
        """A program that is not wild reads what it has loaded, up to an instruction that is refused."""
        if self.stale and (run.wild or run.mistake and self.sim.expected(run, dry=True)[0].code not in REFUSED):
            self.again()

    def same(self, run, code):
        self.stale |= bool(code)
