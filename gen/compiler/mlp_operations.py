"""Operations of the MLP core's engines, the spans of the on-chip memories that they use, and their tiles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from golden.mlp import results
from hw.isa.mlp import ACTIVATION, TARGET
from hw.mlp.config import MlpConfig

THROUGHPUT, LATENCY = range(2)
SIGMOID = 9     # cycles of a word through the sigmoid


@dataclass(eq=False)
class Span:
    """Lines of a memory. line_stride: lines from a beat of a row to the next (features: from a sample). fixed:
    stays where it is, for good; line: where that is, for other spans set by the schedule. first, last: operations
    between which the lines are in use."""

    space: str
    lines: int
    line_stride: int = 0
    line: int = -1
    fixed: bool = False
    first: int = -1
    last: int = -1
    loads: list["Load"] = field(default_factory=list)


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

    def all_spans(self) -> list[Span]:
        return [*self.reads, *self.writes, *(span for span, _ in self.spans.values())]


@dataclass(frozen=True)
class Step:
    """An instruction with all its values; about: what it does, in the words of whoever made the network."""

    name: str
    values: dict[str, int]
    about: str


class Tiles:
    """The tiles of one operation."""

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
        least = max(config.rows, self.live * config.units // config.groups_per_beat if self.mode == LATENCY else 0)
        return max(self.op.values["steps"], least)

    @property
    def in_all(self) -> int:
        return self.slots if self.op.name == "INTERACT" else self.number * self.slots

    @property
    def leaves(self) -> float:
        """Cycles that a tile's results take on their way to memory, 0: they stay on chip."""
        values, config = self.op.values, self.config
        if values.get("target") != TARGET.MEMORY:
            return 0
        if values["activation"] == ACTIVATION.SIGMOID:
            return self.count * ((self.groups - 1) * config.columns + values["last_columns"]) * SIGMOID / self.number
        return self.count * -(-self.groups // config.groups_per_beat) / self.number

    @property
    def to_rows(self) -> bool:
        """Whether results go to the rows' memory."""
        return self.op.name == "INTERACT" or self.op.values.get("target") in (TARGET.ROWS, TARGET.FEATURE)

    @property
    def live(self) -> int:
        """Rows of a tile, at most."""
        return min(self.config.rows, self.op.values["features"] if self.op.name == "INTERACT" else self.count)

    @property
    def writes(self) -> int:
        """Of a row of results, at most."""
        if self.mode != LATENCY or not self.to_rows:
            return 1
        return -(-min(self.groups, self.config.units) // self.config.groups_per_beat)

    @property
    def drain(self) -> int:
        """Cycles from the last slot to the first one that finds all results, at most, if no other operation's results
        are in their way."""
        first = results.latency(self.config.width, self.config.columns, grouped=self.config.grouped)
        return first + results.WRITTEN + self.live * (1 + self.writes)
