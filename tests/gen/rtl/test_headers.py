"""The generated headers and page: complete, current, and saying the same as hw.isa."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gen.compiler import twin_layouts
from gen.compiler.emb import encode
from gen.compiler.twin import fields
from gen.rtl.headers import KERNELS, c_header, python_header, reference, write
from hw.isa import EMB, Argument, Code, Field, Instruction, Kernel, Register, Use, Value

ROOT = Path(__file__).parents[3]
VALUES = {"mode": 1, "weighted": 0, "count": 0xFFFFFFFF, "lengths": 2, "indices": 3, "weights": 4,
          "indices_count": 5, "dram_base": 6, "dram_rows": 7, "row_beats": 8, "piece_beats": 33, "tt_table": 0xABCD,
          "chunk_rows": 5, "tt_rows": 9, "out": 10, "out_stride": 11, "ring_first": 12, "ring_count": 13, "release": 14}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_the_page_in_docs_is_current(kernel):
    page = ROOT / "docs" / "reference" / f"{kernel.name}.md"
    assert page.read_text("utf-8") == reference(kernel), f"write it again: gen.rtl.headers.reference -> {page}"


def test_the_twins_header_is_current():
    assert twin_layouts.HEADER.read_text("utf-8") == twin_layouts.header(), "run python -m gen.compiler.twin_layouts"


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_headers_name_everything(kernel, tmp_path):
    paths = write(kernel, tmp_path)
    assert [path.read_text("utf-8") for path in paths] == [c_header(kernel), python_header(kernel), reference(kernel)]
    named = [item.name for item in (*kernel.arguments, *kernel.registers, *kernel.instructions, *kernel.codes,
                                    *kernel.result, *kernel.fields)]
    for path in paths:
        text = path.read_text("utf-8").lower()
        assert [name for name in named if name.lower() not in text] == []


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_fields_that_an_instruction_ignores_are_nought(kernel):
    """To the oracles one by one, to the twins all at once."""
    words = np.full((len(kernel.instructions), kernel.words), 0xFFFFFFFF, np.uint32)
    words[:, 0] ^= 0xFF ^ np.array([item.opcode for item in kernel.instructions], np.uint32)
    columns = fields(kernel, words)
    for number, instruction in enumerate(kernel.instructions):
        used, item = {use.field for use in instruction.uses}, kernel.decode(words[number].tolist())
        for field in kernel.fields[1:]:
            want = (1 << field.bits) - 1 if field.name in used else 0
            assert getattr(item, field.name) == columns[field.name][number] == want, (instruction.name, field.name)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_the_python_header_says_what_is_described(kernel):
    header: dict = {}
    exec(python_header(kernel), header)
    assert list(header["ARGUMENTS"].items()) == [(a.name, (a.offset, a.bits)) for a in kernel.arguments]
    assert header["REGISTERS"] == {r.name: r.offset for r in kernel.registers}
    assert header["OPCODES"] == {i.name: i.opcode for i in kernel.instructions}
    assert header["CODES"] == {c.code: (c.name, c.about) for c in kernel.codes}
    assert header["FIELDS"] == {f.name: (f.word, f.low, f.bits) for f in kernel.fields}
    assert header["RESULT"] == {v.name: (v.word, v.bits) for v in kernel.result}
    assert [header[name] for name in ("MODES", "DEVICES", "STATES", "WORDS", "RESULT_WORDS")] == [
        kernel.modes, kernel.devices, kernel.states, kernel.words, kernel.result_words]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda kernel: kernel.name)
def test_the_c_header_says_what_is_described(kernel):
    """Every macro with a number, as the preprocessor has it."""
    listing = subprocess.run(["gcc", "-E", "-dM", "-x", "c", "-"], input=c_header(kernel), check=True,
                             capture_output=True, text=True).stdout
    core = f"HOTRAIL_{kernel.name.upper()}_"
    found = {name: int(number, 0) for name, number in re.findall(rf"#define {core}(\w+) (0x[0-9a-f]+|\d+)u?$", listing,
                                                                 re.M)}
    wanted = {f"ARG_{a.name}": a.offset for a in kernel.arguments}
    wanted |= {f"REG_{r.name}": r.offset for r in kernel.registers}
    wanted |= {i.name: i.opcode for i in kernel.instructions} | {f"CODE_{c.name}": c.code for c in kernel.codes}
    for what, names in (("MODE", kernel.modes), ("DEVICE", kernel.devices), ("STATE", kernel.states)):
        wanted |= {f"{what}_{name}": number for number, name in enumerate(names)}
    for field in kernel.fields:
        wanted |= {f"{field.name}_WORD": field.word, f"{field.name}_LOW": field.low,
                   f"{field.name}_MASK": (1 << field.low + field.bits) - (1 << field.low)}
    wanted |= {f"RESULT_{v.name}": 4 * v.word for v in kernel.result} | {"INSTRUCTION_WORDS": kernel.words}
    assert found == {name.upper(): number for name, number in wanted.items()}


def test_the_python_header_encodes_as_the_compiler_does():
    header: dict = {}
    exec(python_header(EMB), header)
    assert header["encode"]("BAGS", **VALUES) == encode("BAGS", VALUES).tolist()
    with pytest.raises(ValueError, match="mode = 4 does not fit 2 bits"):
        header["encode"]("BAGS", mode=4)
    assert header["ARGUMENTS"]["rows"] == (EMB.argument("rows").offset, 64)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_c_header_encodes_as_the_compiler_does(tmp_path):
    write(EMB, tmp_path)
    sets = "\n".join(f"HOTRAIL_EMB_SET(&i, {name.upper()}, {value}u);" for name, value in VALUES.items())
    offsets = "\n".join(f'printf("%zu\\n", offsetof(hotrail_emb_result, {value.name}));' for value in EMB.result)
    (tmp_path / "try.c").write_text(f"""
