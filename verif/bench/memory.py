"""Card memory: sparse, with buffers where a real card has them and everything outside of them forbidden.

Data are one integer a beat. A read of a byte that was never written is answered with SLVERR and remembered as a
violation, as is everything that leaves the buffers: real card memory has ECC, and its host may not survive.
"""

from collections import Counter
from dataclasses import dataclass

from verif.bench import rng

BASE = 0x40_0000_0000
PAGE = 4096
OKAY, SLVERR, DECERR = 0, 2, 3
POISON = 0xBADC0FFEE0DDF00D  # what a read returns of memory that holds nothing
_bases: Counter[str] = Counter()


def base(name: str, align: int = PAGE) -> int:
    """Where a buffer begins, in bytes: at a place drawn for its name, and half of the times at that with all bits
    inverted, so that a bench which asks three times has every bit of an address up and down, and one that uses each
    n-th for the same as well. A quarter of all memory lies behind."""
    _bases[name] += 1
    drawn, turn = rng(f"base {name}").getrandbits(62) | 1 << 62, _bases[name]
    return (drawn if (turn + (turn >> 2).bit_count()) % 2 else ~drawn) & ((1 << 64) - align)


@dataclass(frozen=True)
class Buffer:
    """A piece of card memory that a host has allocated."""

    name: str
    address: int
    size: int
    readable: bool = True
    writable: bool = True

    def holds(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.address + self.size


class CardMemory:
    """Sparse memory of one card, for any number of ports of equal width. first: where it begins, else anywhere.

    >>> memory = CardMemory(64, BASE)
    >>> rows = memory.allocate("rows", 256, data=bytes(range(256)), writable=False)
    >>> hex(rows.address), memory.read(rows.address + 2, 3), memory.load(rows.address + 64)[1]
    ('0x4000000000', b'\\x02\\x03\\x04', 0)
    >>> memory.store(rows.address, 1), memory.violations
    (3, ['write of 64 bytes at 0x4000000000, which is in no writable buffer'])
    """

    def __init__(self, beat_bytes: int, first: int | None = None):
        self.beat_bytes = beat_bytes
        self.beats: dict[int, int] = {}  # by address // beat_bytes
        self.buffers: list[Buffer] = []
        self.violations: list[str] = []
        self._next = base("memory") if first is None else first
        self._partly: dict[int, int] = {}  # beats of which not every byte was written: mask of those that were
        self._faults: list[tuple[int, int, int, bool, bool]] = []
        self._last: dict[bool, Buffer | None] = {False: None, True: None}
        self._poison = int.from_bytes(POISON.to_bytes(8, "little") * (beat_bytes // 8 or 1), "little")
        self._poison &= (1 << 8 * beat_bytes) - 1

    # -- What a host does.

    def allocate(self, name: str, size: int, *, data: bytes | None = None, readable: bool = True,
                 writable: bool = True, offset: int = 0) -> Buffer:
        """A buffer that begins `offset` bytes into a page, with unused pages around it."""
        address = self._next + offset
        self._next = (address + size + 2 * PAGE - 1) // PAGE * PAGE
        buffer = Buffer(name, address, size, readable, writable)
        self.buffers.append(buffer)
        if data is not None:
            self.write(address, data)
        return buffer

    def allocate_from(self, address: int) -> None:
        """Where the next buffer begins."""
        self._next = address

    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back: what it held counts as never written."""
        self.buffers.remove(buffer)
        self._last = {False: None, True: None}
        for beat in range(buffer.address // self.beat_bytes, -(-(buffer.address + buffer.size) // self.beat_bytes)):
            self.beats.pop(beat, None)
            self._partly.pop(beat, None)

    def write(self, address: int, content: bytes) -> None:
        """Writes bytes anywhere, as the host does; nothing is checked."""
        step = self.beat_bytes
        whole = (1 << 8 * step) - 1
        at = 0
        while at < len(content):
            beat, skip = divmod(address + at, step)
            piece = content[at : at + step - skip]
            at += len(piece)
            value = int.from_bytes(piece, "little")
            if len(piece) == step:
                self.beats[beat] = value
                self._partly.pop(beat, None)
                continue
            mask = ((1 << 8 * len(piece)) - 1) << 8 * skip
            before = self._partly.get(beat, whole if beat in self.beats else 0)
            self.beats[beat] = self.beats.get(beat, 0) & ~mask | value << 8 * skip
            if before | mask == whole:
                self._partly.pop(beat, None)
            else:
                self._partly[beat] = before | mask

    def read(self, address: int, size: int) -> bytes:
        """Reads bytes as the host does; what was never written reads as zero."""
        first, last = address // self.beat_bytes, (address + size - 1) // self.beat_bytes
        text = b"".join(self.beats.get(beat, 0).to_bytes(self.beat_bytes, "little") for beat in range(first, last + 1))
        skip = address - first * self.beat_bytes
        return text[skip : skip + size]

    def fail(self, address: int, size: int = 1, *, response: int = SLVERR, reads: bool = True) -> None:
        """From now on, writes that touch these bytes, and `reads`, are answered with `response`."""
        self._faults.append((address, address + size, response, reads, True))

    def heal(self) -> None:
        """Takes back all `fail`s."""
        self._faults.clear()

    def check(self) -> None:
        """Raises AssertionError with everything that the unit has done to memory and must not."""
        if self.violations:
            more = f" (and {len(self.violations) - 5} more)" if len(self.violations) > 5 else ""
            raise AssertionError("; ".join(self.violations[:5]) + more)

    # -- What a port does.

    def load(self, address: int) -> tuple[int, int]:
        """(data, response) of one beat."""
        known = self._last[False]
        if known is None or not known.holds(address, self.beat_bytes):
            known = self._find(address, False)
        beat = address // self.beat_bytes
        if known is None:
            self.violations.append(
                f"read of {self.beat_bytes} bytes at {address:#x}, which is in no readable buffer")
            return self._poison, DECERR
        if beat not in self.beats or beat in self._partly:
            self.violations.append(f"read at {address:#x} in {known.name} of what was never written")
            return self._poison, SLVERR
        response = self._response(address, 3) if self._faults else OKAY
        return (self._poison if response else self.beats[beat]), response

    def store(self, address: int, value: int) -> int:
        """Writes one beat; the response."""
        known = self._last[True]
        if known is None or not known.holds(address, self.beat_bytes):
            known = self._find(address, True)
        if known is None:
            self.violations.append(
                f"write of {self.beat_bytes} bytes at {address:#x}, which is in no writable buffer")
            return DECERR
        response = self._response(address, 4) if self._faults else OKAY
        if not response:
            self.beats[address // self.beat_bytes] = value
            self._partly.pop(address // self.beat_bytes, None)
        return response

    def _find(self, address: int, write: bool) -> Buffer | None:
        for buffer in self.buffers:
            if (buffer.writable if write else buffer.readable) and buffer.holds(address, self.beat_bytes):
                self._last[write] = buffer
                return buffer
        return None

    def _response(self, address: int, side: int) -> int:
        hits = [f[2] for f in self._faults if f[0] < address + self.beat_bytes and address < f[1] and f[side]]
        return max(hits, default=OKAY)
