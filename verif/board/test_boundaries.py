"""Cycles that the serial line is too slow to tell apart: the silence that ends a frame, the length of a reset."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from gen.rtl import frames
from hw.board.link import Link, Status
from hw.board.registers import BOARD_BASE, HELD_CYCLES, REGISTERS, BoardRegisters
from verif.bench import reset, rng, start
from verif.bench.axi import LiteMaster
from verif.bench.directed import with_each_bit_above
from verif.bench.harness import Harness
from verif.bench.runner import seeds, simulate

UNIT = "board/link"
GAP_CYCLES = 20


async def _send(dut, line, frame, waits=None):
    """Bytes one by one; before some of them, by number, so many cycles."""
    for number, byte in enumerate(frame):
        await ClockCycles(dut.clk, (waits or {}).get(number, 1))
        line.put({"data": byte, "error": 0})
        await line.drained()


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def silence(dut):
    """A byte up to GAP_CYCLES + 1 behind the one before it is the frame's, behind any byte; one cycle later the frame
    has ended."""
    frame, met = frames.read_request(2, 1), set()
    for place in rng("place").sample(range(1, len(frame)), 4):
        for waits in (GAP_CYCLES - 1, GAP_CYCLES):
            bench = await Harness.begin(dut)
            line = bench.sources["i"]
            await _send(dut, line, frame, {place: waits})
            distance = line.taken_at[place] - line.taken_at[place - 1]
            reply = bytes(await bench.sinks["o"].wait(3, cycles=4 * GAP_CYCLES))
            wanted = Status.ADDRESS if distance <= GAP_CYCLES + 1 else Status.TIMEOUT
            assert Status(reply[0]) is wanted, f"{Status(reply[0])} for {distance} cycles before byte {place}"
            met.add(distance)
    assert met == {GAP_CYCLES + 1, GAP_CYCLES + 2}, met


@cocotb.test()
@pytest.mark.testpoint("top_values")
async def counts(dut):
    """A count of words with any bit above those of the longest frame is refused."""
    bench = await Harness.begin(dut)
    line, replies = bench.sources["i"], bench.sinks["o"]
    for number, count in enumerate(with_each_bit_above(1, 16)[7:], 1):
        await _send(dut, line, frames.read_request(0, count))
        reply = bytes((await replies.wait(3 * number, cycles=4 * GAP_CYCLES))[-3:])
        assert Status(reply[0]) is Status.COUNT, count


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented", unit="board/top")
async def held(dut):
    """The reset that the host asks for begins in the cycle behind the write and lasts its cycles; one of the board ends
    it, and none begins by itself."""
    start(dut)
    control, address = LiteMaster(dut, "bus"), BOARD_BASE + REGISTERS["reset"]
    for cycles in (HELD_CYCLES, 3):
        await reset(dut)
        shown = []

        async def watch(shown=shown):
            while True:
                await RisingEdge(dut.clk)
                shown.append((int(dut.reset.value), int(dut.bus__awvalid.value) & int(dut.bus__awready.value)))

        watching = cocotb.start_soon(watch())
        await ClockCycles(dut.clk, 40)
        await control.write(address, 1)
        if cycles < HELD_CYCLES:
            await reset(dut)
        await ClockCycles(dut.clk, 40)
        watching.cancel()
        levels, written = [level for level, _ in shown], [taken for _, taken in shown].index(1)
        cycles = sum(levels) if cycles < HELD_CYCLES else HELD_CYCLES
        assert 0 < cycles <= HELD_CYCLES and levels == [
            int(written < at <= written + cycles) for at in range(len(levels))], levels


@pytest.mark.turns(1, of="beside the product")
@pytest.mark.parametrize("number", seeds())
def test_boundaries(number):
    for unit, only, tests in ((Link(gap_cycles=GAP_CYCLES), "silence|counts", 2),
                              (BoardRegisters(memory_bytes=4096), "held", 1)):
        simulate(unit, "verif.board.test_boundaries", name=f"board_{type(unit).__name__}", tests=tests, seed=number,
                 only=only)
