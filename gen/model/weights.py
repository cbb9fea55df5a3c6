"""Where the words of a model's parameters come from: an npz file of trained ones, or random ones by a seed.

An npz file has, for a table items and a network:

    table_items                    (rows, dim) float, by the model's row numbers; of a table whose row_format is int8 or
                                   int4 also FBGEMM's quantised rows, (rows, bytes) uint8
    core1_items, core2_items, ..   tensor-train cores (R, I, J, R'), as trained; left out: decomposed from table_items
    tt_row_items                   (rows,) which row of the TT each row is; left out: warm rows, the hottest first
    ids_items                      (n,) ascending: row k is the k-th id; left out: of those that the profile has counted
    bottom1_weights, bottom1_bias  (inputs, outputs) and (outputs,) of a layer; top1_weights ..
"""

import hashlib
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.base.npy import member, opened
from gen.model.network import Layer, Model, Network
from gen.model.recommender import TableSpec
from gen.model.row_formats import fused_bytes, values

ALWAYS_BYTES = 1 << 28      # of an array that are read, whatever the model has; more only as the model asks for it


class Rows:
    """Rows (count, dim) of float32, or of another dtype, that are made when they are asked for: `take` gives those of
    ascending numbers. Without it only their number is known."""

    def __init__(self, count: int, dim: int, take: Callable[[NDArray[np.int64]], NDArray] | None = None,
                 dtype: type = np.float32):
        self.shape, self._take, self.dtype = (count, dim), take, np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> NDArray:
        if self._take is None:
            raise ValueError("of these rows only the number is known")
        return self._take(np.arange(*part.indices(len(self))))

    def columns(self, part: slice) -> "Rows":
        """Some columns of them."""
        take = self._take
        return Rows(len(self), len(range(*part.indices(self.shape[1]))),
                    None if take is None else lambda numbers: take(numbers)[:, part])


class Weights(Protocol):
    """about: for a bundle's manifest, enough to find the same words again."""

    about: dict[str, Any]

    def rows(self, spec: TableSpec, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, dim) of some rows of a table."""
        ...

    def fused(self, spec: TableSpec) -> NDArray[np.uint8] | None:
        """(rows, bytes) of a table whose rows are given as FBGEMM has quantised them; None: they are not."""
        return None

    def cores(self, spec: TableSpec) -> tuple[NDArray[np.float32], ...]:
        """Trained tensor-train cores, () where there are none."""
        return ()

    def tt_row(self, spec: TableSpec) -> NDArray[np.int64] | None:
        """(rows,) the row of those cores that each row is, None: by heat."""
        return None

    def vocabulary(self, spec: TableSpec) -> NDArray[np.uint64] | None:
        """Ascending ids, of which row k is the k-th; None where that is not known."""
        return None

    def network(self, model: Model) -> Network:
        """The networks around the tables."""
        ...


class SeededWeights(Weights):
    """Random words, the same for the same seed whichever rows are asked for: uniform within 1 / sqrt(rows), as Meta's
    DLRM begins with."""

    def __init__(self, seed: int = 0):
        self.seed, self.about = seed, {"seed": seed}

    def rows(self, spec: TableSpec, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        key = np.uint64(zlib.crc32(spec.name.encode()) << 32 | self.seed & 0xFFFFFFFF)
        out = np.empty((len(numbers), spec.dim), np.float32)
        _uniform(key, np.ascontiguousarray(numbers, np.int64), np.float32(spec.rows**-0.5), out)
        return out

    def network(self, model: Model) -> Network:
        return model.network(self.seed)


@njit(cache=True, nogil=True)
def _uniform(key, numbers, reach, out):
    """From -reach to reach: 24 bits of SplitMix64's function of (key, row, column)."""
    columns = out.shape[1]
    for k in range(len(numbers)):
        for d in range(columns):
            x = key + np.uint64(numbers[k] * columns + d + 1) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
            out[k, d] = (np.float32(np.int64(x >> np.uint64(40))) * np.float32(2.0**-23) - np.float32(1)) * reach


