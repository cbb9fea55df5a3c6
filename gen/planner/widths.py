"""What narrow formats of rows and of tensor-train cores lose, and which of them a table's error budget allows.

An error is the root mean square of a difference over that of what it differs from. Of a table it is that of its pooled
vectors, for the bags of a log; without bags that of its rows. A narrower format is not always the faster one: a row of
three lines may take longer than one of four, which lies in pieces, and rows with a scale cannot be cut by columns. So
the planner's program has each format that is within the budget, but for those that another one betters in everything
(gen.planner.build).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.compress.post_hoc import tt_rows
from gen.data.logs.features import dense_of, labels_of
from gen.data.logs.log import Chunk, Log
from gen.data.pooling import looked_up, pooled
from gen.data.profile import Profile
from gen.model.recommender import ROW_FORMATS, TT_FORMATS, Recommender, TableSpec, whole_bytes
from gen.model.row_formats import RowError, rounded
from gen.model.scores import auc, log_loss
from gen.model.weights import Weights
from gen.planner.costs import Costs
from gen.planner.plan import Accuracy
from golden.tt.block16 import rounded_cores

#: Samples of a log whose bags are pooled; rows where there are none, and of a tensor train.
SAMPLES, ROWS = 1 << 14, 1 << 12
CHUNK, BLOCK = 512, 1 << 16     # samples and rows at once
#: Of rows of tensor trains that were trained, by their cores in block16; narrow.tt.error.*.block16.row are below it.
BLOCK16 = 1.62e-4
#: Past it a row may not be held as binary16, or not with scale and bias as such.
HALF_MOST = 65504.0
ASSUMED = "normally distributed rows"

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Errors:
    """Of a table. rows, cores: by their format; infinite where a value has no code in it. of: what was measured."""

    rows: Mapping[str, float]
    cores: Mapping[str, float]
    of: str


def allowed(spec: TableSpec, errors: Errors, costs: Costs) -> tuple[TableSpec, ...]:
    """The table in each format that its budget allows, the narrowest first; of formats whose rows take the same bytes
    and time the one that loses least. Without a budget as it is."""
    if (budget := spec.error_budget) is None:
        return (spec,)
    spec = replace(spec, error_budget=None)
    rows: dict[tuple[float, ...], str] = {}
    for form in sorted((form for form in ROW_FORMATS if errors.rows[form] <= budget), key=errors.rows.__getitem__):
        rows.setdefault((costs.row_bytes(spec.dim, form), costs.dram_s(spec.dim, form),
                         costs.spare_bytes(spec.dim, form)), form)
    cores = [form for form in TT_FORMATS if errors.cores[form] <= budget]
    if costs.unit.block16_only:
        # Of cores of float32 the unit holds none: where only they are within the budget, there is no tensor train.
        cores = cores[-1:]
    elif not costs.unit.grouped:
        cores = cores[:1]
    return tuple(replace(spec, row_format=rows[key], tt_format=form) for key in sorted(rows) for form in cores)


def held_by(unit: Any, spec: TableSpec) -> TableSpec:
    """The table with its cores in the only format that the unit takes, if it is one. unit: a TT unit's sizes."""
    return replace(spec, tt_format=TT_FORMATS[1]) if unit.block16_only else spec


def assumed(spec: TableSpec) -> Errors:
    """Of normally distributed rows of its width, and of trained cores."""
    return Errors(_of_normal_rows(spec.dim), {TT_FORMATS[0]: 0.0, TT_FORMATS[1]: BLOCK16}, ASSUMED)


@cache
def _of_normal_rows(dim: int) -> dict[str, float]:
    rows = np.random.default_rng(1).standard_normal((ROWS, dim), dtype=np.float32)
    return _errors(dim, [(rows.astype(np.float64), partial(_rounded, rows))])[0]


def measured(model: Recommender, weights: Weights, profile: Profile, chunks: Sequence[Chunk] = ()) -> dict[str, Errors]:
    """Of every table with a budget, by the parameters: of its pooled vectors in these chunks of a log, whose columns
    are the model's; of rows from anywhere in the table without chunks, or where they look up nothing but zeros.

    Raises      ValueError: parameters that do not fit the model, ids that are past a table's rows
    """
    found = {}
    for name, spec in model.tables.items():
        if spec.error_budget is not None:
            rows, size = _errors(spec.dim, _vectors(spec, weights, profile, chunks))
            of = "pooled vectors of the log" if chunks and size else "rows"
            if chunks and not size:
                rows, _ = _errors(spec.dim, _vectors(spec, weights, profile, ()))
            if any(np.abs(weights.rows(spec, np.arange(at, min(at + BLOCK, spec.rows)))).max() > HALF_MOST
                   for at in range(0, spec.rows, BLOCK)):
                rows |= {"float16": np.inf, "int4": np.inf}
            found[name] = Errors(rows, _of_cores(spec, weights), of)
    return found


def head(log: Log) -> tuple[Chunk, ...]:
    """The first SAMPLES of a log, a few at once."""
    found, left = [], SAMPLES
    for chunk in log.chunks(CHUNK):
        found.append(chunk.part(0, min(chunk.samples, left)))
        left -= found[-1].samples
        if not left:
            break
    return tuple(found)


