"""A card around the packaged top of a kernel, as XRT sees it: everything it knows comes from kernel.xml.

Source: XRT's driver for compute units of ap_ctrl_hs (words from 0x10 to the last argument, gaps included, then
ap_start; done by polling CTRL or by the interrupt), UG1393. The memory is by another hand (cocotbext-axi) in front of
`CardMemory`, so that each pointer's buffer is reached by its own port alone; every bus rule is watched.
"""

import random
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from cocotb.triggers import ClockCycles, RisingEdge

from verif.bench import start
from verif.bench.axi import LiteMaster
from verif.bench.axi_rules import AxiMonitor, ControlMonitor
from verif.bench.memory import BASE, Buffer, CardMemory
from verif.bench.pack import metadata
from verif.bench.stream import Pattern

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiBus, AxiSlave  # type: ignore[import-untyped]

# UG1393: what every kernel with ap_ctrl_hs has, and the bits of its CTRL.
CTRL, GIE, IER, ISR, FIRST = 0x00, 0x04, 0x08, 0x0C, 0x10
START, DONE, IDLE, READY = 1, 2, 4, 8
# From one run's buffers to the next run's: a pointer that is still that of the run before meets nothing.
ANEW = 1 << 34
CHANNELS = ("ar", "r", "aw", "w", "b")


@dataclass(frozen=True)
class Argument:
    """An argument as kernel.xml describes it."""

    name: str
    id: int
    pointer: bool
    port: str
    offset: int
    size: int


