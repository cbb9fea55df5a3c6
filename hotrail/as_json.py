"""A command's result as one JSON document on stdout, with all that is for people on stderr: the option --json.

    {"kind": "hotrail plan", "version": 1, "hotrail": "0.2.0", "plan": "build/plan/plan.json", "batch_s": 0.0012, ...}

`kind` is the command. `version` counts changes that break readers; a new key does not. Keys end in their unit (_s,
_bytes, _mhz); shares are from 0 to 1; what there is not is null. docs/command.md lists the keys.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

import click

VERSION = 1
_STDOUT, _RESULTS = "hotrail.stdout", "hotrail.results"


def _begin(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    """From here on what a command prints is for people."""
    if value:
        ctx.meta[_STDOUT] = sys.stdout
        ctx.with_resource(redirect_stdout(sys.stderr))


JSON = click.option("--json", is_flag=True, expose_value=False, callback=_begin,
                    help="Prints the result as JSON; all other text goes to stderr.")


def result(**content: Any) -> None:
    """What the running command has found. Of a command that another one calls, under its name."""
    ctx = click.get_current_context()
    ctx.meta.setdefault(_RESULTS, {})[ctx.command.name] = content


@contextmanager
def printed(ctx: click.Context) -> Iterator[None]:
    """Prints the result of the command that runs inside, if it was asked for and found, whatever its exit code."""
    try:
        yield
    except (SystemExit, click.exceptions.Exit):
        _print(ctx)
        raise
    _print(ctx)


def _print(ctx: click.Context) -> None:
    stdout: TextIO | None = ctx.meta.get(_STDOUT)
    found = ctx.meta.get(_RESULTS)
    if stdout is None or not found:
        return
    from importlib.metadata import version

    *others, (name, own) = found.items()        # the last is that of the command itself
    content = {"kind": f"hotrail {name}", "version": VERSION, "hotrail": version("hotrail"), **own, **dict(others)}
    click.echo(json.dumps(plain(content), indent=1, allow_nan=False), file=stdout)


def plain(value: Any) -> Any:
    """As JSON has it: dataclasses by their fields, arrays as lists, paths as texts, no number where there is none."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} has no place in JSON")
