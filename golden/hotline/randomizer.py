"""The Hotline randomizer: a permutation of the numbers of rows.

The top 14 bits of a number, the identifier, stay as they are. The others, the place, go through a Feistel network over
their low half and the rest: in each round one half, the low one first, adds (exclusive or) a function of the other
one, the identifier and a constant. So numbers side by side, which share their identifier, never share a place.
"""

import numpy as np
from numba import njit

ROUNDS = 10
ID_BITS = np.uint64(14)
# Of each round, modulo three: how far it rotates the half that it mixes into the other one; and the identifier.
ROTATES = np.array([(0, 1, 5), (2, 4, 7), (6, 7, 1)], np.uint64)
KEYS = np.array([0, 3, 7, 10, 5, 12, 2, 9, 4, 11], np.uint64)
# The top bits of the multiples of 2**64 over the golden ratio are the rounds' constants.
CONSTANTS = np.array([(number + 1) * 0x9E3779B97F4A7C15 % 2**64 for number in range(ROUNDS)], np.uint64)
ONE = np.uint64(1)


@njit(cache=True)
def _rotated(half, by, width):
    while by >= width:
        by -= width
    return (half >> by | half << width - by) & (ONE << width) - ONE


@njit(cache=True)
def _mixed(half, key, number, width, other):
    """What round `number` adds to the other half of `other` bits."""
    by = ROTATES[number % 3]
    mixed = (_rotated(half, by[0], width) & _rotated(half, by[1], width)) ^ _rotated(half, by[2], width)
    mixed |= (mixed & ONE) << width
    return (mixed ^ _rotated(key, KEYS[number], ID_BITS) ^ CONSTANTS[number] >> np.uint64(64) - other) \
        & (ONE << other) - ONE


@njit(cache=True)
def _rounds(number, domain_bits, backward):
    place_bits = np.uint64(domain_bits) - ID_BITS
    low_bits = place_bits // np.uint64(2)
    high_bits = place_bits - low_bits
    value = np.uint64(number)
    low, high, key = value & (ONE << low_bits) - ONE, value >> low_bits & (ONE << high_bits) - ONE, value >> place_bits
    for step in range(ROUNDS):
        at = ROUNDS - 1 - step if backward else step
        if at % 2 == 0:
            low ^= _mixed(high, key, at, high_bits, low_bits)
        else:
            high ^= _mixed(low, key, at, low_bits, high_bits)
    return np.int64(key << place_bits | high << low_bits | low)


@njit(cache=True)
def _all(numbers, domain_bits, backward):
    done = np.empty_like(numbers)
    for at in range(len(numbers)):
        done[at] = _rounds(numbers[at], domain_bits, backward)
    return done


def _checked(numbers, domain_bits: int, backward: bool) -> np.ndarray:
    if not 20 <= domain_bits <= 40:
        raise ValueError(f"domain_bits must be a whole number from 20 to 40, not {domain_bits!r}")
    numbers = np.asarray(numbers, np.int64)
    if numbers.size and not (0 <= numbers.min() and numbers.max() < 1 << domain_bits):
        raise ValueError(f"numbers of rows must be from 0 to {(1 << domain_bits) - 1}, not {numbers.min()} to "
                         f"{numbers.max()}")
    return _all(numbers.ravel(), domain_bits, backward).reshape(numbers.shape)


def permute(numbers, domain_bits: int) -> np.ndarray:
    """What numbers of rows become: bank lowest, then set, then identifier. An array of any shape, int64.

    Raises      ValueError: domain_bits or a number is out of range
    """
    return _checked(numbers, domain_bits, False)


def invert(numbers, domain_bits: int) -> np.ndarray:
    """The numbers of rows that become these."""
    return _checked(numbers, domain_bits, True)
