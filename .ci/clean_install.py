#!/usr/bin/env python3
"""hotrail as its users install it: the sdist, the wheel made of it, a fresh environment, every command of a base one.

Usage: .ci/clean_install.py [--keep FOLDER]      with an environment that has setuptools, as `make clean-install` does

The wheel is installed without extras into an environment that has nothing else, not even pip. In an empty folder the
commands from a log to a plan run without a compiler, then those on twins of the cards with one. Ends with code 1 where
a command fails, a compiler is missed without a sentence, or the packages take more than MOST_MB.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MB = 350
MB = 1 << 20
# Of the system, what an installation may have beside Python without having a compiler.
PROGRAMS = ("sh", "env", "uname")
PLANNING = (
    "example",
    "profile clicks.csv --table user --table item",
    "model clicks.csv --table user --table item --out M.toml",
    "plan clicks.csv --model M.toml --cards 2 --out plan",
    "size clicks.csv --model M.toml --qps 100000 --p99-ms 5",
    "compile plan --out bundle",
    "refresh bundle clicks.csv",
    "scars clicks.npz",
)
TWINS = (
    "run bundle clicks.csv --samples 2000 --card twin",
    "demo --log clicks.csv --table user --table item --batch 128 --card twin",
)
NO_COMPILER = "g++ is missing"


def archive(folder: Path) -> Path:
    """The sdist of what git has, changes included."""
    tree = folder / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return built(tree, folder, "build_sdist")


def built(tree: Path, folder: Path, what: str) -> Path:
    """What setuptools makes of a source tree."""
    program = f"from setuptools import build_meta; print(build_meta.{what}({str(folder)!r}))"
    run = subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{what} failed:\n{run.stderr[-2000:]}")
    return folder / run.stdout.split()[-1]


def wheel(sdist: Path, folder: Path) -> Path:
    """The wheel, made of the sdist alone."""
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "source", filter="data")
    tree, = (folder / "source").iterdir()
    return built(tree, folder, "build_wheel")


def environment(file: Path, folder: Path) -> Path:
    """A folder with the wheel's own environment and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q",
                    "--disable-pip-version-check", str(file)], check=True)
    return folder


def size_mb(venv: Path) -> float:
    packages, = venv.glob("lib/python3.*/site-packages")
    return sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file()) / MB


class Desk:
    """An empty folder in which commands run; what failed. path: the variable PATH."""

    def __init__(self, venv: Path, place: Path):
        self.venv, self.place, self.failed = venv, place, 0
        place.mkdir()

    def run(self, command: str, path: str, refused: str = "") -> None:
        """refused: what a command says that must not succeed."""
        begun = time.monotonic()
        unset = ("HOTRAIL_BUILD", "HOTRAIL_DATA", "PYTHONPATH")
        variables = {name: value for name, value in os.environ.items() if name not in unset}
        run = subprocess.run([str(self.venv / "bin" / "hotrail"), *command.split()], cwd=self.place, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**variables, "PATH": path})
        good = refused in run.stdout and run.returncode == 1 if refused else run.returncode == 0
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {time.monotonic() - begun:5.1f} s  hotrail {command}", flush=True)
        if refused or not good:
            print("\n".join(f"     {line}" for line in run.stdout.splitlines()[-12 if not good else -1:]))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="folder for the sdist and the wheel")
    keep = options.parse_args().keep
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist = archive(folder)
        made = wheel(sdist, folder)
        for file in (sdist, made):
            print(f"     {file.name}: {file.stat().st_size / MB:.1f} MB")
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, keep)
        venv = environment(made, folder / "venv")
        taken = size_mb(venv)
        print(f"{'ok  ' if taken <= MOST_MB else 'FAIL'} {taken:.0f} MB of packages, at most {MOST_MB}", flush=True)
        bare = folder / "bare"
        bare.mkdir()
        for program in filter(None, map(shutil.which, PROGRAMS)):
            (bare / Path(program).name).symlink_to(program)
        desk = Desk(venv, folder / "desk")
        for command in PLANNING:
            desk.run(command, str(bare))
        desk.run(TWINS[0], str(bare), refused=NO_COMPILER)
        for command in TWINS:
            desk.run(command, os.environ["PATH"])
        return int(bool(desk.failed) or taken > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
