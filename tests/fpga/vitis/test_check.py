"""What a machine spoils of a package is found, file by file; versions of tools that hotrail is not tested with."""

import json
import shutil
from functools import cache

import pytest

from fpga.vitis import check as checks
from fpga.vitis import flow
from fpga.vitis.check import check, untested
from tests.support.vitis_kernels import KERNELS, prepared

SPOILT = "emb"      # the core whose package is spoilt
SCRIPT, FLAT = "package.tcl", "xilinx_u2_gen3x4_xdma_flat_gc_2_202110_1"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The folder of a core's package, which is made once."""
    @cache
    def package(core):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow, "prepare", lambda preset, core: prepared(core))
            return flow.package("tiny", core, gated=False, experimental_xo=True,
                                out=tmp_path_factory.mktemp("sound")).folder

    return package


@pytest.fixture
def copy(sound, tmp_path):
    return shutil.copytree(sound(SPOILT), tmp_path / "copy")


@pytest.mark.parametrize("core", [core if core == SPOILT else pytest.param(core, marks=pytest.mark.regress)
                                  for core in KERNELS])
def test_sound_packages_have_no_faults(core, sound):
    assert check(sound(core)) == []


def told(**changes):
    """Changes package.json."""
    def change(folder):
        path = folder / "package.json"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")
    return change


def listed(change):
    """Changes the list of files in package.json."""
    def apply(folder):
        files = json.loads((folder / "package.json").read_text("utf-8"))["files"]
        change(files)
        told(files=files)(folder)
    return apply


@pytest.mark.parametrize("change, sentence", [
    (lambda folder: (folder / SCRIPT).unlink(), "package.tcl is missing"),
    (lambda folder: (folder / "src" / "hotrail_emb_Decoder.v").unlink(),
     "src/hotrail_emb_Decoder.v is missing"),
    (lambda folder: (folder / SCRIPT).write_bytes((folder / SCRIPT).read_bytes()[:-1]), "package.tcl: its SHA-256 is "),
    (lambda folder: (folder / "hotrail_emb.xo").write_bytes(b""), "hotrail_emb.xo: its SHA-256 is e3b0c44298fc1c14..."),
    (lambda folder: (folder / "src" / "Old.v").touch(), "src/Old.v does not belong to the package"),
    (listed(lambda files: files.pop("link.cfg")), "package.json: link.cfg is not listed; every package has it"),
    (listed(lambda files: files.update({"link.cfg": 0})), "link.cfg: its SHA-256 is "),
    (lambda folder: (folder / "package.json").unlink(), "package.json is missing"),
    (lambda folder: (folder / "package.json").write_text("{", "utf-8"), "package.json: it is no JSON: "),
    (lambda folder: (folder / "package.json").write_bytes(b"\xff"), "package.json: it is no JSON: "),
    (lambda folder: (folder / "package.json").write_text("[]"), "package.json: it must be an object with the texts "),
    (told(files=[]), "package.json: it must be an object with the texts kernel, core, part, platform and the table "),
    (told(part="xcu250"), "package.json: part is 'xcu250'; the Samsung SmartSSD has the xcku15p-ffva1156-2LV-e"),
    (told(platform="xilinx_u200"), "package.json: platform must be one of smartssd, "),
])
def test_what_is_spoilt_is_found(copy, change, sentence):
    change(copy)
    found = check(copy)
    assert found and found[0].startswith(sentence), found


def test_what_is_no_fault(copy):
    told(platform=FLAT)(copy)
    assert check(copy) == []
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        check(copy / "nowhere")


def test_a_tool_in_another_version_is_told(monkeypatch):
    assert untested() == ()
    here = {"amaranth": "0.5.10", "pyosys": "0.71", "lxml": "6.1.3", "hotrail": "0.2.0"}
    monkeypatch.setattr(checks, "version", here.__getitem__)
    asked = ["amaranth==0.5.10", 'pyosys==0.70; extra == "rtl"', "lxml>=6", 'hotrail[rtl]; extra == "all"']
    monkeypatch.setattr(checks, "requires", lambda name: asked)
    assert untested() == ("pyosys 0.71 is installed; hotrail 0.2.0 is tested with 0.70, so the bytes of this package "
                          "may differ",)
