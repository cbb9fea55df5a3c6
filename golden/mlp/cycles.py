"""The MLP core on ideal memories, cycle by cycle: how long a program takes, equal to the hardware's counters.

Each part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Only what decides the time is there: no operands, no faults.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from golden.axi.ports import Memory, ReadPort, Reporter, WritePort
from golden.mlp import results as mlp_results
from golden.mlp.loader import ParameterLoader, RowLoader
from golden.mlp.order import Shape, Tile
from golden.mlp.program import Arguments, Program
from golden.mlp.result_writer import ResultWriter, Row
from golden.mlp.sequencer import STALLS, Sequencer
from golden.systolic import array as systolic
from hw.isa.mlp import TARGET

__all__ = ["Results", "Run", "Sizes", "Span", "cycles"]

OPERANDS = 8        # cycles from a slot to its operands at the arrays; one fewer where they share exponents
REACH = 2           # columns of an array that operands enter at a time
CALM = 4            # that all parts have to be idle before the run is over
HEADER_WORDS = 16   # of the result block, before the counters
PROGRESS = 192      # its word that progress is told in


class Sizes(NamedTuple):
    """What of a core's configuration the time depends on; names as in its preset."""

    units: int
    rows: int
    width: int
    words: int
    row_lines: int
    weight_lines: int
    addend_lines: int
    reads_in_flight: int
    writes_in_flight: int
    program_beats: int
    load_beats: int
    output_beats: int
    staged_tiles: int
    grouped: bool
    counters: int           # in the result block, with those that fill it up

    @property
    def shape(self) -> Shape:
        return Shape(*(getattr(self, name) for name in Shape._fields))


class Span(NamedTuple):
    """When an instruction's first and last slot came, in cycles from the run's start, and how many it had."""

    first: int
    last: int
    slots: int


class Run(NamedTuple):
    """Of a program: the counters, and the slots of each LAYER and INTERACT by its number."""

    counters: dict[str, int]
    spans: dict[int, Span]


class Results:
    """When the rows of a tile's results are where they go, known as soon as its last slot has gone.

    lanes: rows of the rows' memory that are written in this cycle; partial: addends are; row: on its way to memory;
    written: a tile is
    """

    def __init__(self, shape: Shape, *, grouped: bool):
        self.shape = shape
        self.sizes = mlp_results.Sizes(shape.units, shape.rows, shape.columns, shape.words, shape.piece)
        self.latency = OPERANDS - grouped + systolic.pe_latency(shape.width, grouped=grouped) + 1 + (
            shape.columns - 1) // REACH
        self.cycle = self.free = 0
        self._lanes: dict[int, set[int]] = {}
        self._partials: set[int] = set()
        self._rows: dict[int, Row] = {}
        self._written: set[int] = set()

    @property
    def lanes(self) -> set[int]:
        return self._lanes.get(self.cycle, set())

    @property
    def partial(self) -> bool:
        return self.cycle in self._partials

    @property
    def row(self) -> Row | None:
        return self._rows.get(self.cycle)

    @property
    def written(self) -> bool:
        return self.cycle in self._written

    def step(self, tile: Tile | None) -> None:
        """tile: that comes with its last slot in this cycle."""
        for events in (self._lanes, self._rows):
            events.pop(self.cycle, None)
        for cycles in (self._partials, self._written):
            cycles.discard(self.cycle)
        if tile is not None:
            for row in range(tile.live):
                # As it comes, or once those before have had a cycle for each of their writes.
                turn = max(self.cycle + self.latency + tile.live + row, self.free)
                self.free = turn + mlp_results.beats(tile.fields, self.sizes)
                self._row(tile, row, turn)
            self._written.add(self.free - 1 + mlp_results.WRITTEN)
        self.cycle += 1

    def _row(self, tile: Tile, row: int, turn: int) -> None:
        fields, shape = tile.fields, self.shape
        target, last = fields["target"], row == tile.live - 1
        if target in (TARGET.ROWS, TARGET.FEATURE):
            if fields["triangle"] and not mlp_results.pairs(fields, row, self.sizes):
                return
            there = fields["bank"] if fields["fixed"] else row
            lanes = {unit * shape.rows + there for unit in range(shape.units)
                     if fields["lanes"] >> unit * shape.rows + row & 1}
            for cycle in range(turn, self.free):
                self._lanes[cycle + mlp_results.ROWS] = lanes
        elif target == TARGET.PARTIAL:
            self._partials.add(turn + mlp_results.STORE)
        elif target == TARGET.MEMORY:
            self._rows[turn + mlp_results.STORE] = Row(
                row, last, out=fields["out"], stride=fields["stride"], count=fields["lanes"].bit_count(),
                half=fields["half"], fills=bool(fields["fills"]), sigmoid=bool(fields["sigmoid"]),
                latency=bool(fields["latency"]), unit=fields["unit"], outs=fields["outs"],
                columns=fields["columns"], idle_units=fields["idle_units"])


