"""The model that a log seems to be of, where none is given."""

from gen.data.logs.trace import are_rows
from gen.data.profile import Profile
from gen.data.profiling.held import tail_of
from gen.model.recommender import Recommender, TableSpec

__all__ = ["model_of"]


def model_of(profile: Profile, dim: int, batch: int) -> tuple[Recommender, tuple[str, ...]]:
    """A model of the profile's tables without a network, and sentences that say what was assumed.

    Ids that are no rows, or that are not all known as a part of the samples was looked at, are a vocabulary: a row for
    each, and one more for all that are met later and were not counted.
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
    notes = [f"no model was given: {len(tables)} tables with the rows that the log has, of {dim} values, without a "
             f"network, in batches of {batch:,} samples"]
    if profile.sampled < 1:
        notes.append(f"rows are those of {profile.sampled:.3g} of the samples; a model says how many there really are")
    if known:
        notes.append(f"ids are numbered as they ascend, others share one row behind them, in {', '.join(known[:8])}"
                     + (f" and {len(known) - 8} more" if len(known) > 8 else ""))
    return Recommender("log", profile.source, tables, None, batch), tuple(notes)
