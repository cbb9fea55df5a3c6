"""Every element, attribute, line and number of a package's files changed, one at a time, without regard to meaning.

What the checker does not find must be harmless: `HARMLESS` says file by file what may stay unseen, and why.
"""

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from fpga.vitis.check import examine
from tests.mutations.changes import MANIFEST, found, signed

Place = tuple[str, bytes]               # what was changed, the changed file
_BLANK = r"'' deleted"
# File -> (pattern of the places where a change may stay unseen, what these are).
HARMLESS = {
    "kernel.xml": (r"(?!)", "-"),
    "component.xml": (
        r".*/(displayName|coreCreationDateTime) altered|.*register\[(CTRL|GIER|IP_\w+)\]\S*/description altered",
        "display names, the date, the handshake's bits in words"),
    "package.tcl": (
        rf"['\"]\s*#|{_BLANK}|'(CTRL|GIER|IP_\w+) 0x.*\{{.*\}}': \d+ altered|'puts |.*exit 1': 1 altered|'set kept",
                    "comments, empty lines, what is printed, the handshake's bits in words, exit code 2 for 1"),
    "link.cfg": (_BLANK, "empty lines"),
    "hotrail_emb.h": (rf"'/\*|{_BLANK}", "comments above groups, empty lines"),
    "hotrail_emb.py": (rf"[\"']#|['\"]+.*\"\"\"' |'\"\"\"|{_BLANK}", "comments, docstrings, empty lines"),
    "emb.md": (rf"{_BLANK}|'\| ---|['\"][^|#]", "prose around the tables, the rule below a table's head"),
    "host.cpp": (r"(?!)", "-"),
    "package.json": (
        r"""'"(lut|ff|port_levels|amaranth|pyosys|lxml)": .* altered|.*: (76|75) altered|'"(Part|a\.Q .*)",' deleted""",
        "what the gate measured and words about it, where verdict and shares stay the same; other tools' versions"),
    "xgui": ("'#", "a comment"),
    "control slave": (
        r"line \d+: (&|\d+'h0+) altered",
        "no difference: the read address is also taken while it is not valid, or has another value in reset"),
}


def xml(data: bytes) -> Iterator[Place]:
    """An XML file with an element deleted, doubled, emptied or altered, or an attribute deleted or altered."""
    root = etree.fromstring(data)
    for node in list(root.iter(etree.Element)):
        where, parent = _path(node), node.getparent()
        if parent is not None:
            at, tail = parent.index(node), node.tail
            parent.remove(node)
            yield f"{where} deleted", etree.tostring(root)
            parent.insert(at, node)
            node.tail = tail
            twin = copy.deepcopy(node)
            parent.insert(at, twin)
            yield f"{where} doubled", etree.tostring(root)
            parent.remove(twin)
        for name, value in node.attrib.items():
            label = f"{where}@{etree.QName(name).localname}"
            node.attrib[name] = _altered(value)
            yield f"{label} altered", etree.tostring(root)
            del node.attrib[name]
            yield f"{label} deleted", etree.tostring(root)
            node.attrib[name] = value
        text = node.text or ""
        if not len(node) and text.strip():
            node.text = _altered(text)
            yield f"{where} altered", etree.tostring(root)
            node.text = ""
            yield f"{where} emptied", etree.tostring(root)
            node.text = text


def lines(data: bytes) -> Iterator[Place]:
    """A text with one line deleted, or one number in it one higher."""
    rows = data.decode().split("\n")
    for at, row in enumerate(rows[:-1]):
        yield f"{row.strip()!r} deleted", "\n".join([*rows[:at], *rows[at + 1:]]).encode()
        for match in re.finditer(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)\b", row):
            new = row[:match.start()] + _altered(match[0]) + row[match.end():]
            yield f"{row.strip()!r}: {match[0]} altered", "\n".join([*rows[:at], new, *rows[at + 1:]]).encode()


def operators(data: bytes) -> Iterator[Place]:
    """Verilog with one operator or one constant of one assignment changed. Initial values of registers stay: the reset
    gives them, and the checker begins with it."""
    text = data.decode()
    for match in re.finditer(r"(?m) (==|&|\|) (?=\S)|(?<= = )\d+'h[0-9a-f]+(?=;)", text):
        if text[text.rfind("\n", 0, match.start()) + 1:].startswith("  reg "):
            continue
        new = {" == ": " != ", " & ": " | ", " | ": " & "}.get(match[0]) or f"~{match[0]}"
        row = text.count("\n", 0, match.start()) + 1
        yield f"line {row}: {match[0].strip()} altered", (text[:match.start()] + new + text[match.end():]).encode()


PATTERNS = {"control slave": "src/ControlSlave_*.v", "xgui": "xgui/*.tcl"}
HOW: dict[str, Callable[[bytes], Iterator[Place]]] = {
    "kernel.xml": xml, "component.xml": xml, "control slave": operators}


def _path(node: etree._Element) -> str:
    names: list[str] = []
    while node is not None:
        label = next((child.text for child in node if etree.QName(child).localname == "name"), None)
        names.append(etree.QName(node).localname + (f"[{label}]" if label else ""))
        node = node.getparent()
    return "/".join(reversed(names))


def _altered(value: str) -> str:
    """Another value of the same kind: a number one higher, a word one letter longer."""
    if re.fullmatch(r"0x[0-9a-fA-F]+", value):
        return hex(int(value, 16) + 1)
    return str(int(value) + 1) if value.isdigit() else f"{value}x"


def unseen(folder: Path, name: str, step: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """(changes tried, places where none was found) of every `step`-th change to a file of a sound package of the EMB
    core, from `first` on. The digests are made to agree; the .xo, which holds copies of other files, is left out."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
             if path.is_file() and path.suffix != ".xo"}
    files[MANIFEST] = json.dumps(json.loads(signed(files)), indent=1).encode()
    path = found(folder, PATTERNS.get(name, name)).relative_to(folder).as_posix()
    tried = [place for number, place in enumerate(HOW.get(name, lines)(files[path])) if number % step == first % step]

    def silent(changed: bytes) -> bool:
        package = {**files, path: changed}
        return not examine(package if path == MANIFEST else {**package, MANIFEST: signed(package)})

    assert silent(files[path]), name
    return len(tried), [where for where, changed in tried if silent(changed)]


def cpu() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
