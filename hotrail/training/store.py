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
    reserved on the disk at once: a full disk is an OSError here and not a fault in mid-training.
    """

    def __init__(self, rows: int, dim: int, *, keeps_state: bool, place: str | Path | None = None):
        self.place = Path(place) if place is not None else None
        self.fresh = True
        self.weight = self._array("weight", (rows, dim))
        self.state = self._array("state", (rows,)) if keeps_state else None

    def _array(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if self.place is None:
            return torch.zeros(shape)
        file = self.place / f"{name}.f32"
        size = 4 * int(np.prod(shape))
        if file.exists():
            if file.stat().st_size != size:
                raise ValueError(f"{file} has {file.stat().st_size} bytes; a table of the shape {shape} has {size}: "
                                 "another folder, or the sizes with which it was made")
            self.fresh = False
        else:
            self.place.mkdir(parents=True, exist_ok=True)
            with staged(file) as half, open(half, "wb") as out:
                os.posix_fallocate(out.fileno(), 0, size)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=shape))

    def fill(self, std: float, seed: int) -> None:
        """Normally distributed rows, the same whatever holds them."""
        random = torch.Generator().manual_seed(seed)
        for start in range(0, len(self.weight), CHUNK_ROWS):
            self.weight[start:start + CHUNK_ROWS].normal_(0.0, std, generator=random)


def save(place: str | Path, **parts: object) -> None:
    """A checkpoint: what `load` returns, modules and optimizers by their state_dict. It replaces an older one when it
    is whole: whatever ends this, the file at `place` is one or the other."""
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
    for name, part in parts.items():
        if name not in held:
            raise ValueError(f"{place} has no {name!r}; it has {', '.join(sorted(held))}")
        part.load_state_dict(held.pop(name))        # type: ignore[attr-defined]
    torch.set_rng_state(held.pop("random"))
    return held
