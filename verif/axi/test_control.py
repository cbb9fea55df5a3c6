"""The control slave, driven as XRT's driver does and in every way that a bus may."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi.control import (
    AUTO_RESTART,
    CTRL,
    DONE,
    GIE,
    IDLE,
    IER,
    ISR,
    READY,
    START,
    SW_RESET,
    ControlSlave,
)
from hw.isa import EMB, Argument, Kernel, Register
from verif.bench import reset, rng, start
from verif.bench.axi import LiteMaster
from verif.bench.directed import DISTANCES, coincide, top_values
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate

LAST = max(a.offset + a.bits // 8 for a in EMB.arguments)
ABORT, STATUS, CODE = (EMB.register(name).offset for name in ("abort", "status", "code"))
IDENTITY = {"core": 0x626D65, "version": 0x10203, "configuration_low": 0x89ABCDEF, "configuration_high": 0x01234567}
CONSTANTS = {EMB.register(name).offset: value for name, value in IDENTITY.items()}


def kernel(arguments=EMB.arguments, registers=EMB.registers):
    """A kernel with nothing but what the control slave looks at."""
    return Kernel(name="k", about="", arguments=arguments, registers=registers, words=1, fields=(), instructions=(),
                  modes=(), devices=(), states=(), codes=(), result_words=1, final_words=0, result=())


class Bench:
    def __init__(self, dut, rng=None):
        self.dut = dut
        self.control = LiteMaster(dut, "bus", rng=rng)
        self.starts = self.aborts = self.drops = 0
        dut.code.value = dut.owing.value = 0
        dut.done.value = 0
        dut.status.value = 0
        self._task = cocotb.start_soon(self._count())

    async def _count(self):
        edge = RisingEdge(self.dut.clk)
        while True:
            await edge
            self.starts += self.dut.start.value == 1
            self.aborts += self.dut.abort.value == 1
            self.drops += self.dut.drop.value == 1

    def arguments(self):
        return layout_of("arguments").unpack(int(self.dut.arguments.value))

    async def finish(self):
        """The core says that it is done."""
        self.dut.done.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.done.value = 0

    def end(self):
        self._task.cancel()


async def _begin(dut, rng=None):
    start(dut)
    bench = Bench(dut, rng)
    await reset(dut)
    bench.starts = bench.aborts = bench.drops = 0
    return bench


def words_of(values):
    """What the driver writes from 0x10 on: every word to the last argument, gaps included."""
    words = [0] * ((LAST - 0x10) // 4)
    for argument in EMB.arguments:
        for part in range(argument.bits // 32):
            words[(argument.offset - 0x10) // 4 + part] = values[argument.name] >> 32 * part & 0xFFFFFFFF
    return words


@cocotb.test()
async def smoke(dut):
    """XRT's sequence: every word from 0x10 on, gaps included, ap_start, CTRL polled until done."""
    bench = await _begin(dut)
    await RisingEdge(dut.clk)
    assert bench.arguments() == {argument.name: 0 for argument in EMB.arguments}, "arguments are 0 after reset"
    values = {a.name: rng(a.name).getrandbits(a.bits) for a in EMB.arguments}
    assert await bench.control.read(CTRL) == 1 << IDLE
    await bench.control.load(words_of(values))
    assert bench.arguments() == values and bench.starts == 0
    await bench.control.write(CTRL, 1 << START)
    await ClockCycles(dut.clk, 2)
    assert bench.starts == 1
    assert await bench.control.read(CTRL) == 1 << START, "running: neither idle nor done"
    assert await bench.control.read(CTRL) == 1 << START
    await bench.finish()
    assert await bench.control.read(CTRL) == 1 << DONE | 1 << IDLE | 1 << READY
    assert await bench.control.read(CTRL) == 1 << IDLE, "done and ready are cleared by reading them"
    assert bench.starts == 1 and bench.arguments() == values


