"""The reference of the public interface: today's, of every name, as it is called."""

import ast

import pytest

import hotrail
from hotrail.report import reference


def test_the_page_is_todays():
    text = reference.page()
    assert reference.PAGE.read_text("utf-8") == text, "run python -m hotrail.report.reference"
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == hotrail.__all__
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("code, wanted", [
    ("def f(self, a: int, b=1, *, c: str='x', **d: int) -> str: ...",
     "f(a: int, b=1, *, c: str = 'x', **d: int) -> str"),
    ("def f(*a: int, b): ...", "f(*a: int, b)"), ("def f(): ...", "f()"),
    ("class f:\n    a: int\n    b: int = 1\n    def g(self): ...", "f(a: int, b: int = 1)"),
    ("class f:\n    a: int\n    def __init__(self, x): ...", "f(x)"),
    ("@property\ndef f(self) -> int: ...", "f -> int")])
def test_signatures(code, wanted):
    assert reference._signature(ast.parse(code).body[0], "f") == wanted


def test_long_signatures_are_folded():
    code = f"def f({', '.join(f'argument_{k}: int' for k in range(9))}): ..."
    lines = reference._signature(ast.parse(code).body[0], "name").splitlines()
    assert len(lines) > 1 and all(len(line) <= reference.WIDE for line in lines)
    assert lines[1].startswith("     argument_") and lines[-1].endswith("int)")
