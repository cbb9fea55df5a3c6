"""Devices: what a card's memory, drive and host are, read from the TOML files in gen/model/devices."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from dataclasses import replace as _replace
from math import ceil, floor
from pathlib import Path
from typing import Any

from gen.rtl import config
from gen.rtl.config import ConfigError

FOLDER = Path(__file__).parent / "devices"
KINDS = {"row": 0, "bank": 1, "group": 2, "column": 3}
POLICIES = ("fr_fcfs", "group_machines")
REFRESHES = ("all", "bank")
# Group machines of AMD's controller, and clocks of the memory in one of its own.
MACHINES = 4
LINE_BYTES = 64
# JESD79-4, 13.3: a time that is a hair above whole clocks counts as that many.
GUARD_CLOCKS = 0.025
CYCLES_MOST = 1 << 62


@dataclass(frozen=True)
class Span:
    """A time as JEDEC gives it: so many nanoseconds, but at least so many clocks."""

    ns: float
    clocks: int


def _numbers(table: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a table by name, those of its spans too."""
    for item in fields(table):
        value = getattr(table, item.name)
        if isinstance(value, Span):
            yield from ((f"{item.name}.{name}", number) for name, number in _numbers(value))
        elif type(value) in (int, float):
            yield item.name, value


@dataclass(frozen=True)
class MemoryPlace:
    """DRAM that one core reaches. channels: how many such the card has; ring_bytes: of it, where pages of the drive
    land; rows_bytes: that embedding rows, a batch's indices and the pooled vectors of two batches may take together."""

    source: str
    channels: int
    base: int
    bytes: int
    ring_bytes: int
    rows_bytes: int


@dataclass(frozen=True)
class PortTiming:
    source: str
    ideal_latency: int
    front_cycles: int
    back_cycles: int
    bursts: int


@dataclass(frozen=True)
class DramTiming:
    """A rank of DDR4, or a pseudo-channel of HBM2. standard: what reports call it; burst_bytes: of one column command;
    stacks: stack IDs among which the groups are divided, with column commands of two of them tccd_r apart.
    row_bus: channels that share a bus for row commands beside that for column commands, and are taken to ask for it as
    often as this one; 0: all commands go over one bus. activate_clocks: of that bus for an activation. refresh: "all"
    banks at once, or one "bank" after the other, each once in trefi, and trrefd before another is activated."""

    source: str
    standard: str
    mhz: int
    clock_ns: float
    groups: int
    banks: int
    stacks: int
    row_bits: int
    column_bits: int
    cl: int
    cwl: int
    burst_clocks: int
    burst_bytes: int
    row_bus: int
    activate_clocks: int
    refresh: str
    trcd: Span
    trp: Span
    tras: Span
    tccd_s: Span
    tccd_l: Span
    tccd_r: Span
    trrd_s: Span
    trrd_l: Span
    tfaw: Span
    twr: Span
    twtr_s: Span
    twtr_l: Span
    trtp: Span
    trfc: Span
    trefi: Span
    trrefd: Span

    def clocks(self, name: str) -> int:
        """A time in clocks: rounded up, but the refresh interval, which may not be passed, down."""
        span: Span = getattr(self, name)
        exact = span.ns / self.clock_ns
        return max(span.clocks, floor(exact) if name == "trefi" else ceil(exact - GUARD_CLOCKS))

    @property
    def refresh_clocks(self) -> int:
        """From one refresh command to the next."""
        every = self.clocks("trefi")
        return every // (self.groups * self.banks) if self.refresh == "bank" else every

    @property
    def bytes_s(self) -> float:
        """Of the data bus without a gap."""
        return self.burst_bytes * 1e6 * self.mhz / self.burst_clocks


@dataclass(frozen=True)
class Controller:
    source: str
    policy: str
    mhz: int
    front_clocks: int
    back_clocks: int
    map: str
    maps: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class FrFcfs:
    source: str
    read_queue: int
    write_queue: int
    write_high: int
    write_low: int
    age_limit_clocks: int
    close_page: bool


