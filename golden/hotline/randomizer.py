"""The Hotline randomizer: a permutation of the numbers of rows.

A Feistel network over the low domain_bits // 2 bits and the rest: in each round one half, the low one first, adds
(exclusive or) a function of the other one and a constant.
"""

import numpy as np
from numba import njit

__all__ = ["invert", "invert_one", "permute", "permute_one"]

ROUNDS = 8
# Of each round, modulo three: how far it rotates the half that it mixes into the other one.
ROTATES = np.array([(0, 3, 1, 4, 6), (2, 7, 5, 8, 1), (1, 4, 8, 0, 3)], np.uint64)
# The top bits of the multiples of 2**64 over the golden ratio are the rounds' constants.
CONSTANTS = np.array([(number + 1) * 0x9E3779B97F4A7C15 % 2**64 for number in range(ROUNDS)], np.uint64)
ONE = np.uint64(1)


@njit(cache=True)
def _rotated(half, by, width):
    return (half >> by | half << width - by) & (ONE << width) - ONE


@njit(cache=True)
def _mixed(half, number, width, other):
    """What round `number` adds to the other half of `other` bits."""
    by = ROTATES[number % 3]
    mixed = (_rotated(half, by[0], width) & _rotated(half, by[1], width)) \
        ^ (_rotated(half, by[2], width) & _rotated(half, by[3], width)) ^ _rotated(half, by[4], width)
    return (mixed | (mixed & ONE) << width) & (ONE << other) - ONE ^ CONSTANTS[number] >> np.uint64(64) - other


@njit(cache=True)
def _rounds(number, domain_bits, backward):
    low_bits = np.uint64(domain_bits // 2)
    high_bits = np.uint64(domain_bits) - low_bits
    value = np.uint64(number)
    low, high = value & (ONE << low_bits) - ONE, value >> low_bits
    for step in range(ROUNDS):
        at = ROUNDS - 1 - step if backward else step
        if at % 2 == 0:
            low ^= _mixed(high, at, high_bits, low_bits)
        else:
            high ^= _mixed(low, at, low_bits, high_bits)
    return np.int64(high << low_bits | low)


@njit(cache=True)
def permute_one(number, domain_bits):
    """What the number of a row becomes, in compiled code."""
    return _rounds(number, domain_bits, False)


@njit(cache=True)
def invert_one(number, domain_bits):
    """The number of a row that becomes `number`, in compiled code."""
    return _rounds(number, domain_bits, True)


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
