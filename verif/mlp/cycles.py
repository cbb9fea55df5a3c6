"""Parts of the MLP core as its cycle model, its twin's C++, has them: when what stands where.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends it.
Addresses and lengths are in beats. What is loaded, and which tiles and slots there are, in their order, is golden's to
say.
"""

import ctypes
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gen.compiler.twin_layouts import MLP_JOB, MLP_SHAPE, packed
from golden.mlp.loader import ParameterPlace, RowPlace, parameter_places, row_places
from golden.mlp.order import Tile, tiles
from golden.mlp.program import Rules, Waits
from golden.mlp.results import beats, latency
from hw.isa import MLP
from hw.mlp.config import MlpConfig
from verif.bench.cycle_model import Part

STALLS = ("rows", "weights", "in_flight", "write", "program")
BAD_INSTRUCTION, BOUNDS, READ_ERROR, EARLY = (
    MLP.code(name) for name in ("BAD_INSTRUCTION", "BOUNDS", "READ_ERROR", "EARLY"))
OPCODES = {instruction.name: instruction.opcode for instruction in MLP.instructions}
Job = Mapping[str, int]


def _sizes(config: MlpConfig) -> np.ndarray:
    return packed(MLP_SHAPE, {name: getattr(config, name) for name in MLP_SHAPE})


def _job(fields: Job, opcode: int, number: int) -> np.ndarray:
    """A job, its number in the place of `out`."""
    return packed(MLP_JOB, {**dict.fromkeys(MLP_JOB, 0), **fields, "opcode": opcode, "out": number})


class _Part(Part):
    source = Path(__file__).with_suffix(".cpp")


class Arguments(NamedTuple):
    """Where the program lies, in beats from address 0, how many instructions it has, and the buffers' sizes."""

    program: int
    program_count: int
    inputs_beats: int = (1 << 32) - 1
    outputs_beats: int = (1 << 32) - 1
    weights_beats: int = (1 << 32) - 1


class Fault(NamedTuple):
    """What the program ends with: words of the result block."""

    code: int
    instruction: int
    detail: int


class Program(_Part):
    """hw.mlp.program.Program. words: of the program, as far as they are reached; items: its instructions, decoded;
    streams: the number of the instruction that stands at each, None for none; idle: a start begins a run."""

    name = "program"
    shows = ("asks", "address", "beats", "done", "error", "number", "takes", "rows", "parameters", "layers",
             "late")

    def __init__(self, config: MlpConfig, words: Sequence[int], arguments: Arguments):
        self._waits = Waits(Rules(config))
        self.items = [MLP.decode(words[at:at + MLP.words]) for at in range(0, len(words), MLP.words)]
        self._arguments = arguments
        self._begun = False
        self._looked = -1
        # What the one that is looked at is refused for, and those that have been handed on, by number.
        self._refusal: tuple[int, int] | None = None
        self._late: dict[int, tuple[int, int]] = {}
        self.error: Fault | None = None
        jobs = np.array([_job(vars(item), item.opcode, item.out) for item in self.items], np.int64)
        super().__init__(_sizes(config), jobs, len(jobs))

    @property
    def idle(self) -> bool:
        return not self._begun or bool(self.done and self.error is None)

    @property
    def streams(self) -> list[int | None]:
        return [None if at < 0 else at for at in (self.rows, self.parameters, self.layers)]

    def takes(self, data: Any) -> bool:
        return data is not None and bool(self._shown["takes"])

    def start(self) -> None:
        """The edge of `start`."""
        self._begun = True
        at, count = self._arguments[:2]
        self._call("start", ctypes.c_uint64(at), ctypes.c_uint64(count))

    def step(self, *, data: bool, request_taken: bool, taken: Sequence[bool], bad: bool = False) -> None:
        """data: a beat stands at the client, bad: it has an error; taken: of the three streams."""
        before, reads = self.number, self.takes(data or None)
        if self._looked != before and before < len(self.items):
            self._looked, self._refusal = before, self._waits.refusal(self.items[before], self._arguments[2:])
        refusal, kind = self._refusal, 0
        if refusal is not None:
            shares = refusal[0] == BAD_INSTRUCTION and self._waits.rules.allowed(self.items[before])
            kind = 3 if shares else {BOUNDS: 2, EARLY: 4}.get(refusal[0], 1)
        self._call("step", data, request_taken, sum(flag << at for at, flag in enumerate(taken)), bad, kind)
        if self.number > before:
            if refusal is not None:
                self._late[before] = refusal
            self._waits.add(self.items[before])
            self._refusal = None
        if self._shown["error"] and self.error is None:
            late = self.late
            code, detail = self._late[late] if late >= 0 else (READ_ERROR, 0) if reads or refusal is None else refusal
            self.error = Fault(code, before if late < 0 else late, detail)


