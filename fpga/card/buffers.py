"""A real card's buffers: XRT's buffer objects, mapped, kept in step with the card, begun with zeros."""

import ctypes
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpga.card import checks, discover, libxrt
from fpga.card.interface import PAGE, Buffer, CardError
from fpga.card.real import MappedBuffers

CHUNK = 64 << 20        # bytes that are brought to the card at once
# Where no true address can be told apart, as with the noop shim, buffers are numbered from here.
STAND_IN = 0x7F_0000_0000


@dataclass
class BufferObject:
    """A buffer: XRT's handle, the host's view of it, whether that is a window to the card (peer-to-peer), and the group
    of memory that it lies in."""

    buffer: Buffer
    handle: Any
    view: np.ndarray
    is_p2p: bool
    group: int


class BufferObjects(MappedBuffers[BufferObject]):
    """The buffers of an open device, by name.

    groups: of memory, by the names of the kernel's pointers, and their bytes (`sizes`); a buffer of another name lies
    where the first pointer's does. host: groups that are the host's own memory. p2p: what is known of it
    (fpga.card.discover); where: the card, in words.
    """

    def __init__(self, xrt: libxrt.Xrt, device: Any, groups: Mapping[str, int], sizes: Mapping[str, int], p2p: str,
                 where: str, host: Collection[int] = ()):
        super().__init__()
        self._xrt, self._device, self._groups, self._sizes, self._host = xrt, device, groups, sizes, host
        self._p2p, self._where = p2p, where
        self._refused: set[str] = set()     # names of those that were to be windows, and are not

    def allocate(self, bytes: int, name: str, fill: int | None, p2p: bool) -> Buffer:
        checks.new_buffer(bytes, name, fill, self._objects)
        size = -(-bytes // PAGE) * PAGE
        first = next(iter(self._groups))
        group, memory = self._groups.get(name, self._groups[first]), self._sizes.get(name, self._sizes[first])
        used = sum(len(item.view) for item in self._objects.values() if item.group == group)
        no_room = f"no room for buffer {name!r} of {bytes} bytes in a memory of {memory} bytes"
        if used + size > memory:
            raise CardError(no_room)
        handle = self._window(size, group) if p2p else None
        is_p2p = handle is not None
        self._refused.discard(name)
        if p2p and not is_p2p:
            self._refused.add(name)
        if handle is None:
            flags = libxrt.BO_HOST_ONLY if group in self._host else 0
            handle = self._xrt.handle("xrtBOAlloc", self._device, size, flags, group, what=no_room)
        try:
            item = BufferObject(Buffer(name, self._address(handle, size), bytes), handle,
                                self._map(handle, size, name), is_p2p, group)
            if fill is not None or not is_p2p:
                self._set(item, fill or 0)
        except BaseException:
            self._xrt.xrtBOFree(handle)
            raise
        self._objects[name] = item
        return item.buffer

    def why_no_window(self, item: BufferObject) -> str:
        if item.buffer.name not in self._refused:
            return "it was not allocated for it (p2p=True)"
        if self._p2p == discover.P2P_OFF:
            return (f"{self._where} has its peer-to-peer window off (`xbutil configure --p2p enable`, then start the "
                    "machine anew)")
        return f"{self._where} gave no window of {len(item.view)} bytes"

    def _window(self, size: int, group: int) -> Any:
        """A peer-to-peer buffer of zeros; None where the card gives none.

        Its memory must have been written before anybody reads a part of it, and the host's writes come in pieces
        smaller than what ECC guards. So zeros are brought there by DMA first, through an ordinary buffer that lies at
        the same place, as XRT takes the first gap; if it does not, they come through the window."""
        if self._p2p == discover.P2P_OFF:
            return None
        before = self._xrt.xrtBOAlloc(self._device, size, 0, group)
        place = None
        if before:
            try:
                self._set(BufferObject(Buffer("", 0, size), before, self._map(before, size, ""), False, group), 0)
                place = self._xrt.xrtBOAddress(before)
            finally:
                self._xrt.xrtBOFree(before)
        handle = self._xrt.xrtBOAlloc(self._device, size, libxrt.BO_P2P, group)
        if not handle:
            return None
        if self._xrt.xrtBOAddress(handle) != place:
            self._map(handle, size, "")[:] = 0
        return handle

    def _map(self, handle: Any, size: int, name: str) -> np.ndarray:
        pointer = self._xrt.handle("xrtBOMap", handle, what=f"buffer {name!r} of {self._where} could not be mapped")
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))

    def _address(self, handle: Any, size: int) -> int:
        address = self._xrt.xrtBOAddress(handle)
        others = self.buffers
        if address % PAGE == 0 and not any(address < b.end and b.address < address + size for b in others):
            return int(address)
        return max((-(-b.end // PAGE) * PAGE for b in others if b.address >= STAND_IN), default=STAND_IN)

    def _set(self, item: BufferObject, value: int) -> None:
        """The whole of a buffer, and of its last page."""
        for at in range(0, len(item.view), CHUNK):
            part = item.view[at : at + CHUNK]
            part[:] = value
            self._sync(item, libxrt.TO_CARD, len(part), at)

    def _sync(self, item: BufferObject, direction: int, size: int, offset: int) -> None:
        """Moves a part of an ordinary buffer between the host's copy and the card. Of a mapped one there is one copy,
        and a read of what was written last sends what the processor has gathered on its way."""
        if item.is_p2p:
            if direction == libxrt.TO_CARD:
                item.view[offset + size - 1].item()
            return
        self._xrt.must("xrtBOSync", item.handle, direction, size, offset,
                       what=f"{size} bytes of buffer {item.buffer.name!r} could not be moved "
                            f"{'to' if direction == libxrt.TO_CARD else 'from'} {self._where}")

    def free(self, buffer: Buffer) -> None:
        item = self.known(buffer)
        del self._objects[buffer.name]
        self._xrt.must("xrtBOFree", item.handle, what=f"buffer {buffer.name!r} could not be given back")

    def free_all(self) -> None:
        """Whatever XRT says of it."""
        for item in self._objects.values():
            self._xrt.xrtBOFree(item.handle)
        self._objects = {}

    def write(self, buffer: Buffer, data: Any, offset: int) -> None:
        item = self.known(buffer)
        content = checks.array(buffer, data, offset).reshape(-1).view(np.uint8)
        for at in range(0, content.size, CHUNK):
            part = content[at : at + CHUNK]
            item.view[offset + at : offset + at + part.size] = part
            self._sync(item, libxrt.TO_CARD, part.size, offset + at)

    def read(self, buffer: Buffer, dtype: Any, count: int | None, offset: int) -> np.ndarray:
        item = self.known(buffer)
        out = checks.place(buffer, dtype, count, offset)
        if out.nbytes:
            self._sync(item, libxrt.FROM_CARD, out.nbytes, offset)
            out.view(np.uint8)[:] = item.view[offset : offset + out.nbytes]
        return out
