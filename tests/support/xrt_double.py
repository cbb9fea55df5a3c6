"""A library with XRT's calls whose card fails as it is told to: what the noop shim never does; and machines for it."""

import ctypes
import errno
import mmap
import threading

import numpy as np

from fpga.card import SsdStream
from fpga.card.xrt import XrtCard
from fpga.vitis.xclbin import read
from gen.rtl.config import load
from hw.isa import EMB
from hw.kernel.identity import identity
from tests.support import xclbins
from tests.support.sysfs import Sysfs
from tests.support.xrt_noop import PLATFORM, metadata

BASE, PAGE, BEAT = 0x40_0000_0000, 4096, 16
IDLE, DRAINING = 0, 2       # of the status register
RUNNING, COMPLETED, TIMEOUT = 3, 4, 8
TINY = load("tiny").cores["emb"]


class Xrt:
    """Handles are numbers; buffers lie in the first gap of a memory of `room` bytes.

    fails: what calls that fail answer, by name, or an OSError: -1, with its number in errno; p2p: whether there are
    such buffers; obeys: whether the core ends by its abort register; ends: the state in which a run ends, None: it does
    not; core: what it does before, in a thread, with this object. A core stands after COMPLETED; after any other state
    it goes on. is_old: as XRT 2.11, whose xrtRunWaitFor knows no limit, and which starts nothing again that was not
    waited for. `calls` lists the names, `synced` (direction, address, size, offset). The card's memory begins as it was
    found: no zeros.
    """

    def __init__(self, *, fails=(), p2p=True, obeys=True, ends=None, core=None, room=1 << 32, is_old=False):
        self.fails, self.p2p, self.obeys, self.ends, self.core, self.room = dict(fails), p2p, obeys, ends, core, room
        self.calls, self.buffers, self.arguments, self.synced = [], {}, {}, []
        self.memory = np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8)
        self.memory[:] = 0xEE
        self.state, self.over, self.last, self.is_old = 1, threading.Event(), 100, is_old
        self.worker = None
        self.status, self.may_start, self.code = IDLE, True, 0
        self.identity = {EMB.register(name).offset: value for name, value in identity(EMB, TINY)}
        for name in dir(type(self)):
            if name.startswith("xrt"):
                setattr(self, name, self._call(name, getattr(self, name)))

    def _call(self, name, method):
        def call(*arguments):
            self.calls.append(name)
            answer = self.fails[name] if name in self.fails else method(*arguments)
            if isinstance(answer, OSError):
                ctypes.set_errno(answer.errno)
                return -1
            return answer
        return call     # a plain function: ctypes' attributes can be set on it

    def _handle(self):
        self.last += 1
        return self.last

    def xrtDeviceOpen(self, index):
        return self._handle()

    def xrtDeviceOpenByBDF(self, bdf):
        self.opened = bdf.decode()
        return self._handle()

    def xrtDeviceClose(self, device):
        return 0

    def xrtDeviceLoadXclbinFile(self, device, path):
        self.there = [unit.name.split(":")[1] for unit in read(path.decode()).instances]
        return 0

    def xrtPLKernelOpenExclusive(self, device, own, name):
        assert len(own) == 16
        name, _, units = name.decode().partition(":")
        self.taken = units.strip("{}").split(",") if units else self.there
        assert name == "hotrail_emb"
        return self._handle() if set(self.taken) <= set(self.there) else None

    def xrtKernelClose(self, kernel):
        return 0

    def xrtKernelArgGroupId(self, kernel, number):
        return 0 if EMB.arguments[number].kind == "pointer" else -1

    def xrtKernelReadRegister(self, kernel, offset, into):
        values = {EMB.status: self.status, EMB.register("code").offset: self.code, **self.identity}
        if len(self.taken) != 1:
            return -errno.EINVAL
        into._obj.value = values[offset]
        return 0

    def xrtKernelWriteRegister(self, kernel, offset, value):
        assert offset == EMB.abort and value == 1
        if len(self.taken) != 1:    # XRT would not know whose
            return -errno.EINVAL
        if self.obeys and self.state == RUNNING:
            self.end(COMPLETED)
        elif self.obeys:
            self.status = IDLE
        return 0

    def xrtBOAlloc(self, device, size, flags, group):
        assert size % PAGE == 0 and group == 0 and flags in (0, 1 << 30)
        if flags and not self.p2p:
            return None
        at = BASE
        for place, other, *_ in sorted(self.buffers.values(), key=lambda item: item[0]):
            if at + size <= place:
                break
            at = place + other
        if at + size > BASE + self.room:
            return None
        # A window is the card's memory itself, any other buffer a copy in the host's.
        view = (self.memory[at - BASE : at - BASE + size] if flags else
                np.frombuffer(mmap.mmap(-1, size), np.uint8))
        handle = self._handle()
        self.buffers[handle] = (at, size, view, bool(flags))
        return handle

    def xrtBOFree(self, buffer):
        del self.buffers[buffer]
        return 0

    def xrtBOAddress(self, buffer):
        return self.buffers[buffer][0]

    def xrtBOMap(self, buffer):
        return self.buffers[buffer][2].ctypes.data

    def xrtBOSync(self, buffer, direction, size, offset):
        at, whole, view, is_p2p = self.buffers[buffer]
        assert not is_p2p and size + offset <= whole
        self.synced.append((direction, at, size, offset))
        card = self.memory[at - BASE + offset :][:size]
        if direction:
            view[offset : offset + size] = card
        else:
            card[:] = view[offset : offset + size]
        return 0

    def xrtRunOpen(self, kernel):
        return self._handle()

    def xrtRunSetArg(self, run, number, value):
        self.arguments[number] = value.value
        return 0

    def xrtRunStart(self, run):
        if not self.may_start:
            return -1
        if self.worker is not None:
            self.worker.join()      # what was stopped is over before the next run
        self.state, self.status, self.may_start = RUNNING, DRAINING, not self.is_old
        self.over.clear()

        def work():
            if self.core is not None:
                self.core(self)
            if self.ends is not None:
                self.end(self.ends)
        self.worker = threading.Thread(target=work, daemon=True)
        self.worker.start()
        return 0

    def end(self, state):
        self.status = IDLE if state == COMPLETED else self.status
        self.state = state
        self.over.set()

    def xrtRunWaitFor(self, run, milliseconds):
        if not self.over.wait(5 if self.is_old else milliseconds / 1000):
            return TIMEOUT      # of the call, not of the run
        self.may_start = True
        return self.state

    def xrtRunState(self, run):
        return self.state

    def xrtRunClose(self, run):
        return 0


