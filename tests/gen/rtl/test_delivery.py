"""Verilog as it is handed to others: names that do not meet, a banner, a list of files, a FuseSoC core."""

import json
import re
import subprocess
from itertools import combinations

import pytest

from gen.base.tools import environment, verilator
from gen.rtl.delivery import core_file, delivered, described, filelist
from gen.rtl.verilog import interface
from tests.support.vitis_kernels import KERNELS, converted

MODULE = re.compile(r"(?m)^module (?:\\)?([\w.]+)")


def handed(core):
    texts, metadata = converted(core)
    top = f"hotrail_{core}"
    return delivered(texts, top, f"Kernel {top} of the preset tiny"), described(metadata)


def test_no_two_cores_share_a_module():
    """Every module has its core's name before its own; the cores have equal parts inside."""
    modules, inside = {}, {}
    for core in KERNELS:
        texts, metadata = handed(core)
        modules[core] = {name for text in texts.values() for name in MODULE.findall(text)}
        inside[core] = {name for text in converted(core)[0].values() for name in MODULE.findall(text)}
        assert all(re.match(rf"hotrail_{core}(_|$)", name) for name in modules[core])
        assert len(modules[core]) == len(inside[core]) and set(texts) == set(metadata["files"])
    for one, other in combinations(KERNELS, 2):
        assert not modules[one] & modules[other], (one, other)
    assert "Decoder" in inside["emb"] & inside["mlp"]


@pytest.mark.parametrize("core", KERNELS)
def test_texts_are_the_same_but_for_names_and_banner(core):
    texts, metadata = handed(core)
    before, _ = converted(core)
    top = f"hotrail_{core}"
    for file, text in before.items():
        named = texts[file if file == f"{top}.v" else f"{top}_{file}"]
        banner, licence, rest = named.split("\n", 2)
        assert re.fullmatch(rf"// Kernel {top} of the preset tiny, by hotrail [0-9.]+\. Generated: do not edit\.",
                            banner)
        assert licence == "// SPDX-License-Identifier: Apache-2.0"
        assert rest.replace(f"{top}_", "") == text.replace(f"{top}_", "")
        assert interface(named).startswith("module ")
    listed = filelist(metadata, "x").splitlines()[2:]
    assert sorted(listed) == sorted(texts) and listed[-1] == f"{top}.v"
    for number, file in enumerate(listed):
        uses = metadata["modules"][file.removesuffix(".v")]["instances"]
        assert {f"{part}.v" for part in uses} <= set(listed[:number])


def test_fusesoc_reads_the_core():
    """CAPI2: a first line of its own, then YAML, of which JSON is a part."""
    _, metadata = handed("mlp")
    kind, licence, text = core_file(metadata, "my preset", "about").split("\n", 2)
    core = json.loads(text)
    assert (kind, licence) == ("CAPI=2:", "# SPDX-License-Identifier: Apache-2.0")
    assert re.fullmatch(r"hotrail:my_preset:hotrail_mlp:\d+\.\d+\.\d+", core["name"])
    assert core["filesets"]["rtl"]["files"] == filelist(metadata, "").splitlines()[2:]
    assert {target["toplevel"] for target in core["targets"].values()} == {"hotrail_mlp"}


@pytest.mark.regress
def test_a_tool_takes_the_list(tmp_path):
    """Of a kernel, in a folder with nothing else: every module is found."""
    texts, metadata = handed("mlp")
    for file, text in {**texts, "hotrail_mlp.f": filelist(metadata, "x")}.items():
        (tmp_path / file).write_text(text, "utf-8")
    run = subprocess.run([str(verilator()[0]), "--lint-only", "-Wno-fatal", "-Wno-lint", "--top-module", "hotrail_mlp",
                          "-f", "hotrail_mlp.f"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
