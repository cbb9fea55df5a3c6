"""What a machine can spoil of a package: its files, their bytes, the platform, and the versions of the tools.

What the generator and its description guarantee is not looked at again here: tests hold it. docs/vitis-package.md says
which check is where.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from gen.model.platform import find

MANIFEST, BOARD = "package.json", "board.toml"
# What decides about the bytes of a package besides the project itself.
TOOLS = ("amaranth", "pyosys", "lxml")
# What a package has whatever its core; `{kernel}` and `{core}` are the manifest's.
_NEEDED = ("kernel.xml", "component.xml", "package.tcl", "link.cfg", "src/{kernel}.v", "{kernel}.h", "{kernel}.py",
           "{core}.md")
_TEXTS = ("kernel", "core", "part", "platform")


def check(folder: Path) -> list[str]:
    """What is wrong with a package folder, a sentence each that names the file; empty where nothing is.

    Raises FileNotFoundError: there is no such folder"""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return [f"{MANIFEST} is missing"]
    except ValueError as error:
        return [f"{MANIFEST}: it is no JSON: {error}"]
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict) or any(
            not isinstance(manifest.get(key), str) for key in _TEXTS):
        return [f"{MANIFEST}: it must be an object with the texts {', '.join(_TEXTS)} and the table files"]
    return [*_target(folder, manifest), *_files(folder, manifest)]


def _target(folder: Path, told: Mapping[str, Any]) -> Iterator[str]:
    """Of a board of one's own the file lies in the package."""
    try:
        board = find(str(folder / BOARD) if (folder / BOARD).exists() else told["platform"])[0]
    except ValueError as error:
        yield f"{MANIFEST}: {error}"
        return
    if told["part"] != board.part:
        yield f"{MANIFEST}: part is {told['part']!r}; the {board.about} has the {board.part}"
    if told["platform"] not in {shell.platform for shell in board.shells.values()}:
        yield f"{MANIFEST}: platform is {told['platform']!r}, which {BOARD} does not have"


def _files(folder: Path, told: Mapping[str, Any]) -> Iterator[str]:
    """Files that are missing, too many, or of other bytes than were generated."""
    listed = told["files"]
    needed = {name.format(**told) for name in _NEEDED}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()} - {MANIFEST}
    for name in sorted(needed - listed.keys()):
        yield f"{MANIFEST}: {name} is not listed; every package has it"
    for name in sorted(listed.keys() | there):
        if name not in there:
            yield f"{name} is missing"
        elif name not in listed:
            yield f"{name} does not belong to the package"
        elif (digest := hashlib.sha256((folder / name).read_bytes()).hexdigest()) != listed[name]:
            yield f"{name}: its SHA-256 is {digest[:16]}..., in {MANIFEST} {str(listed[name])[:16]}..."


def untested() -> tuple[str, ...]:
    """A sentence for each tool that decides about a package's bytes and is here in another version than the one that
    hotrail asks for, in its extras too, and is tested with."""
    pinned = (text.partition(";")[0].strip().split("==") for text in requires("hotrail") or ())
    tested = {each[0]: each[1] for each in pinned if len(each) == 2}
    here = {name: version(name) for name in TOOLS}
    return tuple(f"{name} {here[name]} is installed; hotrail {version('hotrail')} is tested with {tested[name]}, so "
                 "the bytes of this package may differ" for name in TOOLS if tested.get(name, here[name]) != here[name])
