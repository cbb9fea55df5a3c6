"""The simulated card: drives the shared library that fpga.card.model builds."""

import ctypes
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpga.card import checks
from fpga.card.identity import Identity, offsets
from fpga.card.interface import (
    COMMANDS,
    PAGE,
    RULES,
    Buffer,
    Card,
    CardError,
    CardHang,
    CardViolation,
    Faults,
    KernelLike,
    LinkUse,
    SsdStream,
    Violation,
)
from fpga.card.memory import DDR_COUNTERS
from fpga.card.model import Model
from gen.model.device import Device

CTRL, GIE, IER, ISR, FIRST = 0x00, 0x04, 0x08, 0x0C, 0x10
START, DONE, SW_RESET = 1, 2, 1 << 8
INTERRUPT = 1 << 63
RESPONSES = {"SLVERR": 2, "DECERR": 3}
PORT_COUNTERS = ("bursts_read", "beats_read", "read_waits", "bursts_written", "beats_written", "read_outstanding_most")
HOST, CONTROL_PORT = 62, 63
EVERY, SENT = 0, (1 << 64) - 1      # transfers, in the place of the number of one
# Between slices of a simulation signals are looked at, and the clock: its length in seconds, and in cycles at first.
SLICE_S, FIRST_SLICE, LONGEST_SLICE = 0.02, 64, 1 << 20
STANDSTILL = 250_000     # cycles without a byte on the link, beside its latencies, after which a transfer hangs
_U64, _I64, _U32, _INT, _PTR = ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p
# Name -> (result, arguments after the handle).
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "option": (_INT, (ctypes.c_char_p, _I64)),
    "map": (None, (_INT, _INT, _INT, _INT)),
    "start": (_INT, ()),
    "reset": (None, (_U64,)),
    "add": (None, (_U64, _U64)),
    "remove": (_INT, (_U64,)),
    "write": (None, (_U64, _PTR, _U64)),
    "fill": (None, (_U64, _INT, _U64)),
    "read": (None, (_U64, _PTR, _U64)),
    "send": (_U64, (_U64, _PTR, _U64)),
    "fetch": (_U64, (_U64, _U64)),
    "settle": (_INT, (_U64, _U64, _INT)),
    "take": (_INT, (_U64, _PTR)),
    "passed": (None, (_U64, _U64)),
    "control_write": (_INT, (_U32, _U32)),
    "control_read": (_INT, (_U32, _PTR)),
    "peek": (_INT, (_PTR, _U64, _PTR)),
    "begin": (None, ()),
    "steps": (_U64, (_U64,)),
    "cycle": (_U64, ()),
    "since_begin": (_U64, ()),
    "under_way": (_U64, (_INT,)),
    "clear": (None, ()),
    "counters": (None, (_PTR,)),
    "check_guards": (None, ()),
    "violation": (_INT, (_INT, _INT, _PTR)),
    "no_faults": (None, ()),
    "stall": (None, (_INT, _U32, _U32, _U64)),
    "error": (None, (_INT, _INT, _INT, _I64, _U64, _U64)),
    "silence": (None, (_INT, _INT, _I64)),
    "ssd_faults": (None, (_PTR, _U64, _I64, _U32, _I64)),
    "stream": (None, (_PTR, _U64, _U64, _PTR, _U64, _U64, _U64, _U64, _U64, _U64)),
    "delete": (None, ()),
}
# Calls that may take long, during which Python's other threads work. The others keep Python's lock: to get it again
# takes longer than they do.
_LONG = {"start", "reset", "write", "fill", "read", "send", "take", "settle", "steps", "check_guards", "remove",
         "delete"}


