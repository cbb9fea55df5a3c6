"""Runs a stream of bags through the RTL of the TT unit: what benches measure on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from gen.rtl.play import Phase, build
from golden.tt.load import Limits, Loader
from hw.tt.unit import TTUnit


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
    loader, dims, load = Loader(Limits.of(config)), [], []
    for cores, count in zip(tables, rows or [prod(core.shape[1] for core in cores) for cores in tables], strict=True):
        _, layout, parts = loader.add(cores, rows=int(count))     # before the simulator is built
        dims.append(layout.dim)
        load += [vars(part) for part in parts]
    player = build(TTUnit(config), name, opt="-O0")
    sizes = np.array([dims[table_ids[first]] for first in offsets[:-1]])
    ends = np.cumsum(-(-sizes // config.beat_words))
    lookups = [{"table": int(table), "index": int(index), "begin": 0, "end": 0}
               for table, index in zip(table_ids, indices, strict=True)]
    for first, end in zip(offsets[:-1], offsets[1:], strict=True):
        lookups[first]["begin"] = lookups[end - 1]["end"] = 1
    done = player.play([Phase({"i_load": player.packed("i_load", load)}, rest=4),
                        Phase({"i_lookups": player.packed("i_lookups", lookups)}, until={"o_vectors": int(ends[-1])},
                              rest=2)], cycles=cycles)
    beats, width = done.beats["o_vectors"], 4 * config.beat_words
    marks = beats[:, width]     # the last beat of a sum; a sum that is wrong
    assert np.array_equal(np.flatnonzero(marks & 1), ends - 1), "the sums do not end where they should"
    vectors = [part.reshape(-1).view("<f4")[:size] for part, size in zip(
        np.split(np.ascontiguousarray(beats[:, :width]), ends[:-1]), sizes, strict=True)]
    begin = int(done.ended[0, 0])
    return Session(np.stack(vectors) if (sizes == sizes[0]).all() else vectors, (marks[ends - 1] & 2).astype(bool),
                   done.taken["i_lookups"] - begin, done.at["o_vectors"][ends - 1] - begin,
                   player.unpacked("counters", done.shown["counters"]))
