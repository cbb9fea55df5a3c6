"""A profile on the terminal and as a page: SCRec's Fig. 6 of any log, and what a second pass found."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gen.compress.ratio import ratios
from gen.data.profile import Profile, TableProfile
from hotrail.report.page import Axis, Bars, Chart, Heat, Lines, Page, Part, Series, Table
from hotrail.terminal import console, print_table

SHOWN = 40              # tables on the terminal, the busiest
CURVES = 8              # tables with a line of their own
PAIRS, DRAWN = 200, 40  # of tables whose rare rows come together; tables that are drawn as a matrix
SHARES = (0.5, 0.8, 0.9, 0.99)
PLACES = np.geomspace(1e-4, 1, 49)      # shares of a table's rows
HEAD = ("table", "rows", "touched", "accesses", "pooling", "p95", "longest", *(f"{share:.0%} on" for share in SHARES),
        "TT ratio")


def sentence(profile: Profile) -> str:
    tables = profile.tables.values()
    told = (f"{profile.source}: {profile.samples:,} samples, {len(tables)} tables, "
            f"{sum(table.heat.total for table in tables):,} accesses to "
            f"{sum(table.heat.touched for table in tables):,} of {sum(table.rows for table in tables):,} rows")
    return told if profile.sampled == 1 else f"{told}; {profile.sampling()}"


def show(profile: Profile, *, dim: int, rank: int) -> None:
    """What is known of every table, the busiest first; the fewest rows that take so many accesses."""
    head, rows = _rows(profile, dim, rank)
    title = (f"Tables, those of the most accesses ({SHOWN} of {len(rows)})" if len(rows) > SHOWN else "Tables")
    print_table(console(150), head, rows[:SHOWN], title=title)


def _rows(profile: Profile, dim: int, rank: int) -> tuple[tuple[str, ...], list[list[str]]]:
    """Head and rows of the table of tables, the busiest first."""
    errors = dict(zip(profile.tables, profile.extras.get("sampling_error", ())))
    rows = [[*_cells(each, dim, rank), *([f"{errors[each.name]:.1%}"] if errors else ())] for each in _busiest(profile)]
    return (*HEAD, "error") if errors else HEAD, rows


def _busiest(profile: Profile) -> list[TableProfile]:
    return sorted(profile.tables.values(), key=lambda table: -table.heat.total)


def _cells(table: TableProfile, dim: int, rank: int) -> list[str]:
    samples = np.cumsum(table.bag_samples)
    p95 = table.bag_lengths[np.searchsorted(samples, 0.95 * samples[-1])] if table.samples else 0
    longest = int(table.bag_lengths.max(initial=0))
    ratio = ratios([table.rows], dim, [rank])[0, 0]
    return [table.name, f"{table.rows:,}", f"{table.heat.touched:,}", f"{table.heat.total:,}", f"{table.pooling:.2f}",
            f"{p95:,}", f"{longest:,}", *(f"{rows:,}" for rows in table.heat.icdf(SHARES).tolist()),
            "-" if np.isnan(ratio) else f"{float(f'{ratio:.3g}'):,g}"]


def write(profile: Profile, folder: Path, *, dim: int, rank: int) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(profile, dim=dim, rank=rank).write(folder)


def page(profile: Profile, *, dim: int, rank: int) -> Page:
    tables = profile.tables.values()
    accesses, touched = (sum(getattr(table.heat, what) for table in tables) for what in ("total", "touched"))
    made = Page("hotrail profile", profile.source, lead=f"{sentence(profile)}.", facts=[
        ("samples", f"{profile.samples:,}"), ("tables", f"{len(tables):,}"),
        ("accesses", f"{accesses:,}"), ("rows", f"{sum(table.rows for table in tables):,}"),
        ("rows touched", f"{touched:,}")])
    made.add("Skew", _skew(profile), *_bars(profile, dim, rank))
    if "popular_bytes" in profile.extras:
        made.add("Rows together", *_together(profile))
    head, rows = _rows(profile, dim, rank)
    made.add("Tables", Table("Tables, the most accessed first", head, rows, key="table", note=(
        "Pooling, p95, longest: rows that a sample looks up. 90 % on: rows that take 90 % of the accesses. TT ratio: "
        f"of the whole table, {dim} values per row, rank {rank}.")))
    return made


def _skew(profile: Profile) -> Chart:
    """SCRec's Fig. 6, left."""
    busiest = [table for table in _busiest(profile) if table.rows]
    curves = np.array([100 * table.heat.cdf(PLACES * table.rows) for table in busiest]).reshape(-1, len(PLACES))
    low, middle, high = (_points(np.quantile(curves, at, axis=0)) if busiest else [] for at in (0.1, 0.5, 0.9))
    band = [Series("a tenth of the tables below", low, "soft", "dashed"),
            Series("a tenth of the tables above", high, "soft", "band"), Series("half of the tables", middle, "ink")]
    own = [Series(table.name, _points(curve)) for table, curve in zip(busiest[:CURVES], curves)]
    return Lines("Accesses on the hottest rows", "Share of a table's accesses that its most accessed rows take: the "
                 f"{len(own)} busiest tables{', and the spread of all' if len(busiest) > CURVES else ''}.",
                 Axis("% of the rows", "%", log=True), Axis("% of the accesses", "%", least=0, most=100),
                 [*(band if len(busiest) > CURVES else ()), *own], wide=True)


