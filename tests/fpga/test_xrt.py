"""card.xrt: on XRT's noop shim, which takes every call and runs nothing; failures on a library that plays XRT."""

import ctypes
import errno
import mmap
import re
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest

import fpga.card
from fpga.card import CardError, CardHang, Faults, SsdStream, libxrt
from fpga.card.xrt import XrtCard
from fpga.vitis import xclbin
from gen import headers
from gen.headers import KERNELS
from tests import xrt_noop
from tests.sysfs import Sysfs
from tests.xrt_noop import PLATFORM, metadata

EMB = KERNELS["emb"]
SHELL = "xilinx_u2_gen3x4_xdma_gc_base_2"


@pytest.fixture
def image(tmp_path):
    """An xclbin of the tiny EMB core."""
    return xclbin.write(tmp_path / "emb.xclbin", metadata("emb"), platform=PLATFORM).path


# On the noop shim

MEMORY_AND_RUNS = """
import sys
import numpy as np
from fpga import card
from fpga.card import Buffer, CardError, Faults

def refused(sentence, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except CardError as error:
        assert sentence in str(error), f"{error} is not: {sentence}"
    else:
        raise AssertionError(f"not refused: {sentence}")

it = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
assert it.clock_mhz == 300 and it.beat_bytes == {"m00_axi": 16, "m01_axi": 16}
rows, ring = it.allocate(100, "rows"), it.allocate(5000, "ring", fill=7, p2p=True)
assert rows.address % 4096 == 0 and ring.address >= rows.address + 4096 and (rows.bytes, ring.bytes) == (100, 5000)
assert not it.read(rows).any() and (it.read(ring) == 7).all()
data = np.arange(25, dtype=np.uint32)
for buffer in (rows, ring):
    it.write(buffer, data[:20], 12)
    it.write(buffer, b"abcd")
    assert (it.read(buffer, np.uint32, 20, 12) == data[:20]).all() and it.read(buffer, count=4).tobytes() == b"abcd"
refused("84 bytes at offset 20 do not fit the 100 bytes of buffer 'rows'", it.write, rows, data[:21], 20)
refused("26 items of uint32 at offset 0 are not all in the 100 bytes", it.read, rows, np.uint32, 26)
refused("there is already a buffer 'rows'", it.allocate, 1, "rows")
refused("buffer 'x' must have at least 1 byte, not 0", it.allocate, 0, "x")
refused("fill must be a byte, 0 to 255, not 256", it.allocate, 1, "x", 256)
refused("no room for buffer 'x' of 4294967296 bytes in a memory of 4294967296 bytes", it.allocate, 1 << 32, "x")
refused("'rows' is no buffer of this card", it.free, Buffer("rows", 0, 100))
it.free(rows)
refused("'rows' is no buffer of this card", it.read, rows)
assert it.allocate(100, "rows").name == "rows" and not it.read(it.allocate(8, "more")).any()
rows = it.allocate(64, "again")

pointers = {name: it.allocate(1024, name) for name in ("program", "inputs", "outputs", "result")}
given = {**pointers, "rows": rows, "ring": ring, "program_count": 1, "inputs_beats": 1, "outputs_beats": 1,
         "rows_beats": 4, "ring_beats": 0, "timeout": 5}
refused("nothing is running", it.wait)
refused("the kernel's argument 'timeout' is missing", it.run, {n: v for n, v in given.items() if n != "timeout"})
refused("the kernel has no argument 'times'; it has program, program_count", it.run, {**given, "times": 1})
refused("argument timeout = 4294967296 does not fit 32 bits", it.run, {**given, "timeout": 1 << 32})
refused("argument rows must be a buffer, not 4096", it.run, {**given, "rows": 4096})
it.run(given)
refused("a run is under way", it.run, given)
refused("buffer 'ring' cannot be given back while the core runs", it.free, ring)
refused("the stream cannot be changed while the core runs", it.stream, None)
assert it.step(10) is True and it.wait() > 0
assert it.counters()["cycles"] > 0 and it.counters()["violations"] == 0 and it.violations() == ()
it.clear()
assert set(it.counters().values()) == {0} and it.cycles_per_s == 0
assert it.step(3000) is False, "nothing runs"
refused("the abort register of the core on device 0 could not be written", it.abort)    # by the noop shim
it.reset()
refused("reset takes at least 1 cycle, not 0", it.reset, 0)
it.set_faults(Faults())
refused("a real card makes no faults on purpose", it.set_faults, Faults(lost=(1,)))
it.run(given)
it.close()      # with a run under way, as an exception leaves it
it.close()
refused("the card is closed", it.allocate, 1, "a")
refused("the card is closed", it.read, ring)
refused("the card is closed", it.wait)
with card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1]) as it:
    it.allocate(64, "rows")
left = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
left.allocate(64, "rows")       # closed by the interpreter's end
print("done")
"""


