"""Cold rows in float16 on their way from the Hotline core to the GPU: AUC of a DLRM on a real log, and the link."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.data import held, needed
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.api.dlrm import Dlrm
from fpga.api.hotline import Hotline, Position, Table
from gen.data.logs import Trace
from gen.model.scores import auc

SEEDS, LEARNED, TRAINED, HELD_OUT = 3, 1_000, 20_000, 20_000
PLACES = ("user", "anime", "type")
DIM, BATCH, RATE, ROW_RATE, SPREAD = 16, 32, 0.1, 10.0, 0.1      # SPREAD: of rows before training
BOUND = 2e-3        # AUC, as of the order in which the core deals a log (bench.hotline_auc)


class Samples(NamedTuple):
    """Indices (n, tables), payload (n, tables + 1): how often each was seen before, and the label; the label alone."""

    indices: NDArray[np.int64]
    payload: NDArray[np.uint32]
    label: NDArray[np.float32]


def drawn(trace: Trace, seed: int) -> Samples:
    """As many samples of the log as are trained on and held out."""
    chosen = np.random.default_rng(seed).permutation(len(trace.values["label"]))[:TRAINED + HELD_OUT]
    label = np.asarray(trace.values["label"])[chosen].astype(np.float32)
    indices = np.stack([np.asarray(trace.table(name)[chosen], np.int64) for name in PLACES], axis=1)
    seen = np.stack([np.bincount(column[:TRAINED], minlength=trace.rows[name])[column]
                     for name, column in zip(PLACES, indices.T, strict=True)], axis=1)
    dense = np.log1p(seen)
    dense = (dense - dense[:TRAINED].mean(0)) / dense[:TRAINED].std(0)
    return Samples(indices, np.hstack([dense, label[:, None]]).astype(np.float32).view(np.uint32), label)


def trained(trace: Trace, samples: Samples, rows: str, seed: int) -> tuple[float, int]:
    """AUC on the samples held out, and bytes to the GPU."""
    random = np.random.default_rng(seed)
    tables = [Table(name, SPREAD * random.standard_normal((trace.rows[name], DIM), np.float32)) for name in PLACES]
    model = Dlrm(len(PLACES), len(PLACES), DIM, rate=RATE, seed=seed, of=BATCH)
    with Hotline(tables, [Position(name) for name in PLACES], payload=len(PLACES) + 1, preset="tiny") as hotline:
        hotline.learn(samples.indices[:LEARNED])
        hotline.train(model, samples.indices[:TRAINED], samples.payload[:TRAINED], rate=-ROW_RATE, batch=BATCH,
                      rows=rows)
        passed = hotline.link.out_bytes
        vectors = np.stack([hotline.values(name)[samples.indices[TRAINED:, k]] for k, name in enumerate(PLACES)],
                           axis=1)
    return auc(model.predict(vectors, samples.payload[TRAINED:]), samples.label[TRAINED:]), passed


@bench("narrow_wire")
def narrow_wire() -> Iterator[Row]:
    """The anime log on the simulated card, cold rows in float32 and in float16; rows in memory are float32."""
    trace = held(needed("anime_420k.npz"))
    found: dict[str, list[tuple[float, int]]] = {"float32": [], "float16": []}
    for seed in range(SEEDS):
        samples = drawn(trace, seed)
        for rows, each in found.items():
            each.append(trained(trace, samples, rows, seed))
    (full, wide), (half, narrow) = (zip(*each, strict=True) for each in found.values())
    what = f"anime log, {TRAINED:,} samples, D = {DIM}, {SEEDS} seeds"
    yield at_least("narrow.wire.auc.fp32", f"{what}: AUC with cold rows in float32 on the link",
                   round(float(np.mean(full)), 4), "AUC", 0.7)
    yield figure("narrow.wire.auc.fp16", f"{what}: AUC with cold rows in float16 on the link",
                 round(float(np.mean(half)), 4), "AUC")
    yield at_most("narrow.wire.auc", f"{what}: between the means", round(abs(float(np.mean(full) - np.mean(half))), 4),
                  "AUC", BOUND)
    yield figure("narrow.wire.auc.most", f"{what}: the most that any seed loses or wins by float16, the order in which "
                 "the core deals the log included", round(float(np.abs(np.array(full) - half).max()), 4), "AUC")
    yield figure("narrow.wire.bytes", f"{what}: bytes to the GPU against float32",
                 round(100 * sum(narrow) / sum(wide), 1), "%")
