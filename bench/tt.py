"""The TT unit's rate over shapes, from its RTL: rows per cycle in bags and by themselves, against SCRec's own array."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench import serial
from bench.data import held
from bench.framework import Row, at_least, bench, figure
from gen.compress.search import candidates
from gen.data.shapes import column_modes, row_modes
from gen.rtl.config import load
from gen.rtl.session import Session, run
from golden import tt
from golden.tt.rows import shape_of

DIMS, RANKS = (16, 32, 64, 128, 256, 512), (4, 8, 16, 32)
# Row modes of the tables that are measured; `scattered` walks them so that no first product is found again.
MODES = (16, 16, 4)
REAL_LOOKUPS = 10_000
# Bags after which the grid, which takes tiles of several at once, is again as it was.
ROUND = 4
# Rows of the bags whose rate is shown by size, short ones among full ones last.
CHUNKS: dict[str, tuple[int, ...]] = {"8": (8,), "4": (4,), "mixed": (8, 1, 8, 2, 8)}


def _cores(random: np.random.Generator, modes: tuple[int, ...], columns: tuple[int, ...], rank: int):
    ranks = (1, *[rank] * (len(modes) - 1), 1)
    return [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


def bags(count: int, *sizes: int) -> np.ndarray:
    """Where bags of `sizes` rows, over and over, begin and end among `count` lookups; the last may be shorter."""
    return np.unique(np.minimum(np.cumsum([0, *np.resize(sizes, count)]), count))


def full_bag(config: Any, cores: list[np.ndarray]) -> int:
    """Rows of this table that the unit adds up at once."""
    layout = tt.plan(*shape_of(cores), grid_log2=config.grid_log2)
    return tt.chunk_rows(layout, rank_max=config.rank_max, t_lines=config.t_lines, t_middle_lines=config.t_middle_lines)


def predict(config: Any, cores: list[np.ndarray], indices: np.ndarray, offsets: np.ndarray) -> Any:
    """The cycle model's timing of these lookups."""
    layout = tt.plan(*shape_of(cores), grid_log2=config.grid_log2)
    return tt.cycles([layout], np.zeros(len(indices), int), indices, offsets=offsets, **config.timing)


