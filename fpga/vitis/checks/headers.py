"""The headers and the reference page of a package read back: what a compiler and an interpreter make of them."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from fpga.vitis.checks.expected import Expected
from fpga.vitis.checks.facts import Facts, compare
from gen.rtl.headers import KERNELS

__all__ = ["c_header", "python_header", "reference"]

_WORD = 32


# -- C: the compiler says what each macro is, where each field of the result lies, and what the setter does.

def c_header(text: str, expected: Expected) -> Iterator[str]:
    """What a C header says that is not so. Where there is no g++, its numbers and comments alone are read."""
    file = f"{expected.kernel}.h"
    wanted = _c_wanted(expected)
    if shutil.which("g++") is None:
        read = dict(re.findall(r"(?m)^#define (HOTRAIL_\w+) +(0x[0-9a-f]+|\d+)u?\b", text))
        yield from compare(file, read | _comments(text), _c_comments(expected) | {
            name: value for name, value in wanted.items() if name.startswith("HOTRAIL_") and value})
        return
    found = _compiled(text, expected.core)
    if isinstance(found, str):
        yield f"{file}: the compiler refuses it: {found}"
    else:
        yield from compare(file, found | _comments(text), wanted | _c_comments(expected))


@lru_cache(maxsize=256)
def _compiled(text: str, core: str) -> Facts | str:
    kernel = KERNELS[core]
    lower, upper = f"hotrail_{core}", f"HOTRAIL_{core.upper()}"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "header.h").write_text(text)
        listing = subprocess.run(["g++", "-E", "-dM", "-x", "c++", "header.h"], cwd=work, capture_output=True,
                                 text=True)
        if listing.returncode:
            return _reason(listing.stderr)
        macros = [name for name in re.findall(r"(?m)^#define (HOTRAIL_\w+) \S", listing.stdout)]
        fields = [value.name for value in kernel.result]
        program = ['#include "header.h"', "#include <cstdio>", "#include <cstddef>", "int main() {"]
        program += [f'    std::printf("{name}=%llu\\n", (unsigned long long)({name}));' for name in macros]
        program += [f'    std::printf("sizeof {lower}_{name}=%zu\\n", sizeof({lower}_{name}));'
                    for name in ("instruction", "result")]
        program += [f'    std::printf("{lower}_result.{name}=%zu at %zu\\n", sizeof((({lower}_result*)0)->{name}), '
                    f'offsetof({lower}_result, {name}));' for name in fields]
        for field in kernel.fields:
            name = field.name.upper()
            program += [
                f"    {{ {lower}_instruction i; for (auto& word : i.word) word = 0xA5A5A5A5u;",
                f"      {upper}_SET(&i, {name}, 0xFFFFFFFFu); uint32_t up = i.word[{field.word}];",
                f"      {upper}_SET(&i, {name}, 0); uint32_t down = i.word[{field.word}];",
                f'      std::printf("set {name}=%08x %08x\\n", up, down); }}']
        (work / "main.cpp").write_text("\n".join([*program, "    return 0;", "}", ""]))
        built = subprocess.run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.cpp"],
                               cwd=work, capture_output=True, text=True)
        if built.returncode:
            return _reason(built.stderr)
        told = subprocess.run([str(work / "main")], capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in told.splitlines()) | _functions(listing.stdout)


def _functions(listing: str) -> Facts:
    """Guards and macros with parameters: that they are there."""
    return {name: "" for name in re.findall(r"(?m)^#define (HOTRAIL_\w+)(?: ?$|\()", listing)}


def _comments(text: str) -> Facts:
    """What the header says of each macro and each field of the result."""
    rows = re.findall(r"(?m)^(?:#define|    uint\d+_t) (\w+)[ ;]+(?:\S+ +)?/\* (.*) \*/$", text)
    return {f"comment of {name}": about for name, about in rows}


def _c_comments(expected: Expected) -> Facts:
    kernel, upper = KERNELS[expected.core], f"HOTRAIL_{expected.core.upper()}"
    out = {f"ARG_{a.name}": f"{a.about} ({a.bus.removesuffix('_axi')})" if a.pointer else a.about
           for a in expected.arguments}
    out |= {f"REG_{r.name}": f"{r.access}: {r.about}" for r in expected.registers}
    out |= {i.name: i.about for i in kernel.instructions} | {f"CODE_{c.name}": c.about for c in kernel.codes}
    out |= {f"{f.name}_WORD": f.about for f in kernel.fields}
    out |= {f"RESULT_{v.name}": "byte offset" for v in kernel.result}
    return {f"comment of {upper}_{name.upper()}": about for name, about in out.items()} | {
        f"comment of {v.name}": v.about for v in kernel.result}


def _reason(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line] or ["no reason given"]
    return lines[0]


def _c_wanted(expected: Expected) -> Facts:
    kernel = KERNELS[expected.core]
    numbers: dict[str, int] = {f"ARG_{a.name}": a.offset for a in expected.arguments}
    numbers |= {f"REG_{r.name}": r.offset for r in expected.registers}
    numbers |= {i.name: i.opcode for i in kernel.instructions}
    for what, names in (("MODE", kernel.modes), ("DEVICE", kernel.devices), ("STATE", kernel.states)):
        numbers |= {f"{what}_{name}": number for number, name in enumerate(names)}
    numbers |= {f"CODE_{code.name}": code.code for code in kernel.codes}
    numbers["INSTRUCTION_WORDS"] = kernel.words
    numbers |= {f"RESULT_{value.name}": 4 * value.word for value in kernel.result}
    upper, lower = f"HOTRAIL_{expected.core.upper()}", f"hotrail_{expected.core}"
    out = {f"{upper}_H": "", f"{upper}_SET": ""}
    for field in kernel.fields:
        mask = (1 << field.low + field.bits) - (1 << field.low)
        numbers |= {f"{field.name}_WORD": field.word, f"{field.name}_LOW": field.low, f"{field.name}_MASK": mask}
        rest = 0xA5A5A5A5 & ~mask
        out[f"set {field.name.upper()}"] = f"{rest | mask:08x} {rest:08x}"
    out |= {f"{upper}_{name.upper()}": str(number) for name, number in numbers.items()}
    out |= {f"sizeof {lower}_{name}": str(4 * words)
            for name, words in (("instruction", kernel.words), ("result", kernel.result_words))}
    return out | {f"{lower}_result.{v.name}": f"{v.bits // 8} at {4 * v.word}" for v in kernel.result}


# -- Python: run by itself.

def python_header(text: str, expected: Expected) -> Iterator[str]:
    """What a Python header says that is not so."""
    file, kernel = f"{expected.kernel}.py", KERNELS[expected.core]
    space: dict[str, Any] = {"__name__": expected.kernel}
    try:
        exec(compile(text, file, "exec"), space)
    except Exception as error:      # whatever a broken file can raise
        yield f"{file}: it does not run: {type(error).__name__}: {error}"
        return
    wanted: dict[str, Any] = {
        "ARGUMENTS": {a.name: (a.offset, 8 * a.bytes) for a in expected.arguments},
        "REGISTERS": {r.name: r.offset for r in expected.registers},
        "OPCODES": {i.name: i.opcode for i in kernel.instructions},
        "MODES": kernel.modes, "DEVICES": kernel.devices, "STATES": kernel.states,
        "CODES": {c.code: (c.name, c.about) for c in kernel.codes},
        "WORDS": kernel.words,
        "FIELDS": {f.name: (f.word, f.low, f.bits) for f in kernel.fields},
        "RESULT_WORDS": kernel.result_words,
        "RESULT": {v.name: (v.word, v.bits) for v in kernel.result},
    }
    found = {name: value for name, value in space.items() if name.isupper()}
    yield from compare(file, _spread(found), _spread(wanted))
    if list(found.get("ARGUMENTS", ())) != [a.name for a in expected.arguments]:
        yield f"{file}: ARGUMENTS are not in the order of their ids"
    yield from (f"{file}: {sentence}" for sentence in _encodes(space.get("encode"), expected.core))


def _spread(values: dict[str, Any]) -> Facts:
    out: Facts = {}
    for name, value in values.items():
        if isinstance(value, dict):
            out |= {f"{name}[{key}]": repr(item) for key, item in value.items()}
            out[f"len({name})"] = str(len(value))
        else:
            out[name] = repr(value)
    return out


def _encodes(encode: Any, core: str) -> Iterator[str]:
    """Tries `encode` with the lowest and the highest value of each field, and with those beside them."""
    kernel = KERNELS[core]
    if not callable(encode):
        yield "there is no function encode"
        return
    name, opcode = kernel.instructions[0].name, kernel.instructions[0].opcode
    for field in kernel.fields:
        if field.name == "opcode":
            continue
        highest = (1 << field.bits) - 1
        for value in (0, highest):
            want = [0] * kernel.words
            want[0] = opcode
            want[field.word] |= value << field.low
            try:
                got = encode(name, **{field.name: value})
            except Exception as error:
                got = f"{type(error).__name__}: {error}"
            if got != want:
                yield f"encode({name!r}, {field.name}={value}) gives {got}, not {want}"
        for value in (-1, highest + 1):
            try:
                encode(name, **{field.name: value})
            except ValueError:
                continue
            except Exception as error:
                yield f"encode({name!r}, {field.name}={value}) raises {type(error).__name__}, not ValueError"
            else:
                yield f"encode({name!r}, {field.name}={value}) takes a value that does not fit"


# -- The page: its tables.

def reference(text: str, expected: Expected) -> Iterator[str]:
    """What the tables of a reference page say that is not so."""
    yield from compare(f"{expected.core}.md", _tables(text), _page(expected))


def _tables(text: str) -> Facts:
    """Every row of every table by its heading, its name (the cell in backquotes, else the second) and its column."""
    out: Facts = {}
    heading = ""
    columns: list[str] = []
    for line in text.splitlines():
        if match := re.match(r"#+ (.*)", line):
            heading, columns = match[1], []
            out[f"heading {heading}"] = ""
        elif not line.startswith("|"):
            columns = []
        else:
            cells = [cell.strip() for cell in line.strip()[1:-1].split("|")]
            if not columns:
                columns = cells
            elif not all(set(cell) <= set("- ") for cell in cells):
                name = next((cell for cell in cells if re.fullmatch(r"`\w+`", cell)), cells[min(1, len(cells) - 1)])
                for column, cell in zip(columns, cells, strict=False):
                    key = f"{heading}: {name.strip('`')}: {column}"
                    out[f"{key} again" if key in out else key] = cell.strip("`")
                if len(cells) != len(columns):
                    out[f"{heading}: {name.strip('`')}: cells"] = str(len(cells))
        if match := re.match(r"States that `status` tells: (.*)\.$", line):
            out["states"] = match[1]
        elif match := re.match(r"(\d+) bytes\. The first (\d+) are", line):
            out["result block"] = f"{match[1]} {match[2]}"
        elif match := re.match(r"(\d+) words each\.", line):
            out["words"] = match[1]
        elif match := re.match(r"`\{device\[31:30\], emb_idx\[29:0\]\}`: (.*?)\. ", line):
            out["devices"] = match[1]
    return out


def _page(expected: Expected) -> Facts:
    kernel = KERNELS[expected.core]
    heads = [f"Reference: the {expected.core.upper()} core", "Arguments", "Instructions", "Result block", "Codes"]
    heads += [f"{i.opcode} {i.name}" for i in kernel.instructions] + (["Index words"] if kernel.devices else [])
    out = {f"heading {head}": "" for head in heads}

    def row(head: str, item: str, /, **cells: object) -> None:
        out.update({f"{head}: {item}: {column.replace('_', ' ')}": str(cell) for column, cell in cells.items()})

    for a in expected.arguments:
        row("Arguments", a.name, byte_offset=hex(a.offset), name=a.name, bits=8 * a.bytes,
            port=a.bus.removesuffix("_axi") if a.pointer else "", what=a.about)
    for r in expected.registers:
        row("Arguments", r.name, byte_offset=hex(r.offset), name=r.name, bits=f"32, {r.access}", port="", what=r.about)
    for i in kernel.instructions:
        for name, about in (("opcode", str(i.opcode)), *((use.field, use.about) for use in i.uses)):
            field = kernel.field(name)
            whole = (1 << field.bits) - 1
            highest = field.limit or (whole if field.maximum is None else field.maximum)
            row(f"{i.opcode} {i.name}", name, word=field.word, bits=f"{field.low + field.bits - 1}..{field.low}",
                field=name, allowed="" if (field.minimum, highest) == (0, whole) else f"{field.minimum}..{highest}",
                what=about or field.about)
    for v in kernel.result:
        row("Result block", v.name, byte_offset=4 * v.word, bits=v.bits, name=v.name, kind=v.kind, what=v.about)
    for c in kernel.codes:
        row("Codes", c.name, code=c.code, name=c.name, names=", ".join(c.place), what=c.about)
    out |= {"states": _numbered(kernel.states), "words": str(kernel.words),
            "result block": f"{4 * kernel.result_words} {4 * kernel.final_words}"}
    return out | ({"devices": _numbered(kernel.devices)} if kernel.devices else {})


def _numbered(names: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {name}" for number, name in enumerate(names))
