"""Xclbins: what one says of its kernel, its memory and its platform.

    found = read("build/smartssd/vitis/emb/hotrail_emb.xclbin")
    found.check("emb")                  # the kernel, its arguments and their registers are those of hw.isa

Source: xclbin.h of XRT 2022.1 (the layout of axlf), UG1393 (kernel.xml)
"""

import struct
import uuid as uuids
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from lxml import etree

from gen.rtl.headers import KERNELS

MAGIC = b"xclbin2\0"
# magic, length of a signature, reserved, key block, unique number; then the header; then one entry a section.
TOP = struct.Struct("<8si28s256sQ")
HEADER = struct.Struct("<QQQHBBHH16s64s16s16sI4x")
ENTRY = struct.Struct("<I16s4xQQ")
BANK = struct.Struct("<BB6xQQ16s")
LINK = struct.Struct("<iii")
IP = struct.Struct("<IIQ64s")
CLOCK = struct.Struct("<HB5x128s")
BITSTREAM, METADATA, TOPOLOGY, CONNECTIVITY, IP_LAYOUT, CLOCKS = 0, 2, 6, 7, 8, 11
# What a mode runs on; 0 to 3 are ways to load a device: flat, by partial reconfiguration (what v++ links), tandem.
MODES = ("hw", "hw", "hw", "hw", "hw_emu", "sw_emu", "hw_emu")
IP_KERNEL, DATA_CLOCK = 1, 1
POINTER = "1"      # addressQualifier


class XclbinError(ValueError):
    """An xclbin that cannot be read, or that holds something else than is wanted."""


@dataclass(frozen=True)
class Argument:
    """An argument as kernel.xml has it; `port`: the master of a pointer, the control slave of a scalar."""

    id: int
    name: str
    pointer: bool
    offset: int
    bytes: int
    port: str


@dataclass(frozen=True)
class KernelXml:
    """A kernel; ports: bits of the data of each, by name."""

    name: str
    vlnv: str
    protocol: str
    arguments: tuple[Argument, ...]
    ports: dict[str, int]


@dataclass(frozen=True)
class Instance:
    """What the control bus reaches; `is_kernel`: `name` is "kernel:instance". `base`: of its registers."""

    name: str
    base: int
    is_kernel: bool


@dataclass(frozen=True)
class Memory:
    tag: str
    used: bool
    base: int
    bytes: int


@dataclass(frozen=True)
class Connection:
    """Argument number `argument` of instance number `instance` reaches memory number `memory`."""

    argument: int
    instance: int
    memory: int


