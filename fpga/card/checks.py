"""What every card asks of its caller, said in the same words."""

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fpga.card.interface import PAGE, POSITIONS, Buffer, CardError, Faults, KernelArgument, SsdStream

CHANNELS = ("aw", "w", "b", "ar", "r")
WAYS, RESPONSES = ("read", "write"), ("SLVERR", "DECERR")
RESET_CYCLES = (1, 10_000)


def new_buffer(bytes: int, name: str, fill: int | None, names: Collection[str]) -> None:
    """Raises CardError: a buffer that cannot be."""
    if bytes < 1:
        raise CardError(f"buffer {name!r} must have at least 1 byte, not {bytes}")
    if name in names:
        raise CardError(f"there is already a buffer {name!r}")
    if fill is not None and not 0 <= fill <= 255:
        raise CardError(f"fill must be a byte, 0 to 255, not {fill}")


def gap(name: str, bytes: int, buffers: Iterable[Buffer], base: int, end: int, guard: int = 0) -> int:
    """Where a new buffer goes: the first gap of whole pages, with `guard` bytes on either side, in [base, end). Raises
    CardError: there is none"""
    size, at = -(-bytes // PAGE) * PAGE, base + guard
    for other in sorted(buffers, key=lambda buffer: buffer.address):
        if at + size + guard <= other.address - guard:
            break
        at = -(-other.end // PAGE) * PAGE + 2 * guard
    if at + size + guard > end:
        raise CardError(f"no room for buffer {name!r} of {bytes} bytes in a memory of {end - base} bytes")
    return at


def ports(wanted: Collection[str], names: Collection[str]) -> None:
    """Raises CardError: not all wanted are ports."""
    for name in wanted:
        if name not in names:
            raise CardError(f"there is no port {name!r}; there are {', '.join(names)}")


def array(buffer: Buffer, data: Any, offset: int) -> np.ndarray:
    """The data as an array in one piece. Raises CardError: it does not fit the buffer from `offset` on."""
    content = np.ascontiguousarray(data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8))
    if offset < 0 or offset + content.nbytes > buffer.bytes:
        raise CardError(f"{content.nbytes} bytes at offset {offset} do not fit the {buffer.bytes} bytes of "
                        f"buffer {buffer.name!r}")
    return content


def place(buffer: Buffer, dtype: Any, count: int | None, offset: int) -> np.ndarray:
    """Room for `count` items of the buffer from `offset` on. Raises CardError: the buffer has fewer."""
    kind = np.dtype(dtype)
    count = max(0, buffer.bytes - offset) // kind.itemsize if count is None else count
    if offset < 0 or count < 0 or offset + count * kind.itemsize > buffer.bytes:
        raise CardError(f"{count} items of {kind} at offset {offset} are not all in the {buffer.bytes} bytes of "
                        f"buffer {buffer.name!r}")
    return np.empty(count, dtype=kind)


def values(wanted: Sequence[KernelArgument], given: Mapping[str, "int | Buffer"]) -> dict[str, int]:
    """The kernel's arguments as numbers, in its order. Raises CardError: one is missing, unknown or too large."""
    names = [item.name for item in wanted]
    for name in given:
        if name not in names:
            raise CardError(f"the kernel has no argument {name!r}; it has {', '.join(names)}")
    numbers = {}
    for item in wanted:
        if item.name not in given:
            raise CardError(f"the kernel's argument {item.name!r} is missing")
        value = given[item.name]
        try:
            number = value.address if isinstance(value, Buffer) else operator.index(value)
        except TypeError:
            raise CardError(f"argument {item.name} = {value!r} is neither a whole number nor a buffer") from None
        if not 0 <= number < 1 << item.bits:
            raise CardError(f"argument {item.name} = {number} does not fit {item.bits} bits")
        numbers[item.name] = number
    return numbers


def transfers(stream: SsdStream, content: int, buffers: Collection[Buffer], beats: Collection[int]) -> np.ndarray:
    """The transfers (N, 2) of a stream whose data has `content` bytes. beats: bytes of each port's beat.

    Raises CardError: a stream that no host could carry out"""
    listed = np.ascontiguousarray(np.asarray(stream.transfers, dtype=np.uint64).reshape(-1, 2))
    page = stream.page_bytes
    if page not in (PAGE, 4 * PAGE):
        raise CardError(f"page_bytes must be 4096 or 16384, not {page}")
    if stream.ring not in buffers:
        raise CardError(f"{stream.ring.name!r} is no buffer of this card")
    if stream.ring.bytes % page:
        raise CardError(f"the ring's {stream.ring.bytes} bytes must be a multiple of page_bytes = {page}")
    if stream.beat_bytes not in beats:
        raise CardError(f"beat_bytes = {stream.beat_bytes} is no port's; ports have "
                        f"{', '.join(map(str, sorted(set(beats))))}")
    for name in ("progress", "doorbell"):
        at = getattr(stream, name)
        if at % 4 or not any(b.address <= at and at + 4 <= b.end for b in buffers):
            raise CardError(f"{name} = 0x{at:x} must be the address of a 32-bit word in a buffer")
    if not len(listed):
        return listed
    if int(listed[:, 0].max()) * page + page > content:
        raise CardError(f"page {int(listed[:, 0].max())} lies past the {content} bytes of the SSD's data")
    of_page = page // stream.beat_bytes
    if int(listed[:, 1].max()) >= POSITIONS or (listed[:, 1] * np.uint64(stream.beat_bytes) % page).any():
        raise CardError(f"ring positions must be multiples of a page's {of_page} beats below 2**30")
    steps = (listed[1:, 1].astype(np.int64) - listed[:-1, 1].astype(np.int64)) % POSITIONS
    if ((steps < of_page) | (steps > stream.ring.bytes // stream.beat_bytes)).any():
        raise CardError("ring positions must ascend from transfer to transfer by at least a page")
    return listed


def cycles(what: str, number: Any, least: int = 0, most: int | None = None) -> int:
    """Cycles as a number. Raises CardError: they are none, too few or too many"""
    try:
        count = operator.index(number)
    except TypeError:
        count = least - 1
    if count < least or most is not None and count > most:
        limits = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
        raise CardError(f"{what} takes {limits} cycles, not {number!r}")
    return count


def faults(wanted: Faults, names: Collection[str]) -> None:
    """Raises CardError: faults that a card with ports of these names cannot have"""
    for channel, share in wanted.stalls.items():
        if channel not in CHANNELS:
            raise CardError(f"there is no channel {channel!r}; there are {', '.join(CHANNELS)}")
        if not 0 <= share <= 0.95:
            raise CardError(f"stalls of {channel} must be 0 to 0.95 of the cycles, not {share}")
        if wanted.stall_cycles < 1:
            raise CardError(f"stall_cycles must be at least 1, not {wanted.stall_cycles}")
    ports([error.port for error in wanted.errors] + [silence.port for silence in wanted.silences], names)
    for error in wanted.errors:
        if error.channel not in WAYS or error.response not in RESPONSES:
            raise CardError(f"an error response is SLVERR or DECERR on read or write, not {error.response} on "
                            f"{error.channel}")
    for silence in wanted.silences:
        if silence.channel not in WAYS or silence.beat < 0:
            raise CardError(f"a silence is on read or write from a beat on, not on {silence.channel} from beat "
                            f"{silence.beat} on")
