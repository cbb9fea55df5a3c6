"""Drivers: what drives or watches a unit at every rising edge of its clock.

A driver is a generator that yields where it waits for the next edge. One task steps all drivers of a clock in the
order in which they began. As tasks of their own they take a quarter more of the time of benches with many streams: for
every task that awaits an edge cocotb makes three objects and calls a dozen functions, more than most drivers do there.
"""

from collections.abc import Generator
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

Steps = Generator[None, None, None]
_ENDED = object()


class Driver:
    """A running driver. It begins when its test next waits for anything, as a task of cocotb does. What it raises fails
    the test, with which it ends."""

    def __init__(self, steps: Steps, clock: Any):
        self._steps = steps
        cocotb.start_soon(self._begin(clock))

    async def _begin(self, clock: Any) -> None:
        if next(self._steps, _ENDED) is not _ENDED:
            _clocked(clock).add(self._steps)

    def stop(self) -> None:
        """Ends the driver at once."""
        self._steps.close()


class _Clocked:
    """The drivers of a clock, and the task that steps them."""

    def __init__(self, clock: Any):
        self._drivers: tuple[Steps, ...] = ()
        self.task = cocotb.start_soon(self._run(RisingEdge(clock)))

    def add(self, steps: Steps) -> None:
        self._drivers = (*self._drivers, steps)

    async def _run(self, edge: Any) -> None:
        while True:
            await edge
            for steps in self._drivers:
                if next(steps, _ENDED) is _ENDED:
                    self._drivers = tuple(driver for driver in self._drivers if driver is not steps)


_known: dict[Any, _Clocked] = {}


def _clocked(clock: Any) -> _Clocked:
    """Of this test: its tasks have ended with the one before."""
    if clock not in _known or _known[clock].task.done():
        _known[clock] = _Clocked(clock)
    return _known[clock]
