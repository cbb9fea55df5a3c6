"""Operations of the MLP core's three engines put in order: where things lie, who waits for whom.

What an operation of the sequencer reads and writes is given as spans of the on-chip memories; loads bring spans. From
that follow, for every program:

    place    a span gets lines that no other one has while it is needed; of those free, the ones free for longest
    order    a load stands before the operation that needs it, and behind the last one that needs its lines otherwise,
             far enough ahead to run beside operations that do not need it
    wait_*   an operation waits for the loads of what it reads; a load for the operation that last used its lines
    max_in_flight    of tiles: a tile begins only when all that it reads has been written

Why the waits suffice. Whatever an operation writes is read by a later one before its lines are given away, and that
one's max_in_flight lets it read only what is written; so when the reader is done nothing of the writer is under
way. A load is
needed by an operation that waits for it; so when that one begins nothing of the load is under way. Tiles are written
in the order in which they begin, so tiles never overtake one another in writing, nor a later write an earlier read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.systolic.array import pe_latency
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET
from hw.mlp.config import MlpConfig

__all__ = ["FREELY", "Full", "Load", "Op", "Schedule", "Span", "Step"]

FREELY = (1 << 32) - 1      # a lag that never holds a tile up
THROUGHPUT, LATENCY = range(2)
# What the prediction assumes, in cycles or instructions: decoding, a memory's first answer, results on their way,
# instructions that wait for an engine, a word through the sigmoid.
DECODE, MEMORY, DRAIN, QUEUE, SIGMOID = 48, 100, 20, 2, 9


class Full(Exception):
    """A memory cannot hold what is needed at once. space: rows, weights or addends; lines: of the span."""

    def __init__(self, space: str, lines: int):
        super().__init__(f"no {lines} lines of the {space}' memory are free")
        self.space, self.lines = space, lines


@dataclass(eq=False)
class Span:
    """Lines of a memory. line_stride: lines from a beat of a row to the next (features: from a sample). fixed:
    stays where
    it is, for good; line: where that is, for other spans set by the schedule. first, last: operations between which
    the lines are in use."""

    space: str
    lines: int
    line_stride: int = 0
    line: int = -1
    fixed: bool = False
    first: int = -1
    last: int = -1
    loads: list["Load"] = field(default_factory=list)
    written: NDArray[np.int64] | None = None    # (sample group, unit): last tile that writes there, -1: none
    partial: dict[int, int] = field(default_factory=dict)   # first column group -> first tile that wrote it


@dataclass(eq=False)
class Load:
    """A load of (part of) `span`. lines: field -> lines behind the span's first, for fields that hold lines. cycles:
    that it takes, a beat a cycle at best."""

    name: str
    span: Span
    values: dict[str, int]
    lines: dict[str, int]
    about: str
    cycles: int
    needed: int = -1
    number: int = -1        # among the loads of its engine
    free_at: int = -1

    @property
    def is_rows(self) -> bool:
        return self.name == "LOAD_ROWS"


@dataclass(eq=False)
class Op:
    """A LAYER or INTERACT. spans: field that holds a line -> (span, lines behind its first). reads, writes: of the
    rows' memory. shapes: tiles of an interaction's sample."""

    name: str
    values: dict[str, int]
    spans: dict[str, tuple[Span, int]]
    about: str
    reads: Sequence[Span]
    writes: Sequence[Span] = ()
    shapes: Sequence[int] = ()      # slots of each tile of an interaction's sample
    begin: int = -1                 # number of its first tile in the run

    def all_spans(self) -> list[Span]:
        return [*self.reads, *self.writes, *(span for span, _ in self.spans.values())]


@dataclass(frozen=True)
class Step:
    """An instruction with all its values; about: what it does, in the words of whoever made the network."""

    name: str
    values: dict[str, int]
    about: str


class Tiles:
    """The tiles of one operation, in order."""

    def __init__(self, config: MlpConfig, op: Op):
        self.config, self.op = config, op
        values = op.values
        self.count, self.mode = values["count"], values.get("mode", THROUGHPUT)
        self.groups = values.get("groups", 1)
        self.samples = -(-self.count // config.samples)             # sample groups
        self.units = -(-self.count // config.rows)                  # of all sample groups, those with samples
        # Samples that one unit works on one after the other in an interaction.
        own = self.count - (self.samples - 1) * config.samples
        self.own = (self.samples - 1) * config.rows + min(config.rows, own)
        if op.name == "INTERACT":
            self.number = self.own * len(op.shapes)
        elif self.mode == LATENCY:
            self.number = -(-self.groups // config.units) * self.units
        else:
            self.number = self.groups * self.samples

    @property
    def slots(self) -> int:
        """Slots that a tile takes; of an interaction, all together."""
        config = self.config
        if self.op.name == "INTERACT":
            return self.own * sum(self.op.shapes)
        live = min(config.rows, self.count)
        least = max(config.rows, live * config.units // config.groups_per_beat if self.mode == LATENCY else 0)
        return max(self.op.values["steps"], least)

    @property
    def in_all(self) -> int:
        return self.slots if self.op.name == "INTERACT" else self.number * self.slots

    @property
    def held_up(self) -> int:
        """Tiles that wait for the lag: those of the first pass; with partials, all."""
        config = self.config
        if self.op.name == "INTERACT":
            return 1
        if self.op.values.get("addend") == ADDEND.PARTIAL:
            return self.number
        return self.units if self.mode == LATENCY else self.samples * min(self.groups, config.groups_per_beat)

    @property
    def leaves(self) -> float:
        """Cycles that a tile's results take on their way to memory, 0: they stay on chip."""
        values, config = self.op.values, self.config
        if values.get("target") != TARGET.MEMORY:
            return 0
        if values["activation"] == ACTIVATION.SIGMOID:
            return self.count * ((self.groups - 1) * config.columns + values["last_columns"]) * SIGMOID / self.number
        return self.count * -(-self.groups // config.groups_per_beat) / self.number

    def last_writers(self) -> NDArray[np.int64]:
        """(sample group, unit): the last tile that writes rows of that unit's samples of the group."""
        config, s = self.config, np.arange(self.samples)[:, None]
        unit = np.arange(config.units)
        if self.op.name == "INTERACT":
            return np.minimum((s + 1) * config.rows, self.own) * len(self.op.shapes) - 1 + 0 * unit
        if self.mode == LATENCY:
            passes = -(-self.groups // config.units)
            return np.minimum((passes - 1) * self.units + s * config.units + unit, self.number - 1)
        passes = -(-self.groups // config.groups_per_beat)
        in_last = self.groups - (passes - 1) * config.groups_per_beat
        return (passes - 1) * config.groups_per_beat * self.samples + (s + 1) * in_last - 1 + 0 * unit

    def first_pass(self, written: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the tiles of the first pass, and the last tile that wrote what each reads."""
        config = self.config
        if self.op.name == "INTERACT":
            return np.zeros(1, np.int64), written.max()[None]
        if self.mode == LATENCY:
            return np.arange(self.units), written.reshape(-1)[:self.units]
        groups_per_beat = min(self.groups, config.groups_per_beat)
        return np.arange(self.samples * groups_per_beat), np.repeat(written.max(axis=1), groups_per_beat)


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
                    span.first, span.written, span.partial = number, None, {}
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
        """The instructions, their waits and lags."""
        self.steps: list[Step] = []
        tile = 0
        self.known = -1
        self.tiles: list[Tiles] = []
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
                tiles = Tiles(self.config, item)
                item.begin = tile
                values["max_in_flight"] = self._lag(item, tiles)
                self._written(item, tiles)
                tile += tiles.number
                self.tiles.append(tiles)
            self.steps.append(Step(item.name, values, item.about))

    def _lag(self, op: Op, tiles: Tiles) -> int:
        """When tile t begins and at most `max_in_flight` are under way, tiles 0 to t - 1 - max_in_flight are written.
        `known`: the last
        tile that is known to be, from the operations before."""
        max_in_flight, last = FREELY, 0
        for span in op.reads:
            if span.written is not None:
                number, writer = tiles.first_pass(span.written)
                room = (op.begin + number - 1 - writer)[writer > self.known]
                max_in_flight, last = min(max_in_flight, int(room.min(initial=FREELY))), int(number[-1])
        if op.values.get("addend") == ADDEND.PARTIAL:
            # The chunk before wrote these column groups in the same order of tiles.
            span, lines = op.spans["addend_line"]
            last = tiles.number - 1
            if span.partial[lines] + last > self.known:
                max_in_flight = min(max_in_flight, op.begin - span.partial[lines] - 1)
        self.known = max(self.known, op.begin + last - 1 - max_in_flight)
        return max_in_flight

    def _written(self, op: Op, tiles: Tiles) -> None:
        for span in op.writes:
            last = op.begin + tiles.last_writers()
            span.written = last if span.written is None else np.maximum(span.written, last)
        if op.values.get("target") == TARGET.PARTIAL:
            span, lines = op.spans["to_line"]
            span.partial[lines] = op.begin

    def predict(self) -> tuple[int, int]:
        """About how many cycles the program takes to its last slot, and to its end: slots, waits for loads, for lags,
        decoding and results on their way to memory."""
        config = self.config
        drain = pe_latency(config.width, grouped=config.grouped) + 2 * config.rows + config.columns + DRAIN
        busy, done = {True: 0, False: 0}, {True: [0], False: [0]}
        begun: dict[str, list[int]] = {"rows": [], "weights": [], "layers": []}
        ends = [0]              # of the operations' slots
        tile_ends: list[NDArray[np.float64]] = []
        starts_of: list[int] = []
        left = [0.0] * max(config.staged_tiles // config.groups_per_beat,
                           1)     # when the last tiles that were staged are gone
        decoded = now = 0
        ops = iter(self.tiles)
        for item, step in zip(self.order, self.steps, strict=True):
            engine = "layers" if isinstance(item, Op) else "rows" if item.is_rows else "weights"
            decoded += DECODE
            if len(begun[engine]) > QUEUE:
                decoded = max(decoded, begun[engine][-QUEUE])
            after = ends[step.values.get("wait_layers", 0)]
            if isinstance(item, Load):
                start = max(decoded, after, busy[item.is_rows])
                busy[item.is_rows] = start + item.cycles
                done[item.is_rows].append(start + item.cycles + MEMORY)
                begun[engine].append(start)
                continue
            tiles = next(ops)
            start = max(now, decoded, done[True][step.values["wait_rows"]], done[False][step.values["wait_weights"]])
            begun[engine].append(start)
            max_in_flight, slots, leaves = step.values["max_in_flight"], tiles.in_all / tiles.number, tiles.leaves
            own, time = np.empty(tiles.number), float(start)
            held_up = tiles.number if leaves else tiles.held_up
            for number in range(held_up):
                needed = item.begin + number - 1 - max_in_flight
                if number >= tiles.held_up or needed < 0:
                    pass
                elif needed >= item.begin:
                    time = max(time, own[needed - item.begin] + drain)
                else:
                    at = bisect_right(starts_of, needed) - 1
                    time = max(time, tile_ends[at][needed - starts_of[at]] + drain)
                if leaves:
                    time = max(time, left[0])
                    left = [*left[1:], max(left[-1], time + slots + drain) + leaves]
                time += slots
                own[number] = time
            own[held_up:] = time + slots * np.arange(1, tiles.number - held_up + 1)
            now = int(own[-1])
            tile_ends.append(own)
            starts_of.append(item.begin)
            ends.append(now)
        return now, max(now + drain, int(left[-1]))
