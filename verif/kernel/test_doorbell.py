"""The doorbell against a port of the bench: how often it looks, and what it tells."""

import os
from collections.abc import Iterator

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from hw.kernel.doorbell import GLANCE_CYCLES, POLL_CYCLES, Doorbell
from verif.bench import report, reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import Pattern, always, bursty, sometimes

BITS = int(os.environ.get("BITS", "32"))
MASK = (1 << BITS) - 1


class Bench:
    """The port's side: `word` is what lies in memory. delay: cycles from a request to its answer."""

    def __init__(self, dut, *, ready: Pattern | None = None, delay: Iterator[int] | None = None):
        self.dut, self.edge = dut, RisingEdge(dut.clk)
        self.payload, self.request = layout_of("i__payload"), layout_of("o_requests__payload")
        self.ready, self.delay = ready or always(), delay or iter(lambda: 3, None)
        self.word = self.cycle = 0
        self.noise = rng("noise")
        self.fails = False
        self.answer_at: int | None = None
        self.answered: list[tuple[int, bool]] = []      # what was answered last, until it is told
        self.asked_at: list[int] = []
        self.answered_at: list[int] = []
        self.told: list[tuple[int, bool]] = []
        self.waiting = 0
        self.value = 0
        self.standing = False

    @classmethod
    async def fresh(cls, dut, **more) -> "Bench":
        for name in ("enable", "waiting", "address", "o_requests__ready", "i__valid"):
            getattr(dut, name).value = 0
        await reset(dut)
        bench = cls(dut, **more)
        dut.address.value = 0x12_3456_7000
        dut.enable.value = 1
        return bench

    async def step(self, *, enable: bool = True) -> None:
        dut = self.dut
        dut.enable.value = enable
        dut.waiting.value = self.waiting
        ready = next(self.ready)
        dut.o_requests__ready.value = ready
        answers = self.answer_at is not None and self.answer_at <= self.cycle
        dut.i__valid.value = answers
        upper = self.noise.getrandbits(self.payload.width - 34)
        dut.i__payload.value = self.payload.pack({"data": upper << 32 | self.word, "error": int(self.fails)})
        await self.edge
        self.cycle += 1
        assert dut.i__ready.value == 1
        polled, failed = int(dut.polled.value), int(dut.failed.value)
        # What was answered in the cycle before is told now, and nothing else.
        want = self.answered.pop() if self.answered else None
        assert (polled, failed) == ((0, 0) if want is None else (not want[1], want[1])), (polled, failed, want)
        if want is not None:
            self.told.append(want)
            self.value = want[0]
        assert int(dut.value.value) == self.value
        valid = int(dut.o_requests__valid.value)
        assert valid or not self.standing, "the request was taken back"
        self.standing = bool(valid and not ready)
        if valid:
            assert self.answer_at is None, "two looks at a time"
            assert self.request.unpack(int(dut.o_requests__payload.value)) == {
                "address": int(dut.address.value), "beats": 1}
        if answers:
            self.answer_at = None
            self.answered.append((self.word & MASK, self.fails))
            self.answered_at.append(self.cycle)
        if valid and ready:
            self.asked_at.append(self.cycle)
            self.answer_at = self.cycle + next(self.delay)


@cocotb.test()
async def smoke(dut):
    """A word is read, read again and told."""
    start(dut)
    bench = await Bench.fresh(dut)
    for word in (5, 6):
        bench.word = word
        while not bench.told or bench.told[-1][0] != word:
            await bench.step()
    assert bench.told == [(5, False), (6, False)]
    bench = await Bench.fresh(dut)
    for _ in range(2 * GLANCE_CYCLES):
        await bench.step(enable=False)
    assert not bench.asked_at


@cocotb.test()
async def random_match_golden(dut):
    """Values, waits and errors by chance: every look is told once, with its value."""
    start(dut)
    r = rng("random")
    bench = await Bench.fresh(dut, delay=iter(lambda: r.choice([1, 2, 5, 100]), None))
    for _ in range(10_000):
        if r.random() < 0.02:
            bench.word = r.getrandbits(32)
        if r.random() < 0.01:
            bench.waiting ^= 1
        bench.fails = r.random() < 0.2
        await bench.step(enable=r.random() < 0.5)
    assert len(bench.told) > 50 and {failed for _, failed in bench.told} == {False, True}


