"""Figure 7.6 on the simulated card: what mini-batches in flight hide of gathering, updating and dispatching.

Rows are in the card's own DDR4, where the thesis' are in host memory behind PCIe.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_least, bench, figure
from fpga.api.gpu import GATHERED, Batch, Gpu, Times
from fpga.api.hotline import Hotline, Position, Table, Trained
from gen.compiler.hotline import Train
from gen.model.device import Device
from gen.rtl.config import load

PRESET, DEVICE = "hotline_fpga", "smartssd"
FLIGHTS = (1, 2, 4, 8)
TABLES, ROWS, DIM, EXPONENT = 8, 20_000, 16, 1.2
LEARNED, SAMPLES, BATCH = 4000, 4096, 64
SHARE = 0.75        # of the samples that shall be popular, as the thesis has it
GPU_CYCLES = 24     # a sample
ENOUGH = 4          # mini-batches in flight that hide everything, as the thesis finds
GPUS = (1, 2, 4)


@dataclass(frozen=True)
class Log:
    """Tables and samples: indices (samples, positions), a payload word with the sample's number."""

    tables: list[Table]
    positions: list[Position]
    learned: NDArray[np.int64]
    indices: NDArray[np.int64]
    payload: NDArray[np.uint32]


def log(*, tables: int = TABLES, rows: int = ROWS, dim: int = DIM, learned: int = LEARNED, samples: int = SAMPLES,
        share: float = SHARE, seed: int = 1) -> Log:
    """Samples drawn by Zipf's law, whose tail comes together: with `share` a sample's rows are all from the head."""
    random = np.random.default_rng(seed)
    head = rows // 50
    weight = np.arange(1, rows + 1) ** -EXPONENT
    count = learned + samples
    top = random.choice(head, (count, tables), p=weight[:head] / weight[:head].sum())
    tail = head + random.choice(rows - head, (count, tables), p=weight[head:] / weight[head:].sum())
    # A sample of the tail has one or two of its rows there.
    cold = (random.random(count) > share)[:, None] & (random.random((count, tables)) < 1.5 / tables)
    indices = np.where(cold, tail, top)
    made = [Table(f"t{number}", random.standard_normal((rows, dim), np.float32)) for number in range(tables)]
    return Log(made, [Position(table.name) for table in made], indices[:learned], indices[learned:],
               np.arange(samples, dtype=np.uint32)[:, None])


def gradients(batch: Batch) -> NDArray[np.float32]:
    return np.ones_like(batch.rows)


@dataclass(frozen=True)
class Point:
    """A run: what came of it, and the share of the cycles in which the GPU worked, in the middle half of the
    mini-batches (the first wait for the input buffer to fill, the last ones find nothing to overlap with)."""

    done: Trained
    busy: float
    cycles: int     # from a mini-batch to the next, there


def curve(log: Log, config: Any, times: Times, flights: Sequence[int], batch: int, **options: Any) -> list[Point]:
    """The same log dispatched with each number of mini-batches in flight."""
    found = []
    with Hotline(log.tables, log.positions, payload=1, preset=config, times=times, **options) as hotline:
        hotline.learn(log.learned)
        for slots in flights:
            done = hotline.dispatch(gradients, log.indices, log.payload, Train(batch, slots, -1.0))
            assert hotline.gpu is not None
            found.append(Point(done, *middle(hotline.gpu)))
    return found


def middle(gpu: Gpu) -> tuple[float, int]:
    """The share of the time in which the GPUs worked, and the cycles from a mini-batch to the next, in their middle
    half."""
    started = sorted(gpu.started)
    first, last = len(started) // 4, len(started) * 3 // 4
    begin, end = started[first], started[last]
    worked = sum(max(0, min(end, b) - max(begin, a)) for a, b in zip(gpu.started, gpu.finished, strict=True))
    return worked / (end - begin) / gpu.layout.config.gpus, (end - begin) // (last - first)


@bench("hotline_overlap")
def rows() -> Iterator[Row]:
    """Figure 7.6: share of the time in which the GPU works, over the mini-batches in flight."""
    device, config = Device.load(DEVICE), load(PRESET).cores["hotline"]
    made = log()
    slow = curve(made, config, Times(0, GPU_CYCLES), FLIGHTS, BATCH, device=DEVICE, memory="ddr4")
    kinds = slow[0].done.kinds
    yield figure("hotline.overlap.popular", f"popular samples; {kinds.count(GATHERED)} of {len(kinds)} mini-batches "
                 "gathered", round(100 * slow[0].done.popular / slow[0].done.samples, 1), "%")
    for slots, point in zip(FLIGHTS, slow, strict=True):
        id, what = f"hotline.overlap.gpu.{slots}", (f"a GPU of {GPU_CYCLES} cycles a sample, mini-batches of {BATCH}, "
                                                    f"{slots} in flight: of the cycles the GPU works")
        share = round(100 * point.busy, 1)
        yield at_least(id, what, share, "%", 95) if slots >= ENOUGH else figure(id, what, share, "%")
    yield figure("hotline.overlap.speedup", f"a mini-batch with {ENOUGH} in flight against one",
                 round(slow[0].cycles / slow[FLIGHTS.index(ENOUGH)].cycles, 2), "times")
    for slots, point in zip(FLIGHTS, curve(made, config, Times(0, 1), FLIGHTS, BATCH, device=DEVICE, memory="ddr4"),
                            strict=True):
        yield figure(f"hotline.overlap.core.{slots}", f"a GPU of a cycle a sample, {slots} in flight: the core alone",
                     round(BATCH / point.cycles * device.kernel_mhz, 1), "M samples/s")
    for gpus in GPUS:
        (point,) = curve(made, replace(config, gpus=gpus), Times(0, GPU_CYCLES), (ENOUGH,), BATCH, device=DEVICE,
                         memory="ddr4")
        what = f"{gpus} GPUs of {GPU_CYCLES} cycles a sample, {ENOUGH} mini-batches of {BATCH} in flight at each"
        yield figure(f"hotline.overlap.gpus.{gpus}", f"{what}: of the cycles they work", round(100 * point.busy, 1),
                     "%")
        yield figure(f"hotline.overlap.rate.{gpus}", f"{what}: samples per second",
                     round(BATCH / point.cycles * device.kernel_mhz, 1), "M samples/s")
