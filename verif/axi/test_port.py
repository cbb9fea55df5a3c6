"""The read port against memory, for six clients at once: data, turns, faults on every beat, stop at any cycle."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from hw.axi.port import ReadPort
from verif.axi.bench import BASES, REGRESS, ReadBench, bursts, each, fewest, pauses, run_of
from verif.bench import report, rng
from verif.bench.axi import DECERR, SLVERR
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import never, sometimes

CLIENTS = (256, 64, 16, 2, 1, 64)
URGENT = (4, 5)
CHANNELS = ("ar", "r")


@cocotb.test()
async def smoke(dut):
    """Each client gets one request."""
    bench = await ReadBench.begin(dut)
    for k in bench.clients:
        bench.ask(k, 5 * k, 1 + k)
    await bench.finish()
    assert sorted(address - bench.buffer.address for address, _ in bench.port.reads)[:2] == [0, 5 * bench.bytes]


@cocotb.test()
async def random_match_golden(dut):
    """Requests of all clients at once, each client's beats in order and equal to memory."""
    bench = await ReadBench.begin(dut, latency=17)
    for _ in range(160):
        count = bench.random.choice((1, 1, 2, 4, bench.random.randint(1, 100)))
        bench.ask(bench.random.choice(bench.clients), bench.random.randrange(bench.beats - count), count)
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Three kinds of pauses of clients against three of the bus."""
    for number, clients, stalls in pauses(CHANNELS):
        bench = await ReadBench.begin(dut, latency=1 + 7 * (number % 3), stalls=stalls,
                                      i_requests=each(clients, f"i{number}"), o=each(clients, f"o{number}"))
        for _ in range(50):
            count = bench.random.randint(1, 20)
            bench.ask(bench.random.choice(bench.clients), bench.random.randrange(bench.beats - count), count)
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("isolation")
async def no_client_waits_for_another(dut):
    """Clients that take nothing: their queues fill, rready never falls, and the others get all that they want."""
    bench = await ReadBench.begin(dut, latency=10, o=lambda k: never(4000) if k in (0, 2) else None)
    page = 4096 // bench.bytes
    refused = []

    async def watch():
        while True:
            await bench.edge
            if dut.bus__rready.value != 1:
                refused.append(1)

    watcher = cocotb.start_soon(watch())
    bench.ask(0, 0, bench.beats - 1)
    bench.ask(2, 3, 60)
    for k in range(10):
        bench.ask(1, page // 2 + k, 64)
        bench.ask(3, k, 3)
    await bench.part("o", 1).wait(640, cycles=3000)
    await bench.part("o", 3).wait(30, cycles=1000)
    assert bench.part("o", 1).cycle < 3900, "judged while the others still stood still"
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
    bench = await ReadBench.begin(dut, latency=2)
    third = bench.beats // 3
    for k in range(80):
        for client in range(3):
            bench.ask(client, client * third + k, 1)
    await bench.finish()
    order = [(address - bench.buffer.address) // bench.bytes // third for address, _ in bench.port.reads]
    for client in range(3):
        assert 39 <= order[60:180].count(client) <= 41, f"client {client} had {order[60:180].count(client)} turns"
    bench = await ReadBench.begin(dut, latency=2)
    bench.ask(0, 0, bench.beats - 8)
    await ClockCycles(dut.clk, 20)
    before = len(bench.port.reads)
    bench.ask(3, bench.beats - 1, 1)
    await bench.finish()
    turn = [address for address, _ in bench.port.reads].index(bench.buffer.address + (bench.beats - 1) * bench.bytes)
    assert turn - before <= 3 and turn < len(bench.port.reads) - 1, f"a turn after {turn - before} bursts"


@cocotb.test()
@pytest.mark.testpoint("priority")
async def an_urgent_client_goes_before_the_others(dut):
    """While two clients ask all the time, urgent ones have every turn until they have nothing more to ask: each of them
    alone, and both."""
    for urgent in ((URGENT[0],), (URGENT[1],), URGENT):
        bench = await ReadBench.begin(dut, latency=2)
        last = bench.beats - 1
        bench.ask(0, 0, bench.beats // 2)
        bench.ask(1, 0, bench.beats // 2)
        await ClockCycles(dut.clk, 40)
        before = len(bench.port.reads)
        for k in range(20):
            bench.ask(urgent[k % len(urgent)], last, 1)
        await bench.finish()
        after = [(address - bench.buffer.address) // bench.bytes == last for address, _ in bench.port.reads[before:]]
        assert sum(after) == 20 and after.index(True) <= 2 and all(after[after.index(True):][:20]), after
        assert len(after) > 24, "the others had asked for everything before"


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Latencies as stated; a long run and requests of four beats keep the port busy."""
    bench = await ReadBench.begin(dut, latency=40)
    bench.ask(0, 0, bench.beats - 1)
    await bench.finish()
    assert bench.port.read_at[-1] - bench.port.read_at[0] == bench.beats - 2, "a long run is one stream"
    # A burst in 4 cycles: requests of 4 beats keep the port busy.
    bench = await ReadBench.begin(dut, latency=40)
    for k in range(100):
        bench.ask(0, 4 * k, 4) if 4 * k + 4 < bench.beats else bench.ask(0, 4 * (k % 50), 4)
    await bench.finish()
    assert bench.port.read_at[-1] - bench.port.read_at[0] == 399
    taken, read, out = bench.part("i_requests", 0).taken_at, bench.port.read_at, bench.part("o", 0).at
    assert read[0] - taken[0] == 3 + 40 and out[0] - read[0] == 3
    # Requests of one beat, by four clients in turn.
    bench = await ReadBench.begin(dut, latency=40)
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
    bench = await ReadBench.begin(dut)
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
        bench = await ReadBench.begin(dut, base=base)
        page = 4096 // bench.bytes
        for client in bench.clients:
            for first, count in ((client, 1), (page - 1 - client, 3), (page + 5, page), (bench.beats - 2, 2)):
                bench.ask(client, first, count)
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("errors")
async def errors_mark_their_beat(dut):
    """SLVERR, DECERR and a wrong rlast on every beat of a request in turn mark that beat of that client; the other
    clients see none of it."""
    bench = await ReadBench.begin(dut)
    number = 0
    for response in (SLVERR, DECERR, None):
        for bad in range(9):
            client = bad % 3
            at = len(bench.expected[client])
            # The third client's bursts have at most 4 beats: three for nine.
            bench.ask(client, 60, 9)
            bench.spoil(number + bad, response, bench.expected[client][at + bad])
            number += 9
            await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("stop")
