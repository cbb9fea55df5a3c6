"""Stream drivers and monitors: a source, a sink and a monitor that hold a stream to amaranth's rules.

All three look at the stream right after a rising clock edge, where cocotb shows the values from before the
edge, and speak in plain Python values: integers, dicts for structs, lists for arrays (see
`verif.bench.pack`). Sinks and monitors look away until the unit's first reset.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cocotb.triggers import Event, RisingEdge

from verif.bench import has_begun
from verif.bench.driver import Driver, Steps
from verif.bench.pack import Layout, layout_of
from verif.bench.quick import text

Pattern = Iterator[bool]


class StreamRule(AssertionError):
    """A stream broke a rule: valid fell or the payload changed before the beat was taken."""


def always() -> Pattern:
    """Goes every cycle."""
    while True:
        yield True


def never(cycles: int) -> Pattern:
    """Stands still for some cycles, then goes every cycle."""
    for _ in range(cycles):
        yield False
    yield from always()


def sometimes(probability: float, rng: random.Random) -> Pattern:
    """Goes each cycle with the given probability."""
    while True:
        yield rng.random() < probability


def bursty(rng: random.Random, longest: int = 12) -> Pattern:
    """Goes and stands still for random lengths; finds what evenly spread pauses do not."""
    going = bool(rng.getrandbits(1))
    while True:
        for _ in range(rng.randint(1, longest)):
            yield going
        going = not going


class _Port:
    """The three signals of a stream; `valid` or `ready` may be missing where a stream has it constant."""

    def __init__(self, dut: Any, name: str):
        self.name = name
        self.clock = dut.clk
        self.payload = getattr(dut, f"{name}__payload")
        self.valid = getattr(dut, f"{name}__valid", None)
        self.ready = getattr(dut, f"{name}__ready", None)
        self.layout: Layout = layout_of(f"{name}__payload")

    @staticmethod
    def show(signal: Any) -> Callable[[], str]:
        """What shows "0" or "1"; always "1" of a signal that is missing."""
        return (lambda: "1") if signal is None else text(signal)


class Source:
    """Drives a stream of the unit's inputs. `pattern` says in which cycles a waiting beat may be offered.

    >>> source = Source(dut, "i", pattern=bursty(rng))                                # doctest: +SKIP
    >>> source.put({"a": 1}, {"a": 2}); await source.drained()                        # doctest: +SKIP
    """

    def __init__(self, dut: Any, name: str, *, pattern: Pattern | None = None):
        self._port = _Port(dut, name)
        self._pattern = pattern
        self._queue: deque[int] = deque()
        self._idle = Event()
        self.sent = 0  # beats the unit has taken
        self.cycle = 0  # edges seen since start
        self.taken_at: list[int] = []  # the edge at which each beat was taken
        if self._port.valid is not None:
            self._port.valid.value = 0
        self._driver = Driver(self._run(), self._port.clock)

    def put(self, *beats: Any) -> None:
        """Queues beats; they go out in order."""
        pack = self._port.layout.pack
        self.put_raw(pack(beat) for beat in beats)

    def put_raw(self, words: Iterable[int]) -> None:
        """Queues beats that are already packed to integers."""
        self._queue.extend(words)
        if self._queue:
            self._idle.clear()

    async def drained(self) -> None:
        """Returns when the unit has taken everything."""
        if self._queue:
            await self._idle.wait()

    def stop(self) -> None:
        """Ends the driver at once and takes valid back; only a reset may follow."""
        self._driver.stop()
        self._queue.clear()
        if self._port.valid is not None:
            self._port.valid.value = 0

    def _run(self) -> Steps:
        port, pattern, queue = self._port, self._pattern, self._queue
        ready = port.show(port.ready)
        offered = False
        shown: bool | None = None   # what valid was set to
        while True:
            if not offered:
                if queue and (pattern is None or next(pattern)):
                    port.payload.value = queue[0]
                    offered = True
                if offered != shown and port.valid is not None:
                    port.valid.value = shown = offered
            yield
            self.cycle += 1
            if offered and ready() == "1":
                queue.popleft()
                self.taken_at.append(self.cycle)
                self.sent += 1
                offered = False
                if not queue:
                    self._idle.set()


class Sink:
    """Takes a stream of the unit's outputs and holds it to the rules. `pattern` says in which cycles it is
    ready.

    `beats` holds what arrived, `at` the edge of each; `on_beat` is called with each beat as it arrives.
    """

    def __init__(
        self,
        dut: Any,
        name: str,
        *,
        pattern: Pattern | None = None,
        on_beat: Callable[[Any], None] | None = None,
        raw: bool = False,
    ):
        self._port = _Port(dut, name)
        self._pattern = pattern
        self._on_beat = on_beat
        self._raw = raw
        self.beats: list[Any] = []
        self.at: list[int] = []
        self.cycle = 0
        self._driver = Driver(self._run(), self._port.clock)

    async def wait(self, count: int, cycles: int = 1_000_000) -> list[Any]:
        """The first `count` beats; an AssertionError if they do not arrive within that many cycles."""
        last = self.cycle + cycles
        edge = RisingEdge(self._port.clock)
        while len(self.beats) < count:
            await edge
            assert self.cycle <= last, (
                f"stream {self._port.name}: {len(self.beats)} of {count} beats after {cycles} cycles"
            )
        return self.beats[:count]

    def stop(self) -> None:
        self._driver.stop()

    def _run(self) -> Steps:
        port, pattern = self._port, self._pattern
        valid_now, payload_now = port.show(port.valid), text(port.payload)
        rule = _Rule(port.name)
        begun = False
        shown: bool | None = None   # what ready was set to
        while True:
            ready = pattern is None or next(pattern)
            if port.ready is not None:
                if ready != shown:
                    port.ready.value = shown = ready
            elif not ready:
                raise ValueError(
                    f"stream {port.name} is always ready; it cannot be given a pattern with pauses"
                )
            yield
            self.cycle += 1
            begun = begun or has_begun()
            if not begun or valid_now() != "1":
                rule.check(False, None, False)
                continue
            payload = int(payload_now(), 2)
            rule.check(True, payload, ready)
            if ready:
                beat = payload if self._raw else port.layout.unpack(payload)
                self.beats.append(beat)
                self.at.append(self.cycle)
                if self._on_beat is not None:
                    self._on_beat(beat)


class _Rule:
    """The rules of a stream, judged cycle by cycle."""

    def __init__(self, name: str):
        self.name = name
        self._waiting: int | None = None

    def check(self, valid: bool, payload: int | None, ready: bool) -> None:
        if self._waiting is not None:
            if not valid:
                raise StreamRule(f"stream {self.name}: valid fell before the beat was taken")
            if payload != self._waiting:
                raise StreamRule(
                    f"stream {self.name}: the payload changed from {self._waiting:#x} to {payload:#x} "
                    f"before the beat was taken"
                )
        self._waiting = payload if valid and not ready else None

    def reset(self) -> None:
        self._waiting = None


class Monitor:
    """Watches a stream without driving it: rules, and what passed. `hold()` for a reset, `go()` after it."""

    def __init__(self, dut: Any, name: str):
        self._port = _Port(dut, name)
        self._rule = _Rule(name)
        self._held = False
        self.beats: list[Any] = []
        self._driver = Driver(self._run(), self._port.clock)

    def hold(self) -> None:
        self._held = True
        self._rule.reset()

    def go(self) -> None:
        self._held = False

    def stop(self) -> None:
        self._driver.stop()

    def _run(self) -> Steps:
        port, begun = self._port, False
        valid_now, ready_now, payload_now = port.show(port.valid), port.show(port.ready), text(port.payload)
        while True:
            yield
            begun = begun or has_begun()
            if self._held or not begun:
                continue
            valid, ready = valid_now() == "1", ready_now() == "1"
            payload = int(payload_now(), 2) if valid else None
            self._rule.check(valid, payload, ready)
            if valid and ready and payload is not None:
                self.beats.append(port.layout.unpack(payload))


class Scoreboard:
    """Expected beats against those that came, in order. Ask `done()` at the end: nothing may be left over."""

    def __init__(self, name: str = "o", show: Callable[[Any], str] = repr):
        self.name = name
        self._show = show
        self._expected: deque[Any] = deque()
        self.matched = 0

    def expect(self, *beats: Any) -> None:
        self._expected.extend(beats)

    def got(self, beat: Any) -> None:
        if not self._expected:
            raise AssertionError(f"{self.name}: beat {self.matched} came unasked: {self._show(beat)}")
        wanted = self._expected.popleft()
        if beat != wanted:
            raise AssertionError(
                f"{self.name}: beat {self.matched} is {self._show(beat)}, expected {self._show(wanted)}"
            )
        self.matched += 1

    def done(self) -> None:
        if self._expected:
            raise AssertionError(
                f"{self.name}: {len(self._expected)} beats never came; "
                f"the first is {self._show(self._expected[0])}"
            )
