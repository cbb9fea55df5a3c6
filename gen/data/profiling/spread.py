"""Profiles a log by its parts on Dask: on this machine, or on the workers of a scheduler's address.

Parts are counted wherever there is room, and merged in pairs; the result is that of one process, bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import add, itemgetter
from typing import Any

from gen.base.extras import extra
from gen.data.logs.log import Log, Problems
from gen.data.profile import Profile
from gen.data.profiling.co_access import Places, extras, looked
from gen.data.profiling.stream import count, finished, shares, with_rows

Say = Callable[[int, int], None]


@contextmanager
def cluster(scheduler: str | None = None, *, workers: int = 2, wait_s: float = 10) -> Iterator[Any]:
    """A Dask client: of the scheduler at this address, else of so many processes here.

    Raises      ValueError: no scheduler answers there within wait_s
    """
    with extra("A Dask cluster"):
        from distributed import Client, LocalCluster

    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=wait_s)
        except (OSError, ValueError) as error:
            raise ValueError(f"no Dask scheduler answers at {scheduler}: {error}") from None
        with client:
            yield client
        return
    with (LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as local,
          Client(local) as client):
        yield client


def profile(client: Any, log: Log, *, sample: float = 1.0, rows: Mapping[str, int] | None = None,
            say: Say | None = None) -> Profile:
    """As gen.data.profiling.profile. say: told how many parts are done, and of how many."""
    counted = _over(client, log, partial(count, ends=shares(sample)), add, say)
    return with_rows(replace(finished(counted, sample), source=log.source), rows)


def together(client: Any, log: Log, found: Profile, *, row_bytes: Mapping[str, int], sample: float = 1.0,
             say: Say | None = None) -> Profile:
    """As gen.data.profiling.together."""
    places = Places.of(found, row_bytes)
    held = client.scatter((found, places), broadcast=True)
    passed = _over(client, log, partial(_looked, sample=sample), add, say, held)
    return replace(found, extras={**found.extras, **extras(found, places, passed)})


def _looked(log: Log, held: tuple[Profile, Places], sample: float) -> Any:
    return looked(log, held[0], held[1], sample)


def _over(client: Any, log: Log, each: Callable[..., Any], join: Callable[[Any, Any], Any], say: Say | None,
          *held: Any) -> Any:
    """`each` of all parts, joined in pairs of neighbours. What the workers found broken becomes the log's problems."""
    from distributed import as_completed

    # A part's bytes on disk or in memory go to one worker, once.
    parts = log.parts()
    read = [client.submit(_read, each, part, *held, pure=False) for part in parts]
    tree = [client.submit(itemgetter(0), future, pure=False) for future in read]
    problems = [client.submit(itemgetter(1), future, pure=False) for future in read]
    del read        # or the workers keep what has been joined
    while len(tree) > 1:
        pairs = [client.submit(join, *tree[at:at + 2], pure=False) for at in range(0, len(tree) - 1, 2)]
        tree = pairs + tree[2 * len(pairs):]
    for done, _ in enumerate(as_completed(problems), start=1):
        if say:
            say(done, len(parts))
    result = tree[0].result()
    for part, found in zip(parts, client.gather(problems)):
        part.problems.take(found)
    return result


def _read(each: Callable[..., Any], part: Log, *held: Any) -> tuple[Any, Problems]:
    return each(part, *held), part.problems
