"""The public interface: its names, that importing it is quick, what stands in its way, what is installed of it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

import hotrail

ROOT = Path(__file__).parents[2]


def python(text, folder, **options):
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT)}, **options)


def test_every_public_name_is_there_and_has_words():
    assert sorted(hotrail.__all__) == sorted(hotrail._WHERE) and set(hotrail.__all__) <= set(dir(hotrail))
    for name in hotrail.__all__:
        if hotrail._WHERE[name] != "fpga.api.torch_modules":      # needs the extra
            found = getattr(hotrail, name)
            assert isinstance(found, int) or len(found.__doc__) > 40, name
    assert re.fullmatch(r"\d+\.\d+\.\d+", hotrail.__version__)
    with pytest.raises(AttributeError, match="'hotrail' has no attribute 'Plans'"):
        hotrail.Plans  # noqa: B018


def test_every_public_name_stands_on_its_page():
    text = (ROOT / "docs" / "python.md").read_text()
    missing = [name for name in hotrail.__all__ if f"`{name}" not in text]
    assert not missing, f"docs/python.md lacks {', '.join(missing)}"


def test_importing_it_imports_nothing_else(tmp_path):
    done = python("import hotrail, sys; print([name for name in sys.modules if name.partition('.')[0] in "
                  "('gen', 'fpga', 'golden', 'hw', 'numpy', 'click')])", tmp_path)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ["fpga", "hw"])
def test_another_package_of_the_same_name_is_a_sentence(tmp_path, name):
    """A folder of the user's, a module, and a folder without __init__.py, which gives way."""
    (tmp_path / name).mkdir()
    assert python("import hotrail", tmp_path).returncode == 0
    (tmp_path / name / "__init__.py").touch()
    done = python("import hotrail", tmp_path)
    assert done.stderr.splitlines()[-1].startswith(
        f"ImportError: hotrail needs its own package {name!r}, which lies in {ROOT}, but Python finds "
        f"{tmp_path}/{name}")


def test_what_an_installation_holds():
    """No tests, no benches; every file that is no module belongs to the data that go with a package."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {name.partition(".")[0] for name in find_packages(ROOT, **told["packages"]["find"])}
    assert packages == {"fpga", "gen", "golden", "hotrail", "hw"}
    for package in packages:
        own = {path for path in (ROOT / package).rglob("*")
               if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"}
        packed = {path for pattern in told["package-data"].get(package, ()) for path in (ROOT / package).glob(pattern)}
        assert own <= packed, f"not installed: {', '.join(str(path) for path in sorted(own - packed))}"
