"""The models of memory and drive by themselves: what they can give, with no core in the way."""

import ctypes
import hashlib
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from gen.base import kept
from gen.base.tools import call, compiler
from gen.model.device import Device
from gen.rtl.verilator import CACHE

SOURCES = Path(__file__).parent / "cpp"
# What the models of memory, link and drive are written in.
MODEL_SOURCES = ("port.h", "model.h", "names.h", "lane.h", "link.h", "bridge.h", "ssd.h", "ddr.h", "dram.h",
                 "fr_fcfs.h", "group_machines.h", "ring.h", "store.h")
LINE_BYTES = 64
DDR_COUNTERS = ("row_hits", "row_misses", "row_conflicts", "activates", "refreshes", "reads", "writes")
# In the order in which direct_rows reads them.
TIMING = ("banks", "groups", "cl", "cwl", "trcd", "trp", "tras", "tccd_s", "tccd_l", "trrd_s", "trrd_l", "tfaw", "twr",
          "twtr_s", "twtr_l", "trtp", "trefi", "trfc", "bl2", "mhz", "kernel_mhz", "policy", "read_queue",
          "write_queue", "write_high", "write_low", "age_limit", "close_page", "controller_clocks", "machine_depth",
          "column_slots", "turn_lines", "rmw", "bursts", "row_bus", "act_clocks", "bank_refresh", "trrefd",
          "stacks", "tccd_r")
DRIVE_TIMING = ("ssd.tr", "ssd.channels", "ssd.dies", "ssd.flash_page", "ssd.bus", "ssd.command",
                "ssd.setup", "link.page", "ssd.depth", "ssd.submit", "ssd.complete", "ssd.poll", "ssd.doorbell")


@dataclass(frozen=True)
class RowRate:
    """rows per second, cycles it took, the memory's counters and, where asked for, its commands:
    clock, kind ("A"ctivate, "P"recharge, "R"ead, "W"rite, re"F"resh), group, bank over all groups, row."""

    rows_per_s: float
    cycles: int
    counters: dict[str, int]
    commands: np.ndarray | None = field(default=None, repr=False)


COMMAND = np.dtype([("clock", np.int64), *((name, np.int32) for name in ("kind", "group", "bank", "row"))])