def accuracy(model: Recommender, weights: Weights, profile: Profile, chunks: Sequence[Chunk]) -> Accuracy | None:
    """What the network of the model predicts from rows in their formats, beside the parameters' own; None where the
    model has no network of pooled vectors and one prediction, or a sample no label, or all have the same.

    Raises      ValueError: parameters that do not fit the model, dense features of another number than the network's
    """
    found = [labels_of(chunk.values) for chunk in chunks]
    labels = np.concatenate([each for each in found if each is not None] or [np.zeros(0, np.int64)])
    of = model.network
    if of is None or not of.features or of.top[-1] != 1 or any(each is None for each in found) or len(set(labels)) < 2:
        return None
    network = weights.network(of)
    dense = np.concatenate([dense_of(chunk, network.inputs)[0] for chunk in chunks])
    vectors, narrow = (np.empty((len(labels), len(model.features), of.dim), np.float32) for _ in range(2))
    tables = {name: [k for k, each in enumerate(model.features) if each.table == name] for name in model.tables}
    forms = {name: ROW_FORMATS[0] if weights.fused(spec) is not None else spec.row_format
             for name, spec in model.tables.items()}
    for name, spec in model.tables.items():
        pairs = list(_vectors(spec, weights, profile, chunks))      # one table after the other, column by column
        for k, at in enumerate(tables[name]):
            mine = pairs[k::len(tables[name])]
            vectors[:, at] = np.concatenate([exact for exact, _ in mine])
            narrow[:, at] = np.concatenate([rounded_to(forms[name]) for _, rounded_to in mine])

    def predicted(features: Floats) -> Floats:
        found = network(dense, features)[:, 0]
        return found if of.last == "sigmoid" else 1 / (1 + np.exp(-found))

    exact, every, alone = predicted(vectors), predicted(narrow), {}
    for name, form in forms.items():
        if form != ROW_FORMATS[0]:
            features = vectors.copy()
            features[:, tables[name]] = narrow[:, tables[name]]
            alone[name] = log_loss(predicted(features), labels) - log_loss(exact, labels)
    return Accuracy(len(labels), log_loss(exact, labels), log_loss(every, labels), auc(exact, labels),
                    auc(every, labels), alone)


def _vectors(spec: TableSpec, weights: Weights, profile: Profile,
             chunks: Sequence[Chunk]) -> Iterator[tuple[Floats, Callable[[str], Floats]]]:
    """Of each chunk and column, pooled vectors in float64, and those of rows in a format; without chunks, rows."""
    vocabulary = None
    if spec.ids == "vocabulary":
        own = weights.vocabulary(spec)
        vocabulary = profile.tables[spec.name].ids if own is None else own
    if not chunks:
        rows = weights.rows(spec, np.unique(np.linspace(0, spec.rows - 1, ROWS).astype(np.int64)))
        yield rows.astype(np.float64), partial(_rounded, rows)
    for chunk in chunks:
        for column in spec.looked_up_by:
            numbers, each = looked_up(spec, chunk, column, vocabulary)
            rows, offsets = weights.rows(spec, numbers), chunk.edges(column)

            def narrow(form: str, rows: Floats = rows, each: NDArray[np.int64] = each,
                       offsets: NDArray[np.int64] = offsets) -> Floats:
                return pooled(spec, _rounded(rows, form), each, offsets)

            yield pooled(spec, rows, each, offsets), narrow


def _errors(dim: int, vectors: Iterable[tuple[Floats, Callable[[str], Floats]]]) -> tuple[dict[str, float], float]:
    """Of each format of rows of such a width; and the sum of squares that they are held against."""
    forms = [form for form in ROW_FORMATS if whole_bytes(form, dim)]
    far, size = dict.fromkeys(forms, 0.0), 0.0
    for exact, narrow in vectors:
        size += float((exact**2).sum())
        for form in forms:
            far[form] += float(((narrow(form) - exact) ** 2).sum())
    return dict.fromkeys(ROW_FORMATS, np.inf) | {form: _relative(each, size) for form, each in far.items()}, size


def _of_cores(spec: TableSpec, weights: Weights) -> dict[str, float]:
    """Of rows of the trained cores, as far as there are any."""
    cores, error = weights.cores(spec), BLOCK16
    if cores:
        numbers = np.random.default_rng(1).integers(0, np.prod([core.shape[1] for core in cores]), ROWS)
        exact = tt_rows(cores, numbers)
        try:
            far = tt_rows(rounded_cores(cores), numbers) - exact
            error = _relative(float((far**2).sum()), float((exact**2).sum()))
        except ValueError:      # a value that block16 has no code for
            error = np.inf
    return {TT_FORMATS[0]: 0.0, TT_FORMATS[1]: error}


def _rounded(rows: NDArray[np.float32], form: str) -> Floats:
    """Infinite where a row cannot be stored."""
    try:
        return rounded(rows, form)
    except RowError:
        return np.full(rows.shape, np.inf)


def _relative(far: float, size: float) -> float:
    """By sums of squares."""
    return float(np.sqrt(far / size)) if size else np.inf if far else 0.0
