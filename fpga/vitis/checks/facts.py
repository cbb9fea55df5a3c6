"""Facts: what a file says, as names and values, held against what it must say.

Every reader here turns its file into a flat table, "busInterface[m00_axi]/portMap[AWADDR]" and a value each, and every
rule gives such a table too. The comparison names what differs, what is missing and what nothing asks for.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from lxml import etree

__all__ = ["ANY", "Facts", "compare", "flatten", "parse"]

Facts = dict[str, str]
# Stands for a text that people read: it must be there and may be anything.
ANY: Final = "(any text)"
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")


def compare(file: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every fact of `file` that is not as wanted. Numbers are equal whatever their base."""
    for name, value in wanted.items():
        if name not in found:
            yield f"{file}: {name} is missing" + ("" if value == ANY else f"; it must be {value!r}")
        elif value == ANY:
            if not found[name].strip():
                yield f"{file}: {name} is empty"
        elif _plain(found[name]) != _plain(value):
            yield f"{file}: {name} is {found[name]!r}; it must be {value!r}"
    for name, value in found.items():
        if name not in wanted:
            yield f"{file}: {name} = {value!r} does not belong there"


def _plain(value: str) -> str | int:
    return int(value, 0 if value[:2].lower() == "0x" else 10) if _NUMBER.fullmatch(value) else value


def parse(data: bytes) -> etree._Element | str:
    """The root of an XML text, or why it is none. Nothing outside of the text is read."""
    reader = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True,
                             remove_pis=True)
    try:
        return etree.fromstring(data, reader)
    except etree.XMLSyntaxError as error:
        return f"it is no XML: {error}"


def flatten(node: etree._Element, prefixes: Mapping[str | None, str], name: str) -> Facts:
    """Every attribute and text below an element. An element goes by its tag and, in brackets, by its attribute or
    child `name` ("@name" or "name"); a second one of the same name is numbered.

    prefixes: what stands before a tag or attribute of a namespace"""
    out: Facts = {}

    known: dict[str, str] = {}

    def tag(full: str) -> str:
        if full not in known:
            space = etree.QName(full).namespace
            known[full] = prefixes.get(space, f"{{{space}}}") + etree.QName(full).localname
        return known[full]

    def called(element: etree._Element) -> str:
        for key, value in element.attrib.items():
            if f"@{tag(key)}" == name:
                return f"[{value}]"
        for child in element:
            if tag(child.tag) == name and not len(child):
                return f"[{(child.text or '').strip()}]"
        return ""

    def walk(element: etree._Element, path: str) -> None:
        for key, value in element.attrib.items():
            out[f"{path}@{tag(key)}"] = value
        inner = (element.text or "").strip()
        if inner or not len(element) and not element.attrib:
            out[path] = inner
        if any((child.tail or "").strip() for child in element):
            out[f"{path}: text between its elements"] = " ".join((child.tail or "").strip() for child in element)
        counts: dict[str, int] = {}
        for child in element:
            key = f"{path}/{tag(child.tag)}{called(child)}"
            counts[key] = counts.get(key, 0) + 1
            walk(child, key if counts[key] == 1 else f"{key}#{counts[key]}")

    walk(node, tag(node.tag))
    return out
