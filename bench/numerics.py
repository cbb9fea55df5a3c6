"""What the cores' arithmetic costs a trained DLRM: AUC and predictions beside float32 and float64."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.data import held
from bench.framework import Row, at_most, bench, figure
from fpga.api.dlrm import payload_of
from fpga.api.training import Training
from gen.compiler.mlp import Compiler
from gen.compiler.oracle import MlpOracle
from gen.data.shapes import column_modes, row_modes
from gen.model.network import Layer, Network
from gen.model.scores import auc
from gen.rtl.config import load
from golden import tt

SEEDS, DIM, RANK, EPOCHS, HELD_OUT = 5, 64, 16, 4, 0.1
DENSE = 0.1             # of a table's rows, the most accessed ones; the others are in a tensor train
BATCH = 512
LOST = 0.0001           # of the AUC, that the arithmetic may cost


def _trained(seed: int) -> tuple[Training, NDArray[np.int64], NDArray[np.uint32], dict[str, NDArray[np.int64]]]:
    """A DLRM, half of its training with dense rows; the held-out samples, their payload and rows by table."""
    trace = held("movielens")
    payload, _ = payload_of(trace, None)
    order = np.random.default_rng(seed).permutation(trace.samples)
    apart, learned = np.split(order, [round(HELD_OUT * len(order))])
    training = Training(trace, payload, DIM, seed=seed)
    for epoch in range(EPOCHS):
        if epoch == EPOCHS // 2:
            for name, table in training.tables.items():
                counts = np.bincount(trace.table(name)[learned], minlength=trace.rows[name])
                warm = np.argsort(-counts, kind="stable")[round(DENSE * len(counts)):]
                table.decompose(warm, row_modes(len(warm), 3), column_modes(DIM), RANK)
        scales = [min(1.0, 2 * (1 - at / EPOCHS)) for at in (epoch, epoch + 1)]
        training.epoch(np.random.default_rng((seed, epoch)).permutation(learned), (scales[0], scales[1]))
    return training, apart, payload[apart], {name: trace.table(name)[apart] for name in training.tables}


def _float64(training: Training, payload: NDArray[np.uint32], rows: dict[str, NDArray[np.int64]]) -> NDArray:
    """Logits."""
    vectors = []
    for name, table in training.tables.items():
        values = table.values().astype(np.float64)
        warm = table.tt_row >= 0
        values[warm] = tt.dense([core.astype(np.float64) for core in table.cores])[table.tt_row[warm]]
        vectors.append(values[rows[name]])
    model = training.model
    y = np.ascontiguousarray(payload[:, :model.dense]).view(np.float32).astype(np.float64)
    for weight, bias in model.bottom:
        y = np.maximum(y @ weight.astype(np.float64) + bias, 0)
    features = np.stack([y, *vectors], axis=1)
    y = np.concatenate([y, (features @ features.swapaxes(1, 2))[:, model.row, model.column]], axis=1)
    for number, (weight, bias) in enumerate(model.top, 1):
        y = y @ weight.astype(np.float64) + bias
        y = np.maximum(y, 0) if number < len(model.top) else y
    return y[:, 0]


def _cores(training: Training, payload: NDArray[np.uint32], rows: dict[str, NDArray[np.int64]]) -> NDArray:
    """Logits as the TT unit and the MLP core of `smartssd` compute them."""
    config, vectors = load("smartssd").cores, []
    for name, table in training.tables.items():
        values = table.values().astype(np.float32)
        warm = table.tt_row >= 0
        values[warm] = tt.rows(table.cores, table.tt_row[warm], grouped=config["tt"].grouped)
        vectors.append(values[rows[name]])
    model = training.model
    relu = [Layer(weight, bias, "relu") for weight, bias in (*model.bottom, *model.top[:-1])]
    network = Network(relu[:len(model.bottom)], "dot", len(vectors), DIM,
                      (*relu[len(model.bottom):], Layer(*model.top[-1])))
    oracle = MlpOracle(Compiler(network, config["mlp"], batch=BATCH))
    dense, features = np.ascontiguousarray(payload[:, :model.dense]).view(np.float32), np.stack(vectors, axis=1)
    parts = np.array_split(np.arange(len(dense)), -(-len(dense) // BATCH))
    programs = {count: oracle.compiler.compile(count) for count in {len(part) for part in parts}}
    return np.concatenate([oracle.run(programs[len(part)], dense[part], features[part])[:, 0] for part in parts])


@bench("numerics")
def areas() -> Iterator[Row]:
    """DLRMs trained in float32 on MovieLens-100K, most rows in tensor trains, in the cores' arithmetic."""
    scored: list[float] = []
    lost: list[float] = []
    beside_64: list[float] = []
    relative: dict[str, list[float]] = {"core": [], "float32": []}
    for seed in range(SEEDS):
        training, apart, payload, rows = _trained(seed)
        label = payload[:, -1].view(np.float32)
        exact, core = (1 / (1 + np.exp(-logits.astype(np.float64))) for logits in (
            _float64(training, payload, rows), _cores(training, payload, rows)))
        plain = training.scores(apart).astype(np.float64)
        scored.append(auc(plain, label))
        lost.append(scored[-1] - auc(core, label))
        beside_64.append(auc(exact, label) - auc(core, label))
        for name, found in (("core", core), ("float32", plain)):
            relative[name].append(float(np.abs(found / exact - 1).max()))
    what = f"DLRM on MovieLens-100K, D = {DIM}, nine tenths of the rows in tensor trains of rank {RANK}, {SEEDS} seeds"
    yield figure("numerics.auc.float32", f"{what}: AUC in float32", round(float(np.mean(scored)), 4), "AUC")
    for id, lower, other in (("difference", lost, "float32"), ("difference64", beside_64, "float64")):
        yield at_most(f"numerics.auc.{id}", f"{what}: AUC in {other} less the cores', the most of all seeds",
                      float(f"{np.abs(lower).max():.2g}"), "AUC", LOST)
    for name, told in (("core", "the cores'"), ("float32", "NumPy's float32")):
        yield figure(f"numerics.relative.{name}", f"{what}: largest relative error of a prediction, {told}",
                     float(f"{max(relative[name]):.2g}"), "")
