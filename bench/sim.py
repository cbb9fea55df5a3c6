"""How long the full-size models take to build and how fast they run, on one thread."""

import json
import os
import resource
from collections.abc import Iterator
from typing import Any

from bench.framework import Row, at_least, at_most, bench, figure
from gen.rtl import config
from hw.systolic.array import SystolicArray
from hw.tt.unit import TTUnit
from verif.bench.runner import build, run
from verif.tt.bench import limits_of

CYCLES = 100_000
BUILD_S = 60
CYCLES_PER_S = 45_000


def _processor_s() -> float:
    """Processor time of all finished child processes: the compilers'."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@bench("sim")
def sim() -> Iterator[Row]:
    """Build time and speed of the Verilator models of the 16 x 32 array and of the shipping TT unit."""
    unit = config.load("smartssd").cores["tt"]
    settings: dict[str, Any] = {
        "HOTRAIL_CYCLES": CYCLES,
        "HOTRAIL_LIMITS": json.dumps(vars(limits_of(unit))),
        "HOTRAIL_LANES": unit.lanes,
    }
    array = SystolicArray(rows=16, columns=32, width=1, terms_log2=5)
    for name, component, what in (
        ("array", array, "16 x 32 array"),
        ("tt", TTUnit(unit), "TT unit of smartssd"),
    ):
        before = _processor_s()
        model = build(component, f"bench_{name}", opt="-O1", fresh=True)
        spent = _processor_s() - before
        yield at_most(
            f"sim.{name}.build_s",
            f"{what}: Verilog to simulator, {os.cpu_count()} compilers",
            round(model.build_seconds, 1),
            "s",
            BUILD_S,
        )
        yield figure(
            f"sim.{name}.build_processor_s", f"{what}: the same in processor time", round(spent, 1), "s"
        )
        done = run(model, "verif.bench.speed", tests=1, only=f"speed\\.{name}$", env=settings)
        yield at_least(
            f"sim.{name}.cycles_per_s",
            f"{what}: every multiplier busy, one thread",
            round(done.values["cycles_per_s"]),
            "cycles/s",
            CYCLES_PER_S,
        )
