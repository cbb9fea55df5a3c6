"""The shape of statements that `make lint` asks for in hw: one a line, signals named, nothing born outside __init__."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "statements.py"
spec = importlib.util.spec_from_file_location("statements", SCRIPT)
statements = importlib.util.module_from_spec(spec)
spec.loader.exec_module(statements)

FEW, PACKED = "a list of few assignments", "several assignments on a line"
CASES = {
    "m.d.sync += [a.eq(b), c.eq(d)]": FEW,
    "m.d.comb += [\n    # Above.\n    a.eq(b),  # behind\n]": FEW,
    "m.d.comb += [\n    a.eq(b), c.eq(d),\n    e.eq(f),\n    g.eq(h),\n]": PACKED,
    "m.d.comb += [a.eq(b),\n    c.eq(d),\n    e.eq(f),\n    g.eq(h),\n]": PACKED,
    "m.d.sync += [*(a.eq(0) for a in b), c.eq(d)]": PACKED,
    "def f():\n    return [a.eq(b), c.eq(d)]": PACKED,
    "m.d.sync += [\n    f([a.eq(b), c.eq(d)]),\n    e.eq(0),\n]": PACKED,
    "a, b = Signal(), Signal(c)": statements.SEVERAL,
    "a, b = [], Signal.like(c)": statements.SEVERAL,
    "a, b = (Signal(k) for k in c)": statements.SEVERAL,
    "f(valid=Signal())": "the signal that is handed on as valid has no name",
}
CLEAN = """\
m.d.comb += a.eq(b)
m.d.comb += [
    a.eq(f(b,
           c)),
    d.eq(e),
    *constants(bus),
    g.eq(h),
]
m.d.sync += [a.eq(0) for a in b]
pairs = [(a, b), (c, d)]
a, b = Signal(name="first"), Signal(name="second")
f(ready=Signal(name="ready"))
"""


def found(text):
    return sorted(statements.faults(ast.parse(text)))


@pytest.mark.parametrize("text", CASES)
def test_finds(text):
    assert [what for _, what in found(text)] == [CASES[text]]


def test_what_is_right_stays():
    assert found(CLEAN) == []


def test_what_is_born_outside_init():
    text = """\
class Unit:
    def __init__(self):
        self.config = 1

    def elaborate(self):
        self.config.depth = 1
        part.level = 2
        a, (self.b, c[0]) = self.config, d
        for self.e in self.f:
            with g() as self.h:
                self.i += 1
"""
    assert found(text) == [
        (line, f"self.{name} is born outside __init__") for line, name in ((8, "b"), (9, "e"), (10, "h"), (11, "i"))]


def test_the_command(tmp_path):
    path = tmp_path / "unit.py"
    path.write_text("x = 1\nm.d.sync += [a.eq(b), c.eq(d)]\n", "utf-8")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, f"{path}:2: {FEW}\n")

