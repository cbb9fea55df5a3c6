"""A profile from what holds counts already: a saved profile, published statistics."""

import os
import zipfile
from contextlib import suppress
from pathlib import Path

from gen.base.tools import data_path
from gen.data.logs.bounds import archive, readable
from gen.data.logs.dialect import first_lines, is_json_lines
from gen.data.profile import HEADER, Profile
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import mels

STATISTICS_BYTES = 1 << 24
#: By the names that a user gives, files in the folder of HOTRAIL_DATA.
STATISTICS = {"criteo_kaggle": "criteo_kaggle_calibration.json",
              **{f"mels{year}": f"mels_stats/locality_stats_{year}.txt" for year in (2021, 2022)}}


def statistics_of(log: str | Path) -> Profile | None:
    """log: a saved profile (.npz); a name in STATISTICS, or a file of such (locality_stats_*.txt; a calibration,
    .json). None: it is none of these.

    Raises      ValueError: a file of these that is damaged or not there
    """
    path = Path(log)
    if (file := STATISTICS.get(str(log))) and not path.exists():
        if (found := data_path(file)) is None:
            folder = os.environ.get("HOTRAIL_DATA")
            raise ValueError(f"{log}: its statistics, {file}, are looked for in the folder that HOTRAIL_DATA names" + (
                f", {folder}, and are not there" if folder else
                "; without them, your own log or movielens, which is fetched, says how often rows are accessed"))
        path = found
    with readable(path):
        if path.name.startswith("locality_stats") and path.suffix == ".txt":
            return mels(_short(path))
        if path.suffix == ".json" and not _is_json_lines(path):
            return criteo(_short(path))
        return Profile.load(path) if _is_profile(path) else None


def _short(path: Path) -> Path:
    """Raises ValueError: a file that is longer than statistics are"""
    if path.is_file() and path.stat().st_size > STATISTICS_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; statistics have at most {STATISTICS_BYTES:,}")
    return path


def _is_json_lines(path: Path) -> bool:
    """Whether it is a log."""
    with suppress(ValueError):      # a line that is too long
        return is_json_lines(first_lines(path))
    return False


def _is_profile(path: Path) -> bool:
    """Whether it is an archive that says so itself."""
    if path.suffix != ".npz" or not zipfile.is_zipfile(path):
        return False
    with archive(path) as found:
        return HEADER in found.namelist()
