"""The report of `hotrail hotline`: one picture and one HTML page that needs no other file."""

import html
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws to files on machines without a screen
import matplotlib.pyplot as plt
import numpy as np

from fpga.api.dealing import Dealing, Run
from fpga.api.gpu import GATHERED, POPULAR
from hotrail.report import COOL, GREEN, SOFT, WARM, inline, page, row, styled

__all__ = ["write"]

KINDS = ((POPULAR, GREEN, "popular"), (GATHERED, COOL, "gathered"))


def write(dealing: Dealing, folder: Path) -> Path:
    """Writes hotline.png and index.html into `folder`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "hotline.png"
    draw(dealing, picture)
    path = folder / "index.html"
    path.write_text(render(dealing, picture.read_bytes()), encoding="utf-8")
    return path


def draw(dealing: Dealing, path: Path) -> None:
    """Two panels: what the GPU does when, with hot rows and without, and which share of the accesses hot rows take."""
    with styled():
        figure, (time, share) = plt.subplots(2, 1, figsize=(11.5, 7.6), layout="constrained", height_ratios=(1, 1.5))
        _draw_time(time, dealing)
        _draw_share(share, dealing)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


def _draw_time(axis, dealing: Dealing) -> None:
    for place, run in enumerate(reversed(dealing.runs)):
        for kind, colour, _ in KINDS:
            bars = [(begin, end - begin) for of, begin, end in zip(run.kinds, run.started, run.finished) if of == kind]
            axis.broken_barh(bars, (place - 0.3, 0.6), facecolors=colour, linewidth=0)
        axis.barh(place, run.finished[-1], height=0.6, color="none", edgecolor=SOFT, linewidth=0.8)
        axis.annotate(f"idle {run.idle:.0%}", (run.finished[-1], place), xytext=(5, 0), textcoords="offset points",
                      va="center", color=WARM)
    for kind, colour, name in KINDS:
        if any(run.count(kind) for run in dealing.runs):
            axis.barh([0], [0], color=colour, label=f"{name} mini-batches")
    axis.set_yticks([1, 0], [_label(run) for run in dealing.runs])
    axis.set_xlim(0, 1.1 * max(run.finished[-1] for run in dealing.runs))
    axis.set(title="What the GPU does (white: it waits)", xlabel="clock cycle of the core")
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=2)


def _label(run: Run) -> str:
    return run.name.replace(" mini-batch", "\nmini-batch").replace(" at the", "\nat the")


def _draw_share(axis, dealing: Dealing) -> None:
    counts = dealing.accesses
    share = np.cumsum(counts) / max(1, counts.sum())
    axis.plot(np.arange(1, counts.size + 1), 100 * share, color=COOL, lw=1.8)
    if dealing.hot:
        axis.axvline(dealing.hot, color=SOFT, lw=1, ls=":")
        for value, colour, name in ((dealing.best, COOL, "the best rows in hindsight"),
                                    (dealing.share, WARM, "those that the core found")):
            axis.plot([dealing.hot], [100 * value], "o", color=colour, label=f"{name}: {value:.1%} of the accesses")
        axis.legend(frameon=False, loc="upper left", title=f"{dealing.hot:,} hot rows", alignment="left")
    axis.set(xscale="log", xlim=(0.9, 1.2 * counts.size))
    axis.set_ylim(0, 104)
    axis.set(title=f"Skew of the log: {dealing.source}", xlabel="rows, most accessed first",
             ylabel="per cent of the accesses")


def render(dealing: Dealing, picture: bytes) -> str:
    """The page as text; `picture` is a PNG that is put inside."""
    runs = "\n".join(row([
        html.escape(run.name), f"{run.count(POPULAR):,}", f"{run.count(GATHERED):,}", f"{run.counters['dma_rd']:,}",
        f"{run.counters['shared']:,}", f"{run.finished[-1]:,}", f"{run.idle:.1%}"]) for run in dealing.runs)
    cut = f" {dealing.cut:,} indices of bags did not fit and were skipped." if dealing.cut else ""
    return page("hotrail hotline", f"""<h1>Popular mini-batches first, the others gathered meanwhile</h1>
<p>{html.escape(dealing.source)}: {dealing.rows:,} rows in {len(dealing.tables)} tables. The core learned from
{dealing.learned:,} samples and found {dealing.hot:,} hot rows (capacity {dealing.capacity:,}), which take
{dealing.share:.1%} of the accesses in the remaining log; the oracle's {dealing.hot:,} rows take
{dealing.best:.1%}. Of the next {dealing.samples:,} samples {dealing.popular:,}
({dealing.popular / dealing.samples:.1%}) need hot rows only: their mini-batches of {dealing.batch} go to the GPU at
once, while the cold rows of the others are gathered.{cut}</p>
{inline(picture, "what the GPU does when, and the share of accesses that hot rows take")}
<h2>The same samples, dispatched in two ways</h2>
<table>{row(["", "popular mini-batches", "gathered", "cold rows read", "shared", "cycles to the last one's end",
             "GPU idle"], "th")}
{runs}</table>
<p>Shared: cold indices whose row was there already. Where every mini-batch is gathered the run takes
{dealing.speedup:.2f} times as long: each of them waits for the updates of the one before. A mini-batch ends before it
is full where its rows would pass the {dealing.slots:,} that the core holds.</p>
""")
