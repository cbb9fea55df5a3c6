"""Operations of the MLP core's three engines put in order: where things lie, who waits for whom.

What an operation of the sequencer reads and writes is given as spans of the on-chip memories; loads bring spans. From
that follow, for every program:

    place    a span gets lines that no other one has while it is needed; of those free, the ones free for longest
    order    a load stands before the operation that needs it, and behind the last one that needs its lines otherwise,
             far enough ahead to run beside operations that do not need it
    wait_*   an operation waits for the loads of what it reads; a load for the operation that last used its lines; both
             for what the core wants waited for, see golden.mlp.program
    max_in_flight    of tiles: a tile begins only when all that it reads has been written, or is before it reads it

What is written in time. Only the beginning of a tile waits; whatever has begun runs at a fixed pace:
    slots    a tile's slots come one per cycle, and step k reads the words from k * width on
    pace     the last slot of a tile comes no earlier behind the one of the tile before than `Tiles.pace` says
    results  row r of a tile of `live` rows comes `latency` + live + r cycles behind the tile's last slot. Nothing holds
             the way of results up: no part of it has a ready, loads make way for results in the memories, and a tile
             for DRAM begins only when its rows have a place
    turns    a row has its turn as it comes, or when the row before has had a cycle for each of its writes; WRITTEN
             cycles behind its last row's last cycle a tile is written, and the slot behind finds it
Let d(t) be the cycles from the last slot of tile t, less `latency`, to the end of its last row's turn, b(t) the writes
of each of its live(t) rows, and g the cycles from the last slot before to its own:
    d(t) = max(live(t), d(t - 1) - g) + live(t) * b(t)
With rows of one write g >= rows >= live, with rows of several g >= live * units / groups_per_beat >= live * b: so
d(t) <= max(d(t - 1), live(t) * (1 + b(t))), and d never exceeds the largest live * (1 + b) so far, however many rows
wait. Hence a slot finds tile w from `latency` + WRITTEN + d cycles behind w's last slot on: `Tiles.drain`.
Let now all tiles follow each other at their pace, and call the cycles of that run the tiles' clock. In any other run
the last slot of w comes some cycles later, and every slot of a tile behind it no fewer cycles later: a tile's wait,
for whatever reason, puts off all slots from its own on. So a step that on the clock comes when w is written comes then
in every run, and w needs no wait. For the others `max_in_flight` holds the reader up until w is written, as if the
time in between did not matter. Words that no step reads count as read by the last one. Addends are no operands of
slots: they are read at least `Tiles.added` cycles behind a tile's last one.

Why the waits suffice. An operation is done when its last tile is written, and tiles are written in the order in which
they begin; so when the one that last used a load's lines is done, nothing of it or of those before it is under way. A
load is needed by an operation that waits for it; so when that one begins nothing of the load is under way. Nor does a
tile overtake another in writing, or a later write an earlier read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from gen.compiler.mlp_operations import Load, Op, Span, Step, Tiles
from golden.mlp.program import ENGINES, OTHERS, Rules, Waits
from hw.isa import MLP
from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.config import MlpConfig

__all__ = ["FREELY", "Full", "Schedule"]

FREELY = (1 << 32) - 1      # a lag that never holds a tile up
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
                    span.first, span.written, span.partial = number, [], {}
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
        self.tiles: list[Tiles] = []
        self.known = -1
        self.rules = Waits(Rules(self.config))
        begin = clock = behind = 0
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
                behind = max(behind, tiles.turns)
                tiles.begin, tiles.clock, tiles.behind = begin, clock, behind
                values["max_in_flight"] = self._lag(tiles)
                self._written(tiles)
                begin += tiles.number
                clock += tiles.ends(tiles.number - 1)
                self.tiles.append(tiles)
            self._wait_more(item.name, values)
            self.steps.append(Step(item.name, values, item.about))

    def _wait_more(self, name: str, values: dict[str, int]) -> None:
        """For what the core wants waited for, which knows of spans only their first lines and their last."""
        item = SimpleNamespace(**NOTHING | values | {"opcode": MLP.instruction(name).opcode})
        for engine in OTHERS[ENGINES[item.opcode]]:
            wait = ("wait_rows", "wait_weights", "wait_layers")[engine]
            values[wait] = max(values[wait], self.rules.needed(item, engine, values[wait]))
            setattr(item, wait, values[wait])
        self.rules.add(item)

    def _lag(self, tiles: Tiles) -> int:
        """When tile t begins and at most `max_in_flight` are under way, tiles 0 to t - 1 - max_in_flight are written.
        `known`: the last tile that is known to be, from the operations before."""
        max_in_flight = min((reader - 1 - writer for reader, writer in self._late(tiles)), default=FREELY)
        self.known = max(self.known, tiles.begin + tiles.held_up - 2 - max_in_flight)
        return max_in_flight

    def _late(self, tiles: Tiles) -> Iterator[tuple[int, int]]:
        """Tiles of an operation, each with one before whose results it might miss if it did not wait."""
        op, first = tiles.op, tiles.clock + 1
        for span in op.reads:
            for writer, word in span.written:
                for number in reversed(range(writer.number)):
                    there = writer.there(number)
                    if writer.begin + number <= self.known or there <= first:
                        break       # and so for those before
                    group, samples, unit = writer.place(number)
                    reader, later = tiles.reader(samples, unit)
                    if first + later + tiles.step(word + group * self.config.columns) < there:
                        yield tiles.begin + reader, writer.begin + number
        if op.values.get("addend") == ADDEND.PARTIAL:
            # The chunk before wrote these column groups in the same order of tiles. Time grows evenly in both.
            span, lines = op.spans["addend_line"]
            writer, last = span.partial[lines], tiles.number - 1
            if writer.begin + last > self.known and any(
                    tiles.clock + tiles.ends(number) + tiles.added < writer.there(number) for number in (0, last)):
                yield tiles.begin, writer.begin

    def _written(self, tiles: Tiles) -> None:
        op = tiles.op
        for span in op.writes:
            beats = op.spans["to_line"][1] // span.line_stride
            span.written.append((tiles, beats * self.config.words))
        if op.values.get("target") == TARGET.PARTIAL:
            span, lines = op.spans["to_line"]
            span.partial[lines] = tiles

    def predict(self) -> tuple[int, int]:
        """About how many cycles the program takes to its last slot, and to its end: slots, waits for loads, for lags,
        decoding and results on their way to memory."""
        config = self.config
        busy, done = {True: 0, False: 0}, {True: [0], False: [0]}
        begun: dict[str, list[int]] = {"rows": [], "weights": [], "layers": []}
        ends = [0]              # of the operations' slots
        tile_ends: list[NDArray[np.float64]] = []
        starts_of: list[int] = []
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
            after = ends[step.values.get("wait_layers", 0)]
            if isinstance(item, Load):
                start = max(decoded, after, busy[item.is_rows])
                busy[item.is_rows] = start + item.cycles
                if item.is_rows:        # results go first
                    busy[True] += sum(_share(run, start, busy[True]) for run in running)
                done[item.is_rows].append(busy[item.is_rows] + MEMORY)
                begun[engine].append(start)
                continue
            tiles = next(ops)
            start = max(now, decoded, done[True][step.values["wait_rows"]], done[False][step.values["wait_weights"]])
            begun[engine].append(start)
            max_in_flight, slots, leaves = step.values["max_in_flight"], tiles.in_all / tiles.number, tiles.leaves
            drain = tiles.drain
            own, time = np.empty(tiles.number), float(start)
            held_up = tiles.number if leaves else tiles.held_up
            for number in range(held_up):
                needed = tiles.begin + number - 1 - max_in_flight
                if number >= tiles.held_up or needed < 0:
                    pass
                elif needed >= tiles.begin:
                    time = max(time, own[needed - tiles.begin] + drain)
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
            starts_of.append(tiles.begin)
            ends.append(now)
            written = tiles.number * tiles.live * tiles.writes if tiles.to_rows else 0
            running = [*(run for run in running if run[1] > start), (start, now, written)]
            if busy[True] > start:
                late = _share(running[-1], start, busy[True])
                busy[True] += late
                done[True][-1] += late
        return now, max(now + drain, int(left[-1]))


def _share(run: tuple[int, int, int], first: int, last: int) -> int:
    """Of writes that are spread over the cycles from a begin to an end, those between two cycles."""
    begin, end, writes = run
    return round(writes * max(0, min(end, last) - max(begin, first)) / max(1, end - begin))
