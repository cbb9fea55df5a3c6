"""Waveforms of a unit's ports as SVG."""

import html
from collections.abc import Callable, Iterator, Mapping, Sequence

from gen.rtl.waveform import Waves

CYCLE, ROW, LEVEL, NAMES, EDGE = 46, 34, 20, 96, 16
INK, SOFT, LINE, BOX, GRID = "#24292f", "#57606a", "#0b6bcb", "#eef4fb", "#d8dee4"


def svg(title: str, waves: Waves, *, valid: Mapping[str, str], shown: Callable[[str, int], str] = lambda _, value: str(
        value)) -> str:
    """The picture of what a unit's ports were, as text.

    Parameters  valid: of each port that has a meaning only at times the one that says when; the others are flags
                shown: the text of a port's value
    """
    cycles = len(next(iter(waves.values())))
    wide, high = 2 * EDGE + NAMES + cycles * CYCLE, 2 * EDGE + 30 + len(waves) * ROW
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
             f'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}">',
             f"  <title>{html.escape(title)}</title>", f'  <rect width="{wide}" height="{high}" fill="#ffffff"/>',
             f'  <g stroke="{GRID}">',
             *(f'    <path d="M{_at(k)} {EDGE + 18}V{high - EDGE}"/>' for k in range(cycles + 1)),
             f'  </g>\n  <g font-size="11" fill="{SOFT}" text-anchor="middle">',
             *(f'    <text x="{_at(k) + CYCLE // 2}" y="{EDGE + 10}">{k}</text>' for k in range(cycles)), "  </g>"]
    for place, (name, values) in enumerate(waves.items()):
        y = EDGE + 30 + place * ROW
        lines.append(f'  <text x="{EDGE}" y="{y + 15}">{html.escape(name)}</text>')
        if name in valid:
            told = [shown(name, value) if there else "" for value, there in zip(values, waves[valid[name]])]
            lines += _boxes(told, y)
        else:
            lines.append(_flag(values, y))
    return "\n".join([*lines, "</svg>", ""])


def _at(cycle: int) -> int:
    return EDGE + NAMES + cycle * CYCLE


def _flag(values: Sequence[int], y: int) -> str:
    level = [y + (0 if value else LEVEL) for value in values]
    path = f"M{_at(0)} {level[0]}" + "".join(f"V{each}H{_at(k + 1)}" for k, each in enumerate(level))
    return f'  <path d="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>'


def _boxes(told: Sequence[str], y: int) -> Iterator[str]:
    """A box for each run of cycles with the same text, a line where there is none."""
    begin = 0
    for k in range(1, len(told) + 1):
        if k == len(told) or told[k] != told[begin]:
            x, end, text = _at(begin), _at(k), told[begin]
            if text:
                middle = y + LEVEL / 2
                yield (f'  <path d="M{x} {middle:g}l4-{LEVEL // 2}H{end - 4}l4 {LEVEL // 2}-4 {LEVEL // 2}H{x + 4}z" '
                       f'fill="{BOX}" stroke="{LINE}"/><text x="{(x + end) / 2:g}" y="{y + 15}" text-anchor="middle" '
                       f'font-size="12">{html.escape(text)}</text>')
            else:
                yield f'  <path d="M{x} {y + LEVEL // 2}H{end}" stroke="{SOFT}" stroke-dasharray="2 3"/>'
            begin = k
