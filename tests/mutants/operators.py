"""Mutants by operator: small changes to the text of any file of hw, drawn instead of written by hand.

An operator changes one place of a statement that assigns to a domain: an operation, a comparison, a constant, an arm of
a choice, an inversion, a reset, or the whole statement. Units whose table lists mutants by hand have these as well.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.mutants.mutant import ROOT
from verif import units

BINARY = {ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"), ast.Add: ("+", "-"),
          ast.Sub: ("-", "+")}
COMPARED = {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"),
            ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
REDUCED = {"any": "all", "all": "any"}


@dataclass(frozen=True)
class Change:
    """A part of a file's text, from `begin` to `end`, and what stands there instead. outer: the part of the text that
    is evaluated anew with it: the value of an assignment, a condition, or a signal's declaration, which `kind` says."""

    file: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    kind: str = ""
    outer: tuple[int, int] = (0, 0)

    @property
    def why(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def applied(self, text: str) -> str:
        return text[:self.begin] + self.new + text[self.end:]


class _Text:
    """A file's text by the lines and columns of its syntax tree."""

    def __init__(self, file: str):
        self.file, self.text = file, (ROOT / file).read_text("utf-8")
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        begin = self.starts[line - 1]
        return begin + len(self.text[begin:self.starts[line]].encode()[:column].decode())

    def change(self, line: int, begin: int, end: int, new: str) -> Change:
        return Change(self.file, line, begin, end, self.text[begin:end], new)

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str, line: int) -> Change | None:
        """An operator between two operands."""
        begin, end = self.span(left)[1], self.span(right)[0]
        at = self.text.find(old, begin, end)
        return None if at < 0 else self.change(line, at, at + len(old), new)


def _of_expression(text: _Text, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield text.between(node.left, node.right, *BINARY[type(node.op)], node.lineno)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        yield text.between(node.left, node.comparators[0], *COMPARED[type(node.ops[0])], node.lineno)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        begin, _ = text.span(node)
        yield text.change(node.lineno, begin, begin + 1, "")
    elif isinstance(node, ast.Call):
        yield from _of_call(text, node)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield text.change(node.lineno, *text.span(node), "0" if node.value == 1 else str(node.value + 1))


def _of_call(text: _Text, node: ast.Call) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    begin, end = text.span(node)
    if name == "Mux" and len(node.args) == 3:
        choice, yes, no = (text.text[slice(*text.span(part))] for part in node.args)
        yield text.change(node.lineno, begin, end, f"Mux({choice}, {no}, {yes})")
    elif name in REDUCED and not node.args and isinstance(node.func, ast.Attribute):
        at = text.text.rindex(f".{name}", begin, end)
        yield text.change(node.lineno, at, at + len(name) + 1, f".{REDUCED[name]}")


def _assigns(node: ast.stmt) -> bool:
    """Whether it is m.d.sync += ... or m.d.comb += ..."""
    return isinstance(node, ast.AugAssign) and ast.unparse(node.target).startswith("m.d.")


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Of m.If(...) and m.Elif(...)."""
    if isinstance(node, ast.With):
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("m.If", "m.Elif"):
                yield from call.args


def _born(text: _Text, node: ast.AST) -> Iterator[Change]:
    """A signal that keeps its value through a reset, or that does not."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Signal":
        call = node.value
        begin, end = text.span(call)
        if any(keyword.arg == "reset_less" for keyword in call.keywords):
            return
        shown = text.text[begin:end - 1].rstrip().rstrip(",")
        yield text.change(call.lineno, begin, end, f"{shown}{'' if shown.endswith('(') else ', '}reset_less=True)")


@cache
def changes(file: str) -> tuple[Change, ...]:
    """All mutants of a file of hw, in the order of its lines."""
    text, found = _Text(file), []
    for node in ast.walk(ast.parse(text.text)):
        found += [replace(change, kind="declaration", outer=(change.begin, change.end))
                  for change in _born(text, node)]
        parts = [("condition", part) for part in _conditions(node)]
        if isinstance(node, ast.stmt) and _assigns(node):
            assert isinstance(node, ast.AugAssign)
            parts.append(("value", node.value))
            span = text.span(node.value)
            found.append(replace(text.change(node.lineno, *span, "[]"), kind="value", outer=span))
        for kind, part in parts:
            found += [replace(change, kind=kind, outer=text.span(part)) for inner in ast.walk(part)
                      for change in _of_expression(text, inner) if change is not None]
    return tuple(sorted({change for change in found if change.old != change.new},
                        key=lambda change: (change.begin, change.end, change.new)))


def benches() -> dict[str, tuple[str, ...]]:
    """The benches of every file of hw that has some: of its components, from the docstrings; of one without, those of
    the files that import it."""
    of_file: dict[str, list[str]] = {}
    for unit in units.collect():
        of_file.setdefault(unit.file, []).extend(file for file in unit.tests if file.startswith("verif/"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted((ROOT / "hw").rglob("*.py"))}

    def of(file: str) -> list[str]:
        if file not in of_file:
            name = file.removesuffix(".py").replace("/", ".")
            lines = f"\nfrom {name} import ", f"\nfrom .{Path(file).stem} import "
            of_file[file] = [test for other, text in texts.items() if lines[0] in text or (
                lines[1] in text and Path(other).parent == Path(file).parent) for test in of(other)]
        return of_file[file]

    return {file: tuple(dict.fromkeys(of(file))) for file in texts if of(file)}


def files() -> list[str]:
    """The files of hw that have state and a bench."""
    known = benches()
    return sorted(file for file in known if "m.d.sync" in Path(ROOT / file).read_text("utf-8"))
