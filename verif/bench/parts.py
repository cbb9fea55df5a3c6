"""Parts of the cycle model that all cores' twins share, each by itself: what the benches of the units are held against.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends it.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from verif.bench.cycle_model import Part

_SOURCE = Path(__file__).with_suffix(".cpp")


class Requester(Part):
    """hw.axi.requester.request_beats. request: that stands there; asking: as there."""

    source, name = _SOURCE, "requester"
    shows = ("asks", "address", "beats", "asking")

    def step(self, run: tuple[int, int, int, int] | None = None, *, taken: bool, hold: bool = False) -> None:
        """run: (address, span, less_one, stride) that begins; taken: the request leaves."""
        self._call("step", None if run is None else np.array(run, np.uint64), taken, hold)


class SkidBuffer(Part):
    """hw.stream.skid_buffer.SkidBuffer. o: what stands at the output, None for nothing; ready: as there."""

    source, name = _SOURCE, "skid_buffer"
    shows = ("there", "item", "ready")

    def __init__(self) -> None:
        self._items: list[Any] = []
        super().__init__()

    @property
    def o(self) -> Any:
        return self._items[self.item] if self.there else None

    def step(self, offered: Any, taken: bool) -> None:
        """offered: taken if `ready`, None for nothing; taken: `o` leaves."""
        self._items.append(offered)
        self._call("step", offered is not None, ctypes.c_int64(len(self._items) - 1), taken)
