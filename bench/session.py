"""Runs a stream of bags through the RTL of the TT unit: what benches and the demo measure on."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gen.base.tools import build_folder
from golden.tt.load import Loader
from hw.tt.unit import TTUnit
from verif.bench.runner import simulate
from verif.tt.bench import limits_of

__all__ = ["Session", "check", "run", "simulator"]


@dataclass
class Session:
    """What the RTL did. vectors: (M, D) words as float32 where all tables have one D, else a list of arrays;
    errors: marks; taken_at: the cycle in which a lookup went in, last_at: in which the last beat of a bag's sum came
    out, from the first lookup on offer; counters: the unit's, by name."""

    vectors: Any = field(repr=False)
    errors: np.ndarray = field(repr=False)
    taken_at: np.ndarray = field(repr=False)
    last_at: np.ndarray = field(repr=False)
    counters: dict[str, int]
    build_seconds: float
    run_seconds: float


def simulator(config: Any, preset: str) -> Callable[..., Session]:
    """`run` with the unit given: what gen.demo calls."""
    return partial(run, config, name=f"tt_{preset}")


def check(config: Any, tables: Sequence[Sequence[np.ndarray]], rows: Sequence[int] | None = None) -> None:
    """Raises ValueError where tables, each a list of cores, do not fit the unit together."""
    loader = Loader(limits_of(config))
    for cores, count in zip(tables, rows or [prod(core.shape[1] for core in cores) for cores in tables], strict=True):
        loader.add(cores, rows=count)


def run(config: Any, tables: Sequence[Sequence[np.ndarray]], table_ids: np.ndarray, indices: np.ndarray,
        offsets: np.ndarray, *, rows: Sequence[int] | None = None, cycles: int = 2_000_000,
        name: str = "tt_smartssd") -> Session:
    """Loads `tables` (each a list of cores) and sums rows of them, bag after bag.

    Bag m has the rows indices[n] of table table_ids[n], offsets[m] <= n < offsets[m + 1]: one table, and at most
    golden.tt.chunk_rows of them. config: the unit's; rows: of each table, where fewer than its row modes multiply to;
    cycles: after so many without all sums the run fails; name: of the model's folder (a model that another name has
    built is built again).
    Raises ValueError where a table does not fit the unit, AssertionError where the simulation fails.
    """
    rows = [prod(core.shape[1] for core in cores) for cores in tables] if rows is None else rows
    check(config, tables, rows)     # before the simulator is built
    about = {"limits": vars(limits_of(config)), "tables": len(tables),
             "cores": [len(cores) for cores in tables], "rows": [int(count) for count in rows],
             "cycles": cycles}
    arrays: dict[str, Any] = {f"core_{table}_{k}": np.asarray(core, dtype=np.float32)
              for table, cores in enumerate(tables) for k, core in enumerate(cores)}
    build_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_folder(), prefix="session-") as folder:
        path = Path(folder) / "asked.npz"
        np.savez(path, about=json.dumps(about), table=np.asarray(table_ids), index=np.asarray(indices),
                 offsets=np.asarray(offsets), **arrays)
        done = simulate(TTUnit(config), "verif.tt.bench", name=name, tests=1, only="session",
                        env={"HOTRAIL_SESSION": str(path)})
        with np.load(path.with_suffix(".out.npz"), allow_pickle=False) as out:
            sizes, words = out["sizes"], out["words"].view(np.float32)
            same = sizes.size and (sizes == sizes[0]).all()
            vectors = words.reshape(sizes.size, -1) if same else np.split(words, np.cumsum(sizes)[:-1])
            return Session(vectors, out["errors"], out["taken_at"], out["last_at"],
                           json.loads(str(out["counters"])), done.model.build_seconds, done.seconds)
