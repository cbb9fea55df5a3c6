"""The experimental .xo: what is in it, and what is refused when one is read."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fpga.vitis import document, schema
from fpga.vitis.component_xml import component_xml
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.xgui import xgui
from fpga.vitis.xo import NOTE, read_xo, write_xo, xo_xml
from tests.vitis_kernels import KERNELS, prepared

ROOT = Path(__file__).parents[2]
IP = "ip_repo/hotrail_RTLKernel_hotrail_emb_0_1"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_xo(*prepared("emb"), tmp_path_factory.mktemp("xo") / "hotrail_emb.xo")


def rezipped(source, path, change):
    """A .xo whose entries, name -> bytes, went through `change`."""
    with zipfile.ZipFile(source) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in change(entries):
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("core", KERNELS)
def test_parts_come_back(core, tmp_path):
    kernel, files = prepared(core)
    found = read_xo(write_xo(kernel, files, tmp_path / "new" / "k.xo"))
    assert (found.kernel, found.ip) == (kernel.name, f"ip_repo/{kernel.vlnv.replace(':', '_').replace('.', '_')}")
    assert found.kernel_xml == kernel_xml(kernel) and found.component_xml == component_xml(kernel, files)
    assert {name: data.decode() for name, data in found.sources.items()} == files
    assert found.files[f"xgui/{kernel.name}_v0_1.tcl"].decode() == xgui(kernel)
    assert len(found.files) == len(files) + 2
    assert schema.kernel_errors(found.kernel_xml) == [] == schema.component_errors(found.component_xml)


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
    found = read_xo(made)
    root = document.parse(found.xo_xml)
    assert (root.tag, root.get("VersionMajor"), root.get("SoftwareVersionMajor")) == ("Root", "7", "2021")
    entry, = root.findall("Kernels/Kernel")
    assert (entry.get("Name"), entry.get("Dir"), entry.get("IP")) == ("hotrail_emb", "hotrail_emb", IP)
    assert [flow.text for flow in entry.iterfind("SupportedFlows/SupportedFlow")] == ["CPU_EMU", "HW_EMU", "SYSTEM"]
    number = entry.get("ProjectID")
    assert len(number) == 32 and int(number, 16)
    other = document.parse(xo_xml(kernel, {**found.files, "src/hotrail_emb.v": b"module"}))
    assert other.find("Kernels/Kernel").get("ProjectID") != number


SCRIPT = """
import sys
from pathlib import Path
from fpga.vitis.xo import write_xo
from tests.vitis_kernels import prepared
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
    (with_text("xo.xml", b"<Kernel ", b"<Kernel2 "), "xo.xml: this is no XML"),
    (with_text("xo.xml", b"Kernels>", b"Cores>"), "xo.xml names 0 kernels, not one"),
    (with_text("hotrail_emb/kernel.xml", b'name="hotrail_emb"', b'name="another"'),
     "hotrail_emb/kernel.xml describes no kernel hotrail_emb"),
    (lambda entries: [*entries.items(), ("../escaped", b"")], "holds a file outside its folder, '../escaped'"),
    (lambda entries: [*entries.items(), ("/escaped", b"")], "holds a file outside its folder, '/escaped'"),
])
def test_bad_contents_are_refused(made, tmp_path, change, sentence):
    path = rezipped(made, tmp_path / "bad.xo", change)
    with pytest.raises(ValueError) as caught:
        read_xo(path)
    assert str(caught.value).startswith(f"{path}: ") and sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(made, tmp_path):
    path = rezipped(made, tmp_path / "bad.xo", lambda entries: [*entries.items(), ("xo.xml", b"<Root/>")])
    with pytest.raises(ValueError, match="the zip holds xo.xml twice$"):
        read_xo(path)


def test_damage_is_refused(made, tmp_path):
    data = made.read_bytes()
    middle = bytearray(data)
    middle[data.index(b"module hotrail_emb")] ^= 1
    for number, broken in enumerate((b"", b"not a zip", data[:len(data) // 2], bytes(middle))):
        path = tmp_path / f"{number}.xo"
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="this is no .xo that can be read: "):
            read_xo(path)
    packed = tmp_path / "packed.xo"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xo.xml", b"<Root/>" * 99)
    bad = bytearray(packed.read_bytes())
    bad[40:50] = b"\xff" * 10
    packed.write_bytes(bytes(bad))
    with pytest.raises(ValueError, match="this is no .xo that can be read: "):
        read_xo(packed)
    with pytest.raises(ValueError, match="this is no .xo that can be read: .*nowhere.xo"):
        read_xo(tmp_path / "nowhere.xo")


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.vitis.xo.MOST_BYTES", 1000)
    path = tmp_path / "bomb.xo"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xo.xml", bytes(1001))
    with pytest.raises(ValueError, match="the zip unpacks to 1001 bytes; a .xo of sources has at most 1000$"):
        read_xo(path)
