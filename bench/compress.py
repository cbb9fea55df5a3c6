"""What tensor trains cost in accuracy, beside the same model with dense rows, and what a training step costs.

Source: SCRec Fig. 12 (all tables TT, or hot rows dense); EL-Rec §III, Fig. 14 and 18 (the step)
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import held
from bench.framework import Row, at_least, at_most, bench, figure, one_thread
from fpga.api.dlrm import Dlrm
from gen.base.tools import data_path
from gen.data.logs.trace import picked
from gen.data.profile import Heat
from gen.model.scores import auc
from golden.tt.block16 import rounded_cores

SEEDS = 3
DIM, RANK, BATCH, HELD_OUT = 16, 16, 512, 0.1
# Epochs are those after which the dense model begins to lose on held-out samples.
RATE, NET_RATE = 0.05, 0.1
EPOCHS = {"anime": 2, "movielens": 3}
SMALL = 500         # tables of fewer rows stay dense
AUC_LOST = 0.0005


@dataclass(frozen=True)
class Form:
    """hot, warm: shares of a table's accesses, to rows that are dense in DRAM and to the next ones, in a tensor train;
    the coldest are dense on the SSD. core_rate: of Adam. later: rows are dense for the first half of the training,
    then warm ones are decomposed and go on as tensor trains."""

    told: str
    hot: float
    warm: float
    core_rate: float = 0.0
    later: bool = False


FORMS = {
    "dense": Form("dense rows", 1.0, 0.0),
    "all": Form(f"all rows in tensor trains of rank {RANK}", 0.0, 1.0, 0.03),
    "hybrid": Form("hottest rows with 80 % of the accesses dense, the next 10 % in TTs, the rest dense on the SSD",
                   0.8, 0.1, 0.001, True),
    "half": Form("hottest rows with 50 % of the accesses dense, the next 30 % in TTs, the rest dense on the SSD",
                 0.5, 0.3, 0.001, True),
}


@dataclass(frozen=True)
class Samples:
    """rows: of each table. bags: per table its indices, and where those of a sample begin and end."""

    rows: tuple[int, ...]
    bags: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
    label: NDArray[np.float32]

    def of(self, table: int, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices and offsets of some samples' bags."""
        indices, edges = picked(*self.bags[table], samples)
        return indices, edges[:-1]


def logs() -> Iterator[tuple[str, Samples]]:
    """(name, samples): anime ratings of 8 and more, MovieLens-100K ratings of 4 and more."""
    path = data_path("anime_420k.npz")
    for name, trace, tables, label in (
            ("anime", path and held(path), ("user", "anime", "type", "genre"), lambda t: t.values["label"]),
            ("movielens", held("movielens"), ("user_id", "item_id"), lambda t: t.values["rating"] >= 4)):
        if trace:
            yield name, Samples(tuple(trace.rows[table] for table in tables), tuple(map(trace.bags, tables)),
                                np.asarray(label(trace)).astype(np.float32))


def split(counts: NDArray[np.int64], form: Form) -> tuple[int, int]:
    """How many of a table's hottest rows are dense, and how many of the next are in a tensor train."""
    rows = len(counts)
    if form.hot == 1 or rows < SMALL:
        return rows, 0
    first, last = (int(count) for count in Heat.of(counts).icdf([form.hot, form.hot + form.warm]))
    return first, (rows if form.warm == 1 else last) - first


@dataclass(frozen=True)
class Trained:
    """A DLRM after its training. bags: its tables (gen.compress.torch_bag.TieredBag), as the next call of scores takes
    them; saved: words that the rows of their tensor trains would take dense; truth: labels of the held-out samples;
    scores: their probabilities of label 1."""

    bags: Sequence[Any]
    saved: int
    truth: NDArray[np.float32]
    scores: Callable[[], NDArray[np.float32]]


