"""Builds a model of a component, runs a cocotb module on it and checks that every test ran.

This file alone knows how cocotb is started. Verilator's models are built and cached by gen.rtl.verilator; Icarus,
with its four states, reads the Verilog in seconds and runs a hundred times slower.
"""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gen.base.tools import environment
from gen.rtl import powerup, primitives, verilator, verilog

ROOT = Path(__file__).resolve().parents[2]
# A folder for what each run has seen change (verif.coverage); models are others then.
COVERAGE = os.environ.get("HOTRAIL_COVERAGE", "")


@dataclass(frozen=True)
class Model:
    """A built simulator: `binary` to start, by `interpreter` if there is one, `metadata` as `gen.rtl.verilog` gave
    it; cached: it had been built before."""

    folder: Path
    binary: Path
    metadata: dict[str, Any]
    cached: bool
    waves: bool
    interpreter: tuple[str, ...] = ()


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


def build(
    component: Any,
    name: str,
    *,
    waves: bool | None = None,
    opt: str = "-O0",
    memories: tuple[str, ...] = (),
    extra_args: tuple[str, ...] = (),
) -> Model:
    """The Verilator model of `component`, from the cache when one with the same content was built before.

    Parameters  component: a `wiring.Component`; name: for the folder's name, people read it; waves: build in
                FST (default: when WAVES=1 is set); opt: the C++ optimisation of the design's own code; memories:
                names, with wildcards, of those inside the design that a bench writes to; extra_args: further arguments
                for Verilator
    Raises      RuntimeError: with the end of the tool's log
    """
    from verif.formal import properties  # not in the simulations, which import this file too

    waves = os.environ.get("WAVES", "0") not in ("", "0") if waves is None else waves
    if COVERAGE:    # of the unit alone, in all its shapes under one name
        unit = type(component)
        texts, metadata = verilog.convert(component, "_".join([*unit.__module__.split(".")[1:], unit.__name__]),
                                          names=True)
    else:
        with properties.checks():
            texts, metadata = verilog.convert(component, names=waves, added=properties.version())
    return build_texts(texts, metadata, name, waves=waves, opt=opt, memories=memories, extra_args=extra_args)


def build_texts(
    texts: Mapping[str, str],
    metadata: dict[str, Any],
    name: str,
    *,
    waves: bool = False,
    opt: str = "-O0",
    memories: tuple[str, ...] = (),
    extra_args: tuple[str, ...] = (),
) -> Model:
    """As `build`, from Verilog texts; the top module is `metadata["top"]`."""
    import cocotb_tools.config

    if COVERAGE:
        from verif import coverage

        bench = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        texts = coverage.in_benches(texts, metadata.get("modules", {}), bench)
    libs, share = Path(cocotb_tools.config.libs_dir), Path(cocotb_tools.config.share_dir)
    built = verilator.build(
        texts,
        metadata["top"],
        name,
        target="sim",
        # Only the top's ports are visible to cocotb.
        visible=tuple(filter(None, (metadata["clock"], metadata["reset"], *metadata["ports"]))),
        memories=memories,
        arguments=(
            "--vpi",
            "--timescale",
            "1ns/1ps",
            *(["--trace-fst"] if waves else []),
            *(["--coverage-toggle", "--coverage-max-width", "64"] if COVERAGE else []),
            *extra_args,
        ),
        # What is linked is cocotb's as well: its version is a part of the model.
        sources={"main.cpp": f"// cocotb {version('cocotb')}\n"
                             + (share / "lib" / "verilator" / "verilator.cpp").read_text("utf-8")},
        ldflags=shlex.join([f"-Wl,-rpath,{libs}", f"-L{libs}", "-lcocotbvpi_verilator"]),
        opt=opt,
        random=not COVERAGE,    # what a power-up has drawn would count as changes
        asserts=True,
        redrawn=not COVERAGE,
    )
    if COVERAGE:
        file = Path(COVERAGE) / f"{built.folder.name}.constants"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(coverage.constants(texts, metadata["top"]), default=list), "utf-8")
    return Model(built.folder, built.target, metadata, built.cached, waves)


