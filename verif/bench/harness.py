"""A unit with a driver on every stream: what most benches begin with, out of the unit's metadata."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

from cocotb.triggers import RisingEdge

from verif.bench import clock_of, reset, start
from verif.bench.driver import Driver, Steps
from verif.bench.pack import metadata
from verif.bench.stream import Monitor, Pattern, Sink, Source


class Harness:
    """A source on each of the unit's input streams and a sink on each of its outputs, by name in `sources` and `sinks`.

    A bench's own class adds what stands around the unit. Its method `_<name>` is called with each beat of the output
    `name`, that of an array of outputs with the number as well, and `_cycle` after each clock edge, `cycle` of which
    have been seen. patterns: how often a stream goes, by
    name; raw: outputs whose beats stay integers; watch: input streams that are held to the rules as well.
    """

    raw: ClassVar[tuple[str, ...]] = ()
    watch: ClassVar[tuple[str, ...]] = ()
    running: ClassVar["Harness | None"] = None

    def __init__(self, dut: Any, patterns: dict[str, Pattern | None] | None = None):
        patterns = patterns or {}
        ways: dict[str, list[str]] = {"in": [], "out": []}
        for stream in metadata()["streams"]:
            ways[stream["direction"]].append(stream["name"])
        if unknown := patterns.keys() - {*ways["in"], *ways["out"]}:
            raise ValueError(f"the unit has no stream {', '.join(sorted(unknown))}")
        self.dut, self.cycle, self.edge = dut, 0, RisingEdge(clock_of(dut))
        self.sources = {name: Source(dut, name, pattern=patterns.get(name)) for name in ways["in"]}
        self.sinks = {name: Sink(dut, name, pattern=patterns.get(name), raw=name in self.raw, on_beat=self._heard(name))
                      for name in ways["out"]}
        self.monitors = [Monitor(dut, name) for name in self.watch]
        self._driver = Driver(self._run(), clock_of(dut))

    @classmethod
    async def begin(cls, dut: Any, *, keeps: bool = False, **arguments: Any) -> Self:
        """A bench behind a reset, in the place of the one before; inputs are 0 until it drives them. keeps: see
        `reset`."""
        if Harness.running is not None:
            Harness.running.stop()
        start(dut)
        for name, port in metadata()["ports"].items():
            if port["direction"] == "in":
                getattr(dut, name).value = 0
        await reset(dut, keeps=keeps)
        bench = cls(dut, **arguments)
        Harness.running = bench
        return bench

    def _heard(self, name: str) -> Callable[[Any], None] | None:
        base, _, number = name.rpartition("__")
        if number.isdigit() and (heard := getattr(self, f"_{base}", None)):
            return lambda beat: heard(beat, int(number))
        return getattr(self, f"_{name}", None)

    def stop(self) -> None:
        """Ends the drivers at once; a reset has to follow."""
        parts: list[Any] = [*self.sources.values(), *self.sinks.values(), *self.monitors]
        for part in parts:
            part.stop()
        self._driver.stop()

    def _run(self) -> Steps:
        while True:
            yield
            self.cycle += 1
            self._cycle()

    def _cycle(self) -> None:
        """What a bench looks at in every cycle."""

    async def pulse(self, name: str) -> None:
        """An input is 1 for a cycle."""
        port = getattr(self.dut, name)
        port.value = 1
        await self.edge
        port.value = 0
