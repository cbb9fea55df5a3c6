"""The read port of several clients: each one's beats, fairness, room, faults, and what a stop leaves."""

import os

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi.port import ReadPort
from verif.axi.test_reader import BASES, Watch, fewest
from verif.bench import report, reset, rng, start
from verif.bench.axi import DECERR, SLVERR, AxiMemory, CardMemory
from verif.bench.memory import BASE
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import Sink, Source, bursty, never, sometimes

CLIENTS = (256, 64, 16, 2, 1)
PAGES = 6


class Bench:
    """A source of requests and a sink of beats for each client, and a memory of some pages."""

    def __init__(self, dut, *, latency=3, stalls=None, requests=None, beats=None, base=BASE):
        self.dut = dut
        self.bytes = layout_of("bus__rdata").width // 8
        self.memory = CardMemory(self.bytes, base)
        size = PAGES * 4096
        self.random = rng("content")
        self.buffer = self.memory.allocate("inputs", size, data=self.random.randbytes(size), writable=False)
        self.port = AxiMemory(dut, "bus", self.memory, latency=latency, stalls=stalls)
        self.clients = range(len(CLIENTS))
        self.sources = [Source(dut, f"i_requests__{k}", pattern=requests and requests(k)) for k in self.clients]
        self.sinks = [Sink(dut, f"o__{k}", pattern=beats and beats(k)) for k in self.clients]
        self.watch = Watch(dut, [f"i_requests__{k}" for k in self.clients], late=1)
        self.expected = [[] for _ in self.clients]
        dut.stop.value = 0

    @property
    def beats(self):
        return self.buffer.size // self.bytes

    def ask(self, client, first, count):
        self.sources[client].put({"address": self.buffer.address + first * self.bytes, "beats": count})
        base = self.buffer.address // self.bytes + first
        for k in range(count):
            self.expected[client].append(
                {"data": self.memory.beats[base + k], "error": 0, "last": int(k == count - 1)})

    async def finish(self, cycles=60):
        total = sum(map(len, self.expected))
        for k in self.clients:
            got = await self.sinks[k].wait(len(self.expected[k]), cycles=cycles * total + 1000)
            for number, (a, b) in enumerate(zip(got, self.expected[k], strict=True)):
                assert a == b, f"client {k}, beat {number}: {a}, expected {b}"
        await ClockCycles(self.dut.clk, 6)
        assert [len(sink.beats) for sink in self.sinks] == [len(want) for want in self.expected]
        assert self.port.quiet and self.dut.idle.value == 1
        self.memory.check()

    def end(self):
        for part in (*self.sources, *self.sinks, self.port, self.watch):
            part.stop()


async def _begin(dut, **settings):
    start(dut)
    dut.stop.value = 0
    for k in range(len(CLIENTS)):
        getattr(dut, f"i_requests__{k}__valid").value = 0
    await reset(dut)
    return Bench(dut, **settings)


def _each(shape, label):
    """A pattern for each client, drawn apart."""
    return shape and (lambda client: shape(f"{label}_{client}"))


@cocotb.test()
async def smoke(dut):
    """Five clients get one request each."""
    bench = await _begin(dut)
    for k in bench.clients:
        bench.ask(k, 5 * k, 1 + k)
    await bench.finish()
    assert sorted(address - bench.buffer.address for address, _ in bench.port.reads)[:2] == [0, 5 * bench.bytes]