@cocotb.test()
async def random_match_golden(dut):
    """Random writes with random strobes and reads anywhere in the 4 KB, against a plain register file."""
    draw = rng("accesses")
    bench = await _begin(dut)
    model = {}
    known = {a.offset + 4 * part for a in EMB.arguments for part in range(a.bits // 32)}
    for _ in range(1200):
        offset = draw.choice((draw.randrange(0x10, LAST, 4), draw.randrange(0x10, 0x1000, 4)))
        if offset in (ABORT, STATUS, CODE, *CONSTANTS):
            continue
        if draw.random() < 0.5:
            value, strobe = draw.getrandbits(32), draw.choice((0xF, 0xF, draw.getrandbits(4)))
            assert await bench.control.write(offset, value, strobe) == 0
            if offset in known:
                mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
                model[offset] = model.get(offset, 0) & ~mask | value & mask
        else:
            assert await bench.control.read(offset) == model.get(offset, 0), f"{offset:#x}"
    assert bench.starts == bench.aborts == 0
    assert bench.arguments() == {
        a.name: sum(model.get(a.offset + 4 * part, 0) << 32 * part for part in range(a.bits // 32))
        for a in EMB.arguments}


@cocotb.test()
async def backpressure_both_sides(dut):
    """Address before data, data before address, answers fetched late, reads and writes at once."""
    for label in range(6):
        bench = await _begin(dut, rng(f"pauses{label}"))
        draw = rng(f"values{label}")
        for argument in EMB.arguments:
            value = draw.getrandbits(32)
            await bench.control.write(argument.offset, value)
            assert await bench.control.read(argument.offset) == value
        await bench.control.write(CTRL, 1 << START)
        await bench.finish()
        assert await bench.control.read(CTRL) >> DONE & 1
        assert bench.starts == 1
        bench.end()
    # A read and a write at the same time do not disturb each other.
    bench = await _begin(dut)
    await bench.control.write(0x10, 1)
    for value in range(2, 30):
        write = cocotb.start_soon(bench.control.write(0x10, value))
        assert await bench.control.read(0x10) in (value - 1, value)
        await write


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Response, start pulse and rates of reads and writes cycle by cycle."""
    bench = await _begin(dut)
    for offset, value in ((CTRL, 1 << START), (0x10, 5)):
        # Shown at once, taken at the first edge; the response after the second.
        dut.bus__awaddr.value, dut.bus__wdata.value, dut.bus__wstrb.value = offset, value, 0xF
        dut.bus__awvalid.value = dut.bus__wvalid.value = dut.bus__bready.value = 1
        await RisingEdge(dut.clk)
        assert dut.bus__awready.value == 1 and dut.bus__wready.value == 1
        dut.bus__awvalid.value = dut.bus__wvalid.value = 0
        pulses = []
        for _ in range(6):
            await RisingEdge(dut.clk)
            pulses.append((int(dut.bus__bvalid.value), int(dut.start.value)))
        assert [b for b, _ in pulses] == [0, 1, 0, 0, 0, 0]
        assert [s for _, s in pulses] == ([0, 0, 1, 0, 0, 0] if offset == CTRL else [0] * 6)
    await bench.finish()
    # As fast as it goes: a write every 2 cycles, a read every 4.
    for valid, ready, first, every in (
            (("aw", "w"), "bready", dut.bus__bvalid, 2), (("ar",), "rready", dut.bus__rvalid, 4)):
        dut.bus__awaddr.value = dut.bus__araddr.value = 0x10
        for channel in valid:
            getattr(dut, f"bus__{channel}valid").value = 1
        getattr(dut, f"bus__{ready}").value = 1
        answers = []
        for cycle in range(60):
            await RisingEdge(dut.clk)
            if first.value == 1:
                answers.append(cycle)
        for channel in valid:
            getattr(dut, f"bus__{channel}valid").value = 0
        assert {b - a for a, b in zip(answers, answers[1:])} == {every}
        await ClockCycles(dut.clk, 6)


@cocotb.test()
@pytest.mark.testpoint("starts")
async def starts_and_restarts(dut):
    """Starts during a run, with the low byte left out, auto_restart and its end."""
    bench = await _begin(dut)
    control = bench.control
    # A start during a run is that run's; the next needs a new one.
    await control.write(CTRL, 1 << START)
    await control.write(CTRL, 1 << START)
    await bench.finish()
    await ClockCycles(dut.clk, 5)
    assert bench.starts == 1
    assert await control.read(CTRL) & 1 << IDLE
    # Writing 0 to ap_start does not take it back.
    await control.write(CTRL, 1 << START)
    await control.write(CTRL, 0)
    assert await control.read(CTRL) == 1 << START and bench.starts == 2
    await bench.finish()
    assert await control.read(CTRL) & 1 << DONE
    # A strobe that leaves the low byte out starts nothing.
    await control.write(CTRL, 1 << START, 0b1110)
    await ClockCycles(dut.clk, 5)
    assert bench.starts == 2
    # With auto_restart the end of a run starts the next, until it is taken back.
    await control.write(CTRL, 1 << START | 1 << AUTO_RESTART)
    for run in range(3):
        await ClockCycles(dut.clk, 2)
        assert bench.starts == 3 + run
        assert await control.read(CTRL) & (1 << START | 1 << IDLE | 1 << AUTO_RESTART) == 1 << START | 1 << AUTO_RESTART
        await bench.finish()
        await ClockCycles(dut.clk, 3)
        assert await control.read(CTRL) >> DONE & 1
    await control.write(CTRL, 0)
    await bench.finish()
    await ClockCycles(dut.clk, 5)
    assert bench.starts == 6 and await control.read(CTRL) & 1 << IDLE


@cocotb.test()
@pytest.mark.testpoint("clear_on_read")
async def done_is_never_lost(dut):
    """`done` in every cycle of a read of CTRL: whoever reads next sees it, and sees it once."""
    bench = await _begin(dut)
    control = bench.control
    for delay in range(10):
        await control.write(CTRL, 1 << START)
        read = cocotb.start_soon(control.read(CTRL))
        await ClockCycles(dut.clk, delay) if delay else None
        await bench.finish()
        first = await read
        second = await control.read(CTRL)
        assert (first >> DONE & 1) + (second >> DONE & 1) == 1, f"done {delay} cycles into a read"
        assert (first >> READY & 1) + (second >> READY & 1) == 1
        assert await control.read(CTRL) == 1 << IDLE
    assert bench.starts == 10


@cocotb.test()
@pytest.mark.testpoint("interrupts")
async def interrupts(dut):
    """Every combination of GIE and IER; ISR toggles."""
    bench = await _begin(dut)
    control = bench.control
    for gie in (0, 1):
        for ier in range(4):
            await control.write(GIE, gie)
            await control.write(IER, ier)
            assert await control.read(GIE) == gie and await control.read(IER) == ier
            await control.write(CTRL, 1 << START)
            assert dut.interrupt.value == 0
            await bench.finish()
            await ClockCycles(dut.clk, 3)
            assert await control.read(ISR) == ier, "what IER allows is pending"
            assert dut.interrupt.value == (1 if gie and ier else 0)
            # Writing 1 toggles: it clears what is pending.
            await control.write(ISR, ier)
            await ClockCycles(dut.clk, 2)
            assert await control.read(ISR) == 0 and dut.interrupt.value == 0
            await control.read(CTRL)
    # And sets what is not: that is what toggling means.
    await control.write(ISR, 2)
    await ClockCycles(dut.clk, 2)
    assert await control.read(ISR) == 2 and dut.interrupt.value == 1
    await control.write(GIE, 0)
    await ClockCycles(dut.clk, 2)
    assert dut.interrupt.value == 0


@cocotb.test()
@pytest.mark.testpoint("side_registers")
async def abort_and_status(dut):
    """abort is one pulse, status is read only, neither is reached by the driver's own writes."""
    bench = await _begin(dut)
    control = bench.control
    for value in (0, 3, 0xFFFFFFFF):
        dut.status.value = value
        assert await control.read(STATUS) == value
        dut.code.value = value & 0xFF
        assert await control.read(CODE) == value & 0xFF
    for offset in (STATUS, CODE, *CONSTANTS):
        await control.write(offset, 0x55)
    assert await control.read(STATUS) == 0xFFFFFFFF, "status cannot be written"
    assert await control.read(CODE) == 0xFF
    for offset, value in CONSTANTS.items():
        assert await control.read(offset) == value, "the identity cannot be written"
    assert bench.aborts == 0
    await control.write(ABORT, 1)
    await ClockCycles(dut.clk, 3)
    assert bench.aborts == 1, "one pulse"
    assert await control.read(ABORT) == 0
    await control.write(ABORT, 2)
    await control.write(ABORT, 1, 0b1110)
    await ClockCycles(dut.clk, 3)
    assert bench.aborts == 1
    # What the driver writes before a start reaches neither: both lie behind the last argument.
    assert min(ABORT, STATUS) >= LAST
    await control.load([0xFFFFFFFF] * ((LAST - 0x10) // 4))
    assert bench.aborts == 1 and bench.starts == 0


@cocotb.test()
@pytest.mark.testpoint("software_reset")
async def software_reset(dut):
    """sw_reset drops a run at any moment: it reads 1 until the run's end, which leaves no done and no interrupt behind;
    the next run is as any. Of an idle core it clears what the run before has left."""
    bench = await _begin(dut)
    control = bench.control
    await control.write(GIE, 1)
    await control.write(IER, 3)
    reset = 1 << SW_RESET
    for drops, cycles in enumerate((0, 1, 2, 3, 7), 1):
        await control.write(CTRL, 1 << START | 1 << AUTO_RESTART)
        await ClockCycles(dut.clk, cycles) if cycles else None
        await control.write(CTRL, reset)
        await ClockCycles(dut.clk, 3)
        assert bench.drops == drops and bench.starts == 2 * drops - 1
        await control.write(CTRL, 1 << START)
        assert await control.read(CTRL) == reset, "not idle, no start is taken"
        await bench.finish()
        await ClockCycles(dut.clk, 2)
        assert await control.read(CTRL) == 1 << IDLE and await control.read(ISR) == 0 and dut.interrupt.value == 0
        await control.write(CTRL, 1 << START)
        await bench.finish()
        await ClockCycles(dut.clk, 2)
        assert bench.starts == 2 * drops and dut.interrupt.value == 1
        await control.write(CTRL, 0)
        if cycles % 2:
            assert await control.read(CTRL) == 1 << DONE | 1 << IDLE | 1 << READY
            await control.write(ISR, 3)
        else:
            await control.write(CTRL, reset, 0b1101)    # a strobe that leaves it out
            assert await control.read(ISR) == 3 and bench.drops == drops
            await control.write(CTRL, reset)
            bench.drops -= 1
            assert await control.read(CTRL) == 1 << IDLE and await control.read(ISR) == 0
    # While the bus owes an answer, with a run and without.
    for runs in (True, False):
        if runs:
            await control.write(CTRL, 1 << START)
        dut.owing.value = 1
        await control.write(CTRL, reset)
        if runs:
            await bench.finish()
        for _ in range(3):
            assert await control.read(CTRL) == reset | 1 << IDLE
        dut.owing.value = 0
        await ClockCycles(dut.clk, 2)
        assert await control.read(CTRL) == 1 << IDLE and await control.read(ISR) == 0
    # In the cycle in which the run ends, and in those beside it.
    for delay in range(8):
        await control.write(CTRL, 1 << START)
        write = cocotb.start_soon(control.write(CTRL, reset))
        await ClockCycles(dut.clk, delay) if delay else None
        await bench.finish()
        await write
        await ClockCycles(dut.clk, 3)
        if await control.read(CTRL) >> SW_RESET & 1:    # it came after the end of the write, which was the next run's
            raise AssertionError(f"the end {delay} cycles into the write is not seen")
        assert await control.read(CTRL) == 1 << IDLE and await control.read(ISR) == 0 and dut.interrupt.value == 0


@cocotb.test()
async def reset_midstream(dut):
    """A reset in the middle of a write and of a run: all is 0 and idle."""
    bench = await _begin(dut)
    await bench.control.load([0xFFFFFFFF] * ((LAST - 0x10) // 4))
    for offset in (GIE, IER):
        await bench.control.write(offset, 3)
    await bench.control.write(CTRL, 1 << START | 1 << AUTO_RESTART)
    # In the middle of a write: its address is in, its data is not.
    dut.bus__awvalid.value, dut.bus__awaddr.value = 1, 0x10
    await RisingEdge(dut.clk)
    dut.bus__awvalid.value = 0
    bench.end()
    bench = await _begin(dut)
    await RisingEdge(dut.clk)
    assert bench.arguments() == {argument.name: 0 for argument in EMB.arguments}
    for offset in (GIE, IER, ISR):
        assert await bench.control.read(offset) == 0
    assert await bench.control.read(CTRL) == 1 << IDLE
    await bench.control.write(0x14, 7)
    assert await bench.control.read(0x14) == 7 and await bench.control.read(0x10) == 0
    assert bench.starts == 0


@cocotb.test()
@pytest.mark.testpoint("coincidences")
async def writes_beside_the_end_of_a_run(dut):
    """ISR is toggled, IER set, the next run started or dropped in every cycle about `done`: what comes first counts
    first, and in the same cycle nothing is lost."""
    bench = await _begin(dut)
    control = bench.control
    for distance in DISTANCES:
        # A write counts a cycle after it was taken.
        before = distance > 1
        for pending in (0, 3):
            await control.write(GIE, 1)
            await control.write(IER, 3)
            await control.write(CTRL, 1 << START)
            await control.write(ISR, pending)
            await coincide(dut.clk, lambda: control.write(ISR, 3), bench.finish, distance)
            await ClockCycles(dut.clk, 2)
            toggled_last = distance < 1
            assert await control.read(ISR) == (0 if toggled_last else 3), f"toggled, done {distance} cycles later"
            await control.write(CTRL, 1 << SW_RESET)
        await control.write(IER, 0)
        await control.write(CTRL, 1 << START)
        await coincide(dut.clk, lambda: control.write(IER, 3), bench.finish, distance)
        await ClockCycles(dut.clk, 2)
        assert await control.read(ISR) == (3 if before else 0), f"allowed, done {distance} cycles later"
        await control.write(CTRL, 1 << SW_RESET)
        bench.starts = 0
        await control.write(CTRL, 1 << START)
        await coincide(dut.clk, lambda: control.write(CTRL, 1 << START), bench.finish, distance)
        await ClockCycles(dut.clk, 3)
        assert bench.starts == (1 if before else 2), f"started again, done {distance} cycles later"
        if not before:
            await bench.finish()
        await control.write(CTRL, 1 << SW_RESET)
        # What IER allowed stays pending when it is taken back.
        await control.write(ISR, 3)
        await control.write(IER, 0)
        await ClockCycles(dut.clk, 2)
        assert await control.read(ISR) == 3 and dut.interrupt.value == 1
        await control.write(CTRL, 1 << SW_RESET)
        # The run that auto_restart has begun at the end of another is dropped as any.
        await control.write(IER, 3)
        bench.starts = 0
        await control.write(CTRL, 1 << START | 1 << AUTO_RESTART)
        await coincide(dut.clk, lambda: control.write(CTRL, 1 << SW_RESET), bench.finish, distance)
        await ClockCycles(dut.clk, 3)
        if bench.starts == 2:
            assert await control.read(CTRL) == 1 << SW_RESET, f"restarted, done {distance} cycles later"
            await bench.finish()
        await ClockCycles(dut.clk, 3)
        assert await control.read(CTRL) == 1 << IDLE and await control.read(ISR) == 0 and bench.starts < 3


@cocotb.test()
@pytest.mark.testpoint("one_channel_stalled")
async def answers_that_nobody_fetches(dut):
    """While the answer to a write waits a second write is taken and counts only behind it; reads go on. While a word
    that was read waits, writes go on and the word stays."""
    bench = await _begin(dut)
    first, second = 0x10, 0x1C
    dut.bus__bready.value = 0
    for offset, value in ((first, 1), (second, 2)):
        dut.bus__awaddr.value, dut.bus__wdata.value, dut.bus__wstrb.value = offset, value, 0xF
        dut.bus__awvalid.value = dut.bus__wvalid.value = 1
        await RisingEdge(dut.clk)
        assert dut.bus__awready.value == 1 and dut.bus__wready.value == 1
        dut.bus__awvalid.value = dut.bus__wvalid.value = 0
        await ClockCycles(dut.clk, 20)
        assert dut.bus__bvalid.value == 1
    assert await bench.control.read(first) == 1 and await bench.control.read(second) == 0
    assert dut.bus__awready.value == 0 and dut.bus__wready.value == 0
    dut.bus__bready.value = 1
    await ClockCycles(dut.clk, 4)
    dut.bus__bready.value = 0
    assert dut.bus__bvalid.value == 0 and await bench.control.read(second) == 2
    dut.bus__rready.value, dut.bus__araddr.value, dut.bus__arvalid.value = 0, first, 1
    await RisingEdge(dut.clk)
    dut.bus__arvalid.value = 0
    await ClockCycles(dut.clk, 6)
    for value in (5, 6):
        await bench.control.write(first, value)
        assert dut.bus__rvalid.value == 1 and dut.bus__rdata.value == 1 and dut.bus__arready.value == 0
    dut.bus__rready.value = 1
    await ClockCycles(dut.clk, 2)
    assert dut.bus__rvalid.value == 0 and await bench.control.read(first) == 6


@cocotb.test()
@pytest.mark.testpoint("top_values")
async def widest_arguments(dut):
    """Every argument takes the values about each width that it could have been cut to."""
    bench = await _begin(dut)
    for argument in EMB.arguments:
        for value in top_values(argument.bits):
            for part in range(argument.bits // 32):
                await bench.control.write(argument.offset + 4 * part, value >> 32 * part & 0xFFFFFFFF)
            assert bench.arguments()[argument.name] == value, argument.name


@cocotb.test()
async def one_cycle_reset(dut):
    """A reset of one cycle, in a run with all that can be set and an answer that waits, leaves nothing."""
    bench = await _begin(dut)
    await bench.control.load([0xFFFFFFFF] * ((LAST - 0x10) // 4))
    for offset in (GIE, IER, ISR):
        await bench.control.write(offset, 3)
    await bench.control.write(CTRL, 1 << START | 1 << AUTO_RESTART)
    for name in ("aw", "w", "ar"):
        getattr(dut, f"bus__{name}valid").value = 1
    await ClockCycles(dut.clk, 5)
    assert dut.bus__bvalid.value == 1 and dut.bus__rvalid.value == 1 and dut.interrupt.value == 1
    for name in ("aw", "w", "ar"):
        getattr(dut, f"bus__{name}valid").value = 0
    bench.starts = bench.aborts = bench.drops = 0
    await reset(dut, cycles=1)
    await ClockCycles(dut.clk, 1)
    assert dut.bus__bvalid.value == 0 and dut.bus__rvalid.value == 0 and dut.interrupt.value == 0
    assert set(bench.arguments().values()) == {0}
    for offset in (GIE, IER, ISR):
        assert await bench.control.read(offset) == 0
    assert await bench.control.read(CTRL) == 1 << IDLE
    assert bench.starts == bench.aborts == bench.drops == 0


@cocotb.test()
async def corner_values(dut):
    """The whole 4 KB can be read and written; only what is described answers with anything but 0."""
    bench = await _begin(dut)
    known = {a.offset + 4 * part for a in EMB.arguments for part in range(a.bits // 32)}
    dut.status.value, dut.code.value = 1, 7
    others = {STATUS: 1, CODE: 7, **CONSTANTS}
    for offset in range(0x10, 0x1000, 4):
        if offset != ABORT:
            assert await bench.control.write(offset, 0xFFFFFFFF) == 0
    for offset in range(0x10, 0x1000, 4):
        want = 0xFFFFFFFF if offset in known else others.get(offset, 0)
        assert await bench.control.read(offset) == want, f"{offset:#x}"
    assert bench.starts == 0 and bench.aborts == 0


@pytest.mark.parametrize("number", seeds())
def test_control(number):
    simulate(ControlSlave(kernel=EMB, constants=tuple(IDENTITY.items())), "verif.axi.test_control",
             name="axi_control", tests=15, seed=number)


def test_illegal_config_wrong():
    """Kernels without abort or with too many arguments are refused with a sentence."""
    with pytest.raises(ValueError, match="there is no 'abort'; there are state, status"):
        ControlSlave(kernel=kernel(registers=(Register("state", "read", ""), Register("status", "read", ""))))
    many = tuple(Argument(f"a{k}", "pointer", "m00", "") for k in range(350))
    with pytest.raises(ValueError, match="k: the control registers take 4272 bytes, a kernel has 4096"):
        ControlSlave(kernel=kernel(arguments=many))
