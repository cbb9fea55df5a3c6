"""Rows of a table in host memory or in a mapped file, what a row-wise optimizer keeps beside them, and checkpoints."""

import os
from pathlib import Path

import numpy as np
import torch

from gen.base.staging import staged

__all__ = ["Store", "load", "save"]

CHUNK_ROWS = 1 << 16


class Store:
    """weight (rows, dim) and, for row-wise Adagrad, state (rows,), both float32 on the host.

    place: a folder for files that are mapped, for tables larger than memory; what is in it goes on. A new one is
    reserved on the disk at once and there when it is filled: a full disk is an OSError here and not a fault in
    mid-training. std, seed: of the rows of a new table, normally distributed, the same whatever holds them.
    """

    def __init__(self, rows: int, dim: int, *, keeps_state: bool, place: str | Path | None = None, std: float = 0.0,
                 seed: int = 0):
        self.place = Path(place) if place is not None else None
        self.weight = self._array("weight", (rows, dim), std, seed)
        self.state = self._array("state", (rows,)) if keeps_state else None

    def _array(self, name: str, shape: tuple[int, ...], std: float = 0.0, seed: int = 0) -> torch.Tensor:
        if self.place is None:
            return _filled(torch.zeros(shape), std, seed)
        file = self.place / f"{name}.f32"
        size = 4 * int(np.prod(shape))
        if file.exists():
            if file.stat().st_size != size:
                raise ValueError(f"{file} has {file.stat().st_size} bytes; a table of the shape {shape} has {size}: "
                                 "another folder, or the sizes with which it was made")
        else:
            self.place.mkdir(parents=True, exist_ok=True)
            with staged(file) as half:
                with open(half, "wb") as out:
                    os.posix_fallocate(out.fileno(), 0, size)
                _filled(torch.from_numpy(np.memmap(half, np.float32, "r+", shape=shape)), std, seed)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=shape))


def _filled(rows: torch.Tensor, std: float, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    for start in range(0, len(rows), CHUNK_ROWS) if std else ():
        rows[start:start + CHUNK_ROWS].normal_(0.0, std, generator=random)
    return rows


def save(place: str | Path, **parts: object) -> None:
    """A checkpoint: what `load` returns, modules and optimizers by their state_dict. It replaces an older one when it
    is whole: whatever ends this, the file at `place` is one or the other.

    Raises      ValueError: a part that `load` would not take
    """
    for name, part in parts.items():
        if name == "random" or isinstance(part, np.generic | np.ndarray):
            raise ValueError(f"{name} cannot be saved: " + ("the name is that of torch's random numbers"
                             if name == "random" else f"{type(part).__name__} is NumPy's; give Python's or torch's"))
    held = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
    with staged(place) as half:
        with open(half, "wb") as out:
            torch.save({**held, "random": torch.get_rng_state()}, out)
            out.flush()
            os.fsync(out.fileno())


def load(place: str | Path, **parts: object) -> dict[str, object]:
    """Modules and optimizers go on from a checkpoint, and so do torch's random numbers; returns the other values.

    Raises      FileNotFoundError; ValueError: it has nothing under one of these names
    """
    held = torch.load(place, weights_only=True)
    if missing := [name for name in parts if name not in held]:
        raise ValueError(f"{place} has no {missing[0]!r}; it has {', '.join(sorted(held))}")
    for name, part in parts.items():
        part.load_state_dict(held.pop(name))        # type: ignore[attr-defined]
    torch.set_rng_state(held.pop("random"))
    return held