@dataclass(frozen=True)
class KernelXml:
    """What XRT reads of kernel.xml. masters: bytes of a beat by port."""

    name: str
    arguments: tuple[Argument, ...]
    masters: Mapping[str, int]

    @classmethod
    def read(cls, path: str | Path) -> "KernelXml":
        kernel = ET.parse(path).getroot().find("kernel")
        assert kernel is not None and kernel.get("hwControlProtocol") == "ap_ctrl_hs", path
        arguments = tuple(
            Argument(item["name"], int(item["id"]), item["addressQualifier"] == "1", item["port"],
                     int(item["offset"], 0), int(item["size"], 0))
            for item in (argument.attrib for argument in kernel.iterfind("args/arg")))
        masters = {port.attrib["name"]: int(port.attrib["dataWidth"]) // 8 for port in kernel.iterfind("ports/port")
                   if port.attrib["mode"] == "master"}
        return cls(kernel.attrib["name"], arguments, masters)

    def words(self, values: Mapping[str, int]) -> list[int]:
        """The register map that XRT hands to the driver: from 0x10 to the end of the last argument; gaps are 0."""
        end = max(argument.offset + argument.size for argument in self.arguments)
        image = bytearray(-(-end // 4) * 4)
        for argument in self.arguments:
            image[argument.offset:argument.offset + argument.size] = values[argument.name].to_bytes(
                argument.size, "little")
        return [int.from_bytes(image[at:at + 4], "little") for at in range(FIRST, len(image), 4)]


class _Port:
    """A port's way to the memory, as cocotbext-axi's slave asks it; an exception becomes SLVERR, and is remembered.

    reads, writes: buffers that the port may reach."""

    def __init__(self, name: str, memory: CardMemory):
        self.name, self._memory = name, memory
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def _reach(self, address: int, buffers: set[str], what: str) -> None:
        for buffer in self._memory.buffers:
            if buffer.holds(address, 1) and buffer.name not in buffers:
                self._refuse(f"{what} at {address:#x} in {buffer.name}, which is not {self.name}'s")

    def _refuse(self, sentence: str) -> None:
        self._memory.violations.append(sentence)
        raise ValueError(sentence)

    async def read(self, address: int, length: int) -> bytes:
        self._reach(address, self.reads, "read")
        data, response = self._memory.load(address)
        if response:
            raise ValueError(f"response {response}")
        return data.to_bytes(length, "little")

    async def write(self, address: int, data: bytes) -> None:
        self._reach(address, self.writes, "write")
        if len(data) != self._memory.beat_bytes:
            self._refuse(f"write of {len(data)} bytes at {address:#x}: strobes are off")
        if response := self._memory.store(address, int.from_bytes(data, "little")):
            raise ValueError(f"response {response}")


def _pauses(goes: Pattern) -> Pattern:
    """Its generators say when to pause, ours when to go."""
    return (not go for go in goes)


class Run:
    """One run's buffers and scalars. buffers: (content, readable, writable) by argument; the rest of a buffer's last
    beat is zeros. A core's own runs say what the host does meanwhile, and what must have come of it."""

    buffers: dict[str, tuple[bytes, bool, bool]]
    scalars: dict[str, int]
    # Buffers that a port writes besides the one that kernel.xml names with them: both are on one bank.
    other_writers: Mapping[str, str] = {}

    def begin(self) -> None:
        """Called when its buffers are there as at first; the same run may be begun again."""

    def meanwhile(self, card: "Card") -> None:
        """Called every few cycles until the run is over."""

    def judge(self, card: "Card") -> None:
        """Raises AssertionError: what the kernel left is not what it should be."""


class Card:
    """The kernel's top between a driver and its memories.

    base: of the first run's buffers. stalls: by name of port and channel, when the memory goes on. hesitates: the
    driver pauses and gives addresses and data in any order. bytewise: arguments are written a byte at a time.
    """

    def __init__(self, dut: Any, kernel: KernelXml, *, base: int = BASE,
                 stalls: Callable[[str], Pattern] | None = None, hesitates: random.Random | None = None,
                 bytewise: random.Random | None = None):
        self.dut, self.kernel, self.base, self.bytewise = dut, kernel, base, bytewise
        self.runs = 0
        self.edge = RisingEdge(dut.ap_clk)
        self.control = LiteMaster(dut, "s_axi_control", rng=hesitates)
        self.at: dict[str, Buffer] = {}
        beat_bytes, = set(kernel.masters.values())
        self.memory = CardMemory(beat_bytes)
        self.monitors = {port: AxiMonitor(dut, port, beat_bytes) for port in kernel.masters}
        self._ports = {port: _Port(port, self.memory) for port in kernel.masters}
        self._slaves = []
        for port, target in self._ports.items():
            slave = AxiSlave(AxiBus.from_prefix(dut, port), dut.ap_clk, dut.ap_rst_n, target=target,
                             reset_active_level=False)
            for side, channels in ((slave.read_if, CHANNELS[:2]), (slave.write_if, CHANNELS[2:])):
                side.log.setLevel(WARNING)
                if stalls is not None:
                    for channel in channels:
                        getattr(side, f"{channel}_channel").set_pause_generator(_pauses(stalls(f"{port}_{channel}")))
            self._slaves.append(slave)
        self._answers = ControlMonitor(dut, "s_axi_control")

    # -- Clock and reset.

    @classmethod
    async def power_up(cls, dut: Any, kernel: KernelXml, garbage: random.Random, cycles: int = 20,
                       **options: Any) -> "Card":
        """A card whose kernel is held for some cycles while everything else that it sees is garbage."""
        ports = metadata()["ports"]
        inputs = {name: port["width"] for name, port in ports.items() if port["direction"] == "in"}
        del inputs["ap_rst_n"]
        dut.ap_rst_n.value = 0
        start(dut)
        monitors = [ControlMonitor(dut, "s_axi_control"),
                    *(AxiMonitor(dut, port, beat_bytes) for port, beat_bytes in kernel.masters.items())]
        for _ in range(cycles):
            for name, width in inputs.items():
                getattr(dut, name).value = garbage.getrandbits(width)
            await RisingEdge(dut.ap_clk)
        for name in inputs:
            getattr(dut, name).value = 0
        for monitor in monitors:
            monitor.stop()
        card = cls(dut, kernel, **options)
        await card.edge
        await card.release()
        return card

    async def release(self) -> None:
        """Lets the kernel go; the driver may ask at the very next edge."""
        self.dut.ap_rst_n.value = 1

    async def reset(self, cycles: int) -> None:
        """Holds the kernel for some edges, whatever is under way."""
        self.dut.ap_rst_n.value = 0
        await ClockCycles(self.dut.ap_clk, cycles)
        await self.release()

    @property
    def bursts(self) -> int:
        """Of all ports, since power-up."""
        return sum(sum(monitor.bursts.values()) for monitor in self.monitors.values())

    # -- What a host does.

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of an argument's buffer."""
        buffer = self.at[name]
        return self.memory.read(buffer.address + offset, buffer.size - offset if size is None else size)

    def write(self, name: str, offset: int, content: bytes) -> None:
        self.memory.write(self.at[name].address + offset, content)

    def word(self, name: str, number: int) -> int:
        return int.from_bytes(self.read(name, 4 * number, 4), "little")

    def _place(self, run: Run) -> dict[str, int]:
        """Gives the last run's buffers back and allocates this one's; their addresses."""
        memory, step = self.memory, self.memory.beat_bytes
        for buffer in self.at.values():
            memory.free(buffer)
        self.at.clear()
        memory.allocate_from(self.base + self.runs * ANEW)
        self.runs += 1
        for port in self._ports.values():
            own = {item.name for item in self.kernel.arguments if item.port == port.name}
            port.reads = own
            port.writes = own | {name for name, other in run.other_writers.items() if other == port.name}
        # The largest first: where the run's addresses begin says what lies across what.
        pointers = [item.name for item in self.kernel.arguments if item.pointer]
        for name in sorted(pointers, key=lambda name: -len(run.buffers[name][0])):
            content, readable, writable = run.buffers[name]
            size = max(1, -(-len(content) // step)) * step
            self.at[name] = memory.allocate(name, size, data=content.ljust(size, b"\0"), readable=readable,
                                            writable=writable)
        return {name: buffer.address for name, buffer in self.at.items()}

    async def begin(self, run: Run) -> None:
        """Places the run's buffers, writes the arguments and starts."""
        values = {**run.scalars, **self._place(run)}
        run.begin()
        for number, word in enumerate(self.kernel.words(values)):
            await self._load(FIRST + 4 * number, word)
        await self.control.write(CTRL, START)

    async def _load(self, offset: int, word: int) -> None:
        if self.bytewise is None:
            assert await self.control.write(offset, word) == 0
            return
        # The other lanes are garbage: a strobe alone decides what is written.
        for lane in self.bytewise.sample(range(4), 4):
            noise = self.bytewise.getrandbits(32) & ~(0xFF << 8 * lane)
            assert await self.control.write(offset, noise | word & 0xFF << 8 * lane, 1 << lane) == 0

    async def poll(self, run: Run, every: int = 40, limit: int = 40_000) -> None:
        """Until CTRL says done, which reading it clears. Until then the kernel is neither idle nor ready."""
        for _ in range(limit // every):
            run.meanwhile(self)
            await ClockCycles(self.dut.ap_clk, every)
            told = await self.control.read(CTRL)
            if told & DONE:
                assert told == DONE | IDLE | READY, f"CTRL is {told:#x} when the run is over"
                return
            assert told == START, f"CTRL is {told:#x} during a run"
        raise AssertionError(f"the run is not over after {limit} cycles")

    async def allow_interrupts(self) -> None:
        await self.control.write(GIE, 1)
        await self.control.write(IER, 1)

    async def interrupted(self, run: Run, every: int = 40, limit: int = 40_000) -> None:
        """Until the interrupt; what is pending is read, and cleared by writing it back. Then CTRL says done."""
        for _ in range(limit // every):
            run.meanwhile(self)
            for _ in range(every):
                await self.edge
                if self.dut.interrupt.value == 1:
                    pending = await self.control.read(ISR)
                    assert pending == 1, f"ISR is {pending:#x} when the run is over"
                    await self.control.write(ISR, pending)
                    await ClockCycles(self.dut.ap_clk, 3)
                    assert self.dut.interrupt.value == 0, "the interrupt stays although it was cleared"
                    assert await self.control.read(ISR) == 0
                    assert await self.control.read(CTRL) == DONE | IDLE | READY
                    return
        raise AssertionError(f"no interrupt after {limit} cycles")

    def check(self) -> None:
        """Nothing but buffers was touched, each by its own port, and nothing was read that had not been written."""
        self.memory.check()


# Runs of a kernel, endlessly, each with what the one before left in the kernel.
Runs = Iterator[Run]
