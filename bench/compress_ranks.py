"""SCRec Fig. 12 over the rank of the tensor trains and their share of the accesses: accuracy beside dense rows.

Logs: MovieLens, and samples of Criteo Kaggle's shape whose labels have a known structure: every row adds a normal
number to the logit, so that no row says anything of another. How cores are trained is chosen on samples before those
that are judged; the dense model has the same samples, epochs and rates of its networks.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from bench.compress import DIM, EPOCHS, FORMS, HELD_OUT, SEEDS, Form, Samples, logs, trained
from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure
from gen.data.logs.criteo import ClickLog

RANKS = (4, 8, 16, 32)
ROWS = 1_000, 50_000        # of the tables that are drawn
SAMPLES, EFFECT = 1 << 16, 0.8        # standard deviation of what a row adds
#: Of the accesses. Fig. 11's without the link: seven of eight read TT rows, a hundredth the SSD (hot_thr, SCRec IV.A).
SHARES = {"all": FORMS["all"],
          "hybrid": FORMS["hybrid"],
          "fig11": Form("hottest rows with 12 % of the accesses dense, the next 87 % in TTs, the rest dense on the SSD",
                        0.12, 0.87)}
WAYS = ((0.03, False), (0.001, True), (0.01, True))     # core_rate, later
CHOSEN_ON = (1 - 2 * HELD_OUT, 1 - HELD_OUT)


def drawn(log: ClickLog, seed: int = 1) -> tuple[Samples, np.ndarray]:
    """Samples of the log's tables of so many rows, and their logits."""
    random = np.random.default_rng(seed)
    ranks = next(log.ranks(SAMPLES))
    tables = [table for table, rows in enumerate(log.rows) if ROWS[0] <= rows <= ROWS[1]]
    effects = [random.normal(0, EFFECT, log.rows[table]) for table in tables]
    logit = np.sum([effect[ranks[:, table]] for effect, table in zip(effects, tables, strict=True)], axis=0)
    ends = np.arange(len(ranks) + 1)
    label = random.random(len(ranks)) < 1 / (1 + np.exp(-logit))
    return Samples(tuple(log.rows[table] for table in tables),
                   tuple((ranks[:, table].astype(np.int64), ends) for table in tables), label.astype(np.float32)), logit


def right(samples: Samples, form: Form, seed: int, epochs: int, rank: int,
          judged: tuple[float, float] = (1 - HELD_OUT, 1.0)) -> tuple[float, float]:
    """Percent of judged samples that are right; how many times smaller the tensor trains are than their rows."""
    run = trained(samples, form, seed, epochs, rank=rank, judged=judged)
    cores = sum(core.size for bag in run.bags for core in bag.tt_cores())
    return 100 * float(np.mean((run.scores() > 0.5) == (run.truth > 0))), run.saved / cores if cores else 1.0


@bench("compress_ranks", needs="torch")
def ranks() -> Iterator[Row]:
    """SCRec Fig. 12: accuracy of tensor trains of rank 4 to 32 beside dense rows, at three shares of the accesses."""
    found = {name: samples for name, samples in logs() if name == "movielens"}
    found["criteo"], logit = drawn(ClickLog(needed(CALIBRATION)))
    yield figure("compress.ranks.criteo.best", "samples of Criteo Kaggle's shape: right where the true logit decides",
                 round(100 * float(np.mean((logit > 0) == (found["criteo"].label > 0))), 2), "%")
    for name, samples in found.items():
        epochs = EPOCHS.get(name, 2)
        dense = np.array([right(samples, FORMS["dense"], seed, epochs, 4)[0] for seed in range(SEEDS)])
        yield figure(f"compress.ranks.{name}.dense", f"{name}, dense rows of {DIM} values, mean of {SEEDS} seeds: "
                     "held-out samples that are right", round(float(dense.mean()), 2), "%")
        for (share, form), rank in product(SHARES.items(), RANKS):
            ways = [replace(form, core_rate=rate, later=later) for rate, later in WAYS]
            best = max(ways, key=lambda way: right(samples, way, 0, epochs, rank, CHOSEN_ON)[0])
            runs = np.array([right(samples, best, seed, epochs, rank) for seed in range(SEEDS)])
            points = runs[:, 0] - dense
            said = "all rows in TTs" if share == "all" else form.told
            id, what = f"compress.ranks.{name}.{share}.r{rank}", f"{name}, {said}, rank {rank}, {SEEDS} seeds"
            yield figure(f"{id}.points", f"{what}: accuracy beside dense rows", round(float(points.mean()), 2),
                         "points")
            yield figure(f"{id}.spread", f"{what}: standard deviation of the seeds' differences",
                         round(float(points.std(ddof=1)), 2), "points")
            yield figure(f"{id}.smaller", f"{what}: a row's share of the tensor trains, times smaller",
                         round(float(runs[:, 1].mean()), 2), "times")
