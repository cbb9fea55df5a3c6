"""What a simulator of four states adds: behind a reset, nothing unknown may leave a unit.

`watch` needs no bench's help: `verif.bench.start` starts it where the simulator knows four states.
"""

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from verif.bench.pack import metadata

CONTROLS = ("valid", "ready", "interrupt")


class Unknown(AssertionError):
    """An output is unknown although the unit was reset."""


async def watch(dut: Any, clock: Any) -> None:
    """From the first reset on, at every edge without one: whatever hands something over (valid, ready, interrupt) is
    known, and what stands beside a valid is known while it is high. Raises Unknown with the port's name."""
    names = [name for name, port in metadata()["ports"].items() if port["direction"] == "out"]
    controls = [(name, getattr(dut, name)) for name in names if name.endswith(CONTROLS)]
    beside = {name: [(other, getattr(dut, other)) for other in names
                     if other.startswith(name.removesuffix("valid")) and not other.endswith(CONTROLS)]
              for name, _ in controls if name.endswith("valid")}
    reset, held = (dut.ap_rst_n, 0) if not metadata()["reset"] else (getattr(dut, metadata()["reset"]), 1)
    edge, was_reset = RisingEdge(clock), False
    while True:
        await edge
        if reset.value == held:
            was_reset = True
        if reset.value != 1 - held or not was_reset:
            continue
        for name, signal in controls:
            value = signal.value
            _known(name, value)
            if value == 1:
                for other, payload in beside.get(name, ()):
                    _known(other, payload.value)


def _known(name: str, value: Any) -> None:
    if not value.is_resolvable:
        raise Unknown(f"{name} is {value} although the unit was reset")


def four_states() -> bool:
    """Whether this simulator has them."""
    return cocotb.SIM_NAME.startswith("Icarus")
