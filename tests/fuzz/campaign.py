"""Drives the fuzz: inputs made from (format, seed, number) are read in child processes under limits.

    python -m tests.fuzz.campaign --count 1000000                       the campaign, its findings and counts
    python -m tests.fuzz.campaign --format onnx --number 17 --keep x/   one input again, its files kept in x/

Two outcomes are allowed for an input: it is read, and what is read is right; or it is refused by a ValueError of one
line that names the file. Everything else is a finding: another exception, a death by a signal, more than SECONDS of
processor, more than ROOM bytes of address space above what the child had before its first input.
"""

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import TextIO

MODULES = ("tests.fuzz.artefacts", "tests.fuzz.logs")     # each has FORMATS
ROOM = 1 << 30
SECONDS = 5.0
PATIENCE_S = 120.0      # of the clock, for one input: the machine may be busy, the child may be asleep
QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "2",
         "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONWARNINGS": "ignore"}
SLOT = struct.Struct("<q")
LOADING = -1            # stands for an input while libraries are loaded: that time is no input's


@dataclass(frozen=True)
class Trial:
    """An input as it lies in its folder. named: what a refusal must name, the file as a rule; read: reads it; right:
    whether what was read is right, as far as that is known of a malformed input."""

    named: str
    read: Callable[[], object]
    right: Callable[[object], bool] | None = None


@dataclass(frozen=True)
class Format:
    """A kind of input. make: writes one into a folder, by the random numbers that it is given and by nothing else."""

    name: str
    make: Callable[[Random, Path], Trial]


@dataclass(frozen=True)
class Finding:
    """An input with an outcome that is not allowed."""

    format: str
    seed: int
    number: int
    what: str

    def __str__(self) -> str:
        return (f"{self.what}\n  again: python -m tests.fuzz.campaign --format {self.format} --seed {self.seed} "
                f"--number {self.number} --keep FOLDER")


@dataclass
class Tally:
    """What came of a campaign: per format how many inputs were read and refused, and the findings."""

    read: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return sum(self.read.values()) + sum(self.refused.values()) + len(self.findings)


def formats(names: Iterable[str] = ()) -> list[Format]:
    """Those of the names, or all."""
    modules = os.environ.get("HOTRAIL_FUZZ", "").split() or MODULES
    found = {each.name: each for module in modules for each in import_module(module).FORMATS}
    return [found[name] for name in names] if names else list(found.values())


def damaged(random: Random, data: bytes, times: int = 3) -> bytes:
    """Bytes of a file with up to so many faults: bits, bytes, cuts, repetitions, lengths."""
    found = bytearray(data)
    for _ in range(random.randint(1, times)):
        if not found:
            break
        at = random.randrange(len(found))
        end = min(len(found), at + random.choice((1, 2, 4, 16, 256)))
        match random.randrange(8):
            case 0:
                found[at] ^= 1 << random.randrange(8)
            case 1:
                found[at:end] = random.randbytes(end - at)
            case 2:
                del found[at:end]
            case 3:
                found[at:at] = found[at:end] * random.choice((1, 1, 3, 50))
            case 4:
                del found[at:]
            case 5:
                found[at:at] = random.randbytes(end - at)
            case 6:
                number = random.choice((0, 1, -1, 0x7FFFFFFF, -0x80000000, 1 << 40, 0x7FFFFFFFFFFFFFFF))
                found[at:at + 8] = SLOT.pack(number)[:random.choice((1, 2, 4, 8))]
            case 7:
                other = random.randrange(len(found))
                found[at:end] = found[other:other + end - at]
    return bytes(found)


