"""Which oracle and which bench every hardware unit has, read off the units' docstrings without importing them.

A component's docstring ends with `Golden` and `Tests`: the oracle's functions or classes, and the files of the benches.
What has neither is a part of another component of its file. Where unit, oracle and bench do not have the same path,
the docstring says what stands there instead: a part is tested with its unit, a unit that moves words is held against
the words themselves.

    python -m verif.units       counts them and names what is missing

The site that `make docs` builds has the table of all of them.
"""

import argparse
import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Units, oracles and benches

Every component of `hw` with the oracle that it is held against and the benches that do so, from its docstring.
`hw/x/y.py`, `golden/x/y.py` and `verif/x/test_y.py` belong together; where a path differs,
the component is a part of a larger unit and is tested there, or what it does needs no model beyond the words named.

Of each file: its testpoints, how many of them `make test` runs, how many are waived; the mutants in its table, and
those that `make mutants` draws from; the claims about it that are proven, and asserted in every simulation.

| component | oracle | benches | testpoints | mutants | claims |
|---|---|---|---|---|---|
"""
GOLDEN = re.compile(r"(?:golden|verif)(?:\.\w+)+")
FILES = re.compile(r"(?:verif|tests)/[\w/]+\.py|\btest_\w+\.py")


@dataclass(frozen=True)
class Unit:
    """A component: its file, its class, and what its docstring says of oracle and benches ("" where nothing)."""

    file: str
    name: str
    golden: str
    benches: str

    @property
    def tests(self) -> list[str]:
        """The files of its benches; a name alone lies beside the one before it."""
        found: list[str] = []
        for file in FILES.findall(self.benches):
            found.append(file if "/" in file else f"{found[-1].rpartition('/')[0]}/{file}")
        return found


def _entry(docstring: str, name: str) -> str:
    match = re.search(rf"\b{name} {{2,}}(.*?)(?= {{2,}}Tests\b|\n\w|\Z)", docstring, re.S)
    return " ".join(match[1].split()) if match else ""


def collect(root: Path = ROOT) -> list[Unit]:
    """Every component of hw, in the order of files and lines."""
    units = []
    for path in sorted(root.glob("hw/**/*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if any(ast.unparse(base) in ("wiring.Component", "Component", "Part", "Unit") for base in node.bases):
                text = ast.get_docstring(node) or ""
                units.append(Unit(path.relative_to(root).as_posix(), node.name, _entry(text, "Golden"),
                                  _entry(text, "Tests")))
    return units


def _missing(root: Path, name: str) -> bool:
    """Whether the oracle has no module, function, class or member of this name."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        path = root.joinpath(*parts[:count])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            text = file.read_text("utf-8")
            return not all(re.search(rf"\b{member}\b", text) for member in parts[count:])
    return True


def faults(units: list[Unit], root: Path = ROOT) -> list[str]:
    """What is missing, a sentence each: oracles or benches that are not there, components that nobody tests."""
    found = []
    tested = {unit.file for unit in units if unit.tests}
    for unit in units:
        place = f"{unit.file}, {unit.name}"
        found += [f"{place}: there is no {name}" for name in GOLDEN.findall(unit.golden) if _missing(root, name)]
        found += [f"{place}: there is no {file}" for file in unit.tests if not (root / file).is_file()]
        if unit.tests and not unit.golden:
            found.append(f"{place}: the docstring names benches but no oracle")
        if not unit.tests and unit.file not in tested:
            found.append(f"{place}: no component of this file names a bench")
    return found


@dataclass(frozen=True)
class Evidence:
    """What a file of hw is tried by, besides the words of its docstrings."""

    testpoints: str = ""
    mutants: str = ""
    claims: str = ""


def page(units: list[Unit], known: Mapping[str, Evidence]) -> str:
    """The site's page of units."""
    rows = []
    for unit in units:
        oracle = "part of another component of its file"
        if unit.tests:
            oracle = GOLDEN.sub(lambda match: f"`{match[0]}`", unit.golden)
        benches, tried = " ".join(f"`{file}`" for file in unit.tests), known.get(unit.file, Evidence())
        rows.append(f"| `{unit.file}` {unit.name} | {oracle} | {benches} | {tried.testpoints} | {tried.mutants} | "
                    f"{tried.claims} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> None:
    argparse.ArgumentParser(prog="python -m verif.units", description="Counts units and what they lack.").parse_args()
    units = collect()
    missing = faults(units)
    print("\n".join([*missing, f"{len(units)} components, {len(missing)} faults"]))
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
