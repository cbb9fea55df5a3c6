"""A card on an AWS F2 instance, through Amazon's libfpga_mgmt.

Made by `fpga.card.open("f2", ...)`. The core's registers are BAR0 of the FPGA's application function (OCL), all of its
64 GB of DDR4 are BAR4 (PCIS) from address 0 on, mapped into this process: buffers are pieces of that mapping, and what
moves is moved by the processor, as the Small Shell has no DMA engine. Source: aws/aws-fpga@fd77a72, sdk/userspace
(fpga_pci.h, fpga_mgmt.h, fpga_common.h), Shell Interface Specification.
"""

import atexit
import ctypes
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpga.card import checks
from fpga.card import identity as identities
from fpga.card.feed import ArraySource, FileSource, Source
from fpga.card.interface import Buffer, CardError, SsdStream
from fpga.card.real import PATIENCE_S, MappedBuffers, RealCard, poll

LIBRARY = "libfpga_mgmt.so.1"       # has fpga_pci as well
APP_PF, OCL_BAR, PCIS_BAR, BURST_CAPABLE = 0, 0, 4, 1
SLOTS = 8
GIE, FIRST, CTRL, START, IDLE, SW_RESET = 0x04, 0x10, 0x00, 1 << 0, 1 << 2, 1 << 8     # UG1393, XRT's cu_hls.c
READY = 1       # of the virtual LEDs: sh_ddr is calibrated (hw.f2.logic)
NOBODY = 0xFFFFFFFF     # what the shell answers for a custom logic that does not
_INT, _U16, _U32, _U64, _PTR = ctypes.c_int, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
_CALLS = {
    "fpga_mgmt_init": (), "fpga_mgmt_get_vLED_status": (_INT, _PTR),
    "fpga_pci_attach": (_INT, _INT, _INT, _U32, _PTR), "fpga_pci_detach": (_INT,),
    "fpga_pci_peek": (_INT, _U64, _PTR), "fpga_pci_poke": (_INT, _U64, _U32),
    "fpga_pci_get_address": (_INT, _U64, _U64, _PTR),
}


def _load(library: Any) -> Any:
    """The library with its calls declared; each returns 0 when all went well. Raises CardError: it is not there"""
    try:
        found = ctypes.CDLL(str(library or LIBRARY))
        for name, arguments in _CALLS.items():
            getattr(found, name).restype, getattr(found, name).argtypes = _INT, arguments
    except (OSError, AttributeError) as error:
        raise CardError(f"{library or LIBRARY} cannot be used ({error}): on the instance, run sdk_setup.sh of aws-fpga "
                        "as root, which installs it") from None
    return found


@dataclass
class _Piece:
    """A buffer, and the host's view of it, which is the card's memory itself."""

    buffer: Buffer
    view: np.ndarray
    is_p2p: bool = True
    handle: Any = None


class _Memory(MappedBuffers[_Piece]):
    """The buffers of a mapped memory of `size` bytes at `pointer`, whose first byte has address 0 for the core."""

    def __init__(self, pointer: int, size: int):
        super().__init__()
        self._pointer, self._size = pointer, size

    def why_no_window(self, item: Any) -> str:
        raise AssertionError(f"{item.buffer.name} is one")

    def allocate(self, bytes: int, name: str, fill: int | None, p2p: bool) -> Buffer:
        checks.new_buffer(bytes, name, fill, self._objects)
        at = checks.gap(name, bytes, self.buffers, 0, self._size)
        size = -(-bytes // 4096) * 4096
        view = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self._pointer + at))
        view[:] = fill or 0     # whole pages: memory that was never written has no ECC
        self._objects[name] = piece = _Piece(Buffer(name, at, bytes), view)
        return piece.buffer

    def free(self, buffer: Buffer) -> None:
        self.known(buffer)
        del self._objects[buffer.name]

    def write(self, buffer: Buffer, data: Any, offset: int) -> None:
        piece = self.known(buffer)
        content = checks.array(buffer, data, offset).reshape(-1).view(np.uint8)
        if content.size:
            piece.view[offset : offset + content.size] = content
            piece.view[offset + content.size - 1].item()    # a read, behind which all of it has arrived

    def read(self, buffer: Buffer, dtype: Any, count: int | None, offset: int) -> np.ndarray:
        piece = self.known(buffer)
        out = checks.place(buffer, dtype, count, offset)
        out.view(np.uint8)[:] = piece.view[offset : offset + out.nbytes]
        return out


