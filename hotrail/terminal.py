"""What is shown on a terminal: text of a user's files stands as it is, neither as markup nor as control characters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hotrail.boundary import plain

GAP = 2     # columns of a terminal between those of a table


class _Plain(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)

    def on_broken_pipe(self) -> None:
        raise       # the boundary's affair


def console(least: int = 0, **options: Any) -> Console:
    """A console without markup. least: columns that tables get where the output is no terminal."""
    options = {"markup": False, "highlight": False, "emoji": False, **options}
    found = _Plain(**options)
    return found if found.is_terminal or found.width >= least else _Plain(width=least, **options)


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar of the bytes that are read; nothing where there is no terminal."""
    shown = console(stderr=True)
    with Progress(TextColumn("log"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=shown,
                  transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("log", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(shown: Console, head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "",
                left: int = 1) -> None:
    """Prints a table whose cells stand whole at every width.

    Heads wrap between words where that makes room. Columns that do not fit beside the others follow below, behind the
    first column once more. Only the first column, which has names, is folded where one takes a third of the line.

    Parameters  left: columns from the first that stand on the left; the others have numbers, on the right
    """
    told = [[plain(cell) for cell in row] for row in rows]
    widest = [max((cell_len(row[number]) for row in told), default=0) for number in range(len(head))]
    widest[0] = min(widest[0], max(10, shown.width // 3))
    whole = [max(width, cell_len(name)) for width, name in zip(widest, head)]
    least = [max(width, *map(cell_len, name.split(" "))) for width, name in zip(widest, head)]
    for number, columns in enumerate(_beside(least, shown.width)):
        fits = sum(whole[k] + GAP for k in columns) <= shown.width + GAP
        part = Table(title=title if not number else None, title_justify="left", box=None, pad_edge=False)
        for k in columns:
            part.add_column(head[k], justify="left" if k < left else "right", overflow="fold",
                            width=(whole if fits else least)[k])
        for row in told:
            part.add_row(*(row[k] for k in columns))
        shown.print(part)


def _beside(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns of each part: the first, and as many of the others as find room beside it."""
    part = [0]
    for number in range(1, len(widths)):
        if len(part) > 1 and sum(widths[k] + GAP for k in part) + widths[number] > room:
            yield part
            part = [0]
        part.append(number)
    yield part


def say(text: str) -> None:
    """A line on stdout."""
    click.echo(plain(text))


def aside(text: str) -> None:
    """A line on stderr: progress of what takes long."""
    click.echo(plain(text), err=True)