WRONG_SHELL, BUSY = -errno.EOPNOTSUPP, -errno.EBUSY


def said(code):
    """An answer as XRT 2.13 gives it, where others answer the code itself."""
    return OSError(abs(code), "")


def image(folder, is_real=True, mode=b"\x01", **options):
    """An xclbin that says that it has a bitstream."""
    bitstream = b"xlnx bitstream" if is_real else b""
    path = xclbins.write(folder / "emb.xclbin", metadata("emb"), bitstream=bitstream,
                         **{"platform": PLATFORM, **options}).path
    data = bytearray(path.read_bytes())
    data[332:333] = mode
    path.write_bytes(data)
    return path


class Machine:
    """A machine with SmartSSDs, and XRT."""

    def __init__(self, folder, boards=1, **options):
        self.sysfs, self.folder = Sysfs(folder / "sys"), folder
        self.bdfs = [self.sysfs.board(number + 1, **options) for number in range(boards)]

    def open(self, xrt=None, path=None, **options):
        self.xrt = xrt or Xrt()
        return XrtCard(path or image(self.folder), "emb", sysfs=self.sysfs.root, library=self.xrt, **options)


def arguments(it, p2p=("ring", "result")):
    """All of the EMB core's: buffers of a page, but a ring of four, and ones."""
    return {item.name: it.allocate(PAGE * (4 if item.name == "ring" else 1), item.name, p2p=item.name in p2p)
            if item.kind == "pointer" else 1 for item in EMB.arguments}


def stream(it, given, data, count=8, page_bytes=PAGE):
    places = np.arange(count) * (page_bytes // BEAT)
    words = [given["result"].address + 4 * EMB.value(name).word for name in ("released", "filled")]
    it.stream(SsdStream(data, page_bytes, np.stack([np.arange(count), places], 1), given["ring"], *words, BEAT))
