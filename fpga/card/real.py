"""What every card with hardware in it has alike: runs by the host's clock, the feed of its ring, its counters.

What the simulated card does cycle by cycle, the core, the memory and the drive do here by themselves; so some calls
mean less: see RealCard.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from fpga.card import checks
from fpga.card.feed import Feed, Source, start_position
from fpga.card.interface import Buffer, Card, CardError, CardHang, Faults, SsdStream, Violation
from gen.rtl.headers import KERNELS

# Looks at a run: without a pause at first, as it may take microseconds, then ever rarer.
SPIN_S, PAUSE, PAUSE_MOST_S = 1e-3, 1 / 16, 5e-3    # pauses are this part of the time that has passed
PATIENCE_S = 1.0        # that a core may take to obey its abort register


class MappedBuffer(Protocol):
    """A buffer with the host's view of it; is_p2p: that view is the card's memory itself; handle: of XRT's."""

    buffer: Buffer
    view: np.ndarray
    is_p2p: bool
    handle: Any


Item = TypeVar("Item", bound=MappedBuffer)


class MappedBuffers(ABC, Generic[Item]):
    """The buffers of an open card, by name; calls as Card's."""

    def __init__(self) -> None:
        self._objects: dict[str, Item] = {}

    @property
    def buffers(self) -> list[Buffer]:
        return [item.buffer for item in self._objects.values()]

    def known(self, buffer: Buffer) -> Item:
        """Raises CardError: no buffer of this card"""
        item = self._objects.get(buffer.name)
        if item is None or item.buffer != buffer:
            raise CardError(f"{buffer.name!r} is no buffer of this card")
        return item

    def at(self, address: int) -> tuple[Item, int]:
        """The buffer that has an address, and the bytes before it."""
        item = next(item for item in self._objects.values() if item.buffer.address <= address < item.buffer.end)
        return item, address - item.buffer.address

    @abstractmethod
    def why_no_window(self, item: Item) -> str:
        """Why the drive cannot reach a buffer."""

    @abstractmethod
    def allocate(self, bytes: int, name: str, fill: int | None, p2p: bool) -> Buffer: ...

    @abstractmethod
    def free(self, buffer: Buffer) -> None: ...

    @abstractmethod
    def write(self, buffer: Buffer, data: Any, offset: int) -> None:
        """The bytes beside the data stay as the card has them."""

    @abstractmethod
    def read(self, buffer: Buffer, dtype: Any, count: int | None, offset: int) -> np.ndarray: ...


