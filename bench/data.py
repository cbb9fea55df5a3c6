"""The click logs that figures are drawn from: MovieLens, and those of the folder that HOTRAIL_DATA names."""

from collections.abc import Iterator
from pathlib import Path

from bench.framework import LeftOut
from gen.base.tools import data_path
from gen.data.logs import Trace, open_log

LOGS = ("anime_420k", "msweb", "openbandit_60k")
CALIBRATION = "criteo_kaggle_calibration.json"


def needed(file: str) -> Path:
    """The path of a file in the folder. Raises LeftOut: it is not there"""
    if (path := data_path(file)) is None:
        raise LeftOut(f"needs {file} in the folder that HOTRAIL_DATA names")
    return path


def held(path: str | Path) -> Trace:
    """A log as arrays."""
    return Trace.of(open_log(path))


def logs() -> Iterator[tuple[str, Trace]]:
    """(name, log); those of the folder are left out where they are not there."""
    yield "movielens", held("movielens")
    for file in LOGS:
        if path := data_path(f"{file}.npz"):
            yield file.split("_")[0], held(path)
