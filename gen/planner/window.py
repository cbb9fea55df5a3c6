"""Rows of DRAM that the EMB core fetches for a batch: those that its coalescing window still has are found there.

The core takes a table's indices one behind the other, so that its rows fill the window (golden.emb.rows.window). A row
that was fetched is found until two to three quarters of the window's beats have been fetched behind it, or two other
rows of its set. Accesses are drawn independently by the rows' shares, and the window is empty when a batch begins:
n accesses touch sum over rows of 1 - (1 - p)^n different ones, until as many are fetched as are found again. From then
on a row that is found for t accesses is fetched at p / (1 + p t) of all, with the t at which that many are found (the
characteristic time of caches that keep what came last: Fricker, Robert and Roberts 2012, after Che).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gen.data.profile import Heat

WAYS = 2            # rows of a set
STAYS = 0.625       # of the window's beats, until a row is forgotten: two quarters to three
LEVELS = 32         # of a table's accesses, in a product


def kept_rows(core, row_beats: int, rows: int) -> float:
    """Rows that are fetched before one is forgotten, on average, of a table of so many. core: its configuration."""
    most, sets = STAYS * core.window_beats / row_beats, core.window_sets
    if rows <= WAYS * sets:     # each has its place
        return most
    # The number of rows that came into a set since then is Poisson's: at most one of them.
    crowd = most / sets
    return sets * (2 - math.exp(-crowd) * (2 + crowd))


def fetches(core, row_beats: int, share: NDArray[np.float64], rows: NDArray[np.int64],
            lookups: float) -> NDArray[np.float64]:
    """(len(rows),) fetches of each of rows[k] rows with share[k] of a table's accesses each, of so many lookups in a
    run; at most one a lookup of the row. row_beats: of a row as stored."""
    kept = kept_rows(core, row_beats, int(rows.sum()))
    other = np.log1p(-np.minimum(share, 1 - np.finfo(np.float64).epsneg))

    def touched(number: float) -> NDArray[np.float64]:
        return np.minimum(-np.expm1(number * other), number * share)

    if lookups <= 0:
        return np.zeros(len(rows))
    found = touched(lookups)
    if rows @ found <= kept:
        return found

    def rising(number: float) -> tuple[float, float]:
        slopes = np.where(number < 1, share, -other * np.exp(number * other))
        return float(rows @ touched(number)), float(rows @ slopes)

    def staying(number: float) -> tuple[float, float]:
        again = 1 + number * share
        return float(rows @ (number * share / again)), float(rows @ (share / again**2))

    first = _reached(rising, kept, kept / float(rows @ share))
    stays = _reached(staying, kept, first)
    return touched(first) + (lookups - first) * share / (1 + stays * share)


def _reached(curve: Callable[[float], tuple[float, float]], target: float, start: float) -> float:
    """Where a concave curve, which gives its value and its slope, reaches the target, at `start` at the earliest. It
    lies below its tangents, so that Newton's steps from the left never pass that place."""
    at = start
    while True:
        value, slope = curve(at)
        step = (target - value) / slope
        if step <= 0:
            return at
        at += step
        if step <= 1e-9 * at:       # the next one is of its square
            return at


def joint(heats: Sequence[Heat]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(share of the accesses, rows) of a product's rows, of tables whose accesses are independent of each other; rows
    of about as many accesses are counted together. Where tables go together a product's rows come again sooner."""
    share, rows = np.ones(1), np.ones(1, np.int64)
    for heat in heats:
        logs = np.log2(heat.accesses)
        group = np.digitize(logs, np.linspace(0, logs.max(initial=1.0), LEVELS))
        many = np.bincount(group, heat.rows)
        asked = np.bincount(group, heat.rows * heat.accesses / max(heat.total, 1))
        some = many > 0
        share = np.outer(share, asked[some] / many[some]).ravel()
        rows = np.outer(rows, many[some].astype(np.int64)).ravel()
    return share, rows
