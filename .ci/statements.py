#!/usr/bin/env python3
"""The shape of statements in hw, which ruff does not know.

Up to three assignments to a domain are statements of their own; a longer list has one element a line, between its
brackets. A signal is made in a statement of its own, or is given a name: Amaranth finds none where several are assigned
at once, and the Verilog says `$signal`. And nothing is born on `self` outside __init__: what one method makes and
another needs is passed.

Usage: .ci/statements.py [FILE or FOLDER ...]      default: hw
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORT = 3       # a list of so many assignments is longer than the assignments alone
SEVERAL = "several signals in a statement, which have no names then"


def is_assignment(node: ast.AST) -> bool:
    """Whether an element of a list is `x.eq(y)`, or many of them out of a generator."""
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        node = node.elt
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "eq"


def is_short(node: ast.AST) -> bool:
    return (isinstance(node, ast.List | ast.Tuple) and 0 < len(node.elts) <= SHORT
            and all(is_assignment(element) and isinstance(element, ast.Call) for element in node.elts))


def is_packed(node: ast.AST) -> bool:
    """Whether an assignment in a list begins on the line where the one before it, or the bracket, ends."""
    if not isinstance(node, ast.List | ast.Tuple) or len(node.elts) < 2 or not any(map(is_assignment, node.elts)):
        return False
    begins = [*(element.lineno for element in node.elts), node.end_lineno]
    ends = [node.lineno, *(element.end_lineno for element in node.elts)]
    return any(begin == end for begin, end in zip(begins, ends))


def is_nameless(node: ast.AST) -> bool:
    """Whether it is a signal, or many of them out of a generator, without a name of its own."""
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        node = node.elt
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("Signal", "Signal.like"):
        return False
    return all(keyword.arg != "name" for keyword in node.keywords)


def has_nameless(node: ast.AST) -> bool:
    """Whether it assigns signals without a name to several targets at once."""
    return (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            and any(map(is_nameless, node.value.elts if isinstance(node.value, ast.Tuple) else [node.value])))


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what is wrong with it), in no order."""
    short = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and is_short(node.value):
            short.add(node.value)
            yield node.lineno, "a list of few assignments"
        elif is_packed(node) and node not in short:
            yield node.lineno, "several assignments on a line"
        elif has_nameless(node):
            yield node.lineno, SEVERAL
        elif isinstance(node, ast.keyword) and node.arg and is_nameless(node.value):
            yield node.lineno, f"the signal that is handed on as {node.arg} has no name"
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name not in ("__init__", "__post_init__"):
                    yield from born(method)


def born(method: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Of every attribute that a method makes."""
    for node in ast.walk(method):
        if (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.lineno, f"self.{node.attr} is born outside __init__"


def main(arguments: list[str]) -> int:
    roots = [Path(argument) for argument in arguments] or [ROOT / "hw"]
    wrong = 0
    for path in sorted(p for root in roots for p in (root.rglob("*.py") if root.is_dir() else [root])):
        for line, what in sorted(faults(ast.parse(path.read_text("utf-8")))):
            wrong += 1
            print(f"{path}:{line}: {what}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
