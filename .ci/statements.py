#!/usr/bin/env python3
"""The shape of statements in hw: one a line, found and with --fix rewritten.

Up to three assignments to a domain are statements of their own; a longer list has one element a line, between its
brackets; nothing follows a semicolon or the colon of a block. A signal is made in a statement of its own, or is given a
name: Amaranth finds none where several are assigned at once, and the Verilog says `$signal`. And nothing is born on
`self` outside __init__: what one method makes and another needs is passed, which --fix leaves to the author.

Usage: .ci/statements.py [--fix] [FILE or FOLDER ...]      default: hw
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
WIDTH = RUFF["line-length"]                             # of a line that is put together
LIMIT = RUFF["lint"]["pycodestyle"]["max-line-length"]  # of any line
INDENT = 4
SHORT = 3       # a list of so many assignments is longer than the assignments alone
Edit = tuple[int, int, str]     # what replaces the text from one offset to another


def is_assignment(node: ast.AST) -> bool:
    """Whether an element of a list is `x.eq(y)`, or many of them out of a generator."""
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        node = node.elt
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "eq"


class Source:
    """A text with its syntax tree and its comments, which the tree lacks."""

    def __init__(self, text: str):
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Its offsets; columns of the tree count bytes."""
        begin = len(self.lines[node.lineno - 1].encode()[:node.col_offset].decode())
        end = len(self.lines[node.end_lineno - 1].encode()[:node.end_col_offset].decode())
        return self.starts[node.lineno - 1] + begin, self.starts[node.end_lineno - 1] + end

    def indent(self, line: int) -> int:
        return len(self.lines[line - 1]) - len(self.lines[line - 1].lstrip())

    def lead(self, node: ast.AST) -> str:
        """What is before it on its line."""
        return self.text[self.starts[node.lineno - 1]:self.span(node)[0]].rstrip()

    def moved(self, node: ast.AST, column: int, behind: int = 0) -> str:
        """Its text to stand at another column: on one line where that fits with what is behind it."""
        begin, end = self.span(node)
        first, *rest = self.text[begin:end].split("\n")
        shift = column - (begin - self.starts[node.lineno - 1])
        if not rest or not shift:
            return self.text[begin:end]
        if not any(line in self.comments for line in range(node.lineno, node.end_lineno)):
            joined = re.sub(r"(?<=[(\[{])\s*\n\s*|,?\s*\n\s*(?=[)\]}])", "", self.text[begin:end])
            joined = re.sub(r"\s*\n\s*", " ", joined)
            if column + len(joined) + behind <= WIDTH:
                return joined
        shift = max(shift, column + INDENT - min(len(line) - len(line.lstrip()) for line in rest))
        return "\n".join([first, *(" " * (len(line) - len(line.lstrip()) + shift) + line.lstrip() for line in rest)])


def rows(source: Source, node: ast.List | ast.Tuple, column: int, before: str, behind: str) -> list[str]:
    """Its elements, each for a line of its own. A comment stays behind its element or above the next."""
    result = []
    line = node.lineno      # whose comment is next
    for at, element in enumerate(node.elts):
        result += [source.comments[n] for n in range(line, element.lineno) if n in source.comments]
        row = before + source.moved(element, column + len(before), len(behind)) + behind
        if column + len(row.split("\n")[0]) > LIMIT and is_assignment(element) and isinstance(element, ast.Call):
            target = source.text[slice(*source.span(element.func))]
            value = source.moved(element.args[0], column + INDENT, len(behind) + 1)
            row = f"{before}{target}(\n{' ' * (column + INDENT)}{value}){behind}"
        line = element.end_lineno
        ends = at + 1 == len(node.elts) or node.elts[at + 1].lineno > line
        if ends and line in source.comments and line < node.end_lineno:
            row += "  " + source.comments[line]
            line += 1
        result.append(row)
    return result + [source.comments[n] for n in range(line, node.end_lineno) if n in source.comments]


def unwrap(source: Source, node: ast.AugAssign) -> Edit:
    """`domain += [x.eq(y), ...]` without its brackets."""
    indent = source.indent(node.lineno)
    start = source.starts[node.lineno - 1] + indent
    begin, end = source.span(node.value)
    return start, end, ("\n" + " " * indent).join(rows(source, node.value, indent, source.text[start:begin], ""))


def spread(source: Source, node: ast.List | ast.Tuple) -> Edit:
    """A list with one element a line."""
    begin, end = source.span(node)
    indent = source.indent(node.lineno)
    gap = "\n" + " " * (indent + INDENT)
    opening, closing = "[]" if isinstance(node, ast.List) else "()"
    body = gap.join([opening, *rows(source, node, indent + INDENT, "", ",")])
    return begin, end, f"{body}\n{' ' * indent}{closing}"


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


