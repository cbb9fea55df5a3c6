"""Runs of a core on an open card: its buffers by name, its result block, and what the host believes of the card.

What the host believes of a card (which rows its caches hold, what was loaded into the core, which buffers there are,
that no run is under way) is true between transactions. Whatever ends one before its end, an error of the core or of the
card, a program's own or Ctrl-C, makes it unknown; then it is built anew before the next answer.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fpga.card import Buffer, Card, CardError, LinkUse
from fpga.card import open as open_card
from fpga.card.identity import check
from fpga.card.threads import exclusive
from gen.rtl.config import load
from gen.rtl.headers import KERNELS

# Of a run: four seconds of a card at 250 MHz, and half an hour of the host's clock, which simulated ones reach first.
LIMIT_CYCLES, LIMIT_S = 1_000_000_000, 1_800.0
#: Cycles without progress after which a core ends a run: 10 ms, and an SSD's slow answer takes less.
TIMEOUT_CYCLES = 3_000_000
#: Before the names of buffers that are one run's alone (PER_RUN): of a run and, where its inputs come while that one is
#: under way, of the next.
SIDES = ("", "other_")
PER_RUN = {"program", "inputs", "outputs", "result"}
CLOSED = "it is closed: its buffers were given back"
STOP_CYCLES, STOP_S = 100_000, 0.5      # that a core may take to obey its abort register, before it is reset


class RunError(CardError):
    """The core ended a run with an error. code, instruction, detail: of the result block, and what else the core names
    there; what the caller knows about the place, under the names that its own documentation gives.
    """

    def __init__(self, text: str, **place: Any):
        super().__init__(text)
        self.__dict__.update(place)


class Runs:
    """Runs of the core `kernel` on a card, which is not closed here.

    words: of a beat. limit_cycles: of a run; limit_s: seconds of the host's clock that it may take;
    timeout_cycles: without progress, after which the core ends it itself, 0: it does not. last: the result
    block of the last run, by name, empty where that did not come to its end. buffers: by name; the core's arguments of
    those names are taken from here. link: what crossed the link in the last transaction that came to its end; commands:
    of memory and drive in it; fetched: the transfer of the last run's outputs. is_known: whether the card is as
    the host believes. has_ended: whether the core itself has ended the last run, by its program's end, an error or an
    abort, so that all it has written is whole.
    """

    def __init__(self, card: Card, kernel: str, words: int, *, limit_cycles: int = LIMIT_CYCLES,
                 limit_s: float = LIMIT_S, timeout_cycles: int = TIMEOUT_CYCLES):
        self.card, self.kernel, self.words = card, KERNELS[kernel], words
        self.limit_cycles, self.limit_s, self._began = limit_cycles, limit_s, 0.0
        self.timeout_cycles = timeout_cycles
        self.last: dict[str, int] = {}
        self.link = LinkUse()
        self.commands: Counter[str] = Counter()
        self.fetched: Any = None
        self.buffers: dict[str, Buffer] = {}
        self._named: set[str] = set()       # buffers that were asked for, whether or not they came to be
        self.is_known, self.is_open, self.has_ended = True, True, True
        self._transactions = 0      # that were begun

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What the host believes of the card is unknown until all that happens inside has happened, no other
        transaction among it: one that is begun inside leaves the card unknown, however both end."""
        if not self.is_open:
            raise CardError(CLOSED)
        self.is_known = False
        self._transactions = mine = self._transactions + 1
        before, commands = self.card.link(), self.card.commands()
        try:
            yield
            self.link, self.commands = self.card.link().since(before), self.card.commands() - commands
        except BaseException:
            self.is_known = False
            raise
        self.is_known = self._transactions == mine

    @property
    def turn(self) -> int:
        """Another one from the begin of each transaction on."""
        return self._transactions

    def invalidate(self) -> int:
        """What the host believes of the card holds no more, as the card is being changed; gives what `revalidate`
        takes. Raises CardError: the runs were closed"""
        if not self.is_open:
            raise CardError(CLOSED)
        self.is_known = False
        return self._transactions

    def revalidate(self, since: int) -> None:
        """The change has come to its end, and the host knows the card again; nothing where a transaction came in
        between. since: of `invalidate`."""
        self.is_known |= self.is_open and since == self._transactions

    def reset(self) -> None:
        """No run is under way, no buffer is left, and the card's counters and violations begin anew. Raises CardError:
        the runs were closed; the card's"""
        if not self.is_open:
            raise CardError(CLOSED)
        self.is_known = False
        self.card.reset()
        for buffer in self.card.buffers():
            if buffer.name in self._named:
                self.card.free(buffer)
        self.buffers = {}
        self.card.clear()

    def ensure_buffer(self, name: str, size: int, p2p: bool = False) -> Buffer:
        """The buffer `name` of at least `size` bytes, whole beats; a smaller one is given back. p2p: as
        Card.allocate. Raises CardError: somebody else's has that name; the card's"""
        beat = 4 * self.words
        held = self.buffers.get(name)
        if held is None or held.bytes < size:
            if name not in self._named and name in [buffer.name for buffer in self.card.buffers()]:
                raise CardError(f"the card has a buffer {name!r} already, which is not of these runs")
            self._named.add(name)
            if held is not None:
                self.card.free(held)
                del self.buffers[name]
            self.buffers[name] = self.card.allocate(max(beat, -(-size // beat) * beat), name, p2p=p2p)
        return self.buffers[name]

    def write(self, name: str, data: NDArray[np.uint32]) -> Buffer:
        """The buffer `name` with `data` at its begin: an image, which is brought before time is counted."""
        buffer = self.ensure_buffer(name, data.nbytes)
        if data.size:
            self.card.write(buffer, data)
        return buffer

    def send(self, name: str, data: NDArray[np.uint32]) -> Buffer:
        """As `write`, over the link: what every run needs anew."""
        buffer = self.ensure_buffer(name, data.nbytes)
        if data.size:
            self.card.send(buffer, data)
        return buffer

    def clear_result(self, side: str = "") -> Buffer:
        """The result block, all zeros: progress and doorbell begin there. The host looks at it during a run."""
        empty = np.zeros(self.kernel.result_words, np.uint32)
        self.ensure_buffer(f"{side}result", empty.nbytes, p2p=True)
        return self.send(f"{side}result", empty)

    def preload(self, program: NDArray[np.uint32], inputs: NDArray[np.uint32], side: str) -> None:
        """Sends all that a run of this side reads alone, for `run` with preloaded; another may be under way."""
        self.clear_result(side)
        self.send(f"{side}inputs", inputs)
        self.send(f"{side}program", program)

    def run(self, program: NDArray[np.uint32], arguments: Mapping[str, int],
            meanwhile: Callable[[], object] | None = None, side: str = "", preloaded: bool = False) -> int:
        """Carries a program (instructions, words) out, with `arguments` that are no buffers, and returns its code; the
        result block must have been cleared. meanwhile: what the host does while the core works; it returns when it has
        nothing left to do. Whatever is raised meanwhile ends the run too. side: of SIDES; where `arguments` has the
        outputs' beats, they begin to cross the link with the result block, and `results` takes them. preloaded: the
        program has been sent.

        Raises CardError: the card's; a result block that the core has not written"""
        self.last, self.has_ended, self.fetched = {}, False, None
        if not preloaded:
            self.send(f"{side}program", program)
        names = [argument.name for argument in self.kernel.arguments if argument.kind == "pointer"]
        pointers = {name: self.buffers[f"{side}{name}" if name in PER_RUN else name] for name in names}
        self._began = time.monotonic()
        try:
            self.card.run({**pointers, "program_count": len(program), "timeout": self.timeout_cycles,
                           **arguments})
            if meanwhile is not None:
                meanwhile()
            self.card.wait(self.limit_cycles, self.left_s())
            self.has_ended = True
        except BaseException:
            self._end()
            raise
        begun = self.card.begin_fetch(pointers["result"], np.uint32)
        if beats := arguments.get("outputs_beats", 0):
            self.fetched = self.card.begin_fetch(pointers["outputs"], np.uint32, beats * self.words)
        block = self.card.end_fetch(begun)
        self.last = {value.name: int(block[value.word]) | (int(block[value.word + 1]) << 32 if value.bits == 64 else 0)
                     for value in self.kernel.result}
        # The code of a block that no core has written is OK too.
        if self.last["code"] == 0 and self.last["instructions"] != len(program) and (code := self.card.code()):
            self.last["code"] = code
            name = next((item.name for item in self.kernel.codes if item.code == code), f"code {code}")
            raise RunError(f"the core ended with {name}, as its register says, and could not write its result block",
                           code=code)
        if self.last["code"] == self.kernel.code("OK") and self.last["instructions"] != len(program):
            raise CardError(f"the core ended without an error, but its result block counts {self.last['instructions']} "
                            f"of {len(program)} instructions: no core, or another than {self.kernel.name}, has run")
        return self.last["code"]

    def left_s(self) -> float:
        """Seconds of the host's clock that the run may still take."""
        return max(0.0, self._began + self.limit_s - time.monotonic())

    def _end(self) -> None:
        """Ends the run, with a reset where the core does not obey soon; where it does not obey that, the next one will
        say so."""
        try:
            self.card.abort()
            self.card.wait(self.limit_cycles + STOP_CYCLES, STOP_S)
            self.has_ended = True
        except CardError:
            with suppress(CardError):
                self.card.reset()

    def results(self, begun: Any) -> NDArray[np.uint32]:
        """The outputs (beats, words) of a run, all of which have crossed the link. begun: its `fetched`."""
        flat = np.zeros(0, np.uint32) if begun is None else self.card.end_fetch(begun)
        return flat.reshape(-1, self.words)

    def read(self, name: str, beats: int) -> NDArray[np.uint32]:
        """The first beats (beats, words) of a buffer, over the link."""
        if not beats:
            return np.zeros((0, self.words), np.uint32)
        return self.card.fetch(self.buffers[name], np.uint32, beats * self.words).reshape(-1, self.words)

    def error(self, where: Sequence[str] = (), **place: Any) -> RunError:
        """The last run's error: instruction, `where` in the caller's words, and the core's own."""
        last = self.last
        code = next((code for code in self.kernel.codes if code.code == last["code"]), None)
        text = f"code {last['code']}" if code is None else f"{code.name}: {code.about} ({last['detail']:#x})"
        if code is not None and code.name == "STALLED":
            waited = ", ".join(self.kernel.waited(last["detail"])) or "nothing that is known"
            text = f"STALLED: no transfer and no work for {self.timeout_cycles} cycles; waited for: {waited}"
        status = {value.name: last[value.name] for value in self.kernel.result if value.kind == "status"}
        return RunError(", ".join([f"instruction {last['instruction']}", *where]) + f": {text}", **{**status, **place})

    def close(self) -> None:
        """Gives the buffers back; a second call does nothing."""
        if not self.is_open:
            return
        if self.is_known:
            with self.transaction():
                self.card.settle()      # nothing may arrive where others' buffers lie soon
                for buffer in self.buffers.values():
                    self.card.free(buffer)
                self.buffers = {}
        else:
            self.reset()
        self.is_open = False


class OnCard(ABC):
    """What answers questions by runs on a card: `with` closes it. _owned: the card was opened here.

    Several threads may ask: an answer holds the card's lock from what the host believes of the card to its last output,
    also where other objects answer by the same card. `last`, `link` and `commands` are of the last answer, whoever
    asked.
    """

    card: Card
    _runs: Runs
    _owned: bool

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The card's: held, several answers follow each other with nobody's between them."""
        return self.card.lock

    @staticmethod
    def _config(preset: Any, core: str) -> Any:
        """A core's configuration: of a preset by name, or `preset` itself."""
        if not isinstance(preset, str):
            return preset
        cores = load(preset).cores
        if core not in cores:
            raise ValueError(f"preset {preset} describes no {core} core")
        return cores[core]

    def _open(self, core: str, card: "str | Card", preset: Any, words: int, limit_cycles: int, limit_s: float,
              timeout_cycles: int = TIMEOUT_CYCLES, **options: Any) -> None:
        """The card, opened here where it is named, with all on it that it must hold before any answer."""
        self._owned = isinstance(card, str)
        config = self._config(preset, core)
        self.card = open_card(card, core=core, preset=preset, **options) if isinstance(card, str) else card
        self._runs = Runs(self.card, core, words, limit_cycles=limit_cycles, limit_s=limit_s,
                          timeout_cycles=timeout_cycles)
        try:
            check(self.card.identity, core, config)
            with self._runs.transaction():
                self._build()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _build(self) -> None:
        """Brings to the card what it must hold before any answer; it has no buffers of this core yet."""

    def _ensure_known(self) -> None:
        """The card is as the host believes; where that was unknown, it is built anew."""
        if not self._runs.is_known:
            self._runs.reset()
            with self._runs.transaction():
                self._build()

    @property
    def last(self) -> dict[str, int]:
        return self._runs.last

    @property
    def link(self) -> LinkUse:
        """What crossed the link for the last answer."""
        return self._runs.link

    @property
    def commands(self) -> Counter[str]:
        """Commands of memory and drive for the last answer (Card.commands)."""
        return self._runs.commands

    @exclusive
    def close(self) -> None:
        """Gives the buffers back, and closes the card if it was opened here; a second call does nothing."""
        if self._owned:
            self.card.close()
        else:
            self._runs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
