"""What is shown on a terminal: text of a user's files stands as it is, neither as markup nor as control characters."""

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from hotrail.boundary import plain

__all__ = ["console", "say"]


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


def say(text: str) -> None:
    """A line on stdout."""
    click.echo(plain(text))
