"""A library with XRT's calls whose card fails as it is told to: what the noop shim never does."""

import errno
import mmap
import threading

import numpy as np

from hw.isa import EMB

BASE, PAGE = 0x40_0000_0000, 4096
STATUS = 2
RUNNING, COMPLETED = 3, 4


class Xrt:
    """Handles are numbers; buffers lie in the first gap of a memory of `room` bytes.

    fails: names of calls that fail, or the number that they answer; p2p: whether there are such buffers; obeys: whether
    the core ends by its abort register; ends: the state in which a run ends, None: it does not; core: what it does
    before, in a thread, with this object. `calls` lists the names, `synced` (direction, address, size, offset). The
    card's memory begins as it was found: no zeros.
    """

    def __init__(self, *, fails=(), p2p=True, obeys=True, ends=None, core=None, room=1 << 32):
        self.fails, self.p2p, self.obeys, self.ends, self.core, self.room = dict(fails), p2p, obeys, ends, core, room
        self.calls, self.buffers, self.arguments, self.synced = [], {}, {}, []
        self.memory = np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8)
        self.memory[:] = 0xEE
        self.state, self.over, self.last = 1, threading.Event(), 100
        for name in dir(type(self)):
            if name.startswith("xrt"):
                setattr(self, name, self._call(name, getattr(self, name)))

    def _call(self, name, method):
        def call(*arguments):
            self.calls.append(name)
            return self.fails[name] if name in self.fails else method(*arguments)
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
        return 0

    def xrtPLKernelOpenExclusive(self, device, own, name):
        assert len(own) == 16
        return self._handle()

    def xrtKernelClose(self, kernel):
        return 0

    def xrtKernelArgGroupId(self, kernel, number):
        return 0 if EMB.arguments[number].kind == "pointer" else -1

    def xrtKernelArgOffset(self, kernel, number):
        return EMB.arguments[number].offset

    def xrtKernelReadRegister(self, kernel, offset, into):
        assert offset == EMB.status
        into._obj.value = STATUS
        return 0

    def xrtKernelWriteRegister(self, kernel, offset, value):
        assert offset == EMB.abort and value == 1
        if self.obeys:
            self.end(COMPLETED)
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
        self.state = RUNNING
        self.over.clear()

        def work():
            if self.core is not None:
                self.core(self)
            if self.ends is not None:
                self.end(self.ends)
        threading.Thread(target=work, daemon=True).start()
        return 0

    def end(self, state):
        self.state = state
        self.over.set()

    def xrtRunWaitFor(self, run, milliseconds):
        self.over.wait(milliseconds / 1000)
        return self.state

    def xrtRunState(self, run):
        return self.state

    def xrtRunClose(self, run):
        return 0


WRONG_SHELL, BUSY = -errno.EOPNOTSUPP, -errno.EBUSY
