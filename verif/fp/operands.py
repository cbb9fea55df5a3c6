"""Words for FP32 operands: corners, any bits, near exponents, near words."""
import numpy as np

# Both signs of: zero, smallest and largest subnormal, smallest normal and its neighbour, numbers around the
# square root of the smallest, the unit roundoff, one and its neighbours, the largest below two, 2^24, numbers
# around the square root of the largest, the largest and its half, infinity, a signalling and the quiet NaN.
CORNERS = np.array(
    [s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x1F800000, 0x20000001, 0x33800000, 0x34000000, 0x3F7FFFFF,
        0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x4B800000, 0x5F7FFFFF, 0x5F800000, 0x7EFFFFFF, 0x7F7FFFFF,
        0x7F800000, 0x7F800001, 0x7FC00000)],
    np.uint32)
SIGN = np.uint32(1 << 31)


def random_words(random, count):
    return random.integers(0, 1 << 32, count, dtype=np.uint32)


def near(random, count, low, high):
    """Random signs and fractions, exponents from `low` to `high` - 1."""
    exponents = random.integers(low, high, count, dtype=np.uint32) << np.uint32(23)
    return exponents | (random_words(random, count) & np.uint32(0x807FFFFF))


def nudged(random, x, bits):
    """x with small changes to its last bits."""
    return x + random.integers(-(1 << bits), (1 << bits) + 1, len(x)).astype(np.uint32)


def dot_terms(random, tiles, terms):
    """Operands of dot products (tiles, terms), one kind after the other."""
    n = -(-tiles // 8)
    shape = (n, terms)
    size = n * terms
    flat = lambda words: words.reshape(shape)
    a, b = flat(near(random, size, 120, 134)), flat(near(random, size, 120, 134))
    opposite_b = b.copy()
    opposite_b[:, 1::2] = flat(nudged(random, b.ravel(), 3))[:, ::2][:, :terms // 2] ^ SIGN
    same_a = a.copy()
    same_a[:, 1::2] = a[:, ::2][:, :terms // 2]
    # A single large product that a later one undoes: what the accumulator shifts out is lost for good.
    high_a, high_b = flat(near(random, size, 60, 200)), flat(near(random, size, 60, 200))
    # Products near the largest number, of both signs.
    large_a, large_b = flat(near(random, size, 188, 192)), flat(near(random, size, 188, 192))
    tiny_a, tiny_b = flat(near(random, size, 50, 66)), flat(near(random, size, 50, 66))
    some = lambda v: np.where(random.random(shape) < 0.1, random.choice(CORNERS, shape), v)
    mixed_a, mixed_b = some(a), some(b)
    corner_a, corner_b = random.choice(CORNERS, shape), random.choice(CORNERS, shape)
    kinds = [(a, b), (same_a, opposite_b), (high_a, high_b), (large_a, large_b), (tiny_a, tiny_b),
             (mixed_a, mixed_b), (corner_a, corner_b),
             (flat(random_words(random, size)), flat(random_words(random, size)))]
    order = random.permutation(8 * n)[:tiles]
    return tuple(np.concatenate(column)[order] for column in zip(*kinds))
