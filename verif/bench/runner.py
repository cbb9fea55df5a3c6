"""Builds a Verilator model of a component, runs a cocotb module on it and checks that every test ran.

This file alone knows how cocotb and Verilator are started. Models are cached under build/sim by a digest of
their Verilog, the flags and the tools; the parts of Verilator's runtime that do not depend on the design are
compiled once for all models.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gen import verilog
from gen.tools import build_folder, environment, versions
from gen.tools import verilator as find_verilator

__all__ = ["Model", "Result", "build", "simulate", "seeds"]

ROOT = Path(__file__).resolve().parents[2]
CACHE = build_folder() / "sim"
TOP = "dut"
# Warnings are the lint's business (`make lint`); a model is built from what passed there.
QUIET = ("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT")
RUNTIME = (
    "verilated",
    "verilated_vpi",
    "verilated_threads",
    "verilated_random",
    "verilated_fst_c",
    "verilated_dpi",
)


@dataclass(frozen=True)
class Model:
    """A built simulator: `binary` to start, `metadata` as `gen.verilog` gave it, what the build cost."""

    folder: Path
    binary: Path
    metadata: dict[str, Any]
    build_seconds: float
    cached: bool
    waves: bool


@dataclass(frozen=True)
class Result:
    """What a run did. `values` holds what the tests handed out with `verif.bench.report`."""

    tests: tuple[str, ...]
    seconds: float
    seed: int
    values: dict[str, Any]
    model: Model
    waves: Path | None


@cache
def _libpython() -> str:
    if found := os.environ.get("LIBPYTHON_LOC"):
        return found
    from find_libpython import find_libpython

    found = find_libpython()
    if not found:
        raise RuntimeError(
            f"cocotb needs the shared libpython{sysconfig.get_python_version()}, which this Python lacks: "
            f"install the package libpython{sysconfig.get_python_version()} (`make setup` does so as root)"
        )
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Several pytest workers may want the same model: the first builds, the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: list[str], log: Path, cwd: Path) -> None:
    with open(log, "a") as out:
        out.write("$ " + shlex.join(command) + "\n")
        out.flush()
        code = subprocess.run(
            command, cwd=cwd, env=environment(), stdout=out, stderr=subprocess.STDOUT
        ).returncode
    if code:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
        raise RuntimeError(f"building the simulation model failed ({shlex.join(command[:2])} ...):\n{end}")


def _jobs() -> int:
    """Compiler processes: the machine's, shared out among pytest's workers."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)


def build(
    component: Any,
    name: str,
    *,
    waves: bool = False,
    opt: str = "-O1",
    extra_args: tuple[str, ...] = (),
    fresh: bool = False,
) -> Model:
    """The Verilator model of `component`, from the cache when one with the same content was built before.

    Parameters  component: a `wiring.Component`; name: for the folder's name, people read it; waves: build in
                FST; opt: the C++ optimisation of the design's own code; extra_args: further arguments for
                Verilator; fresh: build again what is in the cache, to measure how long it takes
    Raises      RuntimeError: with the end of the tool's log
    """
    texts, metadata = _convert(component, names=waves)
    return build_texts(texts, metadata, name, waves=waves, opt=opt, extra_args=extra_args, fresh=fresh)


@cache
def _sources() -> str:
    """A digest of everything that the conversion of a component depends on besides its parameters."""
    digest = hashlib.sha256()
    for file in sorted([*(ROOT / "hw").rglob("*.py"), ROOT / "gen" / "verilog.py"]):
        digest.update(file.read_bytes())
    digest.update(f"{version('amaranth')} {version('pyosys')}".encode())
    return digest.hexdigest()


def _convert(component: Any, *, names: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """`gen.verilog.convert`, remembered for the project's own units that have a `key()`.

    Amaranth takes seconds for a large unit and benches ask for the same one many times."""
    kind = type(component)
    if not kind.__module__.startswith("hw.") or not callable(getattr(component, "key", None)):
        return verilog.convert(component, TOP, names=names)
    label = json.dumps([kind.__module__, kind.__qualname__, component.key(), names, _sources()])
    path = CACHE / "converted" / f"{hashlib.sha256(label.encode()).hexdigest()[:24]}.json"
    if path.exists():
        texts, metadata = json.loads(path.read_text())
    else:
        texts, metadata = verilog.convert(component, TOP, names=names)
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps([texts, metadata]))
        staged.rename(path)
    component._MustUse__used = True
    return texts, metadata


