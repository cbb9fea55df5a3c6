"""First products saved by reuse: how many of a stream's lookups still compute G1[i1] G2[i2].

Counted by the golden model for the reuse buffer of the `smartssd` preset. Numberings of rows that are learned
from a log (frequency, communities) are learned on its first half; all counts are of the second half.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.framework import Row, at_least, bench, figure
from gen import reorder
from gen.shapes import row_modes
from gen.trace import movielens, read
from golden.tt.reuse import first_products, leading_keys

BATCH = 4096
ENTRIES = 16
LANES = 2
ZIPF_ROWS, ZIPF_LOOKUPS, ZIPF_EXPONENT = 1_000_000, 400_000, 1.05
TARGET = 1.75
LOGS = (("anime_420k", "anime"), ("msweb", "vroot"), ("openbandit_60k", "item"))


def saved(indices: np.ndarray, modes: tuple[int, ...], *, batch: int = 0) -> float:
    """Lookups over first products computed; with `batch`, after sorting inside batches of that many."""
    keys = leading_keys(indices, modes)
    if batch:
        keys = reorder.sorted_batches(indices, batch=batch, lanes=LANES).apply(keys)
    return keys.size / first_products(keys, entries=ENTRIES, lanes=LANES)


def zipf(rows: int, lookups: int, exponent: float, seed: int) -> np.ndarray:
    """Lookups whose rows' popularity falls as rank**-exponent, the ranks scattered over the table."""
    rng = np.random.default_rng(seed)
    weight = np.arange(1, rows + 1) ** -exponent
    return rng.permutation(rows)[rng.choice(rows, size=lookups, p=weight / weight.sum())]


def streams() -> Iterator[tuple[str, str, np.ndarray, int]]:
    """(id, what, indices, rows) of the streams; logs that are not there are left out."""
    yield ("zipf", f"Zipf {ZIPF_EXPONENT}, {ZIPF_ROWS:,} rows",
           zipf(ZIPF_ROWS, ZIPF_LOOKUPS, ZIPF_EXPONENT, seed=11), ZIPF_ROWS)
    log = movielens()
    yield "real", "MovieLens-100K items", log.table("item_id"), log.rows["item_id"]
    folder = Path(os.environ.get("HOTRAIL_DATA", ""))
    for file, table in LOGS:
        if os.environ.get("HOTRAIL_DATA") and (folder / f"{file}.npz").exists():
            log = read(folder / f"{file}.npz")
            yield f"real.{file}", f"{file}, table {table}", log.table(table), log.rows[table]


@bench("reuse")
def rows() -> Iterator[Row]:
    """First products saved by reuse on Zipf and real lookups: as they come, sorted, and renumbered."""
    for name, what, indices, table_rows in streams():
        modes = row_modes(table_rows)
        known, new = indices[: indices.size // 2], indices[indices.size // 2:]
        hot = max(1, table_rows // 100)
        numberings = {
            "frequency": reorder.by_frequency(known, table_rows),
            "communities": reorder.by_community(known, table_rows, batch=BATCH, hot_rows=hot),
        }
        yield figure(f"tt.reuse.{name}.unsorted", f"{what}: lookups a first product, as they come",
                     saved(new, modes), "times")
        yield at_least(f"tt.reuse.{name}", f"{what}: sorted in batches of {BATCH:,}",
                       saved(new, modes, batch=BATCH), "times", TARGET)
        for how, bijection in numberings.items():
            yield figure(f"tt.reuse.{name}.{how}.unsorted", f"{what}: rows by {how}, as they come",
                         saved(bijection[new], modes), "times")
            yield figure(f"tt.reuse.{name}.{how}", f"{what}: rows by {how}, sorted in batches",
                         saved(bijection[new], modes, batch=BATCH), "times")
