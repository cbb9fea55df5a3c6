"""The queue that all units use, cycle by cycle."""

from collections import deque
from typing import Any


class Fifo:
    """hw.stream.fifo.Fifo, its parameters as there.

    o: what stands at the output, None for nothing; ready, held, room: as its outputs. `step` is the clock edge.
    """

    def __init__(self, depth: int, *, register: bool = True, headroom: int = 0):
        self.depth, self.register, self.headroom = depth, register, headroom
        self.inside: deque[Any] = deque()   # without the register
        self.o: Any = None
        self.room = True

    @property
    def ready(self) -> bool:
        return len(self.inside) < self.depth

    @property
    def held(self) -> bool:
        return self.o is not None or bool(self.inside)

    def step(self, push: Any = None, taken: bool = False) -> None:
        """push: what enters, only if `ready`; taken: `o` leaves."""
        self.room = len(self.inside) <= self.depth - self.headroom
        if self.register:
            if self.inside and (self.o is None or taken):
                self.o = self.inside.popleft()
            elif taken:
                self.o = None
        elif taken:
            self.inside.popleft()
        if push is not None:
            self.inside.append(push)
        if not self.register:
            self.o = self.inside[0] if self.inside else None
