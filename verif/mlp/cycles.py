"""The MLP core's sequencer as its cycle model, its twin's C++, has it: when each slot of each tile goes.

`Sequencer` shows what the registers show in the present cycle; `step` is the clock edge that ends it. Which tiles and
slots there are, in their order, is golden.mlp.order's to say.
"""

import ctypes
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from gen.compiler.twin_mlp import JOB
from golden.mlp.order import Shape, Tile, tiles
from hw.isa import MLP
from verif.bench.cycle_model import address, load

__all__ = ["STALLS", "Sequencer"]

STALLS = ("rows", "weights", "in_flight", "write", "program")
LAYER, INTERACT = (MLP.instruction(name).opcode for name in ("LAYER", "INTERACT"))


class Sequencer:
    """One instruction arrives, one is prepared, one is cut into tiles; three tiles wait or are under way.

    ready: an instruction is taken in this cycle; slot: (tile, number of its slot) that goes to the units, or None;
    tile: it with its last slot; reserve, done: pulses; number: of the instruction under way, -1: there was none;
    stall: the name of what the array waited for, or ""; idle
    """

    def __init__(self, shape: Shape):
        self._library = load(Path(__file__).with_suffix(".cpp"))
        self._library.sequencer_new.restype = ctypes.c_void_p
        self.shape, self._shown = shape, np.zeros(8, np.int64)
        sizes = np.array([shape.units, shape.rows, shape.width, shape.words], np.int64)
        self._sequencer = ctypes.c_void_p(self._library.sequencer_new(address(sizes)))
        self._items: deque[Mapping[str, int]] = deque()
        self._order = self._slots()
        self._show()

    def __del__(self) -> None:
        self._library.sequencer_delete(self._sequencer)

    def _slots(self) -> Iterator[tuple[Tile, int]]:
        """Of all instructions that are taken, in their order."""
        while True:
            for tile in tiles(self.shape, self._items.popleft()):
                yield from ((tile, number) for number in range(tile.slots))

    def _show(self) -> None:
        self._library.sequencer_shows(self._sequencer, address(self._shown))
        ready, idle, slot, ends, reserve, done, stall, self.number = self._shown.tolist()
        self.ready, self.idle, self.reserve, self.done = (bool(flag) for flag in (ready, idle, reserve, done))
        self.slot = next(self._order) if slot else None
        self.tile = self.slot[0] if self.slot is not None and ends else None
        self.stall = ("", *STALLS, "")[stall]

    def step(self, *, item: Mapping[str, int] | None = None, rows_done: int = 0, weights_done: int = 0,
             written: bool = False, room: bool = True) -> None:
        """item: the instruction that stands at the input; taken if `ready`."""
        job = None
        if item is not None and self.ready:
            self._items.append(item)
            fields = {**item, "opcode": INTERACT if item["interact"] else LAYER, "source": item["number"]}
            job = np.array([fields.get(name, 0) for name in JOB], np.int64)
        self._library.sequencer_step(self._sequencer, None if job is None else address(job),
                                     ctypes.c_int64(rows_done), ctypes.c_int64(weights_done), written, room)
        self._show()
