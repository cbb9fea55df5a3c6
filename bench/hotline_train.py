"""What TRAIN takes of Criteo Kaggle's samples, on the simulated card: rows in the card's DRAM or the host's memory.

A sample is 26 indices, 13 dense features and a label: three beats of 16 words. The logger, its golden model, has
learned from 5 % of the log. The GPU takes mini-batches at once and returns gradients; its own traffic takes no time.

The port of the payload moves a beat per cycle each way: samples and gradients in; headers, samples and rows out. What
it allows is one over the beats per sample of the direction that has more, of the samples that are measured.

Cycles per sample that each stage needs by calculation, on the mean of popular and gathered ones:

    payload's port, out: 3 beats, 1.7 rows, the header's share                                4.7
    payload's port, in: 3 beats, 1.7 gradients                                                4.7
    lookup engines, a beat per cycle                                                          3
    input buffer, in: 3 beats and those that are rewritten                                    3.9
    gatherer's scan: half of the samples, a cycle per beat and per cold word                  3.2
    row table: a lookup and a release per row                                                 3.4
    embedding buffer: a row lands, is sent, read for its update, written, read for its write; two halves
                                                                                              2.6 out, 1.7 in
    updater: update and write of each row, one after the other, and the latencies of both     3.4 and more
    reads of rows, 100 cycles each, 128 in flight                                             1.3
    the same from host memory, 200 cycles, 32 in flight                                       10.6

No stage alone is slower than the port, but three follow one another: the rows of a gathered mini-batch wait for the
updates of the one before, whose gradients wait for the GPU. So where parts compete the one that is waited for goes
first: gradients before samples in the read port, the dispatcher before updater and gatherer in both buffers and in the
lists, three releases before a lookup in the row table. Writes of rows give way to reads: behind the bridge a read waits
for the writes before it, and the host has room for 64 of them in 200 cycles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, needed
from bench.framework import Row, at_least, bench, figure
from bench.hotline import CRITEO_SAMPLES, LEARNED, Logger
from bench.hotline_overlap import gradients, middle
from fpga.api.gpu import Gpu, Times
from fpga.card import Card
from fpga.card import open as open_card
from fpga.card.runs import Runs
from gen.compiler.hotline import Layout, Position, Table, Train
from gen.data.logs.criteo import ClickLog
from gen.model.device import Device
from gen.rtl.config import load

PRESET, DEVICE = "hotline_fpga", "u250"
#: Where rows lie: masters that are linked to the host's memory, the memory of the others.
PLACES = {"dram": ((), "the card's DRAM"), "host": (("m01_axi",), "the host's memory over PCIe Gen3 x16")}
MEMORIES = "ideal", "ddr4"
DIM, PAYLOAD, HEAD, SLOTS = 16, 14, 1000, 4
BATCHES = 8                                 # mini-batches that fill a frame, of the shorter of two runs
GPU_S, GPU_BATCH = 35.4e-3, 16_384          # Hotline §7.2.2: Terabyte, four V100
SHORT, SHORT_BATCHES = 32, 16               # samples of a mini-batch, and mini-batches, with the GPU's time


class Criteo:
    """Tables and samples of Criteo Kaggle's shape for a core, so many mini-batches that fill a frame, and the image of
    a logger that has learned."""

    def __init__(self, config: Any, batches: int):
        log = ClickLog(needed(CALIBRATION))
        self.batch = config.frame_beats // -(-(len(log.tables) + PAYLOAD) // config.words)
        samples = batches * self.batch
        learned = round((log.samples or CRITEO_SAMPLES) * LEARNED)
        # Zeros that nobody writes take no memory.
        tables = [Table(table.name, np.zeros((table.rows, DIM), np.float32)) for table in log.tables]
        self.indices = np.concatenate(list(log.blocks(samples, learned)))
        self.layout = Layout(config, tables, [Position(table.name) for table in tables], PAYLOAD,
                             np.concatenate(list(log.blocks(HEAD, learned + samples))))
        self.logger = Logger(self.layout.hot_numbers, 1 << config.domain_bits, banks=config.banks)
        for part in log.blocks(learned):
            self.logger.learn(self.numbers(part).ravel())

    def numbers(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of rows among those of all tables."""
        return indices + self.layout.first[:-1]

    def build(self, runs: Runs) -> None:
        """Rows that are not hot on the card: of the others only the place, which nobody reads."""
        layout, beat = self.layout, 4 * runs.words
        rows = runs.ensure_buffer("rows", int(layout.first[-1]) * beat << layout.row_beats_log2)
        numbers = np.unique(self.numbers(self.indices))
        for number in numbers[~self.logger.holds(numbers)].tolist():
            runs.card.write(rows, np.ones(layout.row_words, np.float32), 4 * number * layout.row_words)
        image = self.logger.image.swapaxes(0, 1).reshape(-1)
        payload = np.zeros((len(self.indices), PAYLOAD), np.uint32)
        runs.write("inputs", np.concatenate([image, layout.samples(self.indices, payload).reshape(-1)]))
        for name in ("mailbox", "gradients", "hot"):
            runs.ensure_buffer(name, 0)


