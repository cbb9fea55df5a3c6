"""The demo's report: one picture and one HTML page that needs no other file."""

import base64
import html
from collections.abc import Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws to files on machines without a screen
import matplotlib.pyplot as plt
import numpy as np

from gen.demo import MEGAHERTZ, Demo

INK, SOFT, WARM, COOL, GREEN = "#22262b", "#8a929c", "#d1495b", "#2e6f95", "#3a7d44"


def styled():
    """How all pictures look, as a context."""
    return plt.rc_context({"font.size": 9, "axes.edgecolor": SOFT, "axes.labelcolor": INK, "axes.titlesize": 10,
                           "axes.titleweight": "bold", "axes.titlelocation": "left", "text.color": INK,
                           "axes.spines.top": False, "axes.spines.right": False,
                           "text.parse_math": False})   # a name with dollar signs is no formula


def page(title: str, body: str, style: str = "") -> str:
    """An HTML page around `body`, as text; style: more of it."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: {INK};
       max-width: 68rem; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.1rem; margin-top: 2rem }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }}
td, th {{ text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #dde1e6 }}
td:first-child, th:first-child {{ text-align: left; padding-left: 0 }}
img {{ width: 100%; margin-top: 1rem }}
{style}</style></head><body>
{body}</body></html>
"""


def row(cells: Iterable[str], tag: str = "td") -> str:
    """A row of a table; cells are HTML."""
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def inline(picture: bytes, alt: str) -> str:
    """A PNG inside the page."""
    return f'<img alt="{html.escape(alt)}"\n src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


