"""What the source papers show of their logs, and what follows from it alone: skew, pooling, distinct rows, footprints.

Criteo Kaggle's shape and the statistics of MELS, in formulas; no card. SCRec Fig. 6, Hotline Fig. 2.2, EL-Rec Fig. 4,
14 and table 3, SCARS Fig. 4, tables 3 and 4 and §II, frequency-aware cache Fig. 2, 7 and 9. docs/papers.md has each
beside the paper's reading.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure
from bench.plan import STATISTICS, TABLES
from gen.data.logs.criteo import ClickLog
from gen.data.profile import Heat, Profile
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import mels
from gen.data.scars import Traffic
from gen.data.shapes import column_modes, row_modes
from gen.model.recommender import Recommender

HOTTEST = (0.1, 1, 10)                      # per cent of all rows
BATCHES = (1024, 2048, 4096, 8192)          # of EL-Rec Fig. 4(b)
STEP_BATCH = 4096                           # of its other figures
LOGGED = (512, 4096)                        # thousand rows of Hotline's logger
#: EL-Rec's ranks on the T4 and on the V100, columns as hotrail cuts them; and cut so that the middle core is largest.
TRAINS = {"r64": ((2, 2, 4), 64), "r128": ((2, 2, 4), 128), "r128.middle": ((2, 4, 2), 128)}
DECOMPOSED = 1_000_000                      # rows above which EL-Rec decomposes a table
AVAZU = (7, 7, 4737, 7745, 26, 8552, 559, 36, 2_686_408, 6_729_486, 8251, 5, 4, 2626, 8, 9, 435, 4, 68, 172, 60)
TERABYTE = {"r128": ((4, 4, 4), 128)}
TERABYTE_DIM, CACHE_DIM = 64, 128           # of SCARS and of the frequency-aware cache
PORTION, PORTIONS, MINI_BATCH = 128 << 20, 4, 1024      # bytes, of SCARS Fig. 4
CACHE_BATCH, CACHED = 16_384, (0.1, 0.5, 1, 1.5, 2, 5, 10)      # samples, and per cent of the rows
GROWTH, RANKED, SCALED_BATCH = 5, 1_000_000, 2048       # of SCARS §II
LAWS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "zipf": lambda x: 1 / x, "exponential": lambda x: np.exp(-x), "normal": lambda x: np.exp(-x * x)}
WIDTH = 20                                  # of a law that widens with the rows: one in so many of them
#: For the least growth by Zipf's law: rows and batches before.
ZIPF_ROWS, ZIPF_BATCHES = (10**3, 10**4, 10**5), (128, 2048, 32_768, 262_144)
STEP_BATCHES = (2048, 4096, 8192, 16_384)   # of SCARS tables 3 to 5
MASS = 1e-9                                 # one access in a billion


def train_values(rows: int, columns: tuple[int, ...], rank: int) -> int:
    """Values of a table's tensor train of three cores. columns: their factors of D."""
    modes, ranks = row_modes(rows), (1, rank, rank, 1)
    return sum(ranks[k] * modes[k] * columns[k] * ranks[k + 1] for k in range(3))


def footprint(tables: Sequence[int], columns: tuple[int, ...], rank: int) -> tuple[float, float]:
    """(MB, times smaller) where tables of more than a million rows are tensor trains."""
    dim = prod(columns)
    values = sum(train_values(rows, columns, rank) if rows > DECOMPOSED else rows * dim for rows in tables)
    return 4e-6 * values, sum(tables) * dim / values