async def stop_at_any_cycle(dut):
    """A stop in any of 64 cycles: quiet, empty, and with all its room afterwards."""
    for cycle in range(64) if REGRESS else rng("stops").sample(range(64), 16):
        random = rng(f"stop{cycle}")
        bench = await ReadBench.begin(dut, latency=1 + cycle % 9, stalls=bursts(random, CHANNELS, cycle),
                                      o=each(lambda name: sometimes(0.6, rng(name)), f"o{cycle}"))
        for _ in range(30):
            bench.ask(random.choice(bench.clients), random.randrange(bench.beats - 24), random.randint(1, 24))
        await ClockCycles(dut.clk, 1 + cycle)
        await bench.halt()
        await bench.resume()
        for k in bench.clients:
            bench.ask(k, 62, 8 + k)
            # The whole queue is there again: a stop must not lose room.
            bench.ask(k, 3, CLIENTS[k] if CLIENTS[k] < bench.beats - 3 else 64)
        await bench.finish()


@cocotb.test()
async def reset_midstream(dut):
    """A reset in front of the first beat, inside bursts, with beats in the queues and rests of requests
    leaves nothing behind."""
    for number in range(24 if REGRESS else 8):
        random = rng(f"reset{number}")
        bench = await ReadBench.begin(dut, latency=random.choice((1, 5, 20)), stalls=bursts(random, CHANNELS, number),
                                      o=each(lambda name: sometimes(0.5, rng(name)), f"o{number}"))
        for k in range(30):
            bench.ask(k % len(CLIENTS), k, random.choice((4, 30)))
        await ClockCycles(dut.clk, random.randint(1, 90))
        bench = await bench.after_reset(1 + number % 2)
        for k in bench.clients:
            bench.ask(k, 9, 30)
        await bench.finish()


@cocotb.test()
async def corner_values(dut):
    """Queues that fill until they have no room for a client's largest burst and stay so, thousands of beats in one
    request, a beat that nobody asked for."""
    # For an urgent client that takes nothing, all others wait.
    bench = await ReadBench.begin(dut, o=lambda k: None if k in URGENT else never(700))
    page, asked = 4096 // bench.bytes, 0
    for k, depth in enumerate(CLIENTS):
        largest, left = max(1, min(depth // 4, page, 256)), 3 * depth if k in URGENT else depth
        asked += left
        for _ in range(3):
            bench.ask(k, 1, min(depth, 200))
            for _, beats in fewest(1, min(depth, 200), largest):
                left -= beats if left >= largest or k in URGENT else 0
        asked -= left
    await ClockCycles(dut.clk, 650)     # the others have not taken a beat yet
    assert sum(beats for _, beats in bench.port.reads) == asked
    await bench.finish()
    bench = await ReadBench.begin(dut)
    many = 65_535 if REGRESS else 9_999
    bench.request(1, 0, many)
    got = await bench.part("o", 1).wait(many, cycles=90_000)
    assert [beat["error"] for beat in got] == [0] * bench.beats + [1] * (many - bench.beats)
    assert [k for k, beat in enumerate(got) if beat["last"]] == [many - 1]
    await bench.stray()
    await ClockCycles(dut.clk, 5)
    assert all(getattr(dut, f"o__{k}__valid").value == 0 for k in bench.clients)
    bench = bench.again()   # no reset: the stray beats must not have been counted
    bench.ask(1, 2, 9)
    await bench.finish()


@pytest.mark.parametrize("beat_bytes", shapes([16, 64], 1))
@pytest.mark.parametrize("number", seeds())
def test_read_port(beat_bytes, number):
    simulate(ReadPort(beat_bytes=beat_bytes, clients=CLIENTS, outstanding=32, urgent=URGENT), "verif.axi.test_port",
             name=f"axi_port_{beat_bytes}", seed=number, **run_of(beat_bytes, 13))


def test_illegal_config_wrong():
    """Clients, depths and widths that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match="clients must be 1 to 8 queue depths, not 9"):
        ReadPort(beat_bytes=64, clients=(64,) * 9, outstanding=16)
    with pytest.raises(ValueError, match="a client's queue must be a power of two from 1 to 4096 beats deep, not 12"):
        ReadPort(beat_bytes=64, clients=(12,), outstanding=16)
    with pytest.raises(ValueError, match=r"urgent must be numbers of the 2 clients, not \(2,\)"):
        ReadPort(beat_bytes=64, clients=(64, 64), outstanding=16, urgent=(2,))
    with pytest.raises(ValueError, match="outstanding must be a power of two from 2 to 1024, not 2048"):
        ReadPort(beat_bytes=64, clients=(16,), outstanding=2048)
    with pytest.raises(ValueError, match="beat_bytes must be one of"):
        ReadPort(beat_bytes=1, clients=(16,), outstanding=16)
