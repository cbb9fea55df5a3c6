"""Hsiao (72, 64) code in NumPy: what hw/secded.py computes, from the check matrix itself."""

import itertools

import numpy as np


def check_matrix() -> np.ndarray:
    """The 8 x 72 binary matrix H: data columns 0..63 (56 of weight three, ascending as numbers, then the
    eight rotations of 00011111), then the identity of the check bits.
    """
    threes = [rows for rows in itertools.combinations(range(8), 3)]
    threes.sort(key=lambda rows: sum(1 << row for row in rows))
    fives = [[(start + step) % 8 for step in range(5)] for start in range(8)]
    matrix = np.zeros((8, 72), dtype=np.uint8)
    for column, rows in enumerate([*threes, *fives, *([row] for row in range(8))]):
        matrix[list(rows), column] = 1
    return matrix


_H = check_matrix()


def _bits(words: np.ndarray, count: int) -> np.ndarray:
    return ((words[..., None] >> np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.uint8)


def _number(bits: np.ndarray, dtype: type) -> np.ndarray:
    weights = np.left_shift(np.uint64(1), np.arange(bits.shape[-1], dtype=np.uint64))
    return (bits.astype(np.uint64) * weights).sum(axis=-1, dtype=np.uint64).astype(dtype)


def encode(data: np.ndarray) -> np.ndarray:
    """Check bits (uint8) of 64-bit words."""
    data = np.asarray(data, dtype=np.uint64)
    return _number(_bits(data, 64) @ _H[:, :64].T & 1, np.uint8)


def decode(data: np.ndarray, check: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(data, corrected, uncorrectable) of words read back with their check bits."""
    data = np.asarray(data, dtype=np.uint64)
    syndrome = encode(data) ^ np.asarray(check, dtype=np.uint8)
    columns = _number(_H.T, np.uint8)
    hit = syndrome[..., None] == columns
    flip = _number(hit[..., :64], np.uint64)
    corrected = hit.any(axis=-1)
    return data ^ flip, corrected, (syndrome != 0) & ~corrected


def latency() -> int:
    """Cycles from a codeword at the decoder's port to its data."""
    return 2