class F2Card(RealCard, shared=("wait", "step", "abort")):
    """A card in a slot of an F2 instance, whose loaded image is the custom logic of a core.

    core: that the image must have; index: the slot; memory_bytes: of the DDR4; config: what the core must be
    configured as, None for anything; beat_bytes: of its ports. library: path of libfpga_mgmt, for tests.

    Besides what real cards have alike: a buffer costs no memory of the host; a drive's pages go through the host's
    memory. When opened, a run that a host before has left is dropped (sw_reset).
    """

    _alone, _remedy = "the shell resets all or nothing", "load the image anew (fpga-load-local-image)"

    def __init__(self, core: str, *, index: int = 0, kernel_mhz: float = 250.0, memory_bytes: int = 64 << 30,
                 beat_bytes: int = 64, config: Any = None, queue_depth: int = 64, library: str | Path | None = None):
        super().__init__(core, f"slot {index}", clock_mhz=kernel_mhz, hz=kernel_mhz * 1e6, patience_s=PATIENCE_S,
                         queue_depth=queue_depth)
        if not 0 <= index < SLOTS:
            raise CardError(f"there is no slot {index}: an instance has slots 0 to {SLOTS - 1}")
        self._library, self._index = _load(library), index
        self._bars: dict[int, int] = {}
        self._words: dict[int, int] = {}
        self.beat_bytes = {"m00_axi": beat_bytes, "m01_axi": beat_bytes}
        atexit.register(self.close)
        try:
            self._open(memory_bytes)
            self.identity = identities.Identity.read({
                name: self._register(offset) or 0 for name, offset in identities.offsets(self._kernel).items()})
            identities.check(self.identity, core, config, where=self._where)
            self._drop()
            self._buffers = _Memory(self._address(memory_bytes), memory_bytes)
        except BaseException:
            self.close()
            raise

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise CardError(f"{name} failed on {self._where} with {code}: is it this instance's, is an image loaded "
                            "(fpga-describe-local-image), and is this process root's?")

    def _open(self, memory_bytes: int) -> None:
        self._call("fpga_mgmt_init")
        for bar, flags in ((OCL_BAR, 0), (PCIS_BAR, BURST_CAPABLE)):
            handle = _INT(-1)
            self._call("fpga_pci_attach", self._index, APP_PF, bar, flags, ctypes.byref(handle))
            self._bars[bar] = handle.value
        leds = _U16()
        self._call("fpga_mgmt_get_vLED_status", self._index, ctypes.byref(leds))
        if self._register(CTRL) == NOBODY:
            raise CardError(f"{self._where} answers nothing at BAR0: no image of hotrail is loaded")
        if not leds.value & READY:
            raise CardError(f"the DDR4 of {self._where} is not calibrated (virtual LED 0 is off): {self._remedy}")

    def _address(self, size: int) -> int:
        """Of the memory in this process."""
        pointer = _PTR()
        self._call("fpga_pci_get_address", self._bars[PCIS_BAR], 0, size // 4, ctypes.byref(pointer))
        assert pointer.value is not None
        return pointer.value

    def _drop(self) -> None:
        """Ends what a host before has left, and its interrupts."""
        self._write_register(CTRL, SW_RESET)
        self._write_register(GIE, 0)
        if not poll(self._stands, time.monotonic() + self._patience_s):
            raise CardError(f"the core on {self._where} still runs for a host before: {self._remedy}")

    def close(self) -> None:
        """Of a core that does not obey its abort register everything stays mapped, with one warning."""
        atexit.unregister(self.close)
        if self._buffers is not None and not self._end():
            warnings.warn(f"the core on {self._where} does not obey its abort register: {self._remedy}",
                          RuntimeWarning, stacklevel=2)
            self._bars = {}     # it may still write where they are
        self._drop_source()
        self._buffers = None
        for handle in self._bars.values():
            self._library.fpga_pci_detach(handle)
        self._bars = {}

    # Runs

    def _register(self, offset: int) -> int | None:
        value = _U32()
        return None if self._library.fpga_pci_peek(self._bars.get(OCL_BAR, -1), offset, ctypes.byref(value)) else (
            value.value)

    def _write_register(self, offset: int, value: int) -> bool:
        return not self._library.fpga_pci_poke(self._bars.get(OCL_BAR, -1), offset, value)

    def _set(self, numbers: Mapping[str, int], arguments: "Mapping[str, int | Buffer]") -> None:
        for item in self._kernel.arguments:
            given = arguments[item.name]
            if isinstance(given, Buffer):
                self._opened().known(given)
            for part in range(item.bits // 32):
                if not self._write_register(item.offset + 4 * part, numbers[item.name] >> 32 * part & 0xFFFFFFFF):
                    raise CardError(f"argument {item.name} could not be set")

    def _start(self) -> None:
        if not self._write_register(CTRL, START):
            raise CardError(f"the core on {self._where} could not be started")

    def _is_done(self) -> bool:
        control = self._register(CTRL)
        if control is None or control == NOBODY:
            self._give_up(CardError(f"{self._where} answers no more at BAR0"))
        return bool(control & IDLE)

    def _stands(self) -> bool:
        control = self._register(CTRL)
        return control is not None and control != NOBODY and control & (IDLE | SW_RESET) == IDLE

    # Where pages come from

    def _open_source(self, stream: SsdStream, objects: MappedBuffers) -> Source:
        if isinstance(stream.data, str | Path):
            return FileSource(stream.data, direct=False)
        return ArraySource(stream.data)
