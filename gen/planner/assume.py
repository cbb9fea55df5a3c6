"""The model that a log seems to be of, where none is given, and the file of it."""

import json
import re

from gen.data.logs.trace import are_rows
from gen.data.profile import Profile
from gen.data.profiling.held import tail_of
from gen.model.recommender import Recommender, TableSpec

#: What a file says of ids, by their policy.
IDS = {"index": "an id of the log is a row's number", "vocabulary": "a row for each id, as they ascend, one for others"}
BARE, CONTROL = re.compile(r"[A-Za-z0-9_-]+"), re.compile(r"[\x00-\x1f\x7f]+")


def model_of(profile: Profile, dim: int, batch: int) -> tuple[Recommender, tuple[str, ...]]:
    """A model of the profile's tables without a network, and sentences that say what was assumed.

    Ids that are no rows, or that are not all known as a part of the samples was looked at, are a vocabulary: a row for
    each, and one more for all that are met later and were not counted.

    Raises      ValueError: dim is more than a row can have
    """
    tables, known, tail = {}, [], tail_of(profile)
    for name, table in profile.tables.items():
        rows, ids = max(table.rows, 1), "index"
        if table.ids is not None and len(table.ids):
            largest = int(table.ids[-1])
            if profile.sampled < 1 or not are_rows(largest, len(table.ids)):
                rows, ids = len(table.ids) + 1, "vocabulary"
                known.append(name)
            else:
                rows = max(rows, largest + 1)
                if tail is not None and (last := tail.tables[name].ids) is not None and len(last):
                    rows = max(rows, int(last[-1]) + 1)     # it is a row of the log, too
        tables[name] = TableSpec(name, rows, dim, ids)
        tables[name].check()
    notes = [f"no model was given: {len(tables)} tables with the rows that the log has, of {dim} values, without a "
             f"network, in batches of {batch:,} samples"]
    if profile.sampled < 1:
        notes.append(f"rows are those of {profile.sampled:.3g} of the samples; a model says how many there really are")
    if known:
        notes.append(f"ids are numbered as they ascend, others share one row behind them, in {', '.join(known[:8])}"
                     + (f" and {len(known) - 8} more" if len(known) > 8 else ""))
    return Recommender("log", profile.source, tables, None, batch), tuple(notes)


def text_of(model: Recommender, profile: Profile, notes: tuple[str, ...]) -> str:
    """A model of model_of as a TOML file that Recommender.load reads. Comments: what was assumed, what the log has."""
    dim = next(iter(model.tables.values())).dim
    said = [f"Of {profile.source}: {profile.samples:,} samples were counted.", *(f"Assumed: {note}." for note in notes)]
    text = [*(f"# {CONTROL.sub(' ', each)}" for each in said),
            f"about = {_quoted(f'tables as {profile.source} has them')}",
            '# network = "n.toml"     # of the MLP cards (gen.model.network); left out: embedding tables alone',
            f"dim = {dim}     # assumed: values per row, which no log says",
            f"batch = {model.batch}     # assumed: samples that are inferred at once"]
    if given := model.log.given():
        text += ["", "[log]     # how it was read"]
        text += [f"{key} = {_value(value)}" for key, value in given.items()]
    for name, spec in model.tables.items():
        table = profile.tables[name]
        key = name if BARE.fullmatch(name) else _quoted(name)
        longest = int(table.bag_lengths.max(initial=0))
        text += ["", f"[tables.{key}]     # {table.heat.touched:,} rows accessed, {table.pooling:.3g} indices per "
                     f"sample ({longest:,} at most)", f"rows = {spec.rows}",
                 f"ids = {_quoted(spec.ids)}     # {IDS[spec.ids]}", f"mode = {_quoted(spec.mode)}     # assumed"]
    return "\n".join(text) + "\n"


def _value(value: bool | int | str | tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
