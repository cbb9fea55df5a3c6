"""All dot products at once against golden.fp.fp32.dot, word by word."""

import numpy as np
import pytest

from golden.fp import fp32
from golden.systolic import matrix

CORNERS = np.array([0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000],
                   np.uint32)


@pytest.mark.parametrize(("beat", "grouped"), [(1, False), (2, False), (4, False), (8, False), (4, True), (16, True)])
def test_any_words(beat, grouped):
    random = np.random.default_rng(beat)
    x, y = (random.integers(0, 1 << 32, (23, 37), np.uint32) for _ in range(2))
    near = [np.where((words >> 23 & 255) > 140, words & 0x807FFFFF | 120 << 23, words).astype(np.uint32)
            for words in (x, y)]
    for left, right in ((x, y), (near[0], near[1]), (x, near[1])):
        want = fp32.dot(left[:, None], right[None], beat, grouped=grouped)
        got = matrix.products(left, right, beat, grouped=grouped)
        np.testing.assert_array_equal(fp32.bits(got), fp32.bits(want))


@pytest.mark.parametrize(("beat", "grouped"), [(1, False), (2, False), (4, False), (4, True)])
def test_corner_values(beat, grouped):
    random = np.random.default_rng(beat)
    corners = np.concatenate([CORNERS, CORNERS | np.uint32(fp32.SIGN)])
    x, y = random.choice(corners, (60, 3)), random.choice(corners, (60, 3))
    want = fp32.dot(x[:, None], y[None], beat, grouped=grouped)
    np.testing.assert_array_equal(fp32.bits(matrix.products(x, y, beat, grouped=grouped)), fp32.bits(want))


def test_exact_zeros_and_no_terms():
    x = np.array([[1, -1], [0, 0]], np.float32)
    assert not fp32.bits(matrix.products(x, np.ones((2, 2), np.float32), 2)).any()
    assert not fp32.bits(matrix.products(np.zeros((3, 0), np.float32), np.zeros((2, 0), np.float32), 2)).any()


def test_beat_of_no_whole_groups_wrong():
    for product in (fp32.dot, matrix.products):
        with pytest.raises(ValueError, match="beat is 6, must be a multiple of 4 for groups that share an exponent"):
            product(np.zeros((2, 6), np.float32), np.zeros((2, 6), np.float32), 6, grouped=True)


@pytest.mark.parametrize(("x", "y", "beat", "sentence"), [
    ((2, 3), (2, 4), 1, r"x has the shape \(2, 3\) and y \(2, 4\)"),
    ((3,), (2, 3), 1, r"x has the shape \(3,\)"),
    ((2, 3), (2, 3), 0, "beat is 0, must be at least 1"),
])
def test_wrong(x, y, beat, sentence):
    with pytest.raises(ValueError, match=sentence):
        matrix.products(np.zeros(x, np.float32), np.zeros(y, np.float32), beat)
