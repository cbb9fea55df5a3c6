"""Rows that a batch asks for, and memory shared out between batch and cache, by SCARS' formulas.

Real logs: all tables of a log together, the formulas from the log's counts, beside the rows that its batches ask for,
shuffled and in the log's order. Criteo Kaggle's shape: batches drawn with its tables' correlation, against the formula;
values moved per sample in training Meta's DLRM (D = 16, activations and gradients 4,800 values per sample), coalesced
alone with the batch that is best for that, and the best split of memory. Starting a batch is taken to cost 100 us at
12 GB/s; as the paper has it, nothing.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.data import CALIBRATION, logs
from bench.framework import Row, at_most, bench, figure
from gen.base.tools import data_path
from gen.data.logs import Trace
from gen.data.logs.criteo import ClickLog
from gen.data.profile import Heat
from gen.data.profiling.criteo import criteo
from gen.data.scars import Device, Traffic, binary_search, optimum

BATCHES = (256, 4096)
DRAWN = 32                              # batches of Criteo's shape
DIM = 16
ACTIVATIONS = 2 * (512 + 256 + 64 + 16 + 26 * DIM + 367 + 512 + 256 + 1)
OVERHEAD = 300_000
MEGABYTES = (16, 64, 256, 1024, 4096)
LOG_ACTIVATIONS, LOG_OVERHEAD = 64, 1000
LOG_SHARE, LOG_SAMPLES = 0.25, 128      # the real logs' memory: a share of the rows, and so many samples


def traffic_of(log: Trace) -> Traffic:
    """By the counts of all the log."""
    return Traffic.of([Heat.of(np.bincount(indices)) for indices in log.indices.values()], log.samples)


def unique(log: Trace, batch: int, order: np.ndarray, cached: dict[str, np.ndarray] | None = None) -> float:
    """Different rows that a whole batch of the samples in this order asks for besides the cached (True), the mean."""
    count, total = len(order) // batch, 0
    for table in log.indices:
        indices, offsets = log.bags(table)
        number = np.full(len(order), -1)                                # of the batch that a sample is in
        number[order[:count * batch]] = np.repeat(np.arange(count), batch)
        owner = np.repeat(number, np.diff(offsets[:len(order) + 1]))
        left = owner >= 0 if cached is None else (owner >= 0) & ~cached[table][indices[:len(owner)]]
        total += np.unique(owner[left] * log.rows[table] + indices[:len(owner)][left]).size
    return total / count


def hottest(log: Trace, rows: int) -> dict[str, np.ndarray]:
    """Of each table, whether a row is among the `rows` likeliest of all."""
    counts = {table: np.bincount(indices, minlength=log.rows[table]) for table, indices in log.indices.items()}
    chance = np.concatenate([-np.expm1(each.sum() / log.samples * np.log1p(-each / each.sum()))
                             for each in counts.values()])
    kept = np.zeros(chance.size, bool)
    kept[np.argsort(-chance, kind="stable")[:rows]] = True
    return dict(zip(counts, np.split(kept, np.cumsum([len(each) for each in counts.values()])[:-1])))


def exhaustive(traffic: Traffic, device: Device) -> float:
    """The fewest values per sample of every batch, each with all the cache that it leaves room for."""
    return min(device.words(traffic, batch, device.room(batch)) for batch in range(1, int(device.batch(0)) + 1))


def on_logs() -> Iterator[Row]:
    """Formulas beside real logs."""
    for name, log in logs():
        traffic, samples = traffic_of(log), log.samples
        shuffled = np.random.default_rng(5).permutation(samples)
        for batch in BATCHES:
            wanted = traffic.unique(batch)
            yield figure(f"scars.unique.{name}.{batch}", f"{name}: different rows of {batch:,} samples, eq. 2", wanted,
                         "rows")
            yield at_most(f"scars.unique.{name}.{batch}.error", f"{name}: of the log shuffled, the formula is off by",
                          100 * abs(wanted / unique(log, batch, shuffled) - 1), "%", 3)
            yield figure(f"scars.unique.{name}.{batch}.order", f"{name}: in the log's order, over the formula's",
                         unique(log, batch, np.arange(samples)) / wanted, "times")
        memory = int(LOG_SHARE * DIM * sum(log.rows.values())) + LOG_SAMPLES * LOG_ACTIVATIONS
        device = Device(memory, DIM, LOG_ACTIVATIONS, LOG_OVERHEAD)
        best = optimum(traffic, device)
        yield at_most(f"scars.split.{name}", f"{name}: words of the best split ({best.cached:,} rows, batch "
                      f"{best.batch:,}) over those of every batch tried", best.words / exhaustive(traffic, device),
                      "times", 1.0001)
        moved = DIM * unique(log, best.batch, shuffled, hottest(log, best.cached)) + LOG_OVERHEAD
        measured = traffic.lookups + moved / best.batch
        yield figure(f"scars.split.{name}.words", f"{name}: values per sample, no row cached "
                     f"{device.words(traffic, int(device.batch(0)), 0):.1f}", best.words, "values")
        yield at_most(f"scars.split.{name}.error", f"{name}: of the words of the log shuffled, the formula is off by",
                      100 * abs(best.words / measured - 1), "%", 3)


def drawn(log: ClickLog, batch: int) -> float:
    """Different rows of a batch, all tables together, the mean of the batches drawn."""
    found = [sum(np.unique(column).size for column in block[start:start + batch].T)
             for block in log.ranks(DRAWN * batch) for start in range(0, len(block) - batch + 1, batch)]
    return float(np.mean(found))


@bench("scars")
def rows() -> Iterator[Row]:
    """SCARS' formulas against real and drawn logs, and the memory that they share out."""
    yield from on_logs()
    path = data_path(CALIBRATION)
    if path is None:
        return
    profile = criteo(path)
    traffic = Traffic.of([table.heat for table in profile.tables.values()], profile.samples)
    for batch in BATCHES:
        mean = drawn(ClickLog(path, seed=3), batch)
        yield at_most(f"scars.unique.criteo.{batch}", f"Criteo's shape: of {mean:,.0f} different rows of {batch:,} "
                      "samples drawn, the formula is off by", 100 * abs(traffic.unique(batch) / mean - 1), "%", 1)
    for megabytes in MEGABYTES:
        device = Device(megabytes << 18, DIM, ACTIVATIONS, OVERHEAD)
        start = time.perf_counter()
        best = optimum(traffic, device)
        seconds = time.perf_counter() - start
        what = f"Criteo's shape, {megabytes:,} MB"
        free = optimum(traffic, replace(device, overhead=0))
        whole = int(device.batch(0))
        yield figure(f"scars.criteo.{megabytes}", f"{what}: values per sample, {best.cached:,} rows cached, batch "
                     f"{best.batch:,} (rows as they come {traffic.lookups * (1 + DIM):.0f})", best.words, "values")
        yield figure(f"scars.criteo.{megabytes}.coalesced", f"{what}: no row cached, batch {whole:,}",
                     device.words(traffic, whole, 0), "values")
        yield figure(f"scars.criteo.{megabytes}.free", f"{what}: batch where starting one costs nothing", free.batch,
                     "samples")
        yield figure(f"scars.criteo.{megabytes}.binary", f"{what}: binary search over the best",
                     binary_search(traffic, device).words / best.words, "times")
        yield at_most(f"scars.criteo.{megabytes}.gap", f"{what}: proven within", 100 * best.gap, "%", 0.01)
        yield figure(f"scars.criteo.{megabytes}.s", f"{what}: found in", seconds, "s")
