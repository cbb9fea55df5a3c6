"""What the twins of all cores take of a run before it begins: words of the shell around the parts, and counters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.compiler.twin_layouts import FRAME, packed
from hw.isa import Kernel


def _period(kernel: Kernel) -> int:
    return 1 << (len(kernel.counters) - 1).bit_length()


def frame(kernel: Kernel, config: Any) -> NDArray[np.int64]:
    """What the time of every core depends on."""
    progress = next(value.word for value in kernel.result if value.kind == "progress")
    return packed(FRAME, {"words": config.words, "reads_in_flight": config.reads_in_flight,
                          "writes_in_flight": config.writes_in_flight, "period": _period(kernel),
                          "status": kernel.register("status").offset, "progress": progress})


def fields(kernel: Kernel, words: NDArray[np.uint32]) -> dict[str, NDArray[np.int64]]:
    """The fields (instructions,) of a program (instructions, words), by name; 0 where an instruction ignores one."""
    items = {field.name: (words[:, field.word] >> field.low).astype(np.int64) & (1 << field.bits) - 1
             for field in kernel.fields}
    return {field.name: np.where(np.isin(items["opcode"], list(kernel.uses(field))), items[field.name], 0)
            for field in kernel.fields}


def check(kernel: Kernel, result: Any) -> None:
    """Raises ValueError: a run that the oracle gives this result would end in an error, in one sentence."""
    if result.code:
        name = next(code.name for code in kernel.codes if code.code == result.code)
        raise ValueError(f"instruction {result.instruction} would end the run in {name}")


def totals(kernel: Kernel, counters: Mapping[str, int], timed: Sequence[str]
           ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The result block's counters, and the places of those that are `timed`, which are still to come."""
    names, initial = [value.name for value in kernel.counters], np.zeros(_period(kernel), np.uint64)
    for name, value in counters.items():
        initial[names.index(name)] = value
    return initial, np.array([names.index(name) for name in timed], np.int64)
