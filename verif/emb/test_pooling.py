"""The pooling unit against its golden model: bags in turns, in one cocotb run for timing and by the million without.

Bags of several contexts are mixed beat by beat, with beats between them that say they are none.
"""
import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden.emb import bags, pooling
from golden.fp import fp32
from hw.emb.pooling import PoolingUnit
from verif.bench import seed, start
from verif.bench.runner import one_of, seeds, simulate
from verif.fp.vectors import Runner

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
ONE = 0x3F800000
SPECIALS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)


class Words(wiring.Component):
    """A pooling unit with its beats as 32-bit words: i = control, weight, words; o = words, control.

    Control: context in bits 7..0, first 8, last 9, maximum 10, valid 11, tag from 12; at the output tag and, in
    bit 31, valid.
    """

    def __init__(self, **parameters):
        self._unit = PoolingUnit(**parameters)
        self.latency = self._unit.latency
        words = self._unit.words
        super().__init__({"i": In(32 * (2 + words)), "o": Out(32 * (words + 1))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        control = self.i[:32]
        tag = unit.tag_bits
        m.d.comb += [
            unit.i_valid.eq(control[11]), unit.i.weight.eq(self.i[32:64]), unit.i.context.eq(control[:8]),
            unit.i.first.eq(control[8]), unit.i.last.eq(control[9]), unit.i.maximum.eq(control[10]),
            unit.i.tag.eq(control[12:12 + tag]), unit.i.words.as_value().eq(self.i[64:]),
            self.o.eq(Cat(unit.o.words.as_value(), unit.o.tag, Const(0, 31 - tag), unit.o_valid)),
        ]
        return m


def _near(random, shape, low, high):
    """Random signs and fractions, exponents from `low` to `high` - 1."""
    exponents = random.integers(low, high, shape, dtype=np.uint32) << np.uint32(23)
    return exponents | (random.integers(0, 1 << 32, shape, dtype=np.uint32) & np.uint32(0x807FFFFF))


def rows(random, count, words):
    """Rows of one kind: near numbers, numbers that cancel, any bits, specials, near the largest or the smallest."""
    shape = (count, words)
    kind = random.integers(7)
    near = _near(random, shape, 120, 134)
    if kind == 0:
        return near
    if kind == 1:
        near[1::2] = (near[::2][:count // 2] ^ np.uint32(1 << 31)) + random.integers(0, 3, near[1::2].shape, np.uint32)
        return near
    if kind == 2:
        return random.integers(0, 1 << 32, shape, dtype=np.uint32)
    if kind == 3:
        return random.choice(SPECIALS, shape)
    if kind == 4:
        return np.where(random.random(shape) < 0.1, random.choice(SPECIALS, shape), _near(random, shape, 60, 200))
    if kind == 5:
        return _near(random, shape, 245, 255)
    # Zeros and subnormals, with a few of the smallest numbers among them.
    return _near(random, shape, 0, 2) & random.choice(np.array([0x80000000, 0x80000001, 0x80FFFFFF], np.uint32), shape)


def lengths_of(random, count):
    return np.where(random.random(count) < 0.3, 1, random.integers(1, 9, count))


def schedule(random, count, contexts, words, lengths=None, idle=0.1):
    """`count` bags in turns: records (n, 2 + words) and, a bag each, the record with its last beat, its vector and
    its tag."""
    lengths = lengths_of(random, count) if lengths is None else np.asarray(lengths)
    context_of = random.integers(0, contexts, count)
    maximum, weighted = random.random((2, count)) < 0.4
    values = np.concatenate([rows(random, n, words) for n in lengths])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    of_row = np.repeat(np.arange(count), lengths)
    weights = np.where(random.random(len(values)) < 0.05, random.choice(SPECIALS, len(values)),
                       _near(random, len(values), 110, 140))
    # Whatever comes with a maximum's rows is left aside.
    weights = np.where(weighted[of_row] | maximum[of_row], weights, np.uint32(ONE))
    position = np.arange(len(values)) - offsets[of_row]
    tag = random.integers(0, 4, len(values))
    control = (context_of[of_row] | (position == 0) << 8 | (position == lengths[of_row] - 1) << 9
               | maximum[of_row] << 10 | 1 << 11 | tag << 12)
    # A context's rows keep their order; which context is next is drawn, often the same again.
    key = np.empty(len(values))
    for context in range(contexts):
        mine = np.flatnonzero(context_of[of_row] == context)
        steps = np.where(random.random(len(mine)) < 0.5, 1e-7, random.random(len(mine)))
        key[mine] = np.cumsum(steps)
    order = np.argsort(key, kind="stable")
    records = np.concatenate([control[:, None], weights[:, None], values], 1)[order].astype(np.uint32)
    # Beats that are none may look like anything else.
    gaps = random.random(len(records)) < idle
    at = np.arange(len(records)) + np.cumsum(gaps)
    out = random.integers(0, 1 << 32, (int(at[-1]) + 1, 2 + words), dtype=np.uint32)
    out[:, 0] &= ~np.uint32(1 << 11)
    out[at] = records
    place = np.empty(len(records), np.int64)
    place[order] = at
    want = bags.pool(values, offsets, weights).view(np.uint32)
    want[maximum] = bags.pool(values, offsets, maximum=True).view(np.uint32)[maximum]
    last = offsets[1:] - 1
    return out, place[last], want, tag[last]


def judge(got, at, want, tags):
    """Every result in its cycle, and none in any other."""
    words = want.shape[1]
    valid = got[:, words] >> 31 == 1
    expected = np.zeros(len(got), bool)
    expected[at] = True
    wrong = np.flatnonzero(valid != expected)
    assert not len(wrong), f"beat {wrong[0]}: valid is {valid[wrong[0]]}, {len(wrong)} of {len(got)} cycles differ"
    wrong = np.argwhere(got[at, :words] != want)
    assert not len(wrong), (
        f"bag {wrong[0][0]}, word {wrong[0][1]}: {got[at[wrong[0][0]], wrong[0][1]]:#010x}, expected "
        f"{want[wrong[0][0], wrong[0][1]]:#010x}; {len(wrong)} of {want.size} differ")
    assert (got[at, words] & 3 == tags).all(), "a tag does not belong to its bag"


# ---- cocotb: timing and reset

SMALL = dict(words=2, contexts_log2=2, tag_bits=2)


async def _through(dut, records, reset=range(0)):
    """A record a cycle; what stands at the output `latency` cycles behind each."""
    start(dut)
    edge = RisingEdge(dut.clk)
    dut.rst.value = 0
    dut.i.value = 0
    # What the contexts hold at first must not matter, but no beat may be under way.
    for _ in range(40):
        await edge
    latency = pooling.latency(False)
    got = []
    for cycle in range(len(records) + latency + 1):
        dut.i.value = int.from_bytes(records[cycle].tobytes(), "little") if cycle < len(records) else 0
        dut.rst.value = cycle in reset
        await edge
        # What is read right after an edge stood there before it.
        if cycle >= latency and len(got) < len(records):
            got.append(np.frombuffer(int(dut.o.value).to_bytes(12, "little"), np.uint32))
    return np.array(got)


@cocotb.test()
async def smoke(dut):
    """Two bags in turns, one a maximum and one a weighted sum, then a bag of one row."""
    def beat(context, first, last, maximum, weight, *values):
        words = np.concatenate([fp32.bits(np.float32([weight])), fp32.bits(np.float32(values))])
        return np.concatenate([[context | first << 8 | last << 9 | maximum << 10 | 1 << 11], words]).astype(np.uint32)

    records = np.array([beat(0, 1, 0, 0, 2, 1, -3), beat(1, 1, 0, 1, 1, 5, -7), beat(0, 0, 0, 0, 3, 10, 1),
                        beat(1, 0, 1, 1, 1, 4, -6), beat(0, 0, 1, 0, 1, 0.5, 0), beat(0, 1, 1, 0, 1, 9, 8)])
    got = await _through(dut, records)
    judge(got, np.array([3, 4, 5]), fp32.bits(np.float32([[5, -6], [32.5, -3], [9, 8]])), np.zeros(3, int))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat in every cycle, most of them a bag's last: every result in the cycle that the property names,
    none in any other."""
    random = np.random.default_rng(seed("rate"))
    records, *expected = schedule(random, 300, 4, 2, lengths=random.integers(1, 3, 300), idle=0)
    judge(await _through(dut, records), *expected)


@cocotb.test()
async def reset_midstream(dut):
    """A reset drops what is on its way and nothing older; bags behind it are whole."""
    random = np.random.default_rng(seed("reset"))
    # Bags of a row leave in every cycle up to the reset, others are cut by it.
    parts = [schedule(random, 60, 4, 2, **how) for how in ({"lengths": np.ones(60, int), "idle": 0}, {}, {}, {})]
    records = [part[0] for part in parts]
    ends = np.cumsum([len(part) for part in records])
    got = await _through(dut, np.concatenate(records), reset={end - 1 for end in ends[:-1]})
    for (part, at, want, tags), end in zip(parts, ends):
        # The reset's edge drops what has not stood at the output before it.
        seen = at + pooling.latency(False) <= (len(part) - 1 if end < ends[-1] else np.inf)
        judge(got[end - len(part):end], at[seen], want[seen], tags[seen])


@pytest.mark.parametrize("number", seeds())
def test_pooling(number):
    simulate(Words(**SMALL), "verif.emb.test_pooling", name="pooling", tests=3, seed=number)


# ---- vectors

# Ten million once; the other seeds are for the benches.
VECTOR_SEEDS = seeds()[:1] if REGRESS else seeds()
SHAPES = {
    "one": dict(words=1, contexts_log2=1, tag_bits=2, terms_log2=4),
    "four": dict(words=4, contexts_log2=4, tag_bits=2),
    "mixed": dict(words=3, contexts_log2=6, tag_bits=2, lut_products=2),
    "lut": dict(words=2, contexts_log2=5, tag_bits=2, terms_log2=10, lut_products=2),
    "slices": dict(words=3, contexts_log2=6, tag_bits=2, lut_products=1, family="ultrascale_plus"),
}


@pytest.mark.parametrize("number", VECTOR_SEEDS)
@pytest.mark.parametrize("name", one_of(["four", "one", "mixed", "lut", "slices"]))
@pytest.mark.testpoint("random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
                       "corner_values")
def test_vectors(name, number):
    """Bags in turns by the thousand, bit for bit, each in its cycle: of five shapes two, up to 64 contexts mixed beat
    by beat, half of the beats in the context before them; sums, weighted sums and maxima of rows of seven kinds, with
    zeros of both signs, subnormals, infinities and NaNs as words and weights. Beats that are none may look like
    anything and change nothing. Above ten million words of each mode in a regression."""
    shape = SHAPES[name]
    run = Runner(Words(**shape), f"pooling_{name}")
    assert run.latency == pooling.latency(bool(shape.get("lut_products")))
    random = np.random.default_rng([number, len(name)])
    tried = 0
    while tried < (10_485_760 if REGRESS else 20_000):
        records, *expected = schedule(random, 4_000, 1 << shape["contexts_log2"], shape["words"])
        judge(run(records), *expected)
        tried += expected[1].size
    print(f"{name}: {tried:,} pooled words, none differing")


@pytest.mark.parametrize("number", VECTOR_SEEDS)
@pytest.mark.testpoint("corner_values")
def test_long_bags(number):
    """Bags of tens of thousands of rows, up to the most that a sum may have, among short ones."""
    run = Runner(Words(**SHAPES["four"]), "pooling_four")
    random = np.random.default_rng(number)
    long = [1 << 16, 40_000, 1 << 16, 30_000]
    lengths = np.concatenate([lengths_of(random, 2_000), long if REGRESS else long[:2]])
    random.shuffle(lengths)
    records, *expected = schedule(random, len(lengths), 16, 4, lengths=lengths)
    judge(run(records), *expected)


@pytest.mark.testpoint("corner_values")
def test_largest_sums_fit():
    """2^16 equal products with the largest significands, of both signs: the accumulator's last bit."""
    run = Runner(Words(**SHAPES["four"]), "pooling_four")
    count = 1 << 16
    records = np.zeros((2 * count, 6), np.uint32)
    records[:, 0] = np.repeat([0, 1], count) | 1 << 11
    records[::count, 0] |= 1 << 8
    records[count - 1::count, 0] |= 1 << 9
    records[:, 1] = 0x3FFFFFFF
    records[:count, 2:] = 0x3FFFFFFF
    records[count:, 2:] = 0xBFFFFFFF
    want = np.stack([pooling.pool(records[k:k + count, 2:], records[k:k + count, 1]) for k in (0, count)])
    assert want[0, 0] > 260_000 and want[1, 0] < -260_000
    judge(run(records), np.array([count - 1, 2 * count - 1]), fp32.bits(want), np.zeros(2, int))


@pytest.mark.parametrize("parameters,sentence", [
    (dict(words=0), "words is 0, must be a whole number from 1 to 64"),
    (dict(words=65), "words is 65, must be a whole number from 1 to 64"),
    (dict(contexts_log2=0), "contexts_log2 is 0, must be a whole number from 1 to 8"),
    (dict(contexts_log2=9), "contexts_log2 is 9, must be a whole number from 1 to 8"),
    (dict(tag_bits=-1), "tag_bits is -1, must be a whole number from 0 to 64"),
    (dict(terms_log2=17), "terms_log2 is 17, must be a whole number from 0 to 16"),
    (dict(lut_products=5), "lut_products is 5, must be a whole number from 0 to 4"),
])
def test_illegal_config_wrong(parameters, sentence):
    """Parameters outside their ranges are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        PoolingUnit(**(dict(words=4, contexts_log2=2, tag_bits=2) | parameters))
    assert str(caught.value) == sentence
