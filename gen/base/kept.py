"""What takes long to make, kept in files for the next time and checked when it is taken from there.

A folder's stamp, built.json, names the files that are taken from the folder with their SHA-256. It is written last and
in one step: what was interrupted has none, and what was cut or changed afterwards does not match it. Either is made
again, and so is a file of `remembered` that does not match the digest in its first line. Nothing here removes what
nobody asks for any more: `make clean` does, and anybody may at any time.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gen.base.sealed import seal, unseal

STAMP = "built.json"
KIND, VERSION = "build", 1


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staged.write_bytes(data)
        os.replace(staged, path)
    finally:
        with suppress(OSError):
            staged.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Several processes may want the same: the first makes it, the others wait. Where no lock can be written nothing
    can be made either, so none is needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError:
        yield
        return
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def stamp(folder: Path, files: Iterable[str], about: Mapping[str, Any]) -> None:
    """Says that these files of a folder are whole, and what else there is to say about them."""
    content = {**about, "files": {file: digest(folder / file) for file in files}}
    replace(folder / STAMP, seal(KIND, VERSION, content))


def stamped(folder: Path) -> dict[str, Any] | None:
    """What the stamp says; None without one, and where it or one of its files is not what was written."""
    try:
        content = unseal(KIND, VERSION, (folder / STAMP).read_bytes(), str(folder))
        whole = all(digest(folder / file) == wanted for file, wanted in content["files"].items())
    except (OSError, ValueError):
        return None
    return content if whole else None


def read(path: Path) -> Any:
    """What `write` wrote to a file; None without one, and where it is not what was written."""
    try:
        checksum, _, text = path.read_bytes().partition(b"\n")
        return json.loads(text) if checksum.decode() == hashlib.sha256(text).hexdigest() else None
    except (OSError, ValueError):
        return None


def put(path: Path, value: Any) -> None:
    """Writes anything that JSON takes, but None. Raises OSError"""
    text = json.dumps(value).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def write(path: Path, value: Any) -> None:
    """As `put`, but a file that cannot be written costs the next one its time and nothing else."""
    with suppress(OSError):
        put(path, value)


def remembered(path: Path, make: Callable[[], Any]) -> Any:
    """What `make` returns: from the file, or made and written there."""
    value = read(path)
    if value is None:
        write(path, value := make())
    return value
