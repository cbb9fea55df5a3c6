"""The formatter of `make lint`: one statement a line in hw, and nothing born outside __init__."""

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

LONG = "+".join(["operand"] * 13)
# What is written -> what it becomes.
CASES = {
    "two on a line": (
        "m.d.sync += [a.eq(b), c.eq(d)]\n",
        "m.d.sync += a.eq(b)\nm.d.sync += c.eq(d)\n"),
    "one in a list": (
        "m.d.comb += [a.eq(f(b,\n                    c))]\n",
        "m.d.comb += a.eq(f(b, c))\n"),
    "four, one of them over two lines": (
        "if x:\n    m.d[domain] += [\n        a.eq(b), c.eq(d),\n        e.eq(f(g,\n               h)), i.eq(j)]\n",
        "if x:\n    m.d[domain] += [\n        a.eq(b),\n        c.eq(d),\n        e.eq(f(g,\n               h)),\n"
        "        i.eq(j),\n    ]\n"),
    "comments": (
        "m.d.comb += [\n    # Above.\n    a.eq(b), c.eq(d),  # behind\n    e.eq(f), g.eq(h),\n    # At the end.\n]\n",
        "m.d.comb += [\n    # Above.\n    a.eq(b),\n    c.eq(d),  # behind\n    e.eq(f),\n    g.eq(h),\n"
        "    # At the end.\n]\n"),
    "comments of a short list": (
        "m.d.comb += [\n    # Above.\n    a.eq(b),  # behind\n]\n",
        "# Above.\nm.d.comb += a.eq(b)  # behind\n"),
    "many out of a generator": (
        "m.d.sync += [*(a.eq(0) for a in b), c.eq(d)]\n",
        "m.d.sync += [\n    *(a.eq(0) for a in b),\n    c.eq(d),\n]\n"),
    "a list that is returned": (
        "def f():\n    return [a.eq(b), c.eq(d)]\n",
        "def f():\n    return [\n        a.eq(b),\n        c.eq(d),\n    ]\n"),
    "a list in a list": (
        "m.d.sync += [f([a.eq(b), c.eq(d)]), e.eq(0)]\n",
        "m.d.sync += [\n    f([\n        a.eq(b),\n        c.eq(d),\n    ]),\n    e.eq(0),\n]\n"),
    "not in ASCII": (
        'm.d.sync += [a.eq("§"), c.eq("§§"), e.eq(f), g.eq(h)]\n',
        'm.d.sync += [\n    a.eq("§"),\n    c.eq("§§"),\n    e.eq(f),\n    g.eq(h),\n]\n'),
    "too long for a line": (
        f"m.d.sync += [\n    target.eq({LONG})\n]\n",
        f"m.d.sync += target.eq(\n    {LONG})\n"),
    "a block on its head's line": (
        "with m.If(a): m.d.sync += b.eq(c); d = 1\n",
        "with m.If(a):\n    m.d.sync += b.eq(c)\n    d = 1\n"),
    "else on its line": (
        "if a: b = 1\nelif c: d = 1\nelse: e = 1; f = 1\n",
        "if a:\n    b = 1\nelif c:\n    d = 1\nelse:\n    e = 1\n    f = 1\n"),
    "several signals": (
        "a, b = Signal(), Signal(c)     # two\n",
        "# two\na = Signal()\nb = Signal(c)\n"),
    "a signal beside another value": (
        "def f():\n    a, b = [], Signal.like(c,\n                             reset_less=True)\n",
        "def f():\n    a = []\n    b = Signal.like(c, reset_less=True)\n"),
    "signals out of a generator": (
        "a, b = (Signal() for _ in range(2))\n",
        "a = Signal()\nb = Signal()\n"),
    "a semicolon": ("a = 1; b = 2\n", "a = 1\nb = 2\n"),
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
"""


def flat(text: str) -> list[str]:
    """Its statements, each assignment of a list and each signal by itself: what the formatter must keep."""

    class Flat(ast.NodeTransformer):
        def visit_AugAssign(self, node):
            whole = isinstance(node.value, ast.List) and all(isinstance(e, ast.Call) for e in node.value.elts)
            return [ast.AugAssign(node.target, node.op, e) for e in node.value.elts] if whole else node

        def visit_Assign(self, node):
            if not statements.has_nameless(node):
                return node
            targets = node.targets[0].elts
            values = getattr(node.value, "elts", None) or [node.value.elt] * len(targets)
            return [ast.Assign([ast.Name(target.id, ast.Store())], value) for target, value in zip(targets, values)]

    return [ast.dump(node) for node in Flat().visit(ast.parse(text)).body]


@pytest.mark.parametrize("case", CASES)
def test_finds_and_fixes(case):
    before, after = CASES[case]
    assert statements.edits(statements.Source(before))
    assert statements.fixed(before) == after
    assert flat(before) == flat(after)
    assert not statements.edits(statements.Source(after))
    assert statements.fixed(after) == after


def test_what_is_right_stays():
    assert not statements.edits(statements.Source(CLEAN))
    assert statements.fixed(CLEAN) == CLEAN


def test_signals_without_a_name_that_no_fix_can_give_one():
    """They would ask for what another was before, there are as many as a generator has, or they are handed on."""
    text = "a, b = Signal(), f(a)\na, b = (Signal(k) for k in c)\nf(valid=Signal(), ready=Signal(name='ready'))\n"
    assert [line for line, _ in statements.nameless(statements.Source(text))] == [1, 2, 3]
    assert statements.fixed(text) == text


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
    assert sorted(statements.born(statements.Source(text))) == [
        (line, f"self.{name} is born outside __init__") for line, name in ((8, "b"), (9, "e"), (10, "h"), (11, "i"))]


def test_the_command(tmp_path):
    def run(*arguments):
        done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout

    path = tmp_path / "unit.py"
    path.write_text("x = 1\nm.d.sync += [a.eq(b), c.eq(d)]\n\n\nclass A:\n    def b(self):\n        self.c = 1\n")
    status, said = run(tmp_path)
    assert status == 1 and f"{path}:2: a list of few assignments" in said
    assert f"{path}:7: self.c is born outside __init__" in said and "2 found" in said
    assert run("--fix", path) == (0, "")
    status, said = run(path)
    assert status == 1 and "1 found" in said


def test_hw_has_one_statement_a_line():
    assert statements.main([]) == 0