def build_texts(
    texts: Mapping[str, str],
    metadata: dict[str, Any],
    name: str,
    *,
    waves: bool = False,
    opt: str = "-O1",
    extra_args: tuple[str, ...] = (),
    fresh: bool = False,
) -> Model:
    """As `build`, from Verilog texts; the top module is `metadata["top"]`."""
    top = metadata["top"]
    inputs = _inputs_of_parts(texts)
    flags = [
        "--cc",
        "--exe",
        "--vpi",
        "--prefix",
        "Vtop",
        "-o",
        "sim",
        "--top-module",
        top,
        "-O3",
        "--no-assert",
        "--timescale",
        "1ns/1ps",
        *QUIET,
        *(["--trace-fst"] if waves else []),
        *(["-fno-dfg-scoped", "-fno-table"] if inputs else []),
        *extra_args,
    ]
    digest = hashlib.sha256(
        json.dumps([sorted(texts.items()), flags, opt, versions(), sys.version], sort_keys=True).encode()
    ).hexdigest()[:16]
    folder = CACHE / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest}"
    binary = folder / "obj" / "sim"
    with _locked(CACHE / "locks" / digest):
        stamp = folder / "built.json"
        if stamp.exists() and binary.exists() and not fresh:
            known = json.loads(stamp.read_text())
            return Model(folder, binary, metadata, known["build_seconds"], True, waves)
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "verilog"
        source.mkdir(parents=True)
        start = time.monotonic()
        for file, text in texts.items():
            (source / file).write_text(text)
        # Only the top's ports are visible to cocotb: a model with everything public is up to four times
        # slower.
        (source / "ports.vlt").write_text(
            "`verilator_config\n"
            + "".join(
                f'public_flat_rw -module "{top}" -var "{port}"\n'
                for port in ("clk", "rst", *metadata["ports"])
            )
            + "".join(f'public_flat_rd -module "{part}" -var "{port}"\n' for part, port in inputs)
        )
        _compile(folder, source, flags, sorted(texts), opt)
        seconds = time.monotonic() - start
        stamp.write_text(
            json.dumps({"build_seconds": seconds, "flags": flags, "opt": opt, "tools": versions()})
        )
        return Model(folder, binary, metadata, seconds, False, waves)


