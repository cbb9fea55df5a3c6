"""golden.emb.bags against golden.fp.fp32, bag by bag."""

import numpy as np
import pytest

from golden.emb import bags
from golden.fp import fp32

SPECIAL = np.array([0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
                    0xFF800000, 0x7FC00000, 0xFF800001, 0x3F800000, 0xBF800000], np.uint32)


def patterns(random, shape, special):
    """Random words: of all exponents, of a few near ones, and some of the special ones mixed in."""
    words = random.integers(0, 1 << 32, shape, dtype=np.uint32)
    near = (words & np.uint32(0x807FFFFF)) | (random.integers(118, 136, shape).astype(np.uint32) << np.uint32(23))
    words = np.where(random.random(shape) < 0.7, near, words)
    return np.where(random.random(shape) < special, random.choice(SPECIAL, shape), words).astype(np.uint32)


def slowly(values, offsets, weights, maximum):
    out = np.zeros((len(offsets) - 1, values.shape[1]), np.float32)
    for bag, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        if start == end:
            continue
        if maximum:
            best = fp32.flush(values[start])
            for row in values[start + 1:end]:
                best = fp32.maximum(best, row)
            out[bag] = best
        else:
            out[bag] = fp32.dot(values[start:end].T, weights[start:end], 1)
    return out


@pytest.mark.parametrize("maximum", [False, True], ids=["sum", "max"])
@pytest.mark.parametrize("special", [0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_bags_are_dots_or_maxima_of_their_rows(seed, special, maximum):
    random = np.random.default_rng([seed, maximum, int(special * 100)])
    lengths = np.concatenate([random.integers(0, 6, 60), [0, 1, 300]])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values, weights = patterns(random, (offsets[-1], 5), special), patterns(random, offsets[-1], special)
    found = bags.pool(values, offsets, weights, maximum=maximum)
    assert np.array_equal(found.view(np.uint32), slowly(values, offsets, weights, maximum).view(np.uint32))


def test_without_weights_a_sum_is_that_of_ones():
    random = np.random.default_rng(4)
    values = random.standard_normal((50, 3)).astype(np.float32)
    offsets = [0, 20, 20, 50]
    ones = np.ones(50, np.float32)
    assert np.array_equal(bags.pool(values, offsets), bags.pool(values, offsets, ones))
    np.testing.assert_allclose(bags.pool(values, offsets)[2], values[20:].sum(0), rtol=1e-5, atol=1e-5)


def test_totals_that_cancel_and_results_that_leave_the_range():
    values = np.array([[3e38], [3e38], [-3e38], [1.2e-38], [-1.3e-38]], np.float32)
    assert bags.pool(values, [0, 2])[0, 0] == np.inf
    assert bags.pool(values, [0, 1, 3])[1, 0].view(np.uint32) == 0
    assert bags.pool(values, [0, 3, 5])[1, 0].view(np.uint32) == 0x80000000, "flushed, its sign stays"


@pytest.mark.parametrize(("offsets", "weights", "sentence"), [
    ([0, 3, 2], None, "offsets must rise from 0 to at most the 4 rows"),
    ([0, 5], None, "offsets must rise from 0 to at most the 4 rows"),
    ([0, 4], np.ones(3, np.float32), r"4 rows need as many weights, not \(3,\)"),
])
def test_wrong(offsets, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        bags.pool(np.zeros((4, 2), np.float32), offsets, weights)
