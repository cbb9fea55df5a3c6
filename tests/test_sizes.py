"""Functions have at most 100 lines and files at most 450."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION, FILE = 100, 450   # lines


def too_long(text: str, name: str) -> list[str]:
    found = [f"{name}: {lines} lines" for lines in [len(text.splitlines())] if lines > FILE]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION:
                found.append(f"{name}, {node.name}: {lines} lines")
    return found


@pytest.mark.parametrize("package", ["hw", "golden", "gen", "fpga", "hotrail"])
def test_functions_and_files_are_short(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    assert [each for file in files for each in too_long(file.read_text(), str(file.relative_to(ROOT)))] == []


def test_what_is_too_long_is_named():
    body = "    pass\n" * FUNCTION
    assert too_long(f"def f():\n{body}", "a.py") == [f"a.py, f: {FUNCTION + 1} lines"]
    assert too_long("\n" * FILE, "a.py") == [] and too_long("\n" * (FILE + 1), "a.py") == [f"a.py: {FILE + 1} lines"]
