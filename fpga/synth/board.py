"""Boards with an ECP5: part, pins and clock, read from the TOML files in fpga/synth/boards, and what follows from
them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gen.rtl import config
from gen.rtl.config import ConfigError

FOLDER = Path(__file__).parent / "boards"
# What nextpnr-ecp5 knows: its option, the part's name.
PARTS = {f"{prefix}{size}k": f"{name}-{size}F" for prefix, name, sizes in (
    ("", "LFE5U", (12, 25, 45, 85)), ("um-", "LFE5UM", (25, 45, 85)), ("um5g-", "LFE5UM5G", (25, 45, 85)))
    for size in sizes}
PACKAGES = ("TQFP144", "CSFBGA285", "CABGA256", "CABGA381", "CABGA554", "CABGA756")
BOARD_TOP = "hotrail_board"
BAUD_ERROR = 0.02       # of a bit: a byte's last bit is then sampled a fifth of a bit off its middle
LAMPS = 8


@dataclass(frozen=True)
class Part:
    device: str
    package: str
    speed: int
    io_type: str


@dataclass(frozen=True)
class Clock:
    pin: str
    oscillator_mhz: float
    core_mhz: float


@dataclass(frozen=True)
class Serial:
    rx: str
    tx: str
    baud: int
    gap_ms: float


@dataclass(frozen=True)
class Button:
    pin: str
    active_high: bool


@dataclass(frozen=True)
class Lamps:
    pins: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class BlockMemory:
    bytes: int


@dataclass(frozen=True)
class Ties:
    high: tuple[str, ...]
    low: tuple[str, ...]


@dataclass(frozen=True)
class EcpBoard:
    """A board; `name` is its file's, every other field a key of the file. `load` reads it."""

    name: str
    about: str
    source: str
    part: Part
    clock: Clock
    serial: Serial
    button: Button
    lamps: Lamps
    memory: BlockMemory
    ties: Ties

    @staticmethod
    def names() -> tuple[str, ...]:
        return config.stems(FOLDER)

    @staticmethod
    def load(board: "str | Path | EcpBoard") -> "EcpBoard":
        """A board by its name, or from a path that ends in .toml.

        Raises ConfigError: the file, a table or a key is missing, unknown or impossible."""
        described: EcpBoard = config.described(EcpBoard, "board", board, FOLDER)
        return described

    def check(self) -> None:
        """Raises ConfigError: values that cannot be, or do not fit each other."""
        where = f"{self.name}.toml:"
        for name, value, allowed in (
                ("[part] device", self.part.device, tuple(PARTS)), ("[part] package", self.part.package, PACKAGES),
                ("[part] speed", self.part.speed, (6, 7, 8))):
            if value not in allowed:
                raise ConfigError(f"{where} {name} = {value!r}: must be one of {', '.join(map(str, allowed))}")
        for name, number in (("[clock] oscillator_mhz", self.clock.oscillator_mhz),
                             ("[clock] core_mhz", self.clock.core_mhz), ("[serial] baud", self.serial.baud),
                             ("[serial] gap_ms", self.serial.gap_ms), ("[lamps] seconds", self.lamps.seconds)):
            if not 0 < number < float("inf"):
                raise ConfigError(f"{where} {name} = {number}: must be above 0")
        if len(self.lamps.pins) != LAMPS:
            raise ConfigError(f"{where} [lamps] pins = {list(self.lamps.pins)}: must be {LAMPS} pins")
        seen: dict[str, str] = {}
        for port, pin in self.pins():
            if not re.fullmatch(r"[A-Z]{0,2}[0-9]{1,3}", pin):
                raise ConfigError(f"{where} pin {pin!r} of {port}: is no name of a pin, such as 'G2'")
            if pin in seen:
                raise ConfigError(f"{where} pin {pin} is given to {seen[pin]} and to {port}")
            seen[pin] = port
        exact = self.clock.core_mhz * 1e6 / self.serial.baud
        if abs(self.divisor - exact) > BAUD_ERROR * exact:
            raise ConfigError(f"{where} [serial] baud = {self.serial.baud}: {self.clock.core_mhz:g} MHz make "
                              f"{self.clock.core_mhz * 1e6 / max(1, self.divisor):,.0f} baud, which is more than "
                              f"{BAUD_ERROR:.0%} off")

    @property
    def divisor(self) -> int:
        """Cycles of a bit on the serial line."""
        return round(self.clock.core_mhz * 1e6 / self.serial.baud)

    def settings(self) -> dict[str, int]:
        """The keys of hw.board.top.BoardConfig."""
        cycles_per_ms = self.clock.core_mhz * 1000
        return {"divisor": self.divisor, "gap_cycles": max(1, round(self.serial.gap_ms * cycles_per_ms)),
                "memory_bytes": self.memory.bytes,
                "lamp_log2": max(4, round(self.lamps.seconds * 1000 * cycles_per_ms).bit_length() - 1)}

    def pins(self) -> Iterator[tuple[str, str]]:
        """(port of the top, pin) of all that is connected."""
        yield "clock_in", self.clock.pin
        yield from (("rx", self.serial.rx), ("tx", self.serial.tx), ("button", self.button.pin))
        yield from ((f"lamps[{number}]", pin) for number, pin in enumerate(self.lamps.pins))
        for level in ("high", "low"):
            yield from ((f"tie_{level}_{number}", pin) for number, pin in enumerate(getattr(self.ties, level)))


def constraints(board: EcpBoard) -> str:
    """The board's pins and clock as nextpnr reads them (LPF). Inputs that nothing drives rest: the line is idle, the
    button up."""
    pulls = {"rx": " PULLMODE=UP", "button": " PULLMODE=DOWN" if board.button.active_high else " PULLMODE=UP"}
    lines = []
    for port, pin in board.pins():
        lines += [f'LOCATE COMP "{port}" SITE "{pin}";',
                  f'IOBUF PORT "{port}" IO_TYPE={board.part.io_type}{pulls.get(port, "")};']
    lines.append(f'FREQUENCY PORT "clock_in" {board.clock.oscillator_mhz:g} MHZ;')
    return "\n".join(lines) + "\n"


def wrapper(board: EcpBoard, inner: str, pll: str | None) -> str:
    """Verilog of the chip's top, BOARD_TOP: the board's pins around the module `inner`.

    pll: name of a module with clkin, clkout0 and locked, or None where the oscillator is the clock.
    """
    ties = [(port, port.split("_")[1] == "high") for port, _ in board.pins() if port.startswith("tie_")]
    ports = ["input clock_in", "input rx", "output tx", "input button", f"output [{LAMPS - 1}:0] lamps",
             *(f"output {port}" for port, _ in ties)]
    clock = [f"  {pll} pll(.clkin(clock_in), .clkout0(clock), .locked(locked));"] if pll else [
        "  assign clock = clock_in;", "  assign locked = 1'b1;"]
    pressed = "button" if board.button.active_high else "~button"
    return "\n".join([
        f"module {BOARD_TOP}(", "  " + ",\n  ".join(ports), ");", "  wire clock, locked;", *clock,
        *(f"  assign {port} = 1'b{int(high)};" for port, high in ties),
        # The reset of the module itself is not synchronised; the button inside is.
        f"  {inner} board(.clk(clock), .rst(1'b0), .rx(rx), .tx(tx), .button({pressed} | ~locked), .lamps(lamps));",
        "endmodule", ""])
