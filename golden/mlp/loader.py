"""The cycles of the MLP core's loaders of rows and parameters, stepped clock by clock.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Beats are whatever the memory holds, addresses and lengths are in beats.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golden.axi.requester import Requester
from golden.mlp.program import Job
from golden.stream.fifo import Fifo
from golden.stream.skid_buffer import SkidBuffer

__all__ = ["Addends", "Load", "ParameterLoader", "RowLoader", "Run", "Weights"]

JOBS = 32               # loads whose data has been asked for


class Run(NamedTuple):
    """Beats source .. end - 1, or less_one + 1 rows of `beats`, `stride` apart."""

    run: int
    source: int
    end: int
    stride: int
    beats: int
    less_one: int


class Load(NamedTuple):
    """A beat for all banks of a row, turned by `turn`; last: of its instruction. half: which half of `data` it is,
    widened from binary16; None: all of it."""

    unit: int
    row: int
    line: int
    turn: int
    data: Any
    half: int | None
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


class _Place(NamedTuple):
    """Where a beat of a row goes, and which half of the port's it is; spent: that is done with."""

    unit: int
    row: int
    line: int
    turn: int
    half: int | None
    spent: bool
    last: bool


class _Loader:
    """What both loaders do with their instructions: ask for the data at once, begin each when its waits are over."""

    waits: tuple[str, str]

    def __init__(self) -> None:
        self.requests = Requester()
        self.jobs = Fifo(JOBS)
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
        return not self.requests.asking and self.jobs.ready

    @property
    def idle(self) -> bool:
        return not self.jobs.inside and self.jobs.o is None and self.new is None and not self.active

    def _accept(self, job: Job | None, run: Run | None, base: int, request_taken: bool, hold: bool, begin: bool,
                done: Sequence[int]) -> None:
        accept = job is not None and self.ready
        self.requests.step(taken=request_taken, start=accept, hold=hold)
        if accept and run is not None:
            if run.run:
                self.requests.begin(base + run.source, run.end - run.source)
            else:
                self.requests.begin(base + run.source, run.beats, less_one=run.less_one, stride=run.stride)
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

    waits = ("wait_weights", "wait_layers")

    def __init__(self, *, units: int, rows: int, pieces: int, lines: int, base: int):
        super().__init__()
        self.units, self.rows, self.pieces, self.lines, self.base = units, rows, pieces, lines, base
        self.places: Iterator[_Place] = iter(())
        self.place: _Place | None = None
        self.out = SkidBuffer()

    @property
    def idle(self) -> bool:
        return super().idle and self.out.o is None

    @property
    def load(self) -> Load | None:
        return self.out.o

    def takes(self, data: Any) -> bool:
        return self._uses(data) and self.place is not None and self.place.spent

    def _uses(self, data: Any) -> bool:
        """Whether the beat, or half of it, goes on."""
        return self.active and data is not None and self.out.ready and self.error is None

    def step(self, *, job: Job | None, data: Any, request_taken: bool, load_taken: bool, weights_done: int,
             layers_done: int, bad: bool = False) -> None:
        """job, data: what stands at the unit in this cycle; bad: the beat has an error."""
        push, last, hold = None, False, self.error is not None
        if self._uses(data):
            assert self.place is not None
            last = self.place.last
            push = Load(*self.place[:4], data, self.place.half, last)
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
        run = None if job is None else Run(job["run"], job["source"], job["end"], job["stride"],
                                           job["stored_beats"], job["less_one"])
        self._accept(job, run, self.base, request_taken, hold, begin, (weights_done, layers_done))

    def _places(self, job: Job) -> Iterator["_Place"]:
        units, rows, first = self.units, self.rows, job["feature"] // self.rows
        for sample in range(job["count"]):
            unit, s = sample // rows % units, sample // (rows * units)
            for at in range(job["features"]):
                feature = job["feature"] + at
                for q in range(job["row_beats"]):
                    ends = q == job["row_beats"] - 1
                    last = ends and sample == job["count"] - 1 and at == job["features"] - 1
                    how = (q % 2, bool(q % 2) or ends, last) if job["half"] else (None, True, last)
                    if job["features_in"]:
                        line = (job["line"] + (s * rows + sample % rows) * job["line_stride"]
                                + (feature // rows - first) * job["row_beats"] + q)
                        yield _Place(unit, feature % rows, line % self.lines, feature // rows % self.pieces, *how)
                    else:
                        line = job["line"] + q * job["line_stride"] + s
                        yield _Place(unit, sample % rows, line % self.lines, 0, *how)


class ParameterLoader(_Loader):
    """hw.mlp.parameters.ParameterLoader: weights and addends are what stands at its outputs.

    Parameters  units: of the core; weight_lines, addend_lines: of the memories; line_beats, halves: beats of a line
                of weights, lines of addends of a beat; base: of the weights
    """

    waits = ("wait_rows", "wait_layers")

    def __init__(self, *, units: int, weight_lines: int, addend_lines: int, line_beats: int, groups_per_beat: int,
                 base: int):
        super().__init__()
        self.units, self.line_beats, self.groups_per_beat, self.base = units, line_beats, groups_per_beat, base
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
        return room and self.beat[1] == self.groups_per_beat - 1 and self.at != self.now["count"] - 1

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
                self.beat = None if ends or addends.half == self.groups_per_beat - 1 else (addends.data,
                                                                                           addends.half + 1)
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