def _inputs_of_parts(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(module, input) of every part that is placed many times.

    Verilator writes equal code once for all places of a part, but only if the code is equal: it must read
    its own inputs, not whatever neighbour drives them, and share the names of its temporaries. So these
    inputs are declared visible and the two optimisations that number temporaries over the whole design are
    left out; an array of 512 cells then builds and runs five times faster.
    """
    found = []
    for file, text in sorted(texts.items()):
        if verilog.NO_INLINE in text:
            part = file.removesuffix(".v")
            found += [(part, port) for port in re.findall(r"(?m)^\s*input (?:\[\d+:\d+\] )?(\w+);", text)
                      if port not in ("clk", "rst")]
    return found


def _compile(folder: Path, source: Path, flags: list[str], files: list[str], opt: str) -> None:
    import cocotb_tools.config

    libs, share = Path(cocotb_tools.config.libs_dir), Path(cocotb_tools.config.share_dir)
    binary, _ = find_verilator()
    log = folder / "build.log"
    objects = folder / "obj"
    _run(
        [
            str(binary),
            *flags,
            "--Mdir",
            str(objects),
            "-LDFLAGS",
            f"-Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator",
            str(share / "lib" / "verilator" / "verilator.cpp"),
            "ports.vlt",
            *files,
        ],
        log,
        cwd=source,
    )
    shared = hashlib.sha256(
        json.dumps([versions(), sys.prefix, [f for f in flags if f.startswith("--trace")]]).encode()
    ).hexdigest()[:16]
    runtime = CACHE / f"runtime-{shared}"
    # The wheel's makefile fragment leaves this variable empty; without it g++ does not find the precompiled
    # header.
    make = [
        "make",
        "-C",
        str(objects),
        "-f",
        "Vtop.mk",
        f"OPT_FAST={opt}",
        "OPT_SLOW=-O0",
        "OPT_GLOBAL=-O2",
        "CFG_CXXFLAGS_PCH_I=-include",
        f"-j{_jobs()}",
    ]
    with _locked(CACHE / "locks" / f"runtime-{shared}"):
        if runtime.exists():
            for item in runtime.iterdir():
                shutil.copy(item, objects / item.name)  # newer than its source: make takes it as it is
        else:
            wanted = [
                f"{part}.o"
                for part in RUNTIME
                if re.search(rf"(?m)^\s+{part} \\?$", (objects / "Vtop_classes.mk").read_text())
            ]
            _run([*make, *wanted], log, cwd=folder)
            staged = runtime.with_suffix(".new")
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            for part in wanted:
                shutil.copy(objects / part, staged / part)
            staged.rename(runtime)
    _run(make, log, cwd=folder)


def seeds(count: int = 1) -> list[int]:
    """The seeds to run: HOTRAIL_SEED alone when set, else `count` of them (HOTRAIL_SEEDS multiplies)."""
    if fixed := os.environ.get("HOTRAIL_SEED"):
        return [int(fixed)]
    return list(range(1, 1 + count * int(os.environ.get("HOTRAIL_SEEDS", "1"))))


def _reproduce(test_module: str, seed: int) -> str:
    current = os.environ.get("PYTEST_CURRENT_TEST", "")
    if current:
        # "[...-3]" is pytest's parameter; HOTRAIL_SEED decides about the seed in any case.
        return f"HOTRAIL_SEED={seed} .venv/bin/pytest '{current.rsplit(' ', 1)[0]}'"
    return f"HOTRAIL_SEED={seed} .venv/bin/python -m {test_module}"


def simulate(
    component: Any,
    test_module: str,
    *,
    name: str,
    tests: int,
    env: Mapping[str, Any] | None = None,
    waves: bool | None = None,
    seed: int | None = None,
    opt: str = "-O1",
    only: str | None = None,
    timeout_s: float = 1800,
    extra_args: tuple[str, ...] = (),
) -> Result:
    """Runs the cocotb tests of `test_module` against `component` and asserts that `tests` of them ran and
    passed.

    Parameters  component: the unit; test_module: importable name of the cocotb module; name: of the model's
                folder; tests: the exact number that has to run; env: handed on to the tests (values become
                strings); waves: write FST (default: when WAVES=1 is set); seed: of all randomness (default:
                HOTRAIL_SEED, or 1); only: regular expression on test names; timeout_s: of the whole run
    Raises      AssertionError: a test failed, or another number of tests ran; names the seed and the command
                RuntimeError: the model cannot be built or the simulator died
    """
    waves = os.environ.get("WAVES", "0") not in ("", "0") if waves is None else waves
    seed = int(os.environ.get("HOTRAIL_SEED", "1")) if seed is None else seed
    model = build(component, name, waves=waves, opt=opt, extra_args=extra_args)
    return run(model, test_module, tests=tests, env=env, seed=seed, only=only, timeout_s=timeout_s)


def run(
    model: Model,
    test_module: str,
    *,
    tests: int,
    env: Mapping[str, Any] | None = None,
    seed: int = 1,
    only: str | None = None,
    timeout_s: float = 1800,
) -> Result:
    """The second half of `simulate`: runs a built model."""
    import cocotb_tools.config

    label = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0].rsplit("/", 1)[-1] or test_module
    work = model.folder / "runs" / (re.sub(r"[^A-Za-z0-9_.-]+", "_", label) + f"-{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "metadata.json").write_text(json.dumps(model.metadata))
    settings = (
        environment()
        | {key: str(value) for key, value in (env or {}).items()}
        | {
            "COCOTB_TOPLEVEL": model.metadata["top"],
            "COCOTB_TEST_MODULES": test_module,
            "TOPLEVEL_LANG": "verilog",
            "COCOTB_RANDOM_SEED": str(seed),
            "COCOTB_RESULTS_FILE": str(work / "results.xml"),
            "COCOTB_TRUST_INERTIAL_WRITES": "1",
            "COCOTB_ANSI_OUTPUT": "0",
            "COCOTB_REDUCED_LOG_FMT": "1",
            "GPI_USERS": ";".join([_libpython(), cocotb_tools.config.pygpi_entry_point()]),
            "PYGPI_PYTHON_BIN": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(p for p in sys.path if p)]),
            "HOTRAIL_METADATA": str(work / "metadata.json"),
            "HOTRAIL_REPORT": str(work / "report.json"),
        }
    )
    if only:
        settings["COCOTB_TEST_FILTER"] = only
    command = [str(model.binary), *(["--trace"] if model.waves else [])]
    again = _reproduce(test_module, seed)
    start = time.monotonic()
    log = work / "run.log"
    with open(log, "w") as out:
        try:
            code = subprocess.run(
                command, cwd=work, env=settings, stdout=out, stderr=subprocess.STDOUT, timeout=timeout_s
            ).returncode
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{test_module} did not end within {timeout_s:g} s (seed {seed}); log: {log}\n"
                f"again with: {again}"
            ) from None
    seconds = time.monotonic() - start
    end = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    if not (work / "results.xml").exists():
        raise RuntimeError(
            f"the simulator ended with code {code} and left no results (seed {seed}):\n{end}\n"
            f"again with: {again}"
        )
    passed: list[str] = []
    failed: list[str] = []
    for case in ET.parse(work / "results.xml").getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = case.find("failure") is not None or case.find("error") is not None
        (failed if bad else passed).append(case.get("name", "?"))
    if failed or code:
        raise AssertionError(
            f"{', '.join(failed) or test_module} failed (seed {seed}, exit code {code}):\n{end}\n"
            f"again with: {again}"
        )
    if len(passed) != tests:
        raise AssertionError(
            f"{test_module} ran {len(passed)} tests, {tests} were expected: {', '.join(passed)}"
        )
    report = work / "report.json"
    values = json.loads(report.read_text()) if report.exists() else {}
    dump = work / "dump.fst"
    result = Result(tuple(passed), seconds, seed, values, model, dump if dump.exists() else None)
    if result.waves is None:
        shutil.rmtree(work, ignore_errors=True)
    return result
