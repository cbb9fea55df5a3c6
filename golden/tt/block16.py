"""block16: tensor-train cores in block floating point, 16 bits a value.

Four values share an exponent of 8 bits, float32's own, and have a signed mantissa of 14 bits each: 64 bits. A block is
four values that follow one another along the rank by which a product adds up, from rank 0 on, as the groups of the TT
unit's operands are (hw.fp.group): widening one is wiring. The unit is the power of two that is 2^-12 of the largest
power of two in the block's largest value; mantissas are rounded to nearest even, and where the largest one would be
2^13 the unit is twice as large. What is then below float32's smallest normal number is zero. Infinities and NaNs have
no code. The mantissa -2^13, which no value has, marks padding.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden.fp import fp32

BLOCK = fp32.GROUP
#: Without the sign.
MANTISSA_BITS = 13


def rounded(values: ArrayLike) -> NDArray[np.float32]:
    """The nearest values (.., n) that blocks of four along the last axis hold; the last block may be shorter.

    Values that are held stay as they are. What rounds past float32 is infinite, what is not finite stays as it is.
    """
    own = fp32.flush(values)
    finite = np.isfinite(own)
    blocks = np.zeros((*own.shape[:-1], -(-own.shape[-1] // BLOCK), BLOCK))
    blocks.reshape(*own.shape[:-1], -1)[..., :own.shape[-1]] = np.where(finite, own, 0)
    unit = np.ldexp(1.0, np.frexp(np.abs(blocks).max(-1, keepdims=True))[1] - MANTISSA_BITS)
    unit *= np.where(np.rint(np.abs(blocks) / unit).max(-1, keepdims=True) == 1 << MANTISSA_BITS, 2, 1)
    nearest = np.rint(blocks / unit) * unit
    with np.errstate(over="ignore"):
        nearest = fp32.flush(nearest.astype(np.float32)).reshape(*own.shape[:-1], -1)[..., :own.shape[-1]]
    return np.where(finite, nearest, own)


def rounded_cores(cores: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], ...]:
    """Cores (R_{k-1}, I_k, J_k, R_k) as block16 holds them: the first in blocks along R_1, the others along R_{k-1}.

    Raises      ValueError: a value that is not finite, or rounds past the largest one
    """
    kept = []
    for k, core in enumerate(cores):
        axis = 0 if k else -1
        held = np.moveaxis(rounded(np.moveaxis(core, axis, -1)), -1, axis)
        wrong = np.argwhere(~np.isfinite(held))
        if len(wrong):
            at = tuple(int(each) for each in wrong[0])
            raise ValueError(f"core {k + 1}, slice {at[1]}: block16 has no code for its value {core[at]}")
        kept.append(np.ascontiguousarray(held))
    return tuple(kept)
