#!/usr/bin/env python3
"""The tests under conditions of other machines: processors, users, locales, orders, loads. What depends on one fails.

Usage: .ci/portable.py [CONDITION ...]      default: all, each over the tests that could notice it; --list names them

A condition that this machine cannot give is named with its reason and not counted. Ends with a table; the logs are in
build/portable/.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ".venv/bin/python"
# What computes with floating point, and what writes results of it.
NUMBERS = ("tests/golden", "tests/gen", "tests/bench", "tests/hotrail", "tests/fpga/synth/timing", "tests/fpga/api",
           "tests/test_documents.py")
# What reads and writes text and files, and starts programs.
TEXTS = ("tests/gen", "tests/hotrail", "tests/fpga/vitis", "tests/fpga/synth", "tests/verif", "tests/hw",
         "tests/test_documents.py", "tests/test_import_law.py", "tests/test_statements.py")
NOBODY = 65534
AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"
BASELINE = {"OPENBLAS_CORETYPE": "Prescott", "NUMBA_CPU_NAME": "generic", "ATEN_CPU_CAPABILITY": "default"}
WORKERS = "3"
ALONE = "unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"


@dataclass(frozen=True)
class Condition:
    """What is different. tests: those that could notice, all by default; env: variables, None takes one away; before:
    in front of pytest's command; needs: why this machine cannot give it, or ""; elsewhere: another folder to run in."""

    about: str
    tests: Sequence[str] = ()
    env: dict[str, str | None] = field(default_factory=dict)
    before: Sequence[str] = ()
    workers: str = WORKERS
    needs: Callable[[], str] = lambda: ""
    load: bool = False
    elsewhere: str = ""


def processor_has(flag: str) -> Callable[[], str]:
    def missing() -> str:
        known = Path("/proc/cpuinfo")
        return "" if known.exists() and f" {flag} " in known.read_text("utf-8") else f"this processor has no {flag}"
    return missing


def root_with(*programs: str) -> Callable[[], str]:
    def missing() -> str:
        lacking = [program for program in programs if shutil.which(program) is None]
        return "only root can" if os.geteuid() else f"{lacking[0]} is missing" if lacking else ""
    return missing


def locale(name: str) -> Callable[[], str]:
    def missing() -> str:
        known = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
        return "" if name in known else f"no {name}: apt-get install locales; localedef -i tr_TR -f ISO-8859-9 {name}"
    return missing


CONDITIONS = {
    "no-avx512": Condition("without AVX-512", NUMBERS, {"NPY_DISABLE_CPU_FEATURES": AVX512},
                           needs=processor_has("avx512f")),
    "no-avx2": Condition("without AVX2, in NumPy, BLAS, Numba and PyTorch", NUMBERS,
                         {"NPY_DISABLE_CPU_FEATURES": f"X86_V3 {AVX512}", **BASELINE}, needs=processor_has("avx2")),
    "one-worker": Condition("one process", workers="1"),
    "four-workers": Condition("four workers", workers="4"),
    "shuffled": Condition("tests in another order", env={"HOTRAIL_SHUFFLE": "20211"}),
    "hash-seed": Condition("another order of sets", NUMBERS + ("tests/fpga", "tests/verif"), {"PYTHONHASHSEED": "417"}),
    "not-root": Condition("a user without rights, in a copy that is that user's",
                          before=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
                          needs=root_with("setpriv"), elsewhere="copy"),
    "no-home": Condition("no HOME", TEXTS, {"HOME": None}),
    "spaces": Condition("a path with spaces", TEXTS + ("verif/stream", "tests/fpga/card"),
                        elsewhere="a path with spaces"),
    "c-locale": Condition("the C locale, and ASCII for all files", TEXTS,
                          {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    "tr-locale": Condition("a Turkish locale with an encoding of its own", TEXTS, {"LC_ALL": "tr_TR"},
                           needs=locale("tr_TR")),
    "time-zone": Condition("a time zone with quarters of an hour", TEXTS, {"TZ": "Pacific/Chatham"}),
    "no-network": Condition("no network but the machine's own", TEXTS + ("tests/fpga",), before=ALONE,
                            needs=root_with("unshare", "ip")),
    "slow": Condition("a machine that is busy with four other things per processor",
                      ("tests/fpga", "tests/hotrail", "tests/gen/base", "tests/verif", "verif/stream"),
                      before=("nice",), load=True),
}


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    count = 4 * (os.cpu_count() or 1) if wanted else 0
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def folder(condition: Condition) -> Iterator[Path]:
    """Where the tests run: here, or in a copy of what git tracks with an environment of its own."""
    if not condition.elsewhere:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="hotrail-") as holder:
        copy = Path(holder) / condition.elsewhere
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        if "setpriv" in condition.before:
            Path(holder).chmod(0o755)
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(copy)], check=True)
        subprocess.run([*condition.before, "make", "-s", ".venv/.ready-dev"], cwd=copy, check=True,
                       env={**os.environ, "HOME": str(copy)})
        yield copy


def tried(name: str, condition: Condition) -> tuple[str, str, float]:
    """(name, pytest's last line or why not, seconds) of a condition."""
    begun = time.monotonic()
    if reason := condition.needs():
        return name, f"not tried: {reason}", 0.0
    log = ROOT / "build" / "portable" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        code = run(condition, log)
    except subprocess.CalledProcessError as error:
        return name, f"FAILED to set up: {error}", time.monotonic() - begun
    last = next(iter(log.read_text("utf-8", errors="replace").splitlines()[::-1]), "")
    return name, last if not code else f"FAILED, code {code}: {last}", time.monotonic() - begun


def run(condition: Condition, log: Path) -> int:
    """pytest's exit code; its output goes to the log."""
    with folder(condition) as place, busy(condition.load), log.open("w") as out:
        env = {**os.environ, **{key: value for key, value in condition.env.items() if value is not None}}
        for key in (key for key, value in condition.env.items() if value is None):
            env.pop(key, None)
        if condition.elsewhere:
            env["HOME"] = str(place)
        command = [*condition.before, PYTHON, "-m", "pytest", "-n", condition.workers, "--dist", "worksteal",
                   *condition.tests]
        return subprocess.run(command, cwd=place, env=env, stdout=out, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL).returncode


def main(arguments: Sequence[str]) -> int:
    if "--list" in arguments:
        for name, condition in CONDITIONS.items():
            print(f"{name:14} {condition.about}")
        return 0
    if wrong := [name for name in arguments if name not in CONDITIONS]:
        print(f"there is no condition {wrong[0]!r}; there are {', '.join(CONDITIONS)}", file=sys.stderr)
        return 2
    results = []
    for name in arguments or CONDITIONS:
        results.append(tried(name, CONDITIONS[name]))
        print(f"{name:14} {results[-1][2]:5.0f} s  {results[-1][1]}", flush=True)
    failed = [name for name, said, _ in results if said.startswith("FAILED")]
    print(f"{len(failed)} of {len(results)} conditions failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
