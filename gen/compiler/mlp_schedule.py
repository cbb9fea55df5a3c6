"""Operations of the MLP core's three engines put in order: where things lie, who waits for whom.

What an operation of the sequencer reads and writes is given as spans of the on-chip memories; loads bring spans. From
that follow, for every program:

    place    a span gets lines that no other one has while it is needed; of those free, the ones free for longest
    order    a load stands before the operation that needs it, and behind the last one that needs its lines otherwise,
             far enough ahead to run beside operations that do not need it
    wait_*   an operation waits for the loads of what it reads, a load for the operation that last used its lines, and
             both for what the core wants waited for, see golden.mlp.program: among that, an operation for those that
             make what it reads

Why the waits suffice. An operation is done when its last tile is written, and tiles are written in the order in which
they begin; so when the one that last used a load's lines is done, nothing of it or of those before it is under way. A
load is needed by an operation that waits for it; so when that one begins nothing of the load is under way. Nor does a
tile overtake another in writing, or a later write an earlier read.
"""

from bisect import bisect_left
from collections.abc import Sequence

from gen.compiler.mlp_operations import Load, Op, Span, Step, Tiles
from golden.mlp.program import ENGINES, OTHERS, Rules, Waits
from hw.isa import MLP
from hw.isa.kernel import Decoded
from hw.mlp.config import MlpConfig

# What the prediction assumes, in cycles or instructions: decoding, a memory's first answer, instructions that wait for
# an engine.
DECODE, MEMORY, QUEUE = 48, 100, 2
NOTHING = dict.fromkeys((field.name for field in MLP.fields), 0)


class Full(Exception):
    """A memory cannot hold what is needed at once. space: rows, weights or addends; lines: of the span."""

    def __init__(self, space: str, lines: int):
        super().__init__(f"no {lines} lines of the {space}' memory are free")
        self.space, self.lines = space, lines