def _points(curve: NDArray[np.float64]) -> list[tuple[float, float]]:
    return list(zip((100 * PLACES).tolist(), curve.tolist()))


def _bars(profile: Profile, dim: int, rank: int) -> list[Chart]:
    """SCRec's Fig. 6, middle and right."""
    names = [table.name for table in profile.tables.values()]
    found = ratios([table.rows for table in profile.tables.values()], dim, [rank])[:, 0].tolist()
    pooling = [table.pooling for table in profile.tables.values()]
    return [Bars("Average pooling factor", "Rows of each table that a sample looks up, on average.", Axis("table"),
                 Axis("rows per sample", "rows", least=0), [Series("pooling factor", list(zip(names, pooling)))],
                 key="table", labels=names),
            Bars("Compression by tensor trains", f"Values of each whole table over those of its cores, {dim} values "
                 f"per row, rank {rank}. Below 1 a tensor train is larger than its table.", Axis("table"),
                 Axis("compression ratio", "times", log=True),
                 [Series("ratio", [(name, ratio) for name, ratio in zip(names, found) if ratio == ratio], "tt")],
                 key="table", labels=names)]


def _together(profile: Profile) -> list[Part]:
    """Popular samples over memory, miss ratios over a cache's size, tables whose rare rows come together."""
    found, names = profile.extras, list(profile.tables)
    weights = np.array([float(table.heat.total) for table in profile.tables.values()])
    known = ~np.isnan(found["lru_misses"]).any(axis=1)
    misses = []
    for key, label in (("static_misses", "the hottest rows, fixed"), ("lru_misses", "LRU")):
        if known.any():
            curve = 100 * np.average(found[key][known], axis=0, weights=weights[known])
            misses.append(Series(label, list(zip((100 * found["cache_shares"]).tolist(), curve.tolist()))))
    popular = [(size / 2**20, 100 * share)
               for size, share in zip(found["popular_bytes"].tolist(), found["popular_share"].tolist()) if size]
    first, second = np.triu_indices(len(names), 1)
    strength = found["correlation"][first, second]
    order = np.argsort(-np.abs(np.nan_to_num(strength)), kind="stable")[:PAIRS]
    pairs = [[names[first[k]], names[second[k]], f"{strength[k]:.3f}"] for k in order.tolist()]
    charts: list[Part] = [
        Lines("Samples of rows in memory alone", "Share of the samples all of whose rows are among the hottest, over "
              "the memory that these take.", Axis("MB for the hottest rows", "MB", log=True),
              Axis("% of the samples", "%", least=0, most=100), [Series("samples", popular)]),
        Lines("Misses of a cache of each table", "Share of the accesses that miss a cache, over its size.",
              Axis("% of the rows touched", "%", log=True), Axis("% of the accesses", "%", least=0, most=100), misses)]
    if len(names) <= DRAWN:
        charts.append(Heat("Rare rows that come together", "Correlation of tables in the samples where their rare rows "
                           "occur.", names, names, np.nan_to_num(found["correlation"]).tolist()))
    return [*charts, Table(f"Tables whose rare rows come together, the {len(pairs)} strongest of {len(first):,} pairs",
                           ("table", "and table", "correlation"), pairs, left=2)]
