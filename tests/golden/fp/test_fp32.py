"""The FP32 oracle against Berkeley SoftFloat, NumPy and float64."""
import math
import os

import numpy as np
import pytest
import softfloatpy as soft

from golden.fp import fp32

# Both signs of: zero, the smallest and largest subnormal, the smallest normal and its neighbour, one and its
# neighbours, two numbers whose product or quotient is a near tie, the largest number, infinity, NaNs.
CORNERS = np.array(
    [s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
        0x3FFFFFFF, 0x4B800000, 0x5F800000, 0x7EFFFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)],
    np.uint32)
SMALLEST_NORMAL = 0x800000
OPERATIONS = {"mul": soft.f32_mul, "add": soft.f32_add, "div": soft.f32_div}
COUNT = 400_000 if os.environ.get("HOTRAIL_REGRESS") else 20_000


def pairs(seed: int, count: int):
    """All pairs of corners, random words, words of nearby exponents and nearly opposite words."""
    rng = np.random.default_rng(seed)
    words = lambda: rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    near = lambda: ((rng.integers(110, 145, count) << 23) | (words() & 0x807FFFFF)).astype(np.uint32)
    a = near()
    opposite = (a ^ np.uint32(1 << 31)) + rng.integers(-3, 4, count).astype(np.uint32)
    x = np.concatenate([np.repeat(CORNERS, len(CORNERS)), words(), near(), a])
    y = np.concatenate([np.tile(CORNERS, len(CORNERS)), words(), near(), opposite])
    return x, y


def soft_words(operation, x, y):
    number = lambda word: soft.Float32.from_bytes(int(word).to_bytes(4, "big"))
    results = (operation(number(a), number(b)).to_bytes() for a, b in zip(x, y))
    return np.array([int.from_bytes(result, "big") for result in results], np.uint32)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.testpoint("random_match_golden", unit=("fp/add", "fp/multiply", "emb/post_pool"))
def test_equals_softfloat_outside_the_subnormal_range(name):
    """The oracle equals Berkeley SoftFloat; below the smallest normal number it flushes to zero."""
    x, y = (fp32.bits(fp32.flush(v)) for v in pairs(1, COUNT))
    got = fp32.bits(getattr(fp32, name)(x, y))
    want = soft_words(OPERATIONS[name], x, y)
    magnitude = want & 0x7FFFFFFF
    nan = magnitude > 0x7F800000
    assert (got[nan] == fp32.NAN).all()
    normal = ~nan & ((magnitude > SMALLEST_NORMAL) | (magnitude == 0))
    assert (got[normal] == want[normal]).all()
    # Below, SoftFloat rounds to fewer bits: here it is a zero of the same sign, or has just rounded up.
    rest = got[~nan & ~normal]
    assert ((rest == (want[~nan & ~normal] & fp32.SIGN)) | ((rest & 0x7FFFFFFF) == SMALLEST_NORMAL)).all()
    assert normal.sum() > 0.7 * len(x) and nan.sum() > 100


@pytest.mark.parametrize("name", OPERATIONS)
def test_within_half_a_unit_of_float64(name):
    """|result - exact| <= 2^-24 |exact| wherever the exact result is a normal number; flushed means below."""
    x, y = (fp32.flush(v) for v in pairs(2, 50_000))
    got = getattr(fp32, name)(x, y).astype(np.float64)
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        exact = {"mul": a * b, "add": a + b, "div": a / b}[name]
    normal = (np.abs(exact) >= 2.0**-126) & (np.abs(exact) <= np.finfo(np.float32).max)
    # float64's own rounding is on top: 2^-53.
    error = np.abs(got[normal] - exact[normal])
    assert (error <= np.abs(exact[normal]) * (2.0**-24 + 2.0**-52)).all()
    tiny = np.abs(exact) < 2.0**-126 * (1 - 2.0**-24)
    assert (got[tiny] == 0).all() and (np.signbit(got[tiny]) == np.signbit(exact[tiny])).all()