@cache
def library() -> Path:
    """The models as a shared library, compiled once for the same sources and compiler."""
    files = ("direct.cpp", *MODEL_SOURCES)
    texts = {name: (SOURCES / name).read_text("utf-8") for name in files}
    digest = hashlib.sha256(repr((sorted(texts.items()), compiler())).encode()).hexdigest()[:16]
    folder = CACHE / f"direct-{digest}"
    path = folder / "direct.so"
    with kept.locked(CACHE / "locks" / f"direct-{digest}"):
        if kept.stamped(folder) is None:
            folder.mkdir(parents=True, exist_ok=True)
            command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", str(SOURCES / "direct.cpp"), "-o", str(path)]
            run = call(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if run.returncode:
                raise RuntimeError(f"compiling the memory models failed:\n{run.stdout[-2000:]}")
            kept.stamp(folder, [path.name], {})
    return path


def rows(device: "Device | str", addresses: np.ndarray, row_bytes: int, *, ahead: int = 512,
         writes: np.ndarray | None = None, bursts: int | None = None, trace: bool = False) -> RowRate:
    """Reads rows of `row_bytes` bytes at byte addresses from the memory's base, one after the other, each a burst.

    Parameters  device: name or Device; addresses: (N,) whole numbers, multiples of 64; row_bytes: a multiple of
                64; ahead: lines of 64 bytes that the port has under way at most; writes: (N,) rows that are
                written, not read: 1 whole, 2 each line in part; bursts: under way at most, where it is not the
                device's number; trace: keep the memory's commands
    Timing      a 512-bit port asks for a line and takes a line each cycle at most, in order
    Raises      ValueError: an address is no multiple of 64 or lies outside the memory
    """
    device = Device.load(device)
    at = np.ascontiguousarray(addresses, dtype=np.uint64)
    if row_bytes < LINE_BYTES or row_bytes % LINE_BYTES:
        raise ValueError(f"row_bytes must be a multiple of {LINE_BYTES}, not {row_bytes}")
    if not at.size or (at % LINE_BYTES).any() or int(at.max()) + row_bytes > device.memory.bytes:
        raise ValueError(f"addresses must be multiples of {LINE_BYTES} with {row_bytes} bytes behind them in a memory "
                         f"of {device.memory.bytes} bytes")
    if not 1 <= ahead <= 1024:
        raise ValueError(f"ahead must be 1 to 1024, not {ahead}")
    options = device.options()
    timing = np.array([options[f"ddr.{name}"] for name in TIMING], dtype=np.int64)
    fields = np.array(device.fields(), dtype=np.int32)
    counters = np.zeros(len(DDR_COUNTERS), dtype=np.uint64)
    lines = at // np.uint64(LINE_BYTES)
    beats = at.size * (row_bytes // LINE_BYTES)
    marks = None if writes is None else np.ascontiguousarray(writes, dtype=np.uint8)
    if marks is not None and marks.shape != at.shape:
        raise ValueError(f"writes must have one mark for each of {at.size} rows, not the shape {marks.shape}")
    room = 8 * beats + 65536 if trace else 0
    commands, traced = np.zeros(room, dtype=COMMAND), ctypes.c_uint64()
    call = ctypes.CDLL(str(library())).direct_rows
    call.restype = ctypes.c_uint64
    pointer = ctypes.c_void_p
    cycles = call(pointer(timing.ctypes.data), pointer(fields.ctypes.data), ctypes.c_int(len(fields)),
                  ctypes.c_int64(options["front"]), ctypes.c_int64(options["back"]), pointer(lines.ctypes.data),
                  ctypes.c_uint64(at.size), ctypes.c_uint64(row_bytes // LINE_BYTES),
                  ctypes.c_uint64(bursts or device.port.bursts), ctypes.c_uint64(ahead),
                  pointer(None if marks is None else marks.ctypes.data), pointer(counters.ctypes.data),
                  pointer(commands.ctypes.data if trace else None), ctypes.c_uint64(room), ctypes.byref(traced))
    if not cycles:
        raise RuntimeError("the memory's controller took more than 1,000 cycles a line: it is stuck")
    return RowRate(at.size / cycles * device.kernel_mhz * 1e6, cycles,
                   dict(zip(DDR_COUNTERS, map(int, counters), strict=True)),
                   commands[: traced.value] if trace else None)


def random_rows(device: "Device | str", row_bytes: int, *, count: int = 20_000, seed: int = 1) -> RowRate:
    """`rows` at random addresses, each a multiple of the row's size."""
    device = Device.load(device)
    draw = np.random.default_rng(seed)
    return rows(device, draw.integers(0, device.memory.bytes // row_bytes, count) * row_bytes, row_bytes)


def pages(device: "Device | str", numbers: np.ndarray, page_bytes: int, *, ring_pages: int = 64) -> float:
    """Seconds until pages of the drive, asked for in this order, have landed in a ring that is read at once.

    Parameters  numbers: (N,) page numbers; page_bytes: of a request, 4096 or 16384; ring_pages: that fit the ring
    Raises      ValueError: no pages, or another size
    """
    device = Device.load(device)
    which = np.asarray(numbers, dtype=np.uint64)
    if page_bytes not in (4096, 16384):
        raise ValueError(f"page_bytes must be 4096 or 16384, not {page_bytes}")
    if which.ndim != 1 or not which.size or ring_pages < 1:
        raise ValueError("at least one page and a ring of at least one page are needed")
    options = device.options()
    timing = np.array([options[name] for name in DRIVE_TIMING], dtype=np.int64)
    beats = page_bytes // LINE_BYTES
    same, transfers = np.zeros((int(which.max()) + 1) * page_bytes, np.uint8), np.zeros((which.size, 2), np.uint64)
    transfers[:, 0], transfers[:, 1] = which, np.arange(which.size) * beats % (1 << 30)
    call = ctypes.CDLL(str(library())).direct_pages
    call.restype = ctypes.c_uint64
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    cycles = call(pointer(timing.ctypes.data), pointer(same.ctypes.data), number(page_bytes),
                  pointer(transfers.ctypes.data), number(which.size), number(ring_pages * page_bytes),
                  number(1 << 40))
    return cycles / (device.kernel_mhz * 1e6)
