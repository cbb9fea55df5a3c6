"""Where the rows of a table lie in DRAM: each in one piece, or cut into pieces that lie a stripe apart.

Neighbouring beats lie in different banks; a stripe of `stripe_beats` beats passes over all of them. Pieces of
`piece_beats` beats, a stripe apart, share a bank and, but at its edges, a page. stripe_beats / piece_beats rows are a
block, in which their pieces take turns:

    beat(row, j) = (row - s) * row_beats + s * piece_beats + j * stripe_beats, s = row mod (stripe_beats / piece_beats)

is where piece j of a row begins, in beats from the table's first.         Source: AMD PG150 (map ROW_COLUMN_BANK)
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stripes(NamedTuple):
    """The layout of a table; piece_beats: 0 where each row is one piece."""

    row_beats: int
    piece_beats: int
    stripe_beats: int

    @property
    def allowed(self) -> bool:
        """Whether a core with such stripes takes it."""
        piece = self.piece_beats
        return not piece or piece < self.stripe_beats and not piece & piece - 1 and not self.row_beats % piece

    @property
    def block_rows(self) -> int:
        return self.stripe_beats // self.piece_beats if self.piece_beats else 1

    def beats(self, rows: int) -> int:
        """Of so many rows: those of whole blocks."""
        return -(-rows // self.block_rows) * self.block_rows * self.row_beats

    def pieces(self, row: int) -> list[int]:
        """Where the pieces of a row begin, in beats from the table's first."""
        piece = self.piece_beats or self.row_beats
        inside = row % self.block_rows
        first = (row - inside) * self.row_beats + inside * piece
        return [first + at * self.stripe_beats for at in range(self.row_beats // piece)]

    def beats_of(self, rows: NDArray) -> NDArray:
        """(rows, row_beats) where the beats of each row lie, from the table's first, in the order of `read`."""
        piece, inside = self.piece_beats or self.row_beats, rows % self.block_rows
        first = (rows - inside) * self.row_beats + inside * piece
        j = np.arange(self.row_beats)
        return first[:, None] + j // piece * self.stripe_beats + j % piece

    def read(self, beats: NDArray, rows: NDArray) -> NDArray:
        """(rows, words of a row), of a table's (beats, words of a beat)."""
        piece, inside = self.piece_beats or self.row_beats, rows % self.block_rows
        each = self.row_beats // piece
        at = ((rows - inside) * each + inside)[:, None] + np.arange(each) * self.block_rows
        words = beats[:len(beats) // piece * piece].reshape(-1, piece * beats.shape[1]).take(at.ravel(), axis=0)
        return words.reshape(len(rows), self.row_beats * beats.shape[1])

    def write(self, beats: NDArray, rows: NDArray, values: NDArray) -> None:
        """Puts (rows, words of a row) where `read` finds them."""
        pieces = self._pieces(beats)
        pieces[rows // self.block_rows, rows % self.block_rows] = values.reshape(len(rows), *pieces.shape[2:])

    def _pieces(self, beats: NDArray) -> NDArray:
        """(blocks, rows of a block, pieces of a row, words of a piece): a view of whole blocks."""
        piece = self.piece_beats or self.row_beats
        blocks = len(beats) // (self.block_rows * self.row_beats)
        shape = blocks, self.row_beats // piece, self.block_rows, piece * beats.shape[1]
        return beats.reshape(shape).swapaxes(1, 2)
