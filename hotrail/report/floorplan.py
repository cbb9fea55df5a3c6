"""The picture of `hotrail timing`: where a core lies in the user region of the card, and its worst paths."""

import html
from collections.abc import Iterator

import numpy as np

from fpga.synth.timing.report import Timing
from gen.model.platform import region

WIDTH, HEIGHT = 600, 860        # of the region's drawing
TOP, LEFT, LEGEND = 40, 20, 26
BLOCKS = 60                     # that the fill is averaged over, across and up, at most
FULL = 1.5                      # fill of the slices that is drawn black
COLOURS = {"dsp": "#2e6f95", "bram": "#8a929c", "uram": "#d1495b"}
PATH = "#b3261e"


def svg(found: Timing) -> str:
    """Fill of the slices, the columns of larger blocks and the worst paths, the worst of them the strongest."""
    grid = region()
    x, y = WIDTH / grid["columns"], HEIGHT / grid["rows"]
    title = f"{found.core}: {found.worst_ps / 1000:.2f} ns, ten worst paths"
    paths = [(f'<polyline fill="none" stroke="{PATH}" stroke-width="{1 if number else 2.5}" '
              f'opacity="{.55 if number else 1}" points="'
              + " ".join(f"{step.x * x:.1f},{HEIGHT - step.y * y:.1f}" for step in route.steps) + '"/>')
             for number, route in reversed(list(enumerate(found.paths)))]
    columns = [f'<line x1="{at * x:.1f}" x2="{at * x:.1f}" y1="0" y2="{HEIGHT}" stroke="{COLOURS[block]}" '
               f'stroke-width=".7"/>' for block in COLOURS for at in grid[block]["at"]]
    legend = "".join(f'<tspan fill="{colour}" dx="14">{name}</tspan>' for name, colour in (
        *((block.upper(), colour) for block, colour in COLOURS.items()), ("worst paths", PATH)))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * LEFT} {HEIGHT + TOP + LEGEND + 10}" '
             f'font-family="sans-serif" font-size="14" role="img"><title>{html.escape(title)}</title>',
             '<rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="{LEFT}" y="24" font-weight="bold">{html.escape(title)}</text>',
             f'<g transform="translate({LEFT} {TOP})"><rect width="{WIDTH}" height="{HEIGHT}" fill="none" '
             f'stroke="#8a929c"/>', *_fill(found, x, y), *columns, *paths, "</g>",
             f'<text x="{LEFT}" y="{TOP + HEIGHT + LEGEND}">grey: fill of the slices{legend}</text></svg>']
    return "\n".join(lines) + "\n"


def _fill(found: Timing, x: float, y: float) -> Iterator[str]:
    """Rectangles of the slices' fill; x, y: of a slice's column and row in the drawing."""
    density, window = np.array(found.density, float), found.window
    across, up = (-(-size // BLOCKS) for size in density.shape)
    for column in range(0, density.shape[0], across):
        for row in range(0, density.shape[1], up):
            fill = density[column:column + across, row:row + up]
            if shade := min(fill.mean() / FULL, 1):
                wide, high = x * window.width / density.shape[0], y * window.height / density.shape[1]
                yield (f'<rect x="{x * window.left + column * wide:.1f}" '
                       f'y="{HEIGHT - y * window.bottom - (row + fill.shape[1]) * high:.1f}" '
                       f'width="{fill.shape[0] * wide:.1f}" height="{fill.shape[1] * high:.1f}" '
                       f'fill-opacity="{shade:.2f}"/>')
