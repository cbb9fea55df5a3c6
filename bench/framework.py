"""Registers benches, runs them, and shows their rows as a table and as build/bench.json.

A bench is a function in a module of this package, marked with `@bench("tt")`, that yields `Row`s. A row's id
is stable: other pages quote figures by it. Rows that were measured before stay in bench.json until they are
measured again, so a single bench can be repeated.
"""

import importlib
import json
import pkgutil
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gen.base.staging import staged
from gen.base.tools import build_folder

ROOT = Path(__file__).parents[1]
PEERS = ("libcachesim", "polars")      # packages that only developers install
#: How to install others, without which a bench that names them is left out.
EXTRAS = {"torch": "'hotrail[torch]'", "fbgemm_gpu": "fbgemm-gpu-cpu", "xls": "'hotrail[xls]'"}


@dataclass(frozen=True)
class Row:
    """One figure. `target` is text such as ">= 99" or empty; `met` is None when there is no target. commit, date and
    processor: of the run that measured it, "" where they are not known."""

    id: str
    what: str
    value: Any
    unit: str
    target: str = ""
    met: bool | None = None
    bench: str = ""
    commit: str = ""
    date: str = ""
    processor: str = ""


class LeftOut(Exception):
    """A bench that cannot be measured here; the text says what it needs."""


@dataclass(frozen=True)
class Bench:
    name: str
    about: str
    rows: Callable[[], Iterable[Row]]
    needs: str = ""


_BENCHES: dict[str, Bench] = {}
# What is undone when the bench under way ends.
_UNDONE = ExitStack()


def bench(name: str, *, needs: str = "") -> Callable[[Callable[[], Iterable[Row]]], Callable[[], Iterable[Row]]]:
    """Registers a function as the bench `name`; the first line of its docstring says what it measures. needs: one of
    EXTRAS, without which it is left out."""

    def register(function: Callable[[], Iterable[Row]]) -> Callable[[], Iterable[Row]]:
        known = _BENCHES.get(name)
        if known is not None and known.rows.__module__ != function.__module__:
            raise ValueError(
                f"two benches are called {name}: {known.rows.__module__} and {function.__module__}"
            )
        about = (function.__doc__ or "").strip().splitlines()
        if not about:
            raise ValueError(f"bench {name} needs a docstring that says what it measures")
        _BENCHES[name] = Bench(name, about[0], function, needs)
        return function

    return register


def figure(id: str, what: str, value: Any, unit: str) -> Row:
    """A figure without a target."""
    return Row(id, what, value, unit)


def at_least(id: str, what: str, value: float, unit: str, target: float) -> Row:
    """A figure that must not be below its target."""
    return Row(id, what, value, unit, f">= {target:,g}", value >= target)


def at_most(id: str, what: str, value: float, unit: str, target: float) -> Row:
    """A figure that must not be above its target."""
    return Row(id, what, value, unit, f"<= {target:,g}", value <= target)


def one_thread() -> None:
    """PyTorch on one thread, until the bench under way ends."""
    import torch

    _UNDONE.callback(torch.set_num_threads, torch.get_num_threads())
    torch.set_num_threads(1)


def provenance() -> tuple[str, str, str]:
    """Commit ("+" behind it: with changes), date in UTC and processor of a run that begins now, on this machine."""
    try:
        commit = subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    cpu = Path("/proc/cpuinfo")
    named = re.search(r"(?m)^model name\s*: (.*)$", cpu.read_text("utf-8")) if cpu.exists() else None
    return commit, datetime.now(UTC).date().isoformat(), named[1] if named else platform.processor()


def registered() -> list[Bench]:
    """All benches, in the order of their modules' names."""
    import bench as package

    for item in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        if item not in ("framework", "page", "__main__"):
            importlib.import_module(f"bench.{item}")
    return list(_BENCHES.values())


