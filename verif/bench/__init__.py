"""What every bench needs: clock and reset, seeded randomness, and a way to hand figures out."""

import ctypes
import gc
import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

from gen.rtl import redraw
from verif.bench.pack import metadata

__all__ = ["clock_of", "has_begun", "rng", "start", "reset", "report", "seed"]

# Between two looks for garbage: cocotb makes objects in every cycle, most of them gone with it. Python's own count,
# 700, costs a twentieth of a simulation.
ALLOCATIONS = 200_000


def seed(label: str = "") -> int:
    """The run's seed, mixed with a label so that parts draw from different sequences."""
    base = os.environ.get("COCOTB_RANDOM_SEED", "1")
    return int.from_bytes(hashlib.sha256(f"{base}/{label}".encode()).digest()[:8], "little")


def rng(label: str = "") -> random.Random:
    """A seeded generator; for NumPy use `numpy.random.default_rng(seed(label))`."""
    return random.Random(seed(label))


def clock_of(dut: Any) -> Any:
    """The unit's clock, whatever its Verilog calls it."""
    return getattr(dut, metadata()["clock"])


_clock: Any = None    # the test's clock: its task, which ends with the test
_begin_ns: float | None = -1.0      # the first edge of a simulation at which the reset was high; None before it


def has_begun() -> bool:
    """Whether the unit has been reset in this simulation. What it shows before is drawn at random."""
    from cocotb.utils import get_sim_time

    return _begin_ns is not None and get_sim_time("ns") > _begin_ns


async def _watch_first_reset(dut: Any, clock: Any) -> None:
    from cocotb.triggers import RisingEdge
    from cocotb.utils import get_sim_time

    global _begin_ns
    signal = getattr(dut, metadata()["reset"])
    while _begin_ns is None:
        await RisingEdge(clock)
        if signal.value == 1:
            _begin_ns = get_sim_time("ns")

AXI_VALID = ("awvalid", "wvalid", "bvalid", "arvalid", "rvalid")


def start(dut: Any, period_ns: int = 10) -> None:
    """Starts the clock in the simulator's own loop, which costs no Python at its edges.

    A test has one clock: where it runs already it goes on as it is, since a second one on the same signal adds edges
    wherever it is out of step with the first. Where the simulator has four states, nothing unknown may leave the unit
    from its first reset on.
    """
    import cocotb
    from cocotb.clock import Clock

    from verif.bench import quick
    from verif.bench.unknown import four_states, watch

    quick.install()
    gc.set_threshold(ALLOCATIONS)
    global _clock, _begin_ns
    if _clock is None and metadata()["reset"] == "rst":
        _begin_ns = None
    if _clock is None or _clock.done():
        _clock = Clock(clock_of(dut), period_ns, unit="ns").start()
        if _begin_ns is None:
            cocotb.start_soon(_watch_first_reset(dut, clock_of(dut)))
        if four_states():
            cocotb.start_soon(watch(dut, clock_of(dut)))


async def reset(dut: Any, cycles: int = 1, *, keeps: bool = False) -> None:
    """Holds reset for some edges and returns right after it was taken back: what is read then is from before the last
    of them. For units with a reset of Verilog's own; a kernel's top is reset by verif.bench.xrt.

    One edge has to do: a second one would hide what the first has left in a pipeline. At the first one every register
    is drawn as at a power-up, once everybody has seen what the unit showed: a reset may find it in any state. Inputs
    are drawn while it lasts, most `valid` are 1, and afterwards they are as before: what comes in a reset may not get
    into a memory either. Those of AXI are 0, as its rules want them in a reset. keeps: no register is drawn, as
    some outlive a reset, as the unit's documentation says, or a part gets its own later than the unit.
    """
    import cocotb
    from cocotb.triggers import ReadWrite, RisingEdge
    from cocotb.utils import get_sim_time

    signal, edge = getattr(dut, metadata()["reset"]), RisingEdge(clock_of(dut))
    # A simulation's first edge comes with its first values, and does not count.
    begins = get_sim_time("step") == 0
    if begins:  # it may begin at 1, and models of buses look at changes
        signal.value = 0
        await ReadWrite()
    signal.value = 1
    kept: dict[Any, int] = {}
    cocotb.start_soon(_draw(dut, kept, edge, not begins and not keeps))
    for _ in range(cycles + begins):
        await edge
    for pin, value in kept.items():
        pin.value = value
    signal.value = 0


async def _draw(dut: Any, kept: dict[Any, int], edge: Any, registers: bool) -> None:
    """Writes anything to the inputs, once what was written before is in place, and notes what that was; at the next
    edge, of all that wait for it the last, draws the registers, if told to. A task of its own, so that its waiting does
    not change in which order a bench's others see the edge."""
    from cocotb.triggers import Timer
    from cocotb.utils import get_sim_time

    random = rng(f"reset {get_sim_time('step')}")
    await Timer(1, "step")
    for name, port in metadata()["ports"].items():
        if port["direction"] == "in" and name not in (metadata()["clock"], metadata()["reset"]):
            pin = getattr(dut, name)
            kept[pin] = int(pin.value) if pin.value.is_resolvable else 0
            often = 0.0 if name.endswith(AXI_VALID) else 0.75
            pin.value = int(random.random() < often) if name.endswith("valid") else random.getrandbits(len(pin))
    await edge
    if registers and (draw := getattr(ctypes.CDLL(None), redraw.FUNCTION, None)):
        draw(1 + random.getrandbits(30))
        await Timer(1, "step")
        draw(0)


def report(**values: Any) -> None:
    """Hands figures to whoever called `simulate`: they are in `Result.values`."""
    path = Path(os.environ["HOTRAIL_REPORT"])
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | values), "utf-8")
