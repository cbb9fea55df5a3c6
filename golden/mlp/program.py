"""The cycles of the MLP core's program, stepped clock by clock.

The program shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Addresses and lengths are in beats.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from golden.axi.requester import Requester
from golden.stream.fifo import Fifo
from hw.isa import MLP
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET

__all__ = ["Arguments", "Fault", "Job", "Program", "stored_beats"]

QUEUE = 32              # instructions that wait for an engine
LOAD_ROWS, LOAD_WEIGHTS, LOAD_ADDENDS, LAYER, INTERACT = (
    MLP.instruction(name).opcode for name in ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "INTERACT"))
BAD_INSTRUCTION, BAD_ORDER, BOUNDS, READ_ERROR = (
    MLP.code(name) for name in ("BAD_INSTRUCTION", "BAD_ORDER", "BOUNDS", "READ_ERROR"))
# What each instruction must not have 0 of.
SIZES = {item.opcode: tuple(use.field for use in item.uses if MLP.field(use.field).minimum)
         for item in MLP.instructions}
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


def stored_beats(row_beats: int, half: int) -> int:
    """Of a row in the inputs, of its beats on chip. half: its words are binary16."""
    return -(-row_beats // 2) if half else row_beats


class Program:
    """hw.mlp.program.Program: request, rows, parameters, layers are what stands at its streams."""

    def __init__(self, *, words: int, rows: int, columns: int, width: int):
        self.words, self.rows_of_unit, self.columns = words, rows, columns
        self.beats = 16 // words
        self.groups_per_beat, self.line_beats = words // columns, columns * width // words
        self.state = "IDLE"
        self.requests = Requester()
        self.left = self.number = self.wait = self.bits = 0
        self.got: list[int] = []
        self.item: dict[str, int] = {}
        self.word = 0                   # the instruction's first
        self.sums: list[int] = []       # bits of the multipliers that are left
        self.queues = [Fifo(QUEUE) for _ in range(3)]
        self.before = [0, 0, 0]         # rows, weights and layers that have been handed on
        self.done = False
        self.error: Fault | None = None

    @property
    def request(self) -> tuple[int, int] | None:
        return self.requests.o

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
        self.requests.step(taken=request_taken, start=start)
        if start:
            self.requests.begin(arguments.program, arguments.program_count * self.beats)
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
                    self.item, self.word, self.got, self.wait = vars(MLP.decode(self.got)), self.got[0], [], 3
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

    def _refuse(self, code: int, detail: int) -> None:
        self.error, self.state = Fault(code, self.number, detail), "DRAIN"

    def _allowed(self) -> bool:
        """What an instruction must keep to by itself."""
        item = self.item
        if item["opcode"] not in SIZES or item["reserved"]:
            return False
        if any(not 1 <= item[name] <= MLP.field(name).highest for name in SIZES[item["opcode"]]):
            return False
        if item["opcode"] == LOAD_ROWS:
            return bool(item["features_in"]) or item["features"] == 1
        if item["opcode"] == LAYER:
            return (item["addend"] <= ADDEND.PARTIAL and item["activation"] <= ACTIVATION.SIGMOID
                    and item["last_columns"] <= self.columns
                    and (item["activation"] != ACTIVATION.SIGMOID or item["target"] == TARGET.MEMORY)
                    and not (item["activation"] and item["target"] == TARGET.PARTIAL))
        return item["opcode"] != INTERACT or item["features"] >= 2

    def _end(self) -> tuple[int, int]:
        """The buffer that an instruction reaches into, 0 inputs, 1 outputs, 2 weights, and the beat behind it."""
        item, opcode = self.item, self.item["opcode"]
        if opcode == LOAD_ROWS:
            return 0, (item["source"] + (item["count"] * item["features"] - 1) * item["stride"]
                       + stored_beats(item["row_beats"], item["half"]))
        if opcode == LOAD_WEIGHTS:
            return 2, item["source"] + item["count"] * item["steps"] * self.line_beats
        if opcode == LOAD_ADDENDS:
            return 2, item["source"] - (-item["count"] // self.groups_per_beat)
        return 1, item["out"] + (item["count"] - 1) * item["out_stride"] - (-item["groups"] // self.groups_per_beat)

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
        return [item["out_stride"].bit_length()] if opcode == LAYER and item["target"] == TARGET.MEMORY else []

    def _job(self, engine: int) -> Job:
        item = self.item
        job = {name: item[name] for name in _ENGINES[engine]} | {"number": self.number}
        if engine == 0:
            group = item["feature"] // self.rows_of_unit if item["features_in"] else 0
            stored = stored_beats(item["row_beats"], item["half"])
            job |= {"run": int(item["stride"] == stored), "less_one": item["count"] * item["features"] - 1,
                    "stored_beats": stored, "end": self._end()[1],
                    "line": (item["line"] + group * item["row_beats"]) % (1 << 16)}
        elif engine == 1:
            addends = int(item["opcode"] == LOAD_ADDENDS)
            job |= {"addends": addends, "end": self._end()[1],
                    "line": item["addend_line" if addends else "weight_line"]}
        else:
            job["interact"] = int(item["opcode"] == INTERACT)
        return job


_AFTER = ("wait_rows", "wait_weights", "wait_layers")
# What each engine is told of an instruction as it stands there.
_ENGINES = (
    ("features_in", "half", "count", "source", "stride", "row_beats", "features", "feature", "line_stride",
     "wait_weights", "wait_layers"),
    ("count", "source", "steps", "wait_rows", "wait_layers"),
    ("mode", "addend", "target", "activation", "count", "row_beats", "features", "feature", "line", "line_stride",
     "steps",
     "groups", "weight_line", "last_columns", "addend_line", "to_line", "to_line_stride", "out", "out_stride",
     "max_in_flight", "wait_rows",
     "wait_weights"),
)
