"""How a command's log is read: the options, the same for every command, and what is known of the log afterwards."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

_OPTIONS = (
    click.option("--format", "kind", help="The log's format [detected from its ending and first line]."),
    click.option("--table", multiple=True, metavar="COLUMN",
                 help="A column of ids to look up; may be given several times [all, or the model's]."),
    click.option("--missing", type=int, metavar="ID",
                 help="The id that an empty id stands for, such as 0 or -1 [its line is broken]."),
    click.option("--separator", metavar="SIGN",
                 help="What separates a text's fields: comma, tab, semicolon, pipe, space or another character "
                      "[detected]."),
    click.option("--fields", metavar="NAMES",
                 help="Names of the fields, comma-separated, of a text without a header line."),
    click.option("--list", "lists", multiple=True, metavar="[COLUMN=]SIGN",
                 help="What separates the ids of a cell, as --separator, or none; may be given several times "
                      "[detected where nothing else fits]."),
    click.option("--no-quotes", is_flag=True, help="Double quotes around a text's fields are part of them."),
    click.option("--order-by", metavar="COLUMN",
                 help="Puts the samples in the order of this column, as of time [as they come]."),
)

class Count(click.IntRange):
    """A whole number up to 10^12, so that what is estimated from it stays finite."""

    name = "whole number"

    def __init__(self, least: int = 1):
        super().__init__(least, 10**12)


class Number(click.FloatRange):
    """A number in a range up to 10^12, which `nan` and `inf` are not."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        if found > 10**12:
            self.fail(f"{value} is more than 10^12.", param, ctx)
        return found


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the options of reading a log, which it gets as `how`, fields of gen.model.log_options.LogOptions,
    and `table`."""
    @wraps(command)
    def gathered(*args: Any, kind: str | None, missing: int | None, separator: str | None, fields: str | None,
                 lists: tuple[str, ...], no_quotes: bool, order_by: str | None, **rest: Any) -> Any:
        names = tuple(name.strip() for name in fields.split(",")) if fields else ()
        how = {"format": kind, "missing": missing, "separator": separator, "fields": names, "lists": lists,
               "quotes": False if no_quotes else None, "order_by": order_by}
        return command(*args, how=how, **rest)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


class Readings:
    """How the command's log was understood, None of what holds counts; called with it."""

    def __init__(self) -> None:
        self.log: Any = None

    def __call__(self, reading: Any) -> None:
        self.log = reading
