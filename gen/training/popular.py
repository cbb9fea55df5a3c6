"""Frequently accessed rows as the Hotline core's logger finds them, and the samples that need no others.

The logger is the core's golden model, compiled: what the card would dispatch, a host without one does as well.

Source: Hotline §5, 6.2
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from golden.hotline import bank
from golden.hotline.logger import Logger

#: A table, rows of it that samples look up, one sample after the other, and how many of them each looks up.
Bags = Sequence[tuple[str, NDArray[np.int64], NDArray[np.int64]]]
BANKS, INSERT_LOG2 = 64, 5


class Popular:
    """Popular rows of some tables.

    Parameters  rows: of each table. at_most: of these, how many may be popular; a table of which all may be is popular
                as a whole and does not pass the logger
    Raises      ValueError: at_most is below 0, or none of a table's
    """

    def __init__(self, rows: Mapping[str, int], at_most: Mapping[str, int]):
        for name in rows:
            if at_most.get(name, -1) < 0:
                raise ValueError(f"table {name}: popular rows {at_most.get(name)} must be 0 or more")
        self.rows, self.at_most = dict(rows), dict(at_most)
        self._popular = {name: np.full(count, at_most[name] >= count) for name, count in rows.items()}
        # The first number of each table whose rows are logged.
        self._first: dict[str, int] = {}
        numbers = 0
        for name, count in rows.items():
            if 0 < at_most[name] < count:
                self._first[name] = numbers
                numbers += count
        entries = sum(at_most[name] for name in self._first)
        sets = max(BANKS, 1 << max(0, (entries // bank.WAYS).bit_length() - 1))
        while sets << bank.ID_BITS < numbers:
            sets *= 2
        self._logger = Logger(BANKS, sets // BANKS, INSERT_LOG2)

    def learn(self, bags: Bags) -> None:
        """Forgets what is popular and learns it from samples, in their order.

        Raises      IndexError: an index that is no row
        """
        numbers, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for name, indices, lengths in bags:
            if name in self._first:
                numbers.append(self._first[name] + self._checked(name, indices))
                owners.append(np.repeat(np.arange(len(lengths)), lengths))
        order = np.argsort(np.concatenate(owners), kind="stable")
        self._logger.clear()
        self._logger.access(np.concatenate(numbers)[order], True)
        held, stale = self._logger.rows(), self._logger.stale()
        for name, first in self._first.items():
            mine = (held >= first) & (held < first + self.rows[name])
            order = np.lexsort((held[mine], stale[mine]))[:self.at_most[name]]
            self._popular[name][:] = False
            self._popular[name][held[mine][order] - first] = True

    def of(self, table: str) -> NDArray[np.int64]:
        """The popular rows of a table, ascending."""
        return np.flatnonzero(self._popular[table])

    def samples(self, bags: Bags) -> NDArray[np.bool_]:
        """(samples,) whether all rows of a sample are popular.

        Raises      IndexError: an index that is no row
        """
        popular = np.ones(len(bags[0][2]), bool)
        for name, indices, lengths in bags:
            owner = np.repeat(np.arange(len(lengths)), lengths)
            popular[owner[~self._popular[name][self._checked(name, indices)]]] = False
        return popular

    def _checked(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        wrong = (indices < 0) | (indices >= self.rows[name])
        if wrong.any():
            raise IndexError(f"table {name}: index {indices[wrong][0]} is none of its {self.rows[name]} rows")
        return indices
