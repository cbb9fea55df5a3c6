"""A core on a board of its own, by the names of its preset."""

from typing import Any

from gen.rtl import config
from gen.rtl.cores import CORES

PRESET = "ecp5"     # whose core it is, unless another is named


def board(core: str | None, preset: str | None, **settings: int) -> Any:
    """The component hw.board.top.Board around a core of a preset, or around none.

    Parameters  core: name of a core that is a kernel, or None; preset: name or path; settings: the keys of BoardConfig
    Raises      ValueError: the core is no kernel, the preset does not have it, a setting is not allowed
    """
    from hw.board.top import Board, BoardConfig

    settled = BoardConfig(**settings)
    if core is None:
        return Board(None, settled)
    if core not in CORES or not CORES[core].is_kernel:
        kernels = ", ".join(name for name, known in CORES.items() if known.is_kernel)
        raise ValueError(f"core = {core!r}: must be one of {kernels}, or none")
    chosen = config.load(preset or PRESET)
    if core not in chosen.cores:
        raise ValueError(f"the preset {chosen.name} has no [{core}]; it has {', '.join(chosen.cores)}")
    return Board(CORES[core].unit(chosen.cores[core]), settled)
