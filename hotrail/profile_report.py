"""A profile on the terminal and as pictures: SCRec's Fig. 6 of any log, and what a second pass found."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from gen.compress.ratio import ratios
from gen.data.profile import Profile, TableProfile
from hotrail.boundary import plain
from hotrail.report import COOL, GREEN, SOFT, WARM, plt, styled
from hotrail.terminal import console, print_table

__all__ = ["draw", "draw_together", "sentence", "show", "write"]

SHOWN = 40              # tables, the busiest
SHARES = (0.5, 0.8, 0.9, 0.99)
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
    errors = dict(zip(profile.tables, profile.extras.get("sampling_error", ())))
    busiest = sorted(profile.tables.values(), key=lambda table: -table.heat.total)[:SHOWN]
    title = (f"Tables, those of the most accesses ({len(busiest)} of {len(profile.tables)})"
             if len(busiest) < len(profile.tables) else "Tables")
    rows = ([*_cells(each, dim, rank), *([f"{errors[each.name]:.1%}"] if errors else ())] for each in busiest)
    print_table(console(150), (*HEAD, "error") if errors else HEAD, rows, title=title)


def _cells(table: TableProfile, dim: int, rank: int) -> list[str]:
    samples = np.cumsum(table.bag_samples)
    p95 = table.bag_lengths[np.searchsorted(samples, 0.95 * samples[-1])] if table.samples else 0
    longest = int(table.bag_lengths.max(initial=0))
    ratio = ratios([table.rows], dim, [rank])[0, 0]
    return [table.name, f"{table.rows:,}", f"{table.heat.touched:,}", f"{table.heat.total:,}", f"{table.pooling:.2f}",
            f"{p95:,}", f"{longest:,}", *(f"{rows:,}" for rows in table.heat.icdf(SHARES).tolist()),
            "-" if np.isnan(ratio) else f"{ratio:,.3g}"]


def write(profile: Profile, folder: Path, *, dim: int, rank: int) -> list[Path]:
    """The pictures there are."""
    made = [folder / "profile.png"]
    draw(profile, made[0], dim=dim, rank=rank)
    if "popular_bytes" in profile.extras:
        made.append(folder / "together.png")
        draw_together(profile, made[1])
    return made


def draw(profile: Profile, path: Path, *, dim: int, rank: int) -> None:
    """SCRec's Fig. 6: CDF over rows, average pooling factors, compression ratio of the whole table."""
    tables = list(profile.tables.values())
    with styled():
        figure, (cdf, pooling, ratio) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
        curves = []
        for table in tables:
            if table.rows:
                at = np.unique(np.concatenate([[0], np.geomspace(1, table.rows, 100)]))
                curves.append(100 * np.stack([at / table.rows, table.heat.cdf(at)], axis=1))
        cdf.add_collection(LineCollection(curves, color=COOL, linewidth=0.6,
                                          alpha=max(0.06, min(1.0, 12 / len(tables)))))
        cdf.set(title="Accesses on the hottest rows", xlabel="rows [%]", ylabel="accesses [%]", xlim=(-1, 101),
                ylim=(0, 101))
        _bars(pooling, np.array([table.pooling for table in tables]), WARM)
        pooling.set(title="Average pooling factor", xlabel="table", ylim=(0, None))
        _bars(ratio, ratios([table.rows for table in tables], dim, [rank])[:, 0], GREEN)
        ratio.axhline(1, color=SOFT, linewidth=0.8)
        ratio.set(title=f"Compression ratio, {dim} values per row, rank {rank}", xlabel="table", yscale="log")
        if len(tables) <= 30:
            for axis in (pooling, ratio):
                axis.set_xticks(range(len(tables)), [plain(table.name) for table in tables], rotation=90, fontsize=6)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def _bars(axes: Any, values: NDArray[np.float64], color: str) -> None:
    if len(values) > 60:        # bars narrower than a pixel vanish
        axes.vlines(np.arange(len(values)), 0, values, color, linewidth=0.7)
    else:
        axes.bar(np.arange(len(values)), values, color=color)
    axes.margins(x=0.01)


def draw_together(profile: Profile, path: Path) -> None:
    """Popular samples over memory, correlation of tables, miss ratios over a cache's size."""
    found, names = profile.extras, [plain(name) for name in profile.tables]
    with styled():
        figure, (popular, pairs, misses) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
        popular.plot(found["popular_bytes"] / 2**20, 100 * found["popular_share"], color=WARM)
        popular.set(title="Samples of rows in memory alone", xlabel="memory for the hottest rows [MB]",
                    ylabel="samples [%]", xscale="log", ylim=(0, 101))
        image = pairs.imshow(found["correlation"], vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
        pairs.set(title="Rare rows that come together")
        if len(names) <= 30:
            pairs.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
            pairs.set_yticks(range(len(names)), names, fontsize=6)
        figure.colorbar(image, ax=pairs, shrink=0.8)
        weights = np.array([float(table.heat.total) for table in profile.tables.values()])
        for key, label, color in (("static_misses", "the hottest rows, fixed", COOL), ("lru_misses", "LRU", GREEN)):
            known = ~np.isnan(found["lru_misses"]).any(axis=1)
            if known.any():
                curve = np.average(found[key][known], axis=0, weights=weights[known])
                misses.plot(100 * found["cache_shares"], 100 * curve, color=color, label=label)
        misses.set(title="Misses of a cache of each table", xlabel="its size [% of the rows touched]",
                   ylabel="accesses [%]", xscale="log", ylim=(0, 101))
        misses.legend(frameon=False)
        figure.savefig(path, dpi=160)
        plt.close(figure)