def part(source: Source, node: ast.Assign) -> Edit | None:
    """`a, b = x, y` as two statements, where y does not ask for what a was before; and `a, b = (x for _ in ...)`."""
    targets, values = node.targets[0].elts, getattr(node.value, "elts", ())
    if isinstance(node.value, ast.GeneratorExp) and ast.unparse(node.value.generators[0].target) == "_":
        values = [node.value.elt] * len(targets)
    if len(targets) != len(values) or any(isinstance(each, ast.Starred) for each in targets):
        return None
    for number, target in enumerate(targets):
        before = ast.unparse(target)
        if any(ast.unparse(inner) == before for value in values[number + 1:] for inner in ast.walk(value)):
            return None
    indent = source.indent(node.lineno)
    lines = [source.comments[line] for line in range(node.lineno, node.end_lineno + 1) if line in source.comments]
    for target, value in zip(targets, values):
        head = f"{source.text[slice(*source.span(target))]} = "
        lines.append(head + source.moved(value, indent + len(head)))
    begin, end = source.span(node)
    if node.end_lineno in source.comments:
        end = source.starts[node.end_lineno] - 1
    return begin, end, ("\n" + " " * indent).join(lines)


def is_short(node: ast.List | ast.Tuple) -> bool:
    return 0 < len(node.elts) <= SHORT and all(is_assignment(e) and isinstance(e, ast.Call) for e in node.elts)


def is_packed(node: ast.List | ast.Tuple) -> bool:
    """Whether an assignment in a list begins on the line where the one before it, or the bracket, ends."""
    begins = [*(element.lineno for element in node.elts), node.end_lineno]
    ends = [node.lineno, *(element.end_lineno for element in node.elts)]
    return len(node.elts) > 1 and any(map(is_assignment, node.elts)) and any(a == b for a, b in zip(begins, ends))


def edits(source: Source) -> list[tuple[int, str, Edit]]:
    """(line, what is wrong with it, what mends it)."""
    found = []
    unwrapped = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List | ast.Tuple) and is_short(node.value):
            found.append((node.lineno, "a list of few assignments", unwrap(source, node)))
            unwrapped.add(node.value)
        elif isinstance(node, ast.List | ast.Tuple) and node not in unwrapped and is_packed(node):
            found.append((node.lineno, "several assignments on a line", spread(source, node)))
        elif has_nameless(node) and (edit := part(source, node)):
            found.append((node.lineno, "several signals in a statement, which have no names then", edit))
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, ())
            if not isinstance(block, list) or not block:
                continue
            leads = [source.lead(statement) for statement in block]
            indent = source.indent(block[0].lineno) + INDENT * leads[0].endswith(":")
            for statement, lead in zip(block, leads):
                if lead:
                    gap = source.starts[statement.lineno - 1] + len(lead.rstrip(";"))
                    edit = gap, source.span(statement)[0], "\n" + " " * indent
                    found.append((statement.lineno, "a statement behind another", edit))
    return found


def born(source: Source) -> list[tuple[int, str]]:
    """(line, what is wrong with it) of every attribute that a method other than __init__ makes."""
    found = []
    for method in (n for c in ast.walk(source.tree) if isinstance(c, ast.ClassDef) for n in c.body):
        if isinstance(method, ast.FunctionDef) and method.name not in ("__init__", "__post_init__"):
            found += [(node.lineno, f"self.{node.attr} is born outside __init__") for node in ast.walk(method)
                      if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                      and isinstance(node.value, ast.Name) and node.value.id == "self"]
    return found


def nameless(source: Source) -> list[tuple[int, str]]:
    """(line, what is wrong with it) of every statement that makes signals without names."""
    several = [(node.lineno, "several signals in a statement, which have no names then")
               for node in ast.walk(source.tree) if has_nameless(node) and not part(source, node)]
    handed = [(node.lineno, f"the signal that is handed on as {node.arg} has no name") for node in ast.walk(source.tree)
              if isinstance(node, ast.keyword) and node.arg and is_nameless(node.value)]
    return several + handed


def fixed(text: str) -> str:
    """With one statement a line."""
    while True:
        source = Source(text)
        end = len(text) + 1
        for begin, until, new in sorted((edit for _, _, edit in edits(source)), reverse=True):
            if until <= end:
                text = text[:begin] + new + text[until:]
                end = begin
        if text == source.text:
            return text


def main(arguments: list[str]) -> int:
    fix = "--fix" in arguments
    roots = [Path(a) for a in arguments if a != "--fix"] or [ROOT / "hw"]
    wrong = 0
    for path in sorted(p for root in roots for p in (root.rglob("*.py") if root.is_dir() else [root])):
        text = path.read_text("utf-8")
        if fix:
            path.write_text(fixed(text), "utf-8")
            continue
        source = Source(text)
        for line, what in sorted([*((line, what) for line, what, _ in edits(source)), *born(source),
                                  *nameless(source)]):
            wrong += 1
            print(f"{path}:{line}: {what}")
    if wrong:
        print(f"{wrong} found; .ci/statements.py --fix rewrites statements")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
