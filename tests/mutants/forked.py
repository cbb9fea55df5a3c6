"""Simulates mutants one after the other in copies of one process, each up to its first failure.

cocotb imports this module behind a bench's own, before the simulation's first evaluation: everything that takes seconds
has been imported, and nothing has been simulated. The first copy simulates the sound unit, in the run's own folder; the
others have a folder each and the number of their mutant in it. One that takes ten times as long as the sound unit and
longer than `LEAST_S` hangs.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path

import cocotb.simulator
from cocotb.regression import RegressionManager

from tests.mutants.selected import FILE

FAILED = 77     # exit code: a test of the bench has failed
LEAST_S = 10.0
FACTOR = 10.0


def _end() -> None:
    """A copy has no threads besides its own, for which the simulator's own end would wait."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _first_failure_ends() -> None:

    def failed(*_: object, **__: object) -> None:
        os._exit(FAILED)

    RegressionManager._record_test_failed = failed          # type: ignore[method-assign]
    RegressionManager._record_test_init_failed = failed     # type: ignore[method-assign]


def _alone(folder: Path, number: int, limit: float) -> None:
    """In a new copy: the mutant's own folder, output and limit of processor time."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    (folder / FILE).write_text(str(number), "utf-8")
    with open(folder / "run.log", "w", encoding="utf-8") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    os.environ["COCOTB_RESULTS_FILE"] = str(folder / "results.xml")
    os.environ["HOTRAIL_REPORT"] = str(folder / "report.json")
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    _first_failure_ends()


def _verdict(code: int, folder: Path, sound: Path) -> str:
    if code == FAILED:
        return "found"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "hangs"
    log = (folder / "run.log").read_text("utf-8", errors="replace")
    if code or not (folder / "results.xml").exists():
        return "found" if "it does not hold that" in log else f"ends with code {code}: {log[-300:]}"
    reports = [path.read_text("utf-8") if path.exists() else "" for path in
               (folder / "report.json", sound / "report.json")]
    return "survives" if reports[0] == reports[1] else "reports differ"


def _wait(pid: int) -> tuple[int, float]:
    _, status, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def main() -> None:
    """Returns in the copies, which simulate; the process itself ends with the sound unit's exit code."""
    sound, out = Path.cwd(), Path(os.environ["HOTRAIL_MUTANTS"])
    verdicts = out / os.environ["HOTRAIL_MUTANTS_VERDICTS"]
    known = [json.loads(line) for line in verdicts.read_text("utf-8").splitlines()] if verdicts.exists() else []
    found = {one["mutant"] for one in known if one["verdict"] == "found"}
    rest = [int(number) for number in os.environ["HOTRAIL_MUTANTS_OF"].split(",") if int(number) not in found]
    sys.stdout.flush()
    sys.stderr.flush()
    if not (pid := os.fork()):
        cocotb.simulator.stop_simulator = _end
        return
    code, seconds = _wait(pid)
    for number in rest if code == 0 else []:
        folder = sound / "mutants" / str(number)
        if not (pid := os.fork()):
            cocotb.simulator.stop_simulator = _end
            _alone(folder, number, max(LEAST_S, FACTOR * seconds))
            return
        told, used = _wait(pid)
        line = {"mutant": number, "test": os.environ["HOTRAIL_MUTANTS_TEST"], "seconds": round(used, 2),
                "verdict": _verdict(told, folder, sound)}
        with open(verdicts, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    os._exit(code if code >= 0 else 1)


main()
