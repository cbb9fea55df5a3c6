"""A run of the MLP core as its twin takes it: the program as numbers, and what it yields."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.compiler import twin
from golden.mlp import results
from golden.mlp.core import Memory, Mlp
from hw.isa import MLP
from hw.mlp.config import MlpConfig

__all__ = ["WORDS", "Memory", "Prepared", "Values", "sizes"]

WORDS = MLP.words      # of an instruction

# The fields of an instruction, in the order of MlpJob in fpga/card/cpp/twin/mlp_front.h.
JOB = ("opcode", "mode", "addend", "target", "activation", "features_in", "half", "count", "source", "stride",
       "row_beats", "features", "feature", "steps", "groups", "last_columns", "out", "out_stride", "max_in_flight",
       "wait_rows", "wait_weights", "wait_layers")
# Counters that depend on time, in the order of fpga/card/cpp/twin/mlp.cpp.
TIMED = ("cycles", "stall_rows", "stall_weights", "stall_in_flight", "stall_write", "stall_program")


def sizes(config: MlpConfig) -> NDArray[np.int64]:
    """What the time depends on, in the order of Sizes in fpga/card/cpp/twin/mlp.cpp."""
    names = ("units", "rows", "width", "words", "program_beats", "load_beats", "output_beats", "staged_tiles")
    return np.array([*twin.frame(MLP, config), *(getattr(config, name) for name in names),
                     results.latency(config.width, config.columns, grouped=config.grouped)], np.int64)


class Prepared(NamedTuple):
    """A run before it begins; its results lie in the memory already.

    jobs: (instructions, JOB); totals: of the block's counters, those of TIMED at `places` still to come.
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
        return Prepared(np.ascontiguousarray(np.stack([item[name] for name in JOB], axis=1)),
                        *twin.totals(MLP, result.counters, TIMED))
