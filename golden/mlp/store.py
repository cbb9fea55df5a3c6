"""The MLP core's memories: what lies in them and what a read gives, a line at a time."""

import numpy as np


class Rows:
    """Lines of `pieces` banks of `piece` words for every unit and row.

    An array beat takes `width` words of a piece; see hw.mlp.rows.
    """

    def __init__(self, *, units: int, rows: int, pieces: int, piece: int, width: int, lines: int):
        self.rows, self.width, self.piece = rows, width, piece
        self.words = np.zeros((units, rows, pieces, lines, piece), np.uint32)

    def write(self, lanes: int, banks: int, lines: list[int], words: np.ndarray) -> None:
        """words (units, pieces * piece): in the rows whose bit (unit * rows + row) is set, the banks whose bit is."""
        units, rows, pieces, _, piece = self.words.shape
        pieces_of = np.asarray(words, np.uint32).reshape(units, pieces, piece)
        for lane in range(units * rows):
            for bank in range(pieces):
                if lanes >> lane & 1 and banks >> bank & 1:
                    unit, row = divmod(lane, rows)
                    self.words[unit, row, bank, lines[bank]] = pieces_of[unit, bank]

    def load(self, unit: int, row: int, line: int, turn: int, words: np.ndarray) -> None:
        """A beat into all banks of a row: bank k takes piece (k - turn) modulo the pieces."""
        pieces, piece = self.words.shape[2], self.words.shape[4]
        beat = np.asarray(words, np.uint32).reshape(pieces, piece)
        self.words[unit, row, :, line] = np.roll(beat, turn, axis=0)

    def read(self, lines: list[int], x_bank: int, part: int, y_banks: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """x (units, rows, width) and f (units, 2 * rows * width): the columns' features, group by group."""
        here = slice(part * self.width, (part + 1) * self.width)

        def bank(number: int) -> np.ndarray:
            return self.words[:, :, number, lines[number], here]

        f = np.stack([bank(number) for number in y_banks], axis=1)
        return bank(x_bank).copy(), f.reshape(len(self.words), -1)


class Weights:
    """Lines of `words` words for every unit."""

    def __init__(self, *, units: int, words: int, lines: int):
        self.words = np.zeros((units, lines, words), np.uint32)

    def load(self, unit: int, line: int, words: np.ndarray) -> None:
        self.words[unit, line] = words

    def read(self, line: int) -> np.ndarray:
        return self.words[:, line].copy()


class Addends:
    """Lines of `columns` words for every unit, each read at a line of its own."""

    def __init__(self, *, units: int, columns: int, lines: int):
        self.words = np.zeros((units, lines, columns), np.uint32)

    def load(self, line: int, words: np.ndarray) -> None:
        """To every unit."""
        self.words[:, line] = words

    def write(self, units: int, line: int, words: np.ndarray) -> None:
        """words (units, columns): to the units whose bit is set."""
        for unit in range(len(self.words)):
            if units >> unit & 1:
                self.words[unit, line] = words[unit]

    def read(self, lines: list[int]) -> np.ndarray:
        return self.words[np.arange(len(self.words)), lines].copy()
