"""What every card can do, whatever is behind it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from fpga.card.threads import exclusive, turns

PAGE = 4096
#: What is counted of a card: commands of its DRAM and pages that its drive reads.
COMMANDS = ("activates", "refreshes", "reads", "writes", "pages")
POSITIONS = 1 << 30  # ring positions are counted modulo this


class CardError(RuntimeError):
    """Something that the card was asked for did not work; the message is one sentence that says what."""


class CardHang(CardError):
    """The core did not finish within the cycles or seconds it was given, or nothing crosses the link any more; `state`
    is its status register."""

    def __init__(self, text: str, state: int = 0):
        super().__init__(text, state)
        self.state = state

    def __str__(self) -> str:
        return str(self.args[0])


class CardViolation(CardError):
    """The core broke a rule of the bus or of the memory; `violations` has all that were seen."""

    def __init__(self, text: str, violations: "tuple[Violation, ...]" = ()):
        super().__init__(text, violations)
        self.violations = violations

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Buffer:
    """A piece of the card's memory: `address` is what the core sees (4 KB aligned), `bytes` what was asked
    for."""

    name: str
    address: int
    bytes: int

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclass(frozen=True)
class Violation:
    """A broken rule: `rule` is its name, `port` the port (or "host"), `address` where, `cycle` when, `count`
    how often the same rule was broken by the same port; the rest is that of the first time."""

    rule: str
    port: str
    address: int
    cycle: int
    count: int

    def __str__(self) -> str:
        often = "" if self.count == 1 else f" ({self.count} times, first"
        return f"{self.port}: {RULES[self.rule]}{often} at 0x{self.address:x} in cycle {self.cycle}" + ")" * (
            self.count > 1
        )


# Rules in the order of the numbers that the harness reports.
RULES = {
    "valid_fell": "VALID fell before READY",
    "payload_changed": "the payload changed while VALID waited for READY",
    "crosses_4k": "a burst crosses a 4 KB boundary",
    "burst_type": "a burst is not INCR",
    "burst_size": "a burst is narrower than the port",
    "unaligned": "a burst does not begin at a beat's address",
    "long_burst": "a burst is longer than 4 KB",
    "wlast": "WLAST is not at the last beat of its burst",
    "strobe": "a byte strobe is off",
    "read_outside": "read outside the buffers",
    "write_outside": "write outside the buffers",
    "never_written": "read memory that was never written, an uncorrectable ECC error",
    "ring_race": "read a page of the ring that has not landed yet or was released",
    "guard": "guard bytes beside a buffer have changed",
    "control": "the control slave broke its protocol",
}


class KernelArgument(Protocol):
    """An argument as the control slave has it: `bits` is 32, or 64 for a pointer."""

    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def bits(self) -> int: ...


class KernelLike(Protocol):
    """What a card has to know of a kernel. `abort` and `status` are register offsets after the last argument,
    None where the kernel has none."""

    @property
    def arguments(self) -> Sequence[KernelArgument]: ...
    @property
    def abort(self) -> int | None: ...
    @property
    def status(self) -> int | None: ...


class LinkUse(NamedTuple):
    """What crossed the link: bytes to the card, pages of the drive among them, and to the host; the cycles that each
    direction was taken."""

    in_bytes: int = 0
    in_cycles: int = 0
    out_bytes: int = 0
    out_cycles: int = 0

    def plus(self, other: "LinkUse") -> "LinkUse":
        return LinkUse(*(one + two for one, two in zip(self, other, strict=True)))

    def since(self, before: "LinkUse") -> "LinkUse":
        return LinkUse(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def cycles(self) -> int:
        """Of the direction that took longer; both move at the same time."""
        return max(self.in_cycles, self.out_cycles)


@dataclass(frozen=True)
class SsdStream:
    """What the host brings from the SSD during a run, in order and under the ring's credit.

    data: the SSD's content, an array or a file's path (read as a memory map); page_bytes: of a request, 4096
    or 16384; transfers: (N, 2) whole numbers, a page of the data and the ring position where it lands, counted in
    beats from the beginning of the run, modulo 2**30; ring: where pages land; progress: address of the word with the
    released ring position, which the core writes; doorbell: address of the word with the filled position, which the
    host writes; beat_bytes: of a ring position.
    """

    data: np.ndarray | str | Path
    page_bytes: int
    transfers: np.ndarray
    ring: Buffer
    progress: int
    doorbell: int
    beat_bytes: int


@dataclass(frozen=True)
class ErrorResponse:
    """An AXI error on purpose: port "m00_axi"; channel "read" or "write"; response "SLVERR" or "DECERR";
    on beat number `beat` of that port (from 0, since `set_faults`), or on every beat whose address lies in
    [first, end). A write's response belongs to its burst."""

    port: str
    channel: str
    response: str = "SLVERR"
    beat: int | None = None
    first: int = 0
    end: int = 0


