"""card.xrt where XRT, the card or the drive fail: on a library that plays XRT, as no shim fails so."""

import os
import re
import time

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, CardHang, SsdStream, libxrt
from fpga.card.xrt import XrtCard
from fpga.vitis import xclbin
from gen import config
from gen.headers import KERNELS
from tests import xrt_double
from tests.sysfs import SHELL, Sysfs
from tests.xrt_double import BASE, Xrt
from tests.xrt_noop import PLATFORM, metadata

EMB = KERNELS["emb"]
PAGE, BEAT = 4096, 16
OFF = "bar:268435456\nrbar:4294967296\nremap:0\nexp_bar:4294967296"


@pytest.fixture(autouse=True)
def no_emulation(monkeypatch):
    monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)


def image(folder, is_real=True, mode=b"\x01", **options):
    """An xclbin that says that it has a bitstream."""
    made = xclbin.write(folder / "emb.xclbin", metadata("emb"), **{"platform": PLATFORM, **options}).path
    data = bytearray(made.read_bytes())
    if is_real:
        at = data.index(xclbin.NO_BITSTREAM)
        data[at : at + 7] = b"xlnx bi"
    data[332:333] = mode
    made.write_bytes(data)
    return made


class Machine:
    """A machine with SmartSSDs, and XRT."""

    def __init__(self, folder, boards=1, **options):
        self.sysfs, self.folder = Sysfs(folder / "sys"), folder
        self.bdfs = [self.sysfs.board(number + 1, **options) for number in range(boards)]

    def open(self, xrt=None, path=None, **options):
        self.xrt = xrt or Xrt()
        return XrtCard(path or image(self.folder), "emb", sysfs=self.sysfs.root, library=self.xrt, **options)


@pytest.fixture
def machine(tmp_path):
    return lambda *numbers, **options: Machine(tmp_path, *numbers, **options)


def arguments(it, p2p=("ring", "result")):
    """All of the EMB core's: buffers of a page, but a ring of four, and ones."""
    return {item.name: it.allocate(PAGE * (4 if item.name == "ring" else 1), item.name, p2p=item.name in p2p)
            if item.kind == "pointer" else 1 for item in EMB.arguments}


# Opening

def test_the_card_that_is_meant_is_opened(machine):
    two = machine(2)
    for options, bdf in (({}, two.bdfs[0]), ({"index": 1}, two.bdfs[1]), ({"bdf": two.bdfs[1]}, two.bdfs[1])):
        with two.open(**options):
            assert two.xrt.opened == bdf


@pytest.mark.parametrize("boards, options, sentence", [
    (0, {}, "there is no card: no PCIe device is worked by XRT's driver xocl (see `hotrail cards`)"),
    (2, {"index": 2}, "there is no card 2: `hotrail cards` lists 2, from 0 on"),
    (1, {"index": -1}, "there is no card -1"),
    (1, {"bdf": "0000:99:00.1"}, "there is no card 0000:99:00.1; there are 0000:12:00.1"),
])
def test_no_such_card(machine, boards, options, sentence):
    with pytest.raises(CardError, match=re.escape(sentence)):
        machine(boards).open(**options)


@pytest.mark.parametrize("fails, sentence", [
    ({"xrtDeviceOpenByBDF": None}, "XRT could not open card 0000:12:00.1; XRT says why on its error output"),
    ({"xrtDeviceLoadXclbinFile": xrt_double.WRONG_SHELL}, "wrong shell: "),
    ({"xrtDeviceLoadXclbinFile": xrt_double.BUSY}, "cannot be loaded: another process uses card 0000:12:00.1"),
    ({"xrtDeviceLoadXclbinFile": -1}, "cannot be loaded on card 0000:12:00.1; XRT says why"),
    ({"xrtPLKernelOpenExclusive": None}, "kernel hotrail_emb on card 0000:12:00.1 could not be opened; another"),
    ({"xrtRunOpen": None}, "XRT could not prepare a run of kernel hotrail_emb"),
])
def test_opening_fails(machine, fails, sentence):
    it = machine()
    with pytest.raises(CardError, match=re.escape(sentence)):
        it.open(Xrt(fails=fails))
    # What was opened is closed, in the other order.
    opened = {"xrtDeviceOpenByBDF": "xrtDeviceClose", "xrtPLKernelOpenExclusive": "xrtKernelClose"}
    succeeded = [name for name in it.xrt.calls if name in opened and name not in fails]
    closed = [name for name in it.xrt.calls if name in opened.values()]
    assert closed == [opened[name] for name in reversed(succeeded)]


