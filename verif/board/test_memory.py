"""The board's memory under masters by another hand: two AXI4 ports and a host at once, against an array of bytes."""

import warnings

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.board.memory import BoardMemory
from verif.bench import report, reset, rng, start
from verif.bench.axi import DECERR, OKAY, SLVERR, LiteMaster
from verif.bench.directed import fair_shares
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiBus, AxiMaster, AxiResp
    from cocotbext.axi.constants import AxiBurstType

BEAT, SIZE = 16, 4096
PORTS = ("m00_axi", "m01_axi")
LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}      # ten times the longest test's: the masters wait without end


async def _begin(dut, pattern=None):
    """Masters of both ports, which pause as `pattern` makes them, and the host."""
    start(dut)
    host = LiteMaster(dut, "host")
    masters = [AxiMaster(AxiBus.from_prefix(dut, name, bus_separator="__"), dut.clk, dut.rst) for name in PORTS]
    for name, master in zip(PORTS, masters):
        if pattern is None:
            continue
        for side, channels in ((master.write_if, ("aw", "w", "b")), (master.read_if, ("ar", "r"))):
            for channel in channels:
                getattr(side, f"{channel}_channel").set_pause_generator(
                    not go for go in pattern(rng(f"{name}{channel}")))
    await reset(dut, 4)
    await ClockCycles(dut.clk, 4)
    return masters, host


async def _fill(masters, draw):
    content = bytearray(draw.randbytes(SIZE))
    await masters[0].write(0, bytes(content))
    return content


@cocotb.test(**LIMIT)
async def smoke(dut):
    """What one port writes the other reads, and the host too."""
    (first, second), host = await _begin(dut)
    assert (await first.write(64, bytes(range(48)))).resp == AxiResp.OKAY
    read = await second.read(64, 48)
    assert read.data == bytes(range(48)) and read.resp == AxiResp.OKAY
    assert await host.read(64 + 4) == int.from_bytes(bytes(range(4, 8)), "little")
    assert await host.write(64 + 8, 0xCAFEF00D) == OKAY
    assert (await first.read(64 + 8, 4)).data == (0xCAFEF00D).to_bytes(4, "little")


