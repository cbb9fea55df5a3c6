"""Presets: named TOML files in which every key is set, read into frozen, validated dataclasses.

A preset has one table per core, named as in `gen.rtl.cores.CORES`; the keys of a table are the fields of that
core's configuration. Nothing has a default: what a preset builds is what it says.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gen.rtl.cores import CORES

FOLDER = Path(__file__).parent / "presets"
MOST_BYTES = 1 << 21
# A key of many parts, a.b.c: the parser keeps every beginning of it, so its memory grows with their square.
MOST_PARTS = 8
LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}""")
WORD = 1 << 64      # no number is this large
# A program reads the same few files and classes hundreds of times.
_toml = lru_cache(maxsize=64)(tomllib.loads)
_hints = cache(get_type_hints)


class ConfigError(ValueError):
    """A preset that cannot be used; the message names the file, the key, its value and what is allowed."""


@dataclass(frozen=True)
class Preset:
    """A preset: `about` is its description, `cores` maps a core's name to its configuration object."""

    name: str
    about: str
    cores: Mapping[str, Any]


def names() -> tuple[str, ...]:
    """The presets that come with the project."""
    return stems(FOLDER)


def stems(folder: Path) -> tuple[str, ...]:
    """What can be named of a folder of TOML files."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def read(kind: str, name: str | Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A TOML file and what it says: `name` of `folder`, or the file itself where the name ends in .toml.

    Parameters  kind: what the folder's files describe, for the messages
    Raises      ConfigError: there is no such file, or it is no TOML
    """
    path = Path(name) if str(name).endswith(".toml") else folder / f"{name}.toml"
    if not os.path.isfile(path):    # False as well for a name that no file can have
        if path.parent != folder:
            raise ConfigError(f"there is no file {path} with a {kind}")
        raise ConfigError(f"there is no {kind} {str(name)!r}; there are {', '.join(stems(folder))}, "
                          "or give the path of a .toml file")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path.name}: has {path.stat().st_size:,} bytes; a {kind} has {MOST_BYTES:,} at most")
        text = path.read_text(encoding="utf-8")
        if found := LONG_KEY.search(text):
            line = 1 + text.count("\n", 0, found.start())
            raise ConfigError(f"{path.name}: line {line}: a key has more than {MOST_PARTS} parts")
        return path, deepcopy(_toml(text))
    except OSError as error:
        raise ConfigError(f"{path.name}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path.name}: not valid TOML: nested too deep") from None
    except ConfigError:
        raise
    except ValueError as error:     # tomllib's, UTF-8's, that of a number with thousands of digits
        raise ConfigError(f"{path.name}: not valid TOML: {error}") from None


def merged(kind: str, name: str | Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """As `read`; a file that names another of the folder in `like` has that one's values where it says nothing.

    Raises      ConfigError: there is no such file or no such other, or one is no TOML
    """
    path, table = read(kind, name, folder)
    if "like" in table:
        other = table.pop("like")
        if other not in stems(folder):
            raise ConfigError(f"{path.name}: like = {other!r}: there is no such {kind}; there are "
                              f"{', '.join(stems(folder))}")
        table = _over(read(kind, other, folder)[1], table)
    return path, table


def described(made: type[Any], kind: str, name: Any, folder: Path, *, beside: tuple[str, ...] = ()) -> Any:
    """What a file that `merged` finds describes, `check`ed; its name is the file's. What is one already is handed back.
    beside: tables of the file that describe something else.

    Raises      ConfigError: the file, a table or a key is missing, unknown or impossible
    """
    if isinstance(name, made):
        return name
    path, table = merged(kind, name, folder)
    own = {key: value for key, value in table.items() if key not in beside}
    description = build(made, {"name": path.stem, **own}, f"{path.name}:")
    description.check()
    return description


def load(preset: str | Path, sections: Mapping[str, type] | None = None) -> Preset:
    """Reads a preset by its name, or from a path that ends in .toml.

    Parameters  preset: name or path; sections: table name -> dataclass (default: every core of the project)
    Raises      ConfigError: the file, a table or a key is missing, unknown or impossible
    """
    known = list(CORES if sections is None else sections)
    path, content = read("preset", preset, FOLDER)
    about = content.pop("about", None)
    if not isinstance(about, str) or not about.strip():
        raise ConfigError(
            f"{path.name}: about = {about!r}: must be a sentence that says what the preset is for"
        )
    cores: dict[str, Any] = {}
    for name, table in content.items():
        if name not in known:
            raise ConfigError(
                f"{path.name}: [{name}]: unknown table{_meant(name, known)}; allowed are {', '.join(known)}"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{path.name}: {name} = {table!r}: must be a table [{name}]")
        config = CORES[name].config if sections is None else sections[name]
        cores[name] = build(config, table, f"{path.name}: [{name}]")
    if not cores:
        raise ConfigError(
            f"{path.name}: describes no core; add one of the tables "
            + ", ".join(f"[{name}]" for name in known)
        )
    return Preset(path.stem, about, cores)


def _over(base: dict[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `base`, those of `table` over them."""
    both = {key: _over(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
            for key, value in table.items()}
    return {**base, **both}


def _meant(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f" (meant {close[0]}?)" if close else ""


def build(config: type, table: Mapping[str, Any], where: str) -> Any:
    """An object of the dataclass `config` from a table; `where` begins every message."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {table!r}: must be a table")
    wanted = {item.name: item for item in fields(config)}
    hints = _hints(config)
    unknown = [key for key in table if key not in wanted]
    if unknown:
        raise ConfigError(
            f"{where} {unknown[0]} = {table[unknown[0]]!r}: unknown key{_meant(unknown[0], wanted)}; "
            f"allowed are {', '.join(wanted)}"
        )
    missing = [key for key in wanted if key not in table]
    if missing:
        allowed = wanted[missing[0]].metadata.get("allowed", _kind(hints[missing[0]]))
        raise ConfigError(f"{where} {missing[0]}: missing key; it must be set to {allowed}")
    values = {key: _value(hints[key], table[key], f"{where} {key}") for key in wanted}
    try:
        return config(**values)
    except (ValueError, TypeError) as error:
        text = str(error)
        first = next((key for key in wanted if re.match(rf"{re.escape(key)}\b", text)), None)
        shown = f" {first} = {table[first]!r}:" if first else ""
        raise ConfigError(f"{where}{shown} {text}") from None


def _kind(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"a list of which every item is {_kind(get_args(hint)[0])}"
    if is_dataclass(hint):
        return "a table"
    return {int: "a whole number", str: "a text", bool: "true or false", float: "a number"}.get(
        hint, str(hint)
    )


def _value(hint: Any, value: Any, where: str) -> Any:
    """The value as the field's type wants it: lists become tuples, tables become dataclasses."""
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return build(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if type(value) in (int, float) and not -WORD < value < WORD:        # nor infinite, nor no number
        raise ConfigError(f"{where} = {value!r}: must be {_kind(hint)} of 64 bits at most")
    if hint is float and type(value) is int:
        return float(value)
    if hint in (int, str, bool, float) and type(value) is not hint:
        raise ConfigError(f"{where} = {value!r}: must be {_kind(hint)}")
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} = {value!r}: must be a table")
        return {key: _value(get_args(hint)[1], each, f"{where}.{key}") for key, each in value.items()}
    if get_origin(hint) is tuple or is_dataclass(hint):
        raise ConfigError(f"{where} = {value!r}: must be {_kind(hint)}")
    return value