def test_wrong_shell_before_anything_is_loaded(machine, tmp_path):
    it = machine()
    other = image(tmp_path, platform="xilinx_u250_gen3x16_xdma_4_1_202210_1")
    with pytest.raises(CardError, match=f"wrong shell: .* was linked for xilinx_u250_gen3x16_xdma_4_1_202210_1, and "
                                        f"card 0000:12:00.1 has {SHELL}"):
        it.open(path=other)
    assert it.xrt.calls == []


def test_xclbins_for_something_else(machine, tmp_path, monkeypatch):
    it = machine()
    with pytest.raises(CardError, match="holds no bitstream: it is for XRT's parser alone"):
        it.open(path=image(tmp_path, is_real=False))
    with pytest.raises(CardError, match="was linked for hw_emu, and XCL_EMULATION_MODE is not set"):
        it.open(path=image(tmp_path, mode=b"\x04"))
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    with pytest.raises(CardError, match="was linked for hw, and XCL_EMULATION_MODE is hw_emu"):
        it.open(path=image(tmp_path))
    with it.open(path=image(tmp_path, mode=b"\x04")):
        assert "xrtDeviceOpen" in it.xrt.calls, "emulation has no PCIe address"
    with pytest.raises(CardError, match="cannot be read: No such file"):
        it.open(path=tmp_path / "none")
    with pytest.raises(CardError, match="port m00_axi of kernel hotrail_emb has 128 bits, the preset's core 512"):
        it.open(path=image(tmp_path, mode=b"\x04"), beat_bytes=64)


