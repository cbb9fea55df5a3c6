"""The read engine against the memory behind it: every burst and beat, faults on every beat, stop at any cycle."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from hw.axi.burst import Splitter
from hw.axi.reader import Reader
from verif.axi.bench import BASES, REGRESS, ReadBench, bursts, each, fewest, pauses, run_of
from verif.bench import rng
from verif.bench.axi import DECERR, SLVERR
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import Monitor, never, sometimes

CHANNELS = ("ar", "r")


class Bench(ReadBench):
    silent, watched = True, {"beats": "o", "late": 2}       # one on the bus, one behind it

    @property
    def source(self):
        return self.sources["i_requests"]

    @property
    def sink(self):
        return self.sinks["o"]

    def ask(self, first, count):
        super().ask(0, first, count)


@cocotb.test()
async def smoke(dut):
    """Three beats of a buffer whose address needs more than 32 bits arrive with one burst."""
    bench = await Bench.begin(dut)
    bench.ask(5, 3)
    await bench.finish()
    assert bench.port.reads == [(bench.buffer.address + 5 * bench.bytes, 3)]
    assert bench.buffer.address >> 32 == 0x40, "the buffer's address needs more than 32 bits"


@cocotb.test()
async def random_match_golden(dut):
    """Runs of 1 to 80 beats anywhere in memory: data, order and marks equal to the memory's content."""
    bench = await Bench.begin(dut, latency=17)
    for _ in range(150):
        count = bench.random.choice((1, 1, 2, 4, 8, bench.random.randint(1, 80)))
        bench.ask(bench.random.randrange(bench.beats - count), count)
    await bench.finish()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Three kinds of pauses of requests and beats against three of the address and data channels: idle gaps before
    requests, addresses held up, beats held up by the memory and by the consumer."""
    for number, clients, stalls in pauses(CHANNELS):
        bench = await Bench.begin(dut, latency=1 + 7 * (number % 3), stalls=stalls,
                                  i_requests=each(clients, f"i{number}"), o=each(clients, f"o{number}"))
        for _ in range(40):
            count = bench.random.randint(1, 20)
            bench.ask(bench.random.randrange(bench.beats - count), count)
        await bench.finish()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Three cycles to the address, one from the bus; a one-beat burst a cycle with 100 cycles of latency; long runs
    without a gap."""
    bench = await Bench.begin(dut, latency=1)
    # An address every cycle: one-beat requests on different pages.
    for k in range(200):
        bench.ask((k * 37) % bench.beats, 1)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == 199, "one beat a cycle"
    taken, read, out = bench.source.taken_at, bench.port.read_at, bench.sink.at
    # Taken at edge t, the address stands on the bus before edge t + 3, the beat before the edge after.
    assert {b - a for a, b in zip(taken, read)} == {4}, "3 cycles to the address, 1 in the memory"
    assert {b - a for a, b in zip(read, out)} == {1}
    # As many bursts in flight as promised: 100 cycles of latency do not show.
    bench = await Bench.begin(dut, latency=100)
    for k in range(600):
        bench.ask((k * 37) % bench.beats, 1)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == 599
    # A run of beats is one stream whatever pages it passes.
    bench = await Bench.begin(dut, latency=30)
    bench.ask(3, bench.beats - 7)
    await bench.finish()
    assert bench.sink.at[-1] - bench.sink.at[0] == bench.beats - 8


