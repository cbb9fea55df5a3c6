"""SIGINT at random moments of the commands: soon at the prompt, nothing half-written, then the same command succeeds.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gen.base.tools import build_folder
from verif.bench import runner

ROOT = Path(__file__).parents[2]
MOMENTS = 34        # of each command in `make regress`: 204 in all
BOUND_S = 10.0      # this machine may be busy; docs/reliability.md says what an idle one takes
COMMANDS = {
    "profile": ("profile", "log.csv", "--together", "--out", "out/profile"),
    "plan": ("plan", "log.csv", "--preset", "tiny", "--cards", "2", "--dim", "16", "--out", "out/plan"),
    "compile": ("compile", "out/plan", "--out", "out/bundle"),
    "run": ("run", "out/bundle", "log.csv", "--samples", "512", "--memory", "ideal"),
    "hotline": ("hotline", "log.csv", "--samples", "300", "--learn", "0.2", "--out", "out/hotline"),
    "demo": ("demo", "--log", "log.csv", "--dim", "16", "--rank", "2", "--batch", "128"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a log, and a build folder with the models that are there already."""
    folder = tmp_path_factory.mktemp("interrupts")
    drawn = random.Random(3)
    (folder / "log.csv").write_text("user_id:token,item_id:token,rating:float\n" + "".join(
        f"{drawn.randrange(60)},{int(drawn.paretovariate(1)) % 90},{drawn.randrange(6)}\n" for _ in range(3000)))
    (folder / "build").mkdir()
    for name in ("sim", "data"):
        (build_folder() / name).mkdir(parents=True, exist_ok=True)
        (folder / "build" / name).symlink_to((build_folder() / name).resolve())
    return folder


def begin(place, arguments):
    return subprocess.Popen([sys.executable, "-m", "hotrail", *arguments], cwd=place, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            env={**os.environ, "HOTRAIL_BUILD": str(place / "build"), "PYTHONPATH": str(ROOT)})


def shown(place):
    """Digests of all outputs by name."""
    files = [path for folder in ("out", "build/demo") for path in (place / folder).rglob("*")]
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for path in files}


def complete(place, arguments):
    """Runs a command to its end; how long that took, in seconds."""
    began = time.monotonic()
    child = begin(place, arguments)
    said, wrong = child.communicate()
    assert child.returncode == 0, said + wrong
    return time.monotonic() - began


def interrupted(place, name, moments, seed):
    """Seconds from the interrupt to the prompt, at random moments of a command that is run after those before it."""
    taken = []
    for before in ("plan", "compile") if name in ("compile", "run") else ():
        if before != name:
            complete(place, COMMANDS[before])
    whole = complete(place, COMMANDS[name])
    there = shown(place)
    drawn = random.Random(f"{name}:{seed}")
    for _ in range(moments):
        child = begin(place, COMMANDS[name])
        time.sleep(drawn.uniform(0.15, whole))      # Python itself begins for as long, a loaded machine's for longer
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        said, wrong = child.communicate(timeout=120)
        taken.append(time.monotonic() - began)
        assert child.returncode in (130, -signal.SIGINT, 0), said + wrong
        # One line; none before the command has begun or when it was done. Before Python has come to it, Python's.
        if wrong.endswith("\nKeyboardInterrupt\n") and "hotrail" not in wrong:
            assert shown(place) == there
            continue
        assert wrong in ("Interrupted.\n", "") and (wrong or child.returncode != 130), wrong
        # The same bytes come out each time, so that a file is either as it was, or the same anew.
        assert shown(place) == there
    complete(place, COMMANDS[name])
    assert shown(place) == there
    print(f"{name}: {moments} interrupts, at most {max(taken):.2f} s, {sum(t > 1 for t in taken)} above 1 s")
    return taken


@pytest.mark.turns(1, of="processes")
def test_interrupts(place):
    assert max(interrupted(place, "plan", 1, runner.seeds()[0])) < BOUND_S


@pytest.mark.regress
@pytest.mark.parametrize("name", COMMANDS)
def test_many_interrupts(place, name):
    assert max(interrupted(place, name, MOMENTS, 1)) < BOUND_S
