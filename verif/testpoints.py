"""The testpoints of every unit, read off its tests without running any.

A test names its testpoint with a marker right above its `def`, in cocotb and in pytest alike; its docstring says what
is driven and what is checked:

    @cocotb.test()
    @pytest.mark.testpoint("read_errors")
    async def errors_of_the_port(dut):
        \"\"\"SLVERR on any beat ends the run with its cause and place.\"\"\"

A test with the name of one of the SEVEN or of FURTHER ones, `test_` aside, needs no marker. A file's unit is its path
in verif without `test_`: verif/tt/test_index.py tests hw/tt/index.py. A file may state another as UNIT: a path in hw,
"path: variant", a tuple of these, or None where its tests belong to no unit or to many; `unit=` in a marker goes
before. WAIVED gives the reason for each of the SEVEN that the file's unit goes without. The site that `make docs`
builds has the table of all of them.

    python -m verif.testpoints              counts them and names what is missing
    python -m verif.testpoints tt/index     prints the testpoints of a unit with what each test does
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Every testpoint

What the tests of every unit try, read off the tests. `from`: the first target that runs one of them.
[Verification](verification.md) describes testpoints and tiers; `python -m verif.testpoints tt/index` prints what each
test of a unit does.

"""
SEVEN = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "illegal_config_wrong")
# What a unit has where it applies: events at every distance that write one register, values about every width that
# might have been cut, a channel that is held up for long, the first of several errors, `idle` with each inner state
# alone, a reset of a single cycle, clients served equally often. verif.bench.directed has the sweeps.
FURTHER = ("coincidences", "top_values", "one_channel_stalled", "first_error_wins", "idle_is_true", "one_cycle_reset",
           "fair_shares")


@dataclass(frozen=True)
class Test:
    """A test, by file and function, and what it says about itself. quick: `make test` runs it, or some of its
    parameters; else only `make regress` does."""

    file: str
    name: str
    about: str
    quick: bool = True


@dataclass
class Unit:
    """A unit's tests by testpoint, and why it goes without the others."""

    tests: dict[str, list[Test]] = field(default_factory=dict)
    waived: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> list[str]:
        """The seven in their order, then the unit's own."""
        names = self.tests | self.waived
        return [name for name in SEVEN if name in names] + [name for name in names if name not in SEVEN]


def _in_hw(root: Path, unit: str) -> bool:
    path = root / "hw" / unit.partition(":")[0]
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _literal(node: ast.expr, place: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"{place}: {ast.unparse(node)} must be a literal") from None


def _units(root: Path, file: str, stated: dict[str, Any]) -> tuple[str, ...]:
    """The units that a file's tests belong to where their markers name none."""
    if "UNIT" in stated:
        units = stated["UNIT"] or ()
        return (units,) if isinstance(units, str) else units
    if not file.startswith("verif/"):
        return ()
    path = Path(file).relative_to("verif")
    unit = path.with_name(path.stem.removeprefix("test_")).as_posix()
    if not _in_hw(root, unit):
        raise ValueError(f"{file}: there is no hw/{unit}.py; state UNIT")
    return (unit,)


def _marked(function: ast.FunctionDef | ast.AsyncFunctionDef, own: tuple[str, ...],
            place: str) -> Iterator[tuple[str, str]]:
    """(unit, testpoint) of a function by its name and its markers."""
    above = [ast.unparse(decorator) for decorator in function.decorator_list]
    in_cocotb = any(text.startswith("cocotb.test") for text in above)
    is_test = in_cocotb or function.name.startswith("test_")
    if is_test and (name := function.name.removeprefix("test_")) in SEVEN + FURTHER:
        yield from ((unit, name) for unit in own)
    for number, marker in enumerate(function.decorator_list):
        if not isinstance(marker, ast.Call) or ast.unparse(marker.func) != "pytest.mark.testpoint":
            continue
        if not is_test:
            raise ValueError(f"{place}: a testpoint marks what is no test")
        if any(text.startswith("cocotb.") for text in above[number:]):
            raise ValueError(f"{place}: the marker belongs below cocotb's decorators, which would lose the test")
        units = own
        for keyword in marker.keywords:
            if keyword.arg != "unit":
                raise ValueError(f"{place}: a testpoint has no {keyword.arg}")
            units = _literal(keyword.value, place)
        if not marker.args or not units:
            raise ValueError(f"{place}: a testpoint needs a name, and a unit where the file has none")
        for name in (_literal(argument, place) for argument in marker.args):
            yield from ((unit, name) for unit in ((units,) if isinstance(units, str) else units))