@dataclass(frozen=True)
class Xclbin:
    """What an xclbin says. platform: the name of the one it was linked for; uuid: its own; interface: of the shell,
    zeros where the platform does not use it; mode: "hw", "hw_emu" ...; clock_mhz: of the kernels, 0 where it is not
    told; has_bitstream: False where only XRT's parser and its noop shim take it."""

    path: Path
    platform: str
    uuid: uuids.UUID
    interface: uuids.UUID
    mode: str
    kernels: tuple[KernelXml, ...]
    instances: tuple[Instance, ...]
    memories: tuple[Memory, ...]
    connections: tuple[Connection, ...]
    clock_mhz: int
    has_bitstream: bool

    def instance(self, core: str, wanted: str = "") -> int:
        """The number of an instance of a core's kernel: of the first, or of the one that is named.

        Raises XclbinError: there is none"""
        kernel = f"hotrail_{core}"
        there = {instance.name.partition(":")[2]: number for number, instance in enumerate(self.instances)
                 if instance.is_kernel and instance.name.partition(":")[0] == kernel}
        if not there:
            raise XclbinError(f"{self.path} has no instance of kernel {kernel} in its IP layout")
        if wanted and wanted not in there:
            raise XclbinError(f"{self.path} has no instance {wanted!r} of kernel {kernel}; it has {', '.join(there)}")
        return there[wanted or next(iter(there))]

    def check(self, core: str, beat_bytes: int | None = None, instance: str = "") -> KernelXml:
        """The kernel of a core. beat_bytes: what its masters carry a cycle, where that is known; instance: whose memory
        is looked at, default: the first.

        Raises XclbinError: it has no such kernel, no such instance of it, other arguments or registers than hw.isa, a
        pointer without memory, pointers of a buffer's masters in different memories, or masters of another width"""
        name, isa = f"hotrail_{core}", KERNELS[core]
        kernel = next((kernel for kernel in self.kernels if kernel.name == name), None)
        if kernel is None:
            there = ", ".join(kernel.name for kernel in self.kernels) or "none"
            raise XclbinError(f"{self.path} has no kernel {name}; it has {there}")
        if kernel.protocol != "ap_ctrl_hs":
            raise XclbinError(f"{self.path}: kernel {name} is controlled by {kernel.protocol}, not by ap_ctrl_hs")
        number = self.instance(core, instance)
        wanted = [(item.name, item.kind == "pointer", item.offset, item.bits // 8, f"{item.port}_axi" if item.port
                   else "s_axi_control") for item in isa.arguments]
        arguments = [(item.name, item.pointer, item.offset, item.bytes, item.port) for item in kernel.arguments]
        for place in range(max(len(wanted), len(arguments))):
            want, have = (_about(items, place) for items in (wanted, arguments))
            if want != have:
                raise XclbinError(f"{self.path}: argument {place} of kernel {name} is {have}, and this version of "
                                  f"hotrail has {want}: link the kernel anew")
        # What all pointers have in common but those of a port whose buffers no other one reaches, and what those have.
        shared = {port: set(range(len(self.memories))) for port in ("", *(f"{name}_axi" for name in isa.apart))}
        for item in kernel.arguments:
            reached = {link.memory for link in self.connections if (link.instance, link.argument) == (number, item.id)
                       and self.memories[link.memory].used}
            if item.pointer and not reached:
                raise XclbinError(f"{self.path}: argument {item.name} of kernel {name} is connected to no memory")
            if item.pointer:
                shared[item.port if item.port in shared else ""] &= reached
        if not all(shared.values()):
            raise XclbinError(f"{self.path}: the pointers of kernel {name} have no memory in common; a core may reach "
                              "a buffer by either of its masters")
        for port, bits in kernel.ports.items():
            if port != "s_axi_control" and beat_bytes is not None and bits != 8 * beat_bytes:
                raise XclbinError(f"{self.path}: port {port} of kernel {name} has {bits} bits, the preset's core "
                                  f"{8 * beat_bytes}")
        return kernel


def _about(items: Sequence[tuple], place: int) -> str:
    if place >= len(items):
        return "absent"
    name, pointer, offset, size, port = items[place]
    return f"{'pointer' if pointer else 'scalar'} {name} of {size} bytes at 0x{offset:x} ({port})"


def fits(platform: str, device: str) -> bool:
    """Whether an xclbin's platform runs on a device that calls itself `device`. A device with a shell in two stages
    names the first alone: "xilinx_u2_gen3x4_xdma_gc_base_2" takes "xilinx_u2_gen3x4_xdma_gc_2_202110_1"."""
    def parts(name: str) -> tuple[list[str], list[str]]:
        words = name.replace(":", "_").replace(".", "_").replace("-", "_").split("_")
        family = list(takewhile(lambda word: word != "base" and not word.isdigit(), words))
        return family, [word for word in words[len(family):] if word != "base"][:1]

    (first, major), (second, other) = parts(platform), parts(device)
    shorter = min(len(first), len(second))
    return platform == device or first[:shorter] == second[:shorter] and shorter > 1 and major == other


