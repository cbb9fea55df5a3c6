"""From a log to a profile on disk: one pass or two, in this process or on Dask."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gen.data.ids import id_text
from gen.data.logs import open_for
from gen.data.logs.columns import by_table
from gen.data.logs.reading import Reading
from gen.data.profile import FILE, Profile
from gen.data.profiling import held, spread, stream
from gen.data.profiling.co_access import together
from gen.data.profiling.sources import statistics_of
from gen.model.log_options import LogOptions
from gen.model.recommender import Recommender


@dataclass(frozen=True)
class Options(LogOptions):
    """Beside how the log is read. logs: files or folders of one log, or one of what gen.data.profiling.sources knows;
    model: whose tables and rows are wanted, None: those that the log has, of `dim` words; together: with the second
    pass; held_back: share of the samples, the log's last, that is counted apart; workers: of a cluster here, 0: none;
    scheduler: its address; tables: columns of ids, without a model, () for those that the reader takes by itself;
    horizon: samples until the next refresh, or with an x behind it a multiple of the log's; None: as the profile has
    it."""

    logs: Sequence[str | Path]
    model: Recommender | None = None
    dim: int = 64
    sample: float = 1.0
    together: bool = False
    held_back: float = 0.0
    workers: int = 0
    scheduler: str | None = None
    tables: Sequence[str] = ()
    horizon: float | str | None = None


def run(options: Options, folder: Path, *, say: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        read: Callable[[Reading], None] = lambda _: None) -> Profile:
    """The profile, written as profile.npz into `folder`, whole or not at all. Raises as `profile_of` does."""
    profile = profile_of(options, say=say, progress=progress, read=read)
    folder.mkdir(parents=True, exist_ok=True)
    profile.save(folder / FILE)
    return profile


def profile_of(options: Options, *, say: Callable[[str], None] = lambda _: None,
               progress: Callable[[int, int], None] = lambda done, total: None,
               read: Callable[[Reading], None] = lambda _: None) -> Profile:
    """say: told how the log was understood, of its lines that are broken, and of columns and tables that are left out;
    read: told the first of these, where a log is read.

    Raises      ValueError: what is missing or does not fit, in one sentence
    """
    model, horizon = options.model, None if options.horizon is None else _horizon(str(options.horizon))
    profile = statistics_of(options.logs[0]) if len(options.logs) == 1 else None
    if profile is None:
        profile = _counted(options, model, say, progress, read)
    elif options.together or options.sample < 1 or options.held_back or options.tables or options.given():
        raise ValueError(f"{options.logs[0]} holds counts already; --together, --sample, --held-back and options of "
                         "how a log is read need the log itself")
    elif model is not None and (left := [name for name in profile.tables if name not in model.tables]):
        say(f"not read   {', '.join(left[:8])}" + (f" and {len(left) - 8} more" if len(left) > 8 else ""))
    if model is not None:
        profile = stream.with_rows(profile, {name: spec.rows for name, spec in model.tables.items()})
        _within(profile, model)
    if horizon is None:
        return profile
    number, multiple = horizon
    return profile.expecting(number if multiple else number * profile.sampled / max(profile.samples, 1))


def _horizon(text: str) -> tuple[float, bool]:
    """(number, whether it is a multiple of the log's samples). Raises ValueError"""
    multiple = text.strip().lower().endswith("x")
    try:
        number = float(text.strip()[:-1] if multiple else text)
    except ValueError:
        number = math.nan
    if not (0 < number if multiple else 1 <= number) or not math.isfinite(number):
        raise ValueError(f"--horizon {text}: must be samples until the next refresh, 1 or more, such as 50000, or a "
                         "multiple of the log's, such as 0.25x")
    return number, multiple


#: Accesses of a table from which on it is odd that no id is there twice.
DISTINCT = 100


def _counted(options: Options, model: Recommender | None, say: Callable[[str], None],
             progress: Callable[[int, int], None], read: Callable[[Reading], None]) -> Profile:
    if options.held_back and (options.workers or options.scheduler):
        raise ValueError("--held-back reads the log in order: leave out --workers and --scheduler")
    log = open_for(options.logs, options, options.tables, model, progress)
    if model is not None:
        log = by_table(log, {name: spec.looked_up_by for name, spec in model.tables.items()})
    row_bytes = {name: 4 * (model.tables[name].dim if model else options.dim) for name in log.tables}
    with ExitStack() as stack:
        count, again = stream.profile, together
        if options.workers or options.scheduler:
            def told(done: int, of: int) -> None:
                progress(log.bytes * done // of, log.bytes)

            client = stack.enter_context(spread.cluster(options.scheduler, workers=options.workers))
            count = partial(spread.profile, client, say=told)
            again = partial(spread.together, client, say=told)
        counted, tail = held.parted(log, options.held_back) if options.held_back else (log, None)
        profile = count(counted, sample=options.sample)
        if tail is not None:
            held_back = held.packed(stream.profile(tail, sample=options.sample))
            profile = replace(profile, extras={**profile.extras, **held_back})
        if options.together:
            profile = again(counted, profile, row_bytes=row_bytes, sample=options.sample)
    if not profile.samples:
        raise ValueError(f"{log.source} has no samples" + (" among those that --sample looks at" if options.sample < 1
                                                           else ""))
    for line in log.report():
        say(line)
    for name, each in profile.tables.items():
        if each.ids is not None and len(each.ids) == each.heat.total >= DISTINCT:
            say(f"note       {name}: no id occurs twice, so no row is worth a faster memory; if it numbers the "
                "samples, --table names the others")
    read(log.reading())
    return profile


def _within(found: Profile, model: Recommender) -> None:
    """ValueError names a table whose ids are past its rows, where ids are rows."""
    for name, spec in model.tables.items():
        for ids in (each.tables[name].ids for each in (found, held.tail_of(found)) if each is not None):
            if spec.ids != "index" or ids is None or not len(ids) or ids[-1] < spec.rows:
                continue
            raise ValueError(f"table {name}: the id {id_text(ids[-1])} is past the model's {spec.rows} rows; ids that "
                             f"are no rows need ids = 'modulo' or 'vocabulary'")
