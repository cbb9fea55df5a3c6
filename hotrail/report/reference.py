"""The reference of the public interface, off its docstrings and signatures.

    python -m hotrail.report.reference      # docs/reference/python.md anew
"""

import ast
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import hotrail

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "python.md"
WIDE = 100          # of a signature's line
HEAD = """# The Python interface, name by name

What `import hotrail` gives, written off its docstrings by `python -m hotrail.report.reference`.
[Python](../python.md) has the same by task.
"""

Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """docs/reference/python.md as text."""
    parts = [HEAD]
    for name in hotrail.__all__:
        found = _found(name, hotrail._WHERE[name])
        parts.append(f"## {name}\n" if found else f"## {name}\n\nOne of the memories that a row may be in.\n")
        parts += _described(found, name) if found else []
    return "\n".join(parts)


def _found(name: str, module: str) -> Definition | None:
    """The definition behind a name, through what modules hand on; None: a constant."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and any(name in (each.asname, each.name) for each in node.names):
            base = module.split(".")[:len(module.split(".")) - node.level + place.is_dir()] if node.level else []
            return _found(name, ".".join([*base, *([node.module] if node.module else [])]))
    return None


def _described(found: Definition, name: str) -> Iterator[str]:
    yield _fence(found, name)
    for method in found.body if isinstance(found, ast.ClassDef) else ():
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method) and (
                not method.name.startswith("_") or method.name == "__call__"):
            yield _fence(method, f"{name}.{method.name}")


def _fence(found: Definition, name: str) -> str:
    return f"```text\n{_signature(found, name)}\n\n{cleandoc(ast.get_docstring(found) or '')}\n```\n"


def _signature(found: Definition, name: str) -> str:
    """As it is called; of a dataclass its fields."""
    if isinstance(found, ast.ClassDef):
        made = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        fields = [ast.unparse(each) for each in found.body if isinstance(each, ast.AnnAssign)]
        if not made:
            return _folded(name, fields, "")
        found = made[0]
    if any(isinstance(each, ast.Name) and each.id == "property" for each in found.decorator_list):
        return f"{name} -> {ast.unparse(found.returns)}" if found.returns else name
    arguments = found.args
    for each in (*arguments.posonlyargs, *arguments.args)[:1]:
        if each.arg in ("self", "cls"):
            (arguments.posonlyargs or arguments.args).remove(each)
    texts = _arguments(arguments)
    return _folded(name, texts, f" -> {ast.unparse(found.returns)}" if found.returns else "")


def _arguments(given: ast.arguments) -> list[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found = [_argument(each, default) for each, default in zip(plain, defaults)]
    if given.vararg or given.kwonlyargs:
        found.append(f"*{ast.unparse(given.vararg)}" if given.vararg else "*")
    found += [_argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults)]
    return found + ([f"**{ast.unparse(given.kwarg)}"] if given.kwarg else [])


def _argument(given: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(given)
    return text if default is None else f"{text} = {ast.unparse(default)}" if given.annotation else (
        f"{text}={ast.unparse(default)}")


def _folded(name: str, texts: list[str], after: str) -> str:
    """In lines of at most WIDE characters, the following ones below the first argument."""
    lines = [f"{name}("]
    for k, text in enumerate(texts):
        text += "," if k < len(texts) - 1 else f"){after}"
        if len(lines[-1]) + len(text) + 1 > WIDE and k:
            lines.append(" " * (len(name) + 1) + text)
        else:
            lines[-1] += (" " if k else "") + text
    return "\n".join(lines) + ("" if texts else f"){after}")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