@cocotb.test()
async def backpressure_both_sides(dut):
    """A port that takes requests late and answers late: one look at a time, the request stands."""
    start(dut)
    r = rng("pressure")
    for ready in (sometimes(0.02, r), bursty(r, 200)):
        bench = await Bench.fresh(dut, ready=ready, delay=iter(lambda: r.choice([1, 300]), None))
        bench.waiting = 1
        for _ in range(3000):
            bench.word = r.getrandbits(32)
            await bench.step()
        assert len(bench.told) > 5


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Cycles between looks while somebody waits and while nobody does, and to what is told."""
    start(dut)
    shown = {}
    for waiting, cycles in ((0, GLANCE_CYCLES + 1), (1, POLL_CYCLES + 2)):
        bench = await Bench.fresh(dut)
        bench.waiting = waiting
        for _ in range(5 * GLANCE_CYCLES):
            await bench.step()
        assert bench.asked_at[0] == 2
        gaps = {ask - answer for answer, ask in zip(bench.answered_at, bench.asked_at[1:], strict=False)}
        assert gaps == {cycles}, gaps
        shown[f"waiting_{waiting}"] = cycles
    # Who begins to wait late does not wait longer than that.
    bench = await Bench.fresh(dut)
    while len(bench.answered_at) < 1 or bench.cycle < bench.answered_at[0] + POLL_CYCLES + 30:
        await bench.step()
    bench.waiting = 1
    since = bench.cycle
    while len(bench.asked_at) < 2:
        await bench.step()
    assert bench.asked_at[1] - since == 2
    report(**shown)


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle of a look: the value is 0 and the next look begins at once."""
    start(dut)
    r = rng("reset")
    for _ in range(30):
        bench = await Bench.fresh(dut, ready=sometimes(0.3, r))
        bench.word = r.getrandbits(32) | 1
        for _ in range(r.randrange(60)):
            await bench.step()
        bench = await Bench.fresh(dut)
        for _ in range(8):
            await bench.step()
        assert bench.told == [(0, False)] and bench.asked_at == [2]


@cocotb.test()
async def corner_values(dut):
    """All bits set, words beside it in the beat ignored, the highest addresses."""
    start(dut)
    bench = await Bench.fresh(dut)
    dut.address.value = (1 << 64) - 64
    bench.waiting = 1
    for word in (0xFFFFFFFF, 0, 0x80000000, 1):
        bench.word, seen = word, len(bench.told)
        while len(bench.told) == seen:
            await bench.step()
        assert bench.told[-1] == (word & MASK, False)


@cocotb.test()
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """A look that fails is told as failed and not as polled, and the next one is as any other."""
    start(dut)
    bench = await Bench.fresh(dut)
    bench.waiting = 1
    for number in range(6):
        bench.fails, seen = number % 2 == 0, len(bench.told)
        while len(bench.told) == seen:
            await bench.step()
    assert [failed for _, failed in bench.told] == [True, False] * 3
    gaps = {ask - answer for answer, ask in zip(bench.answered_at, bench.asked_at[1:], strict=False)}
    assert gaps == {POLL_CYCLES + 2}


@pytest.mark.parametrize(("beat_bytes", "bits"), one_of([(16, 30), (64, 32)]))
@pytest.mark.parametrize("number", seeds())
def test_kernel_doorbell(number, beat_bytes, bits):
    simulate(Doorbell(beat_bytes=beat_bytes, bits=bits), "verif.kernel.test_doorbell",
             name=f"kernel_doorbell_{beat_bytes}", tests=7, seed=number, env={"BITS": bits})


@pytest.mark.parametrize(("change", "sentence"), [
    (dict(beat_bytes=24), "beat_bytes must be one of 4, 8, 16, 32, 64 (32 to 512 bits), not 24"),
    (dict(bits=0), "bits must be from 1 to 256, not 0"), (dict(bits=257), "bits must be from 1 to 256, not 257"),
])
def test_illegal_config_wrong(change, sentence):
    """Beats that no port has and words of no bits or too many are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        Doorbell(**{"beat_bytes": 32, "bits": 32} | change)
    assert str(caught.value) == sentence