@pytest.mark.parametrize("options, sentence", [
    ({"xclbin": "none"}, "xclbin none cannot be read: No such file or directory"),
    ({}, "there is no .*/tiny/vitis/emb-hw/hotrail_emb.xclbin: link it .`make bitstream`., or name another"),
    ({"preset": config.load("tiny").cores["emb"]}, "the xclbin must be named where the preset is a configuration"),
    ({"core": "tt"}, "core 'tt' is no kernel by itself; emb, mlp, hotline are"),
    ({"core": object()}, "a real card takes the name of a core, not a component"),
    ({"process": True}, "a real card needs no process of its own"),
])
def test_opening_by_kind(options, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.vitis.toolchain.build_folder", lambda: tmp_path)
    with pytest.raises(CardError, match=sentence):
        card.open("xrt", **{"preset": "tiny", **options})


# XRT itself

def test_xrt_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("XILINX_XRT", str(tmp_path))
    monkeypatch.setattr(libxrt, "LIBRARY", "libxrt_of_nobody.so.2")
    with pytest.raises(CardError, match="libxrt_of_nobody.so.2 cannot be loaded .*: install XRT and source"):
        libxrt.load()


def test_xrt_is_there_in_parts(monkeypatch, tmp_path):
    """Without them XRT ends the whole process; so they are looked for first."""
    monkeypatch.setattr(libxrt.ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(libxrt, "INSTALLED", tmp_path / "none")
    monkeypatch.delenv("XILINX_XRT", raising=False)
    with pytest.raises(CardError, match="XILINX_XRT is not set: source XRT's setup.sh"):
        libxrt.load()
    monkeypatch.setenv("XILINX_XRT", str(tmp_path))
    for mode, name in (("", "libxrt_core.so.2"), ("hw_emu", "libxrt_hwemu.so.2")):
        monkeypatch.setenv("XCL_EMULATION_MODE", mode)
        with pytest.raises(CardError, match=f"lib/{name} is not there: XILINX_XRT does not name a whole"):
            libxrt.load()
    monkeypatch.setenv("XCL_EMULATION_MODE", "dream")
    with pytest.raises(CardError, match="XCL_EMULATION_MODE is 'dream'; XRT knows noop, hw_emu, sw_emu"):
        libxrt.load()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libxrt_core.so.2").touch()
    monkeypatch.setattr(libxrt, "INSTALLED", tmp_path)
    for name in ("XCL_EMULATION_MODE", "XILINX_XRT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XILINX_XRT", "")
    with pytest.raises(CardError, match="has no xrtDeviceOpen: XRT 2.11 or later is needed"):
        libxrt.load()
    assert os.environ["XILINX_XRT"] == str(tmp_path)


# Memory

def test_every_buffer_begins_with_zeros_brought_by_dma(machine):
    it = machine()
    with it.open() as opened:
        plain, window = opened.allocate(5000, "rows"), opened.allocate(9000, "ring", p2p=True)
        full = opened.allocate(100, "inputs", fill=9)
        assert (plain.address, window.address, full.address) == (BASE, BASE + 2 * PAGE, BASE + 5 * PAGE)
        # Whole pages, and behind the window an ordinary buffer at its place, given back again.
        assert it.xrt.synced == [(0, BASE, 2 * PAGE, 0), (0, BASE + 2 * PAGE, 3 * PAGE, 0),
                                 (0, BASE + 5 * PAGE, PAGE, 0)]
        assert (opened.read(full) == 9).all() and not opened.read(plain).any()
        it.xrt.synced.clear()
        assert not it.xrt.memory[: 5 * PAGE].any() and (it.xrt.memory[5 * PAGE :][:PAGE] == 9).all()
        opened.write(plain, np.ones(8, np.uint8), 100)
        opened.read(plain, count=4, offset=4996)
        assert it.xrt.synced == [(0, BASE, 8, 100), (1, BASE, 4, 4996)], "just what is touched"
        opened.write(window, np.ones(8, np.uint8), 4)
        assert opened.read(window, count=3, offset=10).tolist() == [1, 1, 0], "a window has no copy to be moved"
        assert len(it.xrt.synced) == 2
    assert not it.xrt.buffers


def test_a_window_elsewhere_is_zeroed_through_itself(machine):
    it, xrt = machine(), Xrt()
    with it.open(xrt) as opened:
        places = iter((BASE + 4 * PAGE, BASE, BASE))
        opened._xrt.xrtBOAddress = lambda handle: next(places)
        xrt.memory[:] = 0xEE
        opened._xrt.xrtBOSync = lambda *_: 0    # the zeros went to another place
        window = opened.allocate(PAGE, "ring", p2p=True)
        assert not opened.read(window).any() and not xrt.memory[:PAGE].any()


def test_large_buffers_go_in_pieces(machine, monkeypatch):
    monkeypatch.setattr("fpga.card.buffers.CHUNK", 3 * PAGE)
    it = machine()
    with it.open() as opened:
        rows = opened.allocate(8 * PAGE, "rows")
        assert [step[2:] for step in it.xrt.synced] == [(3 * PAGE, 0), (3 * PAGE, 3 * PAGE), (2 * PAGE, 6 * PAGE)]
        it.xrt.synced.clear()
        data = np.random.default_rng(1).integers(0, 256, 7 * PAGE, np.uint8)
        opened.write(rows, data, PAGE)
        assert [step[2:] for step in it.xrt.synced] == [(3 * PAGE, PAGE), (3 * PAGE, 4 * PAGE), (PAGE, 7 * PAGE)]
        assert (opened.read(rows, offset=PAGE) == data).all()


def test_no_room(machine):
    with machine().open(Xrt(room=1 << 20)) as opened:
        with pytest.raises(CardError, match="no room for buffer 'rows' of 2097152 bytes in a memory of 4294967296"):
            opened.allocate(2 << 20, "rows")
        with pytest.raises(CardError, match="no room for buffer 'rows' of 4294963200 bytes in a memory of 4294967296"):
            opened.allocate(PAGE, "inputs")
            opened.allocate((1 << 32) - PAGE, "rows")


@pytest.mark.parametrize("call, sentence", [
    ("xrtBOSync", "4096 bytes of buffer 'rows' could not be moved to card 0000:12:00.1: Input/output error"),
    ("xrtBOMap", "buffer 'rows' of card 0000:12:00.1 could not be mapped"),
])
def test_memory_fails(machine, call, sentence):
    it = machine()
    with it.open(Xrt(fails={call: -5 if call == "xrtBOSync" else None})) as opened:
        with pytest.raises(CardError, match=re.escape(sentence)):
            opened.allocate(PAGE, "rows")
        assert not it.xrt.buffers, "nothing is left behind"


# Runs

def test_closing_is_in_order(machine):
    it = machine()
    opened = it.open()
    arguments(opened)
    before = len(it.xrt.calls)
    opened.close()
    opened.close()
    closing = it.xrt.calls[before:]
    assert closing == ["xrtRunClose", *["xrtBOFree"] * 6, "xrtKernelClose", "xrtDeviceClose"]


def test_a_core_that_does_not_end(machine):
    it = machine()
    with it.open() as opened:
        opened.run(arguments(opened))
        assert opened.step(300_000) is False
        with pytest.raises(CardHang, match=r"not done after \d+ cycles, its status register is 0x2") as hung:
            opened.wait(3_000_000)      # 10 ms
        assert hung.value.state == 2
        opened.abort()
        cycles = opened.wait(30_000_000)
        assert cycles >= 3_000_000 and opened.counters()["cycles"] == cycles
        opened.run(arguments_again(opened))
        opened.reset()
        with pytest.raises(CardError, match="nothing is running"):
            opened.wait()


def arguments_again(opened):
    return {item.name: next(b for b in opened._opened().buffers if b.name == item.name)
            if item.kind == "pointer" else 1 for item in EMB.arguments}


def test_a_core_that_does_not_obey(machine, monkeypatch):
    monkeypatch.setattr("fpga.card.xrt.PATIENCE_S", 0.01)
    with machine().open(Xrt(obeys=False)) as opened:
        opened.run(arguments(opened))
        with pytest.raises(CardError, match="the core on card 0000:12:00.1 does not obey its abort register, and XRT "
                                            "resets no kernel alone"):
            opened.reset()


def test_a_status_that_cannot_be_read(machine):
    with machine().open(Xrt(fails={"xrtKernelReadRegister": -1})) as opened:
        opened.run(arguments(opened))
        with pytest.raises(CardHang, match="and its status register cannot be read"):
            opened.wait(30_000)


@pytest.mark.parametrize("fails, sentence", [
    ({"xrtRunSetArg": -22}, "argument program could not be set: Invalid argument"),
    ({"xrtRunStart": -1}, "the core on card 0000:12:00.1 could not be started")])
def test_a_run_that_does_not_begin(machine, fails, sentence):
    with machine().open(Xrt(fails=fails)) as opened:
        with pytest.raises(CardError, match=f"^{sentence}$"):
            opened.run(arguments(opened))
        with pytest.raises(CardError, match="nothing is running"):
            opened.wait()


def test_a_run_that_xrt_ends(machine):
    with machine().open(Xrt(ends=6)) as opened:
        opened.run(arguments(opened))
        with pytest.raises(CardError, match="XRT ended the run on card 0000:12:00.1 in state ABORT"):
            opened.wait()


def test_arguments_reach_xrt_as_buffers_and_numbers(machine):
    it = machine()
    with it.open(Xrt(ends=4)) as opened:
        given = {**arguments(opened), "timeout": 77}
        opened.run(given)
        opened.wait()
        for number, item in enumerate(EMB.arguments):
            value = it.xrt.arguments[number]
            if item.kind == "pointer":
                assert it.xrt.buffers[value][0] == given[item.name].address
            else:
                assert value == given[item.name]


# The drive

def stream(it, given, data, count=8, page_bytes=PAGE):
    places = np.arange(count) * (page_bytes // BEAT)
    words = [given["result"].address + 4 * EMB.value(name).word for name in ("released", "filled")]
    it.stream(SsdStream(data, page_bytes, np.stack([np.arange(count), places], 1), given["ring"], *words, BEAT))


def test_no_p2p(machine):
    pages = np.zeros(16 * PAGE, np.uint8)
    off = machine(p2p=OFF)
    with off.open() as opened:
        given = arguments(opened)
        with pytest.raises(CardError, match="no P2P: buffer 'ring' cannot be reached by the drive: card 0000:12:00.1 "
                                            "has its peer-to-peer window off .`xbutil configure --p2p enable`"):
            stream(opened, given, pages)
        assert not any(item[3] for item in off.xrt.buffers.values())
    with off.open(Xrt(p2p=False)) as opened:
        with pytest.raises(CardError, match="has its peer-to-peer window off"):
            stream(opened, arguments(opened), pages)


def test_a_window_that_cannot_be_had(machine):
    with machine().open(Xrt(p2p=False)) as opened:      # the driver says that it is on
        given = arguments(opened)
        opened.write(given["ring"], b"abc")
        with pytest.raises(CardError, match="no P2P: .* has its peer-to-peer window off"):
            stream(opened, given, np.zeros(16 * PAGE, np.uint8))


def test_buffers_that_were_not_meant_for_the_drive(machine):
    with machine().open() as opened, pytest.raises(
            CardError, match="no P2P: buffer 'result' cannot be reached by the drive: it was not allocated for it"):
        stream(opened, arguments(opened, p2p=("ring",)), np.zeros(16 * PAGE, np.uint8))


@pytest.mark.parametrize("change, sentence", [
    ({"page_bytes": 8192}, "page_bytes must be 4096 or 16384, not 8192"),
    ({"beat_bytes": 64}, "beat_bytes = 64 is no port's; ports have 16"),
    ({"progress": 12}, "progress = 0xc must be the address of a 32-bit word in a buffer"),
    ({"transfers": [(99, 0)]}, "page 99 lies past the 65536 bytes of the SSD's data"),
    ({"transfers": [(0, 5)]}, "ring positions must be multiples of a page's 256 beats below 2"),
    ({"transfers": [(0, 256), (1, 256)]}, "ring positions must ascend from transfer to transfer by at least a page"),
    ({"ring": card.Buffer("ring", 0, 1)}, "'ring' is no buffer of this card"),
    ({"data": "none"}, "none, which holds the SSD's pages, cannot be opened: No such file or directory"),
])
def test_streams_are_checked_as_by_the_simulated_card(machine, change, sentence):
    with machine().open() as opened:
        given = arguments(opened)
        words = [given["result"].address + 4 * EMB.value(name).word for name in ("released", "filled")]
        sound = {"data": np.zeros(16 * PAGE, np.uint8), "page_bytes": PAGE, "transfers": [(0, 0)],
                 "ring": given["ring"], "progress": words[0], "doorbell": words[1], "beat_bytes": BEAT}
        with pytest.raises(CardError, match=re.escape(sentence)):
            opened.stream(SsdStream(**{**sound, **change}))


def test_a_drive_that_fails_ends_the_run(machine, tmp_path):
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    it = machine()
    with it.open() as opened:
        given = arguments(opened)
        stream(opened, given, path)
        os.truncate(path, 2 * PAGE)
        opened.run(given)
        with pytest.raises(CardError, match=f"^{path} ends at byte {2 * PAGE}, inside the page at byte "):
            opened.wait(3_000_000_000)
        assert "xrtKernelWriteRegister" in it.xrt.calls, "the core is told to stop"
        assert opened.counters()["ssd.pages"] == 2
        opened.stream(None)


def test_a_drive_and_a_core_that_both_fail(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.card.xrt.PATIENCE_S", 0.01)
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    with machine().open(Xrt(obeys=False)) as opened:
        given = arguments(opened)
        stream(opened, given, path)
        os.truncate(path, 0)
        opened.run(given)
        with pytest.raises(CardError, match="ends at byte 0, .*; and the core does not obey its abort register"):
            opened.wait(3_000_000_000)


def test_pages_that_failed_are_told_after_a_good_end_too(machine, tmp_path):
    """The core may end without the page; its result is not to be trusted then."""
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    it = machine()

    def core(xrt):
        while opened._feed is None or opened._feed.error is None:
            time.sleep(0.001)

    with it.open(Xrt(core=core, ends=4)) as opened:
        given = arguments(opened)
        stream(opened, given, path)
        os.truncate(path, PAGE)
        opened.run(given)
        with pytest.raises(CardError, match="ends at byte 4096"):
            opened.wait(3_000_000_000)
