"""From a log to vectors out of the RTL: learns an item table, makes it tensor trains, looks it up, compares.

Two tensor trains of the same shape are resident in the unit at once: the dense table decomposed after the fact, and
one trained in TT form. Each is looked up in the order of the log, in full bags, and the trained one again row by row,
the lookups of each batch sorted. Every vector is compared with golden.tt.pooled bit for bit.

The simulator is handed in: with another one the flow is tested without a build.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gen.data import learn, reorder, shapes
from gen.data.logs import Pieces, Trace, open_log
from gen.data.logs.lines import texts
from gen.data.logs.movielens import NAME, titles
from golden.tt import serial
from golden.tt.cycles import cycles
from golden.tt.decompose import decompose, dense, fitting, relative_error
from golden.tt.layout import plan
from golden.tt.rows import chunk_rows, pooled, shape_of

MEGAHERTZ = 250  # what a kernel of the card may expect
BATCH = 4096
SWEEPS = 10
SEED = 20
SHOWN = 36  # vectors in the picture


class Simulation(Protocol):
    """What a simulated stream of bags gave: vectors (M, D), in which cycle each lookup went in and the last
    words of each vector came out, the unit's counters by name, and the seconds it took."""

    vectors: Any
    taken_at: np.ndarray
    last_at: np.ndarray
    counters: dict[str, int]
    build_seconds: float
    run_seconds: float


# (tables as cores, table of each lookup, row of each lookup, where bags begin and end) -> what the RTL did
Simulate = Callable[[Sequence[Sequence[np.ndarray]], np.ndarray, np.ndarray, np.ndarray], Simulation]


@dataclass(frozen=True)
class Options:
    """What the demo may be asked: another log, its fields, how much of it, the shape of the tensor train."""

    logs: Sequence[str | Path] = ("movielens",)
    format: str | None = None
    user: str = "user_id"
    item: str = "item_id"
    value: str = "rating"
    lookups: int = 10_000
    columns: int = 64
    rank: int = 4


@dataclass(frozen=True)
class Fit:
    """How well one form of the item table predicts the held-out ratings."""

    name: str
    parameters: int
    rmse: float
    error: float | None = None  # relative, against the dense table


@dataclass(frozen=True)
class Run:
    """One stream of bags through the RTL."""

    name: str
    offsets: np.ndarray = field(repr=False)  # where bags begin and end among the lookups
    differing: int
    arrivals: np.ndarray = field(repr=False)  # cycles of the vectors' last words, from the first lookup taken
    off_the_model: int  # vectors whose cycle is not the one that golden.tt.cycles says
    first_products: int
    wanted_first_products: int  # by the model
    macs_a_row: int
    macs: int
    beats: int  # of a vector
    seconds: float

    @property
    def lookups(self) -> int:
        return int(self.offsets[-1])

    @property
    def cycles(self) -> int:
        return int(self.arrivals.max())

    @property
    def rows_per_cycle(self) -> float:
        """In steady state: between the first vector and the last."""
        return self._a_cycle(self.lookups - int(self.offsets[1]))

    @property
    def utilisation(self) -> float:
        """Share of multiplier slots that the lookups would have needed without reuse, in steady state."""
        return self.rows_per_cycle * self.macs_a_row / self.macs

    @property
    def port(self) -> float:
        """Share of the output port's cycles that vectors take, in steady state."""
        return self._a_cycle((len(self.arrivals) - 1) * self.beats)

    def _a_cycle(self, count: int) -> float:
        spent = self.cycles - int(self.arrivals.min())
        return count / spent if spent > 0 else 0.0

    @property
    def microseconds(self) -> float:
        return self.cycles / MEGAHERTZ


@dataclass(frozen=True)
class Demo:
    """All that the report shows."""

    source: str
    users: int
    items: int
    ratings: int
    row_modes: tuple[int, ...]
    column_modes: tuple[int, ...]
    rank: int
    fits: list[Fit]
    runs: list[Run]
    popularity: np.ndarray = field(repr=False)
    sample: np.ndarray = field(repr=False)
    sample_items: list[str]
    build_seconds: float
    serial_cycles_a_row: int | None  # SCRec's own array, tile after tile; None for a shape that it does not take

    @property
    def passed(self) -> bool:
        return all(run.differing == 0 and run.off_the_model == 0
                   and run.first_products == run.wanted_first_products for run in self.runs)