def _is_quick(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not any(ast.unparse(decorator).startswith("pytest.mark.regress") for decorator in function.decorator_list)


def _has_quick_bench(tree: ast.Module) -> bool:
    """Whether one of a file's pytest functions, which start its cocotb tests, runs in `make test`."""
    started = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return not started or any(map(_is_quick, started))


def collect(root: Path = ROOT) -> dict[str, Unit]:
    """Every unit that a bench in `verif` or a test in `tests` belongs to, by its path in hw.

    Raises      ValueError: a marker, UNIT or WAIVED that says what cannot be, with its place
    """
    units: dict[str, Unit] = {}
    for path in sorted([*root.glob("verif/**/test_*.py"), *root.glob("tests/**/test_*.py")]):
        file = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        stated = {node.targets[0].id: _literal(node.value, file) for node in tree.body
                  if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                  and node.targets[0].id in ("UNIT", "WAIVED")}
        own = _units(root, file, stated)
        for unit in own:
            units.setdefault(unit, Unit()).waived |= stated.get("WAIVED", {})
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            about = " ".join((ast.get_docstring(node) or "").split())
            # A marker that repeats what the name says counts once.
            for unit, point in dict.fromkeys(_marked(node, own, f"{file}::{node.name}")):
                tests = units.setdefault(unit, Unit()).tests.setdefault(point, [])
                quick = _is_quick(node) and (isinstance(node, ast.FunctionDef) or _has_quick_bench(tree))
                tests.append(Test(file, node.name, about, quick))
    for unit in units:
        if not _in_hw(root, unit):
            raise ValueError(f"there is no hw/{unit.partition(':')[0]}.py, which a test names as its unit")
    return units


def faults(units: dict[str, Unit]) -> list[str]:
    """What is missing, a sentence each: testpoints without test or reason, tests without description."""
    found = []
    for name, unit in sorted(units.items()):
        for point in SEVEN:
            if point not in unit.points:
                found.append(f"{name}: no test of {point}, and no reason in WAIVED")
        for point, reason in unit.waived.items():
            if point not in SEVEN or point in unit.tests:
                found.append(f"{name}: {point} is waived, but is none of the seven or has a test")
            if len(reason.split()) < 6 or not reason.endswith("."):
                found.append(f"{name}: the reason why {point} is waived must be a sentence, not {reason!r}")
        for test in {test for tests in unit.tests.values() for test in tests}:
            if not test.about.endswith("."):
                found.append(f"{test.file}::{test.name}: a testpoint's test needs a sentence as docstring")
    return found


def page(units: dict[str, Unit]) -> str:
    """The site's page of testpoints, a row each: unit, testpoint, the first target that runs it, tests or the reason
    why there is none."""
    rows = ["| unit | testpoint | from | tests |", "|---|---|---|---|"]
    for name, unit in sorted(units.items()):
        for point in unit.points:
            tests = unit.tests.get(point, ())
            tier = "test" if any(test.quick for test in tests) else "regress" if tests else ""
            shown = " ".join(f"`{test.file}::{test.name}`" for test in tests) or f"waived: {unit.waived[point]}"
            rows.append(f"| {name} | {point} | {tier} | {shown} |")
    return HEAD + "\n".join(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m verif.testpoints", description="Testpoints of units.")
    parser.add_argument("units", nargs="*", help="whose tests are listed (default: counts, and what is missing)")
    names, units = parser.parse_args(arguments).units, collect()
    for name in names:
        if name not in units:
            parser.error(f"no test belongs to {name!r}; the units are {', '.join(sorted(units))}")
        print(name)
        for point in units[name].points:
            print(f"  {point}" + (f": waived. {units[name].waived[point]}" if point in units[name].waived else ""))
            for test in units[name].tests.get(point, ()):
                print(f"    {test.file}::{test.name}: {test.about}")
    if not names:
        points = sum(len(unit.points) for unit in units.values())
        tests = {test for unit in units.values() for tests in unit.tests.values() for test in tests}
        missing = faults(units)
        print("\n".join([*missing, f"{len(units)} units, {points} testpoints, {len(tests)} tests, "
                         f"{sum(len(unit.waived) for unit in units.values())} waived, {len(missing)} faults"]))
        sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