class Load(NamedTuple):
    """A beat of rows and its data."""

    place: RowPlace
    data: Any


class Line(NamedTuple):
    """A line of weights and its beats, or of addends: `part` of a beat."""

    place: ParameterPlace
    data: tuple[Any, ...]
    part: int | None = None


class _Loader(_Part):
    """What both loaders show: done, idle, ready and the number of the instruction under way, -1: there is none; error:
    that of the instruction whose beat had one."""

    error: int | None = None
    number = -1

    def _show(self) -> None:
        super()._show()
        if self._shown["error"] and self.error is None:
            self.error = self.number
        self.number = self._shown["number"]


class RowLoader(_Loader):
    """hw.mlp.loader.RowLoader: load is the Load that stands at o_load. base: of the inputs."""

    name = "rows"
    shows = ("asks", "address", "beats", "done", "error", "idle", "ready", "number", "load", "takes")

    def __init__(self, config: MlpConfig, base: int):
        self._config = config
        self._places: Iterator[RowPlace] = iter(())     # of the instructions that were taken: millions at most
        self._inside: deque[Load] = deque()
        super().__init__(base)

    @property
    def load(self) -> Load | None:
        return self._inside[0] if self._shown["load"] else None

    def takes(self, data: Any) -> bool:
        return data is not None and bool(self._shown["takes"])

    def step(self, *, job: Job | None, data: Any, request_taken: bool, load_taken: bool, weights_done: int,
             layers_done: int, bad: bool = False) -> None:
        """job, data: what stands at the unit in this cycle; bad: the beat has an error."""
        given = None
        if job is not None and self.ready:
            given, config = _job(job, OPCODES["LOAD_ROWS"], job["number"]), self._config
            self._places = chain(self._places, row_places(job, units=config.units, rows=config.rows,
                                                          pieces=config.pieces, lines=config.row_lines))
        if load_taken:
            self._inside.popleft()
        if self._call("step", given, data is not None, bad, request_taken, load_taken, ctypes.c_int64(weights_done),
                      ctypes.c_int64(layers_done)):
            self._inside.append(Load(next(self._places), data))


class ParameterLoader(_Loader):
    """hw.mlp.parameters.ParameterLoader: weights and addends are the Line that stands there. base: of the weights."""

    name = "parameters"
    shows = ("asks", "address", "beats", "done", "error", "idle", "ready", "number", "line", "addends", "part",
             "takes", "takes_with_room")
    weights: Line | None = None
    addends: Line | None = None

    def __init__(self, config: MlpConfig, base: int):
        self._config = config
        self._places: Iterator[ParameterPlace] = iter(())
        self._beats: deque[Any] = deque()           # that were taken and are in no line
        super().__init__(_sizes(config), base)

    def takes(self, data: Any, room: bool) -> bool:
        """room: o_addends is ready."""
        return data is not None and bool(self._shown["takes_with_room" if room else "takes"])

    def step(self, *, job: Job | None, data: Any, request_taken: bool, addends_taken: bool, rows_done: int,
             layers_done: int, bad: bool = False) -> None:
        """job, data: what stands at the unit in this cycle; addends_taken: o_addends is taken; bad: the beat has an
        error."""
        given = None
        if job is not None and self.ready:
            given = _job(job, OPCODES["LOAD_ADDENDS" if job["addends"] else "LOAD_WEIGHTS"], job["number"])
            self._places = chain(self._places, parameter_places(
                job, units=self._config.units, weight_lines=self._config.weight_lines,
                addend_lines=self._config.addend_lines))
        if self.takes(data, addends_taken) and not bad:
            self._beats.append(data)
        self._call("step", given, data is not None, bad, request_taken, addends_taken, ctypes.c_int64(rows_done),
                   ctypes.c_int64(layers_done))
        self.weights = None
        if self.line:
            beats = tuple(self._beats.popleft() for _ in range(self._config.line_beats))
            self.weights = Line(next(self._places), beats)
        if addends_taken:
            self.addends = None
        if self._shown["addends"] and self.addends is None:
            if not self.part:
                self._data = self._beats.popleft()
            self.addends = Line(next(self._places), (self._data,), self.part)


