"""The TT unit's rate over shapes, from its RTL: rows per cycle, MAC slots used, against SCRec's own array."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench import serial
from bench.data import held
from bench.framework import Row, at_least, bench, figure
from bench.session import Session, run
from gen.data.shapes import column_modes, fastest_column_modes, macs, row_modes
from gen.rtl.config import load
from golden import tt
from golden.tt.rows import shape_of

DIMS, RANKS = (16, 32, 64, 128, 256, 512), (4, 8, 16, 32)
# Row modes of the tables that are measured; `scattered` walks them so that no first product is found again.
MODES = (16, 16, 4)
REAL_LOOKUPS = 10_000


def _cores(random: np.random.Generator, modes: tuple[int, ...], columns: tuple[int, ...], rank: int):
    ranks = (1, *[rank] * (len(modes) - 1), 1)
    return [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


def check(config: Any, cores: list[np.ndarray], indices: np.ndarray, done: Session) -> None:
    """Raises AssertionError unless vectors and cycles are the golden model's."""
    want = tt.rows(cores, indices, grid_log2=config.grid_log2)
    assert np.array_equal(np.asarray(done.vectors).view(np.uint32), want.view(np.uint32)), "a vector is wrong"
    timing = predict(config, [cores], np.zeros(len(indices), int), indices)
    assert np.array_equal(done.last_at - done.taken_at[0], timing.last_at), "cycle model and RTL differ"


def predict(config: Any, tables: list[list[np.ndarray]], ids: np.ndarray, indices: np.ndarray) -> Any:
    """The cycle model's timing of these lookups."""
    layouts = [tt.plan(*shape_of(cores), grid_log2=config.grid_log2) for cores in tables]
    names = ("lanes", "index_bits", "t_lines", "t_middle_lines", "reuse_entries", "in_flight", "output_beats")
    return tt.cycles(layouts, ids, indices, **{name: getattr(config, name) for name in names})


def steady(config: Any, cores: list[np.ndarray], indices: np.ndarray, done: Session) -> float:
    """Cycles a row: from when the first lookup alone would be done to the last vector, a row less one."""
    alone = predict(config, [cores], np.zeros(1, int), indices[:1]).last_at[0]
    return float(done.last_at.max() - done.taken_at[0] - alone) / (len(indices) - 1)


def scattered(count: int) -> np.ndarray:
    """Rows of MODES whose leading indices come back only after all 256 pairs."""
    pairs = np.arange(count) * 97 % (MODES[0] * MODES[1])
    return pairs * MODES[2] + np.arange(count) % MODES[2]


def measured_cycles(config: Any, columns: tuple[int, ...], rank: int) -> float:
    """Cycles a row in steady state of a table of this shape, nothing reused; RTL and models compared."""
    cores = _cores(np.random.default_rng(5), MODES, columns, rank)
    expected = tt.cycles_per_row(columns, rank, lanes=config.lanes, grid_log2=config.grid_log2)
    indices = scattered(int(np.clip(12000 / expected, 128, 2048)))
    done = run(config, [cores], np.zeros(len(indices), int), indices)
    check(config, cores, indices, done)
    assert done.counters["reused"] == 0
    return steady(config, cores, indices, done)


@bench("tt")
def rows() -> Iterator[Row]:
    """Rows per cycle and MAC slots used for every D and rank, near-equal and fastest J, beside SCRec's array."""
    config = load("smartssd").cores["tt"]
    yield from _real(config)
    shapes = {(dim, rank): column_modes(dim) for dim in DIMS for rank in RANKS}
    baseline = serial.cycles_per_row([(columns, rank) for (_, rank), columns in shapes.items()])
    for (dim, rank), columns in shapes.items():
        fastest = fastest_column_modes(dim, rank, tt.cycles_per_row)
        cycles = measured_cycles(config, columns, rank)
        yield from _rates(config, f"d{dim}r{rank}", f"D {dim} as {columns}, rank {rank}",
                          macs(columns, rank), cycles)
        if fastest != columns:
            quick = measured_cycles(config, fastest, rank)
            yield from _rates(config, f"fastest.d{dim}r{rank}", f"D {dim} as {fastest}, rank {rank}",
                              macs(fastest, rank), quick)
        ratio = baseline[columns, rank] / cycles
        what = f"times fewer cycles than the serial unit, D {dim} as {columns}, rank {rank}"
        name = f"tt.cycles_vs_screc.d{dim}r{rank}"
        yield at_least(name, what, round(ratio, 1), "times", 60) if (dim, rank) == (64, 4) else (
            figure(name, what, round(ratio, 1), "times"))


