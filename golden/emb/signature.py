"""The signature of a load image: what a register of so many inputs makes of its beats."""

import numpy as np
from numpy.typing import NDArray

from hw.isa.emb import POLYNOMIAL

_WORD = (1 << 32) - 1


def signature(beats: NDArray[np.uint32]) -> int:
    """Of beats (count, words) in their order: c = 2c + the exclusive or of a beat's words, word k rotated left by 2k
    bits, in GF(2) modulo `POLYNOMIAL`, from 0 on. Finds any change of one word, and of others all but one in 2^32.
    """
    turn = (2 * np.arange(beats.shape[1]) % 32).astype(np.uint64)
    twice = beats.astype(np.uint64) << turn
    folded = np.bitwise_xor.reduce((twice | twice >> np.uint64(32)) & np.uint64(_WORD), axis=1)
    register = 0
    for word in folded.tolist():
        register = (register << 1 & _WORD) ^ (POLYNOMIAL if register >> 31 else 0) ^ word
    return register
