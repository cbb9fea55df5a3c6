"""Mutations of the RTL: one change to the text of a unit, made in a copy of the sources, that its benches must find.

A table a unit, beside this file, lists them; test_mutants.py tries all. A new one is a line of its table: first see
that the benches do not find it, then write the testpoint that does.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("hw", "golden", "gen", "verif", "fpga/card/cpp", "tests/mutants", "tests/support")
# What a bench that fails says (verif.bench.runner), an assertion in the RTL included; a mutation that does not
# elaborate is not found by anybody, and one that runs on until it is stopped is not found either.
FOUND = re.compile(r"failed \(seed \d+|it does not hold that")
HANGS = re.compile(r"did not end within")
SIMULATION_S = 120      # of processor time: longer than any sound simulation of these benches


@dataclass(frozen=True)
class Mutant:
    """why: what is wrong with it, in a few words; old: a text that occurs once in the unit's file; new: what stands
    there instead."""

    why: str
    old: str
    new: str


@dataclass(frozen=True)
class Unit:
    """file: of the mutated unit; benches: what pytest is given to try it, once with every mutation."""

    file: str
    benches: tuple[str, ...]
    mutants: tuple[Mutant, ...]


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
        # Mutants are tried by whole benches.
        self._env |= {"HOTRAIL_BUILD": str(folder / "build"), "HOTRAIL_TURNS": "all", "PYTHONDONTWRITEBYTECODE": "1",
                      "HOTRAIL_SIMULATION_S": str(SIMULATION_S)}
        if all_shapes:
            self._env |= {"HOTRAIL_REGRESS": "1"}

    def run(self, benches: tuple[str, ...], *, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and output of the benches, up to the first failure. env: of the run besides."""
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-m", "not regress", "--tb=line",
                   *benches]
        done = subprocess.run(command, cwd=self.folder, env=self._env | dict(env or {}), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def found(self, unit: Unit, mutant: Mutant) -> tuple[bool, str]:
        """Whether a bench of the unit fails with the mutation, and what was said; the copy is as before afterwards.

        Raises      TimeoutError: a simulation had to be stopped
        """
        path = self.folder / unit.file
        sound = path.read_text("utf-8")
        _replace(path, mutant.old, mutant.new)
        try:
            code, output = self.run(unit.benches)
        finally:
            path.write_text(sound, "utf-8")
        if HANGS.search(output):
            raise TimeoutError(f"{unit.file}: {mutant.why}: a simulation hangs; a bench must notice\n{output[-3000:]}")
        return code == 1 and FOUND.search(output) is not None, output


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    if text.count(old) != 1 or old == new:
        raise LookupError(f"{path.name}: {old!r} occurs {text.count(old)} times, not once, or does not change")
    path.write_text(text.replace(old, new), "utf-8")