def _rates(config: Any, name: str, what: str, needed: int, cycles: float) -> Iterator[Row]:
    used = needed / (cycles * config.macs)
    if needed < config.macs:
        yield at_least(f"tt.rows_per_cycle.{name}", f"rows per cycle, {what}", round(1 / cycles, 4), "rows", 0.99)
        yield figure(f"tt.mac_util.{name}", f"MAC slots used, {what}", round(100 * used, 2), "%")
        return
    least = 99 if needed % config.macs == 0 else 75
    yield figure(f"tt.rows_per_cycle.{name}", f"rows per cycle, {what}", round(1 / cycles, 4), "rows")
    yield at_least(f"tt.mac_util.{name}", f"MAC slots used, {what}", round(100 * used, 2), "%", least)


def _real(config: Any) -> Iterator[Row]:
    """10,000 lookups in the order of a real log."""
    log = held("movielens")
    indices = log.table("item_id")[:REAL_LOOKUPS]
    cores = _cores(np.random.default_rng(6), row_modes(log.rows["item_id"]), (4, 4, 4), 4)
    done = run(config, [cores], np.zeros(len(indices), int), indices)
    check(config, cores, indices, done)
    rate = 1 / steady(config, cores, indices, done)
    yield at_least("tt.rows_per_cycle.d64r4.real", f"rows per cycle, D 64 as (4, 4, 4), rank 4, {len(indices):,} "
                   "MovieLens-100K items in the log's order", round(rate, 4), "rows", 0.99)
    share = done.counters["reused"] / max(1, done.counters["reused"] + done.counters["computed"])
    yield figure("tt.reuse.d64r4.real", "first products found again, MovieLens-100K as it comes",
                 round(100 * share, 1), "%")



# Rows of a chunk: full ones, and what bags of mixed lengths leave, two short ones among five.
CHUNKS: dict[str, tuple[int, ...]] = {"8": (8,), "4": (4,), "mixed": (8, 1, 8, 2, 8), "1": (1,)}


def pooled_rate(config: Any, columns: tuple[int, ...], rank: int, sizes: tuple[int, ...]) -> float:
    """Rows per cycle in steady state of chunks of `sizes`, over and over, nothing reused.

    By the cycle model, which verif/tt/test_pooled.py holds to the RTL, cycle for cycle.
    """
    layout = tt.plan((64, 64, 16), columns, (1, rank, rank, 1), grid_log2=config.grid_log2)
    offsets = np.concatenate([[0], np.cumsum(np.resize(sizes, 3000 // int(np.mean(sizes))))])
    count = int(offsets[-1])
    # A pair of leading indices comes back after all 4,096.
    indices = np.arange(count) * 97 % 4096 * 16 + np.arange(count) % 16
    names = ("lanes", "index_bits", "t_lines", "t_middle_lines", "reuse_entries", "in_flight", "output_beats")
    timing = tt.cycles([layout], np.zeros(count, int), indices, offsets=offsets, vectors=config.vectors,
                       **{name: getattr(config, name) for name in names})
    assert timing.reused == 0
    begin, end = len(offsets) // 4, 3 * len(offsets) // 4
    return float((offsets[end] - offsets[begin]) / (timing.last_at[end - 1] - timing.last_at[begin - 1]))


@bench("tt_pooled")
def sums() -> Iterator[Row]:
    """Rows per cycle where the array adds them up, by chunk sizes; the consumer takes a beat a cycle."""
    config = load("smartssd").cores["emb"].tt
    for name, sizes in CHUNKS.items():
        rate = round(pooled_rate(config, (4, 4, 4), 4, sizes), 4)
        what = f"rows per cycle added up, D 64 as (4, 4, 4), rank 4, chunks of {', '.join(map(str, sizes))} rows"
        target = {"8": 0.99, "4": 0.99, "mixed": 0.9}.get(name)
        known = f"tt.pooled_rows_per_cycle.d64r4.chunks_{name}"
        yield figure(known, what, rate, "rows") if target is None else at_least(known, what, rate, "rows", target)
