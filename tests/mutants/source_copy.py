"""A copy of the sources in which units are mutated and their benches run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("hw", "golden", "gen", "verif", "fpga/card/cpp", "tests/mutants", "tests/support")
LIMIT_S = 2400      # longer than a simulation is given, so that whoever hangs says so


class Copy:
    """Sources in a folder of their own, with models that no other run shares; tried with seed 1 in all shapes, or in
    those of `make test`. fresh: else it has been made before."""

    def __init__(self, folder: Path, *, all_shapes: bool = True, fresh: bool = True):
        self.folder = folder
        if fresh:
            for name in COPIED:
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in ("conftest.py", "pyproject.toml"):
                shutil.copy(ROOT / name, folder / name)
        self._env = {name: value for name, value in os.environ.items()
                     if not name.startswith(("HOTRAIL_", "PYTEST_", "COCOTB_"))}
        # A file that changes twice a second must not be taken from a cache of compiled ones.
        self._env |= {"HOTRAIL_BUILD": str(folder / "build"), "PYTHONDONTWRITEBYTECODE": "1"}
        if all_shapes:
            self._env |= {"HOTRAIL_REGRESS": "1"}

    def run(self, benches: tuple[str, ...], *, limit_s: float | None = LIMIT_S,
            env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and output of the benches, up to the first failure. env: of the run besides.

        Raises      subprocess.TimeoutExpired: they take longer than `limit_s`
        """
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-m", "not regress", "--tb=line",
                   *benches]
        done = subprocess.run(command, cwd=self.folder, env=self._env | dict(env or {}), capture_output=True, text=True,
                              timeout=limit_s)
        return done.returncode, done.stdout + done.stderr
