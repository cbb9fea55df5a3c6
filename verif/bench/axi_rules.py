"""The rules of an AXI4 port, watched: what a master of a Vitis kernel may do, and nothing else.

`AddressRules` and `DataRules` judge one channel each, edge by edge; a slave that answers feeds them with what it sees,
`AxiMonitor` feeds them from the pins alone, whoever the slave is.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from verif.bench import has_begun
from verif.bench.driver import Driver, Steps
from verif.bench.memory import PAGE
from verif.bench.pack import metadata
from verif.bench.quick import text

# Edges from the one that sees a reset to the last at which a master may still show something.
GRACE = 4


class AxiRule(AssertionError):
    """The unit broke a rule of AXI4, or one of the narrower ones that Vitis has."""


def pin(dut: Any, prefix: str, name: str) -> Any:
    """A port's signal, None if it has none: two underscores in a unit's Verilog, one in a kernel's top.

    By the unit's ports: what lies inside is visible in some simulators, under either name."""
    found = {f"{prefix}__{name}", f"{prefix}_{name}"} & metadata()["ports"].keys()
    return getattr(dut, found.pop()) if found else None


class Held:
    """A channel that the unit drives: once valid, it stays so and shows the same until it is taken.

    payload: the signals' names. what: for the message, "address"."""

    def __init__(self, dut: Any, prefix: str, channel: str, payload: tuple[str, ...], what: str):
        self.name, self.what = f"{prefix}, {channel}", what
        self.valid, self.ready = (pin(dut, prefix, channel + name) for name in ("valid", "ready"))
        self._shows_valid = text(self.valid)
        self._payload = [text(pin(dut, prefix, channel + name)) for name in payload]
        self._waiting: tuple[int, ...] | None = None
        self._begun = False

    def sample(self, accepting: bool) -> tuple[tuple[int, ...], bool] | None:
        """At an edge: what is shown, None if nothing or before the first reset, and whether it is so for the first
        time."""
        self._begun = self._begun or has_begun()
        if not self._begun:
            return None
        if self._shows_valid() != "1":
            if self._waiting is not None:
                raise AxiRule(f"{self.name}: valid fell before the {self.what} was taken")
            return None
        shown = tuple(int(shows(), 2) for shows in self._payload)
        first = self._waiting is None
        if not first and self._waiting != shown:
            raise AxiRule(f"{self.name}: the {self.what} changed before it was taken")
        self._waiting = None if accepting else shown
        return shown, first

    def forget(self) -> None:
        """The unit was reset."""
        self._waiting = None


class AddressRules(Held):
    """AR or AW. `shown` counts bursts whose address has been seen on the bus, `lengths` are of those writes whose data
    have not begun."""

    def __init__(self, dut: Any, prefix: str, channel: str, beat_bytes: int):
        super().__init__(dut, prefix, channel, ("addr", "len"), "address")
        # INCR, full width, one thread, plain data access: normal, modifiable, bufferable and not cacheable memory.
        size = (beat_bytes - 1).bit_length()
        self._fixed = [(pin(dut, prefix, channel + name), name, value) for name, value in
                       (("burst", 1), ("size", size), ("id", 0), ("lock", 0), ("cache", 3), ("prot", 0), ("qos", 0),
                        ("region", 0))]
        self._bytes = beat_bytes
        self.shown = 0
        self.lengths: deque[int] = deque(maxlen=None if channel == "aw" else 0)

    def take(self, accepting: bool) -> tuple[int, int] | None:
        """(address, beats) when one was taken at this edge."""
        seen = self.sample(accepting)
        if seen is None:
            return None
        (address, length), first = seen
        if first:
            self.shown += 1
            self.lengths.append(length + 1)
            self._judge(address, length + 1)
        return (address, length + 1) if accepting else None

    def forget(self) -> None:
        super().forget()
        self.lengths.clear()

    def _judge(self, address: int, beats: int) -> None:
        if address % self._bytes:
            raise AxiRule(f"{self.name}: address {address:#x} is not a multiple of {self._bytes}")
        if address % PAGE + beats * self._bytes > PAGE:
            raise AxiRule(f"{self.name}: {beats} beats at {address:#x} cross a multiple of {PAGE}")
        # These never change in a sound master; every burst is looked at until there were many.
        if self.shown < 64 or not self.shown % 16:
            for signal, name, value in self._fixed:
                if int(signal.value) != value:
                    raise AxiRule(f"{self.name}{name} is {int(signal.value)}, not {value}")


