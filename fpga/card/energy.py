"""What a card takes while it works: DRAM by its commands, drive and FPGA between bounds.

    energy = spent(Device.load("smartssd"), commands, seconds)
    print(energy.dram_j, energy.low_j, energy.high_j)

DRAM: a command takes what the data sheet's current for it adds to that of a rank that stands still, times voltage,
time and parts; the bus adds its drivers and terminations while data move. FPGA: what the platform takes around a
kernel that does nothing; the kernel's own part is not known without routed power reports, so this is a lower bound. The
upper one is what the slot gives.
Source: Micron TN-40-07 (the method), which DRAMPower and DRAMsim3 follow
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fpga.card.interface import PAGE
from gen.model.device import Device


@dataclass(frozen=True)
class Energy:
    """Joules of some seconds of a card. dram_j: of the commands of its DRAM alone; low_j, high_j: of all of it, at
    least and at most."""

    seconds: float = 0.0
    dram_j: float = 0.0
    low_j: float = 0.0
    high_j: float = 0.0

    def plus(self, other: "Energy") -> "Energy":
        return Energy(self.seconds + other.seconds, self.dram_j + other.dram_j, self.low_j + other.low_j,
                      self.high_j + other.high_j)

    @property
    def watts(self) -> tuple[float, float]:
        """At least and at most, on the average of these seconds."""
        return (self.low_j / self.seconds, self.high_j / self.seconds) if self.seconds else (0.0, 0.0)


def command_j(device: Device) -> dict[str, float]:
    """Joules of one activation with the precharge behind it, one refresh, one read and one write of a line, bus
    included."""
    power, ddr = device.power, device.dram
    ns = {name: ddr.clocks(name) * ddr.clock_ns for name in ("tras", "trp", "trfc")}
    burst_ns = ddr.burst_clocks * ddr.clock_ns
    row = power.idd0 * (ns["tras"] + ns["trp"]) - power.idd3n * ns["tras"] - power.idd2n * ns["trp"]
    parts_j = power.vdd * power.parts * 1e-12     # of one milliampere for one nanosecond
    bus_j = power.bus_w * burst_ns * 1e-9
    return {"activates": row * parts_j, "refreshes": (power.idd5b - power.idd3n) * ns["trfc"] * parts_j,
            "reads": (power.idd4r - power.idd3n) * burst_ns * parts_j + bus_j,
            "writes": (power.idd4w - power.idd3n) * burst_ns * parts_j + bus_j}


def spent(device: Device, commands: Mapping[str, int], seconds: float) -> Energy:
    """What a card takes in so many seconds with so many commands (Card.commands) in them.

    The drive is busy as long as its channels need for the pages, at most all the time.
    """
    power, drive = device.power, device.ssd
    each = command_j(device)
    dram_j = sum(commands.get(name, 0) * joules for name, joules in each.items())
    closed_w = power.idd2n * power.vdd * power.parts * 1e-3
    pages_s = commands.get("pages", 0) * PAGE / (drive.channels * drive.bus_gb_s * 1e9)
    drive_j = power.drive_idle_w * seconds + (power.drive_busy_w - power.drive_idle_w) * min(pages_s, seconds)
    low_j = dram_j + drive_j + (closed_w + power.fpga_idle_w) * seconds
    return Energy(seconds, dram_j, low_j, max(power.slot_w * seconds, low_j))
