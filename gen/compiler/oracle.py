"""What a card must give: programs of its core carried out by the golden models, bit for bit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compiler import emb
from gen.compiler import mlp as layers
from gen.compiler.tables import CardImages
from golden.emb.core import Emb
from golden.emb.core import Memory as EmbMemory
from golden.mlp.core import Memory as MlpMemory
from golden.mlp.core import Mlp


class EmbOracle:
    """An EMB core with its card's memory, the tensor trains loaded. compiler: of the programs that it will get."""

    def __init__(self, images: CardImages, compiler: emb.Compiler):
        self.images, self.ring_beats = images, compiler.ring_beats
        self.core = Emb.of(images.config, images.cores)
        # Rows that enter the row cache are written.
        self.rows = images.rows.reshape(-1).copy() if compiler.caches else images.rows.reshape(-1)
        self.run(compiler.load())

    def run(self, program: emb.Program) -> tuple[list[NDArray[np.float32]], dict[str, int]]:
        """The vectors of every request, and the counters that do not depend on time."""
        outputs = np.zeros(program.outputs_beats * self.images.words, np.uint32)
        memory = EmbMemory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, self.rows,
                           self.images.pages[program.pages].reshape(-1), 0, self.ring_beats)
        result = self.core.run(memory)
        assert result.code == 0, result
        return program.vectors(outputs), result.counters


class MlpOracle:
    """An MLP core with a network's weights, those that stay on chip loaded."""

    def __init__(self, compiler: layers.Compiler):
        self.compiler = compiler
        self.core = Mlp.of(compiler.config)
        self._run(compiler.load, np.zeros((0, compiler.config.words), np.uint32))

    def run(self, program: layers.Program, dense: ArrayLike, embeddings: ArrayLike | None) -> NDArray[np.float32]:
        """The results of a batch."""
        return self.compiler.results(self._run(program, self.compiler.inputs(dense, embeddings)), program.count)

    def _run(self, program: layers.Program, inputs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        outputs = np.zeros(program.outputs_beats * self.compiler.config.words, np.uint32)
        result = self.core.run(MlpMemory(program.words.reshape(-1), inputs.reshape(-1),
                                         self.compiler.weights.reshape(-1), outputs))
        assert result.code == 0, result
        return outputs


def first_difference(found: Sequence[NDArray[np.float32]], wanted: Sequence[NDArray[np.float32]]) -> str:
    """Where vectors differ in a bit, in words; empty: nowhere."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        different = np.flatnonzero((one.view(np.uint32) != other.view(np.uint32)).any(axis=1))
        if len(different):
            return f"request {number}: {len(different)} vectors differ, the first is {different[0]}"
    return ""
