"""A profile from what holds counts already: a saved profile, published statistics."""

import os
import re
import zipfile
from pathlib import Path

from gen.profile import HEADER, Profile
from gen.profiling.criteo import criteo
from gen.profiling.mels import mels

__all__ = ["statistics_of"]

MELS = re.compile(r"mels(20\d\d)")
STATISTICS = "mels_stats/locality_stats_{}.txt"     # in the folder of HOTRAIL_DATA


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
