"""The experimental .xo: what is in it, its bytes, and which zips are refused when one is read."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lxml import etree

from fpga.vitis.component_xml import component_xml
from fpga.vitis.constraints import xdc
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.xgui import xgui, xgui_path
from fpga.vitis.xo import NOTE, entries, ip_folder, xo, xo_xml
from tests.support.vitis_kernels import KERNELS, prepared

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("core", KERNELS)
def test_parts_come_back(core, tmp_path):
    kernel, files = prepared(core)
    (tmp_path / "k.xo").write_bytes(xo(kernel, files))
    found, ip = entries((tmp_path / "k.xo").read_bytes()), f"ip_repo/{ip_folder(kernel)}"
    root = etree.fromstring(found.pop("xo.xml"))
    entry, = root.findall("Kernels/Kernel")
    assert (entry.get("Name"), entry.get("Dir"), entry.get("IP")) == (kernel.name, kernel.name, ip)
    assert found == {
        f"{kernel.name}/kernel.xml": kernel_xml(kernel), f"{ip}/component.xml": component_xml(kernel, files),
        f"{ip}/{xgui_path(kernel)}": xgui(kernel).encode(), f"{ip}/src/hotrail_{core}.xdc": xdc(kernel).encode(),
        **{f"{ip}/src/{name}": text.encode() for name, text in files.items()}}
    with zipfile.ZipFile(tmp_path / "k.xo") as archive:
        assert archive.testzip() is None and archive.comment == NOTE and b"Experimental" in NOTE
        assert archive.namelist() == sorted(archive.namelist())
        assert {item.compress_type for item in archive.infolist()} == {zipfile.ZIP_STORED}


def test_project_id_is_of_the_files():
    kernel, _ = prepared("emb")
    numbers = {etree.fromstring(xo_xml(kernel, {"src/hotrail_emb.v": text})).find("Kernels/Kernel").get("ProjectID")
               for text in (b"module", b"module ")}
    assert len(numbers) == 2 and all(len(number) == 32 and int(number, 16) for number in numbers)


SCRIPT = """
import hashlib
from fpga.vitis.xo import xo
from tests.support.vitis_kernels import KERNELS, prepared
for core in KERNELS:
    print(hashlib.sha256(xo(*prepared(core))).hexdigest())
"""


def test_the_same_bytes_in_another_process(tmp_path):
    """All that a package's metadata is made of lies in the .xo."""
    here = []
    for core in KERNELS:
        kernel, files = prepared(core)
        # The order of the mapping is nobody's business.
        here.append(hashlib.sha256(xo(kernel, dict(reversed(files.items())))).hexdigest())
    told = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "HOME": str(tmp_path)}).stdout
    assert told.split() == here


def test_xo_wants_the_kernels_files():
    kernel, files = prepared("emb")
    with pytest.raises(ValueError, match="extra.v is none of its files"):
        xo(kernel, {**files, "extra.v": ""})


def zipped(path, *items, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in items:
            made.writestr(name, data)
    return path.read_bytes()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("items, sentence", [
    ([("xo.xml", b""), ("../escaped", b"")], "the zip holds a file outside its folder, '../escaped'"),
    ([("/escaped", b"")], "the zip holds a file outside its folder, '/escaped'"),
    ([("xo.xml", b""), ("xo.xml", b"<Root/>")], "the zip holds xo.xml twice"),
    ([("xo.xml", bytes(1001))], "the zip unpacks to 1001 bytes; a .xo of sources has at most 1000$"),
])
def test_a_zip_that_is_not_read(tmp_path, monkeypatch, items, sentence):
    monkeypatch.setattr("fpga.vitis.xo.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=sentence):
        entries(zipped(tmp_path / "bad.xo", *items, compression=zipfile.ZIP_DEFLATED))


def test_damage_is_refused(tmp_path):
    data = xo(*prepared("emb"))
    middle = bytearray(data)
    middle[data.index(b"module hotrail_emb")] ^= 1
    packed = bytearray(zipped(tmp_path / "k.xo", ("xo.xml", b"<Root/>" * 99), compression=zipfile.ZIP_DEFLATED))
    packed[40:50] = b"\xff" * 10
    for broken in (b"", b"not a zip", data[:len(data) // 2], bytes(middle), bytes(packed)):
        with pytest.raises(ValueError, match="this is no .xo that can be read: "):
            entries(broken)
