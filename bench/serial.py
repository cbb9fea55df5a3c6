"""SCRec's own unit, the baseline: cycles of a row for every D and R, measured on its RTL."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bench.framework import Row, at_least, bench, figure
from gen.base.tools import build_folder
from gen.data.shapes import column_modes
from gen.rtl.config import load
from golden.fp import fp32
from golden.tt import serial as golden
from hw.tt.serial import SerialTTUnit
from verif.bench.runner import simulate
from verif.tt import serial as driver

__all__ = ["Session", "cycles_per_row", "run"]

DIMS = (16, 32, 64, 128, 256, 512)
RANKS = (4, 8, 16, 32)
# Enough for a steady difference of ends; every row takes the same number of cycles.
LOOKUPS = 6


@dataclass(frozen=True)
class Session:
    """What the RTL did: vectors, one float32 array a lookup; the cycle in which each lookup's last beat came,
    counted from the one in which the first lookup went in; and what the simulation cost.
    """

    vectors: list[np.ndarray] = field(repr=False)
    outside: np.ndarray = field(repr=False)
    last_at: np.ndarray = field(repr=False)
    build_seconds: float
    run_seconds: float


def run(tables: Sequence[Sequence[np.ndarray]], table_ids: Any, indices: Any, *,
        config: Any = None) -> Session:
    """Loads `tables` (lists of cores) and looks up row indices[n] of table table_ids[n], n ascending.

    config: the unit's (default: the preset screc). Raises ValueError where a table does not fit.
    """
    config = config or load("screc").cores["serial"]
    driver.place(tables, config)
    about = {"config": asdict(config), "cores": [len(cores) for cores in tables]}
    arrays: dict[str, Any] = {f"core_{t}_{k}": np.asarray(core, np.float32)
                              for t, cores in enumerate(tables) for k, core in enumerate(cores)}
    build_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_folder(), prefix="serial-") as folder:
        path = Path(folder) / "asked.npz"
        np.savez(path, about=json.dumps(about), table=np.asarray(table_ids, np.int64),
                 index=np.asarray(indices, np.int64), **arrays)
        done = simulate(SerialTTUnit(config), "verif.tt.serial", name="tt_serial_paper", tests=1,
                        env={"HOTRAIL_SERIAL_SESSION": str(path)})
        with np.load(path.with_suffix(".out.npz"), allow_pickle=False) as out:
            vectors = np.split(out["words"].view(np.float32), np.cumsum(out["sizes"])[:-1])
            return Session(vectors, out["outside"], out["last_at"], done.model.build_seconds, done.seconds)


def cycles_per_row(shapes: Iterable[tuple[tuple[int, ...], int]]) -> dict[tuple[tuple[int, ...], int], int]:
    """Cycles of a row in steady state for each (J, R), from the RTL; J powers of two, all inner ranks R.

    Tables of as many shapes as fit are resident at once; each vector is compared with the golden model.
    Raises ValueError for a shape that the unit cannot hold, AssertionError where RTL and model differ.
    """
    config = load("screc").cores["serial"]
    random = np.random.default_rng(17)
    waiting = list(dict.fromkeys(shapes))
    found: dict[tuple[tuple[int, ...], int], int] = {}
    while waiting:
        tables: list[list[np.ndarray]] = []
        chosen: list[tuple[tuple[int, ...], int]] = []
        for columns, rank in waiting:
            modes = (3,) + (2,) * (len(columns) - 1)
            cores = driver.cores(random, modes, columns, (1, *[rank] * (len(columns) - 1), 1))
            try:
                driver.place([*tables, cores], config)
            except ValueError:
                if not tables:
                    raise
                break
            tables.append(cores)
            chosen.append((columns, rank))
            if len(tables) == config.tables:
                break
        waiting = waiting[len(tables):]
        found |= _measure(config, tables, chosen)
    return found


def _measure(config: Any, tables: Sequence[Sequence[np.ndarray]], shapes: Sequence[Any]) -> dict:
    ids = np.repeat(np.arange(len(tables)), LOOKUPS)
    rows = np.array([prod(core.shape[1] for core in cores) for cores in tables])
    indices = np.random.default_rng(18).integers(0, rows[ids])
    done = run(tables, ids, indices, config=config)
    plans = [image.plan for image in driver.place(tables, config)]
    wanted = golden.finish([plans[t] for t in ids], index_bits=config.index_bits, in_flight=config.in_flight)
    assert done.last_at.tolist() == wanted, "the serial unit's RTL and its cycle model differ"
    found = {}
    for t, shape in enumerate(shapes):
        mine = np.flatnonzero(ids == t)
        for n, row in zip(mine, golden.rows(tables[t], indices[mine]), strict=True):
            assert (fp32.bits(done.vectors[n]) == fp32.bits(row)).all(), f"vector {n} of {shape} is wrong"
        found[shape] = int(np.diff(done.last_at[mine])[-1])
    return found


@bench("serial")
def rows() -> Iterable[Row]:
    """Cycles of a row on SCRec's own array, tile after tile, from its RTL."""
    shapes = {(dim, rank): (column_modes(dim), rank) for dim in DIMS for rank in RANKS}
    measured = cycles_per_row(shapes.values())
    for (dim, rank), (columns, _) in shapes.items():
        plan = golden.plan((1,) * 3, columns, (1, rank, rank, 1))
        cycles = measured[columns, rank]
        yield figure(f"tt.serial_cycles.d{dim}r{rank}",
                     f"serial unit, D {dim} as {columns}, rank {rank}: a row "
                     f"({plan.ideal_cycles} if cells and memories answered at once)", cycles, "cycles")
        yield figure(f"tt.serial_util.d{dim}r{rank}", "MAC slots it uses",
                     round(100 * plan.macs / (cycles * plan.height * plan.width), 2), "%")
    equal = sum(measured[shape] == golden.plan((1,) * 3, shape[0], (1, shape[1], shape[1], 1)).cycles
                for shape in shapes.values())
    yield at_least("tt.serial_model", "shapes for which the cycle model equals the RTL", equal, "shapes",
                   len(shapes))
