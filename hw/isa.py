"""What software and a core agree on: arguments, instructions, result block and error codes, described once.

The decoder, the control slave, the C and Python headers, the compiler and the reference page are read off these
objects; none of them writes a number down again. Plain data, standard library only.
"""

from dataclasses import dataclass, replace

__all__ = ["EMB", "LONGEST_BAG", "OK", "Argument", "Code", "Field", "Instruction", "Kernel", "Register", "Use", "Value"]

OK = 0
FIRST_ARGUMENT = 0x10       # Vitis: the words below are ap_ctrl, GIE, IER and ISR
WORD_BITS = 32
LONGEST_BAG = 1 << 16       # indices: what sums keep room for
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
    """One opcode. Fields that it does not use are ignored; bits of words 0 and 9 that are no field's must be 0."""

    opcode: int
    name: str
    about: str
    uses: tuple[Use, ...]
    fence: bool = False


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
    `counter` in one piece, word 0 to `final_words` - 1, at the end of a run.
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
        _disjoint(self.name, "instruction", self.words,
                  [(f.name, f.offset, f.bits) for f in self.fields])
        _disjoint(self.name, "result block", self.result_words,
                  [(v.name, v.word * WORD_BITS, v.bits) for v in self.result])
        known = {f.name for f in self.fields}
        for instruction in self.instructions:
            for use in instruction.uses:
                if use.field not in known:
                    raise ValueError(f"{self.name}: {instruction.name} uses {use.field}, which is no field")
        for value in self.result:
            if (value.kind in ("status", "counter")) != (value.word < self.final_words):
                raise ValueError(f"{self.name}: {value.kind} {value.name} lies on the wrong side of word "
                                 f"{self.final_words} of the result block")

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
    def abort(self) -> int | None:
        """Offset of the register that ends a run, None where there is none."""
        return next((register.offset for register in self.registers if register.name == "abort"), None)

    @property
    def status(self) -> int | None:
        """Offset of the register that says what the core does, None where there is none."""
        return next((register.offset for register in self.registers if register.name == "status"), None)

    @property
    def control_bytes(self) -> int:
        """First byte behind the last register."""
        return (self.registers[-1] if self.registers else self.arguments[-1]).offset + 8

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


def _counters(first: int, *items: tuple[str, str]) -> tuple[Value, ...]:
    return tuple(Value(name, first + 2 * at, 64, "counter", about) for at, (name, about) in enumerate(items))


_PLACE = ("instruction", "bag", "index")

