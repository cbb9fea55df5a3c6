"""A run of the MLP core as its twin takes it: the program as numbers, and what it yields."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.compiler import twin
from gen.compiler.twin_layouts import MLP_JOB, MLP_SHAPE, MLP_SIZES, MLP_TIMED, packed
from golden.mlp import results
from golden.mlp.core import Memory, Mlp
from hw.isa import MLP
from hw.mlp.config import MlpConfig

__all__ = ["WORDS", "Memory", "Prepared", "Values", "sizes"]

WORDS = MLP.words      # of an instruction


def sizes(config: MlpConfig) -> NDArray[np.int64]:
    """What the time depends on."""
    latency = results.latency(config.width, config.columns, grouped=config.grouped)
    names = (*MLP_SHAPE, *MLP_SIZES)
    values = {"results": latency} | {name: getattr(config, name) for name in names if name != "results"}
    return np.concatenate([twin.frame(MLP, config), packed(names, values)])


class Prepared(NamedTuple):
    """A run before it begins; its results lie in the memory already.

    jobs: (instructions, MLP_JOB); totals: of the block's counters, those of MLP_TIMED at `places` still to come.
    """

    jobs: NDArray[np.int64]
    totals: NDArray[np.uint64]
    places: NDArray[np.int64]


class Values:
    """What a core computes, with what its memories hold."""

    def __init__(self, config: MlpConfig):
        self._core = Mlp.of(config)

    def prepare(self, memory: Memory) -> Prepared:
        """Carries a program out, in place. Raises ValueError: it would end in an error, in one sentence; then nothing
        has changed."""
        twin.check(MLP, self._core.run(memory, dry=True))
        result = self._core.run(memory)
        item = twin.fields(MLP, memory.program.reshape(-1, WORDS))
        return Prepared(np.ascontiguousarray(np.stack([item[name] for name in MLP_JOB], axis=1)),
                        *twin.totals(MLP, result.counters, MLP_TIMED))
