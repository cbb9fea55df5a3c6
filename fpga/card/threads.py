"""Several threads at one object: one after the other. A fork waits for its turn too, so that a child has whole objects,
none of which a thread that it does not have holds."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import Any, Generic, TypeVar, cast

Call = TypeVar("Call", bound=Callable[..., Any])
Item = TypeVar("Item")


#: Seconds that a fork waits for calls that are under way.
FORK_S = 60
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held = threading.local()   # `locks` of a thread that forks


def turns() -> Any:
    """A re-entrant lock, for `exclusive`."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _before_fork() -> None:
    """Takes all of them, or none and tries again: calls take several in an order of their own."""
    end, _held.locks = time.monotonic() + FORK_S, []
    while True:
        for each in tuple(_locks):
            if not each.acquire(blocking=False):
                break
            _held.locks.append(each)
        else:
            return
        _after_fork()
        if time.monotonic() > end:
            return
        time.sleep(1e-3)


def _after_fork() -> None:
    while _held.locks:
        _held.locks.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


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
        self.lock = turns()
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