async def _mixed(dut, pattern, rounds):
    """Both ports and the host at once, each in a third of the memory; reads anywhere in the own third."""
    masters, host = await _begin(dut, pattern)
    draw = rng("content")
    content = await _fill(masters, draw)
    third = SIZE // 4
    counted = {"reads": 0, "writes": 0, "host": 0}

    async def port(number):
        draw = rng(f"port{number}")
        base = number * third
        for _ in range(rounds):
            at = base + draw.randrange(third - 1)
            size = draw.randint(1, min(third - (at - base), draw.choice((4, 40, 300))))
            if draw.random() < 0.5:
                data = draw.randbytes(size)
                assert (await masters[number].write(at, data)).resp == AxiResp.OKAY
                content[at:at + size] = data
                counted["writes"] += 1
            else:
                read = await masters[number].read(at, size)
                assert read.resp == AxiResp.OKAY and read.data == content[at:at + size], f"port {number}, {at:#x}"
                counted["reads"] += 1

    async def words():
        draw = rng("host")
        for _ in range(rounds):
            at = 2 * third + 4 * draw.randrange(third // 4)
            if draw.random() < 0.5:
                word, strobe = draw.getrandbits(32), draw.getrandbits(4)
                assert await host.write(at, word, strobe) == OKAY
                for byte in range(4):
                    if strobe >> byte & 1:
                        content[at + byte] = word >> 8 * byte & 0xFF
            else:
                assert await host.read(at) == int.from_bytes(content[at:at + 4], "little")
            counted["host"] += 1

    for task in [cocotb.start_soon(job) for job in (port(0), port(1), words())]:
        await task
    assert (await masters[1].read(0, SIZE)).data == content
    assert min(counted.values()) > rounds // 3
    report(**counted)


@cocotb.test(**LIMIT)
async def random_match_golden(dut):
    """Both ports and the host at once, without pauses, with runs of any length, alignment and strobes, against an
    array of bytes."""
    await _mixed(dut, None, 60)


@cocotb.test(**LIMIT)
async def backpressure_both_sides(dut):
    """The same while every channel of both masters pauses at random."""
    await _mixed(dut, lambda r: sometimes(0.5, r), 30)


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("backpressure_both_sides")
async def backpressure_in_bursts(dut):
    """The same with pauses that come in bursts."""
    await _mixed(dut, bursty, 30)


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("latency_and_rate_as_documented", unit="board/top")
async def latency_and_rate_as_documented(dut):
    """A beat every 2 cycles on one port, one a cycle on both, a written beat a cycle; 2 cycles to the first."""
    masters, host = await _begin(dut)
    await _fill(masters, rng("content"))
    beats, edge = 64, RisingEdge(dut.clk)
    seen = {"ar": [], "r0": [], "r1": [], "w0": []}
    cycle = 0

    async def watch():
        nonlocal cycle
        pins = {"ar": (dut.m00_axi__arvalid, dut.m00_axi__arready), "r0": (dut.m00_axi__rvalid, dut.m00_axi__rready),
                "r1": (dut.m01_axi__rvalid, dut.m01_axi__rready), "w0": (dut.m00_axi__wvalid, dut.m00_axi__wready)}
        while True:
            await edge
            cycle += 1
            for name, (valid, ready) in pins.items():
                if valid.value == 1 and ready.value == 1:
                    seen[name].append(cycle)

    watching = cocotb.start_soon(watch())
    await masters[0].read(0, beats * BEAT)
    assert len(seen["r0"]) == beats and seen["r0"][-1] - seen["r0"][0] == 2 * (beats - 1)
    assert seen["r0"][0] - seen["ar"][0] == 3, "taken in one cycle, read in the next, registered, on the bus"
    for name in seen:
        seen[name].clear()
    reads = [cocotb.start_soon(master.read(0, beats * BEAT)) for master in masters]
    for read in reads:
        await read
    both = sorted(seen["r0"] + seen["r1"])
    assert len(both) == 2 * beats and both[-1] - both[0] <= 2 * beats, "in turn, together one a cycle"
    await masters[0].write(0, bytes(beats * BEAT))
    assert len(seen["w0"]) == beats and seen["w0"][-1] - seen["w0"][0] == beats - 1
    watching.cancel()


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("fair_shares")
async def ports_take_turns(dut):
    """Both ports write, and read, without a pause: neither has more beats than the other, whichever began."""
    masters, _ = await _begin(dut)
    beats = 48
    for first in (0, 1):
        for channel, begin in (("w", lambda master, at: master.write(at, bytes(beats * BEAT))),
                               ("r", lambda master, at: master.read(at, beats * BEAT))):
            tasks = [cocotb.start_soon(begin(masters[number], 1024 * number)) for number in (first, 1 - first)]
            counts = [0, 0]
            while max(counts) < beats:
                await RisingEdge(dut.clk)
                for number, name in enumerate(PORTS):
                    pins = (getattr(dut, f"{name}__{channel}{side}").value for side in ("valid", "ready"))
                    counts[number] += all(pin == 1 for pin in pins)
            fair_shares(counts, slack=2)
            for task in tasks:
                await task


@cocotb.test(**LIMIT)
async def reset_midstream(dut):
    """A reset at 15 moments of bursts of both ports: what was written stays, the next bursts are sound."""
    draw = rng("when")
    masters, host = await _begin(dut)
    content = await _fill(masters, draw)
    for _ in range(15):
        tasks = [cocotb.start_soon(masters[0].read(0, 256)),
                 cocotb.start_soon(masters[1].write(1024, content[1024:1280]))]
        await ClockCycles(dut.clk, draw.randint(1, 45))
        for task in tasks:
            task.cancel()
        await reset(dut, 3)
        await ClockCycles(dut.clk, 2)
        assert dut.m00_axi__rvalid.value == dut.m01_axi__bvalid.value == 0
        assert (await masters[1].read(0, SIZE)).data == content
        assert await host.read(20) == int.from_bytes(content[20:24], "little")


@cocotb.test(**LIMIT)
async def corner_values(dut):
    """The first and last byte, the longest burst that fits, single strobes, IDs that come back."""
    masters, host = await _begin(dut)
    content = await _fill(masters, rng("content"))
    for at in (0, SIZE - 1, BEAT - 1, BEAT):
        assert (await masters[0].write(at, b"\xA5")).resp == AxiResp.OKAY
        content[at] = 0xA5
    assert (await masters[1].read(0, SIZE, arid=1)).data == content
    assert (await masters[1].write(0, bytes(content), awid=1)).resp == AxiResp.OKAY


async def _by_hand(dut):
    """No other master drives the ports here."""
    start(dut)
    host = LiteMaster(dut, "host")
    for name in PORTS:
        for channel in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
            getattr(dut, f"{name}__{channel}").value = 0
    await reset(dut, 4)
    return host


async def _offer(dut, channel, **values):
    """A request of a beat on the second port, until it is taken."""
    for name, value in {"len": 0, "size": 4, "burst": 1, "valid": 1, **values}.items():
        getattr(dut, f"m01_axi__{channel}{name}").value = value
    while True:
        await RisingEdge(dut.clk)
        if getattr(dut, f"m01_axi__{channel}ready").value == 1:
            break
    getattr(dut, f"m01_axi__{channel}valid").value = 0


async def _held(dut, channel, cycles, **values):
    """An answer on the second port is there, as it must be, in the last four of so many cycles; then it is taken."""
    for cycle in range(cycles):
        await RisingEdge(dut.clk)
        if cycle >= cycles - 4:
            for name, value in {"valid": 1, **values}.items():
                assert int(getattr(dut, f"m01_axi__{channel}{name}").value) == value, name
    getattr(dut, f"m01_axi__{channel}ready").value = 1
    await RisingEdge(dut.clk)
    getattr(dut, f"m01_axi__{channel}ready").value = 0


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("ids")
async def an_answer_stays_with_its_burst(dut):
    """A write is offered while the one before, behind the memory's end, is carried out and its answer waits, which
    keeps its ID and its error."""
    await _by_hand(dut)

    async def bursts():
        for number, address in enumerate((SIZE, 0)):
            await _offer(dut, "aw", addr=address, id=number)

    dut.m01_axi__wdata.value, dut.m01_axi__wstrb.value, dut.m01_axi__wlast.value = 0, (1 << BEAT) - 1, 1
    dut.m01_axi__wvalid.value = 1
    cocotb.start_soon(bursts())
    for number, response in enumerate((DECERR, OKAY)):
        await _held(dut, "b", 12, id=number, resp=response)


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("ids")
async def an_id_stays_with_its_beat(dut):
    """A burst is taken while the last beat of the one before waits, which keeps its ID and its data."""
    host = await _by_hand(dut)
    for word in range(2 * BEAT // 4):
        assert await host.write(4 * word, int.from_bytes(bytes(range(4 * word, 4 * word + 4)), "little")) == OKAY
    dut.m01_axi__rready.value = 0
    for number in (0, 1):
        await _offer(dut, "ar", addr=number * BEAT, id=number)
    for number in (0, 1):
        wanted = bytes(range(number * BEAT, (number + 1) * BEAT))
        await _held(dut, "r", 8, id=number, data=int.from_bytes(wanted, "little"))


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("out_of_range")
async def out_of_range(dut):
    """Addresses behind the end in every seventh bit up to 63, bursts over the end: DECERR, nothing changes outside;
    what is inside is carried out."""
    masters, host = await _begin(dut)
    content = await _fill(masters, rng("content"))
    for at in (SIZE, 3 * SIZE, *(1 << bit for bit in range(13, 64, 7)), (1 << 64) - 64):
        for master in masters:
            read = await master.read(at, 32)
            assert read.resp == AxiResp.DECERR and not any(read.data), f"{at:#x}"
            assert (await master.write(at, bytes([1] * 32))).resp == AxiResp.DECERR, f"{at:#x}"
        if at < 1 << 32:
            assert await host.write(at, 1) == DECERR
            assert await host.read(at, response=DECERR) == 0, f"{at:#x}"
    over = await masters[0].read(SIZE - 32, 64)
    assert over.resp == AxiResp.DECERR and over.data == content[-32:] + bytes(32)
    assert (await masters[0].write(SIZE - 16, bytes([7] * 48))).resp == AxiResp.DECERR
    content[-16:] = bytes([7] * 16)
    assert (await masters[0].read(0, SIZE)).data == content
    assert (await masters[0].write(0, bytes(content[:16]))).resp == AxiResp.OKAY, "an error is of its burst alone"


@cocotb.test(**LIMIT)
@pytest.mark.testpoint("other_bursts")
async def other_bursts(dut):
    """FIXED and WRAP bursts and narrow beats are answered SLVERR and change nothing."""
    masters, host = await _begin(dut)
    content = await _fill(masters, rng("content"))
    for master in masters:
        for options in ({"burst": AxiBurstType.FIXED}, {"burst": AxiBurstType.WRAP}, {"size": 2}, {"size": 3}):
            assert (await master.write(128, bytes(32), **options)).resp == SLVERR, options
            assert (await master.read(128, 32, **options)).resp == SLVERR, options
    assert (await masters[0].read(0, SIZE)).data == content


@pytest.mark.turns(1, of="beside the product")
@pytest.mark.parametrize("number", seeds())
def test_memory(number):
    simulate(BoardMemory(beat_bytes=BEAT, size_bytes=SIZE), "verif.board.test_memory", name="board_memory", tests=12,
             seed=number)


@pytest.mark.parametrize("options, message", [
    ({"beat_bytes": 12, "size_bytes": 4096}, "beat_bytes must be one of 4, 8, 16, 32, 64"),
    ({"beat_bytes": 16, "size_bytes": 3000}, "size_bytes must be a power of two from 32 to 268435456, not 3000"),
    ({"beat_bytes": 64, "size_bytes": 64}, "size_bytes must be a power of two from 128 to 268435456, not 64"),
])
def test_illegal_config_wrong(options, message):
    """Widths and sizes that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        BoardMemory(**options)