def write(demo: Demo, folder: Path) -> Path:
    """Writes demo.png and index.html into `folder`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "demo.png"
    draw(demo, picture)
    path = folder / "index.html"
    path.write_text(render(demo, picture.read_bytes()), encoding="utf-8")
    return path


def draw(demo: Demo, path: Path) -> None:
    """Four panels: who is asked for, how good the table is, the vectors that came out, and when."""
    with styled():
        figure = plt.figure(figsize=(12.5, 8.4), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=(1, 1.2), hspace=0.04)
        heat, error = above.subplots(1, 2, width_ratios=(1, 1.2))
        vectors, time = below.subplots(1, 2, width_ratios=(1, 1))
        _draw_popularity(heat, demo)
        _draw_accuracy(error, demo)
        _draw_vectors(below, vectors, demo)
        _draw_arrivals(time, demo)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


def _draw_popularity(axis, demo: Demo) -> None:
    counts = demo.popularity[demo.popularity > 0]
    share = np.cumsum(counts) / counts.sum()
    tenth = max(1, counts.size // 10)
    axis.loglog(np.arange(1, counts.size + 1), counts, color=COOL, lw=1.8)
    axis.axvline(tenth, color=WARM, lw=1, ls=":")
    axis.annotate(f"the top 10 % of items take\n{share[tenth - 1]:.0%} of the lookups",
                  (tenth, counts[tenth - 1]), xytext=(0.08, 0.2), textcoords="axes fraction", color=WARM,
                  arrowprops={"arrowstyle": "-", "color": WARM, "lw": 0.8})
    axis.set(title=f"Skew of the log: {demo.source}", xlabel="item, most asked for first", ylabel="lookups")


def _draw_accuracy(axis, demo: Demo) -> None:
    fits = demo.fits
    colours = [SOFT if fit.parameters == 0 else COOL if fit.name.startswith("dense")
               else GREEN if fit.name.startswith("trained") else WARM for fit in fits]
    places = np.arange(len(fits))[::-1]
    floor = min(fit.rmse for fit in fits) - 0.006
    axis.barh(places, [fit.rmse - floor for fit in fits], left=floor, color=colours, height=0.66)
    for place, fit in zip(places, fits):
        note = f"{fit.rmse:.4f}"
        if fit.parameters:
            note += f"   {fit.parameters:,} values"
        if fit.error is not None:
            note += f",  error {fit.error:.2f}"
        axis.text(fit.rmse + 0.0006, place, note, va="center", fontsize=8)
    axis.set_yticks(places, [fit.name for fit in fits], fontsize=8)
    axis.set_xlim(floor, max(fit.rmse for fit in fits) + 0.026)
    axis.set(title="What the item table is worth (shorter is better)", xlabel="RMSE on held-out ratings")


def _draw_vectors(figure, axis, demo: Demo) -> None:
    limit = float(np.abs(demo.sample[np.isfinite(demo.sample)]).max() or 1)
    image = axis.imshow(demo.sample, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit,
                        interpolation="nearest")
    names = [name if len(name) < 30 else name[:28] + "..." for name in demo.sample_items]
    axis.set_yticks(np.arange(len(names)), names, fontsize=6.5)
    axis.set(title=f"The first {len(demo.sample)} rows out of the RTL (trained in TT form)",
             xlabel=f"column, 0 to {demo.sample.shape[1] - 1}")
    figure.colorbar(image, ax=axis, pad=0.01, fraction=0.04)


def _draw_arrivals(axis, demo: Demo) -> None:
    for run, colour, style in zip(demo.runs, (WARM, GREEN, COOL), ("-", "--", ":")):
        axis.plot(run.arrivals, run.offsets[1:], color=colour, ls=style, lw=1.8,
                  label=f"{run.name}: {run.rows_per_cycle:.3f} rows per cycle")
    lookups = demo.runs[0].lookups
    reach = max(run.cycles for run in demo.runs)
    if demo.serial_cycles_a_row:
        axis.plot([0, reach], [0, reach / demo.serial_cycles_a_row], color=SOFT, lw=1.2,
                  label=f"SCRec's own array, one tile after another: {demo.serial_cycles_a_row} cycles per row")
    axis.set_ylim(0, lookups * 1.04)
    axis.set_xlim(0, reach * 1.02)
    above = axis.secondary_xaxis("top", functions=(lambda c: c / MEGAHERTZ, lambda t: t * MEGAHERTZ))
    above.set_xlabel(f"microseconds at {MEGAHERTZ} MHz")
    axis.set(title="Rows delivered, cycle by cycle", xlabel="clock cycle", ylabel="rows in the vectors out")
    axis.legend(frameon=False, fontsize=8, loc="upper left")


def render(demo: Demo, picture: bytes) -> str:
    """The page as text; `picture` is a PNG that is put inside."""
    def text(value: object) -> str:
        return html.escape(str(value))

    fits = "\n".join(row([text(fit.name), f"{fit.parameters:,}" if fit.parameters else "-", f"{fit.rmse:.4f}",
                          "-" if fit.error is None else f"{fit.error:.3f}"]) for fit in demo.fits)
    runs = "\n".join(row([
        text(run.name), f"{run.lookups:,}",
        "every bit equal" if run.differing == 0 else f"<b>{run.differing:,} differ</b>",
        f"{run.cycles:,}",
        "every one" if run.off_the_model == 0 else f"<b>{run.off_the_model:,} not</b>",
        f"{run.rows_per_cycle:.3f}", f"{run.utilisation:.1%}", f"{run.port:.1%}", f"{run.first_products:,}",
        f"{run.microseconds:,.1f}"]) for run in demo.runs)
    verdict = "matches" if demo.passed else "DIFFERS from"
    modes = " x ".join(map(str, demo.row_modes)), " x ".join(map(str, demo.column_modes))
    serial = ""
    if demo.serial_cycles_a_row:
        serial = (f"<p>SCRec's own array of as many multipliers, tile after tile, takes "
                  f"{demo.serial_cycles_a_row} cycles per row of this shape: "
                  f"{demo.serial_cycles_a_row * demo.runs[0].rows_per_cycle:.0f} times as many.</p>\n")
    verdict_style = f".verdict {{ color: {GREEN if demo.passed else WARM}; font-weight: 600 }}\n"
    return page("hotrail demo", f"""<h1>An embedding table as tensor trains, out of the RTL</h1>
<p>{text(demo.source)}: {demo.ratings:,} ratings of {demo.items:,} items by {demo.users:,} users.
The item table ({demo.items:,} x {demo.fits[1].parameters // demo.items}) stands as three cores,
rows split {modes[0]}, columns {modes[1]}, rank {demo.rank}.
<span class="verdict">The Verilated unit {verdict} the golden model
on {sum(run.lookups for run in demo.runs):,} lookups, bit for bit.</span></p>
{inline(picture, "skew of the log, accuracy of each table, vectors, deliveries by cycle")}
<h2>Lookups through the RTL</h2>
<table>{row(["stream", "lookups", "against golden", "cycles", "as modelled", "rows per cycle", "MAC slots", "port",
             "first products", f"us at {MEGAHERTZ} MHz"], "th")}
{runs}</table>
<p>A bag's vector is the sum of its rows; a single row is a bag of one. Rows per cycle, MAC slots and port are of
the steady state, between the first vector and the last; cycles count from the first lookup handed over, pipeline
latency included. MAC slots counts the multiplications that the chain needs without reuse, port the cycles in which a
beat leaves. A first product is computed only where the lane does not hold it.</p>
{serial}<h2>What the table is worth</h2>
<table>{row(["item table", "words", "RMSE, held out", "error against dense"], "th")}
{fits}</table>
<p>Decomposing a finished table loses most of it: its rows have little tensor structure. Numbering rows so
that neighbours resemble each other helps, training the cores themselves helps more.</p>
""", verdict_style)
