"""A real card, by XRT.

Made by `fpga.card.open("xrt", ...)`. What the simulated card does cycle by cycle, the core, the memory and the drive do
here by themselves; so some calls mean less: see the class. Buffers that host or drive reach during a run are mapped
peer-to-peer: a look at a word is one read over PCIe, about 1 us, where a sync of an ordinary buffer is a system call
and a DMA of tens of microseconds, and the drive needs the ring mapped in any case.
"""

import atexit
import ctypes
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpga.card import discover, libxrt
from fpga.card import identity as identities
from fpga.card.buffers import BufferObjects
from fpga.card.feed import ArraySource, FileSource, Source
from fpga.card.interface import PAGE, Buffer, CardError, SsdStream
from fpga.card.real import PATIENCE_S, MappedBuffers, RealCard
from fpga.vitis import xclbin as xclbins

# Of an emulated core, by the host's clock: what a simulator may do, so that usual limits of cycles are hours or days.
EMULATED_HZ, EMULATED_PATIENCE_S = 1e3, 60.0


class XrtCard(RealCard, shared=("wait", "step", "abort")):
    """A card behind XRT, with the core of an xclbin.

    xclbin: of the core; index: the card's number in `hotrail cards`, or with XCL_EMULATION_MODE the number that XRT
    gives it; bdf: its address instead; instance: of the kernel, default: the first. kernel_mhz: where the xclbin does
    not tell; beat_bytes: what the core's ports must carry a cycle; config: what the core must be configured as, None
    for anything; queue_depth: reads of the drive under way. sysfs, library: for tests.

    Besides what real cards have alike: cycles of an emulated core are a thousand a second; an ordinary buffer costs as
    much memory of the host as of the card: so does XRT it.
    """

    _alone, _remedy = "XRT resets no kernel alone", "reset it with xbutil"

    def __init__(self, xclbin: str | Path, core: str, *, index: int = 0, bdf: str = "", instance: str = "",
                 kernel_mhz: float = 250.0, beat_bytes: int | None = None, config: Any = None, queue_depth: int = 64,
                 sysfs: str | Path = discover.SYSFS, library: Any = None):
        self._device: Any = None
        self._core: Any = None
        self._run: Any = None
        try:
            image = xclbins.read(xclbin)
            about, self._unit = image.check(core, beat_bytes, instance), image.instance(core, instance)
        except xclbins.XclbinError as error:
            raise CardError(str(error)) from None
        self._image, self._sysfs = image, sysfs
        self._check_mode()
        self._xrt = libxrt.load() if library is None else libxrt.Xrt(library)
        clock_mhz = float(image.clock_mhz or kernel_mhz)
        hz, patience_s = ((EMULATED_HZ, EMULATED_PATIENCE_S) if libxrt.emulates_core() else
                          (clock_mhz * 1e6, PATIENCE_S))
        super().__init__(core, f"device {index}", clock_mhz=clock_mhz, hz=hz, patience_s=patience_s,
                         queue_depth=queue_depth)
        self.beat_bytes = {name: bits // 8 for name, bits in about.ports.items() if name.startswith("m")}
        atexit.register(self.close)     # XRT's own end does not come behind open handles unharmed
        self._found_card: discover.FoundCard | None = None
        try:
            self._found_card = self._card(index, bdf, sysfs)
            self._open(index, self._found_card)
            self.identity = self._identify()
            identities.check(self.identity, core, config, where=self._where)
        except BaseException:
            self.close()
            raise

    # Opening and closing

    def _check_mode(self) -> None:
        mode, image = libxrt.emulation(), self._image
        if mode == "noop":
            return
        if not image.has_bitstream:
            raise CardError(f"{image.path} holds no bitstream: it is for XRT's parser alone (XCL_EMULATION_MODE=noop)")
        if image.mode != (mode or "hw"):
            raise CardError(f"{image.path} was linked for {image.mode}, and XCL_EMULATION_MODE "
                            + (f"is {mode}" if mode else "is not set"))

    def _card(self, index: int, bdf: str, sysfs: str | Path) -> "discover.FoundCard | None":
        """The card in this machine that is meant; None where XRT emulates."""
        if libxrt.emulation():
            return None
        cards = discover.cards(sysfs)
        if not cards:
            raise CardError("there is no card: no PCIe device is worked by XRT's driver xocl (see `hotrail cards`)")
        if bdf and bdf not in [card.bdf for card in cards]:
            raise CardError(f"there is no card {bdf}; there are {', '.join(card.bdf for card in cards)}")
        if not bdf and not 0 <= index < len(cards):
            raise CardError(f"there is no card {index}: `hotrail cards` lists {len(cards)}, from 0 on")
        card = next(card for card in cards if card.bdf == bdf) if bdf else cards[index]
        if card.platform and not xclbins.fits(self._image.platform, card.platform):
            raise CardError(f"wrong shell: {self._image.path} was linked for {self._image.platform}, and card "
                            f"{card.bdf} has {card.platform}")
        return card

    def _open(self, index: int, card: "discover.FoundCard | None") -> None:
        xrt = self._xrt
        if card is None:
            self._device = xrt.handle("xrtDeviceOpen", index, what=f"XRT could not open {self._where}")
        else:
            self._where = f"card {card.bdf}"
            self._device = xrt.handle("xrtDeviceOpenByBDF", card.bdf.encode(),
                                      what=f"XRT could not open {self._where}")
        xrt.load_xclbin(self._device, self._image.path, self._where)
        # One instance, exclusively: of several, or without, XRT lets nobody reach the registers behind the arguments.
        name = "{}:{{{}}}".format(*self._image.instances[self._unit].name.split(":", 1))
        self._core = xrt.handle("xrtPLKernelOpenExclusive", self._device, self._image.uuid.bytes, name.encode(),
                                what=f"kernel {name} on {self._where} could not be opened; another process may use it")
        self._run = xrt.handle("xrtRunOpen", self._core, what=f"XRT could not prepare a run of kernel {name}")
        pointers = {item.name: number for number, item in enumerate(self._kernel.arguments) if item.kind == "pointer"}
        memories = {name: [self._image.memories[link.memory] for link in self._image.connections
                           if (link.instance, link.argument) == (self._unit, number)]
                    for name, number in pointers.items()}
        groups = {name: xrt.xrtKernelArgGroupId(self._core, number) for name, number in pointers.items()}
        self._buffers = BufferObjects(
            xrt, self._device, groups, {name: max(memory.bytes for memory in of) for name, of in memories.items()},
            discover.P2P_UNKNOWN if card is None else card.p2p, self._where,
            {groups[name] for name, of in memories.items() if any(memory.tag.startswith("HOST") for memory in of)})

    def _identify(self) -> identities.Identity | None:
        """The core's own word for what it is; None where XRT emulates without a core."""
        if libxrt.emulation() == "noop":
            return None
        values = {name: self._register(offset) for name, offset in identities.offsets(self._kernel).items()}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) != len(values):
            raise CardError(f"the registers of the core on {self._where} cannot be read")
        return identities.Identity.read(known)

    def close(self) -> None:
        """Of a core that does not obey its abort register everything stays open, with one warning: it may still write
        into its buffers, so they must be nobody else's before the process ends."""
        atexit.unregister(self.close)
        if self._device is None:
            return
        has_ended = self._run is None or self._end()
        self._drop_source()
        if has_ended:
            if self._run is not None:
                self._xrt.xrtRunClose(self._run)
            if self._buffers is not None:
                self._buffers.free_all()
            if self._core is not None:
                self._xrt.xrtKernelClose(self._core)
            self._xrt.xrtDeviceClose(self._device)
        else:
            warnings.warn(f"the core on {self._where} does not obey its abort register: its buffers stay allocated "
                          "until this process ends; reset the card then (xbutil reset)", RuntimeWarning, stacklevel=2)
        self._device = self._core = self._run = self._buffers = None

    def _stands(self) -> bool:
        """Whether the core writes no more. XRT does not know it of a run that it has given up; the core does."""
        state = self._xrt.xrtRunState(self._run)
        if state in libxrt.FAILED:
            return self.status() == self._kernel.states.index("idle")
        return state in (libxrt.NEW, libxrt.COMPLETED)

    def _register(self, offset: int) -> int | None:
        """What a register of the core holds; None: it cannot be read"""
        value = ctypes.c_uint32()
        return None if self._xrt.xrtKernelReadRegister(self._core, offset, ctypes.byref(value)) else value.value

    def _finish(self) -> None:
        """The core stands. XRT 2.11 starts a run again only when it was waited for, which takes no time any more."""
        self._xrt.xrtRunWaitFor(self._run, 1)
        self._running = False

    def _write_register(self, offset: int, value: int) -> bool:
        return not self._xrt.xrtKernelWriteRegister(self._core, offset, value)

    def _set(self, numbers: Mapping[str, int], arguments: "Mapping[str, int | Buffer]") -> None:
        objects = self._opened()
        for number, item in enumerate(self._kernel.arguments):
            given = arguments[item.name]
            value = (ctypes.c_void_p(objects.known(given).handle) if isinstance(given, Buffer)
                     else ctypes.c_uint32(numbers[item.name]))
            self._xrt.must("xrtRunSetArg", self._run, number, value, what=f"argument {item.name} could not be set")

    def _start(self) -> None:
        self._xrt.must("xrtRunStart", self._run, what=f"the core on {self._where} could not be started")

    def _is_done(self) -> bool:
        """Whether the core has ended: a look at memory of the host. Raises CardError: XRT has given the run up"""
        state = self._xrt.xrtRunState(self._run)
        if state in libxrt.FAILED:
            self._give_up(CardError(f"XRT ended the run on {self._where} in state {libxrt.FAILED[state]}"))
        return state == libxrt.COMPLETED

    def _check_drive(self, path: str | Path) -> None:
        """Raises CardError: the file lies on another drive than the card's own."""
        own, drives = self._found_card, discover.drives_of(path, self._sysfs)
        if own is not None and own.drive and drives and own.drive not in drives:
            raise CardError(f"{path} is on the drive {', '.join(drives)}, and {self._where}'s own is {own.drive}"
                            + (f" ({', '.join(own.namespaces)})" if own.namespaces else "")
                            + ": pages go from drive to card on one board alone")

    @staticmethod
    def _open_source(stream: SsdStream, objects: MappedBuffers) -> Source:
        if not isinstance(stream.data, str | Path):
            return ArraySource(stream.data)
        # Reads past the page cache land at 4 KB addresses alone, which a window has; emulated ones may not.
        direct = objects.known(stream.ring).view.ctypes.data % PAGE == 0
        if not direct:
            warnings.warn(f"buffer {stream.ring.name!r} does not begin at a page of the host's, so the pages of "
                          f"{stream.data} go through the host's memory", RuntimeWarning, stacklevel=3)
        return FileSource(stream.data, direct)
