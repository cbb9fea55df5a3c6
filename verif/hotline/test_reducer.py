"""The reducer against its golden model: by the hundred thousand without cocotb, in a short run with it for the rest."""
import os

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from golden.hotline import reducer as golden
from hw.hotline.reducer import UPDATE, Reducer
from verif.bench import reset, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.fp.vectors import Runner

WAIVED = {
    "backpressure_both_sides":
        "It never stalls by contract; gaps between beats are part of random_match_golden.",
}

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
WORDS, CONTEXTS = 2, 32
SPECIALS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)


class Words(wiring.Component):
    """A reducer with its beats as 32-bit words: i = control, rate, x, y; o = words, control.

    Control: operation in bits 1..0, valid 2, context from 3, tag from 9; at the output tag and, in bit 31, valid.
    """

    def __init__(self, **parameters):
        self._unit = Reducer(**parameters)
        self.latency = self._unit.latency
        words = self._unit.words
        super().__init__({"i": In(32 * (2 + 2 * words)), "o": Out(32 * (words + 1))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        control, words, tag = self.i[:32], unit.words, unit.tag_bits
        m.d.comb += [
            unit.i.operation.eq(control[:2]), unit.i_valid.eq(control[2]), unit.i.context.eq(control[3:9]),
            unit.i.tag.eq(control[9:9 + tag]), unit.rate.eq(self.i[32:64]),
            unit.i.x.eq(self.i[64:64 + 32 * words]), unit.i.y.eq(self.i[64 + 32 * words:]),
            self.o.eq(Cat(unit.o.words.as_value(), unit.o.tag, Const(0, 31 - tag), unit.o_valid)),
        ]
        return m


def patterns(random, shape, kind):
    """Words of one kind: any bits, numbers of a few orders, specials among either."""
    any_bits = random.integers(0, 1 << 32, shape, dtype=np.uint32)
    near = (any_bits & np.uint32(0x81FFFFFF)) | np.uint32(0x3E000000)
    words = {"any": any_bits, "near": near, "special": np.where(random.random(shape) < 0.5, near, any_bits)}[kind]
    if kind == "special":
        words = np.where(random.random(shape) < 0.4, random.choice(SPECIALS, shape), words)
    return words.astype(np.uint32)


def drive(runner, random, rounds, kind, gap=0.0):
    """`rounds` beats of each context in turn, operations at random; every result against the model's."""
    count = rounds * CONTEXTS
    operation = random.choice(4, (rounds, CONTEXTS), p=[0.2, 0.3, 0.3, 0.2])
    operation[0] = golden.BEGIN
    valid = random.random((rounds, CONTEXTS)) >= gap
    valid[0] = True
    x, y = (patterns(random, (rounds, CONTEXTS, WORDS), kind) for _ in range(2))
    rate = patterns(random, 1, kind)[0]
    tag = np.arange(count, dtype=np.uint32).reshape(rounds, CONTEXTS) & 0xFF
    control = operation | valid << 2 | np.arange(CONTEXTS) << 3 | tag << 9
    records = np.concatenate([control.reshape(count, 1), np.full((count, 1), rate), x.reshape(count, -1),
                              y.reshape(count, -1)], axis=1).astype(np.uint32)
    results = runner(records)
    vectors = np.zeros((CONTEXTS, WORDS), np.uint32)
    for number in range(rounds):
        now, a, b = operation[number][:, None], x[number], y[number]
        want = np.select([now == op for op in range(4)],
                         [golden.step(vectors, a, golden.BEGIN), golden.step(vectors, a, golden.ADD),
                          golden.step(vectors, a, golden.MULTIPLY), golden.update(b, rate, a)])
        got = results[number * CONTEXTS:(number + 1) * CONTEXTS]
        alive = valid[number]
        assert ((got[:, WORDS] >> 31 == 1) == alive).all(), f"round {number}: valid"
        bad = np.argwhere((got[:, :WORDS] != want) & alive[:, None])
        assert not len(bad), (f"round {number}, context {bad[0][0]}, operation {now[bad[0][0]]}: "
                              f"{got[tuple(bad[0])]:#x}, expected {want[tuple(bad[0])]:#x}")
        assert (got[alive, WORDS] & 0xFF == tag[number][alive]).all(), f"round {number}: tags"
        vectors = np.where(alive[:, None] & (now != UPDATE), want, vectors)


@pytest.fixture(scope="module")
def runner():
    return Runner(Words(words=WORDS, contexts=CONTEXTS, tag_bits=8), "hotline_reducer")


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("kind", ["any", "near", "special"])
def test_random_match_golden(runner, kind, number):
    """Operations at random on 32 vectors in turns, with and without gaps, on any words, on numbers of near exponents
    and on specials: words, tags and valid of every cycle."""
    random = np.random.default_rng([number, len(kind)])
    drive(runner, random, 1500 if REGRESS else 400, kind)
    drive(runner, random, 300 if REGRESS else 150, kind, gap=0.4)


def test_corner_values(runner):
    """Every operation on every pair of zeros, subnormals, limits, infinities and NaNs, updates also with each of them
    as the rate."""
    count = len(SPECIALS)
    first, second = (axis.ravel() for axis in np.meshgrid(SPECIALS, SPECIALS))
    pairs = len(first)
    for operation in (golden.ADD, golden.MULTIPLY):
        # BEGIN of some contexts, then the operation on each; one context comes again `turnaround` later.
        records, wants = [], []
        for at in range(0, pairs, CONTEXTS):
            a, b = (np.resize(words[at:at + CONTEXTS], CONTEXTS) for words in (first, second))
            for op, words in ((golden.BEGIN, a), (operation, b)):
                control = op | 4 | np.arange(CONTEXTS) << 3
                records.append(np.stack([control, control * 0, words, words, words, words], axis=1))
            wants += [golden.step(a, a, golden.BEGIN), golden.step(golden.step(a, a, golden.BEGIN), b, operation)]
        got = runner(np.concatenate(records).astype(np.uint32))
        assert (got[:, 0] == np.concatenate(wants)).all() and (got[:, 1] == got[:, 0]).all()
    assert (golden.step(SPECIALS, SPECIALS, golden.BEGIN) == fp32.bits(fp32.flush(SPECIALS))).all()
    for rate in SPECIALS:
        control = np.full(pairs, UPDATE | 4)
        records = np.stack([control, np.full(pairs, rate), first, first, second, second], axis=1)
        got = runner(records.astype(np.uint32))
        assert (got[:, 0] == golden.update(second, rate, first)).all(), f"rate {rate:#x}"
    assert count == 20


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle, `latency` behind; a context that comes again `turnaround` later sees the result; both counts."""
    start(dut)
    dut.i_valid.value = 0
    await reset(dut)
    edge = RisingEdge(dut.clk)
    layout, out = layout_of("i"), layout_of("o")
    random = np.random.default_rng(seed("rate"))
    x = patterns(random, (200, WORDS), "near")
    operations = [golden.BEGIN, golden.ADD, golden.MULTIPLY, UPDATE]
    counts, got, at = {"v_mul": 0, "v_add": 0}, [], []
    turn, wants, vectors = Reducer.turnaround, [], {}
    assert turn <= CONTEXTS
    dut.rate.value = 0x3F000000
    for cycle in range(len(x) + Reducer.latency + 2):
        dut.i_valid.value = cycle < len(x)
        if cycle < len(x):
            context = cycle % turn
            op = golden.BEGIN if cycle < turn else operations[cycle % 4]
            dut.i.value = layout.pack({"x": x[cycle].tolist(), "y": x[cycle - 1].tolist(), "operation": op,
                                       "context": context, "tag": cycle & 0xFF})
            want = golden.update(x[cycle - 1], 0x3F000000, x[cycle]) if op == UPDATE else golden.step(
                vectors.get(context, x[cycle]), x[cycle], op)
            if op != UPDATE:
                vectors[context] = want
            wants.append((op, want.tolist()))
        await edge
        for name in counts:
            counts[name] += int(getattr(dut, name).value)
        if dut.o_valid.value == 1:
            beat = out.unpack(int(dut.o.value))
            assert beat["tag"] == len(got) & 0xFF
            got.append(beat["words"])
            at.append(cycle)
    assert at == list(range(Reducer.latency, Reducer.latency + len(x)))
    assert got == [want for _, want in wants]
    assert counts == {"v_mul": sum(op in (golden.MULTIPLY, UPDATE) for op, _ in wants),
                      "v_add": sum(op in (golden.ADD, UPDATE) for op, _ in wants)}


@cocotb.test()
async def reset_midstream(dut):
    """A reset with beats inside: none of them leaves, and the next vector is right."""
    start(dut)
    layout = layout_of("i")
    edge = RisingEdge(dut.clk)
    await reset(dut)
    for cycles in (3, Reducer.latency - 1, 40):
        dut.i_valid.value = 1
        for _ in range(cycles):
            dut.i.value = layout.pack({"x": [1, 2], "y": [3, 4], "operation": 0})
            await edge
        dut.i_valid.value = 0
        await reset(dut, 1)
        for _ in range(Reducer.latency + 2):
            await edge
            assert dut.o_valid.value == 0 and dut.v_add.value == 0
    # The next vector is right, whatever was in its context.
    dut.i.value = layout.pack({"x": [0x40000000, 0x3F800000], "operation": golden.BEGIN})
    dut.i_valid.value = 1
    await edge
    dut.i_valid.value = 0
    for _ in range(Reducer.latency):
        await edge
    assert dut.o_valid.value == 1
    assert layout_of("o").unpack(int(dut.o.value))["words"] == [0x40000000, 0x3F800000]


@pytest.mark.parametrize("number", seeds())
def test_reducer(number):
    simulate(Reducer(words=WORDS, contexts=CONTEXTS, tag_bits=8), "verif.hotline.test_reducer", name="hotline_reducer",
             tests=2, seed=number)


def test_smoke():
    """A reducer with one context and no tag updates three words: updates alone."""
    runner = Runner(Words(words=1, contexts=1), "hotline_reducer_plain")
    rows, gradients = (np.array(values, np.float32) for values in ([1, 2, 3], [4, 8, -2]))
    control = np.full(3, UPDATE | 4, np.uint32)
    rate = np.full(3, 0xBF000000, np.uint32)    # -0.5
    got = runner(np.stack([control, rate, fp32.bits(gradients), fp32.bits(rows)], axis=1))
    assert fp32.value(got[:, 0]).tolist() == [-1, -2, 4]


@pytest.mark.testpoint("random_match_golden")
def test_golden_joins():
    """Vectors of one, two and three rows; rows before the first vector are refused."""
    rows = np.array([[1, 2], [3, 4], [5, 6], [7, 8], [2, 2], [0.5, 3]], np.float32)
    joins = [golden.BEGIN, golden.BEGIN, golden.ADD, golden.BEGIN, golden.ADD, golden.MULTIPLY]
    assert fp32.value(golden.join(rows, joins)).tolist() == [[1, 2], [8, 10], [4.5, 30]]
    with pytest.raises(ValueError) as caught:
        golden.join(rows[:1], [golden.ADD])
    assert str(caught.value) == "the first row must begin a vector"
    with pytest.raises(ValueError) as caught:
        golden.step(rows[0], rows[1], 3)
    assert str(caught.value) == "operation must be 0, 1 or 2, not 3"


@pytest.mark.parametrize("parameters,sentence", [
    (dict(words=0), "words must be a whole number from 1 to 64, not 0"),
    (dict(words=8, tag_bits=65), "tag_bits must be a whole number from 0 to 64, not 65"),
    (dict(words=8, contexts=128), "contexts must be a power of two from 1 to 64, not 128"),
    (dict(words=8, contexts=3), "contexts must be a power of two from 1 to 64, not 3"),
])
def test_illegal_config_wrong(parameters, sentence):
    """Parameters outside their ranges are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        Reducer(**parameters)
    assert str(caught.value) == sentence