#include <stddef.h>
#include <stdio.h>
#include "hotrail_emb.h"
int main(void) {{
    hotrail_emb_instruction i = {{{{0}}}};
    HOTRAIL_EMB_SET(&i, OPCODE, HOTRAIL_EMB_BAGS);
    HOTRAIL_EMB_SET(&i, MODE, 3u);
    {sets}
    for (int at = 0; at < HOTRAIL_EMB_INSTRUCTION_WORDS; at++) printf("%u\\n", i.word[at]);
    {offsets}
    printf("%zu\\n", sizeof(hotrail_emb_result));
    return HOTRAIL_EMB_CODE_OK;
}}
""", "utf-8")
    subprocess.run(["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "try", "try.c"], check=True,
                   cwd=tmp_path)
    got = [int(line) for line in subprocess.run([tmp_path / "try"], check=True, capture_output=True).stdout.split()]
    assert got[:EMB.words] == encode("BAGS", VALUES).tolist(), "a second value replaces the first"
    assert got[EMB.words:] == [4 * value.word for value in EMB.result] + [4 * EMB.result_words]


def test_offsets_are_those_of_the_vitis_tools():
    assert [a.offset for a in EMB.arguments] == [0x10, 0x1C, 0x24, 0x30, 0x38, 0x44, 0x4C, 0x58, 0x60, 0x6C, 0x74, 0x80]
    assert (EMB.abort, EMB.status, EMB.control_bytes) == (0x88, 0x90, 0xC0)


def test_encode_sets_each_bit_of_each_field():
    for field in EMB.fields[1:]:
        used = [i.name for i in EMB.instructions if any(use.field == field.name for use in i.uses)]
        assert used, f"{field.name} is used by no instruction"
        words = encode(used[0], {field.name: field.highest})
        words[0] -= EMB.instruction(used[0]).opcode
        assert words[field.word] == np.uint32(field.highest << field.low) and np.count_nonzero(words) == 1


def kernel(**changes):
    parts = {"name": "k", "about": "", "arguments": (Argument("a", "scalar", "", ""),), "registers": (), "words": 2,
             "fields": (Field("opcode", 0, 0, 8, ""),), "instructions": (Instruction(1, "GO", "", ()),), "modes": (),
             "devices": (), "states": (), "codes": (Code(0, "OK", ""),), "result_words": 4, "final_words": 2,
             "result": (Value("code", 0, 32, "status", ""),)}
    return Kernel(**(parts | changes))


def test_a_kernel_without_abort_has_none():
    assert kernel().abort is None and kernel().status is None and kernel().control_bytes == 0x18


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"registers": (Register("a", "read", ""),)}, "k: argument or register a occurs twice"),
    ({"fields": (Field("opcode", 0, 0, 8, ""), Field("b", 0, 7, 2, "")),
      "instructions": (Instruction(1, "GO", "", (Use("b"),)),)}, "k: opcode and b overlap in the instruction GO"),
    ({"fields": (Field("opcode", 2, 0, 8, ""),)}, "k: opcode passes the end of the instruction GO"),
    ({"fields": (Field("opcode", 0, 30, 8, ""),)},
     "k: opcode begins inside a word of the instruction GO and leaves it"),
    ({"instructions": (Instruction(1, "GO", "", (Use("b"),)),)}, "k: GO uses b, which is no field"),
    ({"instructions": (Instruction(1, "GO", "", ()), Instruction(1, "ON", "", ()))}, "k: opcode 1 occurs twice"),
    ({"result": (Value("code", 2, 32, "status", ""),)}, "k: status code lies on the wrong side of word 2"),
    ({"result": (Value("code", 0, 32, "status", ""), Value("n", 0, 64, "counter", ""))},
     "k: code and n overlap in the result block"),
])
def test_kernel_wrong(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        kernel(**changes)


def test_argument_wrong():
    with pytest.raises(ValueError, match="argument a: kind must be pointer or scalar, not 'word'"):
        Argument("a", "word", "", "")
    with pytest.raises(ValueError, match="argument a: a pointer names its port, a scalar has none"):
        Argument("a", "pointer", "", "")
    with pytest.raises(ValueError, match="there is no 'x'; there are OK"):
        kernel().code("x")