def test_subnormals_are_zeros_of_their_sign():
    # Half of the smallest normal number is flushed; what rounding lifts to the smallest normal is not.
    assert fp32.bits(fp32.mul(np.float32(-(2.0**-126)), np.float32(0.5))) == fp32.SIGN
    just_below = np.uint32(0x3F7FFFFF)
    assert fp32.bits(fp32.mul(fp32.value(0x800001), fp32.value(just_below))) == SMALLEST_NORMAL
    assert fp32.bits(fp32.add(np.uint32(0x80000001), np.uint32(0x80000001))) == fp32.SIGN
    assert fp32.bits(fp32.div(np.uint32(0x00000001), np.float32(1))) == 0
    assert np.isinf(fp32.div(np.float32(1), np.uint32(0x00000001)))


def test_flush_keeps_everything_else():
    word = np.array([0x00000001, 0x807FFFFF, 0x00800000, 0xFF800000, 0xFFFFFFFF, 0x3F800000], np.uint32)
    want = [0, 0x80000000, 0x00800000, 0xFF800000, 0x7FC00000, 0x3F800000]
    assert fp32.bits(fp32.flush(word)).tolist() == want


@pytest.mark.testpoint("random_match_golden", unit="emb/pooling")
def test_maximum_equals_numpy():
    """The oracle's maximum is NumPy's, with the canonical NaN and signed zeros in order."""
    x, y = (fp32.flush(v) for v in pairs(3, 50_000))
    nan = np.isnan(x) | np.isnan(y)
    got = fp32.maximum(x, y)
    assert (fp32.bits(got)[nan] == fp32.NAN).all()
    assert (got[~nan] == np.maximum(x, y)[~nan]).all()
    zeros = (x == 0) & (y == 0)
    assert (np.signbit(got[zeros]) == (np.signbit(x) & np.signbit(y))[zeros]).all() and zeros.sum() > 16


# ---- the fused dot product

def uniform(rng, shape):
    return rng.uniform(-1, 1, shape).astype(np.float32), rng.uniform(-1, 1, shape).astype(np.float32)


def normal(rng, shape):
    return rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape).astype(np.float32)


def wide_exponent(rng, shape):
    scale = lambda: np.exp2(rng.uniform(-30, 30, shape))
    x, y = normal(rng, shape)
    return (x * scale()).astype(np.float32), (y * scale()).astype(np.float32)


def near_cancellation(rng, shape):
    """Each odd term undoes the even one before it but for the last bits."""
    x, y = normal(rng, shape)
    x[..., 1::2] = x[..., ::2]
    y[..., 1::2] = -y[..., ::2] * np.float32(1 + 2.0**-18) ** rng.integers(-2, 3, y[..., ::2].shape)
    return x, y.astype(np.float32)


def near_overflow(rng, shape):
    """Products near the largest number whose sum comes back into range."""
    x, y = near_cancellation(rng, shape)
    return (x * np.float32(2.0**62)).astype(np.float32), (y * np.float32(2.0**63)).astype(np.float32)


DISTRIBUTIONS = (uniform, normal, wide_exponent, near_cancellation, near_overflow)


def exact_sums(x, y):
    products = x.astype(np.float64) * y.astype(np.float64)  # exact: 48 bits
    sums = np.array([math.fsum(row) for row in products.reshape(-1, x.shape[-1])])
    return sums, products


def sequential(x, y):
    """float32 as a processor does it: every product and every sum rounded, terms in order."""
    with np.errstate(all="ignore"):
        total = x[..., 0] * y[..., 0]
        for k in range(1, x.shape[-1]):
            total = total + x[..., k] * y[..., k]
    return total


