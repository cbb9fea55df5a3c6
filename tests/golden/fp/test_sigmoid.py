"""The sigmoid's oracle: its error and order over every word, and the table it shares with the unit."""

import math
import os

import numba
import numpy as np
import pytest

from golden.fp import fp32
from hw.fp.sigmoid import FRACTION_BITS, POWER_BITS, power_table

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
BOUND = 0.70    # ulp; the worst of all words is 0.694


def judge(words):
    """The largest error in ulp of finite words; specials and results that are too small are judged here."""
    x = fp32.value(words).astype(np.float64)
    got = fp32.sigmoid(words).astype(np.float64)
    nan = np.isnan(x)
    assert np.isnan(got[nan]).all() and not np.isnan(got[~nan]).any()
    x, got = x[~nan], got[~nan]
    small = np.exp(-np.abs(x))
    exact = np.where(x < 0, small, 1.0) / (1.0 + small)
    error = np.abs(got - exact) * np.ldexp(1.0, 24 - np.frexp(np.maximum(exact, 2.0 ** -126))[1])
    tiny = exact < 2.0 ** -126
    assert ((got == 0) | (error <= BOUND))[tiny].all()
    return float(error[~tiny].max(initial=0))


@pytest.mark.testpoint("random_match_golden", unit="fp/sigmoid")
def test_golden_error_and_order():
    """Error and order over words of all sizes, dense at places."""
    random = np.random.default_rng(1)
    worst, total = 0.0, 0
    for sign in (0, 1 << 31):
        spread = np.sort(random.integers(0x30000000, 0x43000000, 1 << 18, dtype=np.uint32))
        dense = [np.arange(at, at + (1 << 15), dtype=np.uint32) for at in (
            0x33000000, 0x3EFFE000, 0x3F7FE000, 0x40000000, 0x4085_0000, 0x41700000, 0x418A8000, 0x42AEA000)]
        for some in (spread, *dense):
            words = np.uint32(sign) | some
            worst = max(worst, judge(words))
            # Negative words come in the order of falling values.
            steps = np.diff(fp32.sigmoid(words)) * (-1 if sign else 1)
            assert (steps >= 0).all(), hex(words[0])
            total += len(words)
    print(f"sigmoid: {total:,} words, at most {worst:.3f} ulp")
    assert 0.5 < worst <= BOUND


