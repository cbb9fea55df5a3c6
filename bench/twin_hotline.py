"""The Hotline core's twin beside the Verilated card: cycles and rows over a suite of cases, and lookups per second."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_most, bench, figure
from bench.hotline_overlap import log
from fpga.api.gpu import Batch, Times
from fpga.api.hotline import Hotline
from fpga.card import Card
from fpga.card import open as open_card
from fpga.card.model import Model, build
from gen.compiler.hotline import Train
from gen.rtl.config import load
from gen.rtl.cores import CORES
from gen.rtl.headers import KERNELS

TRIALS = 3
ERROR = 2.0


@dataclass(frozen=True)
class Case:
    """Samples of 8 tables, learned from and then trained on. share: of them whose rows are all of the head; gpu: cycles
    a sample; half, pooled: rows go out in binary16, vectors go out in their place."""

    share: float = 0.75
    gpu: int = 24
    memory: str = "ddr4"
    half: bool = False
    pooled: bool = False
    batch: int = 64
    slots: int = 4
    dim: int = 16
    rows: int = 20_000
    learned: int = 500
    samples: int = 500
    preset: str = "hotline_fpga"


TINY: dict[str, Any] = {
    "rows": 300, "batch": 8, "slots": 3, "dim": 11, "learned": 200, "samples": 200, "preset": "tiny"}
SUITE = (
    *(Case(share) for share in (0.0, 0.75, 1.0)), Case(gpu=1), Case(gpu=200, slots=1), Case(half=True, dim=64),
    Case(memory="ideal"), Case(0.25, gpu=1, memory="ideal", half=True), Case(0.25, pooled=True),
    *(Case(share, gpu, memory, half, pooled, **TINY) for share, gpu, pooled in (
        (0.0, 1, False), (0.5, 24, False), (0.9, 200, False), (0.5, 1, True))
      for memory in ("ddr4", "ideal") for half in (False, True)),
)
LEARNS = Case(learned=60_000, samples=64)
TRAINS = Case(learned=4000, samples=8000)


class Found(NamedTuple):
    """Cycles of learning and of training, the tables, processor seconds of both."""

    cycles: tuple[int, int]
    tables: tuple[bytes, ...]
    seconds: tuple[float, float]


@cache
def _model(preset: str) -> Model:
    """The Verilated core, whose Verilog takes longer to write than a case."""
    return build(CORES["hotline"].unit(load(preset).cores["hotline"]), f"card_hotline_{preset}")


def _gradients(batch: Batch) -> NDArray[np.float32]:
    """Of all that the GPU sees of a mini-batch."""
    seen = batch.rows if batch.pooled is None else batch.pooled.sum(axis=(0, 1))
    return np.ones((batch.cold, seen.shape[-1]), np.float32) + seen * np.float32(0.01)


def _opened(case: Case, kind: str) -> Card:
    if kind == "twin":
        return open_card(kind, core="hotline", preset=case.preset, memory=case.memory)
    return open_card(kind, core=_model(case.preset), kernel=KERNELS["hotline"], memory=case.memory)


def _carry_out(case: Case, kind: str) -> Found:
    made = log(rows=case.rows, dim=case.dim, learned=case.learned, samples=case.samples, share=case.share)
    with _opened(case, kind) as card, Hotline(made.tables, made.positions, payload=1, card=card, preset=case.preset,
                                              times=Times(0, case.gpu)) as hotline:
        start = time.process_time()
        hotline.learn(made.learned)
        learned, middle = hotline.last["cycles"], time.process_time()
        how = Train(case.batch, case.slots, -1.0, case.pooled, case.half)
        hot = np.ones((hotline.layout.hot_numbers, hotline.layout.row_words), np.float32).view(np.uint32)
        done = hotline.deal(_gradients, made.indices, made.payload, how, (lambda: hot) if case.pooled else None)
        end = time.process_time()
        return Found((learned, done.cycles), tuple(hotline.values(table.name).tobytes() for table in made.tables),
                     (middle - start, end - middle))


@bench("twin_hotline")
def twin_hotline() -> Iterator[Row]:
    """The Hotline core's twin against the Verilated core: cycles, rows as trained, lookups per second."""
    errors, different, seconds = [], 0, np.zeros(2)
    for case in SUITE:
        card, other = _carry_out(case, "sim"), _carry_out(case, "twin")
        errors += [100 * abs(one - two) / one for one, two in zip(card.cycles, other.cycles, strict=True)]
        different += sum(one != two for one, two in zip(card.tables, other.tables, strict=True))
        seconds += sum(card.seconds), sum(other.seconds)
    what = f"{len(SUITE)} cases, {len(errors)} runs"
    yield at_most("twin.hotline.error", f"{what}: cycles of a run against the Verilated core's, worst", max(errors),
                  "%", ERROR)
    yield at_most("twin.hotline.different", f"{what}: tables that differ in a bit", different, "tables", 0)
    yield figure("twin.hotline.faster", f"{what}: processor time of the Verilated card over the twin's",
                 round(float(seconds[0] / seconds[1])), "times")
    for name, case, part in (("", TRAINS, 1), (".learn", LEARNS, 0)):
        tried = [_carry_out(case, "twin") for _ in range(TRIALS)]
        lookups = (case.samples if part else case.learned) * len(log(rows=50, learned=1, samples=1).tables)
        best = min(found.seconds[part] for found in tried)
        per_lookup = tried[0].cycles[part] / lookups
        yield figure(f"twin.hotline.lookups_per_s{name}", f"{'training' if part else 'learning'}, {case.preset}, "
                     f"{per_lookup:.2f} cycles per lookup: lookups per second of one core", round(lookups / best),
                     "lookups/s")
