"""JSON files that say what they are, of which version, and whether a byte of them has changed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["seal", "understood", "unseal", "writing"]

KEYS = ("kind", "version", "sha256")


def seal(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    """The file's bytes, the same for the same content: kind, version and SHA-256 of the rest come first.

    Raises      ValueError: a number that JSON does not have, a key that is taken
    """
    for key in KEYS:
        if key in content:
            raise ValueError(f"the key {key!r} is the seal's own")
    body = {"kind": kind, "version": version, "sha256": "", **content}
    return _text({**body, "sha256": hashlib.sha256(_text(body)).hexdigest()})


def unseal(kind: str, version: int, data: bytes, where: str) -> dict[str, Any]:
    """What was sealed. where: the file's name, for the messages.

    Raises      ValueError: another kind of file, another version, a byte that has changed
    """
    try:
        content = json.loads(data.decode())
        found = [content.pop(key) for key in KEYS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{where} is no {kind} of hotrail, or damaged") from None
    if found[0] != kind:
        raise ValueError(f"{where} is no {kind} of hotrail but a {found[0]!r}")
    if found[1] != version:
        raise ValueError(f"{where} is a {kind} of version {found[1]}; this hotrail reads version {version}")
    try:
        whole = seal(kind, version, content) == data
    except (ValueError, RecursionError):    # numbers and depths that are never written
        whole = False
    if not whole:
        raise ValueError(f"{where} is damaged: its content does not have the SHA-256 that it carries")
    return content


@contextmanager
def understood(kind: str, where: str | Path) -> Iterator[None]:
    """Around what is made of an unsealed content: a key that it lacks, or a value of another kind, is one sentence.

    Raises      ValueError: that sentence
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{where} is no {kind} as this hotrail writes them: {what}") from None


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Around what writes a file: a full disk, and whatever else the system refuses, is one sentence.

    Raises      ValueError: that sentence
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from None


def _text(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
