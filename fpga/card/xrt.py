"""A real card, by XRT.

Made by `fpga.card.open("xrt", ...)`. What the simulated card does cycle by cycle, the core, the memory and the drive do
here by themselves; so some calls mean less: see the class. Buffers that host or drive reach during a run are mapped
peer-to-peer: a look at a word is one read over PCIe, about 1 us, where a sync of an ordinary buffer is a system call
and a DMA of tens of microseconds, and the drive needs the ring mapped in any case.
"""

import atexit
import ctypes
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fpga.card import checks, discover, libxrt
from fpga.card import identity as identities
from fpga.card.buffers import BufferObject, BufferObjects
from fpga.card.feed import ArraySource, Feed, FileSource, Source, start_position
from fpga.card.interface import PAGE, Buffer, Card, CardError, CardHang, Faults, SsdStream, Violation
from fpga.vitis import xclbin as xclbins
from gen.rtl.headers import KERNELS

__all__ = ["XrtCard"]

# Looks at a run: without a pause at first, as it may take microseconds, then ever rarer.
SPIN_S, PAUSE, PAUSE_MOST_S = 1e-3, 1 / 16, 5e-3    # pauses are this part of the time that has passed
PATIENCE_S = 1.0        # that a core may take to obey its abort register
# Of an emulated core, by the host's clock: what a simulator may do, so that usual limits of cycles are hours or days.
EMULATED_HZ, EMULATED_PATIENCE_S = 1e3, 60.0


