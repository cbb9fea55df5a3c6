"""Converted modules, kept on disk by what they were made of.

Amaranth takes seconds for a core, most of them for parts that other cores, kernels and benches have as well. A record
holds the Verilog of one module and says which modules it places, so a core is put together of what was converted for
any of them. Only the project's own units are kept: their sources are part of the label, their `key()` names all else.
"""

import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gen.base import kept
from gen.base.tools import build_folder

ROOT = Path(__file__).resolve().parents[2]
FOLDER = build_folder() / "sim" / "conversions"
# Module and class, key, module's name in the Verilog, whether it is a part, whether it keeps names, what is added.
Label = list[Any]


@cache
def _sources() -> str:
    """A digest of everything that a conversion depends on besides the component's parameters."""
    digest = hashlib.sha256()
    own = [Path(__file__).with_name(f"{name}.py") for name in ("conversions", "texts", "verilog")]
    for file in [*sorted((ROOT / "hw").rglob("*.py")), *own]:
        digest.update(file.read_bytes())
    digest.update(f"{version('amaranth')} {version('pyosys')}".encode())
    return digest.hexdigest()


def label(component: Any, name: str, *, part: bool, names: bool, added: str = "") -> Label | None:
    """None for what is not the project's own or has no `key()`."""
    kind = type(component)
    if not kind.__module__.startswith("hw.") or not callable(getattr(component, "key", None)):
        return None
    return [kind.__module__, kind.__qualname__, component.key(), name, part, names, added]


def _path(what: Label) -> Path:
    return FOLDER / hashlib.sha256(json.dumps([*what, _sources()]).encode()).hexdigest()[:24]


def closure(what: Label | None) -> dict[str, dict[str, Any]] | None:
    """The records of a module and of all below it, by module; None if one is missing. A record has `key`, `text`,
    `uses` (places by module) and `parts` (labels)."""
    records: dict[str, dict[str, Any]] = {}
    todo = [what]
    while todo:
        one = todo.pop()
        record = None if one is None else kept.read(_path(one))
        if record is None:
            return None
        records[record["name"]] = record
        todo += [part for name, part in record["parts"].items() if name not in records]
    return records


def keep(what: Label | None, record: dict[str, Any]) -> None:
    """Writes the record of a module, where it is one that is kept."""
    if what is not None:
        kept.write(_path(what), record)
