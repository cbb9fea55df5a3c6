"""Several threads at one object: one after the other."""

import threading
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Any, Generic, TypeVar, cast

__all__ = ["Turns", "exclusive"]

Call = TypeVar("Call", bound=Callable[..., Any])
Item = TypeVar("Item")


def exclusive(call: Call) -> Call:
    """A method of an object with a re-entrant `lock`, which it holds: of several threads one after the other."""
    @wraps(call)
    def held(self: Any, *arguments: Any, **named: Any) -> Any:
        with self.lock:
            return call(self, *arguments, **named)

    return cast(Call, held)


class Turns(Generic[Item]):
    """An iterator that several threads may take from, as workers of one queue: every item goes to one of them. An item
    is made when it is asked for, so nothing piles up."""

    def __init__(self, items: Generator[Item, None, None]):
        self.lock = threading.RLock()
        self._items = items

    def __iter__(self) -> Iterator[Item]:
        return self

    @exclusive
    def __next__(self) -> Item:
        return next(self._items)

    @exclusive
    def close(self) -> None:
        """No item is made any more."""
        self._items.close()
