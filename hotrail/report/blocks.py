"""Block diagrams of the cores as SVG.

Blocks stand in columns, so that most flows run from the left to the right (Sugiyama's scheme: cycles are cut, columns
by the longest path, rows by the mean of the neighbours').
"""

import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from gen.rtl.hierarchy import Block, Diagram, Flow

WIDE, HIGH, ACROSS, DOWN, EDGE = 132, 42, 70, 26, 24
PASS = 18                   # of a line that passes a column
TOP, BELOW = 66, 60         # for the shell; for what flows back and the legend
SWEEPS = 12
INK, SOFT, LINE, PORT, BOX = "#24292f", "#57606a", "#0b6bcb", "#fff3d6", "#eef4fb"
SHELL = "KernelShell"       # has to do with all blocks: a bar above them

Ends = tuple[str, str]


def svg(of: Diagram, note: str = "") -> str:
    """The picture of a core, as text. note: where its sizes are from."""
    shell = [block for block in of.blocks if block.kind == SHELL]
    drawn = _drawn(of)
    columns = _columns(drawn)
    passed = _rows(columns, drawn)
    places = _places(columns, {block.name for block in drawn.blocks})
    ground = max(y for _, y in places.values()) + HIGH + 40
    wide = EDGE * 2 + len(columns) * WIDE + (len(columns) - 1) * ACROSS
    high = TOP * bool(shell) + ground + BELOW
    both = {(flow.source, flow.target): flow for flow in drawn.flows}
    lines = [_line(flow, both.get((flow.target, flow.source)), places, passed, ground) for flow in drawn.flows
             if (flow.target, flow.source) not in both or flow.source < flow.target]
    boxes = [line for block in drawn.blocks for line in _box(block, *places[block.name], WIDE)]
    bits = [flow.bits for flow in drawn.flows]
    bar = [line for block in shell for line in _box(block, EDGE, EDGE, wide - 2 * EDGE)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high:.0f}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{INK}">',
        f"  <title>Blocks of the {of.name} core and what flows between them</title>",
        f'  <rect width="{wide}" height="{high:.0f}" fill="#ffffff"/>',
        '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
        f'<path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>', *bar,
        f'  <g transform="translate(0 {TOP * bool(shell)})">', *lines, *boxes, "  </g>",
        f'  <g font-size="15" fill="{SOFT}"><text x="{EDGE}" y="{high - EDGE - 14:.0f}">Thickness: bits at once, '
        f"{min(bits)} to {max(bits)}{html.escape(note)}. Arrows at both ends: request and answer.</text>",
        f'  <text x="{EDGE}" y="{high - EDGE + 6:.0f}">Yellow: ports of the core.'
        f"{' The bar: control, parameters and faults, of all blocks.' if shell else ''}</text></g>", "</svg>", ""])


def _drawn(of: Diagram) -> Diagram:
    """Without the shell and the ports that only it has; a port that takes and gives stands beside each neighbour."""
    kinds = {block.name: block.kind for block in of.blocks}
    gives, takes = ({getattr(flow, end) for flow in of.flows} for end in ("source", "target"))
    flows, ports = list[Flow](), dict[str, Block]()
    for flow in of.flows:
        if SHELL not in (kinds[flow.source], kinds[flow.target]):
            ends = [flow.source, flow.target]
            for k, other in ((0, 1), (1, 0)):
                if not kinds[ends[k]]:
                    ends[k] += f" {ends[other]}" if ends[k] in gives & takes else ""
                    ports[ends[k]] = Block(ends[k], "", "", 1)
            flows.append(Flow(ends[0], ends[1], flow.bits))
    inside = tuple(block for block in of.blocks if block.kind not in ("", SHELL))
    return Diagram(of.name, inside + tuple(ports.values()), tuple(flows))


def _columns(of: Diagram) -> list[list[str]]:
    """Names by column: each block right of those that it gets most from."""
    names = [block.name for block in of.blocks]
    forward = _acyclic(names, of.flows)
    depth: dict[str, int] = {}

    def deep(name: str) -> int:
        if name not in depth:
            depth[name] = max((1 + deep(source) for source, target in forward if target == name), default=0)
        return depth[name]

    columns: list[list[str]] = [[] for _ in range(1 + max(map(deep, names)))]
    for name in names:
        after = [depth[target] for source, target in forward if source == name]
        first = not any(target == name for _, target in forward)
        depth[name] = min(after) - 1 if first and after else depth[name]
        columns[depth[name]].append(name)
    return columns