def trained(samples: Samples, form: str | Form, seed: int, epochs: int, tt_format: str = "float32", *,
            rank: int = RANK, judged: tuple[float, float] = (1 - HELD_OUT, 1.0)) -> Trained:
    """On the samples before those that are judged, a part of this seed's order; lookups have their cores in
    tt_format."""
    import torch

    from gen.compress.torch_bag import TieredBag, tiers

    one_thread()
    shuffled = np.random.default_rng(seed).permutation(len(samples.label))
    first, last = (int(len(shuffled) * part) for part in judged)
    learned, held = shuffled[:first], shuffled[first:last]
    chosen = FORMS[form] if isinstance(form, str) else form
    bags: list[TieredBag] = []
    later: list[Callable[[TieredBag], TieredBag]] = []
    past, saved = [], 0
    for table, rows in enumerate(samples.rows):
        counts = np.bincount(samples.of(table, learned)[0], minlength=rows)
        dense_rows, tt_rows = split(counts, chosen)
        tier = tiers(counts, dram_rows=dense_rows, tt_rows=tt_rows)
        in_tt = np.flatnonzero(tier == 1)
        saved += len(in_tt) * DIM
        options: dict[str, Any] = {"rank": rank, "rate": RATE, "rule": "adagrad", "core_rate": chosen.core_rate,
                                   "core_rule": "adam", "tt_format": tt_format, "std": 0.0, "seed": 100 * seed + table}
        order = in_tt[np.argsort(-counts[in_tt], kind="stable")]
        if chosen.later:
            bags.append(TieredBag(np.zeros(rows), DIM, **options))
            later.append(partial(TieredBag.retiered, tier=tier, order=order, **options))
        else:
            bags.append(TieredBag(tier, DIM, order=order, **options))
        if table < 2:
            indices, offsets = samples.bags[table]
            past.append(np.log1p(counts[indices[offsets[:-1]]]))
    dense = np.stack(past, axis=1).astype(np.float32)
    dense = (dense - dense[learned].mean(0)) / dense[learned].std(0)
    payload = np.concatenate([dense, samples.label[:, None]], axis=1).view(np.uint32)
    model = Dlrm(dense.shape[1], len(bags), DIM, rate=NET_RATE, bottom=(32,), top=(64, 32), seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for weight, bias in model.bottom + model.top:       # torch's own first weights
            linear = torch.nn.Linear(*weight.shape)
            weight[:], bias[:] = linear.weight.detach().T, linear.bias.detach()

    def vectors(part: NDArray[np.int64]) -> Any:
        return torch.stack([bag(*map(torch.from_numpy, samples.of(table, part)))
                            for table, bag in enumerate(bags)], dim=1)

    order = np.concatenate([np.random.default_rng((seed, epoch)).permutation(learned) for epoch in range(epochs)])
    for begin in range(0, len(order), BATCH):
        part = order[begin:begin + BATCH]
        if later and begin >= len(order) // 2:
            bags, later = [change(bag) for change, bag in zip(later, bags, strict=True)], []
        # All rates fall to nothing in the second half, so that the last batches do not decide.
        scale = min(1.0, 2 * (1 - begin / len(order)))
        model.rate = np.float32(NET_RATE * scale)
        for bag in bags:
            bag.scale = scale
        pooled = vectors(part)
        pooled.backward(torch.from_numpy(model(pooled.detach().numpy(), payload[part])))

    def scores() -> NDArray[np.float32]:
        with torch.no_grad():
            return np.concatenate([model.predict(vectors(part).numpy(), payload[part])
                                   for part in np.array_split(held, 8)])

    return Trained(bags, saved, samples.label[held], scores)


def _measured(run: Trained) -> tuple[float, float, int, int, float]:
    """(accuracy, AUC) on held-out samples, words of the tables, what the tensor trains' rows would take dense, and the
    AUC after their cores are rounded to block16."""
    score = run.scores()
    for bag in run.bags:
        bag.load_cores(rounded_cores(bag.tt_cores()))
    return (float(np.mean((score > 0.5) == (run.truth > 0))), auc(score, run.truth), sum(bag.words for bag in run.bags),
            run.saved, auc(run.scores(), run.truth))


@bench("compress", needs="torch")
def accuracy() -> Iterator[Row]:
    """Accuracy of a DLRM whose rows are dense, all in TTs, or hot dense and warm in TTs; time of a step."""
    yield from steps()
    for name, samples in logs():
        found = {form: np.array([_measured(trained(samples, form, seed, EPOCHS[name])) for seed in range(SEEDS)])
                 for form in FORMS}
        base = found["dense"]
        for form, runs in found.items():
            right, area, words, saved, rounded = runs.mean(axis=0)
            spread = (100 * (runs[:, 0] - base[:, 0])).std(ddof=1)
            what = f"{name} log, {FORMS[form].told}, mean of {SEEDS} seeds"
            id = f"compress.{name}.{form}"
            yield figure(f"{id}.accuracy", f"{what}: held-out samples that are right", round(100 * right, 2), "%")
            yield figure(f"{id}.auc", f"{what}: AUC", round(area, 4), "AUC")
            if form == "dense":
                continue
            tt = words - (base[:, 2].mean() - saved)
            yield at_most(f"{id}.block16", f"{what}: AUC that cores of block16 lose", round(area - rounded, 7), "AUC",
                          AUC_LOST)
            yield figure(f"{id}.words", f"{what}: rows of {saved:,.0f} words as tensor trains of", int(tt), "words")
            points = round(100 * (right - base[:, 0].mean()), 2)
            told = f"{what}: accuracy beside dense rows (standard deviation of the seeds' differences {spread:.2f})"
            yield (at_least(f"{id}.points", told, points, "points", -0.1) if form == "hybrid"
                   else figure(f"{id}.points", told, points, "points"))


# A table as large as a log's large ones, at EL-Rec's rank, and batches of bags as skewed as its are.
STEP_MODES, STEP_COLUMNS, STEP_RANK, STEP_BATCH, STEP_POOLING, STEPS = (100, 100, 100), (4, 4, 4), 16, 2048, 4, 6


def plain_table(seed: int) -> Callable[[Any, Any], None]:
    """A step of the plain formula: slices of every lookup gathered and multiplied, autograd, torch's SGD."""
    import torch

    random = torch.Generator().manual_seed(seed)
    ranks = (1, STEP_RANK, STEP_RANK, 1)
    cores = [(0.1 * torch.randn(STEP_MODES[k], ranks[k] * STEP_COLUMNS[k] * ranks[k + 1],
                                generator=random)).requires_grad_() for k in range(3)]
    optimiser = torch.optim.SGD(cores, lr=0.01)

    def step(indices: Any, slope: Any) -> None:
        flat = indices.reshape(-1)
        parts = (flat // (STEP_MODES[1] * STEP_MODES[2]), flat // STEP_MODES[2] % STEP_MODES[1], flat % STEP_MODES[2])
        first, second, third = (core[part] for core, part in zip(cores, parts, strict=True))
        count = len(flat)
        chain = torch.bmm(first.reshape(count, -1, STEP_RANK), second.reshape(count, STEP_RANK, -1))
        rows = torch.bmm(chain.reshape(count, -1, STEP_RANK), third.reshape(count, STEP_RANK, -1))
        optimiser.zero_grad()
        (rows.reshape(*indices.shape, -1).sum(1) * slope).sum().backward()
        optimiser.step()

    return step


def steps() -> Iterator[Row]:
    """Milliseconds of a step, lookup, gradients and update: the plain formula, this project's, an EmbeddingBag."""
    import torch

    from gen.compress.torch_bag import TieredBag

    one_thread()
    rows, dim = int(np.prod(STEP_MODES)), int(np.prod(STEP_COLUMNS))
    rng = np.random.default_rng(0)
    cdf = np.cumsum(np.arange(1, rows + 1) ** -1.05)
    batches = [torch.from_numpy(np.searchsorted(cdf / cdf[-1], rng.random((STEP_BATCH, STEP_POOLING))))
               for _ in range(STEPS)]
    slope = torch.from_numpy(rng.standard_normal((STEP_BATCH, dim)).astype(np.float32))
    bag = TieredBag(np.ones(rows), dim, rank=STEP_RANK, modes=STEP_MODES, columns=STEP_COLUMNS, rate=0.01)
    dense = torch.nn.EmbeddingBag(rows, dim, mode="sum", sparse=True)
    optimiser = torch.optim.SGD(dense.parameters(), lr=0.01)

    def fused(indices: Any, slope: Any) -> None:
        (bag(indices) * slope).sum().backward()

    def table(indices: Any, slope: Any) -> None:
        optimiser.zero_grad()
        (dense(indices) * slope).sum().backward()
        optimiser.step()

    took = {}
    for name, step in (("plain", plain_table(0)), ("reuse", fused), ("dense", table)):
        times = []
        for indices in batches:
            begin = time.thread_time()
            step(indices, slope)
            times.append(time.thread_time() - begin)
        took[name] = 1e3 * min(times[1:])
    what = (f"a training step of {rows:,} x {dim} words at rank {STEP_RANK}, {STEP_BATCH:,} bags of {STEP_POOLING}, "
            f"Zipf 1.05, one core")
    for name, told in (("plain", "each lookup through the chain, torch's autograd and SGD"),
                       ("reuse", "unique rows, shared first products, slopes summed in advance, fused update"),
                       ("dense", "torch's EmbeddingBag with sparse gradients")):
        yield figure(f"compress.step.{name}", f"{what}: {told}", round(took[name], 2), "ms")
    yield at_least("compress.step.ratio", f"{what}: plain for reuse", round(took["plain"] / took["reuse"], 2), "times",
                   1.7)
