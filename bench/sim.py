"""How long the full-size models take to build and how fast they run, on one thread."""

import os
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.framework import Row, at_least, at_most, bench, figure
from gen.rtl import config
from gen.rtl.play import Phase, Player, build
from golden.tt.load import Limits, Loader
from hw.systolic.array import SystolicArray
from hw.tt.unit import TTUnit

CYCLES = 100_000
WARM = 256      # cycles before them
EVERY = 64      # cycles between two new operands
BUILD_S = 60
CYCLES_PER_S = 45_000


def _processor_s() -> float:
    """Processor time of all finished child processes: the compilers'."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _array(player: Player) -> np.ndarray:
    """A systolic array in which every element multiplies in every cycle."""
    random = np.random.default_rng(1)
    widths = {name: player.metadata["ports"][name]["width"] for name in ("x", "y")}

    def operands() -> dict[str, int]:
        return {name: int.from_bytes(random.bytes(-(-width // 8)), "little") >> -width % 8
                for name, width in widths.items()}

    return player.play([Phase(hold=operands(), rest=WARM),
                        *(Phase(hold=operands(), rest=EVERY) for _ in range(CYCLES // EVERY))]).ended[[0, -1]]


def _unit(player: Player, unit: Any) -> np.ndarray:
    """A TT unit whose multipliers all work in every cycle: rows by themselves, D = 64, R = 32, always on offer."""
    random = np.random.default_rng(1)
    cores = [random.standard_normal(shape, dtype=np.float32)
             for shape in ((1, 16, 4, 32), (32, 16, 4, 32), (32, 16, 4, 1))]
    _, _, beats = Loader(Limits.of(unit)).add(cores)
    rows = np.repeat(random.integers(4096, size=CYCLES // EVERY), EVERY)
    lookups = [{"table": 0, "index": int(row), "begin": 1, "end": 1} for row in rows]
    load = Phase({"i_load": player.packed("i_load", map(vars, beats))}, rest=4)
    warm, rest = (Phase({"i_lookups": player.packed("i_lookups", some)}) for some in (lookups[:WARM], lookups))
    done = player.play([load, warm, rest])
    spent = done.ended[-1, 0] - done.ended[0, 0]
    slots = player.unpacked("counters", done.shown["counters"])["slots"]
    assert slots > 0.95 * unit.lanes * spent, f"{slots} issue slots had work in {spent:.0f} cycles"
    return done.ended[[1, -1]]


@bench("sim")
def sim() -> Iterator[Row]:
    """Build time and speed of the Verilator models of the 16 x 32 array and of the shipping TT unit."""
    unit = config.load("smartssd").cores["tt"]
    array = SystolicArray(rows=16, columns=32, width=1, terms_log2=5)
    for name, component, what, run in (
        ("array", array, "16 x 32 array", _array),
        ("tt", TTUnit(unit), "TT unit of smartssd", lambda player: _unit(player, unit)),
    ):
        before = _processor_s()
        player = build(component, f"bench_{name}", fresh=True)
        spent = _processor_s() - before
        yield at_most(f"sim.{name}.build_s", f"{what}: Verilog to simulator, {os.cpu_count()} compilers",
                      round(player.build_seconds, 1), "s", BUILD_S)
        yield figure(f"sim.{name}.build_processor_s", f"{what}: the same in processor time", round(spent, 1), "s")
        (first, begin), (last, end) = run(player)
        yield at_least(f"sim.{name}.cycles_per_s", f"{what}: every multiplier busy, one thread",
                       round((last - first) / (end - begin)), "cycles/s", CYCLES_PER_S)
