"""The input buffer, cycle by cycle: frames of samples of one class, and beats out of them.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. `mini_batches` says the same without time.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from golden.stream.fifo import Fifo

READ_DEPTH = 16     # beats on their way to a client of the read port
READ_STAGES = 3     # address, array, register


def mini_batches(cold: Any, batch: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Numbers of the samples of each mini-batch, popular ones and others. cold: (samples,) each one's class."""
    batches = []
    for kind in (False, True):
        numbers = np.flatnonzero(np.asarray(cold, bool) == kind)
        batches.append([numbers[at:at + batch] for at in range(0, len(numbers), batch)])
    return batches[0], batches[1]


class InputBuffer:
    """Frames that are filled, handed out, read and freed. Beats are whatever they hold."""

    def __init__(self, *, frames: int, frame_beats: int):
        self.frames = frames
        self.memory: dict[tuple[int, int], Any] = {}
        self.free = set(range(frames))
        self.choice: tuple[int, int] | None = None      # the lowest free frame and the highest, a cycle late
        self.open: list[tuple[int, int, int] | None] = [None, None]     # frame, beats and samples that are in
        self.handed: tuple[int, int, int] | None = None     # class, frame, samples
        self.flushing = False
        depth = max(2, 1 << (frames - 1).bit_length())
        self.out = (Fifo(depth), Fifo(depth))         # o: (frame, samples)
        self.write: tuple[Any, Any] | None = None
        self.read = (Fifo(READ_DEPTH), Fifo(READ_DEPTH))
        self.under_way: deque[list[Any]] = deque([] for _ in range(READ_STAGES))   # (client, place or beat)
        self.level = [0, 0]
        self.flushed = self.idle = self.waits = False

    def ready(self, cold: bool, writes: bool) -> bool:
        """Whether a beat of this class is taken; writes: a rewritten one comes."""
        return not writes and not self._waits(cold)

    def grants(self, reads: Sequence[Any]) -> tuple[bool, bool]:
        """Whose read is taken, of the places that they want: not of two even beats, nor of two odd ones."""
        could = [read is not None and level < READ_DEPTH for read, level in zip(reads, self.level, strict=True)]
        if all(could) and reads[0][1] % 2 == reads[1][1] % 2:
            could[1] = False
        return could[0], could[1]

    def _waits(self, cold: bool) -> bool:
        return self.open[cold] is None and self.choice is None

    def step(self, *, batch: int, beat: tuple[bool, bool, Any] | None = None, write: tuple[Any, Any] | None = None,
             reads: Sequence[Any] = (None, None), frames_taken: Sequence[bool] = (False, False),
             beats_taken: Sequence[bool] = (False, False), free: int | None = None, flush: bool = False) -> None:
        """beat: (cold, last, what it holds); write: ((frame, beat), what it holds); reads: (frame, beat) that each
        client asks for."""
        takes = beat is not None and self.ready(beat[0], write is not None)
        waits = beat is not None and self._waits(beat[0])
        any_open = any(one is not None for one in self.open)
        busy = any(queue.held for queue in self.out)
        # What the output registers show next.
        self.flushed = self.flushing and not (any_open or self.handed is not None or busy)
        self.idle = (len(self.free) == self.frames and not any(self.level) and beat is None and write is None
                     and all(read is None for read in reads))
        self.waits = waits

        # Reads: what lies in the array at the end of the cycle before.
        granted = self.grants(reads)
        under_way = self.under_way
        done = dict(under_way.pop())
        under_way[0] = [(client, self.memory.get(address)) for client, address in under_way[0]]
        under_way.appendleft([(k, reads[k]) for k in (0, 1) if granted[k]])
        for k, queue in enumerate(self.read):
            queue.step((done[k],) if k in done else None, beats_taken[k])
            self.level[k] += granted[k] - beats_taken[k]

        # Writes.
        if self.write is not None:
            self.memory[self.write[0]] = self.write[1]
        self.write = write

        # Frames.
        for k, frames in enumerate(self.out):
            frames.step(self.handed[1:] if self.handed is not None and self.handed[0] == k else None,
                        frames_taken[k])
        self.handed = None
        free_before, opens = set(self.free), False
        if takes:
            assert beat is not None
            cold, last, content = beat
            frame_state = self.open[cold]
            if frame_state is None:
                assert self.choice is not None
                opens = True
                frame_state = (self.choice[cold], 0, 0)
                self.free.remove(frame_state[0])
            frame, beats, samples = frame_state
            self.write = ((frame, beats), content)
            frame_state = (frame, beats + 1, samples + last)
            if frame_state[2] == batch:
                self.handed, frame_state = (cold, frame, batch), None
            self.open[cold] = frame_state
        elif self.flushing:
            for k in (0, 1):
                part = self.open[k]
                if part is not None:
                    self.handed, self.open[k] = (k, part[0], part[2]), None
                    break
        self.choice = (min(free_before), max(free_before)) if free_before and not opens else None
        if free is not None:
            self.free.add(free)
        self.flushing = flush and beat is None