def outcome(each: Format, seed: int, number: int, folder: Path) -> tuple[str, str]:
    """("read" | "refused" | "wrong", of the last two: what was said) of one input, which is left in `folder`."""
    trial = each.make(Random(f"{each.name}:{seed}:{number}"), folder)
    try:
        found = trial.read()
    except ValueError as error:
        text = str(error)
        if "\n" in text or trial.named not in text:
            return "wrong", f"refused by no line that names {trial.named}: {text!r}\n{traceback.format_exc(limit=-4)}"
        return "refused", text
    except Exception:
        return "wrong", traceback.format_exc(limit=-8)
    if trial.right is not None and not trial.right(found):
        return "wrong", "read, and what was read is wrong"
    return "read", ""


def campaign(count: int, *, seed: int = 0, names: Sequence[str] = (), processes: int = 1, most: int = 50,
             say: Callable[[str], None] | None = None) -> Tally:
    """Tries `count` inputs, one format after the other in turn; ends early after so many findings as `most`."""
    every = [each.name for each in formats(names)]
    tally = Tally(dict.fromkeys(every, 0), dict.fromkeys(every, 0))
    cuts = [count * k // processes for k in range(processes + 1)]
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        children = [_Child(Path(folder) / str(k), every, seed, *cuts[k:k + 2]) for k in range(processes)]
        told, shown = time.monotonic(), 0
        while children and len(tally.findings) < most:
            time.sleep(0.05)
            for child in children:
                child.look()
            for child in [child for child in children if child.done]:
                child.add_to(tally)
                children.remove(child)
            if say and time.monotonic() - told > 30:
                told = time.monotonic()
                found = tally.findings + [finding for child in children for finding in child.findings]
                say(f"{sum(child.at - child.first for child in children) + tally.inputs:,} of {count:,}, "
                    f"{len(found)} findings")
                for finding in found[shown:]:
                    say(str(finding))
                shown = len(found)
        for child in children:
            child.end()
            child.add_to(tally)
    return tally


class _Child:
    """A process over the inputs first to stop, started again behind an input that ended it."""

    def __init__(self, folder: Path, names: Sequence[str], seed: int, first: int, stop: int):
        self.folder, self.names, self.seed, self.first, self.stop = folder, names, seed, first, stop
        folder.mkdir()
        self._written = folder / "findings"
        self._written.touch()
        (folder / "slots").write_bytes(bytes(SLOT.size * (1 + 2 * len(names))))
        with (folder / "slots").open("r+b") as file:
            self.slots = mmap.mmap(file.fileno(), 0)
        self._start(first)

    def _start(self, at: int) -> None:
        self._next = at
        self._put(0, LOADING)
        self.done = at >= self.stop
        if self.done:
            return
        with (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__ if __name__ != "__main__" else "tests.fuzz.campaign", "--child",
                 str(self.folder), "--seed", str(self.seed), "--from", str(at), "--count", str(self.stop - at),
                 *(f"--format={name}" for name in self.names)],
                env={**os.environ, **QUIET}, stdout=said, stderr=said, cwd=Path(__file__).parents[2])
        self._seen = (LOADING, 0.0, time.monotonic())

    def _put(self, slot: int, value: int) -> None:
        SLOT.pack_into(self.slots, slot * SLOT.size, value)

    def _get(self, slot: int) -> int:
        return SLOT.unpack_from(self.slots, slot * SLOT.size)[0]

    @property
    def at(self) -> int:
        """The input that is being tried, or will be when libraries are loaded."""
        return max(self._next, self._get(0))

    def look(self) -> None:
        """Notices an end, and ends an input that goes on for too long."""
        code = self.process.poll()
        if code is not None:
            self._ended(code)
            return
        now, at, spent = time.monotonic(), self._get(0), _processor(self.process.pid)
        if at != self._seen[0]:
            self._seen = (at, spent, now)
        elif at != LOADING and (spent - self._seen[1] > SECONDS or now - self._seen[2] > PATIENCE_S):
            self.process.kill()
            self.process.wait()
            self._found(at, f"more than {SECONDS:g} s of processor or {PATIENCE_S:g} s of the clock")
            self._start(at + 1)

    def _ended(self, code: int) -> None:
        at = self.at
        if code == 0:
            self.done = True
            return
        said = (self.folder / "said").read_text("utf-8", errors="replace")[-3000:]
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        self._found(at, f"the process ended with {name}: {said}")
        self._start(at + 1)

    def _found(self, at: int, what: str) -> None:
        name, number = self.names[at % len(self.names)], at // len(self.names)
        with self._written.open("a") as file:
            _write(file, Finding(name, self.seed, number, f"{name} {number}: {what}"))

    @property
    def findings(self) -> list[Finding]:
        """Up to now, those that the process has written among them."""
        return [Finding(**json.loads(line)) for line in self._written.read_text("utf-8").splitlines()]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def add_to(self, tally: Tally) -> None:
        for place, name in enumerate(self.names):
            tally.read[name] += self._get(1 + 2 * place)
            tally.refused[name] += self._get(2 + 2 * place)
        tally.findings += self.findings
        self.slots.close()


