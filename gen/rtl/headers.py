"""C and Python headers and the reference page of a core, read off its description in hw.isa."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from gen.base.staging import together
from hw.isa import EMB, HOTLINE, MLP, WORD_BITS, Field, Kernel
from hw.isa.kernel import IDENTITY
from hw.kernel.identity import identity

__all__ = ["IDENTITY", "KERNELS", "c_header", "identity", "python_header", "reference", "texts", "write"]

KERNELS: Mapping[str, Kernel] = {kernel.name: kernel for kernel in (EMB, MLP, HOTLINE)}


def texts(kernel: Kernel) -> dict[str, str]:
    """hotrail_<core>.h, hotrail_<core>.py and <core>.md."""
    return {f"hotrail_{kernel.name}.h": c_header(kernel), f"hotrail_{kernel.name}.py": python_header(kernel),
            f"{kernel.name}.md": reference(kernel)}


def write(kernel: Kernel, folder: Path) -> list[Path]:
    """Writes a core's headers and page into `folder` and returns their paths."""
    files = texts(kernel)
    with together(folder) as half:
        for name, text in files.items():
            (half / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def _mask(field: Field) -> int:
    return ((1 << field.bits) - 1) << field.low


def c_header(kernel: Kernel) -> str:
    """Constants as macros, a struct for instructions and one for the result block, and a setter for fields."""
    core = f"HOTRAIL_{kernel.name.upper()}"
    guard = f"{core}_H"
    lower = f"hotrail_{kernel.name}"
    out = [f"/* {kernel.about} Generated from hw/isa: do not edit. */", f"#ifndef {guard}", f"#define {guard}", "",
           "#include <stdint.h>", ""]

    def define(name: str, value: str, about: str = "") -> None:
        left = f"#define {core}_{name}"
        out.append(f"{left:<52}{value}" + (f"  /* {about} */" if about else ""))

    out.append("/* Byte offsets in the control slave. A pointer is two words, the low one first. */")
    for argument in kernel.arguments:
        define(f"ARG_{argument.name.upper()}", f"0x{argument.offset:02x}",
               f"{argument.about}{f' ({argument.port})' if argument.port else ''}")
    for register in kernel.registers:
        define(f"REG_{register.name.upper()}", f"0x{register.offset:02x}", f"{register.access}: {register.about}")
    out += ["", "/* Opcodes. */"]
    for instruction in kernel.instructions:
        define(instruction.name, str(instruction.opcode), instruction.about)
    for what, values in (("MODE", kernel.modes), ("DEVICE", kernel.devices), ("STATE", kernel.states)):
        out.append("")
        for number, name in enumerate(values):
            define(f"{what}_{name.upper()}", str(number))
    out += ["", "/* Codes of the result block. */"]
    for code in kernel.codes:
        define(f"CODE_{code.name}", str(code.code), code.about)
    out += ["", "/* Fields of an instruction: word, lowest bit, mask in the word. */"]
    define("INSTRUCTION_WORDS", str(kernel.words))
    for field in kernel.fields:
        define(f"{field.name.upper()}_WORD", str(field.word), field.about)
        define(f"{field.name.upper()}_LOW", str(field.low))
        define(f"{field.name.upper()}_MASK", f"0x{_mask(field):08x}u")
    out += ["", f"typedef struct {{ uint32_t word[{core}_INSTRUCTION_WORDS]; }} {lower}_instruction;", "",
            "/* Sets a field: what was there is replaced, what does not fit is cut off. */",
            f"#define {core}_SET(instruction, field, value) \\",
            f"    ((instruction)->word[{core}_##field##_WORD] = \\",
            f"         ((instruction)->word[{core}_##field##_WORD] & ~{core}_##field##_MASK) | \\",
            f"         (((uint32_t)(value) << {core}_##field##_LOW) & {core}_##field##_MASK))", "",
            "/* The result block. 64-bit counters lie low word first. */", "typedef struct {"]
    at = spare = 0
    for value in sorted(kernel.result, key=lambda value: value.word):
        if value.word > at:
            out.append(f"    uint32_t reserved_{spare}[{value.word - at}];")
            spare += 1
        out.append(f"    uint{value.bits}_t {value.name};".ljust(36) + f"/* {value.about} */")
        at = value.word + value.bits // WORD_BITS
    if at < kernel.result_words:
        out.append(f"    uint32_t reserved_{spare}[{kernel.result_words - at}];")
    out += [f"}} {lower}_result;", ""]
    for value in kernel.result:
        define(f"RESULT_{value.name.upper()}", f"{4 * value.word}", "byte offset")
    out += ["", f"#endif /* {guard} */", ""]
    return "\n".join(out)


def python_header(kernel: Kernel) -> str:
    """A module of plain constants and one function, for hosts that have nothing of this project installed."""
    def block(name: str, items: Mapping, about: str) -> list[str]:
        return ["", f"# {about}", f"{name} = {{", *(f"    {key!r}: {value!r}," for key, value in items.items()), "}"]

    out = [f'"""{kernel.about} Generated from hw/isa: do not edit."""']
    out += block("ARGUMENTS", {a.name: (a.offset, a.bits) for a in kernel.arguments},
                 "Byte offset in the control slave and bits.")
    out += block("REGISTERS", {r.name: r.offset for r in kernel.registers}, "Byte offsets behind the arguments.")
    out += block("OPCODES", {i.name: i.opcode for i in kernel.instructions}, "Instructions.")
    for name, values in (("MODES", kernel.modes), ("DEVICES", kernel.devices), ("STATES", kernel.states)):
        out += ["", f"{name} = {values!r}"]
    out += block("CODES", {c.code: (c.name, c.about) for c in kernel.codes}, "How a run ended.")
    out += ["", f"WORDS = {kernel.words}  # of an instruction"]
    out += block("FIELDS", {f.name: (f.word, f.low, f.bits) for f in kernel.fields},
                 "Fields of an instruction: word, lowest bit, bits.")
    out += ["", f"RESULT_WORDS = {kernel.result_words}"]
    out += block("RESULT", {v.name: (v.word, v.bits) for v in kernel.result},
                 "Words of the result block: first word, bits (64: low word first).")
    out += ["", "", "def encode(opcode, **fields):", f'    """The {kernel.words} words of an instruction."""',
            "    words = [0] * WORDS", "    words[0] = OPCODES[opcode]", "    for name, value in fields.items():",
            "        word, low, bits = FIELDS[name]", "        if not 0 <= value < 1 << bits:",
            '            raise ValueError(f"{name} = {value} does not fit {bits} bits")',
            "        words[word] |= value << low", "    return words", ""]
    return "\n".join(out)


def reference(kernel: Kernel) -> str:
    """The reference page, Markdown."""
    def table(*columns: str) -> list[str]:
        return ["", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]

    out = [f"# Reference: the {kernel.name.upper()} core", "",
           f"{kernel.about} This page is read off `hw/isa`; the decoder, the headers and the compiler are too.", "",
           "All words are little-endian. Offsets into buffers count beats of the core's ports.", "",
           "## Arguments", "",
           "`ap_ctrl_hs` from 0x00; a pointer is two words, the low one first."]
    out += table("byte offset", "name", "bits", "port", "what")
    out += [f"| 0x{a.offset:02x} | `{a.name}` | {a.bits} | {a.port} | {a.about} |" for a in kernel.arguments]
    out += [f"| 0x{r.offset:02x} | `{r.name}` | 32, {r.access} |  | {r.about} |" for r in kernel.registers]
    out += ["", f"States that `status` tells: {_numbered(kernel.states)}.", "", "## Instructions", "",
            f"{kernel.words} words each. Bits of words 0 and 9 that belong to no field must be 0; fields that an "
            "instruction does not use are ignored. An instruction is refused with BAD_INSTRUCTION where a value is "
            "not allowed."]
    for instruction in kernel.instructions:
        out += ["", f"### {instruction.opcode} {instruction.name}", "", instruction.about
                + (" Begins when everything before has finished, and ends before the next begins."
                   if instruction.fence else "")]
        out += table("word", "bits", "field", "allowed", "what")
        for use in (None, *instruction.uses):
            field = kernel.field("opcode" if use is None else use.field)
            about = str(instruction.opcode) if use is None else use.about or field.about
            out.append(f"| {field.word} | {field.low + field.bits - 1}..{field.low} | `{field.name}` | "
                       f"{_allowed(field)} | {about} |")
    if kernel.devices:
        out += ["", "## Index words", "", "`{device[31:30], emb_idx[29:0]}`: " + _numbered(kernel.devices)
                + ". For the SSD `emb_idx` is the ring position of the row's first beat."]
    out += ["", "## Result block", "",
            f"{4 * kernel.result_words} bytes. The first {4 * kernel.final_words} are written by the core at the end "
            "of a run."]
    out += table("byte offset", "bits", "name", "kind", "what")
    out += [f"| {4 * v.word} | {v.bits} | `{v.name}` | {v.kind} | {v.about} |" for v in kernel.result]
    out += ["", "## Codes"]
    out += table("code", "name", "names", "what")
    out += [f"| {c.code} | {c.name} | {', '.join(c.place)} | {c.about} |" for c in kernel.codes]
    out += ["", "Bits of the detail of STALLED: " + ", ".join(
        f"{bit} {name if name in kernel.channels else f'`{name}`'}" for bit, name in kernel.waits.items()) + "."]
    return "\n".join([*out, ""])


def _numbered(names: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {name}" for number, name in enumerate(names))


def _allowed(field: Field) -> str:
    high = field.limit if field.limit else field.highest
    if not field.limit and field.minimum == 0 and field.highest == (1 << field.bits) - 1:
        return ""
    return f"{field.minimum}..{high}"


def main() -> None:
    """Writes the headers and reference pages of all cores into build/headers."""
    from gen.base.tools import build_folder

    argparse.ArgumentParser(prog="python -m gen.rtl.headers", description=main.__doc__).parse_args()
    for kernel in KERNELS.values():
        for path in write(kernel, build_folder() / "headers"):
            print(path)


if __name__ == "__main__":
    main()