def icarus(texts: Mapping[str, str], metadata: dict[str, Any], folder: Path) -> Model:
    """A model of four states in `folder`: what the core has not set since its reset is unknown.

    Raises      RuntimeError: with what Icarus says
    """
    import cocotb_tools.config

    texts = {**texts, **primitives.models(texts)}
    for file, text in powerup.undefined(texts).items():
        (folder / file).write_text(text, "utf-8")
    (folder / "arguments").write_text("+timescale+1ns/1ps\n", "utf-8")
    binary = folder / "sim.vvp"
    done = subprocess.run(["iverilog", "-g2012", "-s", metadata["top"], "-f", "arguments", "-o", str(binary), *texts],
                          cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"Icarus does not take {metadata['top']}:\n{done.stdout[-3000:]}")
    interpreter = ("vvp", "-m", str(cocotb_tools.config.lib_name_path("vpi", "icarus")))
    return Model(folder, binary, metadata, False, False, interpreter)


def seeds(count: int = 1) -> list[int]:
    """The seeds to run: HOTRAIL_SEED alone when set, else `count` of them (HOTRAIL_SEEDS multiplies) from
    HOTRAIL_FIRST_SEED on, which is 1 by default and a commit's own in .ci/run and `make regress`."""
    if fixed := os.environ.get("HOTRAIL_SEED"):
        return [int(fixed)]
    first = int(os.environ.get("HOTRAIL_FIRST_SEED") or "1")
    return list(range(first, first + count * int(os.environ.get("HOTRAIL_SEEDS", "1"))))


def shapes(known: Iterable[Any], by_default: int) -> list[Any]:
    """The shapes of a unit to try: the first `by_default` of those known, all with HOTRAIL_REGRESS."""
    return list(known)[:None if os.environ.get("HOTRAIL_REGRESS") else by_default]


def one_of(known: Iterable[Any]) -> list[Any]:
    """One of the shapes that hold the same testpoints; all with HOTRAIL_REGRESS or HOTRAIL_TURNS=all, and with
    HOTRAIL_SEED, by which a failure is repeated. They take turns: the first seed says which, so a commit that is tried
    from a seed of its own tries another than the one before."""
    every = list(known)
    if any(map(os.environ.get, ("HOTRAIL_REGRESS", "HOTRAIL_SEED"))) or os.environ.get("HOTRAIL_TURNS") == "all":
        return every
    at = (seeds()[0] - 1) % len(every)
    return every[at:at + 1]


def _reproduce(test_module: str, seed: int) -> str:
    current = os.environ.get("PYTEST_CURRENT_TEST", "")
    if current:
        # "[...-3]" is pytest's parameter; HOTRAIL_SEED decides about the seed in any case.
        return f"HOTRAIL_SEED={seed} .venv/bin/pytest '{current.rsplit(' ', 1)[0]}'"
    return f"HOTRAIL_SEED={seed} .venv/bin/python -m {test_module}"


