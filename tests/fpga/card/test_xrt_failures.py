"""card.xrt where XRT or the card fail: on a library that plays XRT, as no shim fails so."""

import os
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, CardHang, libxrt, real
from fpga.vitis import xclbin
from gen.rtl import config
from gen.rtl.headers import KERNELS
from tests.support import xrt_double
from tests.support.sysfs import SHELL
from tests.support.xrt_double import BASE, PAGE, Xrt, arguments, image, said, stream

EMB = KERNELS["emb"]


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
    ({"xrtDeviceLoadXclbinFile": said(xrt_double.WRONG_SHELL)}, "wrong shell: "),
    ({"xrtDeviceLoadXclbinFile": said(xrt_double.BUSY)}, "cannot be loaded: another process uses card 0000:12:00.1"),
    ({"xrtDeviceLoadXclbinFile": said(1)}, "cannot be loaded on card 0000:12:00.1: Operation not permitted; XRT says"),
    ({"xrtDeviceLoadXclbinFile": -1}, "cannot be loaded on card 0000:12:00.1; XRT says why"),
    ({"xrtPLKernelOpenExclusive": None}, "kernel hotrail_emb:{hotrail_emb_1} on card 0000:12:00.1 could not be opened; "
                                        "another"),
    ({"xrtRunOpen": None}, "XRT could not prepare a run of kernel hotrail_emb:{hotrail_emb_1}"),
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


@pytest.mark.parametrize("instances, wanted, unit", [
    (1, "", "hotrail_emb_1"), (3, "", "hotrail_emb_1"), (3, "hotrail_emb_3", "hotrail_emb_3")])
def test_one_instance_of_the_kernel(machine, tmp_path, instances, wanted, unit):
    """Of several XRT would give no registers."""
    it = machine()
    with it.open(path=image(tmp_path, instances=instances), instance=wanted) as opened:
        assert it.xrt.taken == [unit]
        opened.run(arguments(opened))
        opened.abort()
        opened.wait()
    with pytest.raises(CardError, match="has no instance 'two' of kernel hotrail_emb; it has hotrail_emb_1"):
        it.open(path=image(tmp_path, instances=instances), instance="two")