class Schedule:
    """A program's instructions out of its operations, in their order.

    window: how many operations ahead of its use a load may hold its lines. starts: lines at the begin of a memory
    that fixed spans have.
    Raises      Full: the memories cannot hold what is needed at once
    """

    def __init__(self, config: MlpConfig, ops: Sequence[Op], *, window: int, starts: dict[str, int] | None = None):
        self.config, self.ops, self.window = config, list(ops), window
        self.starts = starts or {}
        self.depth = {"rows": config.row_lines, "weights": config.weight_lines, "addends": config.addend_lines}
        self.loads: list[Load] = []
        self._lifetimes()
        for space in ("rows", "weights", "addends"):
            self._place(space)
        self._order()
        self._waits()

    def _lifetimes(self) -> None:
        seen: dict[int, Span] = {}
        for number, op in enumerate(self.ops):
            for span in op.all_spans():
                if id(span) not in seen:
                    seen[id(span)] = span
                    span.first = number
                    if not span.fixed:
                        span.line = -1
                span.last = number
            for span in (*op.reads, *(op.spans[name][0] for name in ("weight_line", "addend_line")
                                      if name in op.spans)):
                for load in span.loads:
                    if id(load) not in seen:
                        seen[id(load)] = span
                        load.needed = number
                        self.loads.append(load)
        self.spans = [span for span in {id(s): s for s in seen.values()}.values()]
        for span in self.spans:
            if span.loads:
                span.first = min(span.first, max(0, min(load.needed for load in span.loads) - self.window))

    def _place(self, space: str) -> None:
        """Every span its lines: those that were free for longest; if that leads nowhere, the lowest free ones."""
        mine = sorted((span for span in self.spans if span.space == space and not span.fixed),
                      key=lambda span: (span.first, -span.last))
        for lowest in (False, True):
            try:
                self._fit(space, mine, lowest)
                return
            except Full:
                if lowest:
                    raise

    def _fit(self, space: str, spans: Sequence[Span], lowest: bool) -> None:
        placed: list[Span] = []
        begin, depth = self.starts.get(space, 0), self.depth[space]
        for span in spans:
            # What was in use long ago is no different from what never was.
            placed = [other for other in placed if other.last >= span.first - 4 * self.window - 16]
            busy = [other for other in placed if other.last >= span.first]
            best = None
            for line in {begin, *(other.line + other.lines for other in placed),
                         *(other.line - span.lines for other in placed)}:
                if line < begin or line + span.lines > depth:
                    continue
                if any(line < other.line + other.lines and other.line < line + span.lines for other in busy):
                    continue
                used = max((other.last for other in placed
                            if line < other.line + other.lines and other.line < line + span.lines), default=-1)
                rank = (0 if lowest else used, line)
                if best is None or rank < best:
                    best = rank
            if best is None:
                raise Full(space, span.lines)
            span.line = best[1]
            placed.append(span)

    def _free_at(self, load: Load, before: Sequence[Span]) -> int:
        """The last operation before the one that needs a load which uses its lines for something else, -1: none."""
        span, last = load.span, -1
        if not span.fixed:
            for other in before:
                if other.last >= load.needed:
                    break
                if other is not span and other.line < span.line + span.lines and span.line < other.line + other.lines:
                    last = max(last, other.last)
        return last

    def _order(self) -> None:
        """Loads between the operations.

        A load stands where it is about to begin if nobody waits for anything but loads and lines, so that the ones
        handed out before it keep no operation waiting; and a load that waits for operation k behind operation k + 1,
        so that its own waiting does not.
        """
        by_space: dict[str, list[Span]] = {}
        for span in sorted(self.spans, key=lambda span: span.last):
            by_space.setdefault(span.space, []).append(span)
        begins: list[int] = []
        ends: list[int] = []
        free = {True: 0, False: 0}
        places: list[tuple[int, int, int]] = []
        waiting = 0
        for number, op in enumerate(self.ops):
            ready = ends[-1] if ends else 0
            while waiting < len(self.loads) and self.loads[waiting].needed == number:
                load = self.loads[waiting]
                load.free_at = self._free_at(load, by_space[load.span.space])
                begin = max(free[load.is_rows], ends[load.free_at] if load.free_at >= 0 else 0)
                free[load.is_rows] = begin + load.cycles
                ready = max(ready, begin + load.cycles + MEMORY)
                ahead = max(bisect_left(begins, begin), number - max(self.window, 1), min(number, 1))
                places.append((min(number, max(load.free_at + 2, ahead)), number, waiting))
                waiting += 1
            begins.append(ready)
            ends.append(ready + Tiles(self.config, op).in_all)
        self.order: list[Load | Op] = []
        order = [(place, self.loads[at]) for place, _, at in sorted(places)]
        at = 0
        for number, op in enumerate(self.ops):
            while at < len(order) and order[at][0] <= number:
                self.order.append(order[at][1])
                at += 1
            self.order.append(op)
        numbers = [0, 0]
        for item in self.order:
            if isinstance(item, Load):
                item.number = numbers[item.is_rows]
                numbers[item.is_rows] += 1

    def _waits(self) -> None:
        """The instructions, and their waits."""
        self.steps: list[Step] = []
        self.tiles: list[Tiles] = []
        self.rules = Waits(Rules(self.config))
        for item in self.order:
            values = dict(item.values)
            if isinstance(item, Load):
                values |= {name: item.span.line + lines for name, lines in item.lines.items()}
                values["wait_layers"] = item.free_at + 1
            else:
                values |= {name: span.line + lines for name, (span, lines) in item.spans.items()}
                sources = [*item.reads, *(item.spans[name][0] for name in ("weight_line", "addend_line")
                                          if name in item.spans)]
                waits = [load for span in sources for load in span.loads if load.number >= 0]
                values["wait_rows"] = max((load.number + 1 for load in waits if load.is_rows), default=0)
                values["wait_weights"] = max((load.number + 1 for load in waits if not load.is_rows), default=0)
                self.tiles.append(Tiles(self.config, item))
            self._wait_more(item.name, values)
            self.steps.append(Step(item.name, values, item.about))

    def _wait_more(self, name: str, values: dict[str, int]) -> None:
        """For what the core wants waited for, which knows of spans only their first lines and their last."""
        item = Decoded(**NOTHING | values | {"opcode": MLP.instruction(name).opcode})
        for engine in OTHERS[ENGINES[item.opcode]]:
            wait = ("wait_rows", "wait_weights", "wait_layers")[engine]
            values[wait] = max(values.get(wait, 0), self.rules.needed(item, engine, values.get(wait, 0)))
            setattr(item, wait, values[wait])
        self.rules.add(item)

    def predict(self) -> tuple[int, int]:
        """About how many cycles the program takes to its last slot, and to its end: slots, waits for loads and results,
        decoding and results on their way to memory."""
        config = self.config
        busy, done = {True: 0, False: 0}, {True: [0], False: [0]}
        begun: dict[str, list[int]] = {"rows": [], "weights": [], "layers": []}
        written = [0]           # of the operations' results
        left = [0.0] * max(config.staged_tiles // config.groups_per_beat,
                           1)     # when the last tiles that were staged are gone
        running: list[tuple[int, int, int]] = []    # operations that write rows: their begin, end, and writes
        decoded = now = 0
        ops = iter(self.tiles)
        for item, step in zip(self.order, self.steps, strict=True):
            engine = "layers" if isinstance(item, Op) else "rows" if item.is_rows else "weights"
            decoded += DECODE
            if len(begun[engine]) > QUEUE:
                decoded = max(decoded, begun[engine][-QUEUE])
            after = written[step.values["wait_layers"]]
            if isinstance(item, Load):
                start = max(decoded, after, busy[item.is_rows])
                busy[item.is_rows] = start + item.cycles
                if item.is_rows:        # results go first
                    busy[True] += sum(_share(run, start, busy[True]) for run in running)
                done[item.is_rows].append(busy[item.is_rows] + MEMORY)
                begun[engine].append(start)
                continue
            tiles = next(ops)
            start = max(now, decoded, after, done[True][step.values["wait_rows"]],
                        done[False][step.values["wait_weights"]])
            begun[engine].append(start)
            now = start + tiles.in_all
            if tiles.leaves:
                time, slots = float(start), tiles.in_all / tiles.number
                for _ in range(tiles.number):
                    time = max(time, left[0]) + slots
                    left = [*left[1:], max(left[-1], time + tiles.drain) + tiles.leaves]
                now = int(time)
            written.append(now + tiles.drain)
            rows = tiles.number * tiles.live * tiles.writes if tiles.to_rows else 0
            running = [*(run for run in running if run[1] > start), (start, now, rows)]
            if busy[True] > start:
                late = _share(running[-1], start, busy[True])
                busy[True] += late
                done[True][-1] += late
        return now, max(written[-1], int(left[-1]))


def _share(run: tuple[int, int, int], first: int, last: int) -> int:
    """Of writes that are spread over the cycles from a begin to an end, those between two cycles."""
    begin, end, writes = run
    return round(writes * max(0, min(end, last) - max(begin, first)) / max(1, end - begin))
