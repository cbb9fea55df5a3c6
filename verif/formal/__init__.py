"""Properties of units: checked in every simulation, and proven."""

from verif.formal import axi, board, hotline, kernel, memory, stream

__all__ = ["ALL"]

ALL = (*stream.PROOFS, *axi.PROOFS, *kernel.PROOFS, *memory.PROOFS, *hotline.PROOFS, *board.PROOFS)