def opened(options: Options) -> tuple[Pieces, Trace, list[np.ndarray]]:
    """The log, the columns that are asked for, and cores of the shape that the item table will have, all zeros: what
    can be refused before anything is learned.

    Raises ValueError, one sentence, for a log that cannot be read or options that do not fit it.
    """
    log = open_log(options.logs, options.format, (options.user, options.item))
    trace = Trace.of(log, numbered=True, head=True)
    rows = int(_columns(trace, options)[1].max()) + 1
    row_modes, column_modes, inner = fitting(rows, options.columns, shapes.row_modes(rows),
                                             shapes.column_modes(options.columns), options.rank)
    ranks = (1, *inner, 1)
    return log, trace, [np.zeros(shape, np.float32) for shape in zip(ranks, row_modes, column_modes, ranks[1:])]


def run(options: Options, simulate: Simulate, *, config: Any, say: Callable[[str], None] = print) -> Demo:
    """Runs the whole demo, telling its steps to `say`. `config` is that of the unit that `simulate` runs.

    Raises ValueError, one sentence, for a log that cannot be read or options that do not fit it.
    """
    started = time.perf_counter()
    log, trace, _ = opened(options)
    users, items, values = _columns(trace, options)
    ratings = learn.split(users, items, values, seed=SEED)
    n_users, n_items = ratings.shape
    say(f"log        {trace.source}: {items.size:,} ratings of {n_items:,} items by {n_users:,} users{trace.note}")
    for line in log.report():
        say(line)

    model = learn.dense(ratings, columns=options.columns, sweeps=SWEEPS, seed=SEED)
    blank = np.zeros_like(model.items)
    fits = [Fit("biases only, no table", 0, model.rmse(ratings, blank)),
            Fit(f"dense table, {n_items:,} x {options.columns}", model.items.size, model.rmse(ratings))]
    say(f"learned    {fits[1].name}: RMSE {fits[1].rmse:.4f} on held-out ratings "
        f"(biases alone {fits[0].rmse:.4f})")

    new_row = reorder.by_similarity(model.items)
    tables = [_decomposed(model, ratings, new_row, options, fits, say),
              _trained(ratings, new_row, options, fits, say)]
    say(f"           {time.perf_counter() - started:.1f} s so far; now the RTL. Its simulator is built first "
        "if it is not there yet: a minute or two")

    looked_up = new_row[items[: options.lookups]]
    order = reorder.sorted_batches(looked_up, batch=BATCH)
    layout = plan(*shape_of(tables[0]), grid_log2=config.grid_log2)
    most = chunk_rows(layout, rank_max=config.rank_max, t_lines=config.t_lines, t_middle_lines=config.t_middle_lines)
    runs, sample, build_seconds = [], np.empty((0, options.columns), np.float32), 0.0
    for name, which, indices, bag in ((f"decomposed, order of the log, bags of {most}", 0, looked_up, most),
                                      (f"trained, order of the log, bags of {most}", 1, looked_up, most),
                                      (f"trained, batches of {BATCH:,} sorted, single rows", 1,
                                       order.apply(looked_up), 1)):
        offsets = np.append(np.arange(0, indices.size, bag), indices.size)
        done = simulate(tables, np.full(indices.size, which), indices, offsets)
        build_seconds = max(build_seconds, done.build_seconds)
        runs.append(_compare(name, tables[which], indices, offsets, done, config))
        say(describe(runs[-1]))
        if bag == 1:
            sample = order.restore(done.vectors)[:SHOWN]
    sample_items = _names(log, trace, options, items[:SHOWN])
    row_modes, column_modes, _ = shape_of(tables[0])
    return Demo(trace.source, n_users, n_items, items.size, row_modes, column_modes, options.rank, fits, runs,
                np.sort(np.bincount(items))[::-1], sample, sample_items, build_seconds,
                _serial_cycles(tables[0]))


def _decomposed(model: learn.Model, ratings: learn.Ratings, new_row: np.ndarray, options: Options,
                fits: list[Fit], say: Callable[[str], None]) -> list[np.ndarray]:
    """Cores of the dense table at the rank asked for, rows by similarity; the errors of others beside it."""
    n_items = ratings.shape[1]
    by_similarity = np.empty_like(model.items)
    by_similarity[new_row] = model.items
    chosen: list[np.ndarray] = []
    for rank in sorted({options.rank, 4 * options.rank, 8 * options.rank}):
        for name, table, row_of in (("rows as in the log", model.items, np.arange(n_items)),
                                    ("rows by similarity", by_similarity, new_row)):
            try:
                cores = decompose(table, shapes.row_modes(n_items), shapes.column_modes(options.columns), rank)
            except ValueError:
                if rank == options.rank:
                    raise
                continue  # a larger rank than the table has is only left out of the comparison
            if rank == options.rank:
                chosen = cores
            fits.append(Fit(f"decomposed, rank {rank}, {name}", sum(core.size for core in cores),
                            model.rmse(ratings, dense(cores)[row_of]), relative_error(table, cores)))
            say(f"decomposed rank {rank:2}, {name}: relative error {fits[-1].error:.3f}, "
                f"RMSE {fits[-1].rmse:.4f}, {fits[-1].parameters:,} values for {model.items.size:,}")
    return chosen


