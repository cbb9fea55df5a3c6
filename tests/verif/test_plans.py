"""The test plans: each unit's seven testpoints, and the tests that they name exist.

A plan is a TOML file: `unit` (the class, importable) and a list of `testpoint` tables with `name`, `what`,
and either `tests`, a list of "file::function", or `waived`, the reason why there is none.
"""
import ast
import importlib
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted((ROOT / "verif" / "plans").glob("*.toml"))
SEVEN = {"smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "illegal_config_wrong"}


@cache
def _functions(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plan(path):
    plan = tomllib.loads(path.read_text())
    assert set(plan) == {"unit", "testpoint"}
    module, _, name = plan["unit"].rpartition(".")
    assert hasattr(importlib.import_module(module), name), f"{path.name}: there is no {plan['unit']}"
    names = [point["name"] for point in plan["testpoint"]]
    assert len(set(names)) == len(names), f"{path.name}: a testpoint is there twice"
    assert set(names) >= SEVEN, f"{path.name}: without {', '.join(sorted(SEVEN - set(names)))}"
    for point in plan["testpoint"]:
        here = f"{path.name}, {point['name']}"
        assert set(point) in ({"name", "what", "tests"}, {"name", "what", "waived"}), here
        assert point["what"].endswith("."), f"{here}: `what` is a sentence"
        if "waived" in point:
            assert len(point["waived"].split()) >= 6, f"{here}: `waived` gives the reason"
            continue
        assert point["tests"], f"{here}: no tests"
        for test in point["tests"]:
            file, _, function = test.partition("::")
            assert function in _functions(file), f"{here}: there is no {test}"


def test_plans_are_found():
    assert PLANS, "no plans under verif/plans"
