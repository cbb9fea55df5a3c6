"""What the same model takes without cards: a core of this machine, measured; servers and GPUs by their data sheets."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gen.data.profile import Profile
from gen.model.recommender import Recommender

__all__ = ["GPU", "SERVER", "Machine", "core_seconds", "machines", "sample_bytes"]

TABLE_BYTES = 1 << 29       # of the rows of one width that are measured: past every cache, within a small machine
SECONDS = 0.2               # of each measurement, at least
SAMPLES = 256               # of a batch that is measured


@dataclass(frozen=True)
class Machine:
    """By its data sheet. cores: 0 where none are measured. bytes, bytes_s: of its memory; watts: of the processor."""

    name: str
    cores: int
    bytes: float
    bytes_s: float
    watts: float


SERVER = Machine("CPU server, AMD EPYC 7763 with 512 GB of DDR4-3200", 64, 512e9, 204.8e9, 280)
GPU = Machine("GPU, NVIDIA A100 with 80 GB", 0, 80e9, 1.935e12, 300)


def machines(machine: Machine, model: Recommender, profile: Profile, qps: float, core_s: float) -> tuple[int, str]:
    """How many at least, and what decides it: room for the tables, bandwidth for their rows, or cores."""
    room = sum(spec.bytes for spec in model.tables.values()) / machine.bytes
    need = {"room for its tables": room,
            "bandwidth of its memory": qps * sample_bytes(model, profile) / machine.bytes_s}
    if machine.cores:
        need["its cores"] = qps * core_s / machine.cores
    most = max(need, key=lambda name: need[name])
    return ceil(need[most]), most


def sample_bytes(model: Recommender, profile: Profile) -> float:
    """Bytes of rows, as float32, that a sample looks up."""
    return sum(4 * spec.dim * profile.tables[name].pooling for name, spec in model.tables.items())


def core_seconds(model: Recommender, profile: Profile, *, seed: int = 1) -> float:
    """Seconds of one core of this machine for a sample, by NumPy: rows as often as the log has them are gathered and
    added up by bags, and the networks' layers multiplied. Rows are float32; of each width at most half a gigabyte."""
    random, spent = np.random.default_rng(seed), 0.0
    for dim in {spec.dim for spec in model.tables.values()}:
        tables = {name: spec for name, spec in model.tables.items() if spec.dim == dim}
        rows = min(sum(spec.rows for spec in tables.values()), TABLE_BYTES // (4 * dim))
        table = random.standard_normal((rows, dim), dtype=np.float32)
        indices, offsets = _lookups(profile, tuple(tables), rows, random)
        if len(indices):
            spent += _seconds(lambda: np.add.reduceat(table[indices], offsets)) / SAMPLES   # noqa: B023
    for _, layer in model.network.network().layers() if model.network is not None else ():
        inputs = random.standard_normal((SAMPLES, layer.inputs), dtype=np.float32)
        spent += _seconds(lambda: np.maximum(inputs @ layer.weights, 0)) / SAMPLES      # noqa: B023
    return spent


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
