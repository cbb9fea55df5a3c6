"""The write port against memory: data, order, responses and what a stop leaves, for three clients at once."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from hw.axi.writer import WritePort
from verif.axi.bench import BASES, REGRESS, EngineBench, bursts, each, fewest, pauses, run_of
from verif.bench import rng
from verif.bench.axi import DECERR, SLVERR
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import sometimes

CHANNELS = ("aw", "w", "b")
OUTSTANDING = 32
LONGEST = 64        # requests of the sweeps


def clients(beat_bytes):
    """Queues of three clients: a request of the first may take three bursts."""
    return 2 * 4096 // beat_bytes, 32, 16


class Bench(EngineBench):
    """What memory is to hold in the end, and who has still to be told that it is done."""

    data, asks, answers, access = "wdata", ("awvalid", "wvalid"), "bvalid", {"readable": False}

    def __init__(self, dut, **settings):
        self.model = {}     # what memory holds in the end, by beat of the buffer
        self.owed = [deque() for _ in range(3)]     # requests whose done has not come: is an error due?
        self.done = []      # (client, error, cycle)
        self._under_way = self._taken = 0       # requests whose done has not come; those of the last edge
        super().__init__(dut, **settings)

    def _cycle(self):
        dut = self.dut
        if dut.stop.value == 1 or dut.rst.value == 1:
            self._under_way = self._taken = 0       # what is dropped is told by no done
        elif dut.idle.value == 1:
            assert not self._under_way, f"idle with {self._under_way} requests under way"
        self._under_way += self._taken
        self._taken = sum(getattr(dut, f"i_requests__{k}__valid").value == 1
                          and getattr(dut, f"i_requests__{k}__ready").value == 1 for k in self.clients)
        for k, owed in enumerate(self.owed):
            done, error = getattr(dut, f"done__{k}").value, getattr(dut, f"error__{k}").value
            if done == 1:
                self._under_way -= self._under_way > 0
                self.done.append((k, int(error), self.cycle))
                assert owed, f"client {k}: done came unasked"
                due = owed.popleft()
                assert due == int(error), f"client {k}: error is {int(error)}, expected {due}"
            else:
                assert error == 0, f"client {k}: error without done"

    def put(self, client, first, count, *, data=True, error=0, request=True):
        """A request of `count` beats from beat `first` of the buffer on, with random data."""
        if request:
            self.request(client, first, count)
            self.owed[client].append(error)
        if data:
            content = [self.random.getrandbits(8 * self.bytes) for _ in range(count)]
            self.send(client, content)
            self.model |= {first + k: word for k, word in enumerate(content)}

    def send(self, client, content):
        self.part("i_data", client).put(*({"data": word} for word in content))

    async def finish(self, cycles=20_000):
        for _ in range(cycles):
            await self.edge
            if not any(self.owed):
                break
        assert not any(self.owed), f"requests without done: {list(map(len, self.owed))}"
        await ClockCycles(self.dut.clk, 4)
        assert self.dut.idle.value == 1 and self.port.quiet
        self.judge()

    def judge(self):
        """Memory holds what the model says, and every other beat is as it was."""
        base = self.buffer.address // self.bytes
        for beat in range(self.beats):
            at = beat * self.bytes
            want = self.model.get(beat, int.from_bytes(self.before[at : at + self.bytes], "little"))
            assert self.memory.beats[base + beat] == want, f"beat {beat} of the buffer"
        self.memory.check()


def _apart(bench, random, *, most=None):
    """A client, a place of its own for its next request (clients never share beats) and a length."""
    client = random.randrange(3)
    count = random.choice((1, 1, 2, 4, random.randint(1, most or min(LONGEST, clients(bench.bytes)[client]))))
    third = bench.beats // 3
    return client, client * third + random.randrange(third - count), count


@cocotb.test()
async def smoke(dut):
    """Three beats are written with one burst and reported."""
    bench = await Bench.begin(dut)
    bench.put(0, 5, 3)
    await bench.finish()
    assert bench.port.writes == [(bench.buffer.address + 5 * bench.bytes, 3)]
    assert [(k, e) for k, e, _ in bench.done] == [(0, 0)]


@cocotb.test()
async def random_match_golden(dut):
    """Requests of three clients at once; memory holds them and is untouched elsewhere."""
    bench = await Bench.begin(dut, latency=17)
    random = rng("requests")
    for _ in range(200):
        bench.put(*_apart(bench, random))
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Three kinds of pauses of requests and data against three of the three channels."""
    for number, clients, stalls in pauses(CHANNELS, 0.4):
        bench = await Bench.begin(dut, latency=1 + 11 * (number % 3), stalls=stalls,
                                  i_requests=each(clients, f"i{number}"), i_data=each(clients, f"d{number}"))
        random = rng(f"requests{number}")
        for _ in range(60):
            bench.put(*_apart(bench, random))
        await bench.finish()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Requests of one and of four beats at a beat a cycle, also with 30 cycles to a response; latencies as stated."""
    for length in (1, 4):
        bench = await Bench.begin(dut, latency=20)
        count = 256 // length
        for k in range(count):
            bench.put(0, k * length, length)
        await bench.finish()
        at = bench.port.written_at
        assert at[-1] - at[0] == 255, f"requests of {length} beats: one beat a cycle, {at[-1] - at[0] + 1} for 256"
    # From the edge that takes the last beat to those that see the address and the first beat.
    bench = await Bench.begin(dut, latency=1)
    bench.put(1, 40, 4)
    address_at = []

    async def watch():
        cycle = 0
        while not address_at:
            await bench.edge
            cycle += 1
            if dut.bus__awvalid.value == 1:
                address_at.append(cycle)

    cocotb.start_soon(watch())
    await bench.finish()
    last = bench.part("i_data", 1).taken_at[-1]
    assert address_at[0] - last == 4 and bench.port.written_at[0] - last == 6
    # Many bursts wait for their answer: a latency of 30 does not show with 32 of them.
    bench = await Bench.begin(dut, latency=30)
    for k in range(200):
        bench.put(k % 3, k % 3 * 120 + k // 3, 1)
    await bench.finish()
    assert bench.port.written_at[-1] - bench.port.written_at[0] <= 205


@cocotb.test()
@pytest.mark.testpoint("pages")
async def pages_are_never_crossed(dut):
    """Seven lengths against seven offsets around a page's end: the fewest bursts that stay inside."""
    bench = await Bench.begin(dut)
    block, page = min(4096 // bench.bytes, 256), 4096 // bench.bytes
    want = []
    for count in (1, 2, 3, 8, 31, 63, 64):
        for first in sorted({page - count - 1, page - count, page - count + 1, page - 2, page - 1, page, page + 1}):
            if first < 0:
                continue
            bench.put(0, first, count)
            want += fewest(first, count, block)
    await bench.finish()
    assert bench.port.writes == [(bench.buffer.address + a * bench.bytes, n) for a, n in want]


@cocotb.test()
@pytest.mark.testpoint("addresses")
async def every_bit_of_an_address(dut):
    """Buffers whose addresses have every bit once 0 and once 1, one of them just before the end of all addresses."""
    for base in BASES:
        bench = await Bench.begin(dut, base=base)
        page = 4096 // bench.bytes
        for client, first, count in ((0, 0, 1), (1, page - 1, 3), (2, page + 5, 16), (0, bench.beats - 2, 2)):
            bench.put(client, first, count)
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("whole_requests")
async def requests_wait_for_their_data_alone(dut):
    """A request without its last beat shows nothing on the bus and holds up no other client; data may come
    before it."""
    bench = await Bench.begin(dut)
    bench.request(0, 0, 8)
    bench.send(0, [1] * 7)
    for k in range(30):
        bench.put(1, 100 + 2 * k, 2)
        bench.put(2, 200 + k, 1)
    for _ in range(400):
        await bench.edge
        if not (bench.owed[1] or bench.owed[2]):
            break
    assert not bench.owed[1] and not bench.owed[2], "clients 1 and 2 wait for client 0"
    base = bench.buffer.address
    assert all(address >= base + 100 * bench.bytes for address, _ in bench.port.writes)
    bench.owed[0].append(0)
    bench.send(0, [1])
    bench.model |= {k: 1 for k in range(8)}
    await bench.finish()
    # Data may come long before the request.
    bench.put(0, 20, 60, request=False)
    await ClockCycles(dut.clk, 100)
    bench.put(0, 20, 60, data=False)
    await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("fairness")
async def turns_are_fair(dut):
    """Three clients that always have something to write get a third of the requests each."""
    bench = await Bench.begin(dut)
    for k in range(90):
        for client in range(3):
            bench.put(client, client * 120 + k, 1)
    await bench.finish()
    order = [k for k, _, _ in bench.done]
    for k in range(3):
        early = order[30:90].count(k)
        assert 18 <= early <= 22, f"client {k}: {early} of 60 requests"


@cocotb.test()
@pytest.mark.testpoint("errors")
async def errors_reach_their_request(dut):
    """SLVERR and DECERR on every burst in turn, first or last of its request, reach the request that it belongs to;
    the others are told they are done, and failed addresses stay as they were."""
    bench = await Bench.begin(dut, latency=5)
    page = 4096 // bench.bytes
    burst = 0
    for response in (SLVERR, DECERR):
        for bad in range(6):
            bench.port.fail_write[burst + bad] = response
            # Two bursts, one, two, one: whichever fails, its request says so.
            for number, (first, count) in enumerate(((page - 2, 4), (7, 3), (2 * page - 1, 2), (9, 1))):
                bursts = ((0, 1), (2,), (3, 4), (5,))[number]
                bench.put(0, first, count, error=int(bad in bursts))
            burst += 6
    # The first of three bursts, the one between, the last.
    for bad in range(3):
        bench.port.fail_write[burst + bad] = SLVERR
        bench.put(0, page - 1, page + 2, error=1)
        burst += 3
    await bench.finish()
    # A range that fails is not written.
    bench.memory.fail(bench.buffer.address + 20 * bench.bytes)
    bench.put(0, 18, 6, error=1)
    del bench.model[20]
    await bench.finish()
    bench.memory.heal()
    # Outside of every buffer: refused, told, and remembered as what it is.
    bench.request(2, bench.beats, 2)
    bench.send(2, [1, 2])
    bench.owed[2].append(1)
    with pytest.raises(AssertionError, match="in no writable buffer"):
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("stop")
async def shortest_stops_on_an_idle_port(dut):
    """Stops that end as soon as the port says that it is idle, as requests come in whose data does not: what was
    dropped is counted for nothing, however often."""
    bench = await Bench.begin(dut)
    for number in range(24):
        for k in range(3):
            bench.request(k, 0, clients(bench.bytes)[k])
        await ClockCycles(dut.clk, 1 + number % 4)
        dut.stop.value = 1
        await bench.at_rest()
        dut.stop.value = 0
        assert all(bench.part("i_requests", k).sent == number + 1 for k in range(3))
    for k, depth in enumerate(clients(bench.bytes)):
        bench.put(k, bench.beats // 3 * k, depth)
    await bench.finish()
    assert len(bench.done) == 3


@cocotb.test()
@pytest.mark.testpoint("stop")
async def stop_at_any_cycle(dut):
    """A stop in any of 64 cycles: granted requests are whole in memory, the others have not touched it, and the port
    works again."""
    for cycle in range(64) if REGRESS else rng("stops").sample(range(64), 16):
        random = rng(f"stop{cycle}")
        slow = each(lambda name: sometimes(0.7, rng(name)), f"d{cycle}") if cycle % 2 else None
        bench = await Bench.begin(dut, latency=1 + cycle % 9, stalls=bursts(random, CHANNELS, cycle), i_data=slow)
        asked = []
        for k in range(40):
            client = random.randrange(3)
            count = random.randint(1, 12)
            first = client * (bench.beats // 3) + k * 3 % (bench.beats // 3 - 12)
            content = [random.getrandbits(8 * bench.bytes) for _ in range(count)]
            bench.request(client, first, count)
            bench.send(client, content)
            bench.owed[client].append(0)
            asked.append((client, first, content))
        await ClockCycles(dut.clk, 2 + cycle)
        await bench.halt()
        # What was said to be done is in memory in full, in each client's order; nothing else is.
        told = {k: sum(client == k for client, _, _ in bench.done) for k in range(3)}
        for client, first, content in asked:
            if told[client]:
                told[client] -= 1
                bench.model |= {first + k: word for k, word in enumerate(content)}
        bench.judge()
        await bench.resume()
        for queue in bench.owed:
            queue.clear()
        for k in range(6):
            bench.put(k % 3, k * 20, 1 + k)
        await bench.finish()


@cocotb.test()
async def reset_midstream(dut):
    """A reset in front of the first burst, inside bursts and behind them, with answers and errors to come, leaves
    nothing behind."""
    for number in range(24 if REGRESS else 8):
        random = rng(f"reset{number}")
        bench = await Bench.begin(dut, latency=random.choice((1, 5, 20)), stalls=bursts(random, CHANNELS, number))
        for k in range(30):
            bench.put(k % 3, 5 * k, random.choice((4, 11)))
        await ClockCycles(dut.clk, random.randint(1, 70))
        bench = await bench.after_reset(1 + number % 2)
        bench.put(0, 9, 30)
        bench.put(2, 70, 5)
        await bench.finish()


@cocotb.test()
async def corner_values(dut):
    """Requests that fill a client's queue to the last beat, and answers that nobody waits for."""
    bench = await Bench.begin(dut)
    for _ in range(4):
        for client, depth in enumerate(clients(bench.bytes)):
            bench.put(client, bench.beats // 3 * client, depth)
    await bench.finish()
    await bench.stray()
    assert dut.done__0.value == 0 and dut.done__1.value == 0 and dut.done__2.value == 0
    await ClockCycles(dut.clk, 2)
    bench = await Bench.begin(dut)
    bench.put(1, 3, 2)
    await bench.finish()


@pytest.mark.parametrize("beat_bytes", shapes([16, 64], 1))
@pytest.mark.parametrize("number", seeds())
def test_write_port(beat_bytes, number):
    simulate(WritePort(beat_bytes=beat_bytes, clients=clients(beat_bytes), outstanding=OUTSTANDING),
             "verif.axi.test_writer", name=f"axi_writer_{beat_bytes}", seed=number, **run_of(beat_bytes, 13))


def test_illegal_config_wrong():
    """Clients, depths and widths that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match="clients must be 1 to 8 queue depths, not 0"):
        WritePort(beat_bytes=64, clients=())
    with pytest.raises(ValueError, match="a client's queue must be a power of two from 2 to 4096 beats deep, not 24"):
        WritePort(beat_bytes=64, clients=(64, 24))
    with pytest.raises(ValueError, match="outstanding must be a power of two from 2 to 1024, not 1"):
        WritePort(beat_bytes=64, clients=(64,), outstanding=1)
    with pytest.raises(ValueError, match="beat_bytes must be one of"):
        WritePort(beat_bytes=128, clients=(64,))
