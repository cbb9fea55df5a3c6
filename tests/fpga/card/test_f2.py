"""card.f2 on a library that plays Amazon's libfpga_mgmt, with the EMB oracle in the place of the core."""

import ctypes
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from fpga import card
from fpga.api.embedding import EmbeddingBags
from fpga.card import CardError, CardHang, Faults, SsdStream, f2
from fpga.card import identity as identities
from gen.compiler.tables import DRAM, Table
from gen.rtl import config
from gen.rtl.headers import KERNELS, identity
from golden.emb.core import Emb
from tests.support.emb_card import OracleCard

EMB = KERNELS["emb"]
MEMORY = 1 << 22
CONFIG = config.load("smartssd").cores["emb"]
SOURCE = Path(__file__).parents[2] / "support/f2_double.c"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The C text of the double, compiled."""
    path = tmp_path_factory.mktemp("f2") / "libfpga_mgmt.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", path], check=True)
    return path


class Double:
    """The library, one to a test, and what it holds."""

    def __init__(self, compiled, tmp_path):
        self.path = tmp_path / "libfpga_mgmt.so.1"      # another path is loaded anew
        self.path.write_bytes(compiled.read_bytes())
        self.library = ctypes.CDLL(str(self.path))
        self.words = (ctypes.c_uint32 * 1024).in_dll(self.library, "f2_words")
        for name, value in identity(EMB, CONFIG):
            self.words[EMB.register(name).offset // 4] = value
        self.set("abort_at", EMB.abort)
        self.set("status_at", EMB.status)

    def set(self, name, value):
        ctypes.c_int.in_dll(self.library, f"f2_{name}").value = value

    def get(self, name):
        return ctypes.c_int.in_dll(self.library, f"f2_{name}").value

    def open(self, **options):
        return f2.F2Card("emb", **{"memory_bytes": MEMORY, "config": CONFIG, "library": self.path, **options})

    def computes(self, opened, oracle):
        """From now on a start carries the program out that the registers name."""
        def carry_out():
            views = {item.buffer.address: item for item in opened._buffers._objects.values()}
            oracle.memory = {at: (item.buffer, item.view[: item.buffer.bytes]) for at, item in views.items()}
            given = {}
            for argument in EMB.arguments:
                value = sum(self.words[argument.offset // 4 + part] << 32 * part for part in range(argument.bits // 32))
                given[argument.name] = views[value].buffer if argument.kind == "pointer" else value
            oracle._work(given)

        self.kept = ctypes.CFUNCTYPE(None)(carry_out)
        ctypes.c_void_p.in_dll(self.library, "f2_starts").value = ctypes.cast(self.kept, ctypes.c_void_p).value


@pytest.fixture
def double(compiled, tmp_path):
    return Double(compiled, tmp_path)


def arguments(opened):
    buffers = {name: opened.allocate(4096, name) for name in ("program", "inputs", "outputs", "rows", "ring", "result")}
    return {item.name: buffers.get(item.name, 0) for item in EMB.arguments}


def test_bags(double):
    """Tables, programs and results by BAR4, runs by BAR0: the vectors are the oracle's."""
    rows = np.random.default_rng(7).integers(-99, 99, (40, 16)).astype(np.float32)     # sums are exact in any order
    table = Table.place("items", rows, DRAM)
    with double.open() as opened:
        double.computes(opened, OracleCard(Emb.of(CONFIG, {})))
        with EmbeddingBags([table], preset="smartssd", card=opened) as bags:
            got = bags("items", [1, 2, 3, 5], [0, 3, 3])
    assert (got == [rows[1] + rows[2] + rows[3], np.zeros(16), rows[5]]).all()
    assert double.get("open") == 0


def test_memory(double):
    """Buffers are pieces of BAR4, zeros at first, and lie where the core is told."""
    with double.open() as opened:
        assert opened.identity == identities.of("emb", CONFIG) and opened.clock_mhz == 250
        rows, ring = opened.allocate(100, "rows"), opened.allocate(5000, "ring", fill=7, p2p=True)
        assert (rows.address, ring.address) == (0, 4096)
        assert not opened.read(rows).any() and (opened.read(ring) == 7).all()
        data = np.arange(20, dtype=np.uint32)
        opened.write(rows, data, 12)
        pointer = ctypes.c_void_p.in_dll(double.library, "f2_memory").value
        assert ctypes.string_at(pointer + 12, 80) == data.tobytes() and ctypes.string_at(pointer + 92, 8) == bytes(8)
        assert (opened.read(rows, np.uint32, 20, 12) == data).all()
        opened.free(rows)
        assert opened.allocate(4096, "other").address == 0
        for sentence, call in (("no room for buffer 'x' of 4194304 bytes", lambda: opened.allocate(MEMORY, "x")),
                               ("'rows' is no buffer of this card", lambda: opened.read(rows)),
                               ("a real card makes no faults", lambda: opened.set_faults(Faults(lost=(1,))))):
            with pytest.raises(CardError, match=re.escape(sentence)):
                call()
    with pytest.raises(CardError, match="the card is closed"):
        opened.allocate(1, "late")