class DataRules(Held):
    """W: behind its address, every strobe on, WLAST with the last beat and no other. addresses: of the same port."""

    def __init__(self, dut: Any, prefix: str, addresses: AddressRules, beat_bytes: int):
        super().__init__(dut, prefix, "w", ("data", "last"), "beat")
        self._strobe = pin(dut, prefix, "wstrb")
        self._every = (1 << beat_bytes) - 1
        self._addresses = addresses
        self._left = 0      # beats of the burst that has begun

    def take(self, accepting: bool) -> int | None:
        """The data of a beat that was taken at this edge."""
        seen = self.sample(accepting)
        if seen is None:
            return None
        (data, last), _ = seen
        if (strobe := int(self._strobe.value)) != self._every:
            raise AxiRule(f"{self.name}: a strobe is low ({strobe:#x})")
        if not self._left:
            if not self._addresses.lengths:
                raise AxiRule(f"{self.name}: data before their address")
            self._left = self._addresses.lengths.popleft()
        if last != (self._left == 1):
            raise AxiRule(f"{self.name}: wlast is {last} with {self._left - 1} beats of the burst to come")
        if not accepting:
            return None
        self._left -= 1
        return data

    def forget(self) -> None:
        super().forget()
        self._left = 0


class _Monitor(ABC):
    """Watches channels of a kernel's top from power-up on, through every reset. A channel's `valid`, or a level, is low
    while `ap_rst_n` is."""

    def __init__(self, dut: Any, channels: tuple[Held, ...], levels: tuple[str, ...] = ()):
        self._channels = channels
        self._low = [(f"{channel.name}: valid", channel.valid) for channel in channels]
        self._low += [(level, getattr(dut, level)) for level in levels]
        self._clock, self._reset = dut.ap_clk, dut.ap_rst_n
        self._driver = Driver(self._watch(), self._clock)

    def stop(self) -> None:
        self._driver.stop()

    def _watch(self) -> Steps:
        held = 0
        while True:
            yield
            if self._reset.value == 1:
                held = 0
                self._edge()
                continue
            held += 1
            for channel in self._channels:
                channel.forget()
            for name, signal in self._low if held > GRACE else ():
                if signal.value == 1:
                    raise AxiRule(f"{name} is high although ap_rst_n is low")

    @abstractmethod
    def _edge(self) -> None:
        """One at which the kernel is not held."""


class AxiMonitor(_Monitor):
    """Of a master's port: the rules of its addresses and data. bursts, written_beats: what has passed since power-up,
    bursts by channel."""

    def __init__(self, dut: Any, prefix: str, beat_bytes: int):
        self._ar, self._aw = (AddressRules(dut, prefix, channel, beat_bytes) for channel in ("ar", "aw"))
        self._w = DataRules(dut, prefix, self._aw, beat_bytes)
        self.bursts = {"ar": 0, "aw": 0}
        self.written_beats = 0
        super().__init__(dut, (self._ar, self._aw, self._w))

    def _edge(self) -> None:
        for name, addresses in (("ar", self._ar), ("aw", self._aw)):
            self.bursts[name] += addresses.take(addresses.ready.value == 1) is not None
        self.written_beats += self._w.take(self._w.ready.value == 1) is not None


class ControlMonitor(_Monitor):
    """Of the control slave: its answers stand still until they are taken; and of the interrupt."""

    def __init__(self, dut: Any, prefix: str):
        self._answers = (Held(dut, prefix, "b", ("resp",), "response"),
                         Held(dut, prefix, "r", ("data", "resp"), "answer"))
        super().__init__(dut, self._answers, ("interrupt",))

    def _edge(self) -> None:
        for answer in self._answers:
            answer.sample(answer.ready.value == 1)
