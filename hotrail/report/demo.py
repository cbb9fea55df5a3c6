"""The page of `hotrail demo`: a learned table, its vectors out of the RTL, and when they came."""

from pathlib import Path

import numpy as np

from gen.demo import MEGAHERTZ, Demo
from hotrail.report.page import Axis, Bars, Heat, Lines, Page, Series, Table, Text

__all__ = ["page", "write"]

POINTS = 400            # of a line
RUN_HEAD = ("stream", "lookups", "against golden", "cycles", "as modelled", "rows per cycle", "MAC slots", "port",
            "first products", f"us at {MEGAHERTZ} MHz")
FIT_HEAD = ("item table", "values", "RMSE, held out", "error against dense")


def write(demo: Demo, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(demo).write(folder)


def page(demo: Demo) -> Page:
    rows, columns = (" x ".join(map(str, modes)) for modes in (demo.row_modes, demo.column_modes))
    best = max(demo.runs, key=lambda run: run.rows_per_cycle)
    made = Page("hotrail demo", "An embedding table as tensor trains, out of the RTL",
                lead=f"{demo.source}: {demo.ratings:,} ratings of {demo.items:,} items by {demo.users:,} users. The "
                     f"item table ({demo.items:,} x {demo.fits[1].parameters // demo.items}) stands as three cores, "
                     f"rows split {rows}, columns {columns}, rank {demo.rank}.",
                facts=[("lookups", f"{sum(run.lookups for run in demo.runs):,}"),
                       ("rows per cycle", f"{best.rows_per_cycle:.3f}"), ("MAC slots used", f"{best.utilisation:.1%}")])
    made.add("Lookups through the RTL",
             Text(f"The Verilated unit {'matches' if demo.passed else 'DIFFERS from'} the golden model on "
                  f"{sum(run.lookups for run in demo.runs):,} lookups, bit for bit.", demo.passed),
             _arrivals(demo), _utilisation(demo), _vectors(demo),
             Table("Streams of lookups", RUN_HEAD, _runs(demo), key="stream", note=(
                 "A bag's vector is the sum of its rows; a single row is a bag of one. Rows per cycle, MAC slots and "
                 "port are of the steady state, between the first vector and the last; cycles count from the first "
                 "lookup handed over, pipeline latency included. MAC slots counts the multiplications that the chain "
                 "needs without reuse, port the cycles in which a beat leaves. A first product is computed only where "
                 "the lane does not hold it.")))
    if demo.serial_cycles_a_row:
        made.add("Beside SCRec's own array", Text(
            f"SCRec's own array of as many multipliers, tile after tile, takes {demo.serial_cycles_a_row} cycles per "
            f"row of this shape: {demo.serial_cycles_a_row * demo.runs[0].rows_per_cycle:.0f} times as many."))
    made.add("What the table is worth", _popularity(demo), _accuracy(demo), Table("Forms of the item table", FIT_HEAD, [
        [fit.name, f"{fit.parameters:,}" if fit.parameters else "-", f"{fit.rmse:.4f}",
         "-" if fit.error is None else f"{fit.error:.3f}"] for fit in demo.fits], key="fit", note=(
             "Decomposing a finished table loses most of it: its rows have little tensor structure. Numbering rows so "
             "that neighbours resemble each other helps, training the cores themselves helps more.")))
    return made


def _runs(demo: Demo) -> list[list[str]]:
    return [[run.name, f"{run.lookups:,}", "every bit equal" if run.differing == 0 else f"{run.differing:,} differ",
             f"{run.cycles:,}", "every one" if run.off_the_model == 0 else f"{run.off_the_model:,} not",
             f"{run.rows_per_cycle:.3f}", f"{run.utilisation:.1%}", f"{run.port:.1%}", f"{run.first_products:,}",
             f"{run.microseconds:,.1f}"] for run in demo.runs]


def _popularity(demo: Demo) -> Lines:
    counts = demo.popularity[demo.popularity > 0]
    tenth = max(1, counts.size // 10)
    at = np.unique(np.geomspace(1, counts.size, POINTS).astype(int))
    return Lines("Skew of the log", f"Lookups of each item, most asked for first; the top 10 % take "
                 f"{counts[:tenth].sum() / counts.sum():.0%} of them.", Axis("item", log=True),
                 Axis("lookups", log=True), [Series("items", list(zip(at.tolist(), counts[at - 1].tolist())))])


def _accuracy(demo: Demo) -> Bars:
    floor = min(fit.rmse for fit in demo.fits) - 0.006
    return Bars("What the item table is worth", "RMSE on held-out ratings of each form of the table; shorter is "
                f"better. The axis begins at {floor:.3f}.", Axis("RMSE", least=floor), Axis("table"),
                [Series("RMSE", [(fit.name, fit.rmse) for fit in demo.fits], "tt")], key="fit",
                labels=[fit.name for fit in demo.fits], across=True)


def _utilisation(demo: Demo) -> Bars:
    return Bars("Multipliers and port at work", "Share of the cycles of the steady state in which multipliers and "
                "output port work; reuse of first products may pass 100 %.", Axis("stream"), Axis("%", least=0),
                [Series(name, [(run.name, 100 * getattr(run, what)) for run in demo.runs], colour)
                 for name, what, colour in (("MAC slots", "utilisation", "tt"), ("port", "port", "out"))],
                key="stream", labels=[run.name for run in demo.runs])


def _arrivals(demo: Demo) -> Lines:
    series = []
    for run in demo.runs:
        at = np.unique(np.linspace(0, len(run.arrivals) - 1, POINTS).astype(int))
        series.append(Series(f"{run.name}: {run.rows_per_cycle:.3f} rows per cycle",
                             list(zip(run.arrivals[at].tolist(), run.offsets[1:][at].tolist()))))
    if demo.serial_cycles_a_row:
        reach = min(max(run.cycles for run in demo.runs), demo.serial_cycles_a_row * demo.runs[0].lookups)
        series.append(Series(f"SCRec's own array: {demo.serial_cycles_a_row} cycles per row",
                             [(0, 0), (reach, reach / demo.serial_cycles_a_row)], "top", "dashed"))
    return Lines("Rows delivered, cycle by cycle", f"Rows in the vectors that have left the unit; 1,000 cycles are "
                 f"{1000 / MEGAHERTZ:.1f} us at {MEGAHERTZ} MHz.", Axis("clock cycle"), Axis("rows"), series)


def _vectors(demo: Demo) -> Heat:
    return Heat(f"The first {len(demo.sample)} rows out of the RTL, trained in TT form", "Values of each row, column "
                "by column: one colour for positive ones, another for negative.", demo.sample_items,
                [str(k) for k in range(demo.sample.shape[1])], np.nan_to_num(demo.sample).tolist())
