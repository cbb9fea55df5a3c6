"""Texts of modules without what no reader and no tool needs: zeros of memories, second names, numbers of a process."""

import re
from collections import Counter

_ZERO_CONTENTS = re.compile(
    r"(?m)^  cell \$meminit_v2 \S+\n(?:    .*\n)*?    connect \\DATA \d+'0+\n(?:    .*\n)*?  end\n"
)


def without_zero_contents(text: str) -> str:
    """Drops initial contents of memories that are all zero: Amaranth gives every memory some.

    Configuration makes these memories zero anyway (an UltraRAM has no other contents); no unit relies on it but those
    that gen.rtl.powerup names. As thousands of assignments a memory they would be most of the Verilog and most of
    what a simulator compiles.
    """
    return _ZERO_CONTENTS.sub("", text)


_IDENTIFIER = re.compile(r"\\[^\s\\]+")


def without_aliases(text: str) -> str:
    """Drops wires that are only another name for a signal or a field; they are two thirds of an array's text.

    A wire goes when it is no port and occurs nowhere but in its declaration and the statement that connects
    it; dropping that statement may leave its right side in the same state.
    """
    lines = [line for line in text.splitlines() if line and not line.isspace()]
    out: list[str] = []
    start = 0
    for end, line in enumerate(lines):
        if line == "end":  # names are local to a module
            out += _in_module(lines[start : end + 1])
            start = end + 1
    return "\n".join(out + lines[start:]) + "\n"


def _in_module(lines: list[str]) -> list[str]:
    counts: Counter[str] = Counter()
    sources: dict[str, tuple[int, list[str]]] = {}  # wire -> its connect's line, the names on the right
    declared: dict[str, int] = {}
    for number, line in enumerate(lines):
        identifiers = _IDENTIFIER.findall(line)
        counts.update(identifiers)
        if line.startswith("connect \\"):  # at the margin; the ports of a cell are indented
            words = line.split(" ", 2)
            if not words[2].startswith("["):  # a slice of the wire on the left is no alias
                sources[words[1]] = (number, identifiers[1:])
        elif line.startswith("  wire ") and identifiers and not re.search(r" (?:input|output|inout) \d+ ", line):
            declared[identifiers[0]] = number
    gone: set[int] = set()
    todo = [name for name in sources if counts[name] == 2 and name in declared]
    while todo:
        name = todo.pop()
        number, inner = sources[name]
        gone |= {number, declared[name]}
        above = declared[name] - 1
        while lines[above].startswith("  attribute "):
            gone.add(above)
            above -= 1
        counts.subtract(inner)
        todo += [n for n in inner if counts[n] == 2 and n in sources and n in declared]
    return [line for number, line in enumerate(lines) if number not in gone]


def renumbered(text: str) -> str:
    """Yosys numbers what it adds over all that it converts in one process; here a module's own begin with 1. All have
    the same number of digits, so that Yosys, which sorts names as texts, writes them in the same order each time."""
    own = r"(\\\$auto\$\S+\$)(\d+)"
    rank = {number: at for at, number in enumerate(sorted({found[1] for found in re.findall(own, text)}), 1)}
    return re.sub(own, lambda found: f"{found[1]}{rank[found[2]]}", text)
