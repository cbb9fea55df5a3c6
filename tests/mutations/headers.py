"""What can go wrong in the headers, the reference page and the example host."""

from tests.mutations.changes import HEADER, HOST, MODULE, PAGE, drop, edit, write
from tests.mutations.changes import Mutation as M

C_HEADER = [
    M("C: offset of `inputs` moved by 4", HEADER, edit(HEADER, (r"(ARG_INPUTS +)0x24", r"\g<1>0x28"))),
    M("C: offset of `inputs` moved by 8", HEADER, edit(HEADER, (r"(ARG_INPUTS +)0x24", r"\g<1>0x2c"))),
    M("C: offset of abort", HEADER, edit(HEADER, (r"(REG_ABORT +)0x88", r"\g<1>0x84"))),
    M("C: two opcodes exchanged", HEADER, edit(HEADER, (r"(EMB_LOAD +)1", r"\g<1>2"), (r"(EMB_BAGS +)2", r"\g<1>1"))),
    M("C: a device's number", HEADER, edit(HEADER, (r"(DEVICE_SSD +)2", r"\g<1>3"))),
    M("C: a code's number", HEADER, edit(HEADER, (r"(CODE_TIMEOUT +)9", r"\g<1>8"))),
    M("C: a field's mask", HEADER, edit(HEADER, (r"(CHUNK_ROWS_MASK +)0x000f0000u", r"\g<1>0x001f0000u"))),
    M("C: a field's lowest bit", HEADER, edit(HEADER, (r"(WEIGHTED_LOW +)10", r"\g<1>11"))),
    M("C: a field's word", HEADER, edit(HEADER, (r"(OUT_STRIDE_WORD +)12", r"\g<1>11"))),
    M("C: words of an instruction", HEADER, edit(HEADER, (r"(INSTRUCTION_WORDS +)16", r"\g<1>8"))),
    M(
        "C: two fields of the result exchanged",
        HEADER,
        edit(HEADER, (r"(    uint32_t bag;[^\n]*\n)(    uint32_t index;[^\n]*\n)", r"\2\1")),
    ),
    M("C: a counter of 32 bits", HEADER, edit(HEADER, (r"uint64_t cycles;", "uint32_t cycles;"))),
    M("C: offset of a result", HEADER, edit(HEADER, (r"(RESULT_CYCLES +)64", r"\g<1>68"))),
    M("C: the setter clears too much", HEADER, edit(HEADER, (r"& ~HOTRAIL_EMB_##field##_MASK", "& 0u"))),
    M("C: a macro dropped", HEADER, edit(HEADER, (r"^#define HOTRAIL_EMB_MODE_MEAN.*?\n", ""))),
    M(
        "C: a macro more",
        HEADER,
        edit(HEADER, (r"(^#define HOTRAIL_EMB_MODE_MAX.*?\n)", r"\1#define HOTRAIL_EMB_MODE_MIN 3\n")),
    ),
    M("C: a semicolon missing", HEADER, edit(HEADER, (r"uint32_t code;", "uint32_t code"))),
    M("C: dropped", HEADER, drop(HEADER)),
]
PYTHON_HEADER = [
    M("Python: offset of `inputs` moved by 4", MODULE, edit(MODULE, (r"'inputs': \(36,", "'inputs': (40,"))),
    M("Python: offset of `inputs` moved by 8", MODULE, edit(MODULE, (r"'inputs': \(36,", "'inputs': (44,"))),
    M("Python: bits of a pointer", MODULE, edit(MODULE, (r"'rows': \((\d+), 64", r"'rows': (\1, 32"))),
    M(
        "Python: two arguments in each other's place",
        MODULE,
        edit(MODULE, (r"(    'ring': [^\n]*\n)(    'ring_beats': [^\n]*\n)", r"\2\1")),
    ),
    M("Python: an opcode", MODULE, edit(MODULE, (r"'BAGS': 2", "'BAGS': 3"))),
    M("Python: a field's bits", MODULE, edit(MODULE, (r"'chunk_rows': \(9, 16, 4\)", "'chunk_rows': (9, 16, 5)"))),
    M("Python: states in another order", MODULE, edit(MODULE, (r"'idle', 'running'", "'running', 'idle'"))),
    M("Python: a result's word", MODULE, edit(MODULE, (r"'cycles': \(16,", "'cycles': (17,"))),
    M(
        "Python: encode takes what does not fit",
        MODULE,
        edit(MODULE, (r"if not 0 <= value < 1 << bits:", "if value < 0:")),
    ),
    M("Python: encode shifts the wrong way", MODULE, edit(MODULE, (r"value << low", "value >> low"))),
    M("Python: a bracket missing", MODULE, edit(MODULE, (r"^\}\n", ""))),
    M("Python: dropped", MODULE, drop(MODULE)),
]
REFERENCE = [
    M("page: offset of `inputs` moved by 4", PAGE, edit(PAGE, (r"\| 0x24 \| `inputs`", "| 0x28 | `inputs`"))),
    M("page: offset of `inputs` moved by 8", PAGE, edit(PAGE, (r"\| 0x24 \| `inputs`", "| 0x2c | `inputs`"))),
    M("page: bits of a pointer", PAGE, edit(PAGE, (r"`rows` \| 64", "`rows` | 32"))),
    M("page: a pointer at the other master", PAGE, edit(PAGE, (r"`rows` \| 64 \| m01", "`rows` | 64 | m00"))),
    M("page: an opcode", PAGE, edit(PAGE, (r"### 2 BAGS", "### 4 BAGS"))),
    M("page: bits of a field", PAGE, edit(PAGE, (r"19\.\.16 \| `chunk_rows`", "20..16 | `chunk_rows`"))),
    M("page: what a field may be", PAGE, edit(PAGE, (r"`chunk_rows` \| 1\.\.8", "`chunk_rows` | 1..15"))),
    M("page: offset of a result", PAGE, edit(PAGE, (r"\| 64 \| 64 \| `cycles`", "| 68 | 64 | `cycles`"))),
    M("page: a code's number", PAGE, edit(PAGE, (r"\| 9 \| TIMEOUT", "| 8 | TIMEOUT"))),
    M("page: a row dropped", PAGE, edit(PAGE, (r"^\| 0x80 \| `timeout`.*?\n", ""))),
    M("page: dropped", PAGE, drop(PAGE)),
]
HOST_FILE = [
    M(f"host: {name}", HOST, change)
    for name, change in {
        "opens another kernel": edit(HOST, (r'"hotrail_emb"\)', '"hotrail_mlp")')),
        "a buffer for the wrong argument": edit(HOST, (r"\(device, kernel, 6,", "(device, kernel, 7,")),
        "two buffers for one argument": edit(HOST, (r"\(device, kernel, 6,", "(device, kernel, 8,")),
        "a macro that the header has not": edit(HOST, ("HOTRAIL_EMB_MODE_SUM", "HOTRAIL_EMB_SUM")),
        "a field that the header has not": edit(HOST, (", OUT_STRIDE,", ", STRIDE,")),
        "an argument left out of the call": edit(HOST, ("ring, 0u, result", "ring, result")),
        "two arguments of the call exchanged": edit(HOST, ("memory, rows, ring, 0u", "memory, 0u, ring, rows")),
        "a semicolon missing": edit(HOST, ("return made;", "return made")),
        "a bracket too many": edit(HOST, (r"int main\(", "int main((")),
        "buffers not zeroed": edit(HOST, (r"^    std::memset.*?\n", "")),
        "buffers not sent to the card": edit(HOST, (r"made\.sync\(XCL_BO_SYNC_BO_TO_DEVICE\);", "")),
        "every buffer in bank 0": edit(HOST, (r"kernel\.group_id\(argument\)", "0")),
        "another opcode": edit(HOST, ("OPCODE, HOTRAIL_EMB_BAGS", "OPCODE, 3")),
        "two bags announced": edit(HOST, (r"COUNT, 1\)", "COUNT, 2)")),
        "abort written to status": edit(HOST, ("REG_ABORT, 1", "REG_STATUS, 1")),
        "a run that ended well taken for one that hangs": edit(HOST, ("!= (ERT_CMD_STATE_COMPLETED)", r"== \1")),
        "emptied": write(HOST, ""),
        "dropped": drop(HOST),
    }.items()
]
