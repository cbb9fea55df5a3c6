"""Every element, attribute, line and number of a package's files changed, one at a time, without regard to meaning.

What the checker does not find must be text for people: `HARMLESS` names it, file by file, with the reason.
"""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from fpga.vitis import schema
from fpga.vitis.check import findings
from fpga.vitis.checks import archive, component, headers, kernelxml, link, manifest, ports, tcl
from fpga.vitis.checks.expected import expected

# File -> (pattern of the places where a change may stay unseen, what these are).
HARMLESS = {
    "kernel.xml": (r"(?!)", "none"),
    "component.xml": (
        r"(?s).*/(?:displayName|coreCreationDateTime|field/description)\b|.*register\[(?:CTRL|GIER|IP_\w+)\]/description",
        "display names, the date, what the bits of the handshake are called in words"),
}
Place = tuple[str, bytes]       # what was changed, the changed file


def xml(data: bytes) -> Iterator[Place]:
    """An XML file with one element deleted, emptied or altered, or one attribute deleted or altered."""
    root = etree.fromstring(data)
    for node in list(root.iter(etree.Element)):
        where, parent = path(node), node.getparent()
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
            node.attrib[name] = altered(value)
            yield f"{label} altered", etree.tostring(root)
            del node.attrib[name]
            yield f"{label} deleted", etree.tostring(root)
            node.attrib[name] = value
        text = node.text or ""
        if not len(node) and text.strip():
            node.text = altered(text)
            yield f"{where} altered", etree.tostring(root)
            node.text = ""
            yield f"{where} emptied", etree.tostring(root)
            node.text = text


def path(node: etree._Element) -> str:
    names = []
    while node is not None:
        label = next((child.text for child in node if etree.QName(child).localname == "name"), None)
        names.append(etree.QName(node).localname + (f"[{label}]" if label else ""))
        node = node.getparent()
    return "/".join(reversed(names))


def altered(value: str) -> str:
    """Another value of the same kind: a number one higher, a word one letter longer."""
    if re.fullmatch(r"0x[0-9a-fA-F]+", value):
        return hex(int(value, 16) + 1)
    return str(int(value) + 1) if value.isdigit() else f"{value}x"


def lines(data: bytes) -> Iterator[Place]:
    """A text with one line deleted, or one number in it one higher."""
    rows = data.decode().split("\n")
    for at, row in enumerate(rows[:-1]):
        yield f"{row.strip()!r} deleted", "\n".join([*rows[:at], *rows[at + 1:]]).encode()
        for match in re.finditer(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)\b", row):
            new = row[:match.start()] + altered(match[0]) + row[match.end():]
            yield f"{row.strip()!r}: {match[0]} altered", "\n".join([*rows[:at], new, *rows[at + 1:]]).encode()
