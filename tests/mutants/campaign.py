"""Tries a sample of mutants: a model of each bench has all mutants of its units, and a simulation is forked for each.

A campaign lies in a folder and can be ended and begun again: a bench that is done is not repeated, and several
processes share the benches among them. It belongs to the sources, the files, the count and the seed.
"""

import fcntl
import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from tests.mutants.mutant import COPIED, HANGS, ROOT, Copy
from tests.mutants.operators import Change, benches, changes
from tests.mutants.selected import BY_ITSELF
from tests.mutants.weave import woven

HOOK = "\nfrom tests.mutants import selected\nselected.install()\n"
# Of several simulations of a mutant the first of these counts.
ORDER = ("found", "hangs", "survives")


@dataclass(frozen=True)
class Tried:
    """verdict: found, survives, hangs, unreached (the benches' shapes do not elaborate it), no register (the signal
    whose reset it takes away has none), or invalid: it is refused, or its simulation ends by itself. by: the first test
    that finds it."""

    number: int
    change: Change
    verdict: str
    by: str = ""
    why: str = ""


@dataclass(frozen=True)
class Share:
    """Of the mutants that are no equivalents, how many are found: an estimate for all from a sample, in percent, and
    the interval that has it with 95 %."""

    estimate: float
    low: float
    high: float
    found: int
    count: int


def sample(names: list[str], count: int, seed: int) -> list[Change]:
    """About `count` mutants, of each file in proportion to all that it has, and one at least; the same by the same
    seed."""
    generator = random.Random(seed)
    pools = {name: changes(name) for name in names}
    total = sum(map(len, pools.values()))
    chosen = []
    for pool in pools.values():
        of_file = min(len(pool), max(1, round(count * len(pool) / total)))
        chosen += sorted(generator.sample(pool, of_file), key=lambda change: (change.begin, change.end, change.new))
    return chosen


def share(tried: list[Tried], equivalent: frozenset[int] = frozenset()) -> Share:
    """By file weighted with all that it has, and Wilson's interval for as many as a sample without weights had."""
    counted = [one for one in tried if one.verdict in ("found", "survives", "hangs", "unreached")
               and one.number not in equivalent]
    drawn = Counter(one.change.file for one in tried)
    weights = {file: len(changes(file)) / drawn[file] for file in drawn}
    total = sum(weights[one.change.file] for one in counted)
    if not counted:
        return Share(0.0, 0.0, 100.0, 0, 0)
    p = sum(weights[one.change.file] for one in counted if one.verdict == "found") / total
    n = total ** 2 / sum(weights[one.change.file] ** 2 for one in counted)
    z = 1.96
    middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (100 * (middle + way * half) / (1 + z * z / n) for way in (-1, 1))
    return Share(100 * p, low, high, sum(one.verdict == "found" for one in counted), len(counted))


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> str:
    """Of all that every bench depends on: the files of tests are left out."""
    return _digest(file for name in COPIED if not name.startswith("tests") for file in sorted((ROOT / name).rglob("*"))
                   if file.suffix in (".py", ".toml") and not file.name.startswith("test_"))


