"""Whether the order in which the Hotline core dispatches a log harms learning: AUC, hot and cold apart or not."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.data import held, needed
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.api.dlrm import Dlrm
from gen.compiler.hotline import Layout, Position, Table, indices_of
from gen.model.scores import auc
from golden.hotline import bank, randomizer
from golden.hotline.order import dispatch, merge

SEEDS = 5
PLACES = {"user": 1, "anime": 1, "type": 1, "genre": 13}
DIM, BATCH, RATE, ROW_RATE = 8, 128, 0.1, 10.0      # slopes are divided by BATCH, also of a shorter mini-batch
LEARNED, HELD_OUT = 0.05, 0.1
BANKS, SETS, AGE_LOG2 = 16, 64, 4       # a logger of 4,096 rows, of 11,920
LATE = 4        # mini-batches that overtake a gathered one while its rows come: the working set of the thesis


def order_of(layout: Layout, indices: NDArray, learned: int, batch: int) -> tuple[list[NDArray], float]:
    """The samples of every mini-batch in the core's order: as frames fill, gathered ones LATE behind; and the share of
    popular samples."""
    bank_bits, set_bits = (BANKS - 1).bit_length(), (SETS - 1).bit_length()
    image, counts = np.zeros((BANKS, SETS, 4), np.uint32), np.zeros(BANKS, np.uint32)
    rows = layout.first[layout.table_of] + indices
    looked = indices >= 0
    word = np.zeros(rows.shape, np.int64)
    word[looked] = randomizer.permute(rows[looked], bank_bits + set_bits + bank.ID_BITS)
    places = (word & BANKS - 1, word >> bank_bits & SETS - 1, word >> bank_bits + set_bits)
    for learn, count in ((True, learned), (False, len(indices))):
        hit = np.zeros(looked.shape, bool)
        here = looked[:count]
        banks, sets, ids = (part[:count][here] for part in places)
        hit[:count][here] = bank.run(image, counts, banks, sets, ids, AGE_LOG2, learn)[0]
    cold = looked & ~hit
    popular, gathered = dispatch(cold, rows, batch, slots=1 << 20, room=indices.shape[1])
    waiting = (iter(popular), iter(gathered))
    kinds = np.array(merge(popular, gathered))
    kinds = kinds[np.argsort(np.arange(len(kinds)) + (LATE + 0.5) * kinds, kind="stable")]
    order = [next(waiting[kind]).samples for kind in kinds]
    return order, float((~cold.any(axis=1)).mean())


def pooled(rows: Sequence[NDArray], bags: Sequence[NDArray], part: NDArray | slice) -> NDArray[np.float32]:
    """Vectors (samples, tables, DIM) of some samples; no index is the row of zeros behind a table's last."""
    return np.stack([table[bag[part]].sum(1) for table, bag in zip(rows, bags, strict=True)], axis=1)


def train(model: Dlrm, rows: Sequence[NDArray], bags: Sequence[NDArray], payload: NDArray,
          order: Sequence[NDArray]) -> None:
    """Trains model and rows, these in place, on mini-batches in order, each an array of samples' numbers."""
    for part in order:
        slopes = model(pooled(rows, bags, part), payload[part])
        for number, (table, bag) in enumerate(zip(rows, bags, strict=True)):
            np.subtract.at(table, bag[part], ROW_RATE * slopes[:, number, None])
            table[-1] = 0


@bench("hotline_auc")
def rows() -> Iterator[Row]:
    """AUC of a DLRM trained on a real log in its own order and in that in which the Hotline core dispatches it."""
    path = needed("anime_420k.npz")
    trace = held(path)
    indices, positions = indices_of(trace, PLACES)
    sizes = [trace.rows[name] for name in PLACES]
    tables = [Table(name, np.zeros((count, 1), np.float32)) for name, count in zip(PLACES, sizes, strict=True)]

    class Wide:     # what a Layout asks of a configuration
        words, positions, domain_bits, sample_beats_max, banks = 16, 64, 24, 8, BANKS
        row_slots = embedding_beats = 1 << 13

    layout = Layout(Wide, tables, [Position(item.table, item.join) for item in positions])
    every = np.asarray(trace.values["label"]).astype(np.float32)
    ends = np.cumsum([0, *PLACES.values()])
    found: dict[str, list[float]] = {"original": [], "hotrail": []}
    shares = []
    for seed in range(SEEDS):
        chosen = np.random.default_rng(seed).permutation(len(indices))
        index, label = indices[chosen], every[chosen]
        cut = int(len(index) * (1 - HELD_OUT))
        bags = [index[:, begin:end] for begin, end in zip(ends[:-1], ends[1:], strict=True)]
        past = [np.bincount(bag[:cut, 0], minlength=size)[bag[:, 0]]
                for bag, size in zip(bags[:3], sizes[:3], strict=True)]
        dense = np.log1p(np.stack([(bags[3] >= 0).sum(1), *past], axis=1)).astype(np.float32)
        dense = (dense - dense[:cut].mean(0)) / dense[:cut].std(0)
        own = [np.arange(at, min(at + BATCH, cut)) for at in range(0, cut, BATCH)]
        order, share = order_of(layout, index[:cut], int(LEARNED * cut), BATCH)
        shares.append(share)
        payload = np.concatenate([dense, label[:, None]], axis=1).view(np.uint32)
        first = [np.random.default_rng((seed, size)).normal(0, 0.1, (size + 1, DIM)) for size in sizes]
        for table in first:
            table[-1] = 0
        for name, parts in (("original", own), ("hotrail", order)):
            model = Dlrm(dense.shape[1], len(bags), DIM, rate=RATE, seed=seed, of=BATCH)
            draw = np.random.default_rng(seed)
            for weight, bias in model.bottom + model.top:       # small, for the rows' rate is large
                most = len(weight) ** -0.5
                weight[:], bias[:] = draw.uniform(-most, most, weight.shape), draw.uniform(-most, most, bias.shape)
            tables_of = [table.astype(np.float32) for table in first]
            train(model, tables_of, bags, payload, parts)
            score = model.predict(pooled(tables_of, bags, slice(cut, None)), payload[cut:])
            found[name].append(auc(score, label[cut:]))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    spread = float(np.std(found["original"], ddof=1))
    yield figure("hotline.auc.popular", f"anime log, logger of {BANKS * SETS * 4:,} of {sum(sizes):,} rows, learned "
                 f"from {LEARNED:.0%}: popular samples", round(100 * float(np.mean(shares)), 1), "%")
    yield at_least("hotline.auc.original", f"DLRM on the log in its own order, mean of {SEEDS} seeds (standard "
                   f"deviation {spread:.4f})", round(means["original"], 4), "AUC", 0.7)
    yield figure("hotline.auc.hotrail", "the same in the order in which the core dispatches it",
                 round(means["hotrail"], 4), "AUC")
    yield at_most("hotline.auc.difference", "between the means", round(abs(means["hotrail"] - means["original"]), 4),
                  "AUC", 0.002)
