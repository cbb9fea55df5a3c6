"""Directed sweeps that benches share: two events at every distance, the highest values, shares of clients."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

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


def fair_shares(counts: Iterable[int], *, slack: int = 1) -> None:
    """Asserts that clients who all asked all the time were served equally often, but for `slack`."""
    shares = list(counts)
    assert max(shares) - min(shares) <= slack, f"clients were served {shares} times"
