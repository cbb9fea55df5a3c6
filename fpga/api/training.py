"""Trains a small DLRM in NumPy, its tables in the form in which cards hold them, on a log that is held in memory.

    training = Training(trace, payload, 64)             # payload: (samples, words) as fpga.api.dlrm takes it
    training.epoch(samples)                             # some of the log's, in this order
    print(auc(training.scores(held), labels[held]))     # gen.model.scores

Bags are pooled by sums. Rates and widths were chosen by hand on MovieLens-100K.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fpga.api.dlrm import Dlrm
from gen.compress.tiered_rows import TieredRows, summed
from gen.data.logs.trace import Trace, picked

BATCH = 256
RATE, CORE_RATE, NET_RATE = 0.02, 0.1, 0.1
SPREAD = 0.01           # of the rows at first
BOTTOM, TOP = (32,), (64, 32)


class Training:
    """tables: by name, of the trace; model: the networks around them. seed: of both. A copy (copy.deepcopy) goes on by
    itself."""

    def __init__(self, trace: Trace, payload: NDArray[np.uint32], dim: int, *, seed: int = 0):
        random = np.random.default_rng(seed)
        self._bags, self._payload = {name: trace.bags(name) for name in trace.indices}, payload
        self.tables = {name: TieredRows((SPREAD * random.standard_normal((rows, dim))).astype(np.float32), rate=RATE,
                                        core_rate=CORE_RATE) for name, rows in trace.rows.items()}
        self.model = Dlrm(payload.shape[1] - 1, len(self.tables), dim, rate=NET_RATE, bottom=BOTTOM, top=TOP, seed=seed)

    def vectors(self, samples: NDArray[np.integer]) -> NDArray[np.float32]:
        """Pooled vectors (n, tables, dim) of samples by their numbers."""
        return np.stack([self._pooled(name, samples)[0] for name in self.tables], axis=1)

    def epoch(self, samples: NDArray[np.integer], scales: Sequence[float] = (1.0, 1.0)) -> None:
        """Learns from samples in this order. scales: of all rates, at the beginning and at the end."""
        for begin in range(0, len(samples), BATCH):
            part = samples[begin:begin + BATCH]
            scale = scales[0] + (scales[1] - scales[0]) * begin / len(samples)
            pooled, looked_up, owner = zip(*(self._pooled(name, part) for name in self.tables), strict=True)
            self.model.rate = np.float32(NET_RATE * scale)
            slopes = self.model(np.stack(pooled, axis=1), self._payload[part])
            for k, table in enumerate(self.tables.values()):
                table.step(looked_up[k], slopes[owner[k], k], scale)

    def scores(self, samples: NDArray[np.integer]) -> NDArray[np.float32]:
        """Probabilities (n,) of label 1."""
        return self.model.predict(self.vectors(samples), self._payload[samples])

    def _pooled(self, name: str, samples: NDArray[np.integer]) \
            -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Vectors (n, dim) of a table, the rows that they are sums of, and whose each of these is."""
        rows, offsets = picked(*self._bags[name], samples)
        owner = np.repeat(np.arange(len(samples)), np.diff(offsets))
        found = self.tables[name][rows]
        if len(owner) == len(samples) == np.count_nonzero(np.diff(offsets)):
            return found, rows, owner
        out = np.zeros((len(samples), found.shape[1]), found.dtype)
        if len(owner):
            full, sums = summed(owner, found)
            out[full] = sums
        return out, rows, owner
