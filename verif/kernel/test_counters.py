"""Counters: every event in its total, cleared when asked."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.kernel.counters import CounterFile
from verif.bench import reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate

WAIVED = {"backpressure_both_sides": "Events cannot be held back and totals come by whether anyone looks or not."}

EVENTS = {"rows": 1, "bytes": 7, "pair": 2, "words": 12, "stall": 1, "most": 16}


async def _totals(dut):
    """One whole round, in the order in which the totals come by."""
    found = {}
    for _ in range(2 * 8):
        await RisingEdge(dut.clk)
        found[int(dut.number.value)] = int(dut.total.value)
    return [found[at] for at in range(len(EVENTS))]


async def _clear(dut):
    dut.clear.value = 1
    await ClockCycles(dut.clk, 10)
    dut.clear.value = 0
    await ClockCycles(dut.clk, 1)


async def _begin(dut):
    start(dut)
    dut.events.value = 0
    dut.clear.value = 0
    await reset(dut)
    await _clear(dut)


async def _feed(dut, source, cycles):
    layout = layout_of("events")
    sums = dict.fromkeys(EVENTS, 0)
    for _ in range(cycles):
        events = source()
        dut.events.value = layout.pack(events)
        for name, value in events.items():
            sums[name] += value
        await RisingEdge(dut.clk)
    dut.events.value = 0
    await ClockCycles(dut.clk, 8 + 3)
    return list(sums.values())


@cocotb.test()
async def smoke(dut):
    """After a clear every total is zero."""
    await _begin(dut)
    assert await _totals(dut) == [0] * len(EVENTS)


@cocotb.test()
async def random_match_golden(dut):
    """A thousand cycles of random increments: each total is their sum."""
    await _begin(dut)
    random = rng()
    wanted = await _feed(dut, lambda: {k: random.getrandbits(b) for k, b in EVENTS.items()}, 1000)
    assert await _totals(dut) == wanted


@cocotb.test()
@pytest.mark.testpoint("corner_values")
async def every_cycle_the_largest_increment(dut):
    """Every counter takes its largest increment in every cycle; the residues are just wide enough."""
    await _begin(dut)
    wanted = await _feed(dut, lambda: {k: 2**b - 1 for k, b in EVENTS.items()}, 200)
    assert wanted[1] == 200 * 127 and await _totals(dut) == wanted


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """One event shows after a round and three cycles; totals come one a cycle in order."""
    await _begin(dut)
    dut.events.value = layout_of("events").pack(dict.fromkeys(EVENTS, 1))
    await ClockCycles(dut.clk, 1)
    dut.events.value = 0
    await ClockCycles(dut.clk, 8 + 3)
    assert await _totals(dut) == [1] * len(EVENTS)
    order = []
    for _ in range(16):
        await RisingEdge(dut.clk)
        order.append(int(dut.number.value))
    assert all((b - a) % 8 == 1 for a, b in zip(order, order[1:], strict=False))


@cocotb.test()
@pytest.mark.testpoint("reset_midstream")
async def clear_and_reset_midstream(dut):
    """A reset and a clear between events leave no trace of those before."""
    await _begin(dut)
    random = rng()

    def draw():
        return {k: random.getrandbits(b) for k, b in EVENTS.items()}

    await _feed(dut, draw, 100)
    await reset(dut)
    await _clear(dut)
    wanted = await _feed(dut, draw, 100)
    assert await _totals(dut) == wanted


@cocotb.test()
@pytest.mark.testpoint("one_cycle_reset")
async def a_reset_at_any_place_of_a_round(dut):
    """A reset after 1 to 16 cycles with events of all counters but the first: nothing of them is added to its total."""
    await _begin(dut)
    first, *others = EVENTS
    total = (await _feed(dut, lambda: dict.fromkeys(EVENTS, 1), 3))[0]
    layout = layout_of("events")
    for cycles in range(1, 17):
        dut.events.value = layout.pack({first: 0, **dict.fromkeys(others, 1)})
        await ClockCycles(dut.clk, cycles)
        dut.events.value = 0
        await reset(dut, keeps=True)
        assert (await _totals(dut))[0] == total, f"events in {cycles} cycles before a reset"


@cocotb.test()
@pytest.mark.testpoint("coincidences")
async def an_event_in_every_cycle_of_a_round(dut):
    """A single event of every counter, in each cycle of the round, in which its residue is taken up or not: it counts
    once."""
    await _begin(dut)
    layout = layout_of("events")
    for cycle in range(2 * 8 + 1):
        await ClockCycles(dut.clk, 8 + cycle % 8)
        dut.events.value = layout.pack(dict.fromkeys(EVENTS, 1))
        await ClockCycles(dut.clk, 1)
        dut.events.value = 0
        await ClockCycles(dut.clk, 8 + 3)
        assert await _totals(dut) == [cycle + 1] * len(EVENTS)


@cocotb.test()
async def top_values(dut):
    """The widest counter counts its largest increment past 32 bits; the carry goes on, and no other total has it."""
    await _begin(dut)
    cycles = (1 << 16) + 100
    dut.events.value = layout_of("events").pack({name: (1 << 16) - 1 if name == "most" else 0 for name in EVENTS})
    await ClockCycles(dut.clk, cycles)
    dut.events.value = 0
    await ClockCycles(dut.clk, 8 + 3)
    assert await _totals(dut) == [0] * (len(EVENTS) - 1) + [cycles * ((1 << 16) - 1)]


@cocotb.test()
async def one_cycle_reset(dut):
    """A reset of one cycle: totals stay until the clear, events on their way are counted by nobody, and a clear is
    enough for a new start."""
    await _begin(dut)
    wanted = await _feed(dut, lambda: {k: 2**b - 1 for k, b in EVENTS.items()}, 50)
    await reset(dut, keeps=True)
    assert await _totals(dut) == wanted
    dut.events.value = layout_of("events").pack(dict.fromkeys(EVENTS, 1))
    await ClockCycles(dut.clk, 1)
    await reset(dut, cycles=1)
    dut.events.value = 0
    await _clear(dut)
    wanted = await _feed(dut, lambda: {k: 1 for k in EVENTS}, 30)
    assert await _totals(dut) == wanted


@pytest.mark.parametrize("seed", seeds(1))
def test_counters(seed):
    simulate(CounterFile(EVENTS), "verif.kernel.test_counters", name="kernel_counters", tests=9, seed=seed)


@pytest.mark.parametrize(("events", "sentence"), [
    ({}, "events must name at least one counter"),
    ({"a": 17}, r"events\['a'\] must be 1 to 16 bits, not 17"),
])
def test_illegal_config_wrong(events, sentence):
    """No events, or an increment too wide, is refused with a sentence."""
    with pytest.raises(ValueError, match=sentence):
        CounterFile(events)
