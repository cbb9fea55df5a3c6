"""No result hangs on the machine: neither on how its processor sorts equals, nor on the encoding of its locale."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bench", "fpga", "gen", "golden", "hotrail", "hw", "verif")
TEXTS = {"read_text": 0, "write_text": 1}       # methods, and the place of the encoding among their arguments


def is_unstable(call: ast.Call, name: str) -> bool:
    """Whether it asks for an order of elements, or of a part of them, without saying how equals are sorted."""
    words = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    is_stable = words.get("kind") in ("'stable'", "'mergesort'") or words.get("stable") == "True"
    return name == "argpartition" or name == "argsort" and not is_stable


def is_of_the_locale(call: ast.Call, name: str) -> bool:
    """Whether it reads or writes a file of text without saying in which encoding."""
    return name in TEXTS and len(call.args) <= TEXTS[name] and all(word.arg != "encoding" for word in call.keywords)


def lines(text: str, is_wrong) -> list[int]:
    if not any(name in text for name in ("argsort", "argpartition", *TEXTS)):
        return []
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute) and is_wrong(node, node.func.attr)]


def test_what_is_found():
    assert lines("a.argsort()\nnp.argsort(b, kind='stable')\nd.argsort(stable=True)\nnp.argsort(e, kind='mergesort')",
                 is_unstable) == [1]
    assert lines("np.argpartition(c, 3)\nnp.argsort(b, kind='heapsort')", is_unstable) == [1, 2]
    assert lines("a.read_text()\na.read_text('utf-8')\na.write_text(b)\na.write_text(b, encoding='utf-8')\n",
                 is_of_the_locale) == [1, 3]


def test_nothing_hangs_on_the_machine():
    found = [f"{path.relative_to(ROOT)}:{line}" for package in PACKAGES
             for path in sorted(ROOT.glob(f"{package}/**/*.py"))
             for line in lines(path.read_text("utf-8"), lambda *call: is_unstable(*call) or is_of_the_locale(*call))]
    assert not found, f'kind="stable" or "utf-8" is missing: {", ".join(found)}'
