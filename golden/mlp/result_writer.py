"""The MLP core's way to memory, cycle by cycle: results are staged and leave as whole beats.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Addresses and lengths are in beats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golden.fp import fp32
from golden.stream.fifo import Fifo

__all__ = ["ResultWriter", "Row", "Sigmoid"]


@dataclass
class Row:
    """A row of results of all units; the fields are those of a tile. words: (units, columns) bit patterns, or None if
    only the time matters."""

    row: int
    last: bool
    out: int
    stride: int
    count: int      # lanes that exist; in latency mode what it holds is not looked at
    words: Sequence[Sequence[int]] | None = None
    half: int = 0
    fills: bool = True
    sigmoid: bool = False
    latency: bool = False
    unit: int = 0
    outs: int = 1
    columns: int = 1
    idle_units: int = 0


class Sigmoid:
    """Words in one order through five stages of nine cycles."""

    INTERVAL, STAGES = 9, 5

    def __init__(self) -> None:
        self.held: Any = None
        self.stages: list[Any] = [None] * self.STAGES
        self.phase = 0
        self.o: Any = None
        self.busy = False

    @property
    def ready(self) -> bool:
        return self.held is None

    @property
    def _inside(self) -> bool:
        return any(stage is not None for stage in self.stages)

    def step(self, word: Any = None, taken: bool = False) -> None:
        """word: taken in this cycle; taken: o is."""
        self.busy = word is not None or self.held is not None or self.o is not None or self._inside
        blocked = self.stages[-1] is not None and self.o is not None and not taken
        turn = (self.phase == self.INTERVAL - 1 and not blocked) or not self._inside
        if taken:
            self.o = None
        if turn:
            if self.stages[-1] is not None:
                self.o = self.stages[-1]
            self.stages = [self.held, *self.stages[:-1]]
            self.held, self.phase = None, 0
        elif self.phase != self.INTERVAL - 1:
            self.phase += 1
        if word is not None:
            self.held = word


@dataclass
class _Tile:
    rows: list[Any]         # [half][row]: Row, or [0][row] in latency mode
    count: int              # samples
    address: int
    wait: int               # cycles that its address takes
    run: bool
    left: int               # beats
    each: int               # beats of a sample
    at: int = 0

    @property
    def first(self) -> Row:
        return self.rows[-1][0]


class ResultWriter:
    """Stages tiles, asks for writes and hands out beats: `request` (address, beats), `data` the words of a beat.

    Parameters  units, rows, columns: of the core; halves: column groups of a beat; staged_tiles, output_beats: as in
                the core's sizes
    """

    REQUESTS = 16

    def __init__(self, *, units: int, rows: int, columns: int, groups_per_beat: int, staged_tiles: int,
                 output_beats: int):
        self.units, self.rows, self.columns, self.groups_per_beat = units, rows, columns, groups_per_beat
        self.groups = max(2, staged_tiles // groups_per_beat)
        self.runs = units * rows <= output_beats
        self.tiles, self.requests = Fifo(self.groups), Fifo(self.REQUESTS)
        self.open: list[list[Row]] = [[]]
        self.closing: _Tile | None = None
        self.next: _Tile | None = None
        self.tile: _Tile | None = None
        self.beat: tuple[_Tile, int] | None = None      # a tile and which of its beats
        self.at = 0                                     # its next word for the sigmoid
        self.steady = False                             # it was there in the cycle before
        self.sigmoid = Sigmoid()
        self.gathered: list[int] = []
        self.data: Any = None
        self.places = self.groups
        self.room, self.idle = True, False
        self.coming = 0                                 # tiles reserved and not in
        self.alone = True                               # none, or places are few: a tile waits for no other
        self.second = False                             # the tile before was the first of a pair
        self._freed = self._shared = False

    @property
    def request(self) -> Any:
        return self.requests.o

    def _close(self) -> _Tile:
        last = self.open[-1][-1]
        rows, self.open = self.open, [[]]
        count = last.row + 1 if last.latency else last.count
        each = last.outs if last.latency else 1
        return _Tile(rows, count, last.out, last.unit if last.latency else 0, self.runs and last.stride == each,
                     count * each, each)

    def _of(self, tile: _Tile, at: int) -> tuple[int, list[int] | None]:
        """Words that count of a tile's beat, and all of them."""
        first = tile.first
        sample, part = divmod(at, tile.each)
        ends = part == tile.each - 1
        top = self.groups_per_beat - 1
        if ends:
            top = (self.units - 1 - first.idle_units) % self.groups_per_beat if first.latency else first.half
        counts = top * self.columns + (first.columns if ends else self.columns)
        if first.words is None:
            return counts, None
        words: list[int] = []
        for half in range(self.groups_per_beat):
            if half > top:
                words += [0] * self.columns
            elif first.latency:
                words += tile.rows[0][sample].words[part * self.groups_per_beat + half]
            else:
                words += tile.rows[half][sample % self.rows].words[sample // self.rows]
        return counts, words

    def step(self, row: Row | None = None, reserve: bool = False, *, request_taken: bool = False,
             data_taken: bool = False) -> None:
        """row: that comes in; reserve: a further tile will; request_taken, data_taken: request and data are taken."""
        # The beat under way: to the port, or a word to the sigmoid.
        free = self.data is None or data_taken
        word, take, move = None, False, False
        if self.beat is not None:
            tile, at = self.beat
            counts, words = self._of(tile, at)
            if not tile.first.sigmoid:
                take = move = free and not self.sigmoid.busy
            elif self.sigmoid.ready and self.steady:
                last = self.at == counts - 1
                word = (None if words is None else words[self.at]), self.at, last
                self.at = 0 if last else self.at + 1
                move = last
        result = self.sigmoid.o if free else None
        inside = (row is not None or self.open != [[]] or self.closing is not None or self.tiles.inside
                  or self.tiles.o is not None or self.next is not None or self.tile is not None
                  or self.beat is not None or self.sigmoid.busy or self.data is not None or self.requests.inside
                  or self.requests.o is not None)
        self.idle = not inside
        freed = move and self._final(self.beat)

        # The tile under way.
        tile_now, following = self.tile, self.next
        go, push, final = False, None, False
        if tile_now is not None and (self.beat is None or move):
            begins = tile_now.at == 0 if tile_now.run else tile_now.at % tile_now.each == 0
            go = self.requests.ready or not begins
            final = tile_now.left == 1
            if go and begins:
                sample = tile_now.address + tile_now.at // tile_now.each * tile_now.first.stride
                push = sample, (tile_now.left if tile_now.run else tile_now.each)
        goes = self.second or self.tiles.o is not None or self.alone
        load = following is not None and following.wait == 0 and goes and (tile_now is None or (go and final))

        self.sigmoid.step(word, result is not None)
        if data_taken:
            self.data = None
        if take and self.beat is not None:
            words = self._of(*self.beat)[1]
            self.data = True if words is None else words
        elif result is not None:
            pattern, index, last = result
            if index == 0:
                self.gathered = [0] * (self.groups_per_beat * self.columns)
            if pattern is not None:
                self.gathered[index] = int(fp32.bits(fp32.sigmoid(np.uint32(pattern))))
            if last:
                self.data = True if pattern is None else self.gathered
        self.steady = self.beat is not None and not move
        if self.beat is None or move:
            self.beat = (tile_now, tile_now.at) if go and tile_now is not None else None
        if go and tile_now is not None:
            tile_now.at += 1
            tile_now.left -= 1
            if final:
                self.tile = None
        self.requests.step(push, request_taken)
        if load:
            self.tile, self.second = following, not self.second and self.tiles.o is not None
        taken = None
        if following is None or load:
            taken = self.tiles.o
            self.next = taken
        elif following.wait:
            following.wait -= 1
            following.address += following.first.stride * self.rows
        self.tiles.step(self.closing, taken is not None)

        # Rows come in.
        self.closing = None
        shares = False
        if row is not None:
            self.open[-1].append(row)
            if row.last:
                shares = row.half != 0 and not row.latency
                if row.fills or row.latency:
                    self.closing = self._close()
                else:
                    self.open.append([])

        # Places for tiles.
        self.places += self._freed + self._shared - reserve
        self._freed, self._shared = freed, shares
        self.room = self.places > 0
        self.coming += reserve - (row is not None and row.last)
        self.alone = not self.coming or self.places < self.groups // 2

    def _final(self, beat: Any) -> bool:
        return beat is not None and beat[1] == beat[0].count * beat[0].each - 1

