"""The AXI engines between their clients and a memory of some pages: what their benches share."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

from cocotb.triggers import ClockCycles, with_timeout

from verif.bench import reset, rng
from verif.bench.axi import AxiMemory, CardMemory
from verif.bench.driver import Driver
from verif.bench.harness import Harness
from verif.bench.memory import BASE
from verif.bench.pack import layout_of, metadata
from verif.bench.quick import text
from verif.bench.stream import Pattern, Sink, Source, bursty, sometimes

PAGES = 6
PERIOD_NS = 10
# Where buffers begin so that every bit of an address is once 0 and once 1; the last ends two pages before all memory.
BASES = (0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000, (1 << 64) - 8 * 4096)
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
# What the shipping width is tried on in every run; `make regress` tries all of it.
SHIPPED = (r"\.(smoke|random_match_golden|backpressure_both_sides|latency_and_rate_as_documented|"
           r"pages_are_never_crossed|every_bit_of_an_address|reset_midstream)$")

Each = Callable[[int], Pattern | None]


def run_of(beat_bytes: int, tests: int) -> dict[str, Any]:
    """Arguments of a run: all tests of an engine, or those of the shipping width."""
    return {"tests": tests} if beat_bytes == 16 or REGRESS else {"tests": 7, "only": SHIPPED}


def each(shape: Callable[[str], Pattern] | None, label: str) -> Each | None:
    """A pattern for each client, drawn apart."""
    return shape and (lambda client: shape(f"{label}_{client}"))


def bursts(random: Any, channels: Sequence[str], number: int) -> dict[str, Pattern] | None:
    """Stalls of the bus, but for every third number."""
    return {name: bursty(random) for name in channels} if number % 3 else None


def pauses(channels: Sequence[str], share: float = 0.5) -> Iterator[tuple[int, Any, dict[str, Pattern] | None]]:
    """Three kinds of pauses of the clients against three of the bus: number, the clients' shape, the bus' stalls."""
    shapes = (None, lambda name: sometimes(share, rng(name)), lambda name: bursty(rng(name)))
    for number, (a, b) in enumerate((a, b) for a in shapes for b in shapes):
        yield number, a, {name: b(f"{name}{number}") for name in channels} if b else None


def fewest(first: int, count: int, beats_a_block: int) -> list[tuple[int, int]]:
    """The bursts that a run of beats needs, straight from the rule: none leaves a block."""
    found = []
    while count:
        now = min(count, beats_a_block - first % beats_a_block)
        found.append((first, now))
        first, count = first + now, count - now
    return found


class EngineBench(Harness):
    """A source of every client's requests and data, a sink of its beats, and a memory of some pages.

    latency, stalls: of the memory; base: where it begins; patterns: by a stream's name without its client's number, a
    function of the client."""

    data: ClassVar[str]                     # the bus' data, which have a beat's width
    asks: ClassVar[tuple[str, ...]]         # the valids of the engine on the bus
    answers: ClassVar[str]                  # that of the memory which nobody may wait for
    access: ClassVar[dict[str, bool]]       # to the buffer
    silent: ClassVar[bool] = False          # nothing comes out from the second cycle of a stop on

    def __init__(self, dut: Any, *, latency: int = 3, stalls: dict[str, Pattern] | None = None, base: int = BASE,
                 **patterns: Each | None):
        names = [stream["name"] for stream in metadata()["streams"]]
        super().__init__(dut, {name: made(k) for begin, made in patterns.items() if made is not None
                               for k, name in enumerate(n for n in names if n.split("__")[0] == begin)})
        self.clients = range(sum(name.startswith("i_requests") for name in names))
        self.bytes = layout_of(f"bus__{self.data}").width // 8
        self.memory = CardMemory(self.bytes, base)
        self.random = rng("content")
        self.before = self.random.randbytes(PAGES * 4096)
        self.buffer = self.memory.allocate("pages", len(self.before), data=self.before, **self.access)
        self.port = AxiMemory(dut, "bus", self.memory, latency=latency, stalls=stalls)

    @property
    def beats(self) -> int:
        """Beats of the buffer."""
        return self.buffer.size // self.bytes

    def part(self, name: str, client: int) -> Any:
        """A client's source or sink."""
        parts = {**self.sources, **self.sinks}
        return parts.get(name) or parts[f"{name}__{client}"]

    def request(self, client: int, first: int, count: int) -> None:
        self.part("i_requests", client).put({"address": self.buffer.address + first * self.bytes, "beats": count})

    def stop(self) -> None:
        super().stop()
        self.port.stop()

    def _shown(self) -> list[str]:
        """Outputs that are valid."""
        return [name for name in self.sinks if getattr(self.dut, f"{name}__valid").value == 1]

    async def at_rest(self) -> None:
        """Returns when the engine, under a stop, says that it is idle."""
        await self.edge
        for number in range(3000):
            await self.edge
            assert not (self.silent and number and self._shown()), "beats after a stop"
            if self.dut.idle.value == 1:
                return
        raise AssertionError("not idle after a stop")

    async def halt(self) -> None:
        """A stop, with consumers that are gone: the bus comes to rest with every burst answered."""
        dut = self.dut
        dut.stop.value = 1
        for name, sink in self.sinks.items():
            sink.stop()
            getattr(dut, f"{name}__ready").value = 0
        await self.at_rest()
        assert self.port.quiet, "idle with bursts under way"
        before = len(self.port.reads), len(self.port.writes)
        await ClockCycles(dut.clk, 20)
        assert dut.idle.value == 1 and (len(self.port.reads), len(self.port.writes)) == before and not self._shown()
        # What is asked for under a stop is taken and forgotten: nobody waits for a port that has been stopped.
        for source in self.sources.values():
            await with_timeout(source.drained(), 3000 * PERIOD_NS, "ns")
            source.stop()

    async def resume(self) -> None:
        """Ends a stop. The same memory goes on serving: nothing may be left of what was stopped."""
        await self.edge
        self.dut.stop.value = 0
        self.sources = {name: Source(self.dut, name) for name in self.sources}
        self.sinks = {name: Sink(self.dut, name) for name in self.sinks}

    def again(self) -> Self:
        """A bench on the unit as it is."""
        Harness.running = bench = type(self)(self.dut)
        return bench

    async def after_reset(self, cycles: int) -> Self:
        """A bench behind a reset in the midst of everything, which leaves nothing behind."""
        self.stop()
        await reset(self.dut, cycles)
        # The memory is reset with the engine.
        getattr(self.dut, f"bus__{self.answers}").value = 0
        await ClockCycles(self.dut.clk, 2)
        assert self.dut.idle.value == 1 and not self._shown()
        assert all(getattr(self.dut, f"bus__{name}").value == 0 for name in self.asks)
        return self.again()

    async def stray(self) -> None:
        """Answers that nobody waits for."""
        self.stop()
        answer = getattr(self.dut, f"bus__{self.answers}")
        for value in (1, 0):
            answer.value = value
            for _ in range(5):
                await self.edge
                assert not self._shown(), "an answer that nobody waits for comes out"


