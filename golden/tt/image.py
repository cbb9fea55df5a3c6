"""The cores of a table as lines of the TT unit's two memories.

X memory holds the narrow operands (first, third and last core), Y memory the wide one (the second core; of a
two-core table the first). Slices of one mode index lie one after the other; nothing is padded but lines.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from golden.tt.layout import RANK, ROW, Layout, Step, positions, written_to


def _row_bits(roles: tuple[str, ...]) -> list[int]:
    return [bit for bit, role in enumerate(roles) if role == ROW]


def operand_roles(step: Step, grid_log2: int) -> tuple[str, ...]:
    """What each sub-dot bit (low to high) selects in the X operand: "row" (the address does), "column", "rank"."""
    if not step.meaning:
        return (ROW,) * (grid_log2 - 1) + ((RANK,) if step.combine else (ROW,))
    v = step.columns_log2
    columns = range(grid_log2 - v, grid_log2) if grid_log2 == 1 else range(v)
    return tuple("column" if bit in columns else meaning for bit, meaning in enumerate(step.meaning))


PADDING = np.float32(-0.0)
"""The word that the unit takes for padding: its product with anything, NaN included, is zero."""


def _scatter(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """values.ravel()[index], padding where index is negative; a zero of the table's own becomes +0."""
    own = values.ravel()
    own = np.where(own == 0, np.float32(0), own)
    return np.where(index >= 0, own[np.maximum(index, 0)], PADDING)


def _flat(shape, *coordinates):
    """The flat index of coordinates in shape, -1 outside."""
    if any(not 0 <= at < size for at, size in zip(coordinates, shape, strict=True)):
        return -1
    return int(np.ravel_multi_index(coordinates, shape))


@dataclass(frozen=True)
class Placement:
    """Word maps of one table: for each memory part, which core element each word holds.

    part -> (core number, index array (slices, operands, words...)); the index points into the core with its
    mode axis first, flattened. x parts: "first", "middle", "last"; y part: "second".
    operands: issue addresses a slice takes. per_line_log2: X operands that share one line.
    """

    core: int
    index: np.ndarray
    operands: int
    per_line_log2: int


def placements(layout: Layout) -> dict[str, Placement]:
    """Where each core goes; see Placement."""
    places = {"last": _last_core(layout)}
    if layout.first is None:
        places["second"] = _lines_of_first(layout)
        return places
    places["first"] = _first_core(layout)
    places["second"] = _second_core(layout)
    if layout.middle is not None:
        places["middle"] = _middle_core(layout)
    return places


def _operand_grid(step: Step, grid_log2: int):
    """Yields (quarter slots of an operand): for each sub-dot that reads its own quarter, (slot, sub)."""
    roles = operand_roles(step, grid_log2)
    rows = _row_bits(roles)
    n = 1 << grid_log2
    subs = [sub for sub in range(n) if not any(sub >> bit & 1 for bit in rows)]
    return roles, rows, subs


def _rank_offset(step: Step, grid_log2: int, sub: int, roles) -> int:
    """Which block of n ranks of a combined beat sub-dot `sub` takes."""
    if step.combine == 0:
        return 0
    high = sub >> (grid_log2 - 1)
    if grid_log2 == 2 and roles[0] == RANK:
        return (sub & 1) * 2 + high
    return high


def _x_placement(layout: Layout, step: Step, core: int, operands: int, element) -> Placement:
    """element(operand, sub, row, word) -> flat index in a slice of the core."""
    n = 1 << layout.grid_log2
    _, rows, subs = _operand_grid(step, layout.grid_log2)
    index = np.full((operands, len(subs), n, n), -1, dtype=np.int64)
    for operand, (slot, sub), row, word in product(range(operands), enumerate(subs), range(n), range(n)):
        index[operand, slot, row, word] = element(operand, sub, row, word)
    return Placement(core, index, operands, len(rows))