class RealCard(Card, shared=("wait", "step", "abort")):
    """A card with hardware in it, behind what XRT or a PCIe library gives.

    core: on it; where: the card, in words; clock_mhz, hz: of the core, and of its cycles by the host's clock;
    patience_s: that the core may take to obey its abort register; queue_depth: reads of the drive under way.

    What is different from a simulated card:
    - `wait` and `step` count cycles by the host's clock; the exact number is the result block's.
    - Buffers begin with zeros.
    - Other threads reach the buffers and `abort` while one is in `wait` or `step`, where time passes by itself.
    - A pointer's argument must be a Buffer. `reset` can only ask the core to abort.
    - `counters` has `cycles`, `ssd.pages`, `ssd.bytes`, `ssd.credit_waits` (looks, not cycles) and `violations`, which
      is 0: nothing watches the bus. There are no faults on purpose.
    """

    _alone: ClassVar[str]       # why the core is not reset by itself
    _remedy: ClassVar[str]      # what is left when it does not obey

    def __init__(self, core: str, where: str, *, clock_mhz: float, hz: float, patience_s: float, queue_depth: int):
        self._kernel, self._depth, self._where = KERNELS[core], queue_depth, where
        assert self._kernel.abort is not None and self._kernel.status is not None, core
        self._abort_at = self._kernel.abort
        self.clock_mhz, self._hz, self._patience_s = float(clock_mhz), hz, patience_s
        self._buffers: Any = None       # MappedBuffers, while the card is open
        self._running, self._began = False, 0.0
        self._has_run = False       # since the memory was known to owe nothing
        self._given: set[str] = set()       # buffers of the last run
        self._source: Source | None = None
        self._stream: SsdStream | None = None
        self._transfers = np.zeros((0, 2), np.uint64)
        self._feed: Feed | None = None
        self.clear()

    # What lies behind

    @abstractmethod
    def _register(self, offset: int) -> int | None:
        """What a register of the core holds; None: it cannot be read"""

    @abstractmethod
    def _write_register(self, offset: int, value: int) -> bool:
        """Whether it could be written."""

    @abstractmethod
    def _set(self, numbers: Mapping[str, int], arguments: "Mapping[str, int | Buffer]") -> None:
        """Sets a run's arguments, numbers and the same as they were given. Raises CardError"""

    @abstractmethod
    def _start(self) -> None:
        """Raises CardError: the core could not be started"""

    @abstractmethod
    def _is_done(self) -> bool:
        """Whether the core has ended. Raises CardError: the run was given up"""

    @abstractmethod
    def _stands(self) -> bool:
        """Whether the core writes no more."""

    def _finish(self) -> None:
        """The core stands."""
        self._running = False

    @abstractmethod
    def _open_source(self, stream: SsdStream, objects: MappedBuffers) -> Source:
        """Where a stream's pages come from."""

    def _opened(self) -> MappedBuffers:
        if self._buffers is None:
            raise CardError("the card is closed")
        buffers: MappedBuffers = self._buffers
        return buffers

    # Memory

    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        return self._opened().allocate(bytes, name, fill, p2p)

    def free(self, buffer: Buffer) -> None:
        objects = self._opened()
        if self._running and buffer.name in self._given:
            raise CardError(f"buffer {buffer.name!r} cannot be given back while the core runs")
        objects.free(buffer)

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(self._opened().buffers)

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._opened().write(buffer, data, offset)

    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        return self._opened().read(buffer, dtype, count, offset)

    # Runs

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        objects, wanted = self._opened(), self._kernel.arguments
        if self._running:
            raise CardError("a run is under way; wait for it, or reset the card")
        self._stop_feed()
        numbers = checks.values(wanted, arguments)
        for item in wanted:
            given = arguments[item.name]
            if isinstance(given, Buffer) != (item.kind == "pointer"):
                raise CardError(f"argument {item.name} must be a "
                                f"{'buffer' if item.kind == 'pointer' else 'number'}, not {given!r}")
        self._set(numbers, arguments)
        feed = self._prepare(objects)
        self._began = time.monotonic()
        self._given = {given.name for given in arguments.values() if isinstance(given, Buffer)}
        # From here on a run is under way, whatever happens, until `_is_done`.
        self._feed, self._running, self._has_run = feed, True, True
        try:
            self._start()
        except CardError:
            self._feed, self._running, self._has_run = None, False, False
            raise
        if feed is not None:
            try:
                feed.start()
            except CardError:
                self._end()
                raise

    def _end(self) -> bool:
        """Asks the core to abort, if it runs; whether it stands, and the memory owes it nothing."""
        self._stop_feed()
        if self._running:
            self._write_register(self._abort_at, 1)
            if poll(self._stands, time.monotonic() + self._patience_s):
                self._finish()
        return not self._running and (
            not self._has_run or poll(self._owes_nothing, time.monotonic() + self._patience_s))

    def _owes_nothing(self) -> bool:
        """Whether the memory has answered all that a run has asked it; otherwise that may still be written."""
        assert self._kernel.status is not None
        self._has_run &= self._register(self._kernel.status) == self._kernel.states.index("draining")
        return not self._has_run

    def _prepare(self, objects: MappedBuffers) -> Feed | None:
        """The run's feed, with the words in the card's memory as they begin."""
        stream = self._stream
        if stream is None or self._source is None or not len(self._transfers):
            return None
        words = [_word(*objects.at(address)) for address in (stream.progress, stream.doorbell)]
        for word in words:
            word[0] = start_position(self._transfers)
            _ = word[0]     # see MappedBuffers: on its way to the card now
        ring = objects.known(stream.ring)
        return Feed(self._source, self._transfers, page_bytes=stream.page_bytes, beat_bytes=stream.beat_bytes,
                    ring=ring.view[: stream.ring.bytes].data, progress=words[0], doorbell=words[1], depth=self._depth)

    def _stop_feed(self) -> CardError | None:
        """Ends the feed and counts what it did; its error."""
        feed = self._feed
        if feed is None:
            return None
        feed.stop()
        self._feed = None       # not before: nobody may take its memory while it works
        self._counted["ssd.pages"] += feed.landed
        self._counted["ssd.bytes"] += feed.landed * (self._stream.page_bytes if self._stream else 0)
        self._counted["ssd.credit_waits"] += feed.credit_waits
        return feed.error

    @property
    def _feed_error(self) -> CardError | None:
        return None if self._feed is None else self._feed.error

    def _give_up(self, error: CardError) -> NoReturn:
        """Tells the core to stop. Raises CardError: why"""
        if not self._end():
            raise CardError(f"{error}; and the core does not obey its abort register")
        raise error

    def step(self, cycles: int) -> bool:
        self._opened()
        cycles = checks.cycles("step", cycles)
        return poll(lambda: self._running and self._is_done(), time.monotonic() + cycles / self._hz)

    def wait(self, timeout_cycles: int = 10_000_000, timeout_s: float | None = None) -> int:
        self._opened()
        until = self._began + checks.cycles("wait", timeout_cycles) / self._hz
        if not self._running:
            raise CardError("nothing is running")
        if timeout_s is not None:
            until = min(until, time.monotonic() + timeout_s)
        if not poll(lambda: self._is_done() or self._feed_error is not None, until):
            self._hang()
        if (error := self._feed_error) is not None and not self._is_done():
            self._give_up(error)
        self._finish()
        cycles = self._cycles()
        self._counted["cycles"] += cycles
        if failed := self._stop_feed():
            raise failed
        return cycles

    def _cycles(self) -> int:
        """Since the run began."""
        return int((time.monotonic() - self._began) * self._hz)

    def _hang(self) -> NoReturn:
        text, state = f"the core was not done after {self._cycles()} cycles", self.status()
        if state is None:
            raise CardHang(f"{text}, and its status register cannot be read")
        raise CardHang(f"{text}, its status register is 0x{state:x}", state)

    def status(self) -> int | None:
        self._opened()
        assert self._kernel.status is not None
        return self._register(self._kernel.status)

    def code(self) -> int | None:
        self._opened()
        return self._register(self._kernel.register("code").offset)

    def abort(self) -> None:
        self._opened()
        if not self._write_register(self._abort_at, 1):
            raise CardError(f"the abort register of the core on {self._where} could not be written")

    def reset(self, cycles: int = 4) -> None:
        self._opened()
        checks.cycles("reset", cycles, *checks.RESET_CYCLES)
        if not self._end():
            if not self._running:
                raise CardError(f"the memory of {self._where} owes the core an answer to its last run, which may still "
                                f"be written: close the card, and {self._remedy}")
            raise CardError(f"the core on {self._where} does not obey its abort register, and {self._alone}: close "
                            f"the card, and {self._remedy}")

    # The drive

    def stream(self, stream: SsdStream | None) -> None:
        objects = self._opened()
        if self._running:
            raise CardError("the stream cannot be changed while the core runs")
        self._stop_feed()
        self._drop_source()
        if stream is None:
            return
        if isinstance(stream.data, str | Path):
            self._check_drive(stream.data)
        source = self._open_source(stream, objects)
        try:
            self._transfers = checks.transfers(stream, source.bytes, objects.buffers, self.beat_bytes.values())
            for item in (objects.known(stream.ring), objects.at(stream.progress)[0], objects.at(stream.doorbell)[0]):
                if not item.is_p2p:
                    raise CardError(f"no P2P: buffer {item.buffer.name!r} cannot be reached by the drive: "
                                    + objects.why_no_window(item))
        except BaseException:
            source.close()
            raise
        self._stream, self._source = stream, source

    def _check_drive(self, path: str | Path) -> None:
        """Raises CardError: the file lies on a drive from which no page goes to the card."""

    def _drop_source(self) -> None:
        source, self._source, self._stream = self._source, None, None
        if source is not None:
            source.close()
        self._transfers = np.zeros((0, 2), np.uint64)

    def set_faults(self, faults: Faults) -> None:
        if faults != Faults():
            raise CardError("a real card makes no faults on purpose; the simulated one does")

    # What happened

    def counters(self) -> dict[str, int]:
        return dict(self._counted)

    def clear(self) -> None:
        self._counted = dict.fromkeys(("cycles", "ssd.pages", "ssd.bytes", "ssd.credit_waits", "violations"), 0)

    def violations(self) -> tuple[Violation, ...]:
        return ()

    @property
    def cycles_per_s(self) -> float:
        return 0.0


def poll(is_so: Callable[[], bool], until: float) -> bool:
    """Whether it becomes so before the clock (time.monotonic) is there."""
    began = time.monotonic()
    while not is_so():
        now = time.monotonic()
        if now >= until:
            return False
        if now - began > SPIN_S:
            time.sleep(min((now - began) * PAUSE, PAUSE_MOST_S, until - now))
    return True


def _word(item: MappedBuffer, offset: int) -> memoryview:
    """A view of one 32-bit word of a buffer."""
    return item.view[offset : offset + 4].data.cast("I")
