"""card.xrt and the drive: windows, streams, pages that fail; on a library that plays XRT."""

import os
import re
import time

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, SsdStream
from gen.rtl.headers import KERNELS
from tests.support.xrt_double import BEAT, PAGE, Xrt, arguments, stream

EMB = KERNELS["emb"]
OFF = "bar:268435456\nrbar:4294967296\nremap:0\nexp_bar:4294967296"


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
        with pytest.raises(CardError, match="no P2P: buffer 'ring' cannot be reached by the drive: card 0000:12:00.1 "
                                            "gave no window of 16384 bytes$"):
            stream(opened, given, np.zeros(16 * PAGE, np.uint8))


@pytest.mark.parametrize("board, is_refused", [(1, False), (2, True), (None, False)])
def test_the_drive_must_be_the_card_s_own(machine, tmp_path, board, is_refused):
    path, it = tmp_path / "pages", machine(2)
    path.write_bytes(bytes(16 * PAGE))
    if board:
        it.sysfs.block(path, f"bus/pci/devices/0000:{16 * board + 3:02x}:00.0/nvme/nvme{board}/nvme{board}n1")
    with it.open() as opened:
        given = arguments(opened)
        if is_refused:
            with pytest.raises(CardError, match=re.escape(
                    f"{path} is on the drive 0000:23:00.0, and card 0000:12:00.1's own is 0000:13:00.0 (/dev/nvme1n1)"
                    ": pages go from drive to card on one board alone")):
                stream(opened, given, path)
        else:
            stream(opened, given, path)


def test_a_card_without_a_drive_takes_any(machine, tmp_path):
    path, it = tmp_path / "pages", machine(drive=False)
    path.write_bytes(bytes(16 * PAGE))
    it.sysfs.drive("pci0000:00/0000:00:1d.0/0000:90:00.0", 0)
    it.sysfs.block(path, "bus/pci/devices/0000:90:00.0/nvme/nvme0/nvme0n1")
    with it.open() as opened:
        stream(opened, arguments(opened), path)


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


def test_a_ring_that_begins_within_a_page(machine, tmp_path):
    """The drive cannot reach it by itself, which is told."""
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    with machine().open() as opened:
        given = arguments(opened)
        item = opened._opened().known(given["ring"])
        item.view = item.view[16:]
        with pytest.warns(RuntimeWarning, match=f"^buffer 'ring' does not begin at a page of the host's, so the pages "
                                                f"of {path} go through the host's memory$"):
            stream(opened, given, path)


def test_a_drive_that_fails_ends_the_run(machine, tmp_path):
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    it = machine()
    with it.open() as opened:
        given = arguments(opened)
        stream(opened, given, path)
        os.truncate(path, 2 * PAGE)
        opened.run(given)
        with pytest.raises(CardError, match=f"^{path} ends at byte {2 * PAGE}, before the end of the page at byte "):
            opened.wait(3_000_000_000)
        assert "xrtKernelWriteRegister" in it.xrt.calls, "the core is told to stop"
        assert opened.counters()["ssd.pages"] == 2
        opened.stream(None)


def test_a_drive_and_a_core_that_both_fail(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.card.xrt.PATIENCE_S", 0.01)
    path = tmp_path / "pages"
    path.write_bytes(bytes(16 * PAGE))
    with pytest.warns(RuntimeWarning, match="does not obey"), machine().open(Xrt(obeys=False)) as opened:
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


def test_a_feed_that_cannot_begin_ends_the_run(machine, monkeypatch):
    it = machine()
    with it.open() as opened:
        given = arguments(opened)
        stream(opened, given, np.zeros(16 * PAGE, np.uint8))
        monkeypatch.setattr("fpga.card.feed.Feed.start", lambda feed: (_ for _ in ()).throw(CardError("no threads")))
        with pytest.raises(CardError, match="no threads"):
            opened.run(given)
        assert "xrtKernelWriteRegister" in it.xrt.calls, "the core is told to stop"
        with pytest.raises(CardError, match="nothing is running"):
            opened.wait()
    assert not it.xrt.buffers