class Sequencer(_Part):
    """One instruction arrives, one is prepared, one is cut into tiles; three tiles wait or are under way.

    ready: an instruction is taken in this cycle; slot: (tile, number of its slot) that goes to the units, or None;
    tile: it with its last slot; reserve, done: pulses; number: of the instruction under way, -1: there was none;
    stall: the name of what the array waited for, or ""; idle
    """

    name = "sequencer"
    shows = ("ready", "idle", "slot", "ends", "reserve", "done", "stall", "number")

    def __init__(self, config: MlpConfig):
        self._config = config
        self._items: deque[Job] = deque()
        self._order = self._slots()
        super().__init__(_sizes(config))

    def _slots(self) -> Iterator[tuple[Tile, int]]:
        """Of all instructions that are taken, in their order."""
        while True:
            for tile in tiles(self._config, self._items.popleft()):
                yield from ((tile, number) for number in range(tile.slots))

    def _show(self) -> None:
        super()._show()
        self.slot = next(self._order) if self._shown["slot"] else None
        self.tile = self.slot[0] if self.slot is not None and self.ends else None
        self.stall = ("", *STALLS, "")[self._shown["stall"]]

    def step(self, *, item: Job | None = None, rows_done: int = 0, weights_done: int = 0, layers_done: int = 0,
             written: bool = False, room: bool = True) -> None:
        """item: the instruction that stands at the input; taken if `ready`."""
        job = None
        if item is not None and self.ready:
            self._items.append(item)
            job = _job(item, OPCODES["INTERACT" if item["interact"] else "LAYER"], item["number"])
        self._call("step", job, ctypes.c_int64(rows_done), ctypes.c_int64(weights_done),
                   ctypes.c_int64(layers_done), written, room)


class Results(_Part):
    """hw.mlp.results.Results: whether a write to the rows' memory, one of partials and a row for memory leave, the
    last of its tile, and the pulse of a tile."""

    name = "results"
    shows = ("rows", "addends", "store", "last", "written")

    def __init__(self, config: MlpConfig):
        self._config = config
        super().__init__(_sizes(config), latency(config.width, config.columns, grouped=config.grouped))

    def step(self, tile: Mapping[str, int] | None) -> None:
        """tile: that comes, of hw.mlp.records.tile_layout."""
        self._call("step", None if tile is None else np.array([
            tile["live"], beats(tile, self._config), tile["target"], tile["triangle"], tile["group"], tile["block"]],
            np.int64))


@dataclass
class Row:
    """A row of results of all units; the fields are those of a tile. words: (units, columns) bit patterns."""

    row: int
    last: bool
    out: int
    stride: int
    count: int      # lanes that exist; in latency mode what it holds is not looked at
    words: Sequence[Sequence[int]]
    half: int = 0
    fills: bool = True
    sigmoid: bool = False
    latency: bool = False
    unit: int = 0
    outs: int = 1
    columns: int = 1
    idle_units: int = 0


class ResultWriter(_Part):
    """hw.mlp.result_writer.ResultWriter: request, and whether a beat stands there (data), room, idle."""

    name = "writer"
    shows = ("asks", "address", "beats", "data", "room", "idle")

    def __init__(self, config: MlpConfig):
        self._config = config
        super().__init__(_sizes(config), config.staged_tiles, config.output_beats)

    def step(self, row: Row | None = None, reserve: bool = False, *, request_taken: bool = False,
             data_taken: bool = False) -> None:
        """row: that comes in; reserve: a further tile will; request_taken, data_taken: request and data are taken."""
        given, config = None, self._config
        if row is not None:
            top = (config.units - 1 - row.idle_units) % config.groups_per_beat if row.latency else row.half
            given = np.array([
                row.last, row.half != 0 and not row.latency, row.fills or row.latency, row.sigmoid, row.out, row.stride,
                row.row + 1 if row.latency else row.count, row.unit if row.latency else 0,
                row.outs if row.latency else 1, top * config.columns + row.columns], np.int64)
        self._call("step", given, reserve, request_taken, data_taken)


class Sigmoid(_Part):
    """hw.fp.sigmoid.Sigmoid: ready, busy, and the word `o` that stands there, None for none."""

    name = "sigmoid"
    shows = ("ready", "there", "busy")

    def __init__(self) -> None:
        self._inside: deque[Any] = deque()
        super().__init__()

    @property
    def o(self) -> Any:
        return self._inside[0] if self.there else None

    def step(self, word: Any = None, taken: bool = False) -> None:
        """word: taken in this cycle; taken: o is."""
        if taken:
            self._inside.popleft()
        if word is not None:
            self._inside.append(word)
        self._call("step", word is not None, taken)
