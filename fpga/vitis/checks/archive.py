"""The experimental .xo read back: a zip whose files must be the folder's, under the names that xo.xml gives."""

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from fpga.vitis.checks.component import VIVADO
from fpga.vitis.checks.expected import Expected
from fpga.vitis.checks.facts import Facts, compare, flatten, parse

__all__ = ["archive", "entries", "form"]

MOST_BYTES = 1 << 30        # of all files together: a .xo of sources is far smaller


def entries(data: bytes) -> dict[str, bytes]:
    """The files of a zip by name.

    Raises ValueError: it is none, is damaged, holds a name twice or one outside its folder, or unpacks to too much"""
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


def archive(data: bytes, expected: Expected, vlnv: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """What a .xo holds that it should not, or not as the folder does.

    Parameters  files: the folder's, by path: kernel.xml, component.xml, src/*.v, xgui/*.tcl"""
    file, name = f"{expected.kernel}.xo", expected.kernel
    try:
        inside = entries(data)
    except ValueError as error:
        yield f"{file}: {error}"
        return
    ip = f"ip_repo/{vlnv.replace(':', '_').replace('.', '_')}"
    page = f"xgui/{name}_v{vlnv.rpartition(':')[2].replace('.', '_')}.tcl"
    wanted = {f"{name}/kernel.xml": files.get("kernel.xml"), f"{ip}/component.xml": files.get("component.xml"),
              **{f"{ip}/{path}": text for path, text in files.items() if path.startswith("src/")},
              f"{ip}/{page}": files.get(page)}
    for entry in sorted({"xo.xml", *wanted} - set(inside)):
        yield f"{file}: {entry} is missing"
    for entry in sorted(set(inside) - {"xo.xml", *wanted}):
        yield f"{file}: {entry} does not belong there"
    for entry, text in wanted.items():
        if entry in inside and text is not None and inside[entry] != text:
            yield f"{file}: {entry} differs from the folder's file"
    if "xo.xml" in inside:
        yield from _contents(file, inside["xo.xml"], name, ip)


def _contents(file: str, data: bytes, kernel: str, ip: str) -> Iterator[str]:
    root = parse(data)
    if isinstance(root, str):
        yield f"{file}: xo.xml: {root}"
        return
    found = flatten(root, {None: ""}, "@Name")
    node = f"Root/Kernels/Kernel[{kernel}]"
    software = f"{found.get('Root@SoftwareVersionMajor')}.{found.get('Root@SoftwareVersionMinor')}"
    if software not in VIVADO:
        yield f"{file}: xo.xml: SoftwareVersion is {software}; it must be one of {', '.join(VIVADO)}"
    project = found.get(f"{node}@ProjectID", "")
    if len(project) != 32 or set(project) - set("0123456789abcdef"):
        yield f"{file}: xo.xml: ProjectID is {project!r}; it must be 32 hexadecimal digits"
    flows = f"{node}/SupportedFlows/SupportedFlow"
    wanted: Facts = {
        "Root@VersionMajor": "7", "Root@VersionMinor": "1", "Root@IpCache": "no", "Root/IpCaches": "",
        "Root@SoftwareVersionMajor": found.get("Root@SoftwareVersionMajor", ""),
        "Root@SoftwareVersionMinor": found.get("Root@SoftwareVersionMinor", ""),
        f"{node}@Name": kernel, f"{node}@Dir": kernel, f"{node}@IP": ip, f"{node}@TopIpDir": ".",
        f"{node}@ProjectID": project, f"{node}@Debug": "no", f"{node}@Hls": "no", f"{node}@Pdi": "no",
        f"{node}@ShimSoln": "no", f"{node}@SwEmu": "no", f"{node}@Domain": "",
        flows: "CPU_EMU", f"{flows}#2": "HW_EMU", f"{flows}#3": "SYSTEM",
    }
    yield from (sentence.replace(file, f"{file}: xo.xml", 1) for sentence in compare(file, found, wanted))


def form(name: str, text: str) -> Iterator[str]:
    """What the Tcl of Vivado's form for the IP does but show an empty page."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines != ["proc init_gui { IPINST } {", 'ipgui::add_param $IPINST -name "Component_Name"',
                 'ipgui::add_page $IPINST -name "Page 0"', "}"]:
        yield f"{name}: a kernel has nothing to choose; init_gui must show the name and one page"
