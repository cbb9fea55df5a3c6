"""Figure 7.6 on the simulated card: what mini-batches in flight hide of gathering, updating and dealing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_least, bench, figure
from fpga.card.device import Device
from fpga.gpu import GATHERED, Batch, Times
from fpga.hotline import Hotline, Position, Table, Trained
from gen.config import load
from gen.hotline import Train

PRESET, DEVICE = "hotline_fpga", "smartssd"
FLIGHTS = (1, 2, 4, 8)
TABLES, ROWS, DIM, EXPONENT = 8, 20_000, 16, 1.2
LEARNED, SAMPLES, BATCH = 4000, 4096, 64
SHARE = 0.75        # of the samples that shall be popular, as the thesis has it


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


def curve(log: Log, config: Any, times: Times, flights: Sequence[int], batch: int, **options: Any) -> list[Trained]:
    """The same log dealt with each number of mini-batches in flight."""
    with Hotline(log.tables, log.positions, payload=1, preset=config, times=times, **options) as hotline:
        hotline.learn(log.learned)
        return [hotline.deal(gradients, log.indices, log.payload, Train(batch, slots, -1.0)) for slots in flights]


@bench("hotline_overlap")
def rows() -> Iterator[Row]:
    """Share of the time in which the GPU works, over the mini-batches in flight; three quarters popular samples."""
    device, config = Device.load(DEVICE), load(PRESET).cores["hotline"]
    made = log()
    for name, about, times in (("gpu", "a GPU of 24 cycles a sample", Times(0, 24)),
                               ("core", "a GPU of 1 cycle a sample: the core's own time", Times(0, 1))):
        found = curve(made, config, times, FLIGHTS, BATCH, device=DEVICE, memory="ddr4")
        for slots, done in zip(FLIGHTS, found, strict=True):
            what = f"{about}, mini-batches of {BATCH}, {slots} in flight"
            if name == "gpu":
                id, share = f"hotline.overlap.gpu.{slots}", round(100 * done.busy / done.cycles, 1)
                text = f"{what}: of the cycles the GPU works"
                yield at_least(id, text, share, "%", 95) if slots >= 4 else figure(id, text, share, "%")
            else:
                yield figure(f"hotline.overlap.core.{slots}", what,
                             round(done.samples / done.cycles * device.kernel_mhz, 1), "M samples/s")
        if name == "gpu":
            kinds = found[0].kinds
            yield figure("hotline.overlap.popular", f"popular samples; {kinds.count(GATHERED)} of {len(kinds)} "
                         "mini-batches gathered", round(100 * found[0].popular / found[0].samples, 1), "%")
            yield figure("hotline.overlap.speedup", "eight in flight against one",
                         round(found[0].cycles / found[-1].cycles, 2), "times")