def _processor(pid: int) -> float:
    """Seconds of processor that a process has taken."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _limit(every: Sequence[Format], folder: Path) -> None:
    """Bounds the address space, after an input of each format has loaded the libraries that it needs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for each in every:
        with _cleared(folder):
            outcome(each, 0, 0, folder)
    size = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))


def _write(file: TextIO, finding: Finding) -> None:
    file.write(json.dumps(asdict(finding)) + "\n")
    file.flush()


class _cleared:
    """An empty folder within, and nothing of it afterwards."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __enter__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def __exit__(self, *reason: object) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                rmtree(path)
            else:
                path.unlink()


def _child(folder: Path, names: Sequence[str], seed: int, numbers: Iterator[int]) -> None:
    every = formats(names)
    with (folder / "slots").open("r+b") as file:
        slots = mmap.mmap(file.fileno(), 0)
    inputs = folder / "inputs"
    _limit(every, inputs)
    with (folder / "findings").open("a") as findings:
        for at in numbers:
            SLOT.pack_into(slots, 0, at)
            place, number = at % len(every), at // len(every)
            with _cleared(inputs):
                came, what = outcome(every[place], seed, number, inputs)
            if came == "wrong":
                name = every[place].name
                _write(findings, Finding(name, seed, number, f"{name} {number}: {what}"))
            else:
                offset = (1 + 2 * place + (came == "refused")) * SLOT.size
                SLOT.pack_into(slots, offset, SLOT.unpack_from(slots, offset)[0] + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Malformed files of every kind that is read.")
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all [10000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", action="append", default=[], help="only this one; may be given several times")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most", type=int, default=50, help="end after so many findings [50]")
    parser.add_argument("--number", type=int, help="only this input of the format, without limits")
    parser.add_argument("--keep", type=Path, help="folder for its files")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", type=int, dest="first", default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        _child(asked.child, asked.format, asked.seed, iter(range(asked.first, asked.first + asked.count)))
        return 0
    if asked.number is not None:
        folder = asked.keep or Path(tempfile.mkdtemp(prefix="fuzz"))
        folder.mkdir(parents=True, exist_ok=True)
        came, what = outcome(formats(asked.format)[0], asked.seed, asked.number, folder)
        print(f"{folder}: {came}\n{what}")
        return int(came == "wrong")
    start = time.monotonic()
    tally = campaign(asked.count, seed=asked.seed, names=asked.format, processes=asked.processes, most=asked.most,
                     say=lambda line: print(line, flush=True))
    for finding in tally.findings:
        print(finding)
    for name in tally.read:
        print(f"{name:16s} {tally.read[name]:>9,} read {tally.refused[name]:>9,} refused")
    print(f"{tally.inputs:,} inputs, {len(tally.findings)} findings, {time.monotonic() - start:.0f} s")
    return int(bool(tally.findings))


if __name__ == "__main__":
    sys.exit(main())