@dataclass(frozen=True)
class Silence:
    """A memory that never answers any more: port "m00_axi"; channel "read" (no data from beat number `beat` of that
    port on) or "write" (no response once that beat was taken); beats are counted since `set_faults`."""

    port: str
    channel: str
    beat: int = 0


@dataclass(frozen=True)
class Faults:
    """What goes wrong on purpose; everything at its default is a sound card.

    seed: of the stalls. stalls: by channel ("aw", "w", "b", "ar", "r"), the share of cycles in which the
    memory's side holds back, 0 to 0.95; drawn in runs of up to `stall_cycles` cycles. errors: error
    responses. silences: ports that answer no more. lost: indices of SSD transfers that never land (those behind
    them wait, as the doorbell is in order). host_dies_after: transfers after which the host does nothing any
    more. doorbell_ahead: positions that the doorbell claims beyond what landed, once `doorbell_after` transfers
    have.
    """

    seed: int = 1
    stalls: Mapping[str, float] = field(default_factory=dict)
    stall_cycles: int = 16
    errors: tuple[ErrorResponse, ...] = ()
    silences: tuple[Silence, ...] = ()
    lost: tuple[int, ...] = ()
    host_dies_after: int | None = None
    doorbell_ahead: int = 0
    doorbell_after: int = 0