def _measure(item: Bench, echo: Callable[[str], None]) -> Iterator[Row]:
    start = time.monotonic()
    echo(f"{item.name}: {item.about}")
    if item.needs and find_spec(item.needs) is None:
        raise LeftOut(f"needs the package {item.needs}: pip install {EXTRAS[item.needs]}")
    count = 0
    try:
        for row in item.rows():
            count += 1
            yield row
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        raise LeftOut(f"it needs the package {error.name}, which `make bench` installs with others that benches "
                      "compare with") from None
    finally:
        _UNDONE.close()
    echo(f"{item.name}: {count} figures in {time.monotonic() - start:.0f} s")


def run(only: Iterable[str] = (), path: Path | None = None, echo: Callable[[str], None] = print) -> list[Row]:
    """Runs the benches (all, or those named) and writes their rows; returns what is in the file afterwards.

    Raises      ValueError: an unknown bench, or two rows with one id. A bench that fails ends the run; the
                rows of those before it are written.
    """
    known = {item.name: item for item in registered()}
    chosen = list(only) or list(known)
    for name in chosen:
        if name not in known:
            raise ValueError(f"there is no bench {name!r}; there are {', '.join(known) or 'none'}")
    path = path or build_folder() / "bench.json"
    rows: dict[str, Row] = {}
    if only and path.exists():
        rows = {row["id"]: Row(**row) for row in json.loads(path.read_text("utf-8"))}
    new: set[str] = set()
    commit, date, processor = provenance()
    try:
        for name in chosen:
            own = {id for id, row in rows.items() if row.bench == name}
            try:
                for row in _measure(known[name], echo):
                    if row.id in new:
                        raise ValueError(f"bench {name} gives a second row {row.id}")
                    new.add(row.id)
                    rows[row.id] = replace(row, bench=name, commit=commit, date=date, processor=processor)
            except LeftOut as missing:
                echo(f"{name}: left out: {missing}")
                continue
            for id in own - new:    # what it measures no more
                del rows[id]
    finally:
        with staged(path) as half:
            half.write_text(json.dumps([_plain(row) for row in rows.values()], indent=1) + "\n", "utf-8")
    return list(rows.values())


def _plain(row: Row) -> dict[str, Any]:
    """A row as JSON holds it: NumPy's scalars become Python's."""

    def simple(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else value

    return {key: simple(value) for key, value in asdict(row).items()}


def show(rows: Iterable[Row]) -> None:
    """The rows as a table on the terminal, with what is missed at the end."""
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(box=None, pad_edge=False)
    for name, side in (
        ("id", "left"),
        ("what", "left"),
        ("value", "right"),
        ("unit", "left"),
        ("target", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        mark = {True: "[green]met[/]", False: "[red]MISSED[/]", None: ""}[
            None if row.met is None else bool(row.met)
        ]
        table.add_row(row.id, row.what, number(row.value), row.unit, row.target, mark)
    console = Console(width=None if Console().is_terminal else 140)
    console.print(table)
    targets = [row for row in rows if row.met is not None]
    missed = [row.id for row in targets if not row.met]
    console.print(
        f"{len(targets) - len(missed)} of {len(targets)} targets met"
        + (f"; missed: {', '.join(missed)}" if missed else ""),
        highlight=False,
    )


def number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def with_unit(row: Row) -> str:
    return f"{number(row.value)} {row.unit}".strip()


def joined(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def values(rows: Sequence[Row]) -> str:
    """The values of rows that stand together, with their unit once where it is one."""
    if len({row.unit for row in rows}) > 1:
        return joined([with_unit(row) for row in rows])
    return f"{joined([number(row.value) for row in rows])} {rows[0].unit}".strip()


def shortened(ids: Sequence[str]) -> str:
    """The first id whole, of the others what comes after the parts that they share with it."""
    first = ids[0].split(".")
    shown = [f"`{ids[0]}`"]
    for id in ids[1:]:
        parts = id.split(".")
        same = next((k for k, (a, b) in enumerate(zip(first, parts, strict=False)) if a != b),
                    min(len(first), len(parts)))
        shown.append(f"`.{'.'.join(parts[same:])}`" if same else f"`{id}`")
    return ", ".join(shown)