@cocotb.test()
async def random_match_golden(dut):
    """Requests of five clients at once, each client's beats in order and equal to memory."""
    bench = await _begin(dut, latency=17)
    for _ in range(160):
        count = bench.random.choice((1, 1, 2, 4, bench.random.randint(1, 100)))
        bench.ask(bench.random.choice(bench.clients), bench.random.randrange(bench.beats - count), count)
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Three kinds of pauses of clients against three of the bus."""
    shapes = (None, lambda name: sometimes(0.5, rng(name)), lambda name: bursty(rng(name)))
    for number, (a, b) in enumerate((a, b) for a in shapes for b in shapes):
        stalls = {name: b(f"{name}{number}") for name in ("ar", "r")} if b else None
        bench = await _begin(dut, latency=1 + 7 * (number % 3), stalls=stalls,
                             requests=_each(a, f"i{number}"), beats=_each(a, f"o{number}"))
        for _ in range(50):
            count = bench.random.randint(1, 20)
            bench.ask(bench.random.choice(bench.clients), bench.random.randrange(bench.beats - count), count)
        await bench.finish()
        bench.end()


@cocotb.test()
@pytest.mark.testpoint("isolation")
async def no_client_waits_for_another(dut):
    """Clients that take nothing: their queues fill, rready never falls, and the others get all that they want."""
    bench = await _begin(dut, latency=10, beats=lambda k: never(4000) if k in (0, 2) else None)
    page = 4096 // bench.bytes
    refused = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            if dut.bus__rready.value != 1:
                refused.append(1)

    watcher = cocotb.start_soon(watch())
    bench.ask(0, 0, bench.beats - 1)
    bench.ask(2, 3, 60)
    for k in range(10):
        bench.ask(1, page // 2 + k, 64)
        bench.ask(3, k, 3)
    await bench.sinks[1].wait(640, cycles=3000)
    await bench.sinks[3].wait(30, cycles=1000)
    assert bench.sinks[1].cycle < 3900, "judged while the others still stood still"
    base = bench.buffer.address
    # What stands in the closed queues: no more than they hold, and all of that.
    blocked = [(address - base) // bench.bytes + beats for address, beats in bench.port.reads]
    assert blocked
    await bench.finish()
    assert not refused
    watcher.cancel()


@cocotb.test()
@pytest.mark.testpoint("fairness")
async def turns_are_fair(dut):
    """Clients that ask all the time get equal turns, and a newcomer does not wait for a long request's end."""
    bench = await _begin(dut, latency=2)
    third = bench.beats // 3
    for k in range(80):
        for client in range(3):
            bench.ask(client, client * third + k, 1)
    await bench.finish()
    order = [(address - bench.buffer.address) // bench.bytes // third for address, _ in bench.port.reads]
    for client in range(3):
        assert 39 <= order[60:180].count(client) <= 41, f"client {client} had {order[60:180].count(client)} turns"
    bench.end()
    bench = await _begin(dut, latency=2)
    bench.ask(0, 0, bench.beats - 8)
    await ClockCycles(dut.clk, 20)
    before = len(bench.port.reads)
    bench.ask(3, bench.beats - 1, 1)
    await bench.finish()
    turn = [address for address, _ in bench.port.reads].index(bench.buffer.address + (bench.beats - 1) * bench.bytes)
    assert turn - before <= 3 and turn < len(bench.port.reads) - 1, f"a turn after {turn - before} bursts"


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Latencies as stated; a long run and requests of four beats keep the port busy."""
    bench = await _begin(dut, latency=40)
    bench.ask(0, 0, bench.beats - 1)
    await bench.finish()
    assert bench.port.read_at[-1] - bench.port.read_at[0] == bench.beats - 2, "a long run is one stream"
    bench.end()
    # A burst in 4 cycles: requests of 4 beats keep the port busy.
    bench = await _begin(dut, latency=40)
    for k in range(100):
        bench.ask(0, 4 * k, 4) if 4 * k + 4 < bench.beats else bench.ask(0, 4 * (k % 50), 4)
    await bench.finish()
    assert bench.port.read_at[-1] - bench.port.read_at[0] == 399
    taken, read, out = bench.sources[0].taken_at, bench.port.read_at, bench.sinks[0].at
    assert read[0] - taken[0] == 3 + 40 and out[0] - read[0] == 3
    bench.end()
    # Requests of one beat, by four clients in turn.
    bench = await _begin(dut, latency=40)
    for k in range(60):
        for client in (0, 1, 2):
            bench.ask(client, k + client, 1)
    await bench.finish()
    at = bench.port.read_at
    report(one_beat_cycles=(at[-1] - at[0]) / 179)
    assert (at[-1] - at[0]) / 179 <= 4.1


@cocotb.test()
@pytest.mark.testpoint("pages")
async def pages_are_never_crossed(dut):
    """Every length against every offset around a page's end: bursts end at pages and at multiples of a
    quarter of the queue."""
    bench = await _begin(dut)
    page = 4096 // bench.bytes
    for client in (0, 1):
        block = min(CLIENTS[client] // 4, page, 256)
        want = []
        seen = len(bench.port.reads)
        for count in (1, 2, 3, 8, 31, 32, 33, page):
            for first in sorted({page - count - 1, page - count, page - count + 1, page - 1, page, page + 1}):
                if first >= 0:
                    bench.ask(client, first, count)
                    want += fewest(first, count, block)
        await bench.finish()
        got = [((address - bench.buffer.address) // bench.bytes, beats) for address, beats in bench.port.reads[seen:]]
        assert got == want


@cocotb.test()
@pytest.mark.testpoint("addresses")
async def every_bit_of_an_address(dut):
    """Buffers whose addresses have every bit once 0 and once 1, one of them just before the end of all addresses; in
    one burst and in many."""
    for base in BASES:
        bench = await _begin(dut, base=base)
        page = 4096 // bench.bytes
        for client in bench.clients:
            for first, count in ((client, 1), (page - 1 - client, 3), (page + 5, page), (bench.beats - 2, 2)):
                bench.ask(client, first, count)
        await bench.finish()
        bench.end()


@cocotb.test()
@pytest.mark.testpoint("errors")
async def errors_mark_their_beat(dut):
    """SLVERR, DECERR and a wrong rlast on every beat of a request in turn mark that beat of that client; the other
    clients see none of it."""
    bench = await _begin(dut)
    number = 0
    for response in (SLVERR, DECERR, None):
        for bad in range(9):
            if response is None:
                bench.port.wrong_rlast.add(number + bad)
            else:
                bench.port.fail_read[number + bad] = response
            client = bad % 3
            at = len(bench.expected[client])
            # The third client's bursts have at most 4 beats: three for nine.
            bench.ask(client, 60, 9)
            beat = bench.expected[client][at + bad]
            beat["error"] = 1
            if response is not None:
                beat["data"] ^= (1 << 8 * bench.bytes) - 1
            number += 9
            await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("stop")
async def stop_at_any_cycle(dut):
    """A stop in each of 64 cycles: quiet, empty, and with all its room afterwards."""
    tried = 0
    for cycle in range(64):
        random = rng(f"stop{cycle}")
        stalls = {"ar": bursty(random), "r": bursty(random)} if cycle % 3 else None
        bench = await _begin(dut, latency=1 + cycle % 9, stalls=stalls,
                             beats=_each(lambda name: sometimes(0.6, rng(name)), f"o{cycle}"))
        for _ in range(30):
            bench.ask(random.choice(bench.clients), random.randrange(bench.beats - 24), random.randint(1, 24))
        await ClockCycles(dut.clk, 1 + cycle)
        dut.stop.value = 1
        for k in bench.clients:
            bench.sinks[k].stop()
            getattr(dut, f"o__{k}__ready").value = 0
        await RisingEdge(dut.clk)
        for _ in range(2000):
            await RisingEdge(dut.clk)
            if dut.idle.value == 1:
                break
        else:
            raise AssertionError(f"not idle after a stop at cycle {cycle}")
        assert bench.port.quiet, f"idle with bursts under way, stop at cycle {cycle}"
        bursts = len(bench.port.reads)
        await ClockCycles(dut.clk, 20)
        assert dut.idle.value == 1 and len(bench.port.reads) == bursts
        for k in bench.clients:
            assert getattr(dut, f"o__{k}__valid").value == 0
            bench.sources[k].stop()
        await RisingEdge(dut.clk)
        dut.stop.value = 0
        bench.sources = [Source(dut, f"i_requests__{k}") for k in bench.clients]
        bench.sinks = [Sink(dut, f"o__{k}") for k in bench.clients]
        bench.expected = [[] for _ in bench.clients]
        for k in bench.clients:
            bench.ask(k, 62, 8 + k)
            # The whole queue is there again: a stop must not lose room.
            bench.ask(k, 3, CLIENTS[k] if CLIENTS[k] < bench.beats - 3 else 64)
        await bench.finish()
        bench.end()
        tried += 1
    report(stops=tried)


@cocotb.test()
async def reset_midstream(dut):
    """A reset in front of the first beat, inside bursts, with beats in the queues and rests of requests
    leaves nothing behind."""
    for number in range(24):
        random = rng(f"reset{number}")
        stalls = {name: bursty(random) for name in ("ar", "r")} if number % 3 else None
        bench = await _begin(dut, latency=random.choice((1, 5, 20)), stalls=stalls,
                             beats=_each(lambda name: sometimes(0.5, rng(name)), f"o{number}"))
        for k in range(30):
            bench.ask(k % 5, k, random.choice((4, 30)))
        await ClockCycles(dut.clk, random.randint(1, 90))
        bench.end()
        dut.bus__rvalid.value = 0
        await reset(dut, 1 + number % 2)
        await ClockCycles(dut.clk, 2)
        assert dut.idle.value == 1 and dut.bus__arvalid.value == 0
        assert all(getattr(dut, f"o__{k}__valid").value == 0 for k in bench.clients)
        bench = Bench(dut)
        for k in bench.clients:
            bench.ask(k, 9, 30)
        await bench.finish()
        bench.end()


@cocotb.test()
async def corner_values(dut):
    """Queues that fill to the last beat and stay so, thousands of beats in one request, a beat that nobody
    asked for."""
    bench = await _begin(dut, beats=lambda k: never(300))
    for k, depth in enumerate(CLIENTS):
        for _ in range(3):
            bench.ask(k, 1, min(depth, 200))
    await bench.finish()
    bench.end()
    bench = await _begin(dut)
    many = 65_535 if REGRESS else 9_999
    bench.sources[1].put({"address": bench.buffer.address, "beats": many})
    got = await bench.sinks[1].wait(many, cycles=90_000)
    assert [beat["error"] for beat in got] == [0] * bench.beats + [1] * (many - bench.beats)
    assert [k for k, beat in enumerate(got) if beat["last"]] == [many - 1]
    bench.end()
    dut.bus__rvalid.value = 1
    await ClockCycles(dut.clk, 5)
    dut.bus__rvalid.value = 0
    await ClockCycles(dut.clk, 5)
    assert all(getattr(dut, f"o__{k}__valid").value == 0 for k in bench.clients)
    bench = Bench(dut)  # no reset: the stray beats must not have been counted
    bench.ask(1, 2, 9)
    await bench.finish()


REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
# What the shipping width is tried on in every run; `make regress` tries all of it.
SHIPPED = (r"\.(smoke|random_match_golden|backpressure_both_sides|latency_and_rate_as_documented|"
           r"pages_are_never_crossed|every_bit_of_an_address|reset_midstream)$")


@pytest.mark.parametrize("beat_bytes", [16, 64])
@pytest.mark.parametrize("number", seeds())
def test_read_port(beat_bytes, number):
    simulate(ReadPort(beat_bytes=beat_bytes, clients=CLIENTS, outstanding=32), "verif.axi.test_port",
             name=f"axi_port_{beat_bytes}", seed=number,
             **({"tests": 12} if beat_bytes == 16 or REGRESS else {"tests": 7, "only": SHIPPED}))


def test_illegal_config_wrong():
    """Clients, depths and widths that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match="clients must be 1 to 8 queue depths, not 9"):
        ReadPort(beat_bytes=64, clients=(64,) * 9, outstanding=16)
    with pytest.raises(ValueError, match="a client's queue must be a power of two from 1 to 4096 beats deep, not 12"):
        ReadPort(beat_bytes=64, clients=(12,), outstanding=16)
    with pytest.raises(ValueError, match="outstanding must be a power of two from 2 to 1024, not 2048"):
        ReadPort(beat_bytes=64, clients=(16,), outstanding=2048)
    with pytest.raises(ValueError, match="beat_bytes must be one of"):
        ReadPort(beat_bytes=1, clients=(16,), outstanding=16)
