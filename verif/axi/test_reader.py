"""The read engine against the memory behind it: every burst and beat, faults on every beat, stop at any cycle."""

import os

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi.burst import Splitter
from hw.axi.reader import Reader
from verif.bench import report, reset, rng, start
from verif.bench.axi import DECERR, SLVERR, AxiMemory, CardMemory
from verif.bench.memory import BASE
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import Monitor, Sink, Source, bursty, never, sometimes

PAGES = 4
# Where buffers begin so that every bit of an address is once 0 and once 1; the last ends two pages before all memory.
BASES = (0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000, (1 << 64) - 8 * 4096)


class Watch:
    """Holds a read engine to what it says of itself, in every cycle: not idle while a request has beats to come, and
    under `stop` no bursts but those that are on their way to the bus.

    requests: names of the engine's streams of requests; beats: of its output, if that keeps the engine busy; late:
    addresses that may be new on the bus under a stop."""

    def __init__(self, dut, requests, *, beats=None, late):
        self.dut, self.late = dut, late
        self._requests = [tuple(getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload"))
                          for name in requests]
        self._beat = None if beats is None else getattr(dut, f"{beats}__valid")
        self._task = cocotb.start_soon(self._run())

    def stop(self):
        self._task.cancel()

    async def _run(self):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        owed = asked = shown = 0    # beats of requests, those of the last edge apart; addresses under a stop
        waits, free = False, True   # a beat stood at the output at the edge before; the address channel is free
        while True:
            await edge
            if dut.rst.value == 1 or dut.stop.value == 1:
                owed = asked = 0
                waits = False
                if dut.rst.value == 1:
                    shown, free = 0, True
                    continue
            elif dut.idle.value == 1:
                assert owed == 0, f"idle with {owed} beats to come"
                assert not waits, "idle while a beat waits"
            valid = dut.bus__arvalid.value == 1
            if dut.stop.value == 0:
                waits = self._beat is not None and self._beat.value == 1
                owed, asked = owed + asked, sum(int(payload.value) >> 64 for valid_, ready, payload in self._requests
                                                if valid_.value == 1 and ready.value == 1)
                if owed and dut.bus__rvalid.value == 1 and dut.bus__rready.value == 1:
                    owed -= 1
                shown = 0
            else:
                shown += valid and free
                assert shown <= self.late, f"{shown} bursts under a stop"
            free = not valid or dut.bus__arready.value == 1


class Bench:
    """The unit between a source of requests, a sink of beats and a memory of some pages."""

    def __init__(self, dut, *, latency=3, stalls=None, requests=None, beats=None, base=BASE):
        self.dut = dut
        self.bytes = layout_of("bus__rdata").width // 8
        self.memory = CardMemory(self.bytes, base)
        size = PAGES * 4096
        self.random = rng("content")
        self.buffer = self.memory.allocate("rows", size, data=self.random.randbytes(size), writable=False)
        self.port = AxiMemory(dut, "bus", self.memory, latency=latency, stalls=stalls)
        self.source = Source(dut, "i_requests", pattern=requests)
        self.sink = Sink(dut, "o", pattern=beats)
        # One on the bus, one behind it.
        self.watch = Watch(dut, ["i_requests"], beats="o", late=2)
        self.expected = []
        self.dut.stop.value = 0

    @property
    def beats(self):
        """Beats of the buffer."""
        return self.buffer.size // self.bytes

    def ask(self, first, count):
        """Requests `count` beats from beat `first` of the buffer on and remembers what has to come."""
        self.source.put({"address": self.buffer.address + first * self.bytes, "beats": count})
        base = self.buffer.address // self.bytes + first
        for k in range(count):
            self.expected.append({"data": self.memory.beats[base + k], "error": 0, "last": int(k == count - 1)})

    async def finish(self, cycles=40):
        """Waits for everything, judges it, and finds the unit quiet."""
        got = await self.sink.wait(len(self.expected), cycles=cycles * len(self.expected) + 1000)
        for number, (a, b) in enumerate(zip(got, self.expected, strict=True)):
            assert a == b, f"beat {number}: {a}, expected {b}"
        await ClockCycles(self.dut.clk, 4)
        assert len(self.sink.beats) == len(self.expected), "beats came unasked"
        assert self.port.quiet and self.dut.idle.value == 1
        self.memory.check()

    def end(self):
        for part in (self.source, self.sink, self.port, self.watch):
            part.stop()


async def _begin(dut, **settings):
    start(dut)
    dut.stop.value = 0
    dut.i_requests__valid.value = 0
    await reset(dut)
    return Bench(dut, **settings)


def fewest(first, count, beats_a_block):
    """The bursts that a run of beats needs, straight from the rule: none leaves a block."""
    bursts = []
    while count:
        now = min(count, beats_a_block - first % beats_a_block)
        bursts.append((first, now))
        first, count = first + now, count - now
    return bursts


@cocotb.test()
async def smoke(dut):
    """Three beats of a buffer whose address needs more than 32 bits arrive with one burst."""
    bench = await _begin(dut)
    bench.ask(5, 3)
    await bench.finish()
    assert bench.port.reads == [(bench.buffer.address + 5 * bench.bytes, 3)]
    assert bench.buffer.address >> 32 == 0x40, "the buffer's address needs more than 32 bits"


@cocotb.test()
async def random_match_golden(dut):
    """Runs of 1 to 80 beats anywhere in memory: data, order and marks equal to the memory's content."""
    bench = await _begin(dut, latency=17)
    for _ in range(150):
        count = bench.random.choice((1, 1, 2, 4, 8, bench.random.randint(1, 80)))
        bench.ask(bench.random.randrange(bench.beats - count), count)
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Three kinds of pauses of requests and beats against three of the address and data channels: idle gaps before
    requests, addresses held up, beats held up by the memory and by the consumer."""
    shapes = (None, lambda name: sometimes(0.5, rng(name)), lambda name: bursty(rng(name)))
    for number, (a, b) in enumerate((a, b) for a in shapes for b in shapes):
        stalls = {name: b(f"{name}{number}") for name in ("ar", "r")} if b else None
        bench = await _begin(dut, latency=1 + 7 * (number % 3), stalls=stalls,
                             requests=a and a(f"i{number}"), beats=a and a(f"o{number}"))
        for _ in range(40):
            count = bench.random.randint(1, 20)
            bench.ask(bench.random.randrange(bench.beats - count), count)
        await bench.finish()
        bench.end()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Three cycles to the address, one from the bus; a one-beat burst a cycle with 100 cycles of latency; long runs
    without a gap."""
    bench = await _begin(dut, latency=1)
    # An address every cycle: one-beat requests on different pages.
    for k in range(200):
        bench.ask((k * 37) % bench.beats, 1)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == 199, "one beat a cycle"
    taken, read, out = bench.source.taken_at, bench.port.read_at, bench.sink.at
    # Taken at edge t, the address stands on the bus before edge t + 3, the beat before the edge after.
    assert {b - a for a, b in zip(taken, read)} == {4}, "3 cycles to the address, 1 in the memory"
    assert {b - a for a, b in zip(read, out)} == {1}
    bench.end()
    # As many bursts in flight as promised: 100 cycles of latency do not show.
    bench = await _begin(dut, latency=100)
    for k in range(600):
        bench.ask((k * 37) % bench.beats, 1)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == 599
    # A run of beats is one stream whatever pages it passes.
    bench.end()
    bench = await _begin(dut, latency=30)
    bench.ask(3, bench.beats - 7)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == bench.beats - 8


@cocotb.test()
@pytest.mark.testpoint("pages")
async def pages_are_never_crossed(dut):
    """Thirteen lengths against seven offsets around a page's end: the bursts are the fewest that stay inside pages."""
    bench = await _begin(dut)
    block = min(4096 // bench.bytes, 256)
    page = 4096 // bench.bytes
    lengths = (1, 2, 3, 4, 7, 8, 16, 31, 32, block - 1, block, block + 1, 2 * block)
    want, tried = [], 0
    for count in lengths:
        for first in sorted({page - count - 1, page - count, page - count + 1, page - 2, page - 1, page, page + 1}):
            if first < 0:
                continue
            bench.ask(first, count)
            want += fewest(first, count, block)
            tried += 1
    await bench.finish()
    base = bench.buffer.address
    assert bench.port.reads == [(base + first * bench.bytes, count) for first, count in want]
    report(page_requests=tried)


@cocotb.test()
@pytest.mark.testpoint("addresses")
async def every_bit_of_an_address(dut):
    """Buffers whose addresses have every bit once 0 and once 1, one of them just before the end of all addresses."""
    for base in BASES:
        bench = await _begin(dut, base=base)
        page = 4096 // bench.bytes
        for first, count in ((0, 1), (page - 1, 3), (page + 5, page), (bench.beats - 2, 2)):
            bench.ask(first, count)
        await bench.finish()
        bench.end()


@cocotb.test()
@pytest.mark.testpoint("errors")
async def errors_mark_their_beat(dut):
    """SLVERR and DECERR on every beat of a request in turn, and rlast where it does not belong or missing, mark that
    beat and no other."""
    bench = await _begin(dut)
    number = 0
    for response in (SLVERR, DECERR, None):
        for bad in range(12):
            if response is None:
                bench.port.wrong_rlast.add(number + bad)
            else:
                bench.port.fail_read[number + bad] = response
            bench.ask(60, 9)
            bench.ask(7, 3)
            for k in range(12):
                beat = bench.expected[number + k]
                if k == bad:
                    beat["error"] = 1
                    if response is not None:
                        beat["data"] ^= (1 << 8 * bench.bytes) - 1
            number += 12
    await bench.finish()
    # An address range that fails does so whoever reads it, and only that.
    bench.memory.fail(bench.buffer.address + 20 * bench.bytes, bench.bytes)
    seen = len(bench.sink.beats)
    bench.source.put({"address": bench.buffer.address + 18 * bench.bytes, "beats": 5})
    got = (await bench.sink.wait(seen + 5))[seen:]
    assert [beat["error"] for beat in got] == [0, 0, 1, 0, 0]


@cocotb.test()
@pytest.mark.testpoint("stop")
async def stop_at_any_cycle(dut):
    """A stop in each of 64 cycles under random stalls: the bus comes to rest with every burst answered, and the engine
    starts anew."""
    tried = 0
    for cycle in range(0, 64):
        random = rng(f"stop{cycle}")
        stalls = {"ar": bursty(random), "r": bursty(random)} if cycle % 3 else None
        bench = await _begin(dut, latency=1 + cycle % 9, stalls=stalls, beats=sometimes(0.6, random))
        for _ in range(30):
            bench.ask(random.randrange(bench.beats - 24), random.randint(1, 24))
        await ClockCycles(dut.clk, 1 + cycle)
        dut.stop.value = 1
        bench.sink.stop()
        dut.o__ready.value = 0  # a consumer that is gone
        await RisingEdge(dut.clk)
        for number in range(2000):
            await RisingEdge(dut.clk)
            assert not number or dut.o__valid.value == 0, "beats after a stop"
            if dut.idle.value == 1:
                break
        else:
            raise AssertionError(f"not idle after a stop at cycle {cycle}")
        assert bench.port.quiet, f"idle with bursts under way, stop at cycle {cycle}"
        bursts = len(bench.port.reads)
        await ClockCycles(dut.clk, 20)
        assert dut.idle.value == 1 and len(bench.port.reads) == bursts and dut.o__valid.value == 0
        bench.source.stop()
        await RisingEdge(dut.clk)
        dut.stop.value = 0
        # The same memory goes on serving: nothing may be left of what was stopped.
        bench.source, bench.sink, bench.expected = Source(dut, "i_requests"), Sink(dut, "o"), []
        bench.ask(1, 5)
        bench.ask(62, 8)
        await bench.finish()
        bench.end()
        tried += 1
    report(stops=tried)


@cocotb.test()
@pytest.mark.testpoint("stop_inside_a_long_request")
async def stop_inside_a_long_request(dut):
    """A request of 65,535 beats: what it has not handed to the bus is dropped at once, with at most two bursts more,
    and so is all that is asked for until the engine is idle."""
    for cycle in (4, 7, 12, 19):
        bench = await _begin(dut, stalls={"ar": sometimes(0.2, rng(f"long{cycle}"))})
        for _ in range(3):
            bench.source.put({"address": bench.buffer.address, "beats": 65_535})
        bench.source.put(*[{"address": bench.buffer.address, "beats": 1}] * 4000)
        await ClockCycles(dut.clk, cycle)
        dut.stop.value = 1
        await ClockCycles(dut.clk, 2)
        # At most 256 beats of each burst that is on the bus by then, and of two more.
        for _ in range(300 * (len(bench.port.reads) + 3)):
            await RisingEdge(dut.clk)
            if dut.idle.value == 1:
                break
        assert dut.idle.value == 1 and bench.port.quiet
        assert dut.i_requests__valid.value == 1, "judged while requests still came"
        bench.end()


@cocotb.test()
async def reset_midstream(dut):
    """24 resets in front of the first beat, inside bursts and behind them: what was under way is forgotten,
    its place too."""
    for number in range(24):
        random = rng(f"reset{number}")
        stalls = {name: bursty(random) for name in ("ar", "r")} if number % 3 else None
        bench = await _begin(dut, latency=random.choice((1, 5, 20)), stalls=stalls)
        for k in range(30):
            bench.ask(k, random.choice((4, 11)))
        await ClockCycles(dut.clk, random.randint(1, 60))
        bench.end()
        dut.bus__rvalid.value = 0
        await reset(dut, 1 + number % 2)
        await ClockCycles(dut.clk, 2)
        assert dut.idle.value == 1 and dut.bus__arvalid.value == 0 and dut.o__valid.value == 0
        bench = Bench(dut)
        bench.ask(9, 30)
        await bench.finish()
        bench.end()


@cocotb.test()
async def corner_values(dut):
    """A consumer that is closed for long, a memory that is slow to start, 65,535 beats from a block's last one on, a
    beat that nobody asked for."""
    bench = await _begin(dut, beats=never(60))
    Monitor(dut, "o")
    for k in range(12):
        bench.ask(k, 1 + k)
    await bench.finish()
    bench.end()
    bench = await _begin(dut, stalls={"ar": never(50), "r": never(90)})
    for k in range(12):
        bench.ask(k, 1 + k)
    await bench.finish()
    bench.end()
    # 65,535 beats from a block's last one on: more than the buffer has, so most are answered with an error, but all
    # are there.
    bench = await _begin(dut)
    bench.watch.stop()
    block = min(4096 // bench.bytes, 256)
    bench.source.put({"address": bench.buffer.address + (block - 1) * bench.bytes, "beats": 65_535})
    got = await bench.sink.wait(65_535, cycles=80_000)
    inside = bench.beats - block + 1
    assert [beat["error"] for beat in got] == [0] * inside + [1] * (65_535 - inside)
    assert len(bench.port.reads) == len(fewest(block - 1, 65_535, block))
    assert [k for k, beat in enumerate(got) if beat["last"]] == [65_534]
    # A beat that nobody asked for goes nowhere.
    bench.end()
    dut.bus__rvalid.value = 1
    await ClockCycles(dut.clk, 5)
    dut.bus__rvalid.value = 0
    await ClockCycles(dut.clk, 2)
    assert dut.o__valid.value == 0 and dut.idle.value == 1
    bench = Bench(dut)  # no reset: the stray beats must not have been counted
    bench.ask(2, 9)
    await bench.finish()


REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
# What the shipping width is tried on in every run; `make regress` tries all of it.
SHIPPED = (r"\.(smoke|random_match_golden|backpressure_both_sides|latency_and_rate_as_documented|"
           r"pages_are_never_crossed|every_bit_of_an_address|reset_midstream)$")


@pytest.mark.parametrize("beat_bytes", [16, 64])
@pytest.mark.parametrize("number", seeds())
def test_reader(beat_bytes, number):
    simulate(Reader(beat_bytes=beat_bytes, outstanding=128), "verif.axi.test_reader", name=f"axi_reader_{beat_bytes}",
             seed=number,
             **({"tests": 11} if beat_bytes == 16 or REGRESS else {"tests": 7, "only": SHIPPED}))


@pytest.mark.parametrize("beat_bytes, outstanding", [(4, 2), (32, 64)])
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("random_match_golden")
def test_other_widths(number, beat_bytes, outstanding):
    """What does not count on many bursts in flight holds for every width, and with hardly any."""
    simulate(Reader(beat_bytes=beat_bytes, outstanding=outstanding), "verif.axi.test_reader",
             name=f"axi_reader_{beat_bytes}_{outstanding}", tests=5, seed=number,
             only=r"\.(smoke|random_match_golden|backpressure_both_sides|pages_are_never_crossed|stop_at_any_cycle)$")


def test_illegal_config_wrong():
    """Widths and depths that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match="beat_bytes must be one of 4, 8, 16, 32, 64 .* not 48"):
        Reader(beat_bytes=48, outstanding=16)
    with pytest.raises(ValueError, match="outstanding must be a power of two from 2 to 1024, not 3"):
        Reader(beat_bytes=64, outstanding=3)
    with pytest.raises(ValueError, match="beat_bytes must be one of"):
        Splitter(beat_bytes=0)
