"""Programs of the Hotline core: instructions taken apart, what they are refused for, and what each sets going."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hw.isa import HOTLINE

BAD_INSTRUCTION, BOUNDS, READ_ERROR = (HOTLINE.code(name) for name in ("BAD_INSTRUCTION", "BOUNDS", "READ_ERROR"))
INPUTS, MAILBOX, GRADIENTS, ROWS, HOT = range(5)    # detail of BOUNDS
OPCODES = HOTLINE.opcodes
Action = tuple[str, Mapping[str, int]]


class Arguments(NamedTuple):
    """Beats of the buffers."""

    inputs_beats: int = (1 << 32) - 1
    mailbox_beats: int = (1 << 32) - 1
    gradients_beats: int = (1 << 32) - 1
    hot_beats: int = (1 << 32) - 1


class Fault(NamedTuple):
    """What a run ends with: words of the result block."""

    code: int
    instruction: int
    detail: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a core, by the names of its configuration."""

    words: int
    positions: int
    banks: int
    sets: int
    frame_beats: int
    row_slots: int
    embedding_beats: int
    gpus: int = 1

    @property
    def domain_bits(self) -> int:
        """Bits of a row's number among the rows of all tables."""
        return (self.banks * self.sets - 1).bit_length() + 14

    @property
    def image_beats(self) -> int:
        """Beats of the logger's image."""
        return self.banks * self.sets * 4 // self.words

    def slots(self, row_beats_log2: int) -> int:
        """Rows that the embedding buffer holds."""
        return min(self.row_slots, self.embedding_beats >> row_beats_log2)


def decode(words: Sequence[int]) -> dict[str, Any]:
    """The fields of an instruction, by name, with what Kernel.decode adds to them."""
    return vars(HOTLINE.decode(words))


@dataclass(kw_only=True)
class Program:
    """hw.hotline.program.Program, by what it sets going: (what, with what) for each instruction in order.

    "register": position, first, rows, base, pinned, join; "clear"; "learn" and "train": source, beats, and all that
    is told of the job; "save": out, beats; "load": source, beats. joins: what the address registers say, by position;
    places: of those that are not pinned, base and first.
    """

    sizes: Sizes
    arguments: Arguments = field(default_factory=Arguments)
    joins: dict[int, int] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)

    def run(self, program: Sequence[Sequence[int]]) -> Iterator[Action | Fault]:
        """Actions of instructions of 16 words each, up to the first that is refused."""
        for number, words in enumerate(program):
            item = decode(words)
            fault = self.refused(words)
            if fault is not None:
                yield Fault(fault[0], number, fault[1])
                return
            yield self._action(item)

    def refused(self, words: Sequence[int]) -> tuple[int, int] | None:
        """Code and detail of what is wrong with an instruction in its place, None if nothing is."""
        item = decode(words)
        if item["reserved"] or not self._allowed(item):
            return BAD_INSTRUCTION, words[0]
        for buffer, end, size in self._reaches(item):
            if end > size:
                return BOUNDS, buffer
        return None

    def _allowed(self, item: Mapping[str, int]) -> bool:
        sizes, kind = self.sizes, OPCODES.get(item["opcode"])
        if kind == "S_WR":
            first = item["first_high"] << 32 | item["first_low"]
            return (item["position"] < sizes.positions and 1 <= item["table_rows"] < 1 << 31
                    and first + item["table_rows"] <= 1 << sizes.domain_bits
                    and item["join"] <= 2 and not (item["pinned"] and item["join"]))
        if kind not in ("LEARN", "TRAIN"):
            return kind is not None
        indices, sample_beats = item["indices"], item["sample_beats"]
        if not (item["count"] and 1 <= sample_beats <= 8 and 1 <= indices <= sizes.positions
                and indices <= sample_beats * sizes.words):
            return False
        return kind == "LEARN" or (
            item["row_beats_log2"] <= 6 and item["batch"] >= 1 and item["mailbox_slots"] >= 1
            and item["mailbox_pitch"] >= 1 and indices <= sizes.slots(item["row_beats_log2"])
            and item["batch"] * sample_beats <= sizes.frame_beats
            and not (item["pooled"] and self.joins.get(0, 0))
            and self._one_place(item["indices"], item["row_beats_log2"]))

    def _one_place(self, indices: int, row_beats_log2: int) -> bool:
        """Whether each row has one place and each place one row: by their numbers rows lie one behind the other."""
        return len({base - (first << row_beats_log2)
                    for position, (base, first) in self.places.items() if position < indices}) <= 1

    def register(self, item: Mapping[str, int]) -> None:
        """S_WR writes an address register."""
        position = item["position"]
        self.joins[position] = item["join"]
        self.places.pop(position, None)
        if not item["pinned"]:
            self.places[position] = item["base"], item["first_high"] << 32 | item["first_low"]

    def vectors(self, item: Mapping[str, int]) -> int:
        """Of a pooled sample."""
        return sum(self.joins.get(position, 0) == 0 for position in range(item["indices"])) if item["pooled"] else 0

    def _reaches(self, item: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
        """(number of the buffer, end of what is touched, what it must not pass) of an instruction, in order."""
        sizes, arguments, kind = self.sizes, self.arguments, OPCODES[item["opcode"]]
        if kind in ("LEARN", "TRAIN"):
            yield INPUTS, item["source"] + item["count"] * item["sample_beats"], arguments.inputs_beats
        elif kind == "LOAD":
            yield INPUTS, item["source"] + sizes.image_beats, arguments.inputs_beats
        elif kind == "SAVE":
            yield MAILBOX, item["out"] + sizes.image_beats, arguments.mailbox_beats
        if kind != "TRAIN":
            return
        row_beats = 1 << item["row_beats_log2"]
        rows = min(item["batch"] * item["indices"], sizes.slots(item["row_beats_log2"]))
        sent = item["batch"] * self.vectors(item) if item["pooled"] else rows
        slots = sizes.gpus * item["mailbox_slots"]
        yield MAILBOX, slots * item["mailbox_pitch"], arguments.mailbox_beats
        yield MAILBOX, 1 + item["batch"] * item["sample_beats"] + sent * row_beats, item["mailbox_pitch"]
        yield GRADIENTS, slots * item["gradients_pitch"], arguments.gradients_beats
        yield GRADIENTS, rows * row_beats, item["gradients_pitch"]
        if item["pooled"]:
            yield HOT, sizes.banks * sizes.sets * 4 * row_beats, arguments.hot_beats

    def _action(self, item: Mapping[str, int]) -> Action:
        kind = OPCODES[item["opcode"]]
        if kind == "S_WR":
            self.register(item)
            values: dict[str, Any] = {name: item[name] for name in ("position", "base", "pinned", "join")}
            return "register", values | {
                "first": item["first_high"] << 32 | item["first_low"], "rows": item["table_rows"]}
        if kind == "CLEAR":
            return "clear", {}
        if kind == "SAVE":
            return "save", {"out": item["out"], "beats": self.sizes.image_beats}
        if kind == "LOAD":
            return "load", {"source": item["source"], "beats": self.sizes.image_beats}
        fields: tuple[str, ...] = ("indices", "sample_beats")
        if kind == "TRAIN":
            fields += ("row_beats_log2", "batch", "pooled", "half", "mailbox_slots", "mailbox_pitch", "gradients_pitch",
                     "rate")
        return kind.lower(), {name: item[name] for name in fields} | {
            "learn": int(kind == "LEARN"), "vectors": self.vectors(item) if kind == "TRAIN" else 0,
            "source": item["source"], "beats": item["count"] * item["sample_beats"]}
