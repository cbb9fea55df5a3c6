"""The TT unit's lane executed on images in plain Python: slow, and written from the layout's words alone.

It knows nothing of how images are packed: it reads lines by address, picks quarters and sub-dots as the lane's
multiplexers do, and writes results where the maps say. So an image is right when this yields the table's rows.
"""

from itertools import product

import numpy as np

from golden.tt.image import Image, operand_roles
from golden.tt.layout import ROW, Step, written_to


def _operand(lines, start, per_line_log2, roles, address, n):
    """X(row, sub, word) of one issue slot."""
    line, place = divmod(address, 1 << per_line_log2)
    rows = [bit for bit, role in enumerate(roles) if role == ROW]
    quarters = lines[start + line].reshape(n, n, n)
    base = sum((place >> at & 1) << bit for at, bit in enumerate(rows))
    keep = sum(1 << bit for bit in rows)
    return np.stack([quarters[base | (sub & ~keep)] for sub in range(n)], axis=1)


def _dots(x, y, combine, n):
    """Results (row, cell, sub) of one slot; x (row, sub, word), y (row, cell, sub, word)."""
    sums = np.einsum("rsw,rcsw->rcs", x, y)
    if combine == 1:
        sums[:, :, : n // 2] += sums[:, :, n // 2:]
        sums[:, :, n // 2:] = 0
    elif combine == 2:
        sums[:, :, 0] = sums.sum(axis=2)
        sums[:, :, 1:] = 0
    return sums


def _first(image: Image, slices):
    layout, step, b = image.layout, image.layout.first, image.layout.grid_log2
    n = 1 << b
    roles = operand_roles(step, b)
    lines = []
    for tile in range(step.tiles):
        a, y_tile = divmod(tile, step.blocks)
        acc = np.zeros((n, n, n))
        for beat in range(step.lines):
            x = _operand(image.x, image.starts["first"], image.per_line_log2["first"], roles,
                         slices[0] * image.strides["first"] + a * step.lines + beat, n)
            at = slices[1] * image.strides["second"] + y_tile * step.lines + beat
            if layout.paired:
                low, high = (image.y[2 * at + half].reshape(n, n, n) for half in (0, 1))
                y = np.stack([high if row >> (b - 1) else low for row in range(n)])
            else:
                y = np.stack([image.y[at].reshape(n, n, n)] * n)
            acc += _dots(x, y, step.combine, n)
        line = np.zeros((n, n, n))
        for row, cell, sub in product(range(n), repeat=3):
            line[written_to(b, layout.format.swap, row, cell, sub)] = acc[row, cell, sub]
        lines.append(line)
    return lines


def _run(step: Step, image: Image, part: str, mode: int, lines, b: int):
    """Yields the tiles (row, cell, sub) of a second or later product over lines of T."""
    n = 1 << b
    roles = operand_roles(step, b)
    tile, group_base = 0, 0
    while tile < step.tiles:
        for row_turn in range(step.row_turns):
            for group in range(step.groups):
                for block in range(step.blocks):
                    if tile >= step.tiles:
                        return
                    acc = np.zeros((n, n, n))
                    for line, rank_turn in product(range(step.lines), range(step.rank_turns)):
                        x = _operand(image.x, image.starts[part], image.per_line_log2[part], roles,
                                     mode * image.strides[part] + block * step.beats
                                     + line * step.rank_turns + rank_turn, n)
                        t = lines[group_base + group * step.lines + line]
                        source = [_source(sub, step, roles, row_turn, rank_turn, b) for sub in range(n)]
                        y = np.stack([t[:, source, :]] * n)
                        acc += _dots(x, y, step.combine, n)
                    yield acc
                    tile += 1
        group_base += step.groups * step.lines


def _source(sub, step: Step, roles, row_turn, rank_turn, b):
    """The T sub-dot that sub-dot `sub` reads: its own, but for column bits, which the turns give."""
    turned = [bit for bit, role in enumerate(roles) if role == "column"]
    by_row = [bit for bit in turned if step.meaning[bit] == ROW]
    by_rank = [bit for bit in turned if step.meaning[bit] != ROW]
    for bits, turn in ((by_row, row_turn), (by_rank, rank_turn)):
        # The low bit turns slowest.
        for at, bit in enumerate(reversed(bits)):
            sub = sub & ~(1 << bit) | (turn >> at & 1) << bit
    return sub


def _order(step: Step, b: int):
    """Sub-dot and cell of each group of n words of a beat, in the vector's order."""
    n = 1 << b
    v = step.columns_log2
    groups = []
    for cell, sub in product(range(n), repeat=2):
        high, low = sub >> (b - 1), sub & (n // 2 - 1)
        if step.combine and (high or (step.combine == 2 and low)):
            continue
        if b == 1:
            key = (cell, sub) if v else (sub, cell)
        elif v == 0:
            key = (low, high, cell)
        elif v == 1:
            key = (high, cell, low)
        else:
            key = (cell, high, low)
        groups.append((key, cell, sub))
    return [(cell, sub) for _, cell, sub in sorted(groups)]


def row(image: Image, index: int) -> np.ndarray:
    """Row `index` in float64, padding squeezed out."""
    layout, b = image.layout, image.layout.grid_log2
    n = 1 << b
    slices = np.unravel_index(index, layout.modes)
    if layout.first is not None:
        lines = _first(image, slices)
    else:
        lines = [image.y[slices[0] * image.strides["second"] + at].reshape(n, n, n)
                 for at in range(image.strides["second"])]
    if layout.middle is not None:
        out = []
        for acc in _run(layout.middle, image, "middle", slices[2], lines, b):
            line = np.zeros((n, n, n))
            for r, cell, sub in product(range(n), repeat=3):
                line[sub, (cell & 1) << 1 | cell >> 1 if b == 2 else cell, r] = acc[r, cell, sub]
            out.append(line)
        lines = out
    beats, held = [], None
    order = _order(layout.last, b)
    for acc in _run(layout.last, image, "last", slices[-1], lines, b):
        words = np.concatenate([acc[:, cell, sub] for cell, sub in order])
        if not layout.turned:
            beats.append(words)
        elif held is None:
            held = words
        else:
            both = np.stack([held.reshape(n, -1), words.reshape(n, -1)], axis=1)
            beats.append(both.reshape(-1))
            held = None
    return np.concatenate(beats)[:layout.dim]
