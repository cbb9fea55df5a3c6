"""The host's side of a real card's ring: brings pages from a drive, in order and under the core's credit.

A Feed keeps up to `depth` reads under way, each straight into the page's place in the ring, announces pages in order
by the doorbell, each when it and all before it have landed, and issues a page when its place is free by the progress
word. It is what the simulated host (cpp/ssd.h) is, with threads for the drive's queue; it works on any three pieces of
memory, so it needs no card to be tested. In what Python costs lies its bound: see docs/real-card.md.
"""

import errno
import os
import stat
import threading
import time
import warnings
from pathlib import Path
from typing import Protocol

import numpy as np

from fpga.card.interface import PAGE, POSITIONS, CardError

POLL_S = 50e-6      # between looks at the progress word while the ring is full
# What Linux answers to a direct read into memory that it cannot hand to the drive.
NO_WAY = (errno.EFAULT, errno.EREMOTEIO, errno.EINVAL)


class Source(Protocol):
    """Where pages come from; `bytes`: how many there are."""

    bytes: int

    def read(self, into: memoryview, offset: int) -> None:
        """Fills `into` from `offset` on. Raises CardError: it cannot."""
        ...

    def close(self) -> None: ...


class ArraySource:
    """Pages of an array in the host's memory."""

    def __init__(self, data: np.ndarray):
        self._content = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        self.bytes = self._content.nbytes

    def read(self, into: memoryview, offset: int) -> None:
        into[:] = self._content[offset : offset + len(into)]

    def close(self) -> None:
        pass


class FileSource:
    """Pages of a file or an NVMe namespace. direct: past the host's page cache, so that a drive reads into a card's
    memory by itself; where the filesystem refuses that, one warning, and pages go through the host's memory.

    Raises CardError: it cannot be opened"""

    def __init__(self, path: str | Path, direct: bool = True):
        self._path, self._direct, self._file, self._has_read = path, direct, -1, False
        try:
            self._file = self._open(direct)
            mode = os.fstat(self._file).st_mode
            self.bytes = os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            raise CardError(f"{path}, which holds the SSD's pages, cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            self.close()
            raise CardError(f"{path} is neither a file nor a drive's namespace, so no pages can be read from it")

    def _open(self, direct: bool) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))
        except OSError:
            if not direct:
                raise
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._direct = False
        warnings.warn(f"{self._path}: its filesystem takes no O_DIRECT, so its pages go through the host's memory",
                      RuntimeWarning, stacklevel=4)
        return file

    def read(self, into: memoryview, offset: int) -> None:
        done = 0
        while done < len(into):
            try:
                count = os.preadv(self._file, [into[done:]], offset + done)
            except OSError as error:
                why = error.strerror
                if self._direct and not self._has_read and error.errno in NO_WAY:
                    why = (f"{why}; a direct read (O_DIRECT) into the ring does not work at all: this kernel or the "
                           "file's filesystem gives no peer-to-peer reads into the card's window")
                raise CardError(f"page at byte {offset} of {self._path} cannot be read: {why}") from None
            self._has_read = True
            before, done = done, done + count
            if self._direct and done < len(into):
                done -= done % PAGE     # what follows must begin at a page's address again
            if done <= before:
                end = min(offset + before + count, os.lseek(self._file, 0, os.SEEK_END))
                raise CardError(f"{self._path} ends at byte {end}, before the end of the page at byte {offset}")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def start_position(transfers: np.ndarray) -> int:
    """What progress and doorbell are when a run begins."""
    return int(transfers[0, 1]) % POSITIONS


class Feed:
    """One run's pages.

    source: where they come from; transfers: (N, 2), as fpga.card.checks.transfers gives them; ring: its memory, whole
    pages; progress, doorbell: views of one 32-bit word each, which hold `start_position`; depth: reads under way.
    `start` begins; `stop` ends it, and no read is under way any more when it returns. error: why no more pages come,
    None while they do. landed: pages announced; credit_waits: looks at a full ring.
    """

    def __init__(self, source: Source, transfers: np.ndarray, *, page_bytes: int, beat_bytes: int, ring: memoryview,
                 progress: memoryview, doorbell: memoryview, depth: int):
        self._source, self._page_bytes = source, page_bytes
        self._ring, self._progress, self._doorbell = ring, progress, doorbell
        self._pages, self._positions = transfers[:, 0].tolist(), transfers[:, 1].tolist()
        self._beat_bytes, self._ring_beats = beat_bytes, len(ring) // beat_bytes
        self._page_beats = page_bytes // beat_bytes
        self._released = start_position(transfers) if len(transfers) else 0
        self._threads = [threading.Thread(target=self._work, name=f"hotrail-page-{number}", daemon=True)
                         for number in range(min(depth, len(self._pages)))]
        # `_turn` is held by the thread whose page is the next, also while the ring has no room for it.
        self._turn, self._next, self._stopping = threading.Lock(), 0, False
        self._lock, self._is_here = threading.Lock(), bytearray(len(self._pages) + 1)
        self.error: CardError | None = None
        self.landed = self.credit_waits = 0

    @property
    def done(self) -> bool:
        return self.landed == len(self._pages)

    def start(self) -> None:
        """Raises CardError: there are no threads to be had; `stop` it."""
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                raise CardError(f"thread {number} of {len(self._threads)} that bring the SSD's pages cannot be "
                                f"started: {error}") from None

    def stop(self) -> None:
        """Also of a feed that was not started; a second call does nothing."""
        self._stopping = True
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        try:
            while (number := self._take()) is not None:
                at = self._positions[number] * self._beat_bytes % len(self._ring)
                page = self._ring[at : at + self._page_bytes]
                self._source.read(page, self._pages[number] * self._page_bytes)
                # One read of the card's memory: this thread's writes are there then, and the drive's, which it has
                # reported, have had a way to the card and back more; see docs/real-card.md.
                _ = page[-1]
                self._land(number)
        except CardError as error:
            self.error = self.error or error
        except Exception as error:      # whatever it is, the run must not wait for it
            self.error = self.error or CardError(f"the SSD's pages stopped: {error!r}")

    def _take(self) -> int | None:
        """The number of the next page, once the ring has room for it; None: there is none, or no more are wanted."""
        with self._turn:
            number = self._next
            while number < len(self._pages) and not self._stopping and self.error is None:
                if not self._has_room(number):
                    self._released = self._progress[0]      # a read over PCIe: only when it matters
                if self._has_room(number):
                    self._next += 1
                    return number
                self.credit_waits += 1
                time.sleep(POLL_S)
        return None

    def _has_room(self, number: int) -> bool:
        """Also where more was released than has been brought."""
        taken = (self._end(number) - self._released) % POSITIONS
        return taken <= self._ring_beats or taken >= POSITIONS // 2

    def _end(self, number: int) -> int:
        return (self._positions[number] + self._page_beats) % POSITIONS

    def _land(self, number: int) -> None:
        """Announces the page, and those behind it that wait for it."""
        with self._lock:
            self._is_here[number] = 1
            before = self.landed
            while self._is_here[self.landed]:
                self.landed += 1
            if self.landed > before:
                self._doorbell[0] = self._end(self.landed - 1)
                # Reading the word sends what a processor gathers of writes to a device on its way.
                _ = self._doorbell[0]
