"""The cycles of the MLP core's front: program, row loader and parameter loader, stepped clock by clock.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Beats are whatever the memory holds, addresses and lengths are in beats.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from golden.emb_ports import Queue

__all__ = ["Addends", "Arguments", "Fault", "Job", "Load", "ParameterLoader", "Program", "Requests", "RowLoader", "Run",
           "Weights", "decode"]

QUEUE = 32              # instructions that wait for an engine
JOBS = 32               # loads whose data has been asked for
PIECE = 1 << 15         # beats of a request at most
LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = range(1, 6)
PARTIAL, MEMORY = 2, 3  # targets of a layer
SIGMOID = 2             # activation
BAD_INSTRUCTION, BAD_ORDER, BOUNDS, READ_ERROR = 2, 3, 4, 5
# What must not be 0, by opcode, and the most that it may be.
SIZES = {
    LOAD_ROWS: ("count", "row_beats", "features"), LOAD_WEIGHTS: ("count", "steps"), LOAD_ADDENDS: ("count",),
    LAYER: ("count", "steps", "groups", "tail"), INTERACT: ("count", "row_beats", "features"),
}
MOST = {"count": (1 << 20) - 1, "row_beats": (1 << 12) - 1, "steps": (1 << 12) - 1, "groups": (1 << 12) - 1}
Job = Mapping[str, int]


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


class Run(NamedTuple):
    """Beats source .. end - 1, or less_one + 1 rows of `beats`, `stride` apart."""

    run: int
    source: int
    end: int
    stride: int
    beats: int
    less_one: int


class Load(NamedTuple):
    """A beat for all banks of a row, turned by `turn`; last: of its instruction."""

    unit: int
    row: int
    line: int
    turn: int
    data: Any
    last: bool


class Weights(NamedTuple):
    """A line of weights: its beats."""

    unit: int
    line: int
    data: tuple[Any, ...]
    last: bool


class Addends(NamedTuple):
    """A line of addends: part `half` of a beat."""

    line: int
    half: int
    data: Any
    last: bool


class _Skid:
    """A register and one behind it that takes what comes while the first is held back."""

    def __init__(self) -> None:
        self.o: Any = None
        self.spare: Any = None

    @property
    def ready(self) -> bool:
        return self.spare is None

    def step(self, push: Any, taken: bool) -> None:
        if self.o is None or taken:
            self.o, self.spare = (self.spare, None) if self.spare is not None else (push, None)
        elif push is not None:
            self.spare = push


class Requests:
    """hw.mlp.requests.Requests: o is (address, beats)."""

    def __init__(self) -> None:
        self.state = "TAKE"
        self.o: tuple[int, int] | None = None
        self.pieces: list[tuple[int, int]] = []

    @property
    def ready(self) -> bool:
        return self.state == "TAKE"

    def step(self, run: Run | None, base: int, taken: bool, hold: bool) -> None:
        if taken:
            self.o = None
        if self.state == "TAKE":
            if run is not None:
                self.pieces = _pieces(run)
                self.state = "SIZE"
        elif self.state == "SIZE":
            self.state = "ASK"
        elif self.o is None and not hold:
            at, beats = self.pieces.pop(0)
            self.o = base + at, beats
            self.state = "SIZE" if self.pieces else "TAKE"


def _pieces(run: Run) -> list[tuple[int, int]]:
    if not run.run:
        return [(run.source + row * run.stride, run.beats) for row in range(run.less_one + 1)]
    return [(at, min(PIECE, run.end - at)) for at in range(run.source, run.end, PIECE)]


class Program:
    """hw.mlp.program.Program: request, rows, parameters, layers are what stands at its streams."""

    def __init__(self, *, words: int, rows: int, columns: int, width: int):
        self.words, self.rows_of_unit, self.columns = words, rows, columns
        self.beats = 16 // words
        self.halves, self.line_beats = words // columns, columns * width // words
        self.state = "IDLE"
        self.request: tuple[int, int] | None = None
        self.asking = False
        self.address = self.span = 0
        self.left = self.number = self.wait = self.bits = 0
        self.got: list[int] = []
        self.item: dict[str, int] = {}
        self.word = 0                   # the instruction's first
        self.sums: list[int] = []       # bits of the multipliers that are left
        self.queues = [Queue(QUEUE) for _ in range(3)]
        self.before = [0, 0, 0]         # rows, weights and layers that have been handed on
        self.done = False
        self.error: Fault | None = None

    @property
    def rows(self) -> Job | None:
        return self.queues[0].o

    @property
    def parameters(self) -> Job | None:
        return self.queues[1].o

    @property
    def layers(self) -> Job | None:
        return self.queues[2].o

    def takes(self, data: Any) -> bool:
        return self.state == "NEXT" and self.left != 0 and data is not None

    def step(self, *, start: bool, arguments: Arguments, data: Sequence[int] | None, request_taken: bool,
             taken: Sequence[bool], bad: bool = False) -> None:
        """data: the words of the beat that stands at the client, bad: it has an error; taken: of the three streams."""
        self._request(start, arguments, request_taken)
        pushed: list[Job | None] = [None] * 3
        held = any(queue.inside or queue.o is not None for queue in self.queues)
        state = self.state
        if state == "IDLE" and start:
            self.left, self.number, self.got, self.done = arguments.program_count, 0, [], False
            self.before = [0, 0, 0]
            self.state = "NEXT"
        elif state == "NEXT":
            if not self.left:
                self.state = "DRAIN"
            elif data is not None and bad:
                self._refuse(READ_ERROR, 0)
            elif data is not None:
                self.got += list(data)
                if len(self.got) == 16:
                    self.item, self.word, self.got, self.wait = decode(self.got), self.got[0], [], 3
                    self.state = "ALLOWED"
        elif state == "ALLOWED":
            self.wait -= 1
            if not self.wait:
                early = [kind for kind, (name, before) in enumerate(zip(_AFTER, self.before, strict=True))
                         if self.item[name] > before]
                if not self._allowed():
                    self._refuse(BAD_INSTRUCTION, self.word)
                elif early:
                    self._refuse(BAD_ORDER, early[0])
                else:
                    self.sums = self._sums()
                    self.state = "LOAD" if self.sums else "SEND"
        elif state == "LOAD":
            self.bits = self.sums.pop(0)
            self.state = "ADD"
        elif state == "ADD":
            if self.bits:
                self.bits -= 1
            else:
                self.state = "LOAD" if self.sums else "COMPARE"
        elif state == "COMPARE":
            buffer, end = self._end()
            if end > arguments[2 + buffer]:
                self._refuse(BOUNDS, buffer)
            else:
                self.state = "SEND"
        elif state == "SEND":
            engine = {LOAD_ROWS: 0, LOAD_WEIGHTS: 1, LOAD_ADDENDS: 1}.get(self.item["opcode"], 2)
            if self.queues[engine].ready:
                pushed[engine] = self._job(engine)
                self.before[engine] += 1
                self.left, self.number = self.left - 1, self.number + 1
                self.state = "NEXT"
        elif state == "DRAIN" and not held:
            self.done, self.state = True, "IDLE" if self.error is None else "DRAIN"
        for queue, push, gone in zip(self.queues, pushed, taken, strict=True):
            queue.step(push, gone)

    def _request(self, start: bool, arguments: Arguments, taken: bool) -> None:
        if taken:
            self.request = None
        if start:
            self.span, self.address, self.asking = arguments.program_count * self.beats, arguments.program, True
        elif self.asking and self.request is None:
            beats = min(self.span, PIECE)
            self.asking = self.span >= PIECE
            self.request = (self.address, beats) if beats else None
            self.address, self.span = self.address + PIECE, self.span - beats

    def _refuse(self, code: int, detail: int) -> None:
        self.error, self.state = Fault(code, self.number, detail), "DRAIN"

    def _allowed(self) -> bool:
        """What an instruction must keep to by itself."""
        item = self.item
        if item["opcode"] not in SIZES or self.word >> 16:
            return False
        if any(not 1 <= item[name] <= MOST.get(name, 255) for name in SIZES[item["opcode"]]):
            return False
        if item["opcode"] == LOAD_ROWS:
            return bool(item["features_in"]) or item["features"] == 1
        if item["opcode"] == LAYER:
            return (item["addend"] <= 2 and item["activation"] <= SIGMOID and item["tail"] <= self.columns
                    and (item["activation"] != SIGMOID or item["target"] == MEMORY)
                    and not (item["activation"] and item["target"] == PARTIAL))
        return item["opcode"] != INTERACT or item["features"] >= 2

    def _end(self) -> tuple[int, int]:
        """The buffer that an instruction reaches into, 0 inputs, 1 outputs, 2 weights, and the beat behind it."""
        item, opcode = self.item, self.item["opcode"]
        if opcode == LOAD_ROWS:
            return 0, item["source"] + (item["count"] * item["features"] - 1) * item["stride"] + item["row_beats"]
        if opcode == LOAD_WEIGHTS:
            return 2, item["source"] + item["count"] * item["steps"] * self.line_beats
        if opcode == LOAD_ADDENDS:
            return 2, item["source"] - (-item["count"] // self.halves)
        return 1, item["out"] + (item["count"] - 1) * item["out_stride"] - (-item["groups"] // self.halves)

    def _sums(self) -> list[int]:
        """Bits of the multiplier of each sum."""
        item, opcode = self.item, self.item["opcode"]
        if opcode == LOAD_ROWS:
            group = item["feature"] // self.rows_of_unit if item["features_in"] else 0
            return [*([group.bit_length()] if group else []), item["features"].bit_length(),
                    item["stride"].bit_length()]
        if opcode == LOAD_WEIGHTS:
            return [item["steps"].bit_length()]
        if opcode == LOAD_ADDENDS:
            return [1]
        return [item["out_stride"].bit_length()] if opcode == LAYER and item["target"] == MEMORY else []

    def _job(self, engine: int) -> Job:
        item = self.item
        job = {name: item[name] for name in _ENGINES[engine]} | {"number": self.number}
        if engine == 0:
            group = item["feature"] // self.rows_of_unit if item["features_in"] else 0
            job |= {"run": int(item["stride"] == item["row_beats"]), "less_one": item["count"] * item["features"] - 1,
                    "end": self._end()[1], "line": (item["line"] + group * item["row_beats"]) % (1 << 16)}
        elif engine == 1:
            addends = int(item["opcode"] == LOAD_ADDENDS)
            job |= {"addends": addends, "end": self._end()[1],
                    "line": item["addend_line" if addends else "weight_line"]}
        else:
            job["interact"] = int(item["opcode"] == INTERACT)
        return job


_AFTER = ("after_rows", "after_weights", "after_layers")
# What each engine is told of an instruction as it stands there.
_ENGINES = (
    ("features_in", "count", "source", "stride", "row_beats", "features", "feature", "apart", "after_weights",
     "after_layers"),
    ("count", "source", "steps", "after_rows", "after_layers"),
    ("mode", "addend", "target", "activation", "count", "row_beats", "features", "feature", "line", "apart", "steps",
     "groups", "weight_line", "tail", "addend_line", "to_line", "to_apart", "out", "out_stride", "lag", "after_rows",
     "after_weights"),
)


def decode(words: Sequence[int]) -> dict[str, int]:
    """The fields of an instruction of 16 words."""
    w = words
    return {
        "opcode": w[0] & 0xFF, "mode": w[0] >> 8 & 1, "addend": w[0] >> 9 & 3, "target": w[0] >> 11 & 3,
        "activation": w[0] >> 13 & 3, "features_in": w[0] >> 15 & 1, "count": w[1], "source": w[2], "stride": w[3],
        "row_beats": w[4] & 0xFFFF, "features": w[4] >> 16 & 0xFF, "feature": w[4] >> 24, "line": w[5] & 0xFFFF,
        "apart": w[5] >> 16, "steps": w[6] & 0xFFFF, "groups": w[6] >> 16, "weight_line": w[7] & 0xFFFF,
        "tail": w[7] >> 16 & 0xFF, "addend_line": w[8] & 0xFFFF, "to_line": w[9] & 0xFFFF, "to_apart": w[9] >> 16,
        "out": w[10], "out_stride": w[11], "lag": w[12], "after_rows": w[13], "after_weights": w[14],
        "after_layers": w[15],
    }


class _Loader:
    """What both loaders do with their instructions: ask for the data at once, begin each when its waits are over."""

    waits: tuple[str, str]

    def __init__(self) -> None:
        self.requests = Requests()
        self.jobs = Queue(JOBS)
        self.new: Job | None = None
        self.may = False
        self.active = False
        self.done = False
        self.number = 0
        self.error: int | None = None   # the instruction that could not be read

    @property
    def request(self) -> tuple[int, int] | None:
        return self.requests.o

    @property
    def ready(self) -> bool:
        """Whether the instruction that stands there is taken."""
        return self.requests.ready and self.jobs.ready

    @property
    def idle(self) -> bool:
        return not self.jobs.inside and self.jobs.o is None and self.new is None and not self.active

    def _accept(self, job: Job | None, run: Run | None, base: int, request_taken: bool, hold: bool, begin: bool,
                done: Sequence[int]) -> None:
        accept = job is not None and self.ready
        self.requests.step(run if accept else None, base, request_taken, hold)
        new = self.new
        self.may = (new is not None and not begin
                    and all(count >= new[name] for count, name in zip(done, self.waits, strict=True)))
        fetch = new is None and self.jobs.o is not None
        if begin:
            self.new = None
        elif fetch:
            self.new = self.jobs.o
        self.jobs.step(job if accept else None, fetch)


class RowLoader(_Loader):
    """hw.mlp.loader.RowLoader: load is the Load that stands at o_load, of which done tells the last.

    Parameters  units, rows, pieces: of the core, lines: of the rows' memory; base: of the inputs
    """

    waits = ("after_weights", "after_layers")

    def __init__(self, *, units: int, rows: int, pieces: int, lines: int, base: int):
        super().__init__()
        self.units, self.rows, self.pieces, self.lines, self.base = units, rows, pieces, lines, base
        self.places: Iterator[tuple[int, int, int, int, bool]] = iter(())
        self.place: tuple[int, int, int, int, bool] | None = None
        self.out = _Skid()

    @property
    def idle(self) -> bool:
        return super().idle and self.out.o is None

    @property
    def load(self) -> Load | None:
        return self.out.o

    def takes(self, data: Any) -> bool:
        return self.active and data is not None and self.out.ready and self.error is None

    def step(self, *, job: Job | None, data: Any, request_taken: bool, load_taken: bool, weights_done: int,
             layers_done: int, bad: bool = False) -> None:
        """job, data: what stands at the unit in this cycle; bad: the beat has an error."""
        push, last, hold = None, False, self.error is not None
        if self.takes(data):
            assert self.place is not None
            unit, row, line, turn, last = self.place
            push = Load(unit, row, line, turn, data, last)
            if bad:
                self.error = self.number
        begin = self.may and (not self.active or last)
        if begin:
            assert self.new is not None
            self.places, self.active, self.number = self._places(self.new), True, self.new["number"]
        elif last:
            self.active = False
        if begin or push is not None:
            self.place = next(self.places, None)
        self.done = load_taken and self.out.o.last
        self.out.step(None if bad else push, load_taken)
        run = None if job is None else Run(job["run"], job["source"], job["end"], job["stride"], job["row_beats"],
                                           job["less_one"])
        self._accept(job, run, self.base, request_taken, hold, begin, (weights_done, layers_done))

    def _places(self, job: Job) -> Iterator[tuple[int, int, int, int, bool]]:
        units, rows, first = self.units, self.rows, job["feature"] // self.rows
        for sample in range(job["count"]):
            unit, s = sample // rows % units, sample // (rows * units)
            for at in range(job["features"]):
                feature = job["feature"] + at
                for q in range(job["row_beats"]):
                    last = sample == job["count"] - 1 and at == job["features"] - 1 and q == job["row_beats"] - 1
                    if job["features_in"]:
                        line = (job["line"] + (s * rows + sample % rows) * job["apart"]
                                + (feature // rows - first) * job["row_beats"] + q)
                        yield unit, feature % rows, line % self.lines, feature // rows % self.pieces, last
                    else:
                        yield unit, sample % rows, (job["line"] + q * job["apart"] + s) % self.lines, 0, last


class ParameterLoader(_Loader):
    """hw.mlp.parameters.ParameterLoader: weights and addends are what stands at its outputs.

    Parameters  units: of the core; weight_lines, addend_lines: of the memories; line_beats, halves: beats of a line
                of weights, lines of addends of a beat; base: of the weights
    """

    waits = ("after_rows", "after_layers")

    def __init__(self, *, units: int, weight_lines: int, addend_lines: int, line_beats: int, halves: int, base: int):
        super().__init__()
        self.units, self.line_beats, self.halves, self.base = units, line_beats, halves, base
        self.weight_lines, self.addend_lines = weight_lines, addend_lines
        self.weights: Weights | None = None
        self.line: list[Any] = []                       # beats of a line of weights
        self.now: Job | None = None
        self.beat: tuple[Any, int] | None = None        # of addends, and which line is next
        self.at = 0                                     # lines that have been written

    @property
    def addends(self) -> Addends | None:
        if self.beat is None or self.now is None:
            return None
        return Addends((self.now["line"] + self.at) % self.addend_lines, self.beat[1], self.beat[0],
                       self.at == self.now["count"] - 1)

    @property
    def idle(self) -> bool:
        return super().idle and self.weights is None

    def takes(self, data: Any, room: bool) -> bool:
        """room: o_addends is ready."""
        if not self.active or data is None or self.error is not None:
            return False
        assert self.now is not None
        if not self.now["addends"] or self.beat is None:
            return True
        return room and self.beat[1] == self.halves - 1 and self.at != self.now["count"] - 1

    def step(self, *, job: Job | None, data: Any, request_taken: bool, addends_taken: bool, rows_done: int,
             layers_done: int, bad: bool = False) -> None:
        """job, data: what stands at the unit in this cycle; addends_taken: o_addends is taken; bad: the beat has an
        error."""
        takes, now, hold = self.takes(data, addends_taken), self.now, self.error is not None
        if takes and bad:
            self.error = self.number
        weights, addends, ends = None, self.addends, False
        if now is not None and now["addends"]:
            if addends is not None and addends_taken:
                ends = addends.last
                self.at += 1
                self.beat = None if ends or addends.half == self.halves - 1 else (addends.data, addends.half + 1)
            if takes:
                self.beat = None if bad else (data, 0)
        elif takes and now is not None:
            self.line.append(data)
            if len(self.line) == self.line_beats:
                group, line = divmod(self.at, now["steps"])
                ends = self.at == now["count"] * now["steps"] - 1
                weights = Weights(group % self.units,
                                  (now["line"] + group // self.units * now["steps"] + line) % self.weight_lines,
                                  tuple(self.line), ends)
                self.line = []
                self.at += 1
        self.done = (self.weights is not None and self.weights.last) or (addends is not None and ends)
        begin = self.may and (not self.active or ends)
        if begin:
            assert self.new is not None
            self.now, self.active, self.number, self.at = self.new, True, self.new["number"], 0
        elif ends:
            self.active = False
        self.weights = None if bad and takes else weights
        run = None if job is None else Run(1, job["source"], job["end"], 0, 0, 0)
        self._accept(job, run, self.base, request_taken, hold, begin, (rows_done, layers_done))
