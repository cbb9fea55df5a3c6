"""Runs of a core on an open card: its buffers by name, and its result block."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fpga.card import Buffer, Card, CardError
from gen.headers import KERNELS

__all__ = ["LIMIT_CYCLES", "OnCard", "RunError", "Runs"]

LIMIT_CYCLES = 1_000_000_000


class RunError(CardError):
    """The core ended a run with an error. code, instruction, detail: of the result block, and what else the core names
    there; what the caller knows about the place, under the names that its own documentation gives.
    """

    def __init__(self, text: str, **place: Any):
        super().__init__(text)
        self.__dict__.update(place)


class Runs:
    """Runs of the core `kernel` on a card, which is not closed here.

    words: of a beat. limit_cycles: of a run. last: the result block of the last run, by name. buffers: by name; the
    core's arguments of those names are taken from here.
    """

    def __init__(self, card: Card, kernel: str, words: int, *, limit_cycles: int = LIMIT_CYCLES):
        self.card, self.kernel, self.words, self.limit_cycles = card, KERNELS[kernel], words, limit_cycles
        self.last: dict[str, int] = {}
        self.buffers: dict[str, Buffer] = {}

    def room(self, name: str, size: int, p2p: bool = False) -> Buffer:
        """The buffer `name` of at least `size` bytes, whole beats; a smaller one is given back. p2p: as
        Card.allocate."""
        beat = 4 * self.words
        held = self.buffers.get(name)
        if held is None or held.bytes < size:
            if held is not None:
                self.card.free(self.buffers.pop(name))
            self.buffers[name] = self.card.allocate(max(beat, -(-size // beat) * beat), name, p2p=p2p)
        return self.buffers[name]

    def write(self, name: str, data: NDArray[np.uint32]) -> Buffer:
        """The buffer `name` with `data` at its begin."""
        buffer = self.room(name, data.nbytes)
        if data.size:
            self.card.write(buffer, data)
        return buffer

    def clear_result(self) -> Buffer:
        """The result block, all zeros: progress and doorbell begin there. The host looks at it during a run."""
        empty = np.zeros(self.kernel.result_words, np.uint32)
        self.room("result", empty.nbytes, p2p=True)
        return self.write("result", empty)

    def run(self, program: NDArray[np.uint32], arguments: Mapping[str, int],
            beside: Callable[[], None] | None = None) -> int:
        """Carries a program (instructions, words) out, with `arguments` that are no buffers, and returns its code; the
        result block must have been cleared. beside: what the host does while the core works; it returns when it has
        nothing left to do. What it raises ends the run too.

        Raises CardError: the card's; a result block that the core has not written"""
        self.write("program", program)
        pointers = {argument.name: self.buffers[argument.name] for argument in self.kernel.arguments
                    if argument.kind == "pointer"}
        self.card.run({**pointers, "program_count": len(program), **arguments})
        if beside is None:
            self.card.wait(self.limit_cycles)
        else:
            try:
                beside()
                self.card.wait(self.limit_cycles)
            except BaseException:
                self._end()
                raise
        block = self.card.read(self.buffers["result"], np.uint32)
        self.last = {value.name: int(block[value.word]) | (int(block[value.word + 1]) << 32 if value.bits == 64 else 0)
                     for value in self.kernel.result}
        # The code of a block that no core has written is OK too.
        if self.last["code"] == self.kernel.code("OK") and self.last["instructions"] != len(program):
            raise CardError(f"the core ended without an error, but its result block counts {self.last['instructions']} "
                            f"of {len(program)} instructions: no core, or another than {self.kernel.name}, has run")
        return self.last["code"]

    def _end(self) -> None:
        """Ends the run, with a reset where the core does not obey."""
        try:
            self.card.abort()
            self.card.wait(self.limit_cycles)
        except CardError:
            self.card.reset()

    def read(self, name: str, beats: int) -> NDArray[np.uint32]:
        """The first beats (beats, words) of a buffer."""
        if not beats:
            return np.zeros((0, self.words), np.uint32)
        return self.card.read(self.buffers[name], np.uint32, beats * self.words).reshape(-1, self.words)

    def error(self, where: Sequence[str] = (), **place: Any) -> RunError:
        """The last run's error: instruction, `where` in the caller's words, and the core's own."""
        last = self.last
        code = next((code for code in self.kernel.codes if code.code == last["code"]), None)
        text = f"code {last['code']}" if code is None else f"{code.name}: {code.about} ({last['detail']:#x})"
        status = {value.name: last[value.name] for value in self.kernel.result if value.kind == "status"}
        return RunError(", ".join([f"instruction {last['instruction']}", *where]) + f": {text}", **{**status, **place})

    def close(self) -> None:
        """Gives the buffers back; a second call does nothing."""
        for buffer in self.buffers.values():
            self.card.free(buffer)
        self.buffers = {}


class OnCard:
    """What holds buffers on a card: `with` closes it. _owned: the card was opened here."""

    card: Card
    _runs: Runs
    _owned: bool

    @property
    def last(self) -> dict[str, int]:
        return self._runs.last

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
