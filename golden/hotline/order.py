"""Which samples make which mini-batch, and in which order the two classes come where nothing waits.

Popular samples, in order, fill mini-batches of `batch`, and so do the others, which are cut further where their rows
would not fit the embedding buffer: before each sample `room` rows must be free. Source: Hotline thesis, 6.4, 6.5
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Portion:
    """A mini-batch: the numbers of its samples, and the different cold rows (keys) by first appearance, with `ordinals`
    one for each cold index in order (sample, position). ends: the sample that fills its frame, -1: none does."""

    samples: Numbers
    keys: Numbers
    ordinals: Numbers
    ends: int


def dispatch(cold: NDArray[np.bool_], keys: Numbers, batch: int, *, slots: int, room: int
         ) -> tuple[list[Portion], list[Portion]]:
    """The popular mini-batches and the gathered ones, each in order.

    cold: (samples, indices); keys: of the same shape, what tells cold rows apart; slots: rows of the embedding buffer;
    room: rows that must be free before a sample, its indices.
    """
    is_cold = cold.any(axis=1)
    none = np.zeros(0, np.int64)
    popular = [Portion(part, none, none, ends) for part, ends in _frames(np.flatnonzero(~is_cold), batch)]
    gathered = []
    for part, ends in _frames(np.flatnonzero(is_cold), batch):
        start = 0
        ordinals: dict[int, int] = {}
        found: list[int] = []
        for at, sample in enumerate(part.tolist()):
            if slots - len(ordinals) < room and at > start:
                gathered.append(_portion(part[start:at], ordinals, found, ends))
                start, ordinals, found = at, {}, []
            for key in keys[sample, cold[sample]].tolist():
                found.append(ordinals.setdefault(key, len(ordinals)))
        gathered.append(_portion(part[start:], ordinals, found, ends))
    return popular, gathered


def _frames(samples: Numbers, batch: int) -> list[tuple[Numbers, int]]:
    parts = [samples[at:at + batch] for at in range(0, len(samples), batch)]
    return [(part, int(part[-1]) if len(part) == batch else -1) for part in parts]


def _portion(samples: Numbers, ordinals: dict[int, int], found: list[int], ends: int) -> Portion:
    return Portion(samples, np.array(list(ordinals), np.int64), np.array(found, np.int64), ends)


def merge(popular: list[Portion], gathered: list[Portion]) -> list[int]:
    """Kinds (0 popular, 1 gathered) in the order in which frames fill; those that no sample fills come last."""
    late = 1 << 62
    ends = [(portion.ends if portion.ends >= 0 else late, kind)
            for kind, portions in enumerate((popular, gathered)) for portion in portions]
    return [kind for _, kind in sorted(ends)]
