"""Trained tables in memory, as a model's parameters: with the ids that each row was trained for."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.data.ids import id_text
from gen.data.logs.cells import ids_of
from gen.model.network import Model, Network
from gen.model.recommender import TableSpec
from gen.model.row_formats import fused_bytes, values
from gen.model.weights import Weights

#: How the ids of a log become rows of a trained table: "index", "modulo" or "vocabulary" (gen.model.recommender.IDS),
#: row k's id for every k, a row for each id, or a function of an array of ids.
Ids = str | ArrayLike | Mapping[Any, int] | Callable[[NDArray[np.uint64]], ArrayLike]


@dataclass(frozen=True, eq=False)
class TrainedTable:
    """A trained table. array: (rows, dim) of floats, or FBGEMM's rows of uint8 where row_format is int8 or int4 (see
    gen.model.row_formats). columns: of the log that look it up, () for the one of its name. ids: as trained, None where
    the table does not say. unknown: the row of an id that is in none of them, the last by default."""

    name: str
    array: NDArray = field(repr=False)
    dim: int
    mode: str = "sum"
    columns: tuple[str, ...] = ()
    row_format: str = "float32"
    ids: Ids | None = None
    unknown: int | None = None

    def __post_init__(self) -> None:
        fused = fused_bytes(self.row_format, self.dim)
        is_fused = bool(fused) and self.array.dtype == np.uint8
        wide = fused if is_fused else self.dim
        if self.array.ndim != 2 or not len(self.array) or self.array.shape[1] != wide:
            raise ValueError(f"table {self.name}: its rows must be (rows, {wide}), one at least, not "
                             f"{self.array.dtype} of shape {self.array.shape}")
        if self.array.dtype.kind != "f" and not is_fused:
            raise ValueError(f"table {self.name}: its rows must be floats, not {self.array.dtype}")
        if self.unknown is not None and not 0 <= self.unknown < len(self.array):
            raise ValueError(f"table {self.name}: unknown = {self.unknown}: must be a row from 0 to "
                             f"{len(self.array) - 1}")


@dataclass(frozen=True, eq=False)
class Placed:
    """A table as a model has it: `spec`'s row k is row `order[k]` of the array (None: row k). vocabulary: ascending
    ids, of which row k is the k-th, None where ids are no vocabulary."""

    trained: TrainedTable
    spec: TableSpec
    order: NDArray[np.int64] | None = None
    vocabulary: NDArray[np.uint64] | None = None

    def numbers(self) -> NDArray[np.int64]:
        """(rows of the array,) which row of `spec` each is."""
        found = np.arange(len(self.trained.array))
        if self.order is not None:
            found[self.order[::-1]] = np.arange(len(self.order))[::-1]
        return found


def placed(trained: TrainedTable, counted: NDArray[np.uint64], **options: Any) -> Placed:
    """A table whose rows are in the order of its ids. counted: the ids of the log, ascending, which a function of ids
    is tabulated for. options: of its TableSpec.

    Ids that are no vocabulary leave the rows as they are. Otherwise the rows of ascending ids come first, then those
    that no id has, then the row of unknown ids.
    Raises      ValueError: ids that are no such, more than once, or of rows that there are not
    """
    ids, rows = trained.ids, len(trained.array)
    spec = replace(TableSpec(trained.name, rows, trained.dim, mode=trained.mode, row_format=trained.row_format,
                             columns=trained.columns), **options)
    if ids is None or isinstance(ids, str):
        return Placed(trained, _checked(replace(spec, ids=ids or "index")))
    known, mine = _tabulated(trained, ids, counted)
    unknown = rows - 1 if trained.unknown is None else trained.unknown
    others = np.ones(rows, bool)
    others[mine], others[unknown] = False, False
    order = np.concatenate([mine, np.flatnonzero(others), [unknown]])
    return Placed(trained, _checked(replace(spec, ids="vocabulary", rows=len(order))), order, known)


def _checked(spec: TableSpec) -> TableSpec:
    try:
        spec.check()
    except ValueError as error:
        raise ValueError(f"table {spec.name}: {error}") from None
    return spec


def _tabulated(trained: TrainedTable, ids: Any,
               counted: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ascending ids and the row of each."""
    names: Any
    if callable(ids):
        names, rows = counted, np.asarray(ids(counted))
    elif isinstance(ids, Mapping):
        names, rows = list(ids), np.asarray(list(ids.values()))
    else:
        names, rows = ids, np.arange(len(np.asarray(ids)))
    known = _as_ids(trained.name, names)
    if rows.shape != known.shape or rows.dtype.kind not in "iu" and rows.size:
        raise ValueError(f"table {trained.name}: the rows of {len(known):,} ids must be as many whole numbers, not "
                         f"{rows.dtype} of shape {rows.shape}")
    past = (rows < 0) | (rows >= len(trained.array))
    if past.any():
        at = int(np.argmax(past))
        raise ValueError(f"table {trained.name}: the id {id_text(known[at])} has row {rows[at]}; the table has "
                         f"{len(trained.array):,} rows")
    order = np.argsort(known, kind="stable")
    known = known[order]
    if (twice := known[1:] == known[:-1]).any():
        raise ValueError(f"table {trained.name}: the id {id_text(known[int(np.argmax(twice))])} has more than one row")
    return known, rows[order].astype(np.int64)


