"""Curves of docs/figures.md as SVG, from recorded rows.

A curve is the values of rows whose ids differ in one number: `{}` in the id of bench/figures.toml stands for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from bench.framework import Row, number

COLOURS = ("#0b6e99", "#c2571a", "#4f7f2b", "#7a4fa3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 64, 92, 36, 48


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


def _ticks(most: float) -> list[float]:
    """Round values from 0 on, four to eight of them, up to the first that is not below `most`."""
    power = 10 ** math.floor(math.log10(most))
    step = power * next(part for part in (0.125, 0.25, 0.5, 1, 2) if most / (power * part) <= 8)
    return [step * k for k in range(math.ceil(most / step) + 1)]


def svg(plot: Plot, rows: Mapping[str, Row]) -> str:
    """The picture. Raises LookupError: an id that is not recorded"""
    ids = [id.format(point) for id in plot.curves.values() for point in plot.over]
    if missing := [id for id in ids if id not in rows]:
        raise LookupError(f"figures.toml, plot {plot.name}: {', '.join(missing)} not recorded")
    ticks = _ticks(max(float(rows[id].value) for id in ids))
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(k: int) -> float:
        return LEFT + width * k / (len(plot.over) - 1)

    def down(value: float) -> float:
        return TOP + height * (1 - value / ticks[-1])

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" fill="#333"><title>{escape(plot.title)}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-weight="bold">{escape(plot.title)}</text>']
    for tick in ticks:
        out += [f'<path d="M{LEFT} {down(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
                f'<text x="{LEFT - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{number(tick)}</text>']
    out += [f'<text x="{across(k):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{number(point)}</text>'
            for k, point in enumerate(plot.over)]
    out += [f'<text x="{LEFT + width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(plot.x)}</text>',
            f'<text transform="translate(14 {TOP + height / 2}) rotate(-90)" text-anchor="middle">{escape(plot.y)}'
            '</text>']
    ends = {what: down(float(rows[id.format(plot.over[-1])].value)) + 4 for what, id in plot.curves.items()}
    lowest = -math.inf
    for what in sorted(ends, key=lambda what: ends[what]):
        lowest = ends[what] = max(ends[what], lowest + 14)      # names of curves that end together
    for colour, (what, id) in zip(COLOURS, plot.curves.items(), strict=False):
        values = [float(rows[id.format(point)].value) for point in plot.over]
        points = " ".join(f"{across(k):.1f},{down(value):.1f}" for k, value in enumerate(values))
        out += [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
                f'<text x="{WIDTH - RIGHT + 6}" y="{ends[what]:.1f}" fill="{colour}">{escape(what)}</text>']
    return "\n".join([*out, "</svg>"]) + "\n"