EMB = Kernel(
    name="emb",
    about="Embedding bags pooled from card memory, tensor-train tables and SSD pages.",
    arguments=(
        Argument("program", "pointer", "m00", "instructions of 64 bytes, one after the other"),
        Argument("program_count", "scalar", "", "instructions"),
        Argument("inputs", "pointer", "m00", "lengths, indices, weights and load images"),
        Argument("inputs_beats", "scalar", "", "beats of the inputs' buffer"),
        Argument("outputs", "pointer", "m00", "pooled vectors"),
        Argument("outputs_beats", "scalar", "", "beats of the outputs' buffer"),
        Argument("rows", "pointer", "m01", "rows of tables in card memory, and the row cache"),
        Argument("rows_beats", "scalar", "", "beats of the rows' buffer"),
        Argument("ring", "pointer", "m01", "where rows from the SSD land"),
        Argument("ring_beats", "scalar", "", "beats of the ring: a power of two, or 0 for none"),
        Argument("result", "pointer", "m00", "the result block, 1024 bytes"),
        Argument("timeout", "scalar", "", "cycles that an SSD row may be waited for"),
    ),
    registers=(
        Register("abort", "write", "1 ends the run with ABORTED as soon as no transfer is under way"),
        Register("status", "read", "what the core does: the number of one of its states"),
    ),
    words=16,
    fields=(
        Field("opcode", 0, 0, 8, "which instruction"),
        Field("mode", 0, 8, 2, "how a bag is pooled: 0 sum, 1 mean, 2 max", maximum=2),
        Field("weighted", 0, 10, 1, "each index has a weight; with sum alone"),
        Field("count", 1, 0, 32, "bags, load beats or rows", minimum=1),
        Field("lengths", 2, 0, 32, f"inputs offset of u32[count]: indices of each bag, at most {LONGEST_BAG}"),
        Field("indices", 3, 0, 32, "inputs offset of the index words"),
        Field("weights", 4, 0, 32, "inputs offset of f32[indices_count]"),
        Field("indices_count", 5, 0, 32, "indices of all bags: the sum of the lengths"),
        Field("dram_base", 6, 0, 32, "rows offset of the table's row 0 in card memory"),
        Field("dram_rows", 7, 0, 32, "rows of the table in card memory"),
        Field("row_beats", 8, 0, 32, "beats of a row", minimum=1, limit="row_beats_max"),
        Field("tt_table", 9, 0, 16, "number of the table in the tensor-train unit"),
        Field("chunk_rows", 9, 16, 4, "rows that the tensor-train unit adds up at once; 1 with weights or max",
              minimum=1, maximum=8),
        Field("tt_rows", 10, 0, 32, "rows of the tensor-train table"),
        Field("out", 11, 0, 32, "outputs offset of bag 0"),
        Field("out_stride", 12, 0, 32, "beats from a bag's vector to the next bag's"),
        Field("ring_first", 13, 0, 32, "first ring position that the instruction may read", maximum=(1 << 30) - 1),
        Field("ring_count", 14, 0, 32, "ring positions that it may read, from ring_first on"),
        Field("release", 15, 0, 32, "ring position up to which the ring is free once this instruction is done",
              maximum=(1 << 30) - 1),
    ),
    instructions=(
        Instruction(1, "LOAD", "Writes cores, descriptors and keep masks into the tensor-train unit.", (
            Use("count", "load beats"),
            Use("indices", "inputs offset of the image: groups of a block of 16 header words and 16 load beats; "
                           "header = {flip[21:20], part[19:18], target[17:16], address[15:0]}"),
            Use("release"),
        ), fence=True),
        Instruction(2, "BAGS", "Pools bags of one table and writes one vector a bag.", tuple(Use(name) for name in (
            "mode", "weighted", "count", "lengths", "indices", "weights", "indices_count", "dram_base", "dram_rows",
            "row_beats", "tt_table", "chunk_rows", "tt_rows", "out", "out_stride", "ring_first", "ring_count",
            "release"))),
        Instruction(3, "FILL", "Copies rows that have landed in the ring into card memory (the row cache).", (
            Use("count", "rows"),
            Use("indices", "inputs offset of u32 pairs {ring position, row}"),
            Use("dram_base"), Use("dram_rows", "rows that may be written, from dram_base on"), Use("row_beats"),
            Use("ring_first"), Use("ring_count"), Use("release"),
        ), fence=True),
    ),
    modes=("sum", "mean", "max"),
    devices=("dram", "tt", "ssd"),
    states=("idle", "running", "draining", "reporting"),
    codes=(
        Code(OK, "OK", "all instructions were carried out"),
        Code(1, "ABORTED", "the host asked the core to stop", ("instruction",)),
        Code(2, "BAD_INSTRUCTION", "an opcode, a reserved bit, a value or a load header that is not allowed; detail: "
                                   "word 0 or the header", ("instruction", "index")),
        Code(3, "INDEX_DEVICE", "an index word names device 3; detail: the index word", _PLACE),
        Code(4, "INDEX_RANGE", "a row number is not below its table's rows, or a ring position is not one of the "
                               "instruction's; detail: the index word", _PLACE),
        Code(5, "LENGTHS", "the lengths add up to something else than indices_count, or a bag is too long; "
                         "detail: the length",
             ("instruction", "bag")),
        Code(6, "BOUNDS", "an offset and size pass the end of a buffer; detail: 0 inputs, 1 outputs, 2 rows, 3 ring",
             _PLACE),
        Code(7, "READ_ERROR", "a read was answered with SLVERR or DECERR; detail: 0 program, 1 inputs, 2 rows, "
                              "3 doorbell", _PLACE),
        Code(8, "WRITE_ERROR", "a write was answered with SLVERR or DECERR; detail: the port's client",
             ("instruction",)),
        Code(9, "TIMEOUT", "a row from the SSD has not landed in time; detail: its ring position", ("instruction",)),
        Code(10, "RING_OVERFLOW", "the host filled more of the ring than was free; detail: the filled position",
             ("instruction",)),
        Code(11, "TT_TABLE", "an index goes to a tensor-train table that was never loaded; detail: the table", _PLACE),
        Code(12, "TT_MEMORY", "a vector was made from a memory line with an uncorrectable error", _PLACE),
    ),
    result_words=256,
    final_words=192,
    result=(
        Value("code", 0, 32, "status", "how the run ended"),
        Value("instruction", 1, 32, "status", "number of the instruction, from 0"),
        Value("bag", 2, 32, "status", "number of the bag in the instruction"),
        Value("index", 3, 32, "status", "number of the index word in the instruction; LOAD: of the load beat"),
        Value("detail", 4, 32, "status", "what the code says more"),
        Value("state", 5, 32, "status", "what the core was doing when the code arose"),
        *_counters(
            16,
            ("cycles", "cycles from start to the end of the last write"),
            ("instructions", "instructions carried out"),
            ("bags", "bags written"),
            ("indices", "indices of these bags"),
            ("dram_rows", "rows from card memory, those of the row cache included"),
            ("dram_bytes", "bytes of these rows"),
            ("tt_rows", "rows from the tensor-train unit"),
            ("tt_bytes", "bytes of these rows"),
            ("ssd_rows", "rows read from the ring, fills included"),
            ("ssd_bytes", "bytes of these rows"),
            ("coalesced_rows", "rows that another fetch of the same row served"),
            ("beats_fetched", "beats of rows that were fetched"),
            ("stall_dram", "cycles in which the bags waited for rows from card memory"),
            ("stall_tt", "cycles in which the bags waited for the tensor-train unit"),
            ("stall_ssd", "cycles in which the bags waited for rows that have not landed"),
            ("stall_write", "cycles in which the bags waited for room for their vectors"),
            ("stall_feeder", "cycles in which all tiers waited for lengths, indices or weights"),
            ("tt_computed", "first products that the tensor-train unit computed"),
            ("tt_reused", "first products that it remembered"),
            ("tt_slots", "issue slots that it used"),
            ("corrected", "memory errors that were corrected"),
            ("uncorrectable", "memory errors that could not be"),
            ("cache_fills", "rows copied into the row cache"),
        ),
        Value("released", 192, 32, "progress", "ring position up to which the host may fill again"),
        Value("instructions_done", 193, 32, "progress", "instructions carried out so far"),
        Value("filled", 208, 32, "doorbell", "ring position up to which all rows have landed"),
    ),
)