class ReadBench(EngineBench):
    """A read engine."""

    data, asks, answers, access = "rdata", ("arvalid",), "rvalid", {"writable": False}
    watched: ClassVar[dict[str, Any]] = {"late": 1, "within": 1}

    def __init__(self, dut: Any, **settings: Any):
        super().__init__(dut, **settings)
        self.expected: list[list[dict[str, int]]] = [[] for _ in self.clients]
        self.looking = Watch(dut, [name for name in self.sources if name.startswith("i_requests")], **self.watched)

    def stop(self) -> None:
        super().stop()
        self.looking.stop()

    def ask(self, client: int, first: int, count: int) -> None:
        """Requests `count` beats from beat `first` of the buffer on and remembers what has to come."""
        self.request(client, first, count)
        base = self.buffer.address // self.bytes + first
        for k in range(count):
            self.expected[client].append({"data": self.memory.beats[base + k], "error": 0, "last": int(k == count - 1)})

    async def finish(self) -> None:
        """Waits for everything, judges it, and finds the unit quiet."""
        cycles = 60 * sum(map(len, self.expected)) + 1000
        for client, expected in enumerate(self.expected):
            got = await self.part("o", client).wait(len(expected), cycles=cycles)
            for number, (a, b) in enumerate(zip(got, expected, strict=True)):
                assert a == b, f"client {client}, beat {number}: {a}, expected {b}"
        await ClockCycles(self.dut.clk, 6)
        assert [len(sink.beats) for sink in self.sinks.values()] == list(map(len, self.expected)), "beats came unasked"
        assert self.port.quiet and self.dut.idle.value == 1
        self.memory.check()

    async def resume(self) -> None:
        await super().resume()
        self.expected = [[] for _ in self.clients]

    def spoil(self, beat: int, response: int | None, expected: dict[str, int]) -> None:
        """A beat of the bus is answered with an error, or has a wrong rlast; what comes of it says so."""
        expected["error"] = 1
        if response is None:
            self.port.wrong_rlast.add(beat)
        else:
            self.port.fail_read[beat] = response
            expected["data"] ^= (1 << 8 * self.bytes) - 1


class Watch:
    """Holds a read engine to what it says of itself, in every cycle: not idle while a request has beats to come, and
    under `stop` no bursts but those that are on their way to the bus.

    requests: names of the engine's streams of requests; beats: of its output, if that keeps the engine busy; late:
    addresses that may be new on the bus under a stop; within: so many cycles of it, default any."""

    def __init__(self, dut, requests, *, beats=None, late, within=None):
        self.dut, self.late, self.within = dut, late, within
        self._requests = [tuple(getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload"))
                          for name in requests]
        self._beat = None if beats is None else getattr(dut, f"{beats}__valid")
        self._driver = Driver(self._run(), dut.clk)

    def stop(self):
        self._driver.stop()

    def _run(self):
        dut = self.dut
        owed = asked = 0            # beats of requests, those of the last edge apart
        shown = stopped = 0         # addresses under a stop, and its cycles
        waits, free = False, True   # a beat stood at the output at the edge before; the address channel is free
        reset, stop, idle, shows_valid, taken = (text(signal) for signal in (
            dut.rst, dut.stop, dut.idle, dut.bus__arvalid, dut.bus__arready))
        requests = [(text(valid), text(ready), text(payload)) for valid, ready, payload in self._requests]
        while True:
            yield
            if reset() == "1" or stop() == "1":
                owed = asked = 0
                waits = False
                if reset() == "1":
                    shown, stopped, free = 0, 0, True
                    continue
            elif idle() == "1":
                assert owed == 0, f"idle with {owed} beats to come"
                assert not waits, "idle while a beat waits"
            valid = shows_valid() == "1"
            if stop() == "0":
                waits = self._beat is not None and self._beat.value == 1
                owed, asked = owed + asked, sum(int(payload(), 2) >> 64 for valid_, ready, payload in requests
                                                if valid_() == "1" and ready() == "1")
                if owed and dut.bus__rvalid.value == 1 and dut.bus__rready.value == 1:
                    owed -= 1
                shown = stopped = 0
            else:
                stopped += 1
                if valid and free:
                    shown += 1
                    soon = self.within is None or stopped <= self.within
                    assert shown <= self.late and soon, f"burst {shown} under a stop, in its cycle {stopped}"
            free = not valid or taken() == "1"
