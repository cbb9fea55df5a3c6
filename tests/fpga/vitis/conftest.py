"""What tests of the flow share: a core converted before, and programs that stand in for the tools of Vitis."""

import json
import os
import sys

import pytest

from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.vitis import flow
from tests.support.vitis_flow import FLAT, STANDARD
from tests.support.vitis_kernels import prepared

# Every stand-in: writes its arguments to $RECORD, tells a version, makes what it is asked for unless told otherwise.
TOOL = """#!/bin/sh
'''exec' '{python}' "$0" "$@"
# The path of an interpreter that a system starts by itself has no spaces. '''
import json, os, sys, zipfile
from pathlib import Path
name, said = Path(sys.argv[0]).name, sys.argv[1:]
if said in (["-version"], ["--version"]):
    print("****** " + name + " v" + os.environ.get("FAKE_VERSION", "2022.1") + " (64-bit)")
    sys.exit(0)
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps([name, os.getcwd(), *said]) + "\\n")
option = lambda key: said[said.index(key) + 1]
print("\\n".join(f"line {{i}} of " + name for i in range(40)), flush=True)
if os.environ.get("FAKE_FAIL") == name + ("-p" if "-p" in said else ""):
    print("ERROR: [" + name + " 1-1] it does not fit", file=sys.stderr)
    sys.exit(3)
if os.environ.get("FAKE_LAZY") == name:
    sys.exit(0)
if name == "vivado":
    sources = Path(option("-source")).parent / "src"
    kernel = json.loads((sources.parent / "package.json").read_text())["kernel"]
    with zipfile.ZipFile(f"{{kernel}}.xo", "w") as archive:
        for path in sorted(sources.iterdir()):
            if path.name != os.environ.get("FAKE_DROP"):
                archive.writestr("ip_repo/ip/src/" + path.name, path.read_text() + os.environ.get("FAKE_CHANGE", ""))
        if os.environ.get("FAKE_EXTRA"):
            archive.writestr("ip_repo/ip/src/" + os.environ["FAKE_EXTRA"], "")
elif name == "emconfigutil":
    (Path(option("--od")) / "emconfig.json").write_text("{{}}")
else:
    print("[10:00:00] Run vpl: Step synth: Started")
    Path(option("-o")).write_text("xclbin")
"""

@pytest.fixture
def quick(monkeypatch):
    """The tiny core as converted before; the gate measures nothing, but finds what a test says."""
    depth = Depth(6, 1, ("in Part", "a", "b"))
    report = Report("hotrail_mlp", Area(lut=1000), {}, depth, depth, depth)
    monkeypatch.setattr(flow, "prepare", lambda preset, core: prepared(core))
    monkeypatch.setattr(flow.gates, "measure", lambda kernel, texts, say: report)
    return report


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Stand-ins on PATH and a platform; gives the calls made so far."""
    folder, record = tmp_path / "bin", tmp_path / "record"
    folder.mkdir()
    for name in ("vivado", "v++", "emconfigutil"):
        (folder / name).write_text(TOOL.format(python=sys.executable), "utf-8")
        (folder / name).chmod(0o755)
    for name in (STANDARD, FLAT):
        (tmp_path / "platforms" / name).mkdir(parents=True)
        (tmp_path / "platforms" / name / f"{name}.xpfm").write_text("", "utf-8")
    record.touch()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(record))
    monkeypatch.setenv("PLATFORM_REPO_PATHS", str(tmp_path / "platforms"))
    monkeypatch.delenv("XILINX_VITIS", raising=False)
    return lambda: [json.loads(line) for line in record.read_text("utf-8").splitlines()]
