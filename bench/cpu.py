"""What this machine's processor looks up in the same tables: NumPy's batched matmul and a dense gather.

The unit's rows/s stand beside them at 250 MHz: rows that it adds up in full bags, by the issue slots of their layout,
which `hotrail bench tt` measures in the RTL.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np

from bench.framework import Row, bench, figure
from gen.data.shapes import column_modes, row_modes
from golden.tt import cycles_per_row
from golden.tt.rows import split

ROWS = 1_000_000
DENSE_ROWS = 1 << 16  # what fits a small machine's memory at D = 512
BATCHES = (64, 512, 4096)  # lookups a call: which is fastest depends on what the caches hold
LOOKUPS = 1 << 15
SECONDS = 0.25  # each measurement goes on at least this long
HERTZ = 250e6
COLUMNS, RANKS = (16, 32, 64, 128, 256, 512), (4, 8, 16, 32)


def numpy_rows(cores: list[np.ndarray], parts: tuple[np.ndarray, ...]) -> np.ndarray:
    """Rows (N, D) of a table by batched matrix products.

    Cores are (I, R, J * R'), mode axis first, so that a slice is one contiguous gather.
    """
    chain = cores[0][parts[0]]
    for core, part in zip(cores[1:], parts[1:]):
        chain = chain.reshape(part.size, -1, core.shape[1]) @ core[part]
    return chain.reshape(parts[0].size, -1)


def rate(call: Callable[[], object], rows: int) -> float:
    """Rows a second of the fastest of several calls, the first, which warms the caches, not counted."""
    call()
    best, spent = float("inf"), 0.0
    while spent < SECONDS:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        spent += time.perf_counter() - start
    return rows / best


@bench("cpu")
def rows() -> Iterator[Row]:
    """Rows/s of CPU lookups measured on this machine beside the unit's at 250 MHz, every D and rank."""
    rng = np.random.default_rng(7)
    modes = row_modes(ROWS)
    indices = rng.integers(0, ROWS, LOOKUPS)
    parts, dense = split(indices, modes), indices % DENSE_ROWS
    cut = [[tuple(part[at:at + batch] for part in parts) for at in range(0, LOOKUPS, batch)]
           for batch in BATCHES]
    for columns in COLUMNS:
        table = rng.standard_normal((DENSE_ROWS, columns), dtype=np.float32)
        gathered = rate(lambda: table[dense], LOOKUPS)  # noqa: B023 - called at once
        yield figure(f"cpu.gather.d{columns}", f"NumPy gather from a dense table of {DENSE_ROWS:,} rows",
                     gathered / 1e6, "M rows/s")
        for rank in RANKS:
            name, j = f"d{columns}r{rank}", column_modes(columns)
            cores = [rng.standard_normal((modes[0], 1, j[0] * rank), dtype=np.float32),
                     rng.standard_normal((modes[1], rank, j[1] * rank), dtype=np.float32),
                     rng.standard_normal((modes[2], rank, j[2]), dtype=np.float32)]
            cpu = max(rate(lambda: [numpy_rows(cores, part) for part in batches], LOOKUPS)  # noqa: B023
                      for batches in cut)
            unit = HERTZ / cycles_per_row(j, rank)
            yield figure(f"cpu.numpy_tt.{name}", f"NumPy batched matmul, D={columns} R={rank}", cpu / 1e6,
                         "M rows/s")
            yield figure(f"cpu.unit_tt.{name}", f"the TT unit at 250 MHz, in bags, D={columns} R={rank}, J={j}",
                         unit / 1e6, "M rows/s")
            yield figure(f"cpu.unit_over_numpy.{name}", f"the unit over NumPy, D={columns} R={rank}",
                         unit / cpu, "times")