class Card(ABC):
    """A card with one core. Used as a context manager it closes itself.

    Simulated cards are deterministic: the same calls give the same cycles and the same bytes. Time passes in
    `run` (while arguments are written, and before until all that was sent has arrived), `wait`, `abort`, `step`,
    `reset`, `settle`, `fetch` and `end_fetch` only.

    A call may end in an exception that is not its own, as KeyboardInterrupt: `wait` and `step` look for signals many
    times a second. Then nothing of it may have happened, or a part, or all of it; `reset` makes sure that no run is
    under way, and `buffers` says what is allocated.

    Calls of several threads are carried out one after the other, each as a whole; `wait` of a simulated card is one. A
    thread that holds `lock` has the card for itself, as for a run from its inputs to its outputs.
    """

    clock_mhz: float
    identity: Any = None        # fpga.card.identity.Identity: the core's own word, None where it has none
    beat_bytes: Mapping[str, int]  # of every memory port, by its name
    in_process: bool = False    # whether its time is that of this process, as a simulation's is
    lock: AbstractContextManager[Any]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        card = super().__new__(cls)
        card.lock = turns()
        return card

    def __init_subclass__(cls, shared: Sequence[str] = (), **options: Any) -> None:
        """A card's calls are exclusive, but for those that are `shared`."""
        super().__init_subclass__(**options)
        for name, each in list(vars(cls).items()):
            if name.startswith("_") or name in shared or not hasattr(Card, name):
                continue
            if isinstance(each, FunctionType):
                setattr(cls, name, exclusive(each))
            elif isinstance(each, property) and each.fget is not None:
                setattr(cls, name, property(exclusive(each.fget), doc=each.__doc__))

    # Memory

    @abstractmethod
    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        """A buffer of `bytes` bytes, 4 KB aligned. Its memory has never been written, so a core that reads
        it before `write` does makes the error that ECC makes of it (a real card, which may crash its host then,
        begins every buffer with zeros); `fill` (0 to 255) writes all of it. p2p: the host or its drive reach the
        buffer while the core works; a real card maps it, where it can, all others do nothing about it.

        Raises CardError: no room, no bytes, or the name is taken."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back; what it held counts as never written again. Raises CardError: not a buffer."""

    @abstractmethod
    def buffers(self) -> tuple[Buffer, ...]:
        """What is allocated."""

    @abstractmethod
    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """Copies an array's bytes (anything with the buffer protocol) to `offset` bytes into the buffer. A simulated
        card does it in no time, beside its link.

        Raises CardError: it does not fit."""

    @abstractmethod
    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        """A copy of `count` items (default: as many as there are from `offset` bytes on). Memory that was
        never written reads as zero. Raises CardError: past the buffer."""

    # The link. On a card that has no model of it these are `write` and `read`.

    def send(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        """As `write`, over the link and in its time: a transfer of the host's DMA, which begins now. `run` waits
        until all that was sent has arrived. Raises CardError: it does not fit."""
        self.write(buffer, data, offset)

    def begin_fetch(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> Any:
        """Begins a transfer to the host, which may go on beside a run; `end_fetch` takes what this returns. Raises
        CardError: past the buffer."""
        return buffer, dtype, count, offset

    def end_fetch(self, begun: Any) -> np.ndarray:
        """The content of a transfer that was begun, when it has arrived. Raises CardError: a reset has ended it;
        CardHang: as `settle`."""
        return self.read(*begun)

    def fetch(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        """As `read`, over the link and in its time; a core that is at work goes on meanwhile. Raises CardHang: as
        `settle`."""
        return self.end_fetch(self.begin_fetch(buffer, dtype, count, offset))

    def link(self) -> LinkUse:
        """Since the card was opened or the last `clear`; nothing on a card that does not count it."""
        return LinkUse()

    def commands(self) -> "Counter[str]":
        """Commands of the memory and pages of the drive, as COMMANDS names them, since the card was
        opened or the last `clear`; nothing on a card that does not count them."""
        return Counter()

    def passed(self, *, to_card: int = 0, to_host: int = 0) -> None:  # noqa: B027 - nothing is counted
        """Bytes that somebody else has moved over the link, as a GPU does through its window: counted, in no time."""

    def settle(self) -> None:  # noqa: B027 - nothing is under way where transfers end with their calls
        """Waits until all transfers have arrived; a core that is at work goes on meanwhile.

        Raises CardHang: nothing crosses the link any more. The core has stopped within a burst of writes, behind which
        those of the host wait; they go on with it, and `reset` ends them."""

    # Runs

    def tensor_trains(self, cores: Sequence[Sequence[np.ndarray]]) -> None:  # noqa: B027 - they come with the program
        """The cores of the tensor-train tables that programs load from now on, by their numbers: for a twin, which
        computes with them and not with what is loaded. What was loaded before is forgotten there."""

    @abstractmethod
    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        """Writes the kernel's arguments (a Buffer stands for its address) as XRT does, each 32-bit word from
        the first to the last with the gaps between them, and sets ap_start.

        Raises CardError: an argument is missing, unknown or too large, or a run is under way."""

    @abstractmethod
    def wait(self, timeout_cycles: int = 10_000_000, timeout_s: float | None = None) -> int:
        """Lets the core work until it is done and returns the cycles since `run` set ap_start.

        timeout_cycles: since then; timeout_s: seconds of the host's clock, from now on.
        Raises CardHang: not done in time (the run goes on: `abort` or `reset`); CardViolation: a rule of the
        bus or the memory was broken, or guard bytes have changed."""

    def status(self) -> int | None:
        """What the core's status register holds; None where there is none, or it cannot be read."""
        return None

    def code(self) -> int | None:
        """How the last run ended, by the core's register, which says it also where no result block could be written;
        None where there is none."""
        return None

    @abstractmethod
    def abort(self) -> None:
        """Writes the kernel's abort register; `wait` then waits for the end that the core makes of it."""

    @abstractmethod
    def reset(self, cycles: int = 4) -> None:
        """Pulls the core's reset, 1 to 10,000 cycles, where the simulated card makes two of one: the reset of a core's
        ports begins at a register. Buffers and what is in them stay; transactions under way are forgotten, and the
        drive brings nothing more. Raises CardError: cycles out of range."""

    @abstractmethod
    def step(self, cycles: int) -> bool:
        """Lets `cycles` cycles pass, fewer if the core is done before; whether it is. No checks. On a real card time
        passes by itself: at least as much as the cycles take. Raises CardError: cycles less than 0."""

    @abstractmethod
    def stream(self, stream: SsdStream | None) -> None:
        """What the host brings from the SSD from the next `run` on; None for nothing."""

    @abstractmethod
    def set_faults(self, faults: Faults) -> None:
        """Faults from now on; `Faults()` ends them."""

    # What happened

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Since the card was opened or the last `clear`: `cycles`; for every port P `P.bursts_read`,
        `P.beats_read`, `P.read_waits` (cycles with a read outstanding and no beat), `P.bursts_written`,
        `P.beats_written`, `P.read_outstanding_most`; `ddr.row_hits`, `ddr.row_misses` (bank was closed),
        `ddr.row_conflicts` (another row was open), `ddr.activates`, `ddr.refreshes`, `ddr.reads`,
        `ddr.writes` (64-byte bursts); `ssd.pages`, `ssd.bytes`, `ssd.credit_waits` (cycles in which the next
        transfer waited for the ring); of a card with a model of the link `link.in_bytes`, `link.in_cycles`,
        `link.out_bytes`, `link.out_cycles` (see LinkUse); `violations`."""

    @abstractmethod
    def clear(self) -> None:
        """Sets the counters to zero and forgets violations."""

    @abstractmethod
    def violations(self) -> tuple[Violation, ...]:
        """Broken rules since the card was opened or the last `clear`, guard bytes included."""

    @property
    @abstractmethod
    def cycles_per_s(self) -> float:
        """Simulated cycles for each second of one processor that the simulation took; 0 before any."""

    @abstractmethod
    def close(self) -> None:
        """Ends the card; a second call does nothing."""

    def __enter__(self) -> "Card":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
