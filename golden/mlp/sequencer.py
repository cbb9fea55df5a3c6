"""The MLP core's sequencer, cycle by cycle: when each slot of each tile goes, and what it waits for.

`step` is the clock edge that ends a cycle; attributes show what the registers show in the present one.
"""

from collections.abc import Iterator
from typing import Any

from golden.mlp.order import Item, Shape, Tile, tiles
from hw.isa.mlp import TARGET

__all__ = ["STALLS", "Sequencer"]

STALLS = ("rows", "weights", "in_flight", "write", "program")
PREPARE = 2     # cycles from an instruction's arrival to its being ready


class Sequencer:
    """One instruction arrives, one is prepared, one is cut into tiles; three tiles wait or are under way.

    ready: an instruction is taken in this cycle; slot: (tile, number of its slot) that goes to the units, or None;
    tile: it with its last slot; reserve, done: pulses; number: of the instruction under way; stall: the name of what
    the array waited for, or ""; idle
    """

    def __init__(self, shape: Shape):
        self.shape = shape
        # What is shown.
        self.slot: tuple[Tile, int] | None = None
        self.tile: Tile | None = None
        self.reserve = self.done = False
        self.number: int | None = None
        self.stall = ""
        # The instruction that arrived, and cycles until it is ready.
        self.next: Item | None = None
        self.wait = 0
        # The one that is cut into tiles: its tiles, the one at hand, whether its first one has not begun.
        self.item: Item | None = None
        self.rest: Iterator[Tile] = iter(())
        self.at_hand: Tile | None = None
        self.settled = self.waiting = False
        self.rows_there = self.weights_there = False
        # Tiles on their way, each with the least distance to the one before.
        self.first: Tile | None = None
        self.second: tuple[Tile, int] | None = None
        self.now: Tile | None = None
        self.pads = self.at = self.before = 0
        self.under_way = 0

    @property
    def ready(self) -> bool:
        return self.next is None

    @property
    def idle(self) -> bool:
        return (self.next is None and self.at_hand is None and not self.waiting and self.first is None
                and self.second is None and self.now is None and not self.under_way)

    def _held_by(self, room: bool) -> str:
        """What the tile at the front waits for before its first slot."""
        now = self.now
        if now is None:
            return "program"
        if self.at or self.pads:
            return "pads" if self.pads else ""
        if now.new and not self.rows_there:
            return "rows"
        if now.new and not self.weights_there:
            return "weights"
        if now.lagged and self.under_way > now.item["max_in_flight"]:
            return "in_flight"
        return "write" if self._writes(now) and not room else ""

    @staticmethod
    def _writes(tile: Tile) -> bool:
        return tile.fields["target"] == TARGET.MEMORY

    def step(self, *, item: Any = None, rows_done: int = 0, weights_done: int = 0, written: bool = False,
             room: bool = True) -> None:
        """item: the instruction that stands at the input; taken if `ready`."""
        now, idle, ready = self.now, self.idle, self.ready
        held = self._held_by(room)
        go = not held
        begin = go and self.at == 0
        end = go and now is not None and self.at == now.slots - 1
        # What goes out.
        self.slot = (now, self.at) if go and now is not None else None
        self.tile = now if end else None
        self.reserve = begin and now is not None and self._writes(now)
        self.done = end and now is not None and now.final
        self.stall = held if held in STALLS else ""
        self.under_way += begin - written

        # Tiles on their way to the front: each place is filled when it is empty, the front also as it is left.
        take = self.second is not None and (now is None or end)
        move = self.first is not None and self.second is None
        emit = self.at_hand is not None and self.settled and self.first is None
        load = (self.next is not None and not self.wait and not self.waiting
                and (self.at_hand is None or (emit and self.at_hand.final)))
        if self.item is not None:
            self.rows_there = rows_done >= self.item["wait_rows"]
            self.weights_there = weights_done >= self.item["wait_weights"]
        if now is not None:
            self.number = now.item["number"]
        if go:
            self.at += 1
        self.pads = max(0, self.pads - 1)
        if begin and now is not None and now.new:
            self.waiting = False
        if end:
            self.now, self.at = None, 0
        if take and self.second is not None:
            self.now, need = self.second
            self.second = None
            self.pads = max(0, need - self.now.slots)
        if idle:
            self.before = 0
        if move and self.first is not None:
            self.second = self.first, max(self.first.need, 2 * self.before - self.first.live)
            self.before, self.first = self.first.live, None
        self.settled = self.at_hand is not None and not emit
        if emit:
            self.first, self.at_hand = self.at_hand, next(self.rest, None)
        if load and self.next is not None:
            self.rest = tiles(self.shape, self.next)
            self.item, self.next = self.next, None
            self.at_hand, self.waiting = next(self.rest), True
        if self.next is not None and self.wait:
            self.wait -= 1
        if ready and item is not None:
            self.next, self.wait = item, PREPARE