def test_room_is_that_of_the_instance_s_own_memory(machine, tmp_path, monkeypatch):
    path = image(tmp_path, instances=2)
    found = xclbin.read(path)
    small = replace(found.memories[0], bytes=4 * PAGE)
    second = replace(found, memories=(small, *found.memories), connections=tuple(
        replace(link, memory=link.instance) for link in found.connections))
    it = machine()
    monkeypatch.setattr(xclbin, "read", lambda _: second)
    with it.open(path=path) as opened, pytest.raises(CardError, match="no room .* in a memory of 16384 bytes"):
        opened.allocate(5 * PAGE, "rows")
    with it.open(path=path, instance="hotrail_emb_2") as opened:
        assert opened.allocate(5 * PAGE, "rows").bytes == 5 * PAGE


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
    ({}, "there is no .*/tiny/vitis/emb-hw/hotrail_emb.xclbin: link it .`make bitstream PRESET=tiny CORE=emb "
         "TARGET=hw`., or name another with xclbin="),
    ({"preset": config.load("tiny").cores["emb"]}, "the xclbin must be named where the preset is a configuration"),
    ({"core": "tt"}, "core 'tt' is no kernel by itself; emb, mlp, hotline are"),
    ({"core": object()}, "a real card takes the name of a core, not a component"),
    ({"process": True}, "a real card needs no process of its own"),
    ({"memory": "ddr4"}, "memory='ddr4' means nothing to a card of kind 'xrt'"),
    ({"kernel": EMB}, "^kernel=.* means nothing to a card of kind 'xrt'"),
])
def test_opening_by_kind(options, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.vitis.toolchain.build_folder", lambda: tmp_path)
    with pytest.raises(CardError, match=sentence):
        card.open("xrt", **{"preset": "tiny", **options})


def test_the_emulation_s_own_xclbin(tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.vitis.toolchain.build_folder", lambda: tmp_path)
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    with pytest.raises(CardError, match="there is no .*/emb-hw_emu/hotrail_emb.xclbin: link it .* TARGET=hw_emu`"):
        card.open("xrt", preset="tiny")


@pytest.mark.parametrize("option", [{"xclbin": "k.xclbin"}, {"index": 0}, {"bdf": "0000:12:00.1"}, {"instance": "a"}])
def test_a_simulated_card_takes_no_option_of_a_real_one(option):
    with pytest.raises(CardError, match=f"{next(iter(option))}=.* means nothing to a card of kind 'sim'"):
        card.open("sim", preset="tiny", **option)


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


@pytest.mark.parametrize("is_old", [False, True])
def test_runs_that_take_long(machine, is_old):
    """Longer than any single look, and one after the other on the same handle."""
    with machine().open(Xrt(ends=4, core=lambda _: time.sleep(0.25), is_old=is_old)) as opened:
        given = arguments(opened)
        for _ in range(2):
            opened.run(given)
            assert opened.step(3_000_000) is False, "10 ms"
            assert opened.wait(3_000_000_000) >= 0.25 * 250e6


class Clock:
    """A machine's time, in which a look takes 10 us."""

    def __init__(self):
        self.now, self.looks = 0.0, 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds + 60e-6     # as late as Linux wakes up

    def is_past(self, end):
        self.looks += 1
        self.now += 10e-6
        return self.now >= end


@pytest.mark.parametrize("end, late, looks", [
    (20e-6, 20e-6, 3), (1e-3, 20e-6, 110), (10e-3, 0.8e-3, 200), (1.0, 5.2e-3, 500), (60.0, 5.2e-3, 15_000)])
def test_looks_are_closer_the_shorter_a_run_is(monkeypatch, end, late, looks):
    clock = Clock()
    monkeypatch.setattr(real, "time", clock)
    assert real.poll(lambda: clock.is_past(end), 100.0)
    assert end <= clock.now <= end + late and clock.looks <= looks
    clock.now = 0.0
    assert not real.poll(lambda: clock.is_past(1000.0), end)
    assert end <= clock.now <= end + 200e-6, "time that is over is told at once"


def test_an_emulated_core_has_its_own_time(machine, tmp_path, monkeypatch):
    """Its cycles take a simulator's time."""
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    with machine().open(Xrt(ends=4, core=lambda _: time.sleep(0.1)), image(tmp_path, mode=b"\x04")) as opened:
        opened.run(arguments(opened))
        assert opened.step(10) is False
        assert 100 <= opened.wait(5_000) < 5_000 and opened.clock_mhz == 250


@pytest.mark.parametrize("is_old", [False, True])
def test_a_core_that_does_not_end(machine, is_old):
    it = machine()
    with it.open(Xrt(is_old=is_old)) as opened:
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
    it = machine()
    opened = it.open(Xrt(obeys=False))
    opened.run(arguments(opened))
    with pytest.raises(CardError, match="the core on card 0000:12:00.1 does not obey its abort register, and XRT "
                                        "resets no kernel alone"):
        opened.reset()
    with pytest.warns(RuntimeWarning, match="does not obey its abort register: its buffers stay allocated until this "
                                            "process ends; reset the card then"):
        opened.close()
    assert len(it.xrt.buffers) == 6 and "xrtDeviceClose" not in it.xrt.calls, "it may still write into them"
    opened.close()
    with pytest.raises(CardError, match="the card is closed"):
        opened.wait()


def test_a_status_that_cannot_be_read(machine):
    it = machine()
    with it.open() as opened:
        it.xrt.fails["xrtKernelReadRegister"] = -1
        opened.run(arguments(opened))
        with pytest.raises(CardHang, match="and its status register cannot be read"):
            opened.wait(30_000)


@pytest.mark.parametrize("fails, sentence", [
    ({"xrtRunSetArg": -22}, "argument program could not be set: Invalid argument"),
    ({"xrtRunSetArg": said(22)}, "argument program could not be set: Invalid argument"),
    ({"xrtRunStart": -1}, "the core on card 0000:12:00.1 could not be started")])
@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_run_that_does_not_begin(machine, fails, sentence, is_streaming):
    it = machine()
    with it.open(Xrt(fails=fails)) as opened:
        given = arguments(opened)
        if is_streaming:
            stream(opened, given, np.zeros(16 * PAGE, np.uint8))
        with pytest.raises(CardError, match=f"^{sentence}$"):
            opened.run(given)
        with pytest.raises(CardError, match="nothing is running"):
            opened.wait()
    assert not it.xrt.buffers and it.xrt.calls[-1] == "xrtDeviceClose"


@pytest.mark.parametrize("value", [1.9, "x", None])
def test_arguments_that_are_no_whole_numbers(machine, value):
    with machine().open() as opened, pytest.raises(
            CardError, match=re.escape(f"argument timeout = {value!r} is neither a whole number nor a buffer")):
        opened.run({**arguments(opened), "timeout": value})


@pytest.mark.parametrize("state, name", [(5, "ERROR"), (6, "ABORT"), (8, "TIMEOUT"), (9, "NORESPONSE")])
@pytest.mark.parametrize("is_old", [False, True])
def test_a_run_that_xrt_gives_up(machine, state, name, is_old):
    """The core may go on: it is told to stop, and its status is asked for before anything is given back."""
    it = machine()
    with it.open(Xrt(ends=state, is_old=is_old)) as opened:
        given = arguments(opened)
        for wait in (opened.wait, lambda: opened.step(3_000_000_000)):
            opened.run(given)
            before = len(it.xrt.calls)
            with pytest.raises(CardError, match=f"^XRT ended the run on card 0000:12:00.1 in state {name}$"):
                wait()
            asked = it.xrt.calls[before:]
            assert asked.index("xrtKernelWriteRegister") < asked.index("xrtKernelReadRegister")
            opened.free(opened.allocate(PAGE, "more"))
    assert not it.xrt.buffers


def test_a_memory_that_owes_an_answer(machine, monkeypatch):
    """The core has ended the run, and stands until its bus has answered: nothing may be given back before."""
    monkeypatch.setattr("fpga.card.xrt.PATIENCE_S", 0.01)
    it = machine()
    with it.open(Xrt(ends=4)) as opened:
        opened.run(arguments(opened))
        opened.wait(10**12)
        it.xrt.status = 2
        with pytest.raises(CardError, match="^the memory of card 0000:12:00.1 owes the core an answer to its last run"):
            opened.reset()
        it.xrt.status = 0
        opened.reset()


def test_an_identity_that_cannot_be_read(machine):
    with pytest.raises(CardError, match="^the registers of the core on card 0000:12:00.1 cannot be read$"):
        machine().open(Xrt(fails={"xrtKernelReadRegister": -1}))


@pytest.mark.parametrize("options", [{"obeys": False}, {"fails": {"xrtKernelReadRegister": -1}}])
def test_a_run_that_xrt_gives_up_and_the_core_does_not(machine, monkeypatch, options):
    monkeypatch.setattr("fpga.card.xrt.PATIENCE_S", 0.01)
    it = machine()
    opened = it.open(Xrt(ends=5, obeys=options.get("obeys", True)))
    it.xrt.fails.update(options.get("fails", {}))
    given = arguments(opened)
    opened.run(given)
    for _ in range(2):
        with pytest.raises(CardError, match="in state ERROR; and the core does not obey its abort register$"):
            opened.wait()
    with pytest.raises(CardError, match="buffer 'ring' cannot be given back while the core runs"):
        opened.free(given["ring"])
    with pytest.raises(CardError, match="a run is under way"):
        opened.run(given)
    with pytest.warns(RuntimeWarning, match="does not obey its abort register: its buffers stay allocated"):
        opened.close()
    assert len(it.xrt.buffers) == 6 and "xrtDeviceClose" not in it.xrt.calls


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