@pytest.mark.turns(7)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("terms,beat", [(2, 1), (4, 4), (8, 2), (16, 16), (64, 1), (64, 4), (64, 16)])
@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_dot_is_at_least_as_accurate_as_sequential_float32(distribution, terms, beat):
    """Errors relative to sum |x y|, root mean square and largest."""
    x, y = distribution(np.random.default_rng(5), (4000, terms))
    exact, products = exact_sums(x, y)
    scale = np.abs(products).sum(-1)
    inside = np.abs(exact) < np.finfo(np.float32).max
    fused = fp32.dot(x, y, beat).astype(np.float64)
    assert np.isfinite(fused[inside]).all()
    with np.errstate(all="ignore"):
        plain = np.abs(sequential(x, y).astype(np.float64) - exact) / scale
    ours = np.abs(fused - exact) / scale
    ours, plain = ours[inside], np.nan_to_num(plain[inside], nan=np.inf, posinf=1.0)
    plain = np.minimum(plain, 1.0)  # an overflow on the way counts as losing everything, no more
    assert np.sqrt((ours**2).mean()) <= np.sqrt((plain**2).mean())
    assert ours.max() <= plain.max()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("terms,beat", [(1, 1), (4, 4), (16, 4), (64, 1), (64, 16)])
@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_dot_stays_within_its_bound_of_float64(distribution, terms, beat):
    """|error| <= (terms + beats) 2^-29 max |x y| + 2^-24 |exact|: one place lost by each aligned product and
    by each move of the accumulator, then one rounding."""
    if terms == 1 and distribution in (near_cancellation, near_overflow):
        distribution = normal  # one term has nothing to cancel
    x, y = distribution(np.random.default_rng(6), (4000, terms))
    exact, products = exact_sums(x, y)
    lost = (terms + -(-terms // beat)) * 2.0**-29 * np.abs(products).max(-1)
    bound = lost + 2.0**-24 * (np.abs(exact) + lost) + 2.0**-126
    inside = np.abs(exact) + bound < np.finfo(np.float32).max
    error = np.abs(fp32.dot(x, y, beat).astype(np.float64) - exact)
    assert inside.sum() > 1000 and (error <= bound)[inside].all()


@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_dot_of_integers_is_exact():
    """Sums of products of small integers are exact at every width of a beat, in groups that share an exponent too."""
    rng = np.random.default_rng(7)
    x, y = (rng.integers(-64, 65, (2000, 64)).astype(np.float32) for _ in range(2))
    want = (x.astype(np.int64) * y.astype(np.int64)).sum(-1)
    for beat in (1, 2, 4, 8, 16, 64):
        assert (fp32.dot(x, y, beat) == want).all()
        assert beat < 4 or (fp32.dot(x, y, beat, grouped=True) == want).all()


# ---- groups of four operands that share an exponent

def lognormal(rng, shape):
    """Of both signs, the middle half of them over a range of 15."""
    return tuple((np.exp(2 * rng.standard_normal(shape)) * rng.choice([-1, 1], shape)).astype(np.float32)
                 for _ in range(2))


def largest_in_groups(x, y):
    """Of every group the largest |x| times the largest |y|."""
    grouped = lambda v: np.abs(v.astype(np.float64)).reshape(*v.shape[:-1], -1, 4).max(-1)
    return grouped(x) * grouped(y)


def cancelling_in_groups(rng, shape):
    """A group's second term undoes its first one, which is up to 2^40 larger than the others."""
    x, y = normal(rng, shape)
    size = np.exp2(rng.uniform(0, 40, x[..., ::4].shape)).astype(np.float32)
    x[..., ::4] *= size
    x[..., 1::4], y[..., 1::4] = -x[..., ::4], y[..., ::4]
    return x, y


@pytest.mark.turns(7)
@pytest.mark.parametrize("distribution", [*DISTRIBUTIONS, lognormal, cancelling_in_groups])
@pytest.mark.parametrize("terms,beat", [(4, 4), (16, 4), (64, 4), (64, 16)])
@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_grouped_dot_stays_within_its_bound_of_float64(distribution, terms, beat):
    """|error| <= sum over the groups of (2^-22 + 9 * 2^-31) max |x| max |y|, a unit of the largest one's for each beat,
    and 2^-24 |exact|: four products whose operands are cut, the sum cut and moved, the accumulator moved, one rounding.
    """
    x, y = distribution(np.random.default_rng(6), (4000, terms))
    exact, _ = exact_sums(x, y)
    largest = largest_in_groups(x, y)
    lost = (2.0**-22 + 9 * 2.0**-31) * largest.sum(-1) + terms // beat * 2.0**-31 * largest.max(-1)
    bound = lost + 2.0**-24 * (np.abs(exact) + lost) + 2.0**-126
    inside = np.abs(exact) + bound < np.finfo(np.float32).max
    error = np.abs(fp32.dot(x, y, beat, grouped=True).astype(np.float64) - exact)
    assert inside.sum() > 1000 and (error <= bound)[inside].all()


@pytest.mark.parametrize("distribution", [uniform, normal])
@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_grouped_dot_of_512_terms_is_more_accurate_than_numpy(distribution):
    """Root mean square of the errors, at most half of that of NumPy's float32 dot product, summed in an order of its
    processor's."""
    x, y = distribution(np.random.default_rng(11), (2000, 512))
    exact, _ = exact_sums(x, y)
    numpy = np.array([np.dot(a, b) for a, b in zip(x, y)])
    ours, theirs = (np.sqrt(((v.astype(np.float64) - exact)**2).mean())
                    for v in (fp32.dot(x, y, 4, grouped=True), numpy))
    assert ours <= 0.5 * theirs


@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_grouped_dot_of_pairs_that_cancel():
    """64 terms, one 2^k larger than the others and another one its opposite: as docs/numerics.md tells."""
    for k, same, apart in ((12, 2e-5, 3e-5), (24, 7e-2, 1.3e-1)):
        for other, most in ((1, same), (63, apart)):
            x, y = normal(np.random.default_rng(12), (2000, 64))
            x[:, 0] *= np.float32(2**k)
            x[:, other], y[:, other] = -x[:, 0], y[:, 0]
            exact, _ = exact_sums(x, y)
            error = fp32.dot(x, y, 4, grouped=True).astype(np.float64) - exact
            assert np.sqrt((error**2).mean() / (exact**2).mean()) <= most


@pytest.mark.testpoint("accuracy", unit="fp/dot")
def test_what_a_group_loses():
    """An operand loses what lies more than 25 places below the largest one's leading bit; the other dot product does
    not."""
    x, y = np.array([2.0**26, 1, 0, 0], np.float32), np.array([0, 1, 0, 0], np.float32)
    assert fp32.dot(x, y, 4, grouped=True) == 0 and fp32.dot(x, y, 4) == 1
    x[0] = 2.0**25
    assert fp32.dot(x, y, 4, grouped=True) == 1


def test_dot_pads_with_zeros():
    x, y = normal(np.random.default_rng(8), (100, 6))
    padded = [np.pad(v, ((0, 0), (0, 2))) for v in (x, y)]
    assert (fp32.dot(x, y, 4) == fp32.dot(*padded, 4)).all()


@pytest.mark.parametrize("x,y,want", [
    ([np.inf, 1], [1, 1], 0x7F800000),
    ([np.inf, 1], [-1, 1], 0xFF800000),
    ([np.inf, np.inf], [1, -1], fp32.NAN),
    ([np.inf, 1], [0, 1], fp32.NAN),
    ([np.inf, 1], [2.0**-140, 1], fp32.NAN),  # a subnormal is a zero
    ([np.nan, 1], [0, 1], fp32.NAN),
    ([0.0, -0.0], [-1, 1], 0),
    ([1.0, 1.0], [1, -1], 0),
    ([2.0**100, 2.0**100], [2.0**100, 1], 0x7F800000),
    ([2.0**100, -(2.0**100)], [2.0**100, 2.0**100], 0),
    ([-(2.0**-100), 0], [2.0**-100, 0], 0x80000000),
])
@pytest.mark.testpoint("corner_values", unit="fp/dot")
def test_dot_of_corners(x, y, want):
    """Sums of zeros, infinities, NaNs and the largest numbers, worked out by hand."""
    for beat in (1, 2):
        assert fp32.bits(fp32.dot(np.array(x, np.float32), np.array(y, np.float32), beat)) == want


def test_dot_beat_wrong():
    with pytest.raises(ValueError, match="beat is 0, must be at least 1"):
        fp32.dot(np.ones(4, np.float32), np.ones(4, np.float32), 0)
