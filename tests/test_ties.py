"""No result hangs on how equals are sorted: NumPy's default order of equals is that of the processor's instructions."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bench", "fpga", "gen", "golden", "hotrail", "hw")


def is_unstable(call: ast.AST) -> bool:
    """Whether it asks for an order of elements, or of a part of them, without saying how equals are sorted."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    words = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    is_stable = words.get("kind") == "'stable'" or words.get("stable") == "True"
    return call.func.attr == "argpartition" or call.func.attr == "argsort" and not is_stable


def unstable(text: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(text)) if is_unstable(node)]


def test_equals_keep_their_order():
    assert unstable("a.argsort()\nnp.argsort(b, kind='stable')\nargpartition(c)\nd.argsort(stable=True)") == [1]
    assert unstable("np.argpartition(c, 3)\nnp.argsort(b, kind='heapsort')") == [1, 2]
    found = [f"{path.relative_to(ROOT)}:{line}" for package in PACKAGES
             for path in sorted(ROOT.glob(f"{package}/**/*.py")) for line in unstable(path.read_text())]
    assert not found, f'kind="stable" is missing: {", ".join(found)}'