def measured(config: Any, cores: list[np.ndarray], indices: np.ndarray, offsets: np.ndarray) -> tuple[float, Session]:
    """Cycles a row in the RTL over the bags behind the first quarter of them: all that a run of these bags takes less
    what a run of the quarter would take, so that neither beginning nor end is in it.

    Raises AssertionError unless sums and cycles are the golden model's.
    """
    done = run(config, [cores], np.zeros(len(indices), int), indices, offsets)
    want = tt.pooled(cores, indices, offsets, grid_log2=config.grid_log2, grouped=config.grouped)
    assert np.array_equal(np.asarray(done.vectors).view(np.uint32), want.view(np.uint32)), "a sum is wrong"
    last_at = done.last_at - done.taken_at[0]
    assert np.array_equal(last_at, predict(config, cores, indices, offsets).last_at), "cycle model and RTL differ"
    quarter = offsets[:(len(offsets) - 1) // (4 * ROUND) * ROUND + 1]
    short = predict(config, cores, indices[:quarter[-1]], quarter).last_at[-1]
    return float(last_at[-1] - short) / (len(indices) - quarter[-1]), done


def scattered(count: int) -> np.ndarray:
    """Rows of MODES whose leading indices come back only after all 256 pairs."""
    pairs = np.arange(count) * 97 % (MODES[0] * MODES[1])
    return pairs * MODES[2] + np.arange(count) % MODES[2]


def measured_cycles(config: Any, columns: tuple[int, ...], rank: int, *, single: bool = False) -> float:
    """Cycles a row in steady state of a table of this shape, nothing reused, in full bags or single rows."""
    cores = _cores(np.random.default_rng(5), MODES, columns, rank)
    if single:
        count = 32_000 / limit(config, columns, rank)
    else:
        count = 12_000 / tt.cycles_per_row(columns, rank, lanes=config.lanes, grid_log2=config.grid_log2)
    bag = 1 if single else full_bag(config, cores)
    whole = 4 * ROUND * bag     # rows of which quarters end alike
    indices = scattered(max(1, int(np.clip(count, 256, 8192)) // whole) * whole)
    cycles, done = measured(config, cores, indices, bags(len(indices), bag))
    assert done.counters["reused"] == 0
    return cycles


def limit(config: Any, columns: tuple[int, ...], rank: int) -> float:
    """Cycles a single row takes at the output: its beats at the port, or its tiles, every n-th cycle one of a lane."""
    layout = tt.plan(MODES, columns, (1, rank, rank, 1), grid_log2=config.grid_log2)
    return max(-(-layout.dim // config.beat_words), layout.last.tiles * config.side / config.lanes)


@bench("tt")
def rows() -> Iterator[Row]:
    """Rows per cycle and MAC slots used for every D and rank, near-equal and fastest J, beside SCRec's array."""
    config = load("smartssd").cores["tt"]
    yield from _real(config)
    shapes = {(dim, rank): column_modes(dim) for dim in DIMS for rank in RANKS}
    baseline = serial.cycles_per_row([(columns, rank) for (_, rank), columns in shapes.items()])
    for (dim, rank), columns in shapes.items():
        fastest = min(candidates(1, dim, config=config, ranks=(rank,), cores=(3,)),
                      key=lambda one: (one.cycles, one.macs, sum(one.columns), one.columns)).columns
        cycles = measured_cycles(config, columns, rank)
        yield from _rates(config, f"d{dim}r{rank}", columns, rank, cycles)
        if fastest != columns:
            yield from _rates(config, f"fastest.d{dim}r{rank}", fastest, rank, measured_cycles(config, fastest, rank))
        ratio = baseline[columns, rank] / cycles
        what = f"times fewer cycles than the serial unit, bags, D {dim} as {columns}, rank {rank}"
        name = f"tt.cycles_vs_screc.d{dim}r{rank}"
        yield at_least(name, what, round(ratio, 1), "times", 60) if (dim, rank) == (64, 4) else (
            figure(name, what, round(ratio, 1), "times"))
        if rank == RANKS[0]:
            yield from _single(config, dim, rank, columns)


def _rates(config: Any, name: str, columns: tuple[int, ...], rank: int, cycles: float) -> Iterator[Row]:
    """Rows of full bags, against one a cycle or the slots of their layout, and what they use of the multipliers."""
    layout = tt.plan(MODES, columns, (1, rank, rank, 1), grid_log2=config.grid_log2)
    what, rate = f"bags, D {layout.dim} as {columns}, rank {rank}", round(1 / cycles, 4)
    used = round(100 * layout.macs / (cycles * config.macs), 1)
    most = min(1, config.lanes / layout.slots)
    yield at_least(f"tt.rows_per_cycle.{name}", f"rows per cycle, {what}", rate, "rows", round(0.99 * most, 4))
    known = f"tt.mac_util.{name}", f"MAC slots used, {what}", used, "%"
    filled = most < 1 or layout.slots == config.lanes
    yield at_least(*known, 99) if filled and layout.macs == layout.slots * config.side**4 else figure(*known)


def _single(config: Any, dim: int, rank: int, columns: tuple[int, ...]) -> Iterator[Row]:
    """Rows by themselves, against what the output lets through."""
    rate, most = 1 / measured_cycles(config, columns, rank, single=True), 1 / limit(config, columns, rank)
    what = f"single rows, D {dim} as {columns}, rank {rank}"
    yield figure(f"tt.single.rows_per_cycle.d{dim}r{rank}", f"rows per cycle, {what}", round(rate, 4), "rows")
    # Below D = 64 a lane's tiles are the limit, and first products come between them.
    yield at_least(f"tt.single.of_limit.d{dim}r{rank}", f"the same, of the {most:.4g} that output port and tiles allow",
                   round(100 * rate / most, 1), "%", 99 if dim >= 64 else 85)


def _real(config: Any) -> Iterator[Row]:
    """10,000 lookups in the order of a real log, in bags and as single rows."""
    log = held("movielens")
    indices = log.table("item_id")[:REAL_LOOKUPS]
    columns, rank = (4, 4, 4), 4
    cores = _cores(np.random.default_rng(6), row_modes(log.rows["item_id"]), columns, rank)
    what = f"D 64 as {columns}, rank {rank}, {len(indices):,} MovieLens-100K items in the log's order"
    cycles, done = measured(config, cores, indices, bags(len(indices), full_bag(config, cores)))
    yield at_least("tt.rows_per_cycle.d64r4.real", f"rows per cycle, bags of eight, {what}", round(1 / cycles, 4),
                   "rows", 0.99)
    share = done.counters["reused"] / max(1, done.counters["reused"] + done.counters["computed"])
    yield figure("tt.reuse.d64r4.real", "first products found again, MovieLens-100K as it comes, bags of eight",
                 round(100 * share, 1), "%")
    cycles, _ = measured(config, cores, indices, bags(len(indices), 1))
    most = 1 / limit(config, columns, rank)
    yield at_least("tt.single.rows_per_cycle.d64r4.real", f"rows per cycle, single rows, {what}; the output port "
                   f"allows {most:.4g}", round(1 / cycles, 4), "rows", round(0.99 * most, 4))
    for name, sizes in CHUNKS.items():
        cycles, _ = measured(config, _cores(np.random.default_rng(5), MODES, columns, rank), scattered(8192),
                             bags(8192, *sizes))
        yield at_least(f"tt.rows_per_cycle.d64r4.chunks_{name}", f"rows per cycle, D 64 as {columns}, rank {rank}, "
                       f"bags of {', '.join(map(str, sizes))} rows", round(1 / cycles, 4), "rows",
                       0.9 if name == "mixed" else 0.99)
