"""The packaged top of each core under the hands of XRT: its Verilog, its names, its kernel.xml, its clock and reset.

The pytest side is tests/fpga/vitis/test_packaged_top.py: it converts the top as the package has it, writes
kernel.xml and starts these tests on it; HOTRAIL_KERNEL_XML names that file. What is known of the kernel here is read
from it alone.
"""

import os

import cocotb
import pytest
from amaranth.lib import wiring
from cocotb.triggers import ClockCycles

from hw.kernel.top import VitisKernel
from verif.bench import report, rng, start
from verif.bench.axi import LiteMaster
from verif.bench.directed import DISTANCES
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.bench.xrt import CTRL, FIRST, GIE, IDLE, IER, ISR, START, Card, KernelXml
from verif.f2.shell import Registers
from verif.kernel.vitis_runs import RUNS

# The last page below a multiple of 2**32, with bits of all places above it.
HIGH = 0xA5C3_96E1_FFFF_F000


async def _begin(dut, label, **options):
    """A card out of a power-up with garbage, and what its kernel is to be run with."""
    kernel = KernelXml.read(os.environ["HOTRAIL_KERNEL_XML"])
    card = await Card.power_up(dut, kernel, rng(f"garbage {label}"), **options)
    return card, RUNS[kernel.name](label)


async def _polled(card, run):
    await card.begin(run)
    await card.poll(run)
    card.check()
    run.judge(card)


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented", "corner_values")
async def smoke(dut):
    """Power-up with garbage on all inputs, an access with the edge that ends the reset, which must not be lost; then
    polling: words from 0x10 on, ap_start, CTRL until done; the next run follows at once. Interrupts stay off. The top
    is wires but for the reset."""
    card, runs = await _begin(dut, "smoke")
    # The driver's first access may come with the edge that ends the reset.
    await card.control.write(FIRST, 0x600D_F00D)
    assert await card.control.read(FIRST) == 0x600D_F00D, "the access at the first edge behind the reset"
    assert await card.control.read(CTRL) == IDLE
    for register in (GIE, IER, ISR):
        assert await card.control.read(register) == 0
    for number in range(3):
        await _polled(card, next(runs))
        assert await card.control.read(CTRL) == IDLE, f"run {number}: reading CTRL has cleared done and ready"
    assert dut.interrupt.value == 0 and await card.control.read(ISR) == 0
    report(bursts={port: monitor.bursts for port, monitor in card.monitors.items()},
           written_beats={port: monitor.written_beats for port, monitor in card.monitors.items()})


@cocotb.test()
@pytest.mark.testpoint("interrupts")
async def interrupts(dut):
    """Interrupt mode: GIE, IER; the interrupt, ISR read and written back, done; off again, it stays low, and
    polling works."""
    card, runs = await _begin(dut, "interrupts")
    await card.allow_interrupts()
    for _ in range(3):
        run = next(runs)
        await card.begin(run)
        await card.interrupted(run)
        card.check()
        run.judge(card)
        assert await card.control.read(CTRL) == IDLE
    # Off again: a run that is polled for leaves the interrupt alone.
    await card.control.write(GIE, 0)
    await card.control.write(IER, 0)
    await _polled(card, next(runs))
    assert dut.interrupt.value == 0


@cocotb.test()
@cocotb.parametrize(how=["bursty", "evenly"])
async def backpressure_both_sides(dut, how):
    """All ten channels of the ports stall at random; the driver hesitates, gives address and data in any order and
    writes arguments a byte at a time."""
    stalls = {"bursty": lambda name: bursty(rng(name)), "evenly": lambda name: sometimes(0.5, rng(name))}[how]
    card, runs = await _begin(dut, how, stalls=stalls, hesitates=rng("driver"),
                              bytewise=rng("lanes") if how == "bursty" else None)
    for _ in range(2):
        await _polled(card, next(runs))
    assert set(card.control.orders) == {"aw", "w", "both"}


@cocotb.test()
@pytest.mark.testpoint("corner_values")
async def high_addresses(dut):
    """Every bit of an address matters: buffers with high bits in use, the largest across a multiple of 2**32."""
    card, runs = await _begin(dut, "high", base=HIGH)
    for _ in range(3):
        await _polled(card, next(runs))
        assert any(buffer.address >> 32 != buffer.address + buffer.size >> 32 for buffer in card.at.values())


@cocotb.test()
async def reset_midstream(dut):
    """ap_rst_n in the middle of runs: quiet ports, no interrupt, nothing pending, and the same run is right."""
    card, runs = await _begin(dut, "reset", stalls=lambda name: sometimes(0.8, rng(name)))
    await _polled(card, next(runs))
    draw, busy = rng("when"), 0
    for _ in range(6):
        run = next(runs)
        await card.allow_interrupts()
        before = card.bursts
        await card.begin(run)
        for _ in range(draw.randrange(2, 6)):
            run.meanwhile(card)
            await ClockCycles(dut.ap_clk, draw.randrange(10, 60))
        busy += card.bursts != before and await card.control.read(CTRL) == START
        await card.reset(draw.randrange(6, 30))
        assert await card.control.read(CTRL) == IDLE
        for register in (GIE, IER, ISR, *range(FIRST, FIRST + 0x20, 4)):
            assert await card.control.read(register) == 0, f"register {register:#x} after a reset"
        await _polled(card, run)
        assert dut.interrupt.value == 0
    assert busy > 1, f"{busy} of the runs were under way"


@cocotb.test(skip="HOTRAIL_KERNEL_XML" in os.environ)
async def coincidences(dut):
    """Resets from the shortest on, with an access at their last edge or up to three behind it: all registers are 0, the
    interrupt is low, and no access is lost."""
    start(dut)
    draw, control = rng("words"), LiteMaster(dut, "s_axi_control")
    for cycles in range(3, 7):
        for distance in DISTANCES[3:]:
            dut.ap_rst_n.value = 0
            await ClockCycles(dut.ap_clk, cycles)
            dut.ap_rst_n.value = 1
            await ClockCycles(dut.ap_clk, distance) if distance else None
            word = draw.getrandbits(32) | 1
            assert await control.write(FIRST, word) == 0 and await control.read(FIRST + 4) == 0
            assert dut.interrupt.value == 0 and await control.read(CTRL) == IDLE
            for register in (GIE, IER, ISR):
                await control.write(register, 1)
            assert await control.read(FIRST) == word and dut.interrupt.value == 1
            await control.write(FIRST + 4, word)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("coincidences")
def test_without_a_core(number):
    """The top around registers alone."""
    simulate(VitisKernel(Registers()), "verif.kernel.test_top", name="kernel_top", tests=1, seed=number,
             only="coincidences")


class NoKernel(wiring.Component):
    def __init__(self):
        super().__init__({})


def test_illegal_config_wrong():
    """What describes no kernel is refused with a sentence."""
    with pytest.raises(TypeError, match="NoKernel describes no kernel: it has no attribute `kernel`"):
        VitisKernel(NoKernel())