class SimCard(Card):
    """A card in this process. Made by `fpga.card.open`. between: called between slices of a simulation; what it raises
    ends the call that lets time pass, and not the run."""

    in_process = True
    between: Callable[[], None] | None = None

    def __init__(self, model: Model, device: Device, kernel: KernelLike | None, *, memory: str, seed: int = 1,
                 host: Sequence[str] = ()):
        if memory not in ("ddr4", "ideal"):
            raise CardError(f"memory must be \"ddr4\" or \"ideal\", not {memory!r}")
        if not 1 <= seed < 1 << 31:
            raise CardError(f"seed must be 1 to 2147483647, not {seed}")
        if kernel is not None and not model.ports.control:
            raise CardError("the core has no s_axi_control, so it cannot take a kernel's arguments")
        self._handle: Any = None
        self._model, self._device, self._kernel = model, device, kernel
        self._library, brief = ctypes.CDLL(str(model.library)), ctypes.PyDLL(str(model.library))
        self._library.card_new.restype = _PTR
        self._calls: dict[str, Any] = {}
        for name, (result, arguments) in _CALLS.items():
            self._calls[name] = call = getattr(self._library if name in _LONG else brief, f"card_{name}")
            call.restype, call.argtypes = result, (_PTR, *arguments)
        self.clock_mhz = float(device.kernel_mhz)
        self.beat_bytes = {master.name: master.data_bits // 8 for master in model.ports.masters}
        self._ports = list(self.beat_bytes)
        checks.ports(host, self._ports)
        # Buffers of the host's memory by the names of the arguments that those masters reach.
        self._host = {item.name for item in getattr(kernel, "arguments", ()) if f"{item.port}_axi" in host}
        self._buffers: dict[str, Buffer] = {}
        self._running = False
        self._simulated, self._seconds, self._slice = 0, 0.0, FIRST_SLICE
        self._streamed: tuple[Any, ...] = ()
        self._handle = self._library.card_new()
        options = {**device.options(), "ideal": int(memory == "ideal"), "seed": seed,
                   "host.ports": sum(1 << self._ports.index(name) for name in host)}
        self._standstill = STANDSTILL + sum(options[f"link.{name}"] for name in ("begin", "end", "page"))
        for option, value in options.items():
            if self._call("option", option.encode(), value):
                raise CardError(f"the harness does not know the option {option}")
        for field in device.fields():
            self._call("map", *field)
        if self._call("start"):
            self.close()
            raise CardError(f"the system gave no room for a card's {device.memory.bytes} bytes of memory")
        self._call("clear")
        self.identity = self._identify()

    def _identify(self) -> Identity | None:
        """The core's own word for what it is; None of a core that is not hotrail's."""
        registers = offsets(self._kernel)
        if not registers:
            return None
        addresses = np.array([*registers.values()], np.uint32)
        values = np.zeros_like(addresses)
        if self._call("peek", addresses.ctypes.data, len(addresses), values.ctypes.data):
            self.close()
            raise CardError("the control slave does not answer reads of the core's identity")
        return Identity.read(dict(zip(registers, map(int, values), strict=True)))

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._handle is None:
            raise CardError("the card is closed")
        return self._calls[name](self._handle, *arguments)

    # Memory

    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        checks.new_buffer(bytes, name, fill, self._buffers)
        memory = self._device.bridge if name in self._host else self._device.memory
        beside = [other for other in self._buffers.values() if (other.name in self._host) == (name in self._host)]
        at = checks.gap(name, bytes, beside, memory.base, memory.base + memory.bytes, guard=PAGE)
        buffer = Buffer(name, at, bytes)
        self._buffers[name] = buffer    # before the memory knows it: what is cut short here can still be given back
        self._call("add", buffer.address, buffer.end)
        if fill is not None:
            self._call("fill", buffer.address, fill, bytes)
        return buffer

    def free(self, buffer: Buffer) -> None:
        self._known(buffer)
        self._call("remove", buffer.address)
        del self._buffers[buffer.name]

    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(self._buffers.values())

    def _known(self, buffer: Buffer) -> None:
        if self._buffers.get(buffer.name) != buffer:
            raise CardError(f"{buffer.name!r} is no buffer of this card")

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._known(buffer)
        content = checks.array(buffer, data, offset)
        if content.nbytes:
            self._call("write", buffer.address + offset, content.ctypes.data, content.nbytes)

    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        self._known(buffer)
        out = checks.place(buffer, dtype, count, offset)
        if out.nbytes:
            self._call("read", buffer.address + offset, out.ctypes.data, out.nbytes)
        return out

    # The link

    def send(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        if buffer.name in self._host:
            self.write(buffer, data, offset)
            return
        self._known(buffer)
        content = checks.array(buffer, data, offset)
        if content.nbytes:
            self._call("send", buffer.address + offset, content.ctypes.data, content.nbytes)

    def begin_fetch(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> Any:
        self._known(buffer)
        if buffer.name in self._host:
            return self.read(buffer, dtype, count, offset)
        out = checks.place(buffer, dtype, count, offset)
        number = self._call("fetch", buffer.address + offset, out.nbytes) if out.nbytes else 0
        return number, out.dtype, out.size

    def end_fetch(self, begun: Any) -> np.ndarray:
        if isinstance(begun, np.ndarray):
            return begun
        number, dtype, count = begun
        out = np.empty(count, dtype)
        if number:
            self._settle(number)
            if self._call("take", number, out.ctypes.data):
                raise CardError("there is no such transfer to the host: it was taken, or a reset has ended it")
        return out

    def link(self) -> LinkUse:
        counters = self.counters()
        return LinkUse(*(counters[f"link.{name}"] for name in LinkUse._fields))

    def commands(self) -> Counter[str]:
        counters = self.counters()
        return Counter({name: counters[f"ssd.{name}" if name == "pages" else f"ddr.{name}"] for name in COMMANDS})

    def passed(self, *, to_card: int = 0, to_host: int = 0) -> None:
        self._call("passed", to_card, to_host)

    def settle(self) -> None:
        self._settle(EVERY)

    def _settle(self, number: int) -> None:
        of_the_core = self._slice
        still, moved = 0, self.link()
        try:
            while True:
                begin, part = self._begin(), self._slice
                clock = time.monotonic()
                arrived = self._call("settle", number, part, int(self._running))
                self._end(begin)
                if arrived:     # in how much of the slice is not known
                    return
                self._pace(part, time.monotonic() - clock)
                before, moved = moved, self.link()
                still = still + part if moved == before else 0
                if still >= self._standstill:
                    self._hang(f"the core has let nothing cross the link for {still} cycles")
                if self.between is not None:
                    self.between()
        finally:
            if not self._running:   # it stood still: its cycles take longer
                self._slice = of_the_core

    # Runs

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        if self._running:
            raise CardError("a run is under way; wait for it, or reset the card")
        if self._kernel is None:
            raise CardError("the card was opened without a kernel description, so it knows no arguments")
        values = checks.values(self._kernel.arguments, arguments)
        words: dict[int, int] = {}
        for item in self._kernel.arguments:
            for part in range(item.bits // 32):
                words[item.offset + 4 * part] = values[item.name] >> 32 * part & 0xFFFFFFFF
        self._settle(SENT)
        self._running = True    # from here on, whatever happens, nobody knows better before a reset
        if self._model.ports.interrupt:
            self._write(GIE, 1)
            self._write(IER, 1)
        for offset in range(FIRST, max(words, default=FIRST - 4) + 4, 4):
            self._write(offset, words.get(offset, 0))
        self._call("begin")
        self._write(CTRL, START)

    def _write(self, offset: int, value: int) -> None:
        if code := self._call("control_write", offset, value):
            raise CardError(f"the control slave did not take a write to register 0x{offset:x}"
                            + (f": response {code}" if code > 0 else " within 10,000 cycles"))

    def _read(self, offset: int) -> int:
        value = _U32()
        if code := self._call("control_read", offset, ctypes.byref(value)):
            raise CardError(f"the control slave did not answer a read of register 0x{offset:x}"
                            + (f": response {code}" if code > 0 else " within 10,000 cycles"))
        return value.value

    def _begin(self) -> tuple[float, int]:
        return time.thread_time(), self._call("cycle")

    def _end(self, begin: tuple[float, int]) -> None:
        self._seconds += time.thread_time() - begin[0]
        self._simulated += self._call("cycle") - begin[1]

    def _pass(self, cycles: int, until: float = math.inf) -> bool:
        """Lets cycles pass, in slices, before the clock (time.monotonic) is there; whether the interrupt is up."""
        while True:
            begin, clock, part = self._begin(), time.monotonic(), min(cycles, self._slice)
            over = self._call("steps", part)
            self._end(begin)
            now, cycles = time.monotonic(), cycles - part
            if over & INTERRUPT:
                return True
            if part == self._slice:
                self._pace(part, now - clock)
            if cycles <= 0 or now >= until:
                return False
            if self.between is not None:
                self.between()

    def _pace(self, part: int, took: float) -> None:
        """The length of the next slice, after one of `part` cycles."""
        wanted = part * SLICE_S / max(took, 1e-9)
        self._slice = int(min(max(wanted, FIRST_SLICE), 4 * part, LONGEST_SLICE))

    def step(self, cycles: int) -> bool:
        cycles = checks.cycles("step", cycles)
        return self._pass(cycles) if self._model.ports.interrupt else (self._pass(cycles), self._done())[1]

    def _done(self) -> bool:
        return self._running and bool(self._read(CTRL) & DONE)

    def wait(self, timeout_cycles: int = 10_000_000, timeout_s: float | None = None) -> int:
        timeout_cycles = checks.cycles("wait", timeout_cycles)
        if not self._running:
            raise CardError("nothing is running")
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        used = self._call("since_begin")
        if self._model.ports.interrupt:
            done = self._pass(max(0, timeout_cycles - used), until)
            cycles = self._call("since_begin")
            if done:
                self._write(ISR, 1)
                done = self._done()
                if not done:
                    raise CardError("the core raised its interrupt without ap_done")
        else:
            done = False
            while not done and (used := self._call("since_begin")) < timeout_cycles and time.monotonic() < until:
                self._pass(min(64, timeout_cycles - used))
                done = self._done()
                if self.between is not None:
                    self.between()
            cycles = self._call("since_begin")
        if not done:
            self._hang(f"the core was not done after {cycles} cycles")
        self._running = False
        if violations := self.violations():
            more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
            raise CardViolation(f"{violations[0]}{more}", violations)
        return int(cycles)

    def _hang(self, sentence: str) -> None:
        state = self.status()
        if state is not None:
            sentence += f", its status register is 0x{state:x}"
        waiting = [f"{name} {count}" for i, name in enumerate(self._ports)
                   if (count := self._call("under_way", i))]
        raise CardHang(f"{sentence}; bursts under way: {', '.join(waiting) or 'none'}", state or 0)

    def status(self) -> int | None:
        offset = None if self._kernel is None else self._kernel.status
        return None if offset is None else self._read(offset)

    def code(self) -> int | None:
        register = next((item for item in getattr(self._kernel, "registers", ()) if item.name == "code"), None)
        return None if register is None else self._read(register.offset)

    def abort(self) -> None:
        if self._kernel is None or self._kernel.abort is None:
            raise CardError("the kernel has no abort register")
        self._write(self._kernel.abort, 1)

    def software_reset(self) -> None:
        """What XRT's driver does for a host that is gone: sets sw_reset in CTRL and waits until it reads 0. The run
        ends and reports nothing; from then on the core touches no memory. Raises CardHang: it does not end."""
        self._write(CTRL, SW_RESET)
        begin = self._call("cycle")
        while self._read(CTRL) & SW_RESET:
            self._pass(FIRST_SLICE)
            if self._call("cycle") - begin > self._standstill:
                self._hang(f"the core has not ended {self._standstill} cycles after sw_reset")
        self._running = False

    def reset(self, cycles: int = 4) -> None:
        self._call("reset", checks.cycles("reset", cycles, *checks.RESET_CYCLES))
        self._running = False

    def stream(self, stream: SsdStream | None) -> None:
        if stream is None:
            self._call("stream", None, 0, PAGE, None, 0, 0, 0, 0, 0, 64)
            self._streamed = ()     # not before: the library points there
            return
        data = stream.data
        if isinstance(data, str | Path):
            data = np.memmap(data, dtype=np.uint8, mode="r")
        content = np.ascontiguousarray(data)
        transfers = checks.transfers(stream, content.nbytes, self._buffers.values(), self.beat_bytes.values())
        held = (content, transfers)     # the library keeps pointers to both, and to those before until it has these
        self._streamed = (held, self._streamed)
        self._call("stream", content.ctypes.data, content.nbytes, stream.page_bytes, transfers.ctypes.data,
                   len(transfers), stream.ring.address, stream.ring.bytes, stream.progress, stream.doorbell,
                   stream.beat_bytes)
        self._streamed = (held,)

    def set_faults(self, faults: Faults) -> None:
        checks.faults(faults, self._ports)
        self._call("no_faults")
        for channel, share in faults.stalls.items():
            self._call("stall", checks.CHANNELS.index(channel), int(share * 65536), faults.stall_cycles, faults.seed)
        for error in faults.errors:
            self._call("error", self._ports.index(error.port), int(error.channel == "write"),
                       RESPONSES[error.response], -1 if error.beat is None else error.beat, error.first, error.end)
        for silence in faults.silences:
            self._call("silence", self._ports.index(silence.port), int(silence.channel == "write"), silence.beat)
        lost = np.ascontiguousarray(faults.lost, dtype=np.uint64)
        dies = -1 if faults.host_dies_after is None else faults.host_dies_after
        self._call("ssd_faults", lost.ctypes.data, lost.size, dies, faults.doorbell_ahead, faults.doorbell_after)

    # What happened

    def counters(self) -> dict[str, int]:
        names = ["cycles", "violations", *(f"ddr.{name}" for name in DDR_COUNTERS),
                 "ssd.pages", "ssd.bytes", "ssd.credit_waits",
                 *(f"link.{name}" for name in LinkUse._fields),
                 *(f"{port}.{name}" for port in self._ports for name in PORT_COUNTERS)]
        out = np.zeros(len(names), dtype=np.uint64)
        self._call("counters", out.ctypes.data)
        return dict(zip(names, map(int, out), strict=True))

    def clear(self) -> None:
        self._call("clear")

    def violations(self) -> tuple[Violation, ...]:
        self._call("check_guards")
        if not self.counters()["violations"]:
            return ()
        violations = []
        out = np.zeros(3, dtype=np.uint64)
        names = {**dict(enumerate(self._ports)), HOST: "host", CONTROL_PORT: "s_axi_control"}
        for number, rule in enumerate(RULES):
            for port, name in names.items():
                if self._call("violation", number, port, out.ctypes.data):
                    violations.append(Violation(rule, name, int(out[1]), int(out[2]), int(out[0])))
        return tuple(sorted(violations, key=lambda v: v.cycle))

    @property
    def cycles_per_s(self) -> float:
        return self._simulated / self._seconds if self._seconds else 0.0

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._calls["delete"](handle)
            self._streamed = ()
