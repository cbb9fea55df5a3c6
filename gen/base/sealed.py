"""JSON files that say what they are, of which version, and whether a byte of them has changed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

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
        header = [content.pop(key) for key in KEYS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{where} is no {kind} of hotrail, or damaged") from None
    if header[0] != kind:
        raise ValueError(f"{where} is no {kind} of hotrail but a {header[0]!r}")
    if header[1] != version:
        raise ValueError(f"{where} is a {kind} of version {header[1]}; this hotrail reads version {version}")
    try:
        whole = seal(kind, version, content) == data
    except (ValueError, RecursionError):    # numbers and depths that are never written
        whole = False
    if not whole:
        raise ValueError(f"{where} is damaged: its content does not have the SHA-256 that it carries")
    return content


@contextmanager
def understood(kind: str, where: str | Path) -> Iterator[None]:
    """Around what is made of an unsealed content: a key that it lacks, a value of another kind, or one that does not
    fit what else is there, is one sentence.

    Raises      ValueError: that sentence
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        if isinstance(error, ValueError) and str(where) in str(error):
            raise
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


def made(hint: Any, value: Any, where: str = "") -> Any:
    """What a value of JSON stands for, by the type that it must have: dataclasses, mappings, tuples, unions with None,
    text, numbers and booleans.

    Raises      TypeError: it is of another kind; names the key. KeyError: a field is missing
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (kind,) = [each for each in inner if each is not type(None)]
        return None if value is None else made(kind, value, where)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        hints, known = get_type_hints(hint), {each.name: each for each in fields(hint)}
        if unknown := [key for key in value if key not in known]:
            raise TypeError(f"{where} has {unknown[0]!r}, which is not known")
        return hint(**{key: made(hints[key], value[key], f"{where}.{key}".lstrip(".")) for key in known})
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        # JSON's keys are texts.
        return {inner[0](key): made(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    if origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        if len(kinds) == len(value):
            return tuple(made(kind, each, f"{where}[{at}]") for at, (kind, each) in enumerate(zip(kinds, value)))
    if type(value) in (int, float) and not -(1 << 64) < value < 1 << 64:
        raise TypeError(f"{where} is {str(value)[:30]}, which is more than 64 bits hold")
    if hint is float and type(value) is int:
        return value
    if hint not in (int, float, str, bool) or type(value) is not hint:
        raise TypeError(f"{where} is {value!r}, which is no {getattr(hint, '__name__', hint)}")
    return value


def _text(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
