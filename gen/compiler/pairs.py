"""The order of a bag's indices in which the EMB core takes two in a cycle."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def in_pairs(of_tt: NDArray[np.bool_], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """An order of the indices with as many pairs as there can be: in the words 2k and 2k + 1, both of one bag, one
    index of a tensor train and one of another memory (hw.emb.index_decoder).

    of_tt: the index is one of a tensor train; offsets: of the bags. Every bag keeps its indices, and those of either
    kind keep their order, so that its sums keep every bit.
    """
    order = np.empty(len(of_tt), np.int32)
    for bag in range(len(offsets) - 1):
        at, end = offsets[bag], offsets[bag + 1]
        next_tt, next_other = at, at
        tts = of_tt[at:end].sum()
        others = end - at - tts
        while at < end:
            pair = at % 2 == 0 and tts > 0 and others > 0
            more_tts = tts > others
            if pair or more_tts:
                while not of_tt[next_tt]:
                    next_tt += 1
                order[at] = next_tt
                next_tt, tts, at = next_tt + 1, tts - 1, at + 1
            if pair or not more_tts:
                while of_tt[next_other]:
                    next_other += 1
                order[at] = next_other
                next_other, others, at = next_other + 1, others - 1, at + 1
    return order
