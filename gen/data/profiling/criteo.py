"""Profiles of click logs like Criteo Kaggle's, from a calibration."""

from pathlib import Path

import numpy as np

from gen.data.logs.criteo import ClickLog, Table
from gen.data.profile import Heat, Profile, TableProfile

SINGLY, STRETCHES = 1 << 12, 1 << 13


def criteo(calibration: str | Path, *, samples: int | None = None) -> Profile:
    """What the calibration expects of a log: no drawing, no ids.

    Every row with accesses has at least one, as a table's rows are those that its log names; the others follow the
    knots. Whole numbers: the accesses of all ranks before one are rounded.

    Parameters  calibration: as gen.data.logs.criteo.ClickLog takes it; samples: of the log, else of the
    calibration's own
    Raises      ValueError: a file that is none, fewer samples than a table's rows
    """
    log = ClickLog(calibration, correlated=())
    if samples is None:
        samples = log.samples
        if type(samples) is not int or not 1 <= samples < 1 << 40:
            raise ValueError(f"{calibration} has no n_samples of 1 or more, so say how many samples there are")
    lengths, whole = np.array([1]), np.array([samples])
    tables = {table.name: TableProfile(table.name, table.rows, samples, _expected(table, samples), lengths, whole)
              for table in log.tables}
    return Profile(f"{Path(calibration).name}, expected in {samples:,} samples", samples, tables)


def _expected(table: Table, samples: int) -> Heat:
    accessed = int(table.edges[-1] - 0.5)
    if samples < accessed:
        raise ValueError(f"{table.name} has {accessed:,} rows with accesses, more than the {samples:,} samples")
    # Ranks one by one at first, then in stretches so short that their mean says all.
    edges = np.unique(np.concatenate([np.arange(min(accessed, SINGLY)), np.geomspace(
        min(accessed, SINGLY), accessed, STRETCHES).astype(np.int64), [accessed]]))
    rows = np.diff(edges)
    more = np.maximum(np.diff(table.before(edges)) * samples - rows, 0)
    before = np.concatenate([[0.0], np.cumsum(more)])
    if before[-1]:
        before *= (samples - accessed) / before[-1]
    low, rest = np.divmod(rows + np.diff(np.rint(before).astype(np.int64)), rows)
    return Heat.joined(np.concatenate([low, low + 1]), np.concatenate([rows - rest, rest]))