def _first_core(layout: Layout) -> Placement:
    step, fmt, b = layout.first, layout.format, layout.grid_log2
    shape = (layout.ranks[0] * layout.columns[0], layout.ranks[1])
    where = positions(b, fmt.name)
    roles = operand_roles(step, b)

    def element(operand, sub, row, word):
        tile, beat = divmod(operand, step.lines)
        high_row = row >> (b - 1)
        if high_row and not layout.paired and fmt.name in "CDE":
            return -1
        j1 = where[written_to(b, fmt.swap, row, 0, 0)][0]
        rank = beat * step.width + _rank_offset(step, b, sub, roles) * (1 << b) + word
        return _flat(shape, tile * fmt.j1 + j1, rank)

    tiles = -(-layout.columns[0] // fmt.j1)
    return _x_placement(layout, step, 0, tiles * step.lines, element)


def _last_core(layout: Layout) -> Placement:
    step, b = layout.last, layout.grid_log2
    core = len(layout.modes) - 1
    shape = (layout.ranks[core], layout.columns[core])
    roles = operand_roles(step, b)
    ranks_of_line = step_ranks(layout, step)

    def element(operand, sub, row, word):
        block, beat = divmod(operand, step.beats)
        line, turn = divmod(beat, step.rank_turns)
        rank = (line * ranks_of_line + turn * step.width
                + _rank_offset(step, b, sub, roles) * (1 << b) + word)
        column = (block << step.columns_log2 | _column_block(roles, sub)) * (1 << b) + row
        return _flat(shape, rank, column)

    return _x_placement(layout, step, core, step.blocks * step.beats, element)


def _column_block(roles, sub: int) -> int:
    picked = [bit for bit, role in enumerate(roles) if role == "column"]
    return sum((sub >> bit & 1) << at for at, bit in enumerate(picked))


def step_ranks(layout: Layout, step: Step) -> int:
    """Ranks that one T line which `step` reads holds (lines of a third product are always format A)."""
    if step is layout.last and layout.middle is not None:
        return 1 << layout.grid_log2
    return layout.format.ranks


def _middle_core(layout: Layout) -> Placement:
    step, b = layout.middle, layout.grid_log2
    n = 1 << b
    shape = (layout.ranks[2], layout.columns[2], layout.ranks[3])
    lines_3 = -(-layout.ranks[3] // n)
    ranks_of_line = layout.format.ranks

    def element(operand, sub, row, word):
        block, beat = divmod(operand, step.beats)
        group, line_3 = divmod(block, lines_3)
        line, turn = divmod(beat, step.rank_turns)
        return _flat(shape, line * ranks_of_line + turn * step.width + word, group * n + sub, line_3 * n + row)

    return _x_placement(layout, step, 2, step.blocks * step.beats, element)


def _y_placement(core: int, index: np.ndarray) -> Placement:
    return Placement(core, index, index.shape[0], 0)


def _second_core(layout: Layout) -> Placement:
    """Lines (operand, half): with paired lines two a beat, else one."""
    step, fmt, b = layout.first, layout.format, layout.grid_log2
    n = 1 << b
    shape = (layout.ranks[1], layout.columns[1], layout.ranks[2])
    where = positions(b, fmt.name)
    lines_2 = -(-layout.ranks[2] // fmt.ranks)
    halves = 2 if layout.paired else 1
    index = np.full((step.blocks * step.lines, halves, n, n, n), -1, dtype=np.int64)
    for operand, half, cell, sub, word in product(range(index.shape[0]), range(halves), *[range(n)] * 3):
        y_tile, beat = divmod(operand, step.lines)
        group, line = divmod(y_tile, lines_2)
        high = sub >> (b - 1)
        target = sub & ~(1 << b - 1) if fmt.wide else sub
        _, j2, rank_2 = where[written_to(b, fmt.swap, half << b - 1, cell, target)]
        rank_1 = beat * step.width + (high * n if fmt.wide else 0) + word
        index[operand, half, cell, sub, word] = _flat(
            shape, rank_1, group * fmt.j2 + j2, line * fmt.ranks + rank_2)
    return _y_placement(1, index)


def _lines_of_first(layout: Layout) -> Placement:
    """Two cores: the first core's rows as they would stand in T."""
    step, fmt, b = layout.last, layout.format, layout.grid_log2
    n = 1 << b
    shape = (layout.columns[0], layout.ranks[1])
    where = positions(b, fmt.name)
    groups = -(-layout.columns[0] // (fmt.j1 * fmt.j2))
    index = np.full((groups * step.lines, 1, n, n, n), -1, dtype=np.int64)
    for operand, cell, sub, word in product(range(index.shape[0]), *[range(n)] * 3):
        group, line = divmod(operand, step.lines)
        j1, j2, rank = where[cell, sub, word]
        index[operand, 0, cell, sub, word] = _flat(
            shape, (group * fmt.j1 + j1) * fmt.j2 + j2, line * fmt.ranks + rank)
    return _y_placement(0, index)


def slices(core: np.ndarray) -> np.ndarray:
    """A core (R, I, J, R') with its mode axis first and a slice flattened: (I, R * J * R')."""
    return np.moveaxis(core, 1, 0).reshape(core.shape[1], -1)


def x_lines(placement: Placement, core: np.ndarray, grid_log2: int, roles) -> np.ndarray:
    """One core's X lines, (lines, n**3) float32, operands packed per_line_log2 to a line."""
    n = 1 << grid_log2
    words = _gather(placement, core).reshape(-1, placement.index.shape[1], n, n)
    per_line = 1 << placement.per_line_log2
    lines = -(-words.shape[0] // per_line)
    out = np.full((lines, n, n, n), PADDING, dtype=np.float32)
    rows = _row_bits(roles)
    subs = [sub for sub in range(n) if not any(sub >> bit & 1 for bit in rows)]
    for operand in range(words.shape[0]):
        line, place = divmod(operand, per_line)
        base = sum((place >> at & 1) << bit for at, bit in enumerate(rows))
        for slot, sub in enumerate(subs):
            out[line, base | sub] = words[operand, slot]
    return out.reshape(lines, -1)


def y_lines(placement: Placement, core: np.ndarray) -> np.ndarray:
    """One core's Y lines, (lines, n**3) float32."""
    return _gather(placement, core).reshape(-1, int(np.prod(placement.index.shape[2:])))


def _gather(placement: Placement, core: np.ndarray) -> np.ndarray:
    flat = slices(np.asarray(core, dtype=np.float32))
    return np.stack([_scatter(row, placement.index) for row in flat])


@dataclass(frozen=True)
class Image:
    """What to load for one table: X and Y lines and where its parts begin inside them.

    x (lines, n**3), y (lines, n**3) float32. starts: part -> first line. strides: part -> issue addresses a
    mode index. lines_log2: log2 of the lines that share one of the memory. A table may be moved: only the line where it
    begins changes (Y lines: an even one of the memory).
    """

    layout: Layout
    x: np.ndarray
    y: np.ndarray
    starts: dict[str, int]
    strides: dict[str, int]
    per_line_log2: dict[str, int]
    lines_log2: int = 0

    @property
    def x_lines(self) -> int:
        """Of the memory."""
        return len(self.x) >> self.lines_log2

    @property
    def y_lines(self) -> int:
        """Of the memory, whole pairs."""
        return -(-len(self.y) // (2 << self.lines_log2)) * 2


def image(layout: Layout, cores, *, block16: bool = False) -> Image:
    """Packs cores (R_{k-1}, I_k, J_k, R_k) of `layout`'s shape, the X lines of each up to a whole line of the memory.

    block16: two lines share one of the memory.
    Raises ValueError naming the core whose shape differs.
    """
    check_cores(layout, cores)
    parts = placements(layout)
    blocks, at = [], 0
    starts: dict[str, int] = {}
    for part in ("first", "middle", "last"):
        if part not in parts:
            continue
        roles = operand_roles(getattr(layout, part), layout.grid_log2)
        block = x_lines(parts[part], cores[parts[part].core], layout.grid_log2, roles)
        if block16 and len(block) % 2:
            block = np.concatenate([block, np.full((1, block.shape[1]), PADDING)])
        starts[part] = at
        at += len(block)
        blocks.append(block)
    second = y_lines(parts["second"], cores[parts["second"].core])
    starts["second"] = 0
    return Image(layout, np.concatenate(blocks), second, starts,
                 {part: p.operands for part, p in parts.items()},
                 {part: p.per_line_log2 for part, p in parts.items()}, int(block16))


@dataclass(frozen=True)
class Slices:
    """What one slice of core `core` takes of memory `memory` ("x" or "y"): so many operands, `per_line` to a line."""

    core: int
    memory: str
    operands: int
    per_line: int

    def lines(self, mode: int) -> int:
        """Lines of a core of `mode` slices."""
        return -(-mode * self.operands // self.per_line)


def slices_of(layout: Layout) -> tuple[Slices, ...]:
    """What a slice of each core takes, without building an image: core after core."""
    first, middle, last, fmt = layout.first, layout.middle, layout.last, layout.format

    def narrow(core: int, step: Step, operands: int) -> Slices:
        return Slices(core, "x", operands, 1 << len(_row_bits(operand_roles(step, layout.grid_log2))))

    outer = narrow(len(layout.modes) - 1, last, last.blocks * last.beats)
    if first is None:
        return Slices(0, "y", -(-layout.columns[0] // (fmt.j1 * fmt.j2)) * last.lines, 1), outer
    sizes = [narrow(0, first, -(-layout.columns[0] // fmt.j1) * first.lines),
             Slices(1, "y", first.blocks * first.lines * (2 if layout.paired else 1), 1)]
    if middle is not None:
        sizes.append(narrow(2, middle, middle.blocks * middle.beats))
    return *sizes, outer


def check_cores(layout: Layout, cores) -> None:
    """Raises ValueError naming the first core whose shape is not the layout's."""
    if len(cores) != len(layout.modes):
        raise ValueError(f"the layout has {len(layout.modes)} cores, {len(cores)} were given")
    for k, core in enumerate(cores):
        want = (layout.ranks[k], layout.modes[k], layout.columns[k], layout.ranks[k + 1])
        if np.shape(core) != want:
            raise ValueError(f"core {k + 1} has shape {np.shape(core)}, the chain needs {want}")