class XrtCard(Card, shared=("wait", "step", "abort")):
    """A card behind XRT, with the core of an xclbin.

    xclbin: of the core; index: the card's number in `hotrail cards`, or with XCL_EMULATION_MODE the number that XRT
    gives it; bdf: its address instead; instance: of the kernel, default: the first. kernel_mhz: where the xclbin does
    not tell; beat_bytes: what the core's ports must carry a cycle; config: what the core must be configured as, None
    for anything; queue_depth: reads of the drive under way. sysfs, library: for tests.

    What is different from a simulated card:
    - `wait` and `step` count cycles by the host's clock, of an emulated core a thousand a second; the exact number is
      the result block's.
    - Buffers begin with zeros. An ordinary one costs as much memory of the host as of the card: so does XRT it.
    - Other threads reach the buffers and `abort` while one is in `wait` or `step`, where time passes by itself.
    - A pointer's argument must be a Buffer. `reset` can only ask the core to abort.
    - `counters` has `cycles`, `ssd.pages`, `ssd.bytes`, `ssd.credit_waits` (looks, not cycles) and `violations`, which
      is 0: nothing watches the bus. There are no faults on purpose.
    """

    def __init__(self, xclbin: str | Path, core: str, *, index: int = 0, bdf: str = "", instance: str = "",
                 kernel_mhz: float = 250.0, beat_bytes: int | None = None, config: Any = None, queue_depth: int = 64,
                 sysfs: str | Path = discover.SYSFS, library: Any = None):
        self._kernel, self._depth = KERNELS[core], queue_depth
        assert self._kernel.abort is not None and self._kernel.status is not None, core
        self._buffers: BufferObjects | None = None
        self._device: Any = None
        self._core: Any = None
        self._run: Any = None
        self._running, self._began = False, 0.0
        self._has_run = False       # since the memory was known to owe nothing
        self._given: set[str] = set()       # buffers of the last run
        self._source: Source | None = None
        self._stream: SsdStream | None = None
        self._transfers = np.zeros((0, 2), np.uint64)
        self._feed: Feed | None = None
        try:
            image = xclbins.read(xclbin)
            about, self._unit = image.check(core, beat_bytes, instance), image.instance(core, instance)
        except xclbins.XclbinError as error:
            raise CardError(str(error)) from None
        self._image, self._sysfs = image, sysfs
        self._check_mode()
        self._xrt = libxrt.load() if library is None else libxrt.Xrt(library)
        self._where = f"device {index}"
        self.clock_mhz = float(image.clock_mhz or kernel_mhz)
        self._hz, self._patience_s = ((EMULATED_HZ, EMULATED_PATIENCE_S) if libxrt.emulates_core() else
                                      (self.clock_mhz * 1e6, PATIENCE_S))
        self.beat_bytes = {name: bits // 8 for name, bits in about.ports.items() if name.startswith("m")}
        self.clear()
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

    def _end(self) -> bool:
        """Asks the core to abort, if it runs; whether it stands, and the memory owes it nothing."""
        self._stop_feed()
        if self._running:
            self._xrt.xrtKernelWriteRegister(self._core, self._kernel.abort, 1)
            if _poll(self._stands, time.monotonic() + self._patience_s):
                self._finish()
        return not self._running and (
            not self._has_run or _poll(self._owes_nothing, time.monotonic() + self._patience_s))

    def _owes_nothing(self) -> bool:
        """Whether the memory has answered all that a run has asked it; otherwise that may still be written."""
        assert self._kernel.status is not None
        self._has_run &= self._register(self._kernel.status) == self._kernel.states.index("draining")
        return not self._has_run

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

    def _opened(self) -> BufferObjects:
        if self._device is None or self._buffers is None:
            raise CardError("the card is closed")
        return self._buffers

    # Memory

    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        return self._opened().allocate(bytes, name, fill, p2p)

    def free(self, buffer: Buffer) -> None:
        objects = self._opened()
        if self._running and buffer.name in self._given:
            raise CardError(f"buffer {buffer.name!r} cannot be given back while the core runs")
        objects.free(buffer)

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(self._opened().buffers)

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._opened().write(buffer, data, offset)

    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        return self._opened().read(buffer, dtype, count, offset)

    # Runs

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        objects, wanted = self._opened(), self._kernel.arguments
        if self._running:
            raise CardError("a run is under way; wait for it, or reset the card")
        self._stop_feed()
        numbers = checks.values(wanted, arguments)
        for number, item in enumerate(wanted):
            given = arguments[item.name]
            if isinstance(given, Buffer) != (item.kind == "pointer"):
                raise CardError(f"argument {item.name} must be a "
                                f"{'buffer' if item.kind == 'pointer' else 'number'}, not {given!r}")
            value = (ctypes.c_void_p(objects.known(given).handle) if isinstance(given, Buffer)
                     else ctypes.c_uint32(numbers[item.name]))
            self._xrt.must("xrtRunSetArg", self._run, number, value, what=f"argument {item.name} could not be set")
        feed = self._prepare(objects)
        self._began = time.monotonic()
        self._given = {given.name for given in arguments.values() if isinstance(given, Buffer)}
        # From here on a run is under way, whatever happens, until XRT says that it is not.
        self._feed, self._running, self._has_run = feed, True, True
        try:
            self._xrt.must("xrtRunStart", self._run, what=f"the core on {self._where} could not be started")
        except CardError:
            self._feed, self._running, self._has_run = None, False, False
            raise
        if feed is not None:
            try:
                feed.start()
            except CardError:
                self._end()
                raise

    def _prepare(self, objects: BufferObjects) -> Feed | None:
        """The run's feed, with the words in the card's memory as they begin."""
        stream = self._stream
        if stream is None or self._source is None or not len(self._transfers):
            return None
        words = [_word(*objects.at(address)) for address in (stream.progress, stream.doorbell)]
        for word in words:
            word[0] = start_position(self._transfers)
            _ = word[0]     # see BufferObjects: on its way to the card now
        ring = objects.known(stream.ring)
        return Feed(self._source, self._transfers, page_bytes=stream.page_bytes, beat_bytes=stream.beat_bytes,
                    ring=ring.view[: stream.ring.bytes].data, progress=words[0], doorbell=words[1], depth=self._depth)

    def _stop_feed(self) -> CardError | None:
        """Ends the feed and counts what it did; its error."""
        feed = self._feed
        if feed is None:
            return None
        feed.stop()
        self._feed = None       # not before: nobody may take its memory while it works
        self._counted["ssd.pages"] += feed.landed
        self._counted["ssd.bytes"] += feed.landed * (self._stream.page_bytes if self._stream else 0)
        self._counted["ssd.credit_waits"] += feed.credit_waits
        return feed.error

    @property
    def _feed_error(self) -> CardError | None:
        return None if self._feed is None else self._feed.error

    def _is_done(self) -> bool:
        """Whether the core has ended: a look at memory of the host. Raises CardError: XRT has given the run up"""
        state = self._xrt.xrtRunState(self._run)
        if state in libxrt.FAILED:
            self._give_up(CardError(f"XRT ended the run on {self._where} in state {libxrt.FAILED[state]}"))
        return state == libxrt.COMPLETED

    def _give_up(self, error: CardError) -> NoReturn:
        """Tells the core to stop. Raises CardError: why"""
        if not self._end():
            raise CardError(f"{error}; and the core does not obey its abort register")
        raise error

    def step(self, cycles: int) -> bool:
        self._opened()
        cycles = checks.cycles("step", cycles)
        return _poll(lambda: self._running and self._is_done(), time.monotonic() + cycles / self._hz)

    def wait(self, timeout_cycles: int = 10_000_000, timeout_s: float | None = None) -> int:
        self._opened()
        until = self._began + checks.cycles("wait", timeout_cycles) / self._hz
        if not self._running:
            raise CardError("nothing is running")
        if timeout_s is not None:
            until = min(until, time.monotonic() + timeout_s)
        if not _poll(lambda: self._is_done() or self._feed_error is not None, until):
            self._hang()
        if (error := self._feed_error) is not None and not self._is_done():
            self._give_up(error)
        self._finish()
        cycles = self._cycles()
        self._counted["cycles"] += cycles
        if failed := self._stop_feed():
            raise failed
        return cycles

    def _cycles(self) -> int:
        """Since the run began."""
        return int((time.monotonic() - self._began) * self._hz)

    def _hang(self) -> NoReturn:
        text, state = f"the core was not done after {self._cycles()} cycles", self.status()
        if state is None:
            raise CardHang(f"{text}, and its status register cannot be read")
        raise CardHang(f"{text}, its status register is 0x{state:x}", state)

    def status(self) -> int | None:
        self._opened()
        assert self._kernel.status is not None
        return self._register(self._kernel.status)

    def code(self) -> int | None:
        self._opened()
        return self._register(self._kernel.register("code").offset)

    def abort(self) -> None:
        self._opened()
        self._xrt.must("xrtKernelWriteRegister", self._core, self._kernel.abort, 1,
                       what=f"the abort register of the core on {self._where} could not be written")

    def reset(self, cycles: int = 4) -> None:
        self._opened()
        checks.cycles("reset", cycles, *checks.RESET_CYCLES)
        if not self._end():
            if not self._running:
                raise CardError(f"the memory of {self._where} owes the core an answer to its last run, which may still "
                                "be written: close the card, and reset it with xbutil")
            raise CardError(f"the core on {self._where} does not obey its abort register, and XRT resets no kernel "
                            "alone: close the card, and reset it with xbutil")

    # The drive

    def stream(self, stream: SsdStream | None) -> None:
        objects = self._opened()
        if self._running:
            raise CardError("the stream cannot be changed while the core runs")
        self._stop_feed()
        self._drop_source()
        if stream is None:
            return
        if isinstance(stream.data, str | Path):
            self._check_drive(stream.data)
        source = self._open_source(stream, objects)
        try:
            self._transfers = checks.transfers(stream, source.bytes, objects.buffers, self.beat_bytes.values())
            for item in (objects.known(stream.ring), objects.at(stream.progress)[0], objects.at(stream.doorbell)[0]):
                if not item.is_p2p:
                    raise CardError(f"no P2P: buffer {item.buffer.name!r} cannot be reached by the drive: "
                                    + objects.why_no_window(item))
        except BaseException:
            source.close()
            raise
        self._stream, self._source = stream, source

    def _check_drive(self, path: str | Path) -> None:
        """Raises CardError: the file lies on another drive than the card's own."""
        own, drives = self._found_card, discover.drives_of(path, self._sysfs)
        if own is not None and own.drive and drives and own.drive not in drives:
            raise CardError(f"{path} is on the drive {', '.join(drives)}, and {self._where}'s own is {own.drive}"
                            + (f" ({', '.join(own.namespaces)})" if own.namespaces else "")
                            + ": pages go from drive to card on one board alone")

    @staticmethod
    def _open_source(stream: SsdStream, objects: BufferObjects) -> Source:
        if not isinstance(stream.data, str | Path):
            return ArraySource(stream.data)
        # Reads past the page cache land at 4 KB addresses alone, which a window has; emulated ones may not.
        direct = objects.known(stream.ring).view.ctypes.data % PAGE == 0
        if not direct:
            warnings.warn(f"buffer {stream.ring.name!r} does not begin at a page of the host's, so the pages of "
                          f"{stream.data} go through the host's memory", RuntimeWarning, stacklevel=3)
        return FileSource(stream.data, direct)

    def _drop_source(self) -> None:
        source, self._source, self._stream = self._source, None, None
        if source is not None:
            source.close()
        self._transfers = np.zeros((0, 2), np.uint64)

    def set_faults(self, faults: Faults) -> None:
        if faults != Faults():
            raise CardError("a real card makes no faults on purpose; the simulated one does")

    # What happened

    def counters(self) -> dict[str, int]:
        return dict(self._counted)

    def clear(self) -> None:
        self._counted = dict.fromkeys(("cycles", "ssd.pages", "ssd.bytes", "ssd.credit_waits", "violations"), 0)

    def violations(self) -> tuple[Violation, ...]:
        return ()

    @property
    def cycles_per_s(self) -> float:
        return 0.0


def _poll(is_so: Callable[[], bool], until: float) -> bool:
    """Whether it becomes so before the clock (time.monotonic) is there."""
    began = time.monotonic()
    while not is_so():
        now = time.monotonic()
        if now >= until:
            return False
        if now - began > SPIN_S:
            time.sleep(min((now - began) * PAUSE, PAUSE_MOST_S, until - now))
    return True


def _word(item: BufferObject, offset: int) -> memoryview:
    """A view of one 32-bit word of a buffer."""
    return item.view[offset : offset + 4].data.cast("I")
