"""What narrow rows and tensor-train cores cost a DLRM that was trained in float32, on real logs."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bench.compress import EPOCHS, Trained, logs, trained
from bench.framework import Row, at_most, bench, figure
from gen.model.row_formats import rounded
from gen.model.scores import auc
from golden.fp.narrow import narrow, widen
from golden.tt.block16 import rounded_cores

SEEDS = 5
HALF, BYTE = 0.0005, 0.001      # of the AUC, that may be lost
#: Form of training (bench.compress), then formats of rows and of cores by the end of an id, with what they may lose.
ROWS = {"fp16": ("float16", "", HALF), "bf16": ("bfloat16", "", HALF), "int8": ("int8", "", BYTE),
        "int4": ("int4", "", 0)}
CORES = {"block16": ("", "block16", HALF), "fp16": ("", "float16", HALF), "half": ("float16", "block16", HALF),
         "byte": ("int8", "block16", BYTE)}
FORMS: Mapping[str, tuple[str, str, Mapping[str, tuple[str, str, float]]]] = {
    "dense": ("", "dense rows", ROWS),
    "half": (".tt", "50 % of the accesses dense, the next 30 % in tensor trains of rank 16", CORES)}


@bench("narrow_auc", needs="torch")
def areas() -> Iterator[Row]:
    """AUC on held-out samples of two real logs, rows and cores rounded after the training, and cores within it."""
    for log, samples in logs():
        for form, (end, told, formats) in FORMS.items():
            found: dict[str, list[float]] = {name: [] for name in ("fp32", *formats)}
            in_loop: list[float] = []
            for seed in range(SEEDS):
                run = trained(samples, form, seed, EPOCHS[log])
                plain = [(bag.dense.detach().clone(), bag.tt_cores()) for bag in run.bags]
                found["fp32"].append(auc(run.scores(), run.truth))
                for name, (rows, cores, _) in formats.items():
                    _store(run, rows, cores)
                    found[name].append(auc(run.scores(), run.truth))
                    for bag, (dense, own) in zip(run.bags, plain, strict=True):
                        bag.dense.data.copy_(dense)
                        bag.load_cores(own)
                if form == "half":
                    learned = trained(samples, form, seed, EPOCHS[log], "block16")
                    in_loop.append(auc(learned.scores(), learned.truth))
            what = f"DLRM on the {log} log, {told}, {SEEDS} seeds"
            yield figure(f"narrow.auc.{log}{end}.fp32", f"{what}: AUC in float32", round(np.mean(found["fp32"]), 4),
                         "AUC")
            for name, (rows, cores, most) in formats.items():
                kept = " and ".join(filter(None, (rows and f"rows in {rows}", cores and f"cores in {cores}")))
                yield from _lost(f"narrow.auc.{log}{end}.{name}", f"{what}, {kept}", found["fp32"], found[name], most)
            if in_loop:
                yield from _lost(f"narrow.auc.{log}{end}.loop", f"{what}, trained with cores in block16",
                                 found["fp32"], in_loop, HALF)


def _lost(id: str, what: str, full: Sequence[float], narrow: Sequence[float], most: float) -> Iterator[Row]:
    """AUC of each seed in float32 and narrow; most: 0 for none."""
    lost = np.subtract(full, narrow)
    text, value = f"{what}: AUC that is lost or won, the most of all seeds", float(f"{np.abs(lost).max():.2g}")
    yield at_most(id, text, value, "AUC", most) if most else figure(id, text, value, "AUC")
    yield figure(f"{id}.mean", f"{what}: AUC that is lost on average", float(f"{lost.mean():.2g}"), "AUC")


def _store(run: Trained, rows: str, cores: str) -> None:
    """Rounds rows and cores to these formats; empty: as they are."""
    import torch

    for bag in run.bags:
        if rows and len(bag.dense):
            bag.dense.data.copy_(torch.from_numpy(rounded(bag.dense.detach().numpy(), rows)))
        if cores:
            own = bag.tt_cores()
            bag.load_cores(rounded_cores(own) if cores == "block16" else [widen(narrow(each, cores), cores)
                                                                         for each in own])