@dataclass(frozen=True)
class Dealt:
    """A run: the core's counters, and the share of the time in which the GPU worked (bench.hotline_overlap.middle)."""

    counters: dict[str, int]
    busy: float

    def beats(self, layout: Layout) -> int:
        """That the payload's port moved in the direction that has more."""
        told = self.counters
        return (told["samples"] * layout.sample_beats + (told["dma_wr"] << layout.row_beats_log2)
                + told["batches_popular"] + told["batches_gathered"])


def dealt(runs: Runs, made: Criteo, count: int, batch: int, times: Times, *, load: bool = False) -> Dealt:
    """The first samples, dealt in mini-batches. load: the logger, which a card keeps from run to run, beforehand."""
    layout, how = made.layout, Train(batch, SLOTS, -1.0)
    layout.check(how)
    mailbox, returned = layout.mailbox_beats(how), layout.gradients_beats(how)
    for name, beats in (("mailbox", mailbox), ("gradients", returned)):
        runs.ensure_buffer(name, beats * 4 * runs.words)
    gpu = Gpu(layout, gradients, times)
    runs.clear_result()
    inputs = layout.image_beats + len(made.indices) * layout.sample_beats
    train = layout.train(how, count, layout.image_beats, 0)
    program = np.concatenate([layout.registers(), train if load else train[1:]])
    if runs.run(program, {"mailbox_beats": mailbox, "gradients_beats": returned, "hot_beats": 0,
                          "rows_beats": int(layout.first[-1]) << layout.row_beats_log2, "inputs_beats": inputs,
                          "timeout": 0}, lambda: gpu.serve(runs, how)):
        raise runs.error()
    return Dealt(dict(runs.last), middle(gpu)[0])


def opened(place: str, memory: str) -> Card:
    return open_card("sim", core="hotline", preset=PRESET, device=DEVICE, memory=memory, host=PLACES[place][0])


@bench("hotline_train")
def rows() -> Iterator[Row]:
    """Samples per second that TRAIN takes of Criteo Kaggle's shape, and the share of a GPU's time that it fills."""
    config, device = load(PRESET).cores["hotline"], Device.load(DEVICE)
    made = Criteo(config, 2 * BATCHES)
    batch, tables = made.batch, len(made.layout.tables)
    yield figure("hotline.train.popular", f"Criteo Kaggle's shape, {made.layout.hot_numbers:,} hot rows: popular "
                 "samples", 100 * made.logger.holds(made.numbers(made.indices)).all(axis=1).mean(), "%")
    a_sample = round(GPU_S / GPU_BATCH * device.kernel_mhz * 1e6)
    for place, (_, where) in PLACES.items():
        for memory in MEMORIES:
            with opened(place, memory) as card:
                runs = Runs(card, "hotline", config.words)
                made.build(runs)
                id = f"{place}.{memory}"
                what = f"{tables} indices, {PAYLOAD} words of payload, rows of {DIM} in {where}, {memory} memory"
                # The first run is for the logger's image.
                _, once, twice = (dealt(runs, made, count * batch, batch, Times(0, 0), load=count == 1)
                                  for count in (1, BATCHES, 2 * BATCHES))
                cycles = twice.counters["cycles"] - once.counters["cycles"]
                yield figure(f"hotline.train.rate.{id}", f"{what}: samples taken, RTL",
                             round(BATCHES * batch / cycles * device.kernel_mhz, 1), "M samples/s")
                beats = twice.beats(made.layout) - once.beats(made.layout)
                yield at_least(f"hotline.train.port.{id}", f"{what}: the same over what the payload's port allows",
                               round(beats / cycles, 3), "", 0.95)
                if place == "host" and memory == "ideal":
                    bridge, reads = device.bridge, twice.counters["dma_rd"] - once.counters["dma_rd"]
                    yield figure("hotline.train.bridge", f"{bridge.reads} reads in flight at {bridge.read_us:g} us "
                                 "each: the most that they allow of what the payload's port allows",
                                 round(beats * bridge.reads / (bridge.read_us * device.kernel_mhz * reads), 3), "")
                if memory == "ddr4":
                    slow = dealt(runs, made, SHORT * SHORT_BATCHES, SHORT, Times(0, a_sample))
                    yield at_least(f"hotline.train.gpu.{id}", f"{what}, mini-batches of {SHORT}, {SLOTS} in flight, a "
                                   f"GPU of {1000 * GPU_S:g} ms per {GPU_BATCH:,} samples: of its time it works, in "
                                   "the middle half",
                                   round(100 * slow.busy, 2), "%", 99)
