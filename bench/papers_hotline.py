"""Hotline table 7.6: what crosses PCIe between host and GPU while a model is trained, beside DLRM with CPU embeddings.

DLRM sends the pooled vectors of every sample to the GPU and gets their gradients back. Hotline sends the cold rows of
gathered mini-batches, each once in a mini-batch, and gets their gradients back; popular samples need none. Criteo
Kaggle's shape, RM2 (table 7.1): 26 vectors of 16 values, 45.8 M samples, ten epochs, at the rate of PCIe Gen3 x16.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure
from bench.hotline import CRITEO_SAMPLES, LEARNED, PRESET_SIZES, Criteo, Logger

DIM, EPOCHS, PCIE_S = 16, 10, 15.75e9       # bytes per second, table 7.4
MINI_BATCH = 1024                           # of one GPU; with 4,096 of four GPUs hardly fewer rows are sent


def cold_rows(numbers: NDArray[np.int64], hot: NDArray[np.bool_], batch: int) -> float:
    """Cold rows that are sent for a sample, on average of all, the popular ones too.

    numbers: (samples, tables), rows; hot: of the same shape; batch: samples of a gathered mini-batch, of which whole
    ones are counted
    """
    gathered = np.flatnonzero(~hot.all(axis=1))
    whole = len(gathered) // batch
    if not whole:
        return 0.0
    sent = [len(np.unique(numbers[at][~hot[at]])) for at in gathered[:whole * batch].reshape(whole, batch)]
    return float(np.mean(sent)) / batch * len(gathered) / len(numbers)


def minutes(rows: float) -> float:
    """Of ten epochs, where so many rows or vectors a sample go to the GPU and their gradients come back."""
    return rows * 2 * 4 * DIM * CRITEO_SAMPLES * EPOCHS / PCIE_S / 60


@bench("papers_hotline")
def table_7_6() -> Iterator[Row]:
    """Hotline table 7.6: minutes of PCIe in ten epochs, DLRM with CPU embeddings and Hotline."""
    criteo = Criteo(needed(CALIBRATION))
    loggers = {size: Logger(size, criteo.total) for size in PRESET_SIZES}
    for ranks in criteo.log.ranks(round(CRITEO_SAMPLES * LEARNED)):
        for logger in loggers.values():
            logger.learn(criteo.numbers(ranks).ravel())
    numbers = criteo.numbers(criteo.judged)
    tables, id = numbers.shape[1], "papers.hotline.table76"
    what = f"{criteo.WHAT}, {EPOCHS} epochs, PCIe at {PCIE_S / 1e9} GB/s"
    yield figure(f"{id}.dlrm", f"{what}: all pooled vectors and their gradients", round(minutes(tables), 2), "minutes")
    for size, logger in loggers.items():
        hot, preset = logger.holds(numbers), PRESET_SIZES[size]
        said = f"{what}, {size:,} hot rows ({preset}): "
        sent, gathered = cold_rows(numbers, hot, MINI_BATCH), 1 - hot.all(axis=1).mean()
        yield figure(f"{id}.{preset}", f"{said}cold rows and their gradients, mini-batches of {MINI_BATCH:,}",
                     round(minutes(sent), 3), "minutes")
        yield figure(f"{id}.{preset}.times", f"{said}DLRM's over it", round(tables / sent, 1), "times")
        yield figure(f"{id}.{preset}.whole.times", f"{said}DLRM's over that of all rows of gathered samples",
                     round(1 / gathered, 2), "times")