class Campaign:
    """A sample in a folder: `run` tries what nobody has tried, `tried` says what became of it."""

    def __init__(self, folder: Path, names: list[str], count: int, seed: int, *, all_shapes: bool = False):
        self.folder, self.all_shapes = folder.resolve(), all_shapes
        self.mutants = dict(enumerate(sample(names, count, seed), 1))
        plan = {"names": names, "count": count, "seed": seed, "all_shapes": all_shapes, "sources": _sources()}
        with self._locked("plan"):
            note = self.folder / "plan.json"
            if not note.exists() or json.loads(note.read_text("utf-8")) != plan:
                self._begin()
                note.write_text(json.dumps(plan), "utf-8")
            self.copy = Copy(self.folder / "copy", all_shapes=all_shapes, fresh=False)
            for test in sorted({test for tests, _ in self.groups().values() for test in tests}):
                shutil.copy(ROOT / test, self.copy.folder / test)

    def _begin(self) -> None:
        for item in self.folder.iterdir():
            if item.is_dir():
                shutil.rmtree(item)
            elif item.suffix != ".lock":
                item.unlink()
        copy = Copy(self.folder / "copy", all_shapes=self.all_shapes)
        for file in dict.fromkeys(change.file for change in self.mutants.values()):
            path = copy.folder / file
            here = {number: change for number, change in self.mutants.items() if change.file == file}
            text, lost = woven(path.read_text("utf-8"), here)
            path.write_text(text, "utf-8")
            if lost:
                raise ValueError(f"{file}: these mutants have no place: {lost}")
        with open(copy.folder / "conftest.py", "a", encoding="utf-8") as hook:
            hook.write(HOOK)

    @contextmanager
    def _locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Whether nobody else has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{name}.lock", "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True

    def groups(self) -> dict[str, tuple[tuple[str, ...], list[int]]]:
        """The benches that are run together, and the mutants that they are to find, by a name."""
        known = benches()
        found: dict[str, tuple[tuple[str, ...], list[int]]] = {}
        for number, change in self.mutants.items():
            tests = known[change.file]
            name = "+".join(Path(test).with_suffix("").as_posix().replace("/", ".") for test in tests)
            found.setdefault(name, (tests, []))[1].append(number)
        return found

    def run(self, echo: Callable[[str], None], only: Sequence[str] = ()) -> None:
        """Tries the mutants of every bench that is not done and that no other process has taken. only: these benches.
        One that fails although no mutant is selected is said, and its mutants remain untried.
        """
        for name, (tests, numbers) in self.groups().items():
            if only and not set(only) & set(tests):
                continue
            with self._locked(name, wait=False) as mine:
                if not mine or self._is_done(name, tests):
                    continue
                try:
                    self._bench(name, tests, numbers)
                except RuntimeError as error:
                    echo(str(error))
                    continue
                told = Counter(one.verdict for one in self.tried() if one.number in numbers)
                echo(f"{' '.join(tests)}: {', '.join(f'{count} {word}' for word, count in told.items())}")

    def _bench(self, name: str, tests: tuple[str, ...], numbers: list[int]) -> None:
        verdicts = self.folder / f"{name}.verdicts"
        verdicts.unlink(missing_ok=True)
        env = {"HOTRAIL_MUTANTS": str(self.folder), "HOTRAIL_MUTANTS_VERDICTS": verdicts.name,
               "HOTRAIL_MUTANTS_OF": ",".join(map(str, numbers))}
        code, output = self.copy.run(tests, env=env)
        if code:
            log = self.folder / f"{name}.log"
            log.write_text(output, "utf-8")
            raise RuntimeError(f"{' '.join(tests)} fails without a mutant; {len(numbers)} are not tried: {log}")
        alone = dict.fromkeys((number, test) for number, test, verdict in self._lines(name)
                              if verdict in ("reports differ", BY_ITSELF))
        found = {number for number, _, verdict in self._lines(name) if verdict == "found"}
        for number, test in alone:
            if number in found:
                continue
            code, output = self.copy.run((test,), env=env | {"HOTRAIL_MUTANT": str(number)})
            with open(verdicts, "a", encoding="utf-8") as file:
                verdict = "survives" if code == 0 else "hangs" if HANGS.search(output) else "found"
                file.write(json.dumps({"mutant": number, "test": test, "verdict": verdict}) + "\n")
            if verdict == "found":
                found.add(number)
        (self.folder / f"{name}.done").write_text(_digest(ROOT / test for test in tests), "utf-8")

    def _is_done(self, name: str, tests: tuple[str, ...]) -> bool:
        """It has been run, and as it is now."""
        done = self.folder / f"{name}.done"
        return done.exists() and done.read_text("utf-8") == _digest(ROOT / test for test in tests)

    def _lines(self, name: str) -> list[tuple[int, str, str]]:
        path = self.folder / f"{name}.verdicts"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [(one["mutant"], one["test"], one["verdict"]) for one in map(json.loads, lines)]

    def _met(self) -> Mapping[int, set[str]]:
        met: dict[int, set[str]] = {}
        path = self.folder / "met"
        for line in path.read_text("utf-8").splitlines() if path.exists() else []:
            number, _, word = line.partition(" ")
            met.setdefault(int(number), set()).add(word)
        return met

    def tried(self) -> list[Tried]:
        """What became of the mutants of all benches that are done."""
        met, told = self._met(), []
        for name, (tests, numbers) in self.groups().items():
            if not self._is_done(name, tests):
                continue
            lines = self._lines(name)
            for number in numbers:
                own = [(test, verdict) for one, test, verdict in lines if one == number]
                told.append(_judged(number, self.mutants[number], met.get(number, set()), own))
        return told

    def models(self, number: int) -> list[Path]:
        """Folders with the Verilog of the models that a mutant was looked for in."""
        name = next(name for name, (_, numbers) in self.groups().items() if number in numbers)
        return sorted((self.folder / "texts").glob(f"{name}.verdicts/*"))


def _judged(number: int, change: Change, met: set[str], own: list[tuple[str, str]]) -> Tried:
    for verdict in ORDER[:2]:
        for test, said in own:
            if said == verdict:
                return Tried(number, change, verdict, test)
    if "elaborated" not in met:
        word = next(iter(sorted(met)), "")
        return Tried(number, change, {"": "unreached", "refused": "invalid"}.get(word, word), why=word)
    ended = [said for _, said in own if said.startswith("ends with")]
    return Tried(number, change, "invalid" if ended else "survives", why=ended[0] if ended else "")