@dataclass(frozen=True)
class GroupMachines:
    source: str
    depth: int
    column_slots: int
    turn_lines: int


@dataclass(frozen=True)
class Drive:
    source: str
    bytes: int
    read_us: float
    channels: int
    dies: int
    flash_page_bytes: int
    bus_gb_s: float
    command_us: float
    setup_us: float
    queue_depth: int


@dataclass(frozen=True)
class LinkTiming:
    """PCIe: gb_s of payload each way after encoding, the share of it that arrives, and a transfer's latency."""

    source: str
    gb_s: float
    efficiency: float
    latency_us: float

    @property
    def byte_s(self) -> float:
        """Seconds a byte, each way."""
        return 1e-9 / (self.gb_s * self.efficiency)


@dataclass(frozen=True)
class Bridge:
    """The host's memory as masters of a kernel reach it over the link: where it is and how much the kernel sees of it;
    read_us: from a request on the idle link to its data; reads, writes: bursts under way. payload_bytes: of a packet at
    the most; request_bytes: that a packet asks for; header_bytes: around each; completion_bytes: that requests under
    way may bring together; credits: packets of writes that the host takes before the first has been written."""

    source: str
    base: int
    bytes: int
    read_us: float
    reads: int
    writes: int
    payload_bytes: int
    request_bytes: int
    header_bytes: int
    completion_bytes: int
    credits: int


@dataclass(frozen=True)
class Host:
    source: str
    submit_us: float
    complete_us: float
    poll_us: float
    doorbell_us: float


@dataclass(frozen=True)
class Power:
    """Volts and milliamperes of one part of the DRAM, by the data sheet's names, and how many parts there are; watts of
    its bus while data move, of the FPGA around an idle kernel, of the drive at rest and at work, and of the slot."""

    source: str
    parts: int
    vdd: float
    idd0: float
    idd2n: float
    idd3n: float
    idd4r: float
    idd4w: float
    idd5b: float
    bus_w: float
    fpga_idle_w: float
    drive_idle_w: float
    drive_busy_w: float
    slot_w: float