@numba.njit
def _every(start, count, base, slope, bend, results):
    """The golden model's integers, word by word from `start`: the largest error, whether results keep their order,
    and the results' patterns in `results` as far as there is room."""
    worst, order, last = 0.0, True, np.int64(-1)
    for word in range(start, start + count):
        sign, exponent, fraction = word >> 31, (word >> 23) & 255, word & 0x7FFFFF
        if exponent == 255 and fraction:
            result = np.int64(0x7FC00000)
        else:
            right = 133 - exponent
            mantissa = 0 if exponent == 0 or right >= 64 else fraction | 0x800000
            product = np.int64(0)
            for place in range(0, 24, 4):
                product = (product + ((mantissa >> place) & 15) * 198_282_496_599) >> 4
            scaled = (product >> 3) >> max(right, 0)
            n = np.int64(255) if right < 0 else scaled >> 27
            k, step = (scaled >> 18) & 511, (scaled & 0x3FFFF) - 0x20000
            power = base[k] - (((slope[k] - ((bend[k] * step) >> 17)) * step) >> 21)
            divisor = (1 << 28) + (power >> min(n, 63))
            quotient = min(((power if sign else 1 << 28) << 26) // divisor, (1 << 26) - 1)
            upper = quotient >> 25
            result = ((125 - (n if sign else 0) + upper) << 23) + ((quotient >> (1 + upper)) & 0x7FFFFF)
            result += (quotient >> upper) & 1
            if result < 1 << 23:
                result = np.int64(0)
            order = order and (last < 0 or (result <= last if sign else result >= last))
            last = result
            if exponent < 255:
                x = math.ldexp(float(0 if exponent == 0 else fraction | 0x800000), exponent - 150)
                small = math.exp(-x)
                exact = (small if sign else 1.0) / (1.0 + small)
                got = 0.0 if result == 0 else math.ldexp(float(result & 0x7FFFFF | 0x800000), (result >> 23) - 150)
                places = 24 - math.frexp(max(exact, 2.0 ** -126))[1]
                # What is below the smallest normal number is 0, or that number if it is as near as allowed.
                if exact >= 2.0 ** -126 or result:
                    worst = max(worst, math.ldexp(abs(got - exact), places))
        if word - start < len(results):
            results[word - start] = result
    return worst, order


@pytest.mark.testpoint("random_match_golden", unit="fp/sigmoid")
def test_every_word():
    """All 2^32 words in a regression, else 2^16 at each of 64 places, are within the bound of 0.70 ulp and in order;
    the first of each place are the golden model's."""
    tables = fp32._power_table()
    count = 1 << (24 if REGRESS else 16)
    worst = 0.0
    for start_at in range(0, 1 << 32, 1 << (24 if REGRESS else 26)):
        results = np.zeros(1 << 14, np.int64)
        error, order = _every(start_at, count, *tables, results)
        worst = max(worst, error)
        assert order and worst <= BOUND, f"{start_at:#010x}: {error} ulp, order {order}"
        words = np.arange(start_at, start_at + len(results), dtype=np.uint32)
        if start_at & 0x7FFFFFFF:
            edge = fp32.sigmoid(np.array([start_at - 1, start_at], np.uint32))
            order = not (edge[0] < edge[1] if start_at >> 31 else edge[0] > edge[1])
            assert order, f"{start_at:#010x}"
        assert (fp32.bits(fp32.sigmoid(words)) == results).all(), hex(start_at)
    print(f"sigmoid: at most {worst:.4f} ulp")


@pytest.mark.testpoint("corner_values", unit="fp/sigmoid")
def test_golden_specials():
    """Zeros, a subnormal, infinities, NaN and large numbers, and both sides of the last result that is not 0."""
    x = np.array([0, -0.0, 1e-40, np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    want = np.array([0.5, 0.5, 0.5, 1, 0, np.nan, 1, 0], np.float32)
    assert (fp32.bits(fp32.sigmoid(x)) == fp32.bits(fp32.flush(want))).all()
    # The last value above the smallest normal number, and the first below.
    edge = fp32.sigmoid(np.array([0x42AEAC4F | 1 << 31, 0x42AEAC50 | 1 << 31], np.uint32))
    assert edge[0] >= np.float32(2.0 ** -126) and edge[1] == 0


@pytest.mark.testpoint("random_match_golden", unit="fp/sigmoid")
def test_power_falls_at_every_step():
    """2^-f in the unit's integers for each of the 2^27 values of f: within 1.1 of its last place, and never more than
    at the value before, from below 1 down to 1/2. A quotient of falling numbers by their growing sums with 1 falls as
    well, which makes the whole function monotone. Of seven in eight stretches only the ends, but with regress."""
    within = 1 << FRACTION_BITS - 9
    whole, ends = np.arange(within), np.array([0, 1, within - 2, within - 1])
    before = (1 << POWER_BITS) - 1
    for stretch, (value, slope, bend) in enumerate(power_table()):
        places = whole if REGRESS or stretch % 8 == 0 else ends
        step = places - within // 2
        power = value - (((slope - ((bend * step) >> 17)) * step) >> 21)
        assert power[0] <= before and (np.diff(power) <= 0).all(), stretch
        f = (stretch + (places + 0.5) / within) / len(power_table())
        assert np.abs(power - 2.0 ** (POWER_BITS - f)).max() < 1.1
        before = power[-1]
    assert before >= 1 << POWER_BITS - 1


def test_golden_has_the_unit_s_table():
    assert np.array_equal(np.array(power_table()).T, fp32._power_table())