def _as_ids(table: str, names: Any) -> NDArray[np.uint64]:
    """As a log has them: whole numbers as themselves, negative ones as two's complements, texts as their hash."""
    found = np.asarray(names)
    if found.ndim == 1 and found.dtype.kind in "U":
        texts = [str(text).encode() for text in found]
        edges = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
        hashed = np.empty(len(texts), np.uint64)
        ids_of(np.frombuffer(b"".join(texts) + b"\0", np.uint8), edges, hashed)
        return hashed
    if found.ndim != 1 or found.dtype.kind not in "iu" and found.size:
        raise ValueError(f"table {table}: ids must be whole numbers or texts in one dimension, not {found.dtype} of "
                         f"shape {found.shape}")
    return found.astype(np.int64).view(np.uint64) if found.dtype.kind == "i" else found.astype(np.uint64)


class TrainedWeights(Weights):
    """Parameters of tables in memory. about: their name and the SHA-256 of their rows.

    Raises      ValueError, when rows are asked for: one that is no finite float32
    """

    def __init__(self, tables: Sequence[Placed], source: str):
        self._tables = {each.spec.name: each for each in tables}
        digest = hashlib.sha256()
        for name, each in self._tables.items():
            digest.update(f"{name} {each.trained.array.dtype} {each.trained.array.shape} ".encode())
            for part in np.array_split(each.trained.array, 1 + each.trained.array.nbytes // (1 << 26)):
                digest.update(np.ascontiguousarray(part).data)
        self.about: dict[str, Any] = {"model": source, "sha256": digest.hexdigest()}

    def _array(self, spec: TableSpec, numbers: NDArray[np.int64]) -> NDArray:
        found = self._tables[spec.name]
        return found.trained.array[numbers if found.order is None else found.order[numbers]]

    def rows(self, spec: TableSpec, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        found = self._array(spec, numbers)
        if found.dtype == np.uint8:
            return values(found, spec.row_format)
        with np.errstate(over="ignore"):
            words = np.ascontiguousarray(found, np.float32)
        if not np.isfinite(words).all():
            row, column = (int(k) for k in np.argwhere(~np.isfinite(words))[0])
            raise ValueError(f"table {spec.name}: row {numbers[row]} has {found[row, column]}; rows must be finite "
                             "float32 numbers")
        return words

    def fused(self, spec: TableSpec) -> NDArray[np.uint8] | None:
        found = self._tables[spec.name]
        if found.trained.array.dtype != np.uint8:
            return None
        return found.trained.array if found.order is None else found.trained.array[found.order]

    def vocabulary(self, spec: TableSpec) -> NDArray[np.uint64] | None:
        return self._tables[spec.name].vocabulary

    def network(self, model: Model) -> Network:
        raise ValueError(f"{self.about['model']}: its networks are not read; leave out network in the model")
