"""The click logs that figures are drawn from: MovieLens, and those of the folder that HOTRAIL_DATA names."""

import os
from collections.abc import Iterator
from pathlib import Path

from gen.trace import Trace, movielens, read

__all__ = ["CALIBRATION", "path_of", "logs"]

LOGS = ("anime_420k", "msweb", "openbandit_60k")
CALIBRATION = "criteo_kaggle_calibration.json"


def path_of(file: str) -> Path | None:
    """The path of a file in the folder, if it is there."""
    folder = os.environ.get("HOTRAIL_DATA")
    path = Path(folder or "") / file
    return path if folder and path.exists() else None


def logs() -> Iterator[tuple[str, Trace]]:
    """(name, log); those of the folder are left out where they are not there."""
    yield "movielens", movielens()
    for file in LOGS:
        if path := path_of(f"{file}.npz"):
            yield file.split("_")[0], read(path)