class FileWeights:
    """Those of an npz file.

    Raises      ValueError: no npz file; later: an array that is missing or has another shape than the model says
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            digest = hashlib.sha256()
            with self.path.open("rb") as file:
                while part := file.read(1 << 20):
                    digest.update(part)
        except OSError as error:
            raise ValueError(f"{self.path} cannot be read: {error.strerror or 'it is no npz file'}") from None
        self._file = opened(self.path, "npz file")
        self.names = {name.removesuffix(".npy") for name in self._file.namelist() if name.endswith(".npy")}
        self.about = {"file": self.path.name, "sha256": digest.hexdigest()}
        self._held: tuple[str, NDArray] = "", np.zeros((0, 0), np.float32)

    def rows(self, spec: TableSpec, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = self._table(spec)[numbers]
        return values(rows, spec.row_format) if self.fused(spec) is not None else rows

    def fused(self, spec: TableSpec) -> NDArray[np.uint8] | None:
        held = self._table(spec)
        return held if held.dtype == np.uint8 else None

    def _table(self, spec: TableSpec) -> NDArray:
        """All rows, one table at a time: they may be large."""
        name = f"table_{spec.name}"
        if self._held[0] != name:
            wide = fused_bytes(spec.row_format, spec.dim)
            array = self._array(name, spec.rows * spec.dim) if wide else None
            if array is None or array.dtype != np.uint8:
                array = self._floats(name, (spec.rows, spec.dim))
            elif array.shape != (spec.rows, wide):
                raise ValueError(f"{self.path.name}: {name} is uint8 and row_format = {spec.row_format!r}, so it must "
                                 f"be FBGEMM's rows of shape {(spec.rows, wide)}, not {array.shape}")
            self._held = name, array
        return self._held[1]

    def cores(self, spec: TableSpec) -> tuple[NDArray[np.float32], ...]:
        cores: list[NDArray[np.float32]] = []
        while (name := f"core{len(cores) + 1}_{spec.name}") in self.names:
            cores.append(self._floats(name, numbers=spec.rows * spec.dim))
        return tuple(cores)

    def tt_row(self, spec: TableSpec) -> NDArray[np.int64] | None:
        name = f"tt_row_{spec.name}"
        if name not in self.names:
            return None
        numbers = self._array(name, spec.rows)
        if numbers.dtype.kind not in "iu" or numbers.shape != (spec.rows,):
            raise ValueError(f"{self.path.name}: {name} must be {spec.rows} whole numbers, not {numbers.dtype} of "
                             f"shape {numbers.shape}")
        return numbers.astype(np.int64)

    def vocabulary(self, spec: TableSpec) -> NDArray[np.uint64] | None:
        name = f"ids_{spec.name}"
        if name not in self.names:
            return None
        ids = self._array(name, spec.rows)
        if ids.dtype.kind not in "iu" or ids.ndim != 1 or not 1 <= len(ids) <= spec.rows:
            raise ValueError(f"{self.path.name}: {name} must be 1 to {spec.rows} whole numbers, as many as the table's "
                             f"rows at most, not {ids.dtype} of shape {ids.shape}")
        ids = ids.astype(np.uint64)
        wrong = np.append(False, ids[1:] <= ids[:-1])
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"{self.path.name}: {name} must be ascending ids of 64 bits, a negative one as its two's "
                             f"complement, each once; at {at} stands {ids[at]}")
        return ids

    def network(self, model: Model) -> Network:
        parts = {}
        sizes = model.network()
        for part, layers in (("bottom", sizes.bottom), ("top", sizes.top)):
            parts[part] = [Layer(self._floats(f"{part}{k}_weights", layer.weights.shape),
                                 self._floats(f"{part}{k}_bias", (layer.outputs,))
                                 if f"{part}{k}_bias" in self.names else None, layer.activation)
                           for k, layer in enumerate(layers, 1)]
        return Network(parts["bottom"], model.interaction, model.features, model.dim, parts["top"])

    def _array(self, name: str, numbers: int) -> NDArray:
        """An array of about so many numbers."""
        if name not in self.names:
            raise ValueError(f"{self.path.name} has no array {name}; it has {', '.join(sorted(self.names)) or 'none'}; "
                             "docs/bundle.md#parameters says which names it must have")
        return member(self._file, f"{name}.npy", max(ALWAYS_BYTES, 16 * numbers))

    def _floats(self, name: str, shape: tuple[int, ...] | None = None, numbers: int = 0) -> NDArray[np.float32]:
        values = self._array(name, numbers or math.prod(shape or ()))
        if values.dtype.kind not in "fiu" or shape is not None and values.shape != shape:
            raise ValueError(f"{self.path.name}: {name} must be numbers" + (f" of shape {shape}" if shape else "")
                             + f", not {values.dtype} of shape {values.shape}")
        with np.errstate(over="ignore"):
            words = np.ascontiguousarray(values, np.float32)
        if not np.isfinite(words).all():
            at = tuple(int(k) for k in np.argwhere(~np.isfinite(words))[0])
            raise ValueError(f"{self.path.name}: {name} must be finite float32 numbers; at {at} stands {values[at]}")
        return words
