"""How long the planner searches, in work done and not in time: the same plan on every machine, however busy it is.

Each loop says what it has done, in seconds that it takes about, alone on a core of today; a budget is so many of them.
Real time only ends a search that takes several times as long.
"""

from dataclasses import dataclass, field
from time import monotonic

import numpy as np

#: Seconds of a split that is priced, of one that is tried on a card, of a pivot of a linear program by its rows, of a
#: run of one.
PAIR_S, TRIED_S, PIVOT_S, RUN_S = 8e-9, 1.5e-9, 4e-8, 5e-4


@dataclass
class Clock:
    """done: work so far, seconds. stop: the moment of real time at which all ends; late: that it came."""

    done: float = 0.0
    stop: float = np.inf
    late: bool = False


@dataclass(frozen=True)
class Deadline:
    """A moment of a clock."""

    at: float = np.inf
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, seconds: float, real_s: float = np.inf) -> "Deadline":
        """After so much work, or so much real time."""
        return cls(seconds, Clock(stop=monotonic() + real_s))

    @property
    def passed(self) -> bool:
        self.clock.late |= monotonic() > self.clock.stop
        return self.clock.late or self.clock.done > self.at

    @property
    def left(self) -> float:
        """Seconds of work."""
        return max(self.at - self.clock.done, 0.0)

    def spend(self, seconds: float) -> None:
        self.clock.done += seconds

    def part(self, share: float) -> "Deadline":
        """After a share of what is left."""
        return Deadline(self.clock.done + share * self.left, self.clock)

    def within(self, seconds: float) -> "Deadline":
        """After so much work more, not later than this."""
        return Deadline(min(self.at, self.clock.done + seconds), self.clock)

    def later(self, seconds: float) -> "Deadline":
        """So much work behind this, or behind now where that is later."""
        return Deadline(max(self.at, self.clock.done) + seconds, self.clock)
