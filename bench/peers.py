"""libcachesim's caches, which stand beside ours: fully associative, a row an object of size 1, none pinned."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.base.tools import build_folder

POLICIES = ("LRU", "LFU", "S3FIFO", "Sieve", "WTinyLFU")
LEAST = {"S3FIFO": 20, "WTinyLFU": 100}     # rows, below which a part of the cache has no room and every access misses
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])   # oracleGeneral
CHUNK = 1 << 20


@contextmanager
def written(rows: NDArray[np.int64]) -> Iterator[Path]:
    """A file of these accesses, as libcachesim reads them."""
    build_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=build_folder()) as folder:
        path = Path(folder) / "accesses"
        with open(path, "wb") as file:
            for start in range(0, len(rows), CHUNK):
                part = np.zeros(len(rows[start:start + CHUNK]), RECORD)
                part["id"], part["size"], part["next"] = rows[start:start + CHUNK], 1, -1
                file.write(part.tobytes())
        yield path


def filled(policy: str, capacity: int, path: Path) -> Any:
    """A cache of `capacity` rows through which the accesses of a file have passed."""
    import libcachesim

    cache: Any = getattr(libcachesim, policy)(cache_size=capacity, hashpower=16)
    _pass(cache, path)
    return cache


def misses(warm: NDArray[np.int64], stream: NDArray[np.int64], capacities: Iterable[int]) -> dict[tuple[str, int], int]:
    """By (policy, capacity), the misses of `stream` after `warm` has passed; policies that are too large left out."""
    with written(warm) as before, written(stream) as counted:
        return {(policy, capacity): round(_pass(filled(policy, capacity, before), counted) * len(stream))
                for capacity in capacities for policy in POLICIES if capacity >= LEAST.get(policy, 1)}


def _pass(cache: Any, path: Path) -> float:
    """The share of the accesses that missed."""
    import libcachesim

    if not path.stat().st_size:
        return 0.0
    return cache.process_trace(libcachesim.TraceReader(
        trace=str(path), trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE))[0]