def products(ranks: NDArray[np.int64], rows: int, columns: tuple[int, ...], rank: int, off: str = "") -> int:
    """Multiplications of a training step of a TT table, as gen.compress.torch_bag takes them: a distinct row once
    (forward), rows of equal first index pair share its product, slopes of equal rows and of equal products are summed
    before they go on. ranks: rows of the lookups. off: reuse of products, aggregation of slopes, or all."""
    distinct, pairs = len(np.unique(ranks)), len(np.unique(ranks // row_modes(rows)[2]))
    first, last = prod(columns[:2]) * rank * rank, prod(columns) * rank
    forward = (len(ranks), len(ranks)) if off == "all" else (distinct, distinct if off == "reuse" else pairs)
    backward = (len(ranks), len(ranks)) if off in ("all", "aggregation") else (distinct, pairs)
    return (forward[0] + 2 * backward[0]) * last + (forward[1] + 2 * backward[1]) * first


def ablation(log: ClickLog) -> Iterator[Row]:
    """EL-Rec Fig. 14: each optimisation off, in multiplications, not in time."""
    block, (columns, rank) = next(log.ranks(STEP_BATCH)), TRAINS["r64"]
    large = [table for table, rows in enumerate(log.rows) if rows > DECOMPOSED]
    found = {off: sum(products(block[:, table], log.rows[table], columns, rank, off) for table in large)
             for off in ("", "reuse", "aggregation", "all")}
    found["order"] = sum(products(log.row(table, block[:, table]), log.rows[table], columns, rank) for table in large)
    for off, said in (("reuse", "no reuse of first products"), ("aggregation", "no aggregation of slopes"),
                      ("order", "rows in a random order"), ("all", "neither reuse nor aggregation")):
        yield figure(f"papers.elrec.fig14.criteo.{off}", f"Criteo Kaggle's tables of more than a million rows, rank "
                     f"{rank}, batches of {STEP_BATCH:,}, rows by frequency: multiplications of a training step with "
                     f"{said} over those with all", round(found[off] / found[""], 2), "times")


def together(profile: Profile) -> Heat:
    """Of the rows of all tables."""
    heats = [table.heat for table in profile.tables.values()]
    return Heat.joined(np.concatenate([heat.accesses for heat in heats]), np.concatenate([heat.rows for heat in heats]))


def meta() -> Iterator[Row]:
    """SCRec Fig. 6."""
    for year in TABLES:
        profile, id = mels(needed(STATISTICS.format(year))), f"papers.screc.fig6.{year}"
        tables, heat = list(profile.tables.values()), together(profile)
        what = f"MELS {year}, {len(tables)} tables"
        yield figure(f"{id}.pooling", f"{what}: average pooling factor",
                     round(float(np.mean([table.pooling for table in tables])), 2), "rows")
        yield figure(f"{id}.pooling.max", f"{what}: largest average pooling factor",
                     round(max(table.pooling for table in tables), 1), "rows")
        for share in HOTTEST[1:]:
            yield figure(f"{id}.hottest{share}", f"{what}: accesses to the hottest {share} % of the rows touched",
                         round(100 * float(heat.cdf(heat.touched * share / 100)), 1), "%")
        ratios = [table.rows * 64 / train_values(table.rows, column_modes(64), 4) for table in tables]
        yield figure(f"{id}.smaller", f"{what}: a table's bytes over its tensor train's, D 64, rank 4, the median",
                     round(float(np.median(ratios))), "times")


def footprints(kaggle_rows: Sequence[int]) -> Iterator[Row]:
    """EL-Rec table 3. Terabyte's tables are those of MLPerf, ids modulo 40 million rows."""
    terabyte = [spec.rows for spec in Recommender.load("criteo_terabyte").tables.values()]
    for name, tables, forms in (("avazu", AVAZU, TRAINS), ("kaggle", kaggle_rows, TRAINS),
                                ("terabyte", terabyte, TERABYTE)):
        for form, (columns, rank) in forms.items():
            size, ratio = footprint(tables, columns, rank)
            said = f"{name}, tables of more than a million rows as tensor trains of {columns} columns, rank {rank}"
            yield figure(f"papers.elrec.table3.{name}.{form}", f"{said}: all tables", round(size, 1), "MB")
            yield figure(f"papers.elrec.table3.{name}.{form}.times", f"{said}: times smaller", round(ratio, 2), "times")


def kaggle(profile: Profile, log: ClickLog) -> Iterator[Row]:
    """Hotline Fig. 2.2; EL-Rec Fig. 4, 14 and table 3; SCARS Fig. 4, tables 3 and 4; cache Fig. 2, 7 and 9."""
    heat, all_rows, what = together(profile), sum(log.rows), "Criteo Kaggle's shape"
    for share in HOTTEST:
        yield figure(f"papers.elrec.fig4.criteo.hottest{share:g}", f"{what}: accesses to the hottest {share:g} % of "
                     "the rows", round(100 * float(heat.cdf(all_rows * share / 100)), 1), "%")
    for thousands in LOGGED:
        hot, taken = 1024 * thousands, float(heat.cdf(1024 * thousands))
        yield figure(f"papers.hotline.fig22.criteo.{thousands}k", f"{what}: accesses of one of the hottest "
                     f"{thousands:,} k rows over those of one of the others, means",
                     round(taken / hot / ((1 - taken) / (all_rows - hot))), "times")
    traffic = Traffic.of([table.heat for table in profile.tables.values()], profile.samples)
    for batch in BATCHES:
        yield figure(f"papers.elrec.fig4.criteo.unique.{batch}", f"{what}: distinct rows of a table in {batch:,} "
                     "samples, the mean of the tables", round(traffic.unique(batch) / len(log.tables)), "rows")
    yield from footprints(log.rows)
    yield from ablation(log)
    ranks, rows = next(log.ranks(256 * MINI_BATCH)), PORTION // (4 * TERABYTE_DIM)
    ends = [log.hottest(portion * rows) for portion in range(PORTIONS + 1)]
    for portion, (low, high) in enumerate(zip(ends, ends[1:]), 1):
        asked = ((ranks >= low) & (ranks < high)).any(axis=1).mean()
        yield figure(f"papers.scars.fig4.{portion}", f"{what}, D {TERABYTE_DIM}: samples that use the {portion}. 128 "
                     "MB of the hottest rows", round(100 * float(asked), 1), "% of samples")
    first = STEP_BATCHES[0]
    for name, cached in (("table4", 0), ("table3", 2 * rows)):
        for batch in STEP_BATCHES[1:]:
            grown = traffic.unique(batch, cached) / traffic.unique(first, cached)
            yield figure(f"papers.scars.{name}.unique.{batch}", f"{what}, D {TERABYTE_DIM}: distinct rows of {batch:,} "
                         f"samples over those of {first:,} by eq. 2, {4e-6 * cached * TERABYTE_DIM:.0f} MB cached",
                         round(grown, 2), "times")
    found = int(heat.icdf(0.9))
    yield figure("papers.cache.fig2.criteo", f"{what}: the fewest rows that take 90 % of the accesses",
                 round(100 * found / all_rows, 3), "% of rows")
    block = CACHE_BATCH * len(log.tables)
    for share in CACHED:
        cached = round(all_rows * share / 100)
        yield figure(f"papers.cache.fig9.criteo.{share:g}", f"{what}, batches of {CACHE_BATCH:,}, the hottest {share:g}"
                     " % of the rows cached: rows to move", round(100 * traffic.unique(CACHE_BATCH, cached) / block, 2),
                     "% of lookups")
    cached = round(all_rows * 0.015)
    yield figure("papers.cache.fig7.criteo.saved", f"{what}, D {CACHE_DIM}: memory of the tables that a cache of 1.5 % "
                 f"and room for all rows of {CACHE_BATCH:,} samples save",
                 round(100 * (1 - (cached + block) / all_rows), 1), "%")


def unique(chance: NDArray[np.float64], batch: int) -> float:
    return Traffic(chance / chance.sum(), np.ones(len(chance), np.int64), 1.0).unique(batch)


def grown(weight: Callable[[NDArray[np.float64]], NDArray[np.float64]], rows: int, batch: int,
          widths: tuple[float, float] = (1, 1), index: int = 0) -> float:
    """What GROWTH times the rows and the batch move over what they move before, by eq. 2. widths: ranks over them are
    the law's argument; index: what a lookup's index costs beside a row, eq. 3 has 1."""
    before, after = (unique(weight(np.arange(1.0, times * rows + 1) / width), times * batch) + index * times * batch
                     for times, width in zip((1, GROWTH), widths, strict=True))
    return round(after / before, 2)


def growth() -> Iterator[Row]:
    """SCARS §II: what five times the rows and five times the batch move, and on how many rows a law puts a chance
    of MASS and more."""
    for name, weight in LAWS.items():
        id, what = f"papers.scars.growth.{name}", f"rows by rank, {name}, {RANKED:,} rows"
        grows = f"{what} and batches of {SCALED_BATCH:,}, then five times both: "
        yield figure(id, f"{grows}rows moved per batch over those before", grown(weight, RANKED, SCALED_BATCH), "times")
        yield figure(f"{id}.indices", f"{grows}rows and indices of a batch over those before, by eq. 3",
                     grown(weight, RANKED, SCALED_BATCH, index=1), "times")
        if name != "zipf":
            wide = (RANKED / WIDTH, GROWTH * RANKED / WIDTH)
            yield figure(f"{id}.wide", f"{grows}rows moved per batch over those before, where the law's width is a "
                         f"{WIDTH}th of the rows", grown(weight, RANKED, SCALED_BATCH, wide), "times")
        small = weight(np.arange(1.0, RANKED + 1))
        yield figure(f"{id}.rows", f"{what}: those that a lookup asks for with a chance of {MASS:g} and more",
                     int((small / small.sum() >= MASS).sum()), "rows")
    least = min(grown(LAWS["zipf"], rows, batch) for rows in ZIPF_ROWS for batch in ZIPF_BATCHES)
    yield figure("papers.scars.growth.zipf.least", f"the least of Zipf's law over {ZIPF_ROWS[0]:,} to {ZIPF_ROWS[-1]:,}"
                 f" rows and batches of {ZIPF_BATCHES[0]} to {ZIPF_BATCHES[-1]:,} before", least, "times")


@bench("papers_data")
def rows() -> Iterator[Row]:
    """What the papers show of their logs: skew, pooling, distinct rows, footprints, by formulas."""
    path = needed(CALIBRATION)
    yield from meta()
    yield from kaggle(criteo(path), ClickLog(path))
    yield from growth()
