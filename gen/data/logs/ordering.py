"""A log in the order of one of its columns."""

from dataclasses import replace

import numpy as np

from gen.data.logs import bounds
from gen.data.logs.arrays import of_arrays
from gen.data.logs.chunk import Chunk
from gen.data.logs.log import Pieces
from gen.data.logs.trace import common_values, picked


def ordered(log: Pieces, column: str) -> Pieces:
    """The log, samples of the same time in the order that they had. A log that is in order already stays a stream.

    Raises      ValueError: no such column of numbers, one with gaps, or a log that is in another order and larger than
                what is held in memory
    """
    last, rises = -np.inf, True
    for chunk in log.chunks():
        times = _times(log, chunk, column)
        rises = rises and bool(times[0] >= last) and bool((times[1:] >= times[:-1]).all())
        last = times[-1]
        if not rises:
            break
    return log if rises else _sorted(log, column)


def _times(log: Pieces, chunk: Chunk, column: str) -> np.ndarray:
    found = chunk.values.get(column)
    if found is None and column in chunk.ids and column not in chunk.offsets:
        found = chunk.ids[column]
        if "texts" in log.pieces[0].form.tables.get(column, ""):
            raise ValueError(f"{log.source}: the column {column!r} (--order-by) has texts that are no times")
    if found is None or found.ndim != 1:
        raise ValueError(f"{log.source} has no column {column!r} of numbers (--order-by); it has "
                         f"{bounds.few([*chunk.values, *chunk.ids])}")
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise ValueError(f"{log.source}: the column {column!r} (--order-by) has cells without a number")
    return found


def _sorted(log: Pieces, column: str) -> Pieces:
    chunks: list[Chunk] = []
    size = 0
    for chunk in log.chunks():
        size += sum(each.nbytes for group in (chunk.ids, chunk.offsets, chunk.values) for each in group.values())
        if size > bounds.WHOLE:
            raise ValueError(f"{log.source} is not in the order of {column!r} and has more than {bounds.WHOLE:,} bytes "
                             "of ids and values, which is the most that --order-by holds in memory; sort it by another "
                             "program")
        chunks.append(chunk)
    order = np.argsort(np.concatenate([_times(log, chunk, column) for chunk in chunks]), kind="stable")
    ids, offsets = {}, {}
    for name in log.tables:
        joined = np.concatenate([chunk.ids[name] for chunk in chunks])
        if any(name in chunk.offsets for chunk in chunks):
            lengths = np.concatenate([np.diff(chunk.edges(name)) for chunk in chunks])
            ids[name], offsets[name] = picked(joined, np.concatenate([[0], np.cumsum(lengths)]), order)
        else:
            ids[name] = joined[order]
    values = {name: np.concatenate([chunk.values[name] for chunk in chunks])[order] for name in common_values(chunks)}
    form = replace(log.pieces[0].form, text=f"{log.pieces[0].form.text}, put in the order of {column}")
    made = of_arrays(ids, offsets, values, source=log.source)
    found = Pieces(log.source, [replace(piece, form=form, unread=log.unread) for piece in made.pieces],
                   progress=log.progress)
    found.pieces[0].problems.take(log.problems)
    return found
