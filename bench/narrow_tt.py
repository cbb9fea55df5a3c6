"""Tensor-train cores in half the bits: room on chip, what they lose, and what room and link bring to MELS."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.compress import EPOCHS, logs, trained
from bench.data import needed
from bench.emb import PRESET
from bench.framework import Row, at_least, bench, figure
from bench.plan import CARDS, GAP, SECONDS, STATISTICS, TABLES
from fpga.card.costs import measure
from gen.compress.post_hoc import decompose, tt_rows
from gen.compress.search import capacity
from gen.data import shapes
from gen.data.profiling.mels import mels
from gen.data.reorder import by_similarity
from gen.model.recommender import ROW_FORMATS, TT_FORMATS
from gen.planner.assume import model_of
from gen.planner.planning import make
from gen.rtl import config
from golden.fp.narrow import FORMATS, narrow, widen
from golden.tt.block16 import rounded_cores

#: Whose TT unit takes nothing but block16.
HALF = "smartssd_half"
ROOM = 3.7e6
POOLING, SAMPLE = 20, 2000
DIM, BATCH = 256, 1024
NARROW: dict[str, Any] = {"row_format": "float16", "results": "float16", "tt_format": "block16"}


@bench("narrow_tt", needs="torch")
def room() -> Iterator[Row]:
    """Bytes of FP32 values that the TT unit's core memories stand for; rows of trained cores; a table that was
    trained dense, decomposed in two numberings of its rows."""
    for form, preset, times in zip(TT_FORMATS, (PRESET, HALF), (1, 2), strict=True):
        yield at_least(f"narrow.tt.bytes.{form}", f"room for tensor-train cores of {form} in {preset}, as float32",
                       times * capacity(config.load(preset).cores["tt"]), "bytes", times * ROOM)
    samples = dict(logs())["movielens"]
    (_, dense), *_ = trained(samples, "dense", 0, EPOCHS["movielens"]).bags[1].arrays("items").items()
    for rank in (4, 16):
        for name, rows in (("log", dense), ("similar", dense[by_similarity(dense).argsort(kind="stable")])):
            found = decompose(rows, shapes.row_modes(len(rows)), shapes.column_modes(rows.shape[1]), rank)
            yield figure(f"narrow.tt.decomposed.r{rank}.{name}",
                         "MovieLens-100K, items of a DLRM trained dense, numbered "
                         f"{'as in the log' if name == 'log' else 'by similarity'}, decomposed at rank {rank}: "
                         "relative error", round(found.error, 3), "")
        items = trained(samples, "all", 0, EPOCHS["movielens"], rank=rank).bags[1]
        cores = tuple(np.ascontiguousarray(core, np.float32) for core in items.tt_cores())
        forms = {"block16": rounded_cores(cores)}
        forms |= {form: tuple(widen(narrow(core, form), form) for core in cores) for form in FORMATS}
        for (form, kept), (name, pooling) in product(forms.items(), (("row", 1), ("bag", POOLING))):
            yield figure(f"narrow.tt.error.r{rank}.{form}.{name}",
                         f"MovieLens-100K, items as a tensor train of rank {rank}, cores as {form}: root mean square "
                         f"error of sums of {pooling} over their size",
                         float(f"{100 * _error(cores, kept, pooling):.3g}"), "%")


def _error(cores: Sequence[NDArray[np.float32]], kept: Sequence[NDArray[np.float32]], pooling: int) -> float:
    """Of sums of random rows."""
    rows = np.random.default_rng(1).integers(0, np.prod([core.shape[1] for core in cores]), SAMPLE * pooling)
    right, found = (tt_rows(each, rows).reshape(SAMPLE, pooling, -1).sum(1) for each in (cores, kept))
    return float(np.sqrt(((found - right) ** 2).sum() / (right**2).sum()))


@bench("narrow_mels")
def placed() -> Iterator[Row]:
    """Meta's tables on 8 cards with free shares, all in FP32 and, on cards of HALF, all in half the bits, link and
    drive included.
    """
    statistics = {year: needed(STATISTICS.format(year)) for year in TABLES}
    costs = [measure(PRESET, preset, dims={DIM}, row_formats=[form])
             for preset, form in ((PRESET, ROW_FORMATS[0]), (HALF, NARROW["row_format"]))]
    for year, path in statistics.items():
        profile = mels(path)
        plain = model_of(profile, DIM, BATCH)[0]
        half = replace(plain, tables={name: replace(spec, **NARROW) for name, spec in plain.tables.items()})
        for id, what, unseen in ((f"narrow.mels{year}", f"MELS {year}, {CARDS} cards, D = {DIM}", True),
                                 (f"narrow.mels{year}.hot", f"MELS {year}, no access to rows that it lacks", False)):
            found = [make(model, profile, cost, cards=CARDS, hot_share=1.0, tt_share=1.0, tt_gain=0.0, unseen=unseen,
                          gap=GAP, seconds=SECONDS, explain=False)
                     for model, cost in zip((plain, half), costs, strict=True)]
            for name, plan in zip(("fp32", "half"), found, strict=True):
                yield figure(f"{id}.{name}", f"{what}, {name}: a batch of {BATCH}", round(1e3 * plan.seconds, 3), "ms")
            yield at_least(id, f"{what}: samples per second, half against FP32",
                           round(found[0].seconds / found[1].seconds, 2), "times", 2.0)
