"""Properties of units: checked in every simulation, and proven."""

from verif.formal import axi, board, hotline, kernel, memory, mlp, stream

__all__ = ["ALL"]

ALL = (*stream.PROOFS, *axi.PROOFS, *kernel.PROOFS, *memory.PROOFS, *hotline.PROOFS, *mlp.PROOFS,
       *board.PROOFS)