@dataclass(frozen=True)
class Device:
    """A device; `name` is its file's, every other field a table of the file. `load` reads it, `replace`
    changes values."""

    name: str
    about: str
    kernel_mhz: int
    memory: MemoryPlace
    port: PortTiming
    dram: DramTiming
    controller: Controller
    fr_fcfs: FrFcfs
    group_machines: GroupMachines
    ssd: Drive
    link: LinkTiming
    bridge: Bridge
    host: Host
    power: Power

    @staticmethod
    def names() -> tuple[str, ...]:
        return config.stems(FOLDER)

    @staticmethod
    def load(device: "str | Path | Device") -> "Device":
        """A device by its name, or from a path that ends in .toml; what the file says of a platform is left to
        gen.model.platform.

        Raises ConfigError: the file, a table or a key is missing, unknown or impossible."""
        found: Device = config.described(Device, "device", device, FOLDER, beside=("platform",))
        return found

    def replace(self, table: str | None = None, **values: Any) -> "Device":
        """A copy with values changed: of a table, or of the device itself."""
        changed = _replace(self, **values) if table is None else _replace(
            self, **{table: _replace(getattr(self, table), **values)})
        changed.check()
        return changed

    def shared(self, cards: int) -> "Device":
        """One of so many virtual cards: channels of a board's memory with a core each, all on as few boards as hold
        them. Each has an equal part of a board's link, watts and all."""
        of = min(cards, self.memory.channels)
        if of == 1:
            return self
        power = {name: getattr(self.power, name) / of for name in ("fpga_idle_w", "drive_idle_w", "drive_busy_w",
                                                                     "slot_w")}
        return self.replace("link", gb_s=self.link.gb_s / of).replace("power", **power)

    @property
    def dma_s(self) -> float:
        """Seconds of a transfer over the link beside those of its bytes."""
        return 1e-6 * (self.host.submit_us + self.link.latency_us + self.host.complete_us)

    @property
    def start_s(self) -> float:
        """Seconds of the host to find that a core has ended, and to start it."""
        return 1e-6 * (self.host.doorbell_us + self.host.poll_us)

    @property
    def between_s(self) -> float:
        """From the end of a run to the begin of the next, which waits for the result block."""
        return self.dma_s + self.start_s

    def boards(self, cards: int) -> int:
        """That hold so many virtual cards."""
        return ceil(cards / self.memory.channels)

    def check(self) -> None:
        """Raises ConfigError: values that do not fit each other."""
        where = f"{self.name}.toml:"
        for table, names in (("port", ("ideal_latency", "bursts")), ("controller", ("mhz",)),
                             ("fr_fcfs", ("read_queue", "write_queue")),
                             ("group_machines", ("depth", "column_slots", "turn_lines")),
                             ("ssd", ("bytes", "channels", "dies", "queue_depth", "bus_gb_s")),
                             ("link", ("gb_s", "efficiency")),
                             ("bridge", ("bytes", "reads", "writes", "credits")),
                             ("memory", ("channels",)),
                             ("dram", ("mhz", "clock_ns", "groups", "banks", "stacks", "activate_clocks"))):
            for name in names:
                if getattr(getattr(self, table), name) <= 0:
                    raise ConfigError(f"{where} [{table}] {name} = {getattr(getattr(self, table), name)}: "
                                      f"must be above 0")
        for table in (self, *(getattr(self, item.name) for item in fields(self))):
            for name, value in (_numbers(table) if is_dataclass(table) else ()):
                if value < 0:
                    raise ConfigError(f"{where} {name} = {value}: must not be negative")
        if self.kernel_mhz <= 0:
            raise ConfigError(f"{where} kernel_mhz = {self.kernel_mhz}: must be above 0")
        if self.dram.groups * self.dram.banks > 64:
            raise ConfigError(f"{where} [dram] groups x banks = {self.dram.groups * self.dram.banks}: at most 64")
        if self.dram.groups % self.dram.stacks:
            raise ConfigError(f"{where} [dram] stacks = {self.dram.stacks}: must divide the {self.dram.groups} groups")
        if self.dram.burst_bytes not in (LINE_BYTES, LINE_BYTES // 2):
            raise ConfigError(f"{where} [dram] burst_bytes = {self.dram.burst_bytes}: must be {LINE_BYTES} or "
                              f"{LINE_BYTES // 2}")
        if self.dram.refresh not in REFRESHES:
            raise ConfigError(f"{where} [dram] refresh = {self.dram.refresh!r}: there are {', '.join(REFRESHES)}")
        self._check_controller(where)
        self._check_bridge(where)
        if self.ssd.flash_page_bytes % 4096:
            raise ConfigError(f"{where} [ssd] flash_page_bytes = {self.ssd.flash_page_bytes}: "
                              f"must be a multiple of 4096")
        self.fields()
        memory = self.memory
        if memory.ring_bytes + memory.rows_bytes > memory.bytes or memory.ring_bytes & (memory.ring_bytes - 1):
            raise ConfigError(f"{where} [memory] ring_bytes = {memory.ring_bytes}: must be a power of two, and with "
                              f"rows_bytes = {memory.rows_bytes} at most bytes = {memory.bytes}")
        try:
            longest, cycles = max(self.options().items(), key=lambda item: item[1])
        except ArithmeticError:
            longest, cycles = "a time", CYCLES_MOST
        if cycles >= CYCLES_MOST:
            raise ConfigError(f"{where} {longest} is of {CYCLES_MOST} cycles or bytes, or more")

    def _check_controller(self, where: str) -> None:
        control, queue, clocks = self.controller, self.fr_fcfs, self.dram.mhz // self.controller.mhz
        if control.policy not in POLICIES:
            raise ConfigError(f"{where} [controller] policy = {control.policy!r}: there are {', '.join(POLICIES)}")
        if self.dram.mhz % control.mhz:
            raise ConfigError(f"{where} [controller] mhz = {control.mhz}: must divide the memory's {self.dram.mhz}")
        if not queue.write_low < queue.write_high <= queue.write_queue:
            raise ConfigError(f"{where} [fr_fcfs] write_low < write_high <= write_queue must hold")
        if control.policy == "group_machines" and (clocks != MACHINES or self.dram.groups not in (1, 2, MACHINES)):
            raise ConfigError(f"{where} group machines need {MACHINES} clocks of the memory in one of their own, "
                              f"and 1, 2 or {MACHINES} bank groups")
        if control.policy == "group_machines" and (self.dram.row_bus or self.dram.refresh != "all"
                                                   or self.dram.burst_bytes != LINE_BYTES):
            raise ConfigError(f"{where} [controller] policy = {control.policy!r}: group machines control DDR4 alone "
                              f"(row_bus 0, refresh all, burst_bytes {LINE_BYTES})")
        if queue.read_queue < self.bursts_of_a_line or queue.write_queue < self.bursts_of_a_line:
            raise ConfigError(f"{where} [fr_fcfs] a line is {self.bursts_of_a_line} entries of the queues: too short")
        if self.group_machines.column_slots > 2:
            raise ConfigError(f"{where} [group_machines] column_slots = {self.group_machines.column_slots}: 1 or 2")

    def _check_bridge(self, where: str) -> None:
        bridge, memory = self.bridge, self.memory
        for name in ("payload_bytes", "request_bytes"):
            value = getattr(bridge, name)
            if value & (value - 1) or not LINE_BYTES <= value <= 4096:
                raise ConfigError(f"{where} [bridge] {name} = {value}: must be a power of two from {LINE_BYTES} to "
                                  "4096")
        if bridge.completion_bytes < bridge.request_bytes:
            raise ConfigError(f"{where} [bridge] completion_bytes = {bridge.completion_bytes}: must be at least "
                              f"request_bytes = {bridge.request_bytes}")
        if bridge.base % 4096 or (bridge.base < memory.base + memory.bytes
                                  and memory.base < bridge.base + bridge.bytes):
            raise ConfigError(f"{where} [bridge] base = {bridge.base}: must be a multiple of 4096, and the host's "
                              f"{bridge.bytes} bytes from there on none of the card's own memory")

    def cycles(self, us: float) -> int:
        """Kernel cycles of so many microseconds, rounded up."""
        return ceil(us * self.kernel_mhz - 1e-9)

    def first_page_cycles(self, page_bytes: int) -> int:
        """Kernel cycles until a page of the idle drive has landed on the card and the host's doorbell says so; those
        of the drive's model."""
        options = self.options()
        steps = sum(options[f"ssd.{name}"] for name in ("submit", "tr", "command", "setup", "complete", "doorbell"))
        transfers = sum(-(-page_bytes * options[name] // 4096) for name in ("ssd.bus", "link.page"))
        return steps + transfers + 1

    @property
    def bursts_of_a_line(self) -> int:
        return LINE_BYTES // self.dram.burst_bytes

    @property
    def row_in_page(self) -> bool:
        """Whether the address map in force keeps neighbouring lines in one page, or in the two of one line."""
        below = self.bursts_of_a_line - 1       # address bits within a line
        return next(kind for kind, low, *_ in self.fields() if low >= below) == KINDS["column"]

    def fields(self) -> list[tuple[int, int, int, int]]:
        """The address map in force: (kind, lowest bit of a burst's address, width, bit of the kind it begins at)."""
        control, where = self.controller, f"{self.name}.toml: [controller]"
        if control.map not in control.maps:
            raise ConfigError(f"{where} map = {control.map!r}: there are {', '.join(control.maps)}")
        wanted = {"row": self.dram.row_bits, "column": self.dram.column_bits,
                  "bank": (self.dram.banks - 1).bit_length(), "group": (self.dram.groups - 1).bit_length()}
        found = dict.fromkeys(wanted, 0)
        fields, low = [], 0
        for item in reversed(control.maps[control.map]):
            kind = item.rstrip("0123456789")
            digits = item.removeprefix(kind)
            width = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 3 else 0
            if kind not in KINDS or not width:
                raise ConfigError(f"{where} maps.{control.map}: {item!r} is not row, bank, group or column "
                                  f"with a number of bits")
            fields.append((KINDS[kind], low, width, found[kind]))
            found[kind] += width
            low += width
        if found != wanted:
            raise ConfigError(f"{where} maps.{control.map}: has {found}, the memory has {wanted} bits")
        if self.dram.burst_bytes << low != self.memory.bytes:
            raise ConfigError(f"{where} maps.{control.map}: addresses {self.dram.burst_bytes << low} bytes, "
                              f"[memory] has {self.memory.bytes}")
        return fields

    def options(self) -> dict[str, int]:
        """What the harness takes, in cycles of the kernel's clock and clocks of the memory."""
        d, c, q, m, s, h = self.dram, self.controller, self.fr_fcfs, self.group_machines, self.ssd, self.host
        b = self.bridge
        clocks = d.mhz // c.mhz
        latency_us = self.link.latency_us
        page_us = 4096 / 1000  # a rate of 1 GB/s
        return {
            "base": self.memory.base, "size": self.memory.bytes, "latency": self.port.ideal_latency,
            "front": self.port.front_cycles + self.cycles(c.front_clocks / c.mhz),
            "back": self.port.back_cycles + self.cycles(c.back_clocks / c.mhz), "bursts": self.port.bursts,
            **{f"ddr.{name}": d.clocks(name) for name in (
                "trcd", "trp", "tras", "tccd_s", "tccd_l", "trrd_s", "trrd_l", "tfaw", "twr", "twtr_s", "twtr_l",
                "trtp", "trfc", "trrefd", "tccd_r")},
            "ddr.trefi": d.refresh_clocks, "ddr.bank_refresh": int(d.refresh == "bank"),
            "ddr.bursts": self.bursts_of_a_line, "ddr.row_bus": d.row_bus, "ddr.act_clocks": d.activate_clocks,
            "ddr.banks": d.banks, "ddr.groups": d.groups, "ddr.stacks": d.stacks, "ddr.cl": d.cl, "ddr.cwl": d.cwl,
            "ddr.bl2": d.burst_clocks, "ddr.mhz": d.mhz, "ddr.kernel_mhz": self.kernel_mhz,
            "ddr.policy": POLICIES.index(c.policy),
            "ddr.read_queue": q.read_queue, "ddr.write_queue": q.write_queue, "ddr.write_high": q.write_high,
            "ddr.write_low": q.write_low, "ddr.age_limit": q.age_limit_clocks, "ddr.close_page": int(q.close_page),
            "ddr.controller_clocks": clocks, "ddr.machine_depth": m.depth, "ddr.column_slots": m.column_slots,
            "ddr.turn_lines": m.turn_lines, "ddr.rmw": d.cl + d.burst_clocks + clocks * c.back_clocks,
            "ssd.tr": self.cycles(s.read_us), "ssd.channels": s.channels, "ssd.dies": s.dies,
            "ssd.flash_page": s.flash_page_bytes, "ssd.bus": self.cycles(page_us / s.bus_gb_s),
            "ssd.command": self.cycles(s.command_us), "ssd.setup": self.cycles(s.setup_us),
            "ssd.depth": s.queue_depth,
            "ssd.submit": self.cycles(h.submit_us), "ssd.complete": self.cycles(h.complete_us),
            "ssd.poll": max(1, self.cycles(h.poll_us)), "ssd.doorbell": self.cycles(h.doorbell_us),
            "link.page": self.cycles(4096e6 * self.link.byte_s), "link.begin": self.cycles(h.submit_us + latency_us),
            "link.end": self.cycles(h.complete_us),
            "host.base": b.base, "host.size": b.bytes, "host.latency": self.cycles(b.read_us), "host.reads": b.reads,
            "host.writes": b.writes, "host.payload": b.payload_bytes, "host.request": b.request_bytes,
            "host.header": b.header_bytes, "host.completions": b.completion_bytes, "host.credits": b.credits,
        }
