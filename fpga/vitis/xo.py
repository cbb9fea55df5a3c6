"""Experimental: the .xo of a kernel without Vivado.

A .xo is a zip: xo.xml, <kernel>/kernel.xml, ip_repo/<vendor_library_name_version>/ with component.xml, src/*.v and
xgui/*.tcl. Its form is that of a .xo that Vivado 2021.1's package_xo wrote for this card; that `v++` takes one that
Vivado did not write has been tried by nobody. The supported path is package.tcl. The zip's comment says so too.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from lxml import etree

from fpga.vitis import document
from fpga.vitis.component_xml import SOURCES, VIVADO, component_xml
from fpga.vitis.constraints import xdc, xdc_name
from fpga.vitis.description import RtlKernel
from fpga.vitis.kernel_xml import kernel_xml
from fpga.vitis.xgui import xgui, xgui_path

NOTE = b"Experimental: written by hotrail, not by Vivado's package_xo."
FLOWS = ("CPU_EMU", "HW_EMU", "SYSTEM")     # what package_xo writes for every RTL kernel
TIME = (1980, 1, 1, 0, 0, 0)                # the first that a zip can say
MOST_BYTES = 1 << 30                        # of all files together: a .xo of sources is far smaller


def ip_folder(kernel: RtlKernel) -> str:
    """The IP's folder in a .xo: hotrail_RTLKernel_hotrail_emb_0_2."""
    return kernel.vlnv.replace(":", "_").replace(".", "_")


def xo_xml(kernel: RtlKernel, files: Mapping[str, bytes]) -> bytes:
    """The table of contents. Its ProjectID, with Vivado a random number, is a digest of the IP's files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    major, minor = VIVADO.split(".")
    root = etree.Element("Root", VersionMajor="7", VersionMinor="1", SoftwareVersionMajor=major,
                         SoftwareVersionMinor=minor, IpCache="no")
    etree.SubElement(root, "IpCaches")
    entry = etree.SubElement(
        etree.SubElement(root, "Kernels"), "Kernel", Name=kernel.name, Dir=kernel.name,
        IP=f"ip_repo/{ip_folder(kernel)}", TopIpDir=".", ProjectID=digest.hexdigest()[:32], Debug="no", Hls="no",
        Pdi="no", ShimSoln="no", SwEmu="no", Domain="")
    flows = etree.SubElement(entry, "SupportedFlows")
    for flow in FLOWS:
        etree.SubElement(flows, "SupportedFlow").text = flow
    return document.text(root)


def xo(kernel: RtlKernel, texts: Mapping[str, str], monitors: bool = False) -> bytes:
    """A kernel's .xo; the same bytes from the same kernel and Verilog everywhere.

    Parameters  texts: the Verilog by name; monitors: nets are marked for a logic analyzer
    Raises      ValueError: they are not the kernel's files"""
    files = {"component.xml": component_xml(kernel, texts), xgui_path(kernel): xgui(kernel).encode(),
             f"{SOURCES}/{xdc_name(kernel)}": xdc(kernel, monitors).encode(),
             **{f"{SOURCES}/{name}": text.encode() for name, text in texts.items()}}
    entries = {"xo.xml": xo_xml(kernel, files), f"{kernel.name}/kernel.xml": kernel_xml(kernel),
               **{f"ip_repo/{ip_folder(kernel)}/{name}": data for name, data in files.items()}}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.comment = NOTE
        for name in sorted(entries):
            # Stored: what a compressor makes of a text depends on its version.
            item = zipfile.ZipInfo(name, TIME)
            item.create_system, item.external_attr = 3, 0o100644 << 16
            archive.writestr(item, entries[name], zipfile.ZIP_STORED)
    return content.getvalue()


def entries(data: bytes) -> dict[str, bytes]:
    """The files of an .xo by name, whoever wrote it.

    Raises ValueError: it is no zip, is damaged, holds a name twice or one outside its folder, or unpacks to too much"""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            items = [item for item in zipped.infolist() if not item.is_dir()]
            if fault := _fault(items):
                raise ValueError(f"the zip {fault}")
            return {item.filename: zipped.read(item) for item in items}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError(f"this is no .xo that can be read: {error}") from None


def _fault(items: list[zipfile.ZipInfo]) -> str:
    """Why a zip's files are not read at all, empty where they are."""
    seen = set()
    for item in items:
        name = PurePosixPath(item.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in item.filename:
            return f"holds a file outside its folder, {item.filename!r}"
        if item.filename in seen:
            return f"holds {item.filename} twice"
        seen.add(item.filename)
    total = sum(item.file_size for item in items)
    return f"unpacks to {total} bytes; a .xo of sources has at most {MOST_BYTES}" if total > MOST_BYTES else ""