def _trained(ratings: learn.Ratings, new_row: np.ndarray, options: Options, fits: list[Fit],
             say: Callable[[str], None]) -> list[np.ndarray]:
    """Cores that were learned as cores, as float32."""
    model, wide = learn.tensor_train(
        ratings, row_modes=shapes.row_modes(ratings.shape[1]),
        column_modes=shapes.column_modes(options.columns), rank=options.rank, rows_of=new_row,
        sweeps=SWEEPS, seed=SEED)
    cores = [np.ascontiguousarray(core, dtype=np.float32) for core in wide]
    fits.append(Fit(f"trained in TT form, rank {options.rank}, rows by similarity",
                    sum(core.size for core in cores), model.rmse(ratings, dense(cores)[new_row])))
    say(f"trained    rank {options.rank:2}, rows by similarity: RMSE {fits[-1].rmse:.4f}, "
        f"{fits[-1].parameters:,} values")
    return cores


def describe(run_: Run) -> str:
    """A few lines on a run."""
    bits = "every bit equal" if run_.differing == 0 else f"{run_.differing:,} VECTORS DIFFER"
    model = ("every cycle as modelled" if run_.off_the_model == 0
             else f"{run_.off_the_model:,} CYCLES ARE NOT THE MODEL'S")
    return (f"RTL        {run_.name}: {run_.lookups:,} lookups in {run_.cycles:,} cycles, "
            f"{run_.microseconds:.1f} us at {MEGAHERTZ} MHz\n"
            f"           {run_.rows_per_cycle:.3f} rows per cycle, {run_.utilisation:.1%} of MAC slots, "
            f"{run_.port:.1%} of the output port, {run_.first_products:,} first products computed\n"
            f"           {bits}, {model}")


def _names(log: Pieces, trace: Trace, options: Options, items: np.ndarray) -> list[str]:
    """What people call these items: the titles of movies, what a text log has, else the ids."""
    if log.source == NAME:
        named = titles()
        return [named[item] for item in items]
    ids = trace.ids[options.item][items].tolist()
    called = texts(log, options.item)
    return [called.get(each, str(each)) for each in ids]


def _columns(trace: Trace, options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    users, items = trace.table(options.user), trace.table(options.item)
    if options.value not in trace.values:
        raise ValueError(f"{trace.source} has no value {options.value!r} to learn from; "
                         f"it has {', '.join(sorted(trace.values)) or 'none'}")
    values = trace.values[options.value]
    for name, column in ((options.user, users), (options.value, values)):
        if column.shape != items.shape:
            raise ValueError(f"{trace.source}: {name!r} has {column.shape[0]:,} entries "
                             f"and {options.item!r} {items.size:,}; the demo wants one each a sample")
    if not items.size:
        raise ValueError(f"{trace.source} has no samples")
    if options.lookups < 2:
        raise ValueError(f"lookups is {options.lookups}; it must be 2 or more")
    return users, items, values


def _compare(name: str, cores: list[np.ndarray], indices: np.ndarray, offsets: np.ndarray, done: Simulation,
             config: Any) -> Run:
    layout = plan(*shape_of(cores), grid_log2=config.grid_log2)
    wanted = pooled(cores, indices, offsets, grouped=config.grouped, layout=layout)
    found = np.ascontiguousarray(done.vectors, dtype=np.float32)
    if found.shape != wanted.shape:
        raise ValueError(f"{name}: the unit gave vectors of shape {found.shape}, not {wanted.shape}")
    differs = (found.view(np.uint32) != wanted.view(np.uint32)).any(axis=1)
    timing = cycles([layout], np.zeros(indices.size, np.int64), indices, offsets=offsets, **config.timing)
    arrivals = done.last_at - done.taken_at[0]
    return Run(name, offsets, int(differs.sum()), arrivals,
               int(np.count_nonzero(arrivals != timing.last_at - timing.taken_at[0])),
               done.counters["computed"], timing.computed, layout.macs, config.macs,
               -(-layout.dim // config.beat_words), done.run_seconds)


def _serial_cycles(cores: list[np.ndarray]) -> int | None:
    try:
        return serial.plan(*shape_of(cores)).cycles
    except ValueError:
        return None
