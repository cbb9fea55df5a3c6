"""Rows of a table in host memory or in a mapped file, what a row-wise optimizer keeps beside them, and checkpoints."""

import fcntl
import os
import shutil
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from weakref import WeakSet

import numpy as np
import torch

from gen.base.staging import staged

CHUNK_ROWS = 1 << 16
#: Of the folders that this process uses.
_LOCKS: "WeakSet[TextIOWrapper]" = WeakSet()


def _leave() -> None:
    """In a fork: locks are its parent's, and must not last until the fork has ended."""
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_leave)


class Store:
    """weight (rows, dim) and, for row-wise Adagrad, state (rows,), both float32 on the host.

    place: a folder for files that are mapped, for tables larger than memory; what is in it goes on. A new one is
    reserved on the disk at once and there when it is filled: a full disk is an OSError here and not a fault in
    mid-training. Nobody else uses the folder as long as this lives or until the process has ended. std, seed: of the
    rows of a new table, normally distributed, the same whatever holds them. part: (rank, ranks): of the table's rows
    those whose number leaves `rank` when divided by `ranks`, in their order.

    Raises      ValueError: a folder that somebody uses, or with files of other sizes; OSError: a disk without room
    """

    def __init__(self, rows: int, dim: int, *, keeps_state: bool, place: str | Path | None = None, std: float = 0.0,
                 seed: int = 0, part: tuple[int, int] = (0, 1)):
        self._rows, self._part = rows, part
        rows = len(range(part[0], rows, part[1]))
        self.place = Path(place) if place is not None else None
        if self.place is not None:
            self._lock = self._locked(self.place)
            _LOCKS.add(self._lock)
        try:
            self.weight = self._array("weight", (rows, dim), std, seed)
            self.state = self._array("state", (rows,)) if keeps_state else None
        except BaseException:
            if self.place is not None:
                self._lock.close()      # the error's traceback keeps this alive
            raise

    @staticmethod
    def _locked(place: Path) -> TextIOWrapper:
        """The folder's lock, which the system releases when its file is closed, also by a kill."""
        place.mkdir(parents=True, exist_ok=True)
        lock = open(place / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ValueError(f"{place} is used by another bag, of this process or another: a folder of its own for "
                             "each, or wait until that one is gone") from None
        return lock

    def _array(self, name: str, shape: tuple[int, ...], std: float = 0.0, seed: int = 0) -> torch.Tensor:
        if self.place is None:
            return self._filled(torch.zeros(shape), std, seed)
        file = self.place / f"{name}.f32"
        size = 4 * int(np.prod(shape))
        if file.exists():
            if file.stat().st_size != size:
                raise ValueError(f"{file} has {file.stat().st_size} bytes; a table of the shape {shape} has {size}: "
                                 "another folder, or the sizes with which it was made")
        else:
            with staged(file) as half:
                with open(half, "wb") as out:
                    try:
                        os.posix_fallocate(out.fileno(), 0, size)
                    except OSError as error:
                        raise OSError(error.errno, f"{file} needs {size:,} bytes, of which its disk has "
                                      f"{shutil.disk_usage(self.place).free:,}: {error.strerror}") from None
                self._filled(torch.from_numpy(np.memmap(half, np.float32, "r+", shape=shape)), std, seed)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=shape))

    def _filled(self, rows: torch.Tensor, std: float, seed: int) -> torch.Tensor:
        random, (rank, ranks) = torch.Generator().manual_seed(seed), self._part
        for start in range(0, self._rows, CHUNK_ROWS) if std else ():
            first = -(-(start - rank) // ranks)
            drawn = torch.empty(min(CHUNK_ROWS, self._rows - start), *rows.shape[1:]).normal_(0.0, std,
                                                                                             generator=random)
            mine = drawn[first * ranks + rank - start::ranks]
            rows[first:first + len(mine)] = mine
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


def _same_shapes(where: str, own: Mapping[str, object], held: Mapping[str, object]) -> None:
    """Raises ValueError: a module has other parameters than a checkpoint, or of other shapes"""
    for key in sorted(own.keys() | held.keys()):
        shapes = [tuple(getattr(state[key], "shape", ())) if key in state else None for state in (own, held)]
        if shapes[0] != shapes[1]:
            here, there = ("nothing" if shape is None else f"the shape {shape}" for shape in shapes)
            raise ValueError(f"{where}.{key} has {there} in the checkpoint, and {here} in the module")


def load(place: str | Path, **parts: object) -> dict[str, object]:
    """Modules and optimizers go on from a checkpoint, and so do torch's random numbers; returns the other values.

    Raises      FileNotFoundError; ValueError: it is no checkpoint of `save`, has nothing under one of these names, or
                a module's parameters have other shapes; then nothing has changed
    """
    with open(place, "rb") as file:
        try:
            held = torch.load(file, weights_only=True)
        except Exception as error:      # of a torn or another file torch and pickle raise errors of no common class
            raise ValueError(f"{place} is not a checkpoint that save() has written, or it is damaged") from error
    if not isinstance(held, dict) or "random" not in held:
        raise ValueError(f"{place} is not a checkpoint that save() has written")
    if missing := [name for name in parts if name not in held]:
        raise ValueError(f"{place} has no {missing[0]!r}; it has {', '.join(sorted(held))}")
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module):       # all are looked at before one changes
            _same_shapes(f"{place}: {name}", part.state_dict(), held[name])
    for name, part in parts.items():
        part.load_state_dict(held.pop(name))        # type: ignore[attr-defined]
    torch.set_rng_state(held.pop("random"))
    return held
