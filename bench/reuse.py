"""First products saved by reuse: how many of a stream's lookups still compute G1[i1] G2[i2].

Counted by the unit's cycle model with the `smartssd` preset, D = 64, rank 4; for the first batches of each
stream the RTL's own counters stand beside it and must agree. Lookups as they come are bags of eight; those that are
sorted inside a batch are single rows, whose vectors `Order.restore` puts back. Numberings of rows that are learned from
a log (frequency, communities) are learned on its first half; all counts are of the second half.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.data import held
from bench.framework import Row, at_least, bench, figure
from bench.tt import bags
from gen.base.tools import data_path
from gen.data import reorder
from gen.data.shapes import row_modes
from gen.rtl.config import load
from gen.rtl.session import run
from golden import tt

BATCH = 4096
BAG = 8
COLUMNS, RANK = (4, 4, 4), 4
ZIPF_ROWS, ZIPF_LOOKUPS, ZIPF_EXPONENT = 1_000_000, 400_000, 1.05
TARGET = 1.75
HOT_RATIOS = {"communities": 0.01, "communities.hot10": 0.1}    # EL-Rec's Hot_ratio: rows that stay by frequency
LOGS = (("anime_420k", "anime"), ("msweb", "vroot"), ("openbandit_60k", "item"))


def modelled(config: Any, indices: np.ndarray, modes: tuple[int, ...], bag: int, rank: int = RANK) -> Any:
    """What the unit's cycle model says of these lookups in bags of so many rows."""
    layout = tt.plan(modes, COLUMNS, (1, rank, rank, 1), grid_log2=config.grid_log2)
    return tt.cycles([layout], np.zeros(indices.size, np.int64), indices, offsets=bags(indices.size, bag),
                     **config.timing)


def computed(config: Any, indices: np.ndarray, modes: tuple[int, ...], bag: int) -> int:
    """First products that the unit computes for these lookups, by its cycle model."""
    return modelled(config, indices, modes, bag).computed


def in_rtl(config: Any, indices: np.ndarray, modes: tuple[int, ...], bag: int) -> float:
    """Lookups over first products by the RTL's counters, which are compared with the model's."""
    random = np.random.default_rng(3)
    ranks = (1, RANK, RANK, 1)
    cores = [random.standard_normal((ranks[k], modes[k], COLUMNS[k], ranks[k + 1])).astype(np.float32)
             for k in range(3)]
    counters = run(config, [cores], np.zeros(indices.size, np.int64), indices, bags(indices.size, bag)).counters
    wanted = computed(config, indices, modes, bag)
    assert (counters["computed"], counters["reused"]) == (wanted, indices.size - wanted), (counters, wanted)
    return indices.size / counters["computed"]


def zipf(rows: int, lookups: int, exponent: float, seed: int) -> np.ndarray:
    """Lookups whose rows' popularity falls as rank**-exponent, the ranks scattered over the table."""
    rng = np.random.default_rng(seed)
    weight = np.arange(1, rows + 1) ** -exponent
    return rng.permutation(rows)[rng.choice(rows, size=lookups, p=weight / weight.sum())]


def streams() -> Iterator[tuple[str, str, np.ndarray, int]]:
    """(id, what, indices, rows) of the streams; logs that are not there are left out."""
    yield ("zipf", f"Zipf {ZIPF_EXPONENT}, {ZIPF_ROWS:,} rows",
           zipf(ZIPF_ROWS, ZIPF_LOOKUPS, ZIPF_EXPONENT, seed=11), ZIPF_ROWS)
    log = held("movielens")
    yield "real", "MovieLens-100K items", log.table("item_id"), log.rows["item_id"]
    for file, table in LOGS:
        if path := data_path(f"{file}.npz"):
            log = held(path)
            yield f"real.{file}", f"{file}, table {table}", log.table(table), log.rows[table]


def numberings(known: np.ndarray, rows: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """(id, what, new row of each old row), learned from the lookups `known`."""
    yield "frequency", "rows by frequency", reorder.by_frequency(known, rows)
    for name, ratio in HOT_RATIOS.items():
        hot = max(1, int(rows * ratio))
        yield (name, f"hot {ratio:.0%} by frequency, the rest by communities",
               reorder.by_community(known, rows, batch=BATCH, hot_rows=hot))


@bench("reuse")
def rows() -> Iterator[Row]:
    """First products saved by reuse on Zipf and real lookups: as they come, sorted, and renumbered."""
    config = load("smartssd").cores["tt"]

    def in_batches(stream: np.ndarray) -> np.ndarray:
        return reorder.sorted_batches(stream, batch=BATCH).apply(stream)

    for name, what, indices, table_rows in streams():
        modes = row_modes(table_rows)
        known, new = indices[: indices.size // 2], indices[indices.size // 2:]

        def saved(stream: np.ndarray, bag: int, modes: tuple[int, ...] = modes) -> float:
            return stream.size / computed(config, stream, modes, bag)

        yield figure(f"tt.reuse.{name}.unsorted", f"{what}: lookups a first product, as they come in bags of {BAG}",
                     saved(new, BAG), "times")
        yield figure(f"tt.reuse.{name}.unsorted.single", f"{what}: the same as single rows", saved(new, 1), "times")
        yield at_least(f"tt.reuse.{name}", f"{what}: single rows, sorted in batches of {BATCH:,}",
                       saved(in_batches(new), 1), "times", TARGET)
        some = new[: 2 * BATCH]
        yield figure(f"tt.reuse.{name}.rtl.unsorted", f"{what}: {some.size:,} as they come, RTL counters",
                     in_rtl(config, some, modes, BAG), "times")
        yield at_least(f"tt.reuse.{name}.rtl", f"{what}: {some.size:,} sorted, RTL counters",
                       in_rtl(config, in_batches(some), modes, 1), "times", TARGET)
        timed = new[: 4 * BATCH]
        as_it_comes, ordered = (modelled(config, stream, modes, 1, rank=16).last_at.max()
                                for stream in (timed, in_batches(timed)))
        yield figure(f"tt.reuse.{name}.cycles.d64r16",
                     f"{what}: cycles saved by sorting at D = 64, rank 16, single rows", as_it_comes / ordered, "times")
        for how, label, bijection in numberings(known, table_rows):
            yield figure(f"tt.reuse.{name}.{how}.unsorted", f"{what}: {label}, as they come in bags of {BAG}",
                         saved(bijection[new], BAG), "times")
            yield figure(f"tt.reuse.{name}.{how}", f"{what}: {label}, single rows sorted in batches",
                         saved(in_batches(bijection[new]), 1), "times")
            yield figure(f"tt.reuse.{name}.{how}.rtl.unsorted",
                         f"{what}: {label}, {some.size:,} as they come, RTL counters",
                         in_rtl(config, bijection[some], modes, BAG), "times")
