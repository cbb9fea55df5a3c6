"""Vectors of consecutive bags joined into one write, cycle by cycle."""

from typing import NamedTuple


class Vector(NamedTuple):
    """out: its first beat; beats: in full; last: the instruction's last."""

    out: int
    beats: int
    last: bool


class Joined(NamedTuple):
    """Vectors behind one another; out: the first beat; beats, bags: in all; last: an instruction ends with them."""

    out: int
    beats: int
    bags: int
    last: bool


class WriteJoiner:
    """hw.emb.write_joiner.WriteJoiner; `o` is what leaves, None or a Joined."""

    def __init__(self, *, block_beats: int):
        self.block = block_beats
        self.vector: Vector | None = None
        self.held: Joined | None = None
        self.o: Joined | None = None

    def _open(self) -> bool:
        """More may be joined to what is held."""
        held = self.held
        return held is not None and not held.last and (held.out + held.beats) // self.block == held.out // self.block

    def step(self, vector: Vector | None) -> None:
        """vector: that comes in this cycle."""
        now, held = self.vector, self.held
        self.o = None
        if now is None:
            if held is not None and not self._open():
                self.o, self.held = held, None
        elif held is not None and self._open() and now.out == held.out + held.beats:
            self.held = Joined(held.out, held.beats + now.beats, held.bags + 1, now.last)
        else:
            self.o, self.held = held, Joined(now.out, now.beats, 1, now.last)
        self.vector = vector
