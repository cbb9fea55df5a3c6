"""Mini-batches as they lie in the mailboxes, and which of them may go when, to which GPU."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.emb import packer
from golden.fp import fp32
from hw.isa.emb import FORMAT
from hw.isa.hotline import KIND

POPULAR, GATHERED = KIND
Words = NDArray[np.uint32]


def beats_of(number: int, kind: int, count: int, samples: Words, rows: int, rest: Words) -> Words:
    """A mini-batch, (beats, words): its header, the beats of its `count` samples, its rows or vectors.

    samples, rest: (beats, words); rows: how many rows were gathered for it
    """
    header = np.zeros((1, samples.shape[1]), np.uint32)
    header[0, :4] = number, kind, count, rows
    return np.concatenate([header, samples, rest])


def sent(rest: Words, half: int) -> Words:
    """Rows or vectors of a mini-batch, (beats, words), as they lie in the mailbox: as they are, or all values as
    binary16 words one behind the other, +0 behind the last one."""
    if not half or not len(rest):
        return rest
    words = rest.shape[1]
    return packer.pack(fp32.value(rest).reshape(1, -1), FORMAT.FLOAT16, words).reshape(-1, words)


@dataclass(kw_only=True)
class Scheduler:
    """What may be dispatched next. slots: of a mailbox; begun, finished: mini-batches of each GPU; pending: the updates
    of a gathered one have not begun."""

    slots: int
    begun: list[int] = field(default_factory=lambda: [0])
    finished: list[int] = field(default_factory=lambda: [0])
    pending: bool = False

    @property
    def gpu(self) -> int:
        """That has the fewest mini-batches which it has not finished, of several the first."""
        ahead = [begun - finished for begun, finished in zip(self.begun, self.finished, strict=True)]
        return ahead.index(min(ahead))

    def pick(self, *, popular: bool, gathered: bool) -> int | None:
        """The kind of the next mini-batch, of those that are there; None: it has to wait."""
        if self.begun[self.gpu] - self.finished[self.gpu] >= self.slots:
            return None
        if gathered and not self.pending:
            return GATHERED
        return POPULAR if popular else None
