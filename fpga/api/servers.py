"""What the same model takes without cards: a core of a server, measured or by recorded rates; servers and GPUs by their
data sheets. Figures and their sources stand in machines.toml."""

import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gen.data.profile import Profile
from gen.model.recommender import Recommender

TABLE_BYTES = 1 << 29       # of the rows of one width that are measured: past every cache, within a small machine
SECONDS = 0.2               # of each measurement, at least
SAMPLES = 256               # of a batch that is measured
DIM = 64                    # of the rows whose rates are recorded
#: How a core's lookups are known, and what a reader calls it.
LOOKUPS = {"fbgemm": "FBGEMM on this machine", "recorded": "FBGEMM's recorded rates", "numpy": "NumPy on this machine"}

_FILE = Path(__file__).parent / "machines.toml"


@dataclass(frozen=True)
class Machine:
    """By its data sheet. cores: 0 where none are measured. bytes, bytes_s: of its memory; watts: of the processor;
    usd: its price, None: not known."""

    name: str
    cores: int
    bytes: float
    bytes_s: float
    watts: float
    about: str = ""
    usd: float | None = None
    source: str = ""


@cache
def facts() -> dict[str, Any]:
    """The tables of machines.toml."""
    return tomllib.loads(_FILE.read_text("utf-8"))


def server() -> Machine:
    return Machine(**facts()["server"])


def gpu() -> Machine:
    return Machine(**facts()["gpu"])


def machines(machine: Machine, model: Recommender, profile: Profile, qps: float, core_s: float) -> tuple[int, str]:
    """How many at least, and what decides it: room for the tables, bandwidth for their rows, or cores."""
    need = needs(machine, model, profile, qps, core_s)
    most = max(need, key=lambda name: need[name])
    return ceil(need[most]), most


def needs(machine: Machine, model: Recommender, profile: Profile, qps: float, core_s: float) -> dict[str, float]:
    """How many it takes at least for each of these, as a fraction; the first does not grow with the load."""
    found = {"room for its tables": sum(spec.bytes for spec in model.tables.values()) / machine.bytes,
             "bandwidth of its memory": qps * sample_bytes(model, profile) / machine.bytes_s}
    if machine.cores:
        found["its cores"] = qps * core_s / machine.cores
    return found


def sample_bytes(model: Recommender, profile: Profile) -> float:
    """Bytes of rows, as float32, that a sample looks up."""
    return sum(4 * spec.dim * profile.tables[name].pooling for name, spec in model.tables.items())


def lookups_by() -> str:
    """How lookups of a core are known here: a key of LOOKUPS."""
    return "fbgemm" if find_spec("fbgemm_gpu") and find_spec("torch") else "recorded"


def core_seconds(model: Recommender, profile: Profile, *, by: str = "", seed: int = 1) -> float:
    """Seconds of one core for a sample: rows as often as the log has them, gathered and added up by bags, and the
    networks' layers. by: a key of LOOKUPS, default as `lookups_by` has it. Layers are measured with NumPy on this
    machine. Measured rows are float32, of each width at most half a gigabyte; recorded ones are in no cache."""
    by = by or lookups_by()
    random, spent = np.random.default_rng(seed), 0.0
    for dim in sorted({spec.dim for spec in model.tables.values()}):
        tables = {name: spec for name, spec in model.tables.items() if spec.dim == dim}
        rows = min(sum(spec.rows for spec in tables.values()), TABLE_BYTES // (4 * dim))
        indices, offsets = _lookups(profile, tuple(tables), rows, random)
        if not len(indices):
            continue
        if by == "recorded":
            spent += recorded_seconds(len(indices), len(offsets), dim) / SAMPLES
        elif by == "fbgemm":
            looked_up = fbgemm_table(rows, dim)
            indices, ends = indices.astype(np.int32), np.append(offsets, len(indices)).astype(np.int32)
            spent += _seconds(lambda: looked_up(indices, ends)) / SAMPLES       # noqa: B023
        else:
            table = random.standard_normal((rows, dim), dtype=np.float32)
            spent += _seconds(lambda: np.add.reduceat(table[indices], offsets)) / SAMPLES       # noqa: B023
    for _, layer in model.network.network().layers() if model.network is not None else ():
        inputs = random.standard_normal((SAMPLES, layer.inputs), dtype=np.float32)
        spent += _seconds(lambda: np.maximum(inputs @ layer.weights, 0)) / SAMPLES      # noqa: B023
    return spent


def fbgemm_table(rows: int, dim: int, form: str = "float32") -> Callable[[NDArray[Any], NDArray[Any]], object]:
    """A table of random rows in FBGEMM's inference kernel on one thread: a call looks up indices (n,) in bags that end
    at offsets (bags + 1,), pooled in float32. dim: up to the next multiple of four, which the kernel asks for.

    Raises      ImportError: torch and fbgemm_gpu are not installed
    """
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
        EmbeddingLocation,
        IntNBitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(1)
    kind = {"float32": SparseType.FP32, "float16": SparseType.FP16, "int8": SparseType.INT8,
            "int4": SparseType.INT4}[form]
    table = IntNBitTableBatchedEmbeddingBagsCodegen(
        [("rows", rows, -(-dim // 4) * 4, kind, EmbeddingLocation.HOST)], device="cpu", output_dtype=SparseType.FP32)
    table.fill_random_weights()
    return lambda indices, offsets: table(torch.from_numpy(np.asarray(indices, np.int32)),
                                          torch.from_numpy(np.asarray(offsets, np.int32)))


def recorded_seconds(rows: float, bags: float, dim: float) -> float:
    """Seconds by FBGEMM's recorded rates: a time per bag, and one per row that grows with its bytes from DIM values on;
    that shorter rows are faster was not measured."""
    told = facts()["fbgemm"]
    alone, of_20 = 1 / told["rows_per_s_1"], 1 / told["rows_per_s_20"]     # bag + row, bag / 20 + row
    bag = (alone - of_20) * 20 / 19
    return bags * bag + rows * (alone - bag) * max(dim / DIM, 1)


def _lookups(profile: Profile, tables: tuple[str, ...], rows: int, random: np.random.Generator) \
        -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that a batch looks up in these tables, and where bags begin. Hot rows lie anywhere among the others."""
    indices, offsets, at = [], [], 0
    for name in tables:
        found = profile.tables[name]
        lookups = max(round(found.pooling * SAMPLES), 0)
        indices.append((found.heat.drawn(lookups, random) * 0x9E3779B1 + at * 7919) % rows)
        bags = min(SAMPLES, lookups)
        offsets.append(at + np.arange(bags) * lookups // max(bags, 1))
        at += lookups
    return np.concatenate(indices), np.concatenate(offsets)


def _seconds(call: Callable[[], object]) -> float:
    """Processor seconds of a call, the median of several."""
    took: list[float] = []
    with threadpool_limits(1):      # more of them wait for each other, and that is processor time, too
        call()
        while sum(took) < SECONDS or len(took) < 3:
            start = time.process_time()
            call()
            took.append(time.process_time() - start)
    return float(np.median(took))
