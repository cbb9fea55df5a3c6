"""fpga.vitis.xclbin: what it reads is what XRT's own parser reads; refused where anything was changed."""

import re

import pytest
from lxml import etree

from fpga.vitis.xclbin import XclbinError, fits, read
from gen.rtl.headers import KERNELS
from tests.support import xclbins, xrt_noop
from tests.support.xrt_noop import PLATFORM, metadata

CORES = tuple(KERNELS)


def written(path, core="emb", text=None, **options):
    return xclbins.write(path, metadata(core) if text is None else text, **{"platform": PLATFORM, **options})


@pytest.mark.parametrize("core", CORES)
def test_all_of_it_is_read(tmp_path, core):
    made = written(tmp_path / "k.xclbin", core)
    assert (made.platform, made.mode, made.clock_mhz, made.has_bitstream) == (PLATFORM, "hw", 250, False)
    assert [(memory.tag, memory.used, memory.bytes, memory.base) for memory in made.memories] == [
        ("bank0", True, 1 << 32, 0x40_0000_0000)]
    assert [instance.name for instance in made.instances] == [f"hotrail_{core}:hotrail_{core}_1"]
    kernel, isa = made.check(core), KERNELS[core]
    assert [(item.id, item.name, item.offset, item.bytes) for item in kernel.arguments] == [
        (number, item.name, item.offset, item.bits // 8) for number, item in enumerate(isa.arguments)]
    assert {link.argument for link in made.connections} == {
        number for number, item in enumerate(isa.arguments) if item.kind == "pointer"}
    assert kernel.vlnv.startswith(f"hotrail:RTLKernel:hotrail_{core}:") and kernel.ports["s_axi_control"] == 32


PARSE = """
import ctypes, sys
xrt, pointer = ctypes.CDLL("libxrt_coreutil.so.2"), ctypes.c_void_p
for name in ("xrtXclbinAllocFilename", "xrtDeviceOpen", "xrtPLKernelOpenExclusive"):
    getattr(xrt, name).restype = pointer
path, name, arguments = sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3])
it = xrt.xrtXclbinAllocFilename(path)
assert it, "XRT's parser takes the file"
text, own, size = ctypes.create_string_buffer(64), (ctypes.c_uint8 * 16)(), ctypes.c_int()
assert xrt.xrtXclbinGetXSAName(pointer(it), text, 64, ctypes.byref(size)) == 0
assert xrt.xrtXclbinGetUUID(pointer(it), own) == 0
print(text.value.decode(), bytes(own).hex(), xrt.xrtXclbinGetNumKernels(pointer(it)),
      xrt.xrtXclbinGetNumKernelComputeUnits(pointer(it)))
assert xrt.xrtXclbinFreeHandle(pointer(it)) == 0
device = xrt.xrtDeviceOpen(0)
assert xrt.xrtDeviceLoadXclbinFile(pointer(device), path) == 0
kernel = xrt.xrtPLKernelOpenExclusive(pointer(device), own, name)
assert kernel, "the kernel is found by its name"
for number in range(arguments):
    print(xrt.xrtKernelArgOffset(pointer(kernel), number), xrt.xrtKernelArgGroupId(pointer(kernel), number))
assert xrt.xrtKernelArgGroupId(pointer(kernel), arguments) == -1, "there are no more arguments"
assert not xrt.xrtPLKernelOpenExclusive(pointer(device), own, b"hotrail_other")
assert xrt.xrtKernelClose(pointer(kernel)) == 0 and xrt.xrtDeviceClose(pointer(device)) == 0
"""


@xrt_noop.needed
@pytest.mark.parametrize("core", CORES)
def test_xrt_s_own_parser_says_the_same(tmp_path, core):
    made, isa = written(tmp_path / "k.xclbin", core), KERNELS[core]
    first, *rest = xrt_noop.python(tmp_path, PARSE, made.path, f"hotrail_{core}", len(isa.arguments)).splitlines()
    assert first.split() == [PLATFORM, made.uuid.bytes.hex(), "1", "1"]
    # Its groups of memory: 0 is the only bank; a scalar has none.
    assert [tuple(map(int, line.split())) for line in rest] == [
        (item.offset, 0 if item.kind == "pointer" else -1) for item in isa.arguments]


def test_instances(tmp_path):
    found = written(tmp_path / "k.xclbin", instances=3)
    assert [found.instances[found.instance("emb", f"hotrail_emb_{n}")].base for n in (1, 2, 3)] == [
        0x1800000, 0x1810000, 0x1820000]
    assert found.instance("emb") == 0 and len(found.connections) == 18
    assert found.check("emb", 16, "hotrail_emb_2") == found.check("emb")
    with pytest.raises(XclbinError, match="has no instance 'x' of kernel hotrail_emb; it has hotrail_emb_1, hotrail_e"):
        found.check("emb", instance="x")


def test_the_instance_that_is_meant_is_looked_at(tmp_path):
    found = written(tmp_path / "k.xclbin", instances=2)
    data = bytearray(found.path.read_bytes())
    put(data, body(data, 7) + 4 + 12 * (6 + 3) + 4, 0)      # the second's rows
    found.path.write_bytes(data)
    read(found.path).check("emb", instance="hotrail_emb_1")
    with pytest.raises(XclbinError, match="argument rows of kernel hotrail_emb is connected to no memory"):
        read(found.path).check("emb", instance="hotrail_emb_2")


@pytest.mark.parametrize("mode, name", [(0, "hw"), (1, "hw"), (2, "hw"), (3, "hw"), (4, "hw_emu"), (5, "sw_emu"),
                                        (6, "hw_emu")])
def test_modes(tmp_path, mode, name):
    assert read(patched(tmp_path, lambda data: put(data, 304 + 28, mode, 2))).mode == name


def test_a_kernel_without_a_protocol_has_xrt_s_own(tmp_path):
    found = changed(tmp_path, lambda kernel: kernel.attrib.pop("hwControlProtocol"))
    assert found.check("emb").protocol == "ap_ctrl_hs"


# Changed xclbins

def changed(tmp_path, change, core="emb"):
    """An xclbin whose kernel.xml `change` has changed."""
    root = etree.fromstring(metadata(core))
    change(root.find("kernel"))
    return written(tmp_path / "k.xclbin", text=etree.tostring(root))


def arg(which, /, **values):
    def change(kernel):
        for key, value in values.items():
            kernel.find(f"args/arg[@name='{which}']").set(key, value)
    return change


def without(path):
    return lambda kernel: kernel.find(path).getparent().remove(kernel.find(path))


@pytest.mark.parametrize("change, sentence", [
    (arg("rows", offset="0x5c"), "argument 6 of kernel hotrail_emb is pointer rows of 8 bytes at 0x5c (m01_axi), and "
                                 "this version of hotrail has pointer rows of 8 bytes at 0x4c (m01_axi): link the "
                                 "kernel anew"),
    (arg("timeout", size="0x8"), "argument 11 of kernel hotrail_emb is scalar timeout of 8 bytes at 0x80"),
    (arg("ring", port="m00_axi"), "pointer ring of 8 bytes at 0x60 (m00_axi), and"),
    (arg("rows_beats", name="rows_bytes"), "is scalar rows_bytes of 4 bytes"),
    (arg("outputs", addressQualifier="0"), "is scalar outputs of 8 bytes"),
    (without("args/arg[@name='timeout']"), "argument 11 of kernel hotrail_emb is absent, and this version of hotrail "
                                           "has scalar timeout"),
    (lambda kernel: kernel.find("args").append(etree.fromstring(
        '<arg name="more" addressQualifier="0" id="12" port="s_axi_control" size="0x4" offset="0x90" hostOffset="0x0" '
        'hostSize="0x4" type="uint"/>')), "argument 12 of kernel hotrail_emb is scalar more of 4 bytes at 0x90"),
    (lambda kernel: kernel.set("name", "hotrail_mlp"), "has no kernel hotrail_emb; it has hotrail_mlp"),
    (lambda kernel: kernel.set("hwControlProtocol", "ap_ctrl_chain"), "is controlled by ap_ctrl_chain, not by"),
])
def test_another_kernel_is_refused(tmp_path, change, sentence):
    found = changed(tmp_path, change)
    with pytest.raises(XclbinError, match=re.escape(sentence)):
        found.check("emb")


def test_masters_of_another_width_are_refused(tmp_path):
    found = written(tmp_path / "k.xclbin")
    assert found.check("emb", 16).name == "hotrail_emb"
    with pytest.raises(XclbinError, match="port m00_axi of kernel hotrail_emb has 128 bits, the preset's core 512"):
        found.check("emb", 64)


def patched(tmp_path, change, core="emb"):
    data = bytearray(written(tmp_path / "k.xclbin", core).path.read_bytes())
    change(data)
    (tmp_path / "k.xclbin").write_bytes(data)
    return tmp_path / "k.xclbin"


def entry(data, kind):
    """Where the entry of a section begins."""
    at = 456
    while int.from_bytes(data[at : at + 4], "little") != kind:
        at += 40
    return at


def put(data, at, number, size=4):
    data[at : at + size] = number.to_bytes(size, "little")


def body(data, kind):
    return int.from_bytes(data[entry(data, kind) + 24 :][:8], "little")


@pytest.mark.parametrize("change, sentence", [
    (lambda d: put(d, 0, 0x62627878), "is no xclbin: it begins with b'xxbb"),
    (lambda d: d.__delitem__(slice(300, None)), "is cut off: its header has 300 bytes of 456"),
    (lambda d: d.__delitem__(slice(-8, None)), "bytes, and its header says"),
    (lambda d: d.extend(bytes(8)), "bytes, and its header says"),
    (lambda d: put(d, 304 + 28, 9, 2), "its mode 9 is none of XRT's"),
    (lambda d: put(d, 304 + 144, 0), "its header says 0 sections"),
    (lambda d: put(d, 304 + 144, 5000), "its header says 5000 sections"),
    (lambda d: put(d, entry(d, 2) + 32, 1 << 30, 8), "section 1 (kind 2) ends at byte"),
    (lambda d: put(d, entry(d, 2), 16), "has no section EMBEDDED_METADATA, so it holds no kernel"),
    (lambda d: put(d, entry(d, 6), 16), "has no section MEM_TOPOLOGY"),
    (lambda d: put(d, entry(d, 7), 16), "has no section CONNECTIVITY"),
    (lambda d: put(d, entry(d, 8), 16), "has no section IP_LAYOUT"),
    (lambda d: put(d, body(d, 6), 7), "section kind 6 says 7 entries, which is more than its 48 bytes"),
    (lambda d: put(d, body(d, 7) + 12, 3), "a connection names instance 0 of 1 and memory 3 of 1"),
    (lambda d: put(d, body(d, 7) + 8, 2), "a connection names instance 2 of 1 and memory 0 of 1"),
    (lambda d: put(d, body(d, 2) + 60, 0x3C3C3C3C), "its EMBEDDED_METADATA is no XML"),
])
def test_a_broken_file_is_refused(tmp_path, change, sentence):
    path = patched(tmp_path, change)
    with pytest.raises(XclbinError, match=re.escape(sentence)) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("change, sentence", [
    (lambda d: put(d, body(d, 6) + 9, 0, 1), "argument program of kernel hotrail_emb is connected to no memory"),
    (lambda d: put(d, body(d, 7) + 4 + 12 * 3, 1), "argument rows of kernel hotrail_emb is connected to no memory"),
    (lambda d: put(d, body(d, 8) + 8, 3), "has no instance of kernel hotrail_emb in its IP layout"),
    (lambda d: put(d, body(d, 8) + 8 + 16 + 8, ord("E"), 1), "has no instance of kernel hotrail_emb"),
])
def test_a_kernel_without_memory_or_instance_is_refused(tmp_path, change, sentence):
    found = read(patched(tmp_path, change))
    with pytest.raises(XclbinError, match=re.escape(sentence)):
        found.check("emb")


def second_bank(pointer):
    """A change: of two banks one pointer reaches the second alone."""
    def change(data):
        at, size = body(data, 6), 48
        bank = bytes(data[at + 8 : at + size])
        put(data, at, 2)
        data[len(data):] = bytes(data[at : at + size]) + bank
        put(data, entry(data, 6) + 24, len(data) - size - 40, 8)
        put(data, entry(data, 6) + 32, size + 40, 8)
        put(data, 304, len(data), 8)
        put(data, body(data, 7) + 4 + 12 * pointer + 8, 1)

    return change


@pytest.mark.parametrize("core, pointer", [("emb", 5), ("hotline", 0), ("hotline", 5)])
def test_pointers_in_different_memories_are_refused(tmp_path, core, pointer):
    """The EMB core fills the row cache through another master than it reads it by."""
    found = read(patched(tmp_path, second_bank(pointer), core))
    assert len(found.memories) == 2
    with pytest.raises(XclbinError, match=f"the pointers of kernel hotrail_{core} have no memory in common"):
        found.check(core)


def test_rows_of_hotline_may_be_in_another_memory(tmp_path):
    """No other master reaches them."""
    read(patched(tmp_path, second_bank(4), "hotline")).check("hotline")


@pytest.mark.parametrize("attribute", ["offset", "size", "id", "port", "addressQualifier"])
def test_metadata_without_an_attribute_is_refused(tmp_path, attribute):
    with pytest.raises(XclbinError, match=f"a kernel of its EMBEDDED_METADATA lacks an attribute .*{attribute}"):
        changed(tmp_path, lambda kernel: kernel.find("args/arg").attrib.pop(attribute))


@pytest.mark.parametrize("frequency", ["3x0MHz", "infMHz", "nanMHz", ""])
def test_a_wrong_frequency_is_refused(tmp_path, frequency):
    def change(data):
        given = b'frequency="250MHz"'
        assert given in data
        data[:] = data.replace(given, f'frequency="{frequency}"'.encode().ljust(len(given)))

    path = patched(tmp_path, change)
    with pytest.raises(XclbinError, match=f"the frequency of DATA_CLK in its EMBEDDED_METADATA is '{frequency}'; it"):
        read(path)


def test_no_file(tmp_path):
    with pytest.raises(XclbinError, match="cannot be read: No such file or directory"):
        read(tmp_path / "none")


@pytest.mark.parametrize("platform, device, right", [
    (PLATFORM, "xilinx_u2_gen3x4_xdma_gc_base_2", True),    # as AMD's tools print it for a SmartSSD
    (PLATFORM, PLATFORM, True),
    ("xilinx:u2:gen3x4_xdma_gc:2.202110.1", "xilinx_u2_gen3x4_xdma_gc_base_2", True),
    (PLATFORM, "xilinx_u2_gen3x4_xdma_gc_base_1", False),
    ("xilinx_u2_gen3x4_xdma_flat_gc_2_202110_1", "xilinx_u2_gen3x4_xdma_gc_base_2", False),
    ("xilinx_u250_gen3x16_xdma_4_1_202210_1", "xilinx_u250_gen3x16_base_4", True),
    ("xilinx_u250_gen3x16_xdma_4_1_202210_1", "xilinx_u2_gen3x4_xdma_gc_base_2", False),
    ("xilinx_u200_xdma_201830_2", "xilinx_u200_xdma_201830_2", True),
    ("xilinx_u200_xdma_201830_2", "xilinx_u200_xdma_201820_1", False),
])
def test_platforms_and_devices(platform, device, right):
    assert fits(platform, device) is right