@cocotb.test()
@pytest.mark.testpoint("pages")
async def pages_are_never_crossed(dut):
    """Thirteen lengths against seven offsets around a page's end: the bursts are the fewest that stay inside pages."""
    bench = await Bench.begin(dut)
    block = min(4096 // bench.bytes, 256)
    page = 4096 // bench.bytes
    lengths = (1, 2, 3, 4, 7, 8, 16, 31, 32, block - 1, block, block + 1, 2 * block)
    want = []
    for count in lengths:
        for first in sorted({page - count - 1, page - count, page - count + 1, page - 2, page - 1, page, page + 1}):
            if first < 0:
                continue
            bench.ask(first, count)
            want += fewest(first, count, block)
    await bench.finish()
    base = bench.buffer.address
    assert bench.port.reads == [(base + first * bench.bytes, count) for first, count in want]


@cocotb.test()
@pytest.mark.testpoint("addresses")
async def every_bit_of_an_address(dut):
    """Buffers whose addresses have every bit once 0 and once 1, one of them just before the end of all addresses."""
    for base in BASES:
        bench = await Bench.begin(dut, base=base)
        page = 4096 // bench.bytes
        for first, count in ((0, 1), (page - 1, 3), (page + 5, page), (bench.beats - 2, 2)):
            bench.ask(first, count)
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("errors")
async def errors_mark_their_beat(dut):
    """SLVERR and DECERR on every beat of a request in turn, and rlast where it does not belong or missing, mark that
    beat and no other."""
    bench = await Bench.begin(dut)
    number = 0
    for response in (SLVERR, DECERR, None):
        for bad in range(12):
            bench.ask(60, 9)
            bench.ask(7, 3)
            bench.spoil(number + bad, response, bench.expected[0][number + bad])
            number += 12
    await bench.finish()
    # An address range that fails does so whoever reads it, and only that.
    bench.memory.fail(bench.buffer.address + 20 * bench.bytes, bench.bytes)
    seen = len(bench.sink.beats)
    bench.request(0, 18, 5)
    got = (await bench.sink.wait(seen + 5))[seen:]
    assert [beat["error"] for beat in got] == [0, 0, 1, 0, 0]


@cocotb.test()
@pytest.mark.testpoint("stop")
async def stop_at_any_cycle(dut):
    """A stop in any of 64 cycles under random stalls: the bus comes to rest with every burst answered, and the engine
    starts anew."""
    for cycle in range(64) if REGRESS else rng("stops").sample(range(64), 16):
        random = rng(f"stop{cycle}")
        bench = await Bench.begin(dut, latency=1 + cycle % 9, stalls=bursts(random, CHANNELS, cycle),
                                  o=lambda _, random=random: sometimes(0.6, random))
        for _ in range(30):
            bench.ask(random.randrange(bench.beats - 24), random.randint(1, 24))
        await ClockCycles(dut.clk, 1 + cycle)
        await bench.halt()
        await bench.resume()
        bench.ask(1, 5)
        bench.ask(62, 8)
        await bench.finish()


@cocotb.test()
@pytest.mark.testpoint("stop_inside_a_long_request")
async def stop_inside_a_long_request(dut):
    """A request of 65,535 beats from inside a block: what it has not handed to the bus is dropped at once, with at most
    two bursts more, and so is all that is asked for until the engine is idle. Bursts are as if it went on."""
    for cycle in (4, 7, 12, 19):
        bench = await Bench.begin(dut, stalls={"ar": sometimes(0.2, rng(f"long{cycle}"))})
        block = min(4096 // bench.bytes, 256)
        for _ in range(3):
            bench.request(0, 2, 65_535)
        bench.source.put(*[{"address": bench.buffer.address, "beats": 1}] * 4000)
        await ClockCycles(dut.clk, cycle)
        dut.stop.value = 1
        await ClockCycles(dut.clk, 2)
        # At most 256 beats of each burst that is on the bus by then, and of two more.
        for _ in range(300 * (len(bench.port.reads) + 3)):
            await bench.edge
            if dut.idle.value == 1:
                break
        assert dut.idle.value == 1 and bench.port.quiet
        asked = [(bench.buffer.address + first * bench.bytes, count) for first, count in fewest(2, 65_535, block)]
        assert bench.port.reads == asked[:len(bench.port.reads)] != []
        assert dut.i_requests__valid.value == 1, "judged while requests still came"


@cocotb.test()
async def reset_midstream(dut):
    """24 resets in front of the first beat, inside bursts and behind them: what was under way is forgotten,
    its place too."""
    for number in range(24 if REGRESS else 8):
        random = rng(f"reset{number}")
        bench = await Bench.begin(dut, latency=random.choice((1, 5, 20)), stalls=bursts(random, CHANNELS, number))
        for k in range(30):
            bench.ask(k, random.choice((4, 11)))
        await ClockCycles(dut.clk, random.randint(1, 60))
        bench = await bench.after_reset(1 + number % 2)
        bench.ask(9, 30)
        await bench.finish()


@cocotb.test()
async def corner_values(dut):
    """A consumer that is closed for long, a memory that is slow to start, thousands of beats from a block's last
    one on, a beat that nobody asked for."""
    bench = await Bench.begin(dut, o=lambda _: never(60))
    Monitor(dut, "o")
    for k in range(12):
        bench.ask(k, 1 + k)
    await bench.finish()
    bench = await Bench.begin(dut, stalls={"ar": never(50), "r": never(90)})
    for k in range(12):
        bench.ask(k, 1 + k)
    await bench.finish()
    # Thousands of beats from a block's last one on: more than the buffer has, so most are answered with an error, but
    # all are there.
    bench = await Bench.begin(dut)
    bench.looking.stop()
    block = min(4096 // bench.bytes, 256)
    many = 65_535 if REGRESS else 9_999
    bench.request(0, block - 1, many)
    got = await bench.sink.wait(many, cycles=80_000)
    inside = bench.beats - block + 1
    assert [beat["error"] for beat in got] == [0] * inside + [1] * (many - inside)
    assert len(bench.port.reads) == len(fewest(block - 1, many, block))
    assert [k for k, beat in enumerate(got) if beat["last"]] == [many - 1]
    # A beat that nobody asked for goes nowhere.
    await bench.stray()
    await ClockCycles(dut.clk, 2)
    assert dut.o__valid.value == 0 and dut.idle.value == 1
    bench = bench.again()   # no reset: the stray beats must not have been counted
    bench.ask(2, 9)
    await bench.finish()


@pytest.mark.parametrize("beat_bytes", shapes([16, 64], 1))
@pytest.mark.parametrize("number", seeds())
def test_reader(beat_bytes, number):
    simulate(Reader(beat_bytes=beat_bytes, outstanding=128), "verif.axi.test_reader", name=f"axi_reader_{beat_bytes}",
             seed=number, **run_of(beat_bytes, 11))


@pytest.mark.turns(1, of="second opinions")
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