def read(path: str | Path) -> Xclbin:
    """Raises XclbinError: the file is missing, is no xclbin, is cut off, or says something impossible."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise XclbinError(f"xclbin {path} cannot be read: {error.strerror}") from None
    if data[:8] != MAGIC:
        raise XclbinError(f"{path} is no xclbin: it begins with {data[:8]!r}, not with {MAGIC!r}")
    if len(data) < TOP.size + HEADER.size:
        raise XclbinError(f"{path} is cut off: its header has {len(data)} bytes of {TOP.size + HEADER.size}")
    (length, *_, mode, _action, interface, platform, own, _debug, count) = HEADER.unpack_from(data, TOP.size)
    if length != len(data):
        raise XclbinError(f"{path} has {len(data)} bytes, and its header says {length}")
    if mode >= len(MODES):
        raise XclbinError(f"{path}: its mode {mode} is none of XRT's")
    sections = _sections(path, data, count)
    kernels, clock_mhz = _metadata(path, sections)
    instances = _table(path, sections, IP_LAYOUT, IP, 8)
    banks = _table(path, sections, TOPOLOGY, BANK, 8)
    links = _table(path, sections, CONNECTIVITY, LINK, 4)
    if CLOCKS in sections:
        clocks = _table(path, sections, CLOCKS, CLOCK, 2)
        clock_mhz = next((mhz for mhz, kind, _ in clocks if kind == DATA_CLOCK), clock_mhz)
    for link in links:
        if not (0 <= link[1] < len(instances) and 0 <= link[2] < len(banks)):
            raise XclbinError(f"{path}: a connection names instance {link[1]} of {len(instances)} and memory "
                              f"{link[2]} of {len(banks)}")
    return Xclbin(
        path, _text(platform), uuids.UUID(bytes=own), uuids.UUID(bytes=interface), MODES[mode], kernels,
        tuple(Instance(_text(name), base, kind == IP_KERNEL) for kind, _, base, name in instances),
        tuple(Memory(_text(tag), bool(used), base, size << 10) for _, used, size, base, tag in banks),
        tuple(Connection(*link) for link in links), clock_mhz,
        bool(sections.get(BITSTREAM)))


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def _sections(path: Path, data: bytes, count: int) -> dict[int, bytes]:
    """The first section of each kind."""
    first = TOP.size + HEADER.size
    if not 1 <= count <= (len(data) - first) // ENTRY.size:
        raise XclbinError(f"{path}: its header says {count} sections, which is more than it has room for or none")
    sections: dict[int, bytes] = {}
    for number in range(count):
        kind, _, offset, size = ENTRY.unpack_from(data, first + number * ENTRY.size)
        if offset + size > len(data):
            raise XclbinError(f"{path}: section {number} (kind {kind}) ends at byte {offset + size} of {len(data)}")
        sections.setdefault(kind, data[offset : offset + size])
    for kind, name in ((METADATA, "EMBEDDED_METADATA"), (TOPOLOGY, "MEM_TOPOLOGY"), (CONNECTIVITY, "CONNECTIVITY"),
                       (IP_LAYOUT, "IP_LAYOUT")):
        if kind not in sections:
            raise XclbinError(f"{path} has no section {name}, so it holds no kernel")
    return sections


def _table(path: Path, sections: dict[int, bytes], kind: int, entry: struct.Struct, first: int) -> list[tuple]:
    """The entries of a section that begins with their number; the first lies at byte `first`."""
    data = sections[kind]
    count = int.from_bytes(data[: min(first, 4)], "little")
    if len(data) < first or first + count * entry.size > len(data):
        raise XclbinError(f"{path}: section kind {kind} says {count} entries, which is more than its {len(data)} bytes")
    return [entry.unpack_from(data, first + number * entry.size) for number in range(count)]


def _metadata(path: Path, sections: dict[int, bytes]) -> tuple[tuple[KernelXml, ...], int]:
    """Kernels and the clock in MHz."""
    try:
        root = etree.fromstring(sections[METADATA].rstrip(b"\0"), etree.XMLParser(resolve_entities=False))
    except etree.XMLSyntaxError as error:
        raise XclbinError(f"{path}: its EMBEDDED_METADATA is no XML: {error}") from None
    try:
        kernels = tuple(_kernel(node) for node in root.iterfind(".//core/kernel"))
    except (KeyError, ValueError) as error:
        raise XclbinError(f"{path}: a kernel of its EMBEDDED_METADATA lacks an attribute or has a wrong one: "
                          f"{error}") from None
    clock = root.find(".//kernelClocks/clock[@port='DATA_CLK']")
    frequency = "0MHz" if clock is None else clock.get("frequency", "0MHz")
    try:
        return kernels, int(float(frequency.removesuffix("MHz")))
    except (ValueError, OverflowError):
        raise XclbinError(f"{path}: the frequency of DATA_CLK in its EMBEDDED_METADATA is {frequency!r}; it must be a "
                          "number of MHz") from None


def _kernel(node: etree._Element) -> KernelXml:
    """A <kernel>: in a kernel.xml arguments and ports stand in groups, in an xclbin in the kernel itself."""
    arguments = [Argument(int(arg.attrib["id"]), arg.attrib["name"], arg.attrib["addressQualifier"] == POINTER,
                          int(arg.attrib["offset"], 0), int(arg.attrib["size"], 0), arg.attrib["port"].lower())
                 for arg in (*node.iterfind("args/arg"), *node.iterfind("arg")) if arg.attrib["id"]]
    ports = {port.attrib["name"].lower(): int(port.attrib["dataWidth"])
             for port in (*node.iterfind("ports/port"), *node.iterfind("port"))}
    return KernelXml(node.attrib["name"], node.get("vlnv", ""), node.get("hwControlProtocol", "ap_ctrl_hs"),
                     tuple(sorted(arguments, key=lambda item: item.id)), ports)
