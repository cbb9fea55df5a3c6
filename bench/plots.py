"""Curves of docs/figures.md and docs/papers.md as SVG, from recorded rows.

A curve of the first is the values of rows whose ids differ in one number: `{}` in the id of bench/figures.toml stands
for it. Those of the second are the lines of bench/papers.toml that name the same chart (bench.readings).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench.framework import Row, number

COLOURS = ("#0b6e99", "#c2571a", "#4f7f2b", "#7a4fa3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 64, 92, 36, 48
LETTER = 6.4    # pixels of one beside a curve
WIDE = 50       # largest over smallest value from which on the y-axis is logarithmic


@dataclass(frozen=True)
class Plot:
    """name: of the file in docs/pictures; x, y: what the axes show, with units; over: the points of the x-axis, equally
    spaced; curves: id with {} for a point, by what the curve is."""

    name: str
    title: str
    x: str
    y: str
    over: tuple[int, ...]
    curves: Mapping[str, str]


def _ticks(least: float, most: float) -> list[float]:
    """Round values, four to nine of them, up to the first that is not below `most`; from 0 on or from below `least`."""
    power = 10 ** math.floor(math.log10(most - least))
    step = power * next(part for part in (0.125, 0.25, 0.5, 1, 2) if (most - least) / (power * part) <= 8)
    return [step * k for k in range(math.floor(least / step), math.ceil(most / step) + 1)]


def _axis(values: Sequence[float]) -> tuple[list[float], Callable[[float], float]]:
    """Ticks, and what part of the axis is below a value; powers of ten where values differ much."""
    if min(values) > 0 and max(values) > WIDE * min(values):
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return [10.0 ** k for k in range(low, high + 1)], lambda value: (math.log10(value) - low) / (high - low)
    ticks = _ticks(min(0.0, *values), max(0.0, *values))
    return ticks, lambda value: (value - ticks[0]) / (ticks[-1] - ticks[0])


def svg(plot: Plot, rows: Mapping[str, Row]) -> str:
    """The picture. Raises LookupError: an id that is not recorded"""
    ids = [id.format(point) for id in plot.curves.values() for point in plot.over]
    if missing := [id for id in ids if id not in rows]:
        raise LookupError(f"figures.toml, plot {plot.name}: {', '.join(missing)} not recorded")
    return drawn(plot.title, plot.x, plot.y, [number(point) for point in plot.over],
                 {what: [float(rows[id.format(point)].value) for point in plot.over]
                  for what, id in plot.curves.items()})


def drawn(title: str, x: str, y: str, over: Sequence[str], curves: Mapping[str, Sequence[float]],
          dots: Mapping[str, Sequence[float]] | None = None) -> str:
    """A picture. over: labels of the x-axis; curves: values for each of them, NaN for none; dots: such of other origin,
    by the curve whose colour they have, or by another name."""
    dots = dots or {}
    ticks, part = _axis([value for each in (*curves.values(), *dots.values()) for value in each
                         if not math.isnan(value)])
    right = max(RIGHT, 16 + math.ceil(LETTER * max(map(len, curves))))
    width, height = WIDTH - LEFT - right, HEIGHT - TOP - BOTTOM

    def across(k: int) -> float:
        return LEFT + width * k / (len(over) - 1)

    def down(value: float) -> float:
        return TOP + height * (1 - part(value))

    def points(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(across(k), down(value)) for k, value in enumerate(values) if not math.isnan(value)]

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" fill="#333"><title>{escape(title)}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-weight="bold">{escape(title)}</text>']
    for tick in ticks:
        out += [f'<path d="M{LEFT} {down(tick):.1f}H{WIDTH - right}" stroke="#ddd"/>',
                f'<text x="{LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{number(tick)}</text>']
    out += [f'<text x="{across(k):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(point)}</text>'
            for k, point in enumerate(over)]
    out += [f'<text x="{LEFT + width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>',
            f'<text transform="translate(14 {TOP + height / 2}) rotate(-90)" text-anchor="middle">{escape(y)}</text>']
    ends = {what: points(values)[-1][1] + 4 for what, values in curves.items()}
    lowest = -math.inf
    for what in sorted(ends, key=lambda what: ends[what]):
        lowest = ends[what] = max(ends[what], lowest + 14)      # names of curves that end together
    colours = dict(zip(curves, COLOURS, strict=False))
    for what, values in curves.items():
        line = " ".join(f"{left:.1f},{top:.1f}" for left, top in points(values))
        out += [f'<polyline points="{line}" fill="none" stroke="{colours[what]}" stroke-width="2"/>',
                f'<text x="{WIDTH - right + 6}" y="{ends[what]:.1f}" fill="{colours[what]}">{escape(what)}</text>']
    for what, values in dots.items():
        out += [f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colours.get(what, "#333")}" stroke="#fff">'
                f'<title>{escape(what)}</title></circle>' for left, top in points(values)]
    return "\n".join([*out, "</svg>"]) + "\n"
