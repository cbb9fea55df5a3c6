"""Changes to a copy of a sound package of the EMB core, each of which the checker must find.

A mutation changes a copy of a sound package. Then package.json's digests are made new, so that a digest alone finds
nothing; those that are about the digests themselves say so.
"""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

TOP, KERNEL, COMPONENT, SCRIPT, LINK = ("src/hotrail_emb.v", "kernel.xml", "component.xml", "package.tcl", "link.cfg")
HEADER, MODULE, PAGE, MANIFEST, XO = ("hotrail_emb.h", "hotrail_emb.py", "emb.md", "package.json", "hotrail_emb.xo")
HOST = "host.cpp"


@dataclass(frozen=True)
class Mutation:
    """`file`: the one that a sentence must begin with, a pattern; `change`: what is done to the folder; `digests`:
    whether package.json is made to agree afterwards."""

    name: str
    file: str
    change: Callable[[Path], None]
    digests: bool = True

    def apply(self, folder: Path) -> None:
        self.change(folder)
        if self.digests:
            sign(folder)


def sign(folder: Path) -> None:
    """Makes package.json list what lies there."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / MANIFEST).write_bytes(signed(files))


def signed(files: Mapping[str, bytes]) -> bytes:
    """The package.json among these files, made to list the others."""
    told = json.loads(files[MANIFEST])
    told["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != MANIFEST}
    return json.dumps(told).encode()


def replaced(text: str, old: str, new: str) -> str:
    """`text` with the first match of the pattern replaced; something must change."""
    out, count = re.subn(old, new, text, count=1, flags=re.S | re.M)
    if not count or out == text:
        raise LookupError(f"nothing matches {old!r}")
    return out


def edit(name: str, *pairs: tuple[str, str]) -> Callable[[Path], None]:
    """Replaces in the one file that the pattern `name` finds."""

    def change(folder: Path) -> None:
        path = found(folder, name)
        text = path.read_text()
        for old, new in pairs:
            text = replaced(text, old, new)
        path.write_text(text)

    return change


def found(folder: Path, name: str) -> Path:
    paths = sorted(folder.glob(name))
    if len(paths) != 1:
        raise LookupError(f"{name}: {len(paths)} files")
    return paths[0]


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: found(folder, name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text)


def copied(source: str, name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(found(folder, source), folder / name)


def told(change: Callable[[dict], None]) -> Callable[[Path], None]:
    """Changes package.json as an object."""

    def apply(folder: Path) -> None:
        path = folder / MANIFEST
        items = json.loads(path.read_text())
        change(items)
        path.write_text(json.dumps(items))

    return apply


def zipped(change: Callable[[dict[str, bytes]], None]) -> Callable[[Path], None]:
    """Changes the entries of the .xo."""

    def apply(folder: Path) -> None:
        with zipfile.ZipFile(folder / XO) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        change(entries)
        with zipfile.ZipFile(folder / XO, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)

    return apply


def entry(suffix: str, old: str, new: str) -> Callable[[Path], None]:
    def change(entries: dict[str, bytes]) -> None:
        name = next(name for name in entries if name.endswith(suffix))
        entries[name] = replaced(entries[name].decode(), old, new).encode()

    return zipped(change)


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply
