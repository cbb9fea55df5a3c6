"""The properties that make the code what it is, on the matrix itself."""
import numpy as np
import pytest

from golden import secded


@pytest.fixture(scope="module")
def columns():
    return [int(sum(int(bit) << row for row, bit in enumerate(column))) for column in secded.check_matrix().T]


def test_single_flips_can_be_told_apart(columns):
    assert len(set(columns)) == 72 and 0 not in columns


@pytest.mark.testpoint("corner_values", unit="secded")
def test_double_flips_never_look_like_single_ones(columns):
    """No two columns of the matrix add up to a third, or to none."""
    assert all(column.bit_count() % 2 == 1 for column in columns)
    pairs = {a ^ b for i, a in enumerate(columns) for b in columns[:i]}
    assert pairs.isdisjoint(columns) and 0 not in pairs


def test_rows_are_balanced_and_smallest():
    # 56 columns of weight three and eight of five are the lightest 64 there are; each row gets its share.
    assert secded.check_matrix()[:, :64].sum(axis=1).tolist() == [26] * 8


def test_decode_inverts_encode():
    words = np.random.default_rng(1).integers(0, 1 << 64, size=1000, dtype=np.uint64)
    data, corrected, uncorrectable = secded.decode(words, secded.encode(words))
    assert (data == words).all() and not corrected.any() and not uncorrectable.any()


def test_known_words():
    # By hand: bit 0 has the lightest column, 00000111; bit 63 has 00011111 turned left by seven.
    assert secded.encode(np.array([0, 1, 1 << 63], np.uint64)).tolist() == [0, 0b00000111, 0b10001111]


def test_decode_keeps_the_shape():
    data, corrected, _ = secded.decode(np.zeros((2, 3), np.uint64), np.full((2, 3), 0b100, np.uint8))
    assert data.shape == (2, 3) and corrected.all() and not data.any()
