"""Recommendation networks on a card, called like functions.

    from fpga.api.network import MlpNetwork, Network
    with MlpNetwork(Network.model("hotline_rm2")) as net:       # the simulated card
        p = net(dense, embeddings)                              # (samples, outputs) float32

What a network is says gen.model.network: from arrays, a model's sizes or an ONNX file. `Runner` is the layer below: one
program of the core at a time, from whatever it was made. A RunError of this core has `about`: what the instruction
does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpga.card import Card
from fpga.card.runs import LIMIT_CYCLES, LIMIT_S, TIMEOUT_CYCLES, OnCard, RunError, Runs
from fpga.card.threads import exclusive
from gen.compiler.mlp import Compiler, Program
from gen.model.network import Layer, Model, Network
from gen.model.onnx import read_onnx

__all__ = ["Layer", "MlpNetwork", "Model", "Network", "RunError", "Runner", "read_onnx"]

KEPT = 32       # batch sizes whose programs are kept


class Runner(OnCard):
    """Programs of the MLP core on an open card, which is not closed here: one at a time, from whatever it was made.

    words: of a beat. limit_cycles, limit_s, timeout_cycles: of a run, as fpga.card.runs.Runs takes them. `last` has the
    result block of the last run, by name. After a run that did not end well the weights are brought anew before the
    next; what programs have loaded into the core is then for the caller to load again.
    """

    def __init__(self, card: Card, words: int, *, limit_cycles: int = LIMIT_CYCLES, limit_s: float = LIMIT_S,
                 timeout_cycles: int = TIMEOUT_CYCLES):
        self.card, self._owned = card, False
        self._runs = Runs(card, "mlp", words, limit_cycles=limit_cycles, limit_s=limit_s, timeout_cycles=timeout_cycles)
        self._image = np.zeros((0, words), np.uint32)
        self.weights(self._image)

    @exclusive
    def weights(self, image: NDArray[np.uint32]) -> None:
        """Puts an image of weights and addends (beats, words) on the card, for all runs that follow."""
        self._image = image
        with self._runs.transaction():
            self._build()

    def _build(self) -> None:
        _bring(self._runs, self._image)

    @exclusive
    def run(self, program: NDArray[np.uint32], inputs: NDArray[np.uint32], outputs_beats: int,
            about: Sequence[str] = ()) -> NDArray[np.uint32]:
        """Carries a program (instructions, 16) out and returns the outputs' buffer (beats, words).

        inputs: (beats, words). about: what each instruction does, for errors.
        Raises      RunError: the core's own words; CardError: the card's
        """
        self._ensure_known()
        with self._runs.transaction():
            return _carry_out(self._runs, program, inputs, outputs_beats, len(self._image), about)


def _bring(runs: Runs, weights: NDArray[np.uint32]) -> None:
    runs.ensure_buffer("weights", 0)
    runs.write("weights", weights)


def _carry_out(runs: Runs, program: NDArray[np.uint32], inputs: NDArray[np.uint32], outputs_beats: int,
               weights_beats: int, about: Sequence[str]) -> NDArray[np.uint32]:
    runs.clear_result()
    runs.send("inputs", inputs)
    runs.ensure_buffer("outputs", outputs_beats * runs.words * 4)
    if runs.run(program, {"inputs_beats": len(inputs), "outputs_beats": outputs_beats,
                          "weights_beats": weights_beats}):
        number = runs.last["instruction"]
        told = about[number] if number < len(about) else ""
        raise runs.error([told] if told else [], about=told)
    return runs.results(runs.fetched)


class MlpNetwork(OnCard):
    """A network on a card.

    card: "sim" opens the simulated one, "twin" its twin, else an open card whose core is that of `preset`, which is
    then not closed here. preset: a name or path, or the core's configuration itself. batch: the number of samples that
    sizes are chosen for; any number can be asked for. dense, features: formats of dense rows and of features on the
    link, float32 or float16, to which they are rounded; the core computes in FP32. limit_cycles, limit_s,
    timeout_cycles: of a run, as fpga.card.runs.Runs takes them. options: for fpga.card.open.

    The weights are on the card, and those that fit in the core, when the constructor returns. `last` has the counters
    of the last run, `program` what was run. After a run that did not end well, Ctrl-C included, the weights are brought
    and loaded anew before the next.
    Raises      ValueError: a network that does not fit the core, another format; CardError: a card that cannot hold it
    """

    def __init__(self, network: Network, *, card: "str | Card" = "sim", preset: Any = "smartssd", batch: int = 128,
                 dense: str = "float32", features: str = "float32", limit_cycles: int = LIMIT_CYCLES,
                 limit_s: float = LIMIT_S, timeout_cycles: int = TIMEOUT_CYCLES, **options: Any):
        if not isinstance(network, Network):
            raise ValueError(f"network must be a Network (see gen.model.network), not {type(network).__name__}")
        config = self._config(preset, "mlp")
        self.compiler = Compiler(network, config, batch=batch, dense=dense, features=features)
        self.network, self.config = network, config
        self.program: Program | None = None
        self._programs: dict[int, Program] = {}
        self._open("mlp", card, preset, config.words, limit_cycles, limit_s, timeout_cycles, **options)

    @exclusive
    def __call__(self, dense: ArrayLike, embeddings: ArrayLike | None = None) -> NDArray[np.float32]:
        """The results (samples, outputs) of dense words (samples, inputs) and features (samples, features, dim).

        Raises      ValueError: a wrong shape, or no samples; RunError: the core's own words; CardError: the card's
        """
        inputs = self.compiler.inputs(dense, embeddings)
        count = len(np.asarray(dense))
        program = self._programs.get(count)
        if program is None:
            if len(self._programs) == KEPT:
                self._programs.pop(next(iter(self._programs)))
            program = self._programs[count] = self.compiler.compile(count)
        self._ensure_known()
        with self._runs.transaction():
            return self.compiler.results(self._run(program, inputs), count)

    def _build(self) -> None:
        _bring(self._runs, self.compiler.weights)
        if len(self.compiler.load.words):
            self._run(self.compiler.load, np.zeros((0, self.config.words), np.uint32))

    def _run(self, program: Program, inputs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        self.program = program
        return _carry_out(self._runs, program.words, inputs, program.outputs_beats, len(self.compiler.weights),
                          [step.about for step in program.steps])
