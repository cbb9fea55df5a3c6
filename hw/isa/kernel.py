"""What software and a core agree on: arguments, instructions, result block and error codes, described once.

The decoder, the control slave, the oracle, the C and Python headers, the compiler and the reference page are read off
these objects; none of them writes a number down again. Plain data, standard library only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

OK = 0
FIRST_ARGUMENT = 0x10       # Vitis: the words below are ap_ctrl, GIE, IER and ISR
WORD_BITS = 32
STRICT = (0, 9)             # words of an instruction whose bits that are no field's must be 0
CHANNELS_BIT = 16           # detail of STALLED: from here on a bit for each of the core's channels
# A pointer takes two words and a gap, a scalar one word and a gap: where the Vitis tools put them.
_PITCH = {"pointer": 12, "scalar": 8}


@dataclass(frozen=True)
class Argument:
    """One argument of the kernel. `port` is the AXI master that a pointer's buffer is reached by; `offset`, the
    byte address of its low word in the control slave, is set by the kernel that it belongs to.
    """

    name: str
    kind: str
    port: str
    about: str
    offset: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _PITCH:
            raise ValueError(f"argument {self.name}: kind must be pointer or scalar, not {self.kind!r}")
        if (self.kind == "pointer") != bool(self.port):
            raise ValueError(f"argument {self.name}: a pointer names its port, a scalar has none")

    @property
    def bits(self) -> int:
        return 2 * WORD_BITS if self.kind == "pointer" else WORD_BITS


@dataclass(frozen=True)
class Register:
    """One 32-bit register behind the arguments, which no driver writes by itself. `access`: read or write."""

    name: str
    access: str
    about: str
    offset: int = 0


@dataclass(frozen=True)
class Field:
    """Bits `low` .. `low + bits - 1` of one word of every instruction, with the values allowed where it is used.

    `maximum` None: all that the bits can say, or what `limit`, a key of the core's configuration, allows.
    """

    name: str
    word: int
    low: int
    bits: int
    about: str
    minimum: int = 0
    maximum: int | None = None
    limit: str = ""

    @property
    def highest(self) -> int:
        return (1 << self.bits) - 1 if self.maximum is None else self.maximum

    @property
    def offset(self) -> int:
        """Position of the lowest bit in the instruction."""
        return self.word * WORD_BITS + self.low


@dataclass(frozen=True)
class Use:
    """What a field means to one instruction, where that is more than the field's own description."""

    field: str
    about: str = ""


@dataclass(frozen=True)
class Instruction:
    """One opcode. Fields that it does not use are ignored; bits of the STRICT words that are no field's must be 0."""

    opcode: int
    name: str
    about: str
    uses: tuple[Use, ...]
    fence: bool = False


class Decoded:
    """The fields of one instruction as attributes. Those of an instruction's words have besides them `word`, all of
    word 0, and `reserved`, whether a bit is set that must be 0."""

    def __init__(self, **fields: int):
        vars(self).update(fields)

    def __repr__(self) -> str:
        return f"Decoded({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decoded) and vars(self) == vars(other)

    __hash__ = None     # type: ignore[assignment]

    def __getattr__(self, name: str) -> int:
        raise AttributeError(f"the kernel's instructions have no field {name!r}")


@dataclass(frozen=True)
class Value:
    """One number of the result block: `bits` 32 or 64 (low word first), from word `word` on.

    `kind`: status (how the run ended), counter (what it cost), progress (written by the core during the run),
    doorbell (written by the host during the run).
    """

    name: str
    word: int
    bits: int
    kind: str
    about: str


