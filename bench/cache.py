"""Bytes that the SSD must bring against bytes that the bags ask for: coalescing and the row cache on real logs.

All rows of a table lie on the SSD, 256 bytes each; a batch is 4,096 samples and the cache holds 5 % of the rows, of the
curves 1 to 40 %. Frequencies are taken from the log's first half, which also warms every cache; all counts are of the
second half. The policies beside ours are libcachesim's, once for every lookup as it comes and once for the rows of each
batch, each once, in the order of their first lookup (which is what coalescing leaves; the curves are of this).
"""

from collections.abc import Iterator

import numpy as np

from bench import peers
from bench.data import logs as all_logs
from bench.framework import Row, at_most, bench, figure
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import SSD, CardImages, Table
from gen.data.reorder import by_frequency
from gen.rtl.config import load
from golden.emb.row_cache import RowCache

BATCH = 4096
DIM = 64
SHARE = 0.05
RING_BYTES = 4 << 20
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)      # of the rows, of the curves
TABLES = {"movielens": ("user_id", "item_id"), "anime": ("user", "anime", "genre"), "msweb": ("vroot",),
          "openbandit": ("item",)}


def logs() -> Iterator[tuple[str, str, np.ndarray, np.ndarray, int]]:
    """(id, what, indices, offsets of the samples, rows); logs that are not there are left out."""
    for name, log in all_logs():
        for table in TABLES[name]:
            indices, offsets = log.bags(table)
            yield f"{name}.{table}", f"{name}, {table}", indices, offsets, log.rows[table]


def batches(indices: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(indices, offsets) of every batch of samples."""
    cut = []
    for start in range(0, len(offsets) - 1, BATCH):
        part = offsets[start:start + BATCH + 1]
        cut.append((indices[part[0]:part[-1]], part - part[0]))
    return cut


def once(indices: np.ndarray) -> np.ndarray:
    """Each row once, in the order of its first lookup."""
    rows, first = np.unique(indices, return_index=True)
    return rows[np.argsort(first, kind="stable")]


def rows_brought(indices: list[np.ndarray], rank: np.ndarray, capacity: int) -> tuple[int, int]:
    """(different rows of all batches, those that the row cache must bring)."""
    cache = RowCache(capacity, len(rank))
    cache.warm()
    unique = brought = 0
    for part in indices:
        step = cache.prepare(rank[part])
        cache.commit(step)
        # What does not fit into the cache is brought, too, and read from the ring.
        unique, brought = unique + step.unique, brought + step.unique - step.hits
    return unique, brought


def pages_brought(cut: list[tuple[np.ndarray, np.ndarray]], rank: np.ndarray, capacity: int) -> int:
    """Bytes of the 4 KB pages that the compiled programs ask for."""
    rows = np.zeros((len(rank), DIM), np.float32)
    images = CardImages([Table.place("log", rows, SSD, rank=rank)], load("smartssd").cores["emb"],
                    cache_rows={"log": capacity})
    compiler = Compiler(images, ring_beats=RING_BYTES // (4 * images.words))
    brought = 0
    for indices, offsets in cut:
        program = compiler.compile([Bags("log", indices, offsets)])
        compiler.commit(program)
        brought += program.brought
    return brought


@bench("cache")
def rows() -> Iterator[Row]:
    """Bytes fetched from the SSD over bytes asked for: coalescing, the row cache, and other caches over their size."""
    for name, what, indices, offsets, count in logs():
        half = (len(offsets) - 1) // 2
        first, second = indices[:offsets[half]], indices[offsets[half]:]
        cut = batches(second, offsets[half:] - offsets[half])
        asked_for = [part for part, _ in cut]
        capacity = max(1, int(count * SHARE))
        rank = by_frequency(first, count)
        unique, brought = rows_brought(asked_for, rank, capacity)
        warm = np.concatenate([once(part) for part, _ in batches(first, offsets[:half + 1])])
        coalesced = np.concatenate([once(part) for part in asked_for])
        sizes = {max(1, int(count * share)): share for share in SHARES}
        by_lookup = peers.misses(first, second, [capacity])
        by_batch = peers.misses(warm, coalesced, sorted({capacity, *sizes}))
        asked = len(second)

        def share(part: float, asked: int = asked) -> float:
            return 100 * part / asked

        yield figure(f"emb.cache.{name}.coalesced", f"{what}: every row of a batch once", share(unique),
                     "% of bytes asked")
        best = min(misses for found in (by_lookup, by_batch) for (_, rows), misses in found.items() if rows == capacity)
        yield at_most(f"emb.cache.{name}", f"{what}: row cache of {capacity:,} rows", share(brought),
                      "% of bytes asked", share(best))
        for (policy, _), misses in by_lookup.items():
            yield figure(f"emb.cache.{name}.{policy.lower()}", f"{what}: {policy}, every lookup", share(misses),
                         "% of bytes asked")
            yield figure(f"emb.cache.{name}.{policy.lower()}.coalesced", f"{what}: {policy}, coalesced lookups",
                         share(by_batch[policy, capacity]), "% of bytes asked")
        yield figure(f"emb.cache.{name}.pages", f"{what}: row cache, whole pages of 4 KB",
                     share(pages_brought(cut, rank, capacity)) / (4 * DIM), "% of bytes asked")
        for size, of_rows in sizes.items():
            curve, text = f"emb.cache.curve.{name}", f"{what}: {size:,} rows cached"
            yield figure(f"{curve}.hotrail.{100 * of_rows:g}", f"{text}, by frequency",
                         share(rows_brought(asked_for, rank, size)[1]), "% of bytes asked")
            for policy in peers.POLICIES:
                if (policy, size) in by_batch:
                    yield figure(f"{curve}.{policy.lower()}.{100 * of_rows:g}", f"{text}, {policy}, coalesced lookups",
                                 share(by_batch[policy, size]), "% of bytes asked")
