"""Directed sweeps that benches share: two events at every distance, the highest values, shares of clients."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, Timer

PERIOD_NS = 10
DISTANCES = range(-3, 4)    # cycles from one event to the other, for every pair that writes one register


async def coincide(clock: Any, first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]],
                   distance: int) -> None:
    """Begins `second` `distance` cycles behind `first`, before it where that is negative, and returns once both have
    ended. Both begin right after an edge."""
    begun, later = (first, second) if distance >= 0 else (second, first)
    running = cocotb.start_soon(begun())
    if distance:
        await ClockCycles(clock, abs(distance))
    await later()
    await running


def top_values(bits: int) -> list[int]:
    """The highest value of a number and the one below; on either side of each bit that an implementation may be cut at,
    where a carry goes through: ascending."""
    edges = {1 << field for field in (8, 12, 16, 27, 32, 40, 48) if field < bits} | {1 << bits}
    return sorted({value for edge in edges for value in (edge - 2, edge - 1, edge) if value < 1 << bits})


def with_each_bit_above(value: int, bits: int) -> list[int]:
    """A small value with one of the bits above it, which whoever cuts the number to any width takes for the value."""
    return [1 << bit | value for bit in range(value.bit_length(), bits)]


async def pass_cycles(clock: Any, count: int) -> None:
    """Lets that many cycles go by at the simulator's own speed: for durations of tens of thousands."""
    await Timer((count - 1) * PERIOD_NS, "ns")
    await RisingEdge(clock)


def fair_shares(counts: Iterable[int], *, slack: int = 1) -> None:
    """Asserts that clients who all asked all the time were served equally often, but for `slack`."""
    shares = list(counts)
    assert max(shares) - min(shares) <= slack, f"clients were served {shares} times"
