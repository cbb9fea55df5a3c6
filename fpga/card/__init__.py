"""Cards: one interface in front of the simulated card and of a real one.

    from fpga import card
    with card.open("sim", device="smartssd", core="emb", preset="smartssd") as sim:
        rows = sim.allocate(1 << 20, "rows")
        sim.write(rows, table)
        sim.run({"rows": rows, "rows_beats": rows.bytes // 64, ...})
        sim.wait()
        vectors = sim.read(outputs, dtype="float32")
"""

from fpga.card.interface import (
    Buffer,
    Card,
    CardError,
    CardHang,
    CardViolation,
    ErrorResponse,
    Faults,
    KernelLike,
    LinkUse,
    Silence,
    SsdStream,
    Violation,
)
from fpga.card.opening import open
from gen.model.device import Device

__all__ = [
    "Buffer",
    "Card",
    "CardError",
    "CardHang",
    "CardViolation",
    "Device",
    "ErrorResponse",
    "Faults",
    "KernelLike",
    "LinkUse",
    "Silence",
    "SsdStream",
    "Violation",
    "open",
]
