"""Vectors as the core writes them: FP32 beats as they are, or two beats of half-precision words in one."""

import numpy as np
from numpy.typing import NDArray

from golden.fp import fp32
from golden.fp.narrow import narrow, widen
from hw.isa.emb import FORMAT

LATENCY = 3         # cycles that half precision takes longer


def beats(row_beats: int, form: int) -> int:
    """Of a vector in the outputs."""
    return row_beats if form == FORMAT.FLOAT32 else -(-row_beats // 2)


def pack(vectors: NDArray[np.float32], form: int, words: int) -> NDArray[np.uint32]:
    """(n, 32-bit words) of vectors (n, D), D whole beats of `words` values. What is left of the last beat is 0."""
    if form == FORMAT.FLOAT32:
        return fp32.bits(vectors)
    count, width = vectors.shape
    codes = np.zeros((count, 2 * words * beats(width // words, form)), np.uint16)
    codes[:, :width] = narrow(vectors, FORMAT(form).name.lower())
    return codes.view(np.uint32)


def unpack(outputs: NDArray[np.uint32], form: int) -> NDArray[np.float32]:
    """(n, values) of vectors (n, words) as they were packed."""
    if form == FORMAT.FLOAT32:
        return outputs.view(np.float32)
    return widen(outputs.view(np.uint16), FORMAT(form).name.lower())
