"""The notebooks of docs/: without outputs, with links that lead somewhere; executed where torch is there."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    told = json.loads(path.read_text("utf-8"))
    assert told["nbformat"] == 4
    return ["".join(cell["source"]) for cell in told["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_are_sources_alone(path):
    told = json.loads(path.read_text("utf-8"))
    code = [cell for cell in told["cells"] if cell["cell_type"] == "code"]
    assert code and not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for text in cells(path, "code"):
        ast.parse(text)
    for target in re.findall(r"\]\(([^)\s#]+)", "".join(cells(path, "markdown"))):
        assert (path.parent / target).resolve().is_file(), target


@pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra torch")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_in_their_order(path, tmp_path):
    """In an empty folder, in a process of their own."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", "\n\n".join(cells(path, "code"))], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "every bit the golden model's" in done.stdout and (tmp_path / "build" / "run" / "index.html").exists()
