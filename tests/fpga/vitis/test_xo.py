"""The experimental .xo: what is in it, and what is found when one is read back."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fpga.vitis import document, schema
from fpga.vitis.checks.archive import archive, entries
from fpga.vitis.checks.expected import expected
from fpga.vitis.component_xml import component_xml
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.xgui import xgui, xgui_path
from fpga.vitis.xo import NOTE, ip_folder, write_xo, xo_xml
from tests.support.vitis_kernels import KERNELS, prepared

ROOT = Path(__file__).parents[3]
IP = "ip_repo/hotrail_RTLKernel_hotrail_emb_0_1"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_xo(*prepared("emb"), tmp_path_factory.mktemp("xo") / "hotrail_emb.xo")


def said(data, core="emb"):
    """What the reader says of a .xo, held against the files of a package."""
    kernel, files = prepared(core)
    folder = {"kernel.xml": kernel_xml(kernel), "component.xml": component_xml(kernel, files),
              xgui_path(kernel): xgui(kernel).encode(),
              **{f"src/{name}": text.encode() for name, text in files.items()}}
    return list(archive(data, expected(core), kernel.vlnv, folder))


def rezipped(source, path, change):
    """A .xo whose entries, name -> bytes, went through `change`."""
    with zipfile.ZipFile(path, "w") as made:
        for name, data in change(entries(source.read_bytes())):
            made.writestr(name, data)
    return path


@pytest.mark.parametrize("core", KERNELS)
def test_parts_come_back(core, tmp_path):
    kernel, files = prepared(core)
    data = write_xo(kernel, files, tmp_path / "new" / "k.xo").read_bytes()
    assert said(data, core) == []
    found, ip = entries(data), f"ip_repo/{ip_folder(kernel)}"
    assert found[f"{kernel.name}/kernel.xml"] == kernel_xml(kernel)
    assert {name: found[f"{ip}/src/{name}"].decode() for name in files} == files
    assert len(found) == len(files) + 4
    assert schema.kernel_errors(found[f"{kernel.name}/kernel.xml"]) == []
    assert schema.component_errors(found[f"{ip}/component.xml"]) == []


def test_its_names_and_its_note(made):
    kernel, files = prepared("emb")
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None and archive.comment == NOTE and b"Experimental" in NOTE
        names = archive.namelist()
        assert {item.compress_type for item in archive.infolist()} == {zipfile.ZIP_STORED}
    form = f"{IP}/xgui/hotrail_emb_v0_1.tcl"
    assert names == sorted(["xo.xml", "hotrail_emb/kernel.xml", f"{IP}/component.xml", form,
                            *(f"{IP}/src/{name}" for name in files)])


def test_xo_xml_leads_to_the_parts(made):
    kernel, _ = prepared("emb")
    found = entries(made.read_bytes())
    root = document.parse(found["xo.xml"])
    assert (root.tag, root.get("VersionMajor"), root.get("SoftwareVersionMajor")) == ("Root", "7", "2021")
    entry, = root.findall("Kernels/Kernel")
    assert (entry.get("Name"), entry.get("Dir"), entry.get("IP")) == ("hotrail_emb", "hotrail_emb", IP)
    assert [flow.text for flow in entry.iterfind("SupportedFlows/SupportedFlow")] == ["CPU_EMU", "HW_EMU", "SYSTEM"]
    number = entry.get("ProjectID")
    assert len(number) == 32 and int(number, 16)
    other = document.parse(xo_xml(kernel, {"src/hotrail_emb.v": b"module"}))
    assert other.find("Kernels/Kernel").get("ProjectID") != number


SCRIPT = """
import sys
from pathlib import Path
from fpga.vitis.xo import write_xo
from tests.support.vitis_kernels import prepared
write_xo(*prepared("emb"), Path(sys.argv[1]))
"""


def test_the_same_bytes_in_another_process(made, tmp_path):
    there = tmp_path / "there.xo"
    subprocess.run([sys.executable, "-c", SCRIPT, str(there)], cwd=ROOT, check=True, umask=0o077,
                   env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"})
    assert hashlib.sha256(there.read_bytes()).digest() == hashlib.sha256(made.read_bytes()).digest()


def test_nothing_half_written(tmp_path):
    kernel, files = prepared("emb")
    path = tmp_path / "k.xo"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match="extra.v is none of its files"):
        write_xo(kernel, {**files, "extra.v": ""}, path)
    with pytest.raises(UnicodeEncodeError):
        write_xo(kernel, {**files, "hotrail_emb.v": "\ud800"}, path)
    path.with_name("folder").mkdir()
    with pytest.raises(OSError):
        write_xo(kernel, files, path.with_name("folder"))
    assert path.read_bytes() == b"before"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["folder", "k.xo"]


def without(name):
    return lambda entries: [(key, data) for key, data in entries.items() if key != name]


def with_text(name, old, new):
    return lambda entries: [(key, data.replace(old, new) if key == name else data) for key, data in entries.items()]


@pytest.mark.parametrize("change, sentence", [
    (without("xo.xml"), "xo.xml is missing"),
    (without("hotrail_emb/kernel.xml"), "hotrail_emb/kernel.xml is missing"),
    (without(f"{IP}/component.xml"), f"{IP}/component.xml is missing"),
    (without(f"{IP}/src/hotrail_emb.v"), f"{IP}/src/hotrail_emb.v is missing"),
    (without(f"{IP}/xgui/hotrail_emb_v0_1.tcl"), f"{IP}/xgui/hotrail_emb_v0_1.tcl is missing"),
    (with_text("xo.xml", b"<Kernel ", b"<Kernel2 "), "hotrail_emb.xo: xo.xml: "),
    (with_text("xo.xml", b"Kernels>", b"Cores>"), "xo.xml: Root/Kernels/Kernel[hotrail_emb]@Name is missing"),
    (with_text("hotrail_emb/kernel.xml", b'name="hotrail_emb"', b'name="another"'),
     "hotrail_emb/kernel.xml differs from the folder's file"),
    (lambda entries: [*entries.items(), ("../escaped", b"")], "holds a file outside its folder, '../escaped'"),
    (lambda entries: [*entries.items(), ("/escaped", b"")], "holds a file outside its folder, '/escaped'"),
])
def test_bad_contents_are_refused(made, tmp_path, change, sentence):
    found = said(rezipped(made, tmp_path / "bad.xo", change).read_bytes())
    assert any(sentence in one for one in found), found
    assert all(one.startswith("hotrail_emb.xo: ") and "\n" not in one for one in found)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(made, tmp_path):
    path = rezipped(made, tmp_path / "bad.xo", lambda entries: [*entries.items(), ("xo.xml", b"<Root/>")])
    assert said(path.read_bytes()) == ["hotrail_emb.xo: the zip holds xo.xml twice"]


def test_damage_is_refused(made, tmp_path):
    data = made.read_bytes()
    middle = bytearray(data)
    middle[data.index(b"module hotrail_emb")] ^= 1
    for broken in (b"", b"not a zip", data[:len(data) // 2], bytes(middle)):
        with pytest.raises(ValueError, match="this is no .xo that can be read: "):
            entries(broken)
        assert said(broken)[0].startswith("hotrail_emb.xo: this is no .xo that can be read: ")
    packed = tmp_path / "packed.xo"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xo.xml", b"<Root/>" * 99)
    bad = bytearray(packed.read_bytes())
    bad[40:50] = b"\xff" * 10
    with pytest.raises(ValueError, match="this is no .xo that can be read: "):
        entries(bytes(bad))


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.vitis.checks.archive.MOST_BYTES", 1000)
    path = tmp_path / "bomb.xo"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xo.xml", bytes(1001))
    with pytest.raises(ValueError, match="the zip unpacks to 1001 bytes; a .xo of sources has at most 1000$"):
        entries(path.read_bytes())