def _work(folder: Path) -> Path:
    """An empty folder for what a run writes: this one, or a temporary one where the model's cannot be written."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="hotrail-run-"))
    return folder


def simulate(
    component: Any,
    test_module: str,
    *,
    name: str,
    tests: int,
    env: Mapping[str, Any] | None = None,
    waves: bool | None = None,
    seed: int | None = None,
    opt: str = "-O0",
    only: str | None = None,
    timeout_s: int = 1800,
    memories: tuple[str, ...] = (),
    extra_args: tuple[str, ...] = (),
) -> Result:
    """Runs the cocotb tests of `test_module` against `component` and asserts that `tests` of them ran and
    passed.

    Parameters  component: the unit; test_module: importable name of the cocotb module; name: of the model's
                folder; tests: the exact number that has to run; env: handed on to the tests (values become
                strings); waves: write FST (default: when WAVES=1 is set); seed: of all randomness (default:
                the first of `seeds`); only: regular expression on test names; timeout_s: of processor time;
                memories: names, with wildcards, of those inside the design that the tests write to
    Raises      AssertionError: a test failed, or another number of tests ran; names the seed and the command
                RuntimeError: the model cannot be built or the simulator died
    """
    seed = seeds()[0] if seed is None else seed
    model = build(component, name, waves=waves, opt=opt, memories=memories, extra_args=extra_args)
    return run(model, test_module, tests=tests, env=env, seed=seed, only=only, timeout_s=timeout_s)


def run(
    model: Model,
    test_module: str,
    *,
    tests: int,
    env: Mapping[str, Any] | None = None,
    seed: int = 1,
    only: str | None = None,
    timeout_s: int = 1800,
    plusargs: Iterable[str] = (),
    rewritten: bool = False,
) -> Result:
    """The second half of `simulate`: runs a built model. plusargs: "+name=value", for the Verilog. rewritten: pytest
    rewrites assertions, which takes longer, so that one without a message says what it compared; a run that fails at
    such an assertion is repeated so."""
    timeout_s = min(timeout_s, int(os.environ.get("HOTRAIL_SIMULATION_S", timeout_s)))
    label = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0].rsplit("/", 1)[-1] or test_module
    work = _work(model.folder / "runs" / (re.sub(r"[^A-Za-z0-9_.-]+", "_", label) + f"-{os.getpid()}"))
    (work / "metadata.json").write_text(json.dumps(model.metadata), "utf-8")
    settings = _settings(model, work, test_module, seed=seed, env=env or {}, only=only, rewritten=rewritten)
    # Registers and memories begin at random; a seed of 0 would be the time of day.
    drawn = ("+verilator+rand+reset+2", f"+verilator+seed+{1 + seed % (2**31 - 1)}")
    state = () if model.interpreter or COVERAGE else drawn
    if COVERAGE and not model.interpreter:
        folder = Path(COVERAGE).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{model.folder.name}-{seed}-{os.getpid()}-{time.monotonic_ns()}.dat"
        plusargs = [*plusargs, f"+verilator+coverage+file+{file}"]
    command = [*model.interpreter, str(model.binary), *(["--trace"] if model.waves else []), *state, *plusargs]
    again = _reproduce(test_module, seed)
    start = time.monotonic()
    log = work / "run.log"
    with open(log, "w") as out:
        code = subprocess.run(command, cwd=work, env=settings, stdout=out, stderr=subprocess.STDOUT,
                              preexec_fn=partial(_limit, timeout_s)).returncode
    if code == -signal.SIGXCPU:
        raise AssertionError(f"{test_module} did not end within {timeout_s} s of processor time (seed {seed}); "
                             f"log: {log}\nagain with: {again}")
    seconds = time.monotonic() - start
    end = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-60:])
    if not (work / "results.xml").exists():
        raise RuntimeError(
            f"the simulator ended with code {code} and left no results (seed {seed}):\n{end}\n"
            f"again with: {again}"
        )
    passed, failed = _outcome(work / "results.xml")
    if failed or code:
        if not rewritten and re.search(r"(?m)\bAssertionError$", end):
            run(model, test_module, tests=tests, env=env, seed=seed, only=only, timeout_s=timeout_s, plusargs=plusargs,
                rewritten=True)
        raise AssertionError(
            f"{', '.join(failed) or test_module} failed (seed {seed}, exit code {code}):\n{end}\n"
            f"again with: {again}"
        )
    if len(passed) != tests:
        raise AssertionError(
            f"{test_module} ran {len(passed)} tests, {tests} were expected: {', '.join(passed)}"
        )
    report = work / "report.json"
    values = json.loads(report.read_text("utf-8")) if report.exists() else {}
    dump = work / "dump.fst"
    result = Result(tuple(passed), seconds, seed, values, model, dump if dump.exists() else None)
    if result.waves is None:
        shutil.rmtree(work, ignore_errors=True)
    return result


def _limit(seconds: int) -> None:
    """Of this process: processor time, which does not depend on what else a machine does."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _settings(model: Model, work: Path, test_module: str, *, seed: int, env: Mapping[str, Any], only: str | None,
              rewritten: bool) -> dict[str, str]:
    """The environment of a run."""
    import cocotb_tools.config

    settings = (
        environment()
        | {key: str(value) for key, value in env.items()}
        | {
            "COCOTB_TOPLEVEL": model.metadata["top"],
            "COCOTB_TEST_MODULES": test_module,
            "TOPLEVEL_LANG": "verilog",
            "COCOTB_RANDOM_SEED": str(seed),
            "COCOTB_RESULTS_FILE": str(work / "results.xml"),
            # By default cocotb rewrites the assertions of all that is imported, NumPy and numba included: seconds.
            "COCOTB_REWRITE_ASSERTION_FILES": "test_*.py bench_*.py" if rewritten else "",
            "COCOTB_TRUST_INERTIAL_WRITES": "0" if model.interpreter else "1",
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
    return settings


def _outcome(results: Path) -> tuple[list[str], list[str]]:
    """Names of the tests that passed and of those that failed, of cocotb's results."""
    passed: list[str] = []
    failed: list[str] = []
    for case in ET.parse(results).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = case.find("failure") is not None or case.find("error") is not None
        (failed if bad else passed).append(case.get("name", "?"))
    return passed, failed