class _Done:
    """How many loads and layers are done, and whether progress is to be told."""

    def __init__(self) -> None:
        self.rows = self.weights = self.layers = 0
        self.tell = False

    def step(self, rows: bool, weights: bool, layers: bool) -> None:
        self.rows, self.weights, self.layers = self.rows + rows, self.weights + weights, self.layers + layers
        self.tell = rows or weights or layers


class _Over:
    """Whether everything has been idle long enough, and then until progress is told."""

    def __init__(self) -> None:
        self.calm = self.under_way = 0
        self.all_written = self.settling = False

    def step(self, idle: bool, asked: bool, written: bool) -> None:
        """idle: of all parts; asked, written: writes of results."""
        self.settling = self.settling or self.calm == CALM
        self.calm = min(CALM, self.calm + 1) if idle and self.all_written else 0
        self.all_written = not self.under_way and not asked
        self.under_way += asked - written


def cycles(sizes: Sizes, *, program: int, program_count: int, words: Callable[[int], Sequence[int]], inputs: int,
           weights: int, outputs: int, result: int, latency: int = 100, most: int = 2_000_000) -> Run:
    """How a program without faults runs; of the counters those of memory errors are left out.

    program, inputs, weights, outputs, result: addresses in beats; words: gives the words of a beat of the program;
    latency: of the memories
    """
    shape = sizes.shape
    columns, groups_per_beat, pieces = shape.columns, shape.groups_per_beat, shape.pieces
    beats = -(-(HEADER_WORDS + 2 * sizes.counters) // sizes.words)
    port = {"block": min(4096 // (4 * sizes.words), 256), "outstanding": sizes.reads_in_flight}
    reads = ReadPort(Memory(words, latency), clients=(sizes.program_beats, sizes.load_beats), **port)
    weight_reads = ReadPort(Memory(lambda _: True, latency), clients=(sizes.load_beats,), **port)
    writes = WritePort(Memory(words, latency), block=port["block"], outstanding=sizes.writes_in_flight,
                       clients=(sizes.output_beats, 1 << (beats - 1).bit_length()))
    front = Program(words=sizes.words, rows=sizes.rows, columns=columns, width=sizes.width)
    row_loader = RowLoader(units=sizes.units, rows=sizes.rows, pieces=pieces, lines=sizes.row_lines, base=inputs)
    parameter_loader = ParameterLoader(
        units=sizes.units, weight_lines=sizes.weight_lines, addend_lines=sizes.addend_lines,
        line_beats=columns * sizes.width // sizes.words, groups_per_beat=groups_per_beat, base=weights)
    sequencer, results = Sequencer(shape), Results(shape, grouped=sizes.grouped)
    outlet = ResultWriter(units=sizes.units, rows=sizes.rows, columns=columns, groups_per_beat=groups_per_beat,
                    staged_tiles=sizes.staged_tiles, output_beats=sizes.output_beats)
    reporter, done, over = Reporter(), _Done(), _Over()
    arguments = Arguments(program, program_count)
    counts: Counter[str] = Counter()
    spans: dict[int, Span] = {}

    for cycle in range(most):
        # What stands at the ports' clients, and what is taken of it.
        beat, rows_beat = reads.o
        weights_beat, = weight_reads.o
        accepted = [reads.accepting == client for client in range(2)]
        weights_accepted = weight_reads.accepting == 0
        asks = [outlet.request and (outputs + outlet.request[0], outlet.request[1]),
                (result + PROGRESS // sizes.words, 1) if reporter.request else None]
        granted = [ask is not None and ready for ask, ready in zip(asks, writes.ready, strict=True)]
        offered = [outlet.data is not None, reporter.data]
        taken = [bool(offer and room) for offer, room in zip(offered, writes.room, strict=True)]
        written = list(writes.done)
        # What goes from part to part.
        jobs = front.rows, front.parameters, front.layers
        jobs_taken = [job is not None and ready for job, ready in zip(
            jobs, (row_loader.ready, parameter_loader.ready, sequencer.ready), strict=True)]
        load = row_loader.load
        load_taken = load is not None and not results.lanes
        addends_taken = not results.partial
        consumed = [front.takes(beat), row_loader.takes(rows_beat)]
        weights_consumed = parameter_loader.takes(weights_beat, addends_taken)
        idle = front.done and row_loader.idle and parameter_loader.idle and sequencer.idle and outlet.idle

        counts.update(
            instructions=row_loader.done + parameter_loader.done + sequencer.done, rows_beats=consumed[1],
            weights_beats=weights_consumed, outputs_beats=taken[0], tiles=sequencer.tile is not None,
            slots=sequencer.slot is not None)
        if sequencer.slot is not None:
            number = sequencer.slot[0].item["number"]
            first, _, slots = spans.get(number, (cycle, cycle, 0))
            spans[number] = Span(first, cycle, slots + 1)
        if sequencer.stall:
            counts[f"stall_{sequencer.stall}"] += 1
        if over.settling and not (reporter.tell or reporter.writing or done.tell):
            names = ("instructions", "rows_beats", "weights_beats", "outputs_beats", "tiles", "slots",
                     *(f"stall_{name}" for name in STALLS))
            return Run({"cycles": cycle + 1} | {name: int(counts[name]) for name in names}, spans)

        # The edge.
        reads_asked, weights_asked = [front.request, row_loader.request], [parameter_loader.request]
        row, reserve, tile, tile_written = results.row, sequencer.reserve, sequencer.tile, results.written
        over.step(idle, granted[0], written[0])
        reporter.step(done.tell, request_taken=granted[1], data_taken=taken[1], written=written[1])
        finished = row_loader.done, parameter_loader.done, sequencer.done
        room = outlet.room
        outlet.step(row, reserve, request_taken=granted[0], data_taken=taken[0])
        results.step(tile)
        sequencer.step(item=jobs[2], rows_done=done.rows, weights_done=done.weights, written=tile_written, room=room)
        row_loader.step(job=jobs[0], data=rows_beat, request_taken=accepted[1], load_taken=load_taken,
                        weights_done=done.weights, layers_done=done.layers)
        parameter_loader.step(job=jobs[1], data=weights_beat, request_taken=weights_accepted,
                              addends_taken=addends_taken, rows_done=done.rows, layers_done=done.layers)
        front.step(start=cycle == 0, arguments=arguments, data=beat, request_taken=accepted[0], taken=jobs_taken)
        done.step(*finished)
        reads.step(reads_asked, consumed)
        weight_reads.step(weights_asked, [weights_consumed])
        writes.step(asks, taken)
    raise RuntimeError(f"the program has not ended after {most} cycles")
