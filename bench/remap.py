"""How fast a host remaps: ids of Criteo Kaggle's shape to words of the EMB core, by policy."""

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, needed
from bench.framework import Row, at_least, bench
from gen.data.logs.criteo import ClickLog
from gen.data.remap import DRAM, SSD, TT, Remap, numbered
from gen.model.recommender import TableSpec

SAMPLES = 1 << 20
BATCH = 1 << 16         # samples that are remapped at once
REPEATS = 3
TARGET = 100.0
HOT, WARM = 10, 3       # a tenth of the rows in DRAM, to a third in tensor trains
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@bench("remap")
def rows() -> Iterator[Row]:
    """Indices remapped per second, 26 tables and 33.8 M rows of Criteo Kaggle's shape, for each policy of ids."""
    log = ClickLog(needed(CALIBRATION), seed=7)
    rows_of = np.concatenate(list(log.blocks(SAMPLES)))
    for name, policy, about in (
            ("index", "index", "ids are rows"), ("modulo", "modulo", "hashes of 32 bits, their remainder"),
            ("vocabulary32", "vocabulary", "hashes of 32 bits that a profile has counted"),
            ("vocabulary64", "vocabulary", "hashes of 64 bits that a profile has counted")):
        tables: dict[str, Remap] = {}
        ids: dict[str, NDArray[np.uint64]] = {}
        for number, table in enumerate(log.tables):
            key = rows_of[:, number].astype(np.uint64)
            if name != "index":
                key = key * MULTIPLIER >> np.uint64(0 if name.endswith("64") else 32)
            known = np.unique(key) if policy == "vocabulary" else None
            tables[table.name] = Remap(TableSpec(table.name, table.rows, 64, policy), _words(log, number), known)
            ids[table.name] = key
        yield at_least(f"remap.{name}", f"{about}: indices per second, one core", _rate(tables, ids), "M/s", TARGET)


def _words(log: ClickLog, number: int) -> NDArray[np.uint32]:
    """Rows by their heat: the hottest in DRAM, the next in a tensor train, the others on the SSD."""
    count = log.tables[number].rows
    order = log.row(number, np.arange(count))
    device = np.full(count, SSD, np.uint8)
    device[order[:count // WARM]] = TT
    device[order[:count // HOT]] = DRAM
    return numbered(device, order)


def _rate(tables: dict[str, Remap], ids: dict[str, NDArray[np.uint64]]) -> float:
    """Million indices a second of a core's time, of the fastest round, batch after batch."""
    best = np.inf
    for _ in range(REPEATS):
        start = time.thread_time()
        for at in range(0, SAMPLES, BATCH):
            for name, keys in ids.items():
                tables[name](keys[at:at + BATCH])
        best = min(best, time.thread_time() - start)
    return SAMPLES * len(tables) / best / 1e6