@dataclass(frozen=True)
class Code:
    """How a run can end: `place` says which of instruction, bag and index the result block names with it."""

    code: int
    name: str
    about: str
    place: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """All that a core shows to software. Offsets of arguments and registers are computed here.

    words: of one instruction. result_words: of the result block; the core writes those of `status` and
    `counter` in one piece, word 0 to `final_words` - 1, at the end of a run. channels: the AXI masters' directions, as
    "m00 read", in the order of their bits in the detail of STALLED. apart: ports whose buffers no other port reaches,
    so that they may be linked to another memory.
    Raises      ValueError: names that occur twice, fields or values that overlap or pass the end
    """

    name: str
    about: str
    arguments: tuple[Argument, ...]
    registers: tuple[Register, ...]
    words: int
    fields: tuple[Field, ...]
    instructions: tuple[Instruction, ...]
    modes: tuple[str, ...]
    devices: tuple[str, ...]
    states: tuple[str, ...]
    codes: tuple[Code, ...]
    result_words: int
    final_words: int
    result: tuple[Value, ...]
    channels: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at, arguments = FIRST_ARGUMENT, []
        for argument in self.arguments:
            arguments.append(replace(argument, offset=at))
            at += _PITCH[argument.kind]
        registers = []
        for register in self.registers:
            registers.append(replace(register, offset=at))
            at += _PITCH["scalar"]
        object.__setattr__(self, "arguments", tuple(arguments))
        object.__setattr__(self, "registers", tuple(registers))
        for what, names in (("argument or register", [a.name for a in arguments] + [r.name for r in registers]),
                            ("field", [f.name for f in self.fields]),
                            ("instruction", [i.name for i in self.instructions]),
                            ("opcode", [str(i.opcode) for i in self.instructions]),
                            ("result value", [v.name for v in self.result]),
                            ("code", [c.name for c in self.codes]),
                            ("code number", [str(c.code) for c in self.codes])):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{self.name}: {what} {name} occurs twice")
        _disjoint(self.name, "result block", self.result_words,
                  [(v.name, v.word * WORD_BITS, v.bits) for v in self.result])
        known = {f.name for f in self.fields}
        for instruction in self.instructions:
            for use in instruction.uses:
                if use.field not in known:
                    raise ValueError(f"{self.name}: {instruction.name} uses {use.field}, which is no field")
            used = [self.fields[0], *(self.field(use.field) for use in instruction.uses)]
            _disjoint(self.name, f"instruction {instruction.name}", self.words,
                      [(f.name, f.offset, f.bits) for f in used])
        for value in self.result:
            if (value.kind in ("status", "counter")) != (value.word < self.final_words):
                raise ValueError(f"{self.name}: {value.kind} {value.name} lies on the wrong side of word "
                                 f"{self.final_words} of the result block")

    def key(self) -> str:
        """Identifies the kernel in the keys of the parts that are made for it (hw.place)."""
        return self.name

    def argument(self, name: str) -> Argument:
        return _named(self.arguments, name)

    def register(self, name: str) -> Register:
        return _named(self.registers, name)

    def field(self, name: str) -> Field:
        return _named(self.fields, name)

    def instruction(self, name: str) -> Instruction:
        return _named(self.instructions, name)

    def code(self, name: str) -> int:
        return _named(self.codes, name).code

    def value(self, name: str) -> Value:
        return _named(self.result, name)

    @property
    def counters(self) -> tuple[Value, ...]:
        return tuple(value for value in self.result if value.kind == "counter")

    @property
    def stalls(self) -> tuple[str, ...]:
        """The counters of cycles in which something waited, in the order of their bits in the detail of STALLED."""
        return tuple(value.name for value in self.counters if value.name.startswith("stall_"))

    def waited(self, detail: int) -> tuple[str, ...]:
        """What the detail of STALLED names: counters of stalls, and channels that owe an answer."""
        return tuple(name for bit, name in self.waits.items() if detail >> bit & 1)

    @property
    def waits(self) -> dict[int, str]:
        """The bits of the detail of STALLED and what they stand for."""
        return {**dict(enumerate(self.stalls)), **dict(enumerate(self.channels, CHANNELS_BIT))}

    @property
    def abort(self) -> int | None:
        """Offset of the register that ends a run, None where there is none."""
        return next((register.offset for register in self.registers if register.name == "abort"), None)

    @property
    def status(self) -> int | None:
        """Offset of the register that says what the core does, None where there is none."""
        return next((register.offset for register in self.registers if register.name == "status"), None)

    @property
    def number(self) -> int:
        """What the register `core` holds."""
        return int.from_bytes(self.name[:WORD_BITS // 8].encode("ascii"), "little")

    @property
    def control_bytes(self) -> int:
        """First byte behind the last register."""
        return (self.registers[-1] if self.registers else self.arguments[-1]).offset + 8

    @property
    def opcodes(self) -> dict[int, str]:
        """The names of the instructions by opcode."""
        return {instruction.opcode: instruction.name for instruction in self.instructions}

    def uses(self, field: Field) -> frozenset[int]:
        """The opcodes of the instructions that do not ignore the field."""
        return self._uses[field.name]

    @cached_property
    def _uses(self) -> dict[str, frozenset[int]]:
        return {field.name: frozenset(
            instruction.opcode for instruction in self.instructions
            if field.name in {"opcode", *(use.field for use in instruction.uses)}) for field in self.fields}

    def decode(self, words: Sequence[int]) -> Decoded:
        """An instruction out of its words; a field that it ignores is 0."""
        opcode = int(words[0]) & (1 << self.fields[0].bits) - 1
        return Decoded(
            **{field.name: int(words[field.word]) >> field.low & (1 << field.bits) - 1
               if opcode in self.uses(field) else 0 for field in self.fields} | {"opcode": opcode},
            word=int(words[0]), reserved=any(int(words[word]) & self.reserved(word) for word in STRICT))

    def reserved(self, word: int) -> int:
        """Mask of the bits of `word` that belong to no field and must be 0."""
        mask = (1 << WORD_BITS) - 1
        for field in self.fields:
            if field.word == word:
                mask &= ~(((1 << field.bits) - 1) << field.low)
        return mask


def _named(items, name):
    for item in items:
        if item.name == name:
            return item
    raise ValueError(f"there is no {name!r}; there are {', '.join(item.name for item in items)}")


def _disjoint(kernel: str, where: str, words: int, spans: list[tuple[str, int, int]]) -> None:
    end, before = 0, ""
    for name, low, bits in sorted(spans, key=lambda span: span[1]):
        if low < end:
            raise ValueError(f"{kernel}: {before} and {name} overlap in the {where}")
        if low // WORD_BITS != (low + bits - 1) // WORD_BITS and low % WORD_BITS:
            raise ValueError(f"{kernel}: {name} begins inside a word of the {where} and leaves it")
        end, before = low + bits, name
    if end > words * WORD_BITS:
        raise ValueError(f"{kernel}: {before} passes the end of the {where}")


# What every core has alike.
REGISTERS = (
    Register("abort", "write", "1 ends the run with ABORTED as soon as no transfer is under way"),
    Register("status", "read", "what the core does: the number of one of its states"),
    Register("code", "read", "how the last run ended, also where no result block could be written"),
    Register("core", "read", "which core this is: its name in ASCII, the first letter lowest"),
    Register("version", "read", "hotrail's version: {0, major[23:16], minor[15:8], patch[7:0]}"),
    Register("configuration_low", "read", "digest of the core's configuration, low word"),
    Register("configuration_high", "read", "digest of the core's configuration, high word"),
)
IDENTITY = ("core", "version", "configuration_low", "configuration_high")   # registers that never change
STATES = ("idle", "running", "draining", "reporting")
ENDED = Code(OK, "OK", "all instructions were carried out")
ABORTED = Code(1, "ABORTED", "the host asked the core to stop", ("instruction",))
BAD_INSTRUCTION = Code(2, "BAD_INSTRUCTION", "an opcode, a reserved bit or a value that is not allowed; detail: word 0",
                       ("instruction",))


def outcome(*place: tuple[str, str], instruction: str = "number of the instruction, from 0") -> tuple[Value, ...]:
    """The words of the status, from word 0 on: how the run ended, and where; place: (name, about) of more than the
    instruction."""
    items = (("code", "how the run ended"), ("instruction", instruction), *place,
             ("detail", "what the code says more"), ("state", "what the core was doing when the code arose"))
    return tuple(Value(name, at, WORD_BITS, "status", about) for at, (name, about) in enumerate(items))


def stalled(number: int) -> Code:
    """The code of a run that the watchdog ended."""
    return Code(number, "STALLED", "no transfer and no work for `timeout` cycles; detail: what waited, bit n for the "
                f"n-th of the counters stall_*, and from bit {CHANNELS_BIT} on for the channels that owed an answer",
                ("instruction",))


def counters(first: int, *items: tuple[str, str]) -> tuple[Value, ...]:
    """64-bit counters one behind the other from word `first` on: (name, about) each."""
    return tuple(Value(name, first + 2 * at, 64, "counter", about) for at, (name, about) in enumerate(items))