def _rows(columns: list[list[str]], of: Diagram) -> dict[Ends, list[str]]:
    """Puts each column in an order that crosses few lines. Lines that pass columns get places in these, too; returns
    their names, of the blocks at the left and the right end."""
    number = {name: k for k, column in enumerate(columns) for name in column}
    passed: dict[Ends, list[str]] = {}
    near = defaultdict[str, list[str]](list)
    for flow in of.flows:
        left, right = sorted((flow.source, flow.target), key=number.__getitem__)
        if (left, right) not in passed and (number[flow.source] < number[flow.target] or _mutual(flow, of)):
            between = [f"{left} {right} {k}" for k in range(number[left] + 1, number[right])]
            passed[left, right] = between
            for k, name in enumerate(between, number[left] + 1):
                columns[k].append(name)
            for one, other in pairwise([left, *between, right]):
                near[one].append(other)
                near[other].append(one)
    for _ in range(SWEEPS):
        for column in columns:
            row = {name: (place + 0.5) / len(each) for each in columns for place, name in enumerate(each)}
            column.sort(key=lambda name: sum(row[other] for other in near[name]) / max(len(near[name]), 1))
    return passed


def _mutual(flow: Flow, of: Diagram) -> bool:
    return any((other.source, other.target) == (flow.target, flow.source) for other in of.flows)


def _acyclic(names: list[str], flows: Iterable[Flow]) -> set[Ends]:
    """Pairs of blocks in the direction of an order that turns few bits back: the next is always the one that has most
    bits to give and least to get from those that are left (Eades, Lin and Smyth)."""
    net: Counter[Ends] = Counter()
    for flow in flows:
        net[flow.source, flow.target] += flow.bits
        net[flow.target, flow.source] -= flow.bits
    left, order = list(names), list[str]()
    while left:
        order.append(max(left, key=lambda name: sum(net[name, other] for other in left)))
        left.remove(order[-1])
    return {ends for ends, bits in net.items() if bits > 0 and order.index(ends[0]) < order.index(ends[1])}


def _places(columns: list[list[str]], blocks: set[str]) -> dict[str, tuple[float, float]]:
    """Left upper corners of blocks, and of the places where lines pass; columns stand around one middle line."""
    high = [sum(HIGH + DOWN if name in blocks else PASS for name in column) for column in columns]
    found: dict[str, tuple[float, float]] = {}
    for number, column in enumerate(columns):
        y = EDGE + (max(high) - high[number]) / 2
        for name in column:
            found[name] = EDGE + number * (WIDE + ACROSS), y
            y += HIGH + DOWN if name in blocks else PASS
    return found


def _line(flow: Flow, back: Flow | None, places: dict[str, tuple[float, float]], passed: dict[Ends, list[str]],
          ground: float) -> str:
    """A curve from a block's right side to another's left; within a column from right to right; against the columns'
    order from bottom to bottom. back: what flows the other way."""
    left, right = sorted((flow.source, flow.target), key=lambda name: places[name][0]) if back else (
        flow.source, flow.target)
    (x, y), (to_x, to_y) = places[left], places[right]
    if x < to_x:
        path = f"M{x + WIDE:.0f} {y + HIGH / 2:.0f}"
        at, level = x + WIDE, y + HIGH / 2
        for name in (*passed[left, right], right):
            next_x, next_y = places[name]
            next_y += HIGH / 2 if name == right else PASS / 2
            path += _curve(at + ACROSS / 2, level, next_x - ACROSS / 2, next_y, next_x, next_y)
            path += "" if name == right else f"H{next_x + WIDE:.0f}"
            at, level = next_x + WIDE, next_y
    elif x == to_x:
        path = f"M{x + WIDE:.0f} {y + HIGH / 2:.0f}" + _curve(
            x + WIDE + ACROSS / 2, y + HIGH / 2, x + WIDE + ACROSS / 2, to_y + HIGH / 2, x + WIDE, to_y + HIGH / 2)
    else:
        path = f"M{x + WIDE / 2:.0f} {y + HIGH:.0f}" + _curve(
            x + WIDE / 2, ground, to_x + WIDE / 2, ground, to_x + WIDE / 2, to_y + HIGH)
    flows = [flow, back] if back else [flow]
    told = "; ".join(f"{each.source} to {each.target}: {each.bits} bits" for each in flows)
    thick = 0.45 * (max(each.bits for each in flows).bit_length() - 2)
    start = ' marker-start="url(#tip)"' if back else ""
    return (f'  <path d="{path}" fill="none" stroke="{LINE}" stroke-width="{thick:.2f}" opacity=".75" '
            f'marker-end="url(#tip)"{start}><title>{told}</title></path>')


def _curve(*points: float) -> str:
    return "C" + " ".join(f"{point:.0f}" for point in points)


def _box(block: Block, x: float, y: float, wide: float) -> Iterator[str]:
    name = block.name.partition(" ")[0] + (f" x {block.count}" if block.count > 1 else "")
    yield (f'  <g text-anchor="middle"><title>{html.escape(block.about or "a port of the core")}</title>'
           f'<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{HIGH}" rx="5" stroke="{SOFT}" '
           f'fill="{BOX if block.kind else PORT}"/>')
    yield (f'    <text x="{x + wide / 2:.0f}" y="{y + (18 if block.kind else 26):.0f}" font-weight="bold">{name}</text>'
           f'<text x="{x + wide / 2:.0f}" y="{y + 34:.0f}" font-size="11" fill="{SOFT}">{block.kind}</text></g>')