def test_arguments_arrive(double):
    """Each word where hw.isa has it, then ap_start."""
    seen = {}
    with double.open() as opened:
        given = arguments(opened) | {"timeout": 0x1234_5678}
        double.kept = ctypes.CFUNCTYPE(None)(lambda: seen.update(enumerate(double.words)))
        ctypes.c_void_p.in_dll(double.library, "f2_starts").value = ctypes.cast(double.kept, ctypes.c_void_p).value
        opened.run(given)
        opened.wait()
        for item in EMB.arguments:
            wanted = given[item.name].address if item.kind == "pointer" else given[item.name]
            assert seen[item.offset // 4] == wanted & 0xFFFFFFFF
        assert seen[0] == 1
        for name, wrong in (("rows", 0), ("timeout", given["rows"])):
            with pytest.raises(CardError, match=f"argument {name} must be a"):
                opened.run(given | {name: wrong})


def test_pages_land(double, tmp_path):
    """The host brings a file's pages into the ring, announces them, and waits for the core's credit."""
    content = np.random.default_rng(7).integers(0, 256, 8 * 4096, np.uint8)
    file = tmp_path / "pages"
    file.write_bytes(content.tobytes())
    double.set("hangs", 1)
    with double.open() as opened:
        given = arguments(opened)
        ring = opened.allocate(2 * 4096, "pages", p2p=True)
        progress = given["result"].address + 4 * EMB.value("released").word
        doorbell = given["result"].address + 4 * EMB.value("filled").word
        opened.stream(SsdStream(file, 4096, [(3, 0), (5, 64), (1, 128)], ring, progress, doorbell, 64))
        opened.run(given)
        end = time.monotonic() + 10
        while opened.read(given["result"], np.uint32)[EMB.value("filled").word] != 128 and time.monotonic() < end:
            time.sleep(0.001)
        pages = content.reshape(-1, 4096)
        assert (opened.read(ring).reshape(-1, 4096) == pages[[3, 5]]).all()
        opened.write(given["result"], np.uint32([64]), 4 * EMB.value("released").word)
        while opened.read(given["result"], np.uint32)[EMB.value("filled").word] != 192 and time.monotonic() < end:
            time.sleep(0.001)
        assert (opened.read(ring, count=4096) == pages[1]).all()
        opened.abort()
        opened.wait()
        assert opened.counters()["ssd.pages"] == 3


def test_a_core_that_hangs(double, monkeypatch):
    """`wait` says so with its status; `abort` ends it; one that does not obey keeps its buffers, with one warning."""
    double.set("hangs", 1)
    with double.open() as opened:
        opened.run(arguments(opened))
        with pytest.raises(CardHang, match="the core was not done after .* cycles, its status register is 0x1"):
            opened.wait(10)
        opened.reset()
        assert opened.status() == 0
    assert double.get("open") == 0
    monkeypatch.setattr(f2, "PATIENCE_S", 0.01)
    double.set("obeys", 0)
    opened = double.open()
    opened.run(arguments(opened))
    with pytest.raises(CardError, match="and the shell resets all or nothing: close the card, and load the image anew"):
        opened.reset()
    with pytest.warns(RuntimeWarning, match="slot 0 does not obey its abort register: load the image anew"):
        opened.close()
    assert double.get("open") == 2, "it may still write there"


def test_a_custom_logic_that_is_gone(double):
    double.set("hangs", 1)
    with double.open() as opened:
        opened.run(arguments(opened))
        double.set("gone", 1)
        with pytest.raises(CardError, match="slot 0 answers no more at BAR0"):
            opened.wait()
        double.set("gone", 0)


@pytest.mark.parametrize("before, options, sentence", [
    ({}, {"index": 8}, "there is no slot 8: an instance has slots 0 to 7"),
    ({}, {"index": 1}, "fpga_pci_attach failed on slot 1 with -22: is it this instance's, is an image loaded"),
    ({"fails": 3}, {}, "fpga_mgmt_init failed on slot 0 with 3"),
    ({"gone": 1}, {}, "slot 0 answers nothing at BAR0: no image of hotrail is loaded"),
    ({"leds": 0}, {}, "the DDR4 of slot 0 is not calibrated (virtual LED 0 is off)"),
    ({}, {"config": config.load("smartssd_half").cores["emb"]}, "the emb core of slot 0 has another configuration"),
    ({}, {"library": "/nowhere/libfpga_mgmt.so.1"}, "/nowhere/libfpga_mgmt.so.1 cannot be used"),
])
def test_opening_fails(double, before, options, sentence):
    """One sentence that says what, and nothing stays attached."""
    for name, value in before.items():
        double.set(name, value)
    with pytest.raises(CardError, match=re.escape(sentence)):
        double.open(**options)
    assert double.get("open") == 0


def test_open_takes_the_kind(monkeypatch, double):
    monkeypatch.setattr(f2, "LIBRARY", str(double.path))
    with pytest.raises(CardError, match="fpga_pci_get_address failed"):       # the double has not 64 GB
        card.open("f2", core="emb", preset="smartssd")
    with pytest.raises(CardError, match="xclbin='x' means nothing to a card of kind 'f2'"):
        card.open("f2", xclbin="x")
    with pytest.raises(CardError, match="a real card needs no process of its own"):
        card.open("f2", process=True)
