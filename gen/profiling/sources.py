"""A profile from whatever says what a log is like: the log itself, a saved profile, published statistics."""

import os
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gen.logs import open_log
from gen.profile import HEADER, Profile
from gen.profiling.criteo import criteo
from gen.profiling.mels import mels
from gen.profiling.stream import profile

__all__ = ["profile_of", "statistics_of"]

MELS = re.compile(r"mels(20\d\d)")
STATISTICS = "mels_stats/locality_stats_{}.txt"     # in the folder of HOTRAIL_DATA


def profile_of(log: str | Path, *, tables: Iterable[str] | None = None, sample: float = 1.0,
               progress: Callable[[int, int], None] | None = None,
               say: Callable[[str], None] = lambda _: None) -> Profile:
    """log: as of `statistics_of`, else a click log as gen.logs.open_log reads it, of which these tables and `sample`
    are counted. say: told of its lines that are broken, and columns that are not read.

    Raises      ValueError: it is nothing of these, in the sentence of whoever reads it
    """
    found = statistics_of(log)
    if found is None:
        opened = open_log(log, tables=tables, progress=progress)
        found = profile(opened, sample=sample)
        for line in opened.report():
            say(line)
    return found


def statistics_of(log: str | Path) -> Profile | None:
    """log: a saved profile (.npz); mels2021 or mels2022, or the file of their statistics (locality_stats_*.txt); a
    calibration (.json). None: it is none of these.

    Raises      ValueError: a file of these that is damaged or not there
    """
    path = Path(log)
    if (set_ := MELS.fullmatch(str(log))) and not path.exists():
        folder = os.environ.get("HOTRAIL_DATA")
        path = Path(folder or "") / STATISTICS.format(set_[1])
        if not folder or not path.exists():
            raise ValueError(f"{log}: its statistics, {STATISTICS.format(set_[1])}, are looked for in the folder that "
                             f"HOTRAIL_DATA names" + (f", {folder}, and are not there" if folder else ""))
    if path.name.startswith("locality_stats") and path.suffix == ".txt":
        return mels(path)
    if path.suffix == ".json":
        return criteo(path)
    return Profile.load(path) if _is_profile(path) else None


def _is_profile(path: Path) -> bool:
    """Whether it is an archive that says so itself."""
    if path.suffix != ".npz" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return HEADER in archive.namelist()