@xrt_noop.needed
def test_memory_and_runs(tmp_path, image):
    assert xrt_noop.python(tmp_path, MEMORY_AND_RUNS, image).splitlines()[-1] == "done"


STREAM = """
import sys, threading, time
import numpy as np
from fpga import card
from fpga.card import SsdStream
from gen.headers import KERNELS

PAGE, BEAT, EMB = 4096, 16, KERNELS["emb"]
it = card.open("xrt", core="emb", preset="tiny", xclbin=sys.argv[1])
names = [item.name for item in EMB.arguments]
buffers = {name: it.allocate(PAGE * (4 if name == "ring" else 1), name, p2p=name in ("ring", "result"))
           for name in names if EMB.argument(name).kind == "pointer"}
content = np.fromfile(sys.argv[2], np.uint8).reshape(-1, PAGE)
pages = np.random.default_rng(1).integers(0, len(content), 200)
first = (1 << 30) - 20 * PAGE // BEAT       # ring positions pass 2**30
places = (first + np.arange(200) * (PAGE // BEAT)) % (1 << 30)
result, ring = buffers["result"], buffers["ring"]
released, filled = (4 * EMB.value(name).word for name in ("released", "filled"))
data = sys.argv[2] if sys.argv[3] == "file" else content
it.stream(SsdStream(data, PAGE, np.stack([pages, places], 1), ring, result.address + released,
                    result.address + filled, BEAT))
seen, wrong = [], []

def core():
    # Looks at every page when it is announced and gives it back.
    for number, place in enumerate(places):
        end = (int(place) + PAGE // BEAT) % (1 << 30)
        while (int(it.read(result, np.uint32, 1, filled)[0]) - end) % (1 << 30) >= 1 << 29:
            time.sleep(0)
        at = int(place) * BEAT % ring.bytes
        if (it.read(ring, count=PAGE, offset=at) != content[pages[number]]).any():
            wrong.append(number)
        it.write(ring, np.zeros(PAGE, np.uint8), at)
        seen.append(number)
        it.write(result, np.array([end], np.uint32), released)

numbers = {item.name: 1 for item in EMB.arguments if item.kind != "pointer"}
it.run({**buffers, **numbers})
assert int(it.read(result, np.uint32, 1, released)[0]) == first
thread = threading.Thread(target=core, daemon=True)
thread.start()
it.wait(3_000_000_000)
assert seen == list(range(200)) and not wrong, (len(seen), wrong[:5])
assert int(it.read(result, np.uint32, 1, filled)[0]) == (first + 200 * PAGE // BEAT) % (1 << 30)
counters = it.counters()
assert (counters["ssd.pages"], counters["ssd.bytes"]) == (200, 200 * PAGE), counters
it.stream(None)
it.run({**buffers, **numbers})
it.wait(3_000_000_000)
assert it.counters()["ssd.pages"] == 200
it.close()
print("done")
"""


@xrt_noop.needed
@pytest.mark.parametrize("source", ["file", "array"])
def test_pages_stream_into_the_ring_during_a_run(tmp_path, image, source):
    """The shim's run takes a while; a thread plays the core on the buffers that the drive and the core share."""
    np.random.default_rng(2).integers(0, 256, 32 * 4096, np.uint8).tofile(tmp_path / "pages")
    printed = xrt_noop.python(tmp_path, STREAM, image, tmp_path / "pages", source, delay_us=700_000)
    assert printed.splitlines()[-1] == "done"


USERS = """
import sys
import numpy as np
from fpga.card import CardError
from fpga.embedding import EmbeddingBags
from fpga.hotline import Hotline, Position, Table as HotTable
from fpga.network import MlpNetwork, Network
from gen.layers import Compiler
from gen.tables import DRAM, SSD, Table

def unwritten(core, count, call):
    try:
        call()
    except CardError as error:
        assert str(error) == (f"the core ended without an error, but its result block counts 0 of {count} "
                              f"instructions: no core, or another than {core}, has run"), error
    else:
        raise AssertionError(f"{core}: a run that computed nothing was taken for one that did")

random = np.random.default_rng(1)
for kind in (DRAM, SSD):
    values = random.standard_normal((50, 4)).astype(np.float32)
    with EmbeddingBags([Table.place("t", values, np.full(50, kind))], card="xrt", preset="tiny",
                       xclbin=f"{sys.argv[1]}/emb.xclbin", ring_bytes=1 << 14) as bags:
        unwritten("emb", 1, lambda: bags("t", [1, 2, 3], [0]))
        assert bags.last["code"] == 0 and bags.card.clock_mhz == 300
print("emb")
network = Network.sizes([6, 5, 2]) if hasattr(Network, "sizes") else None
"""


@xrt_noop.needed
def test_embedding_bags_notice_that_no_core_has_run(tmp_path, image):
    """The shim ends every run well, with a result block of zeros: code OK, and nothing done."""
    assert xrt_noop.python(tmp_path, USERS.split("network =")[0], tmp_path).splitlines()[-1] == "emb"
