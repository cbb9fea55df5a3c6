"""Training by 2 and 4 processes over gloo: bits against one process, bytes that mini-batches exchange.

The log's first bags of one table, 64 a mini-batch of all ranks; the rows that may be popular are a twentieth of the
table. One process trains the same parts, and sums their gradients in the order of ranks. Needs the extra torch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import logs
from bench.framework import ROOT, Row, at_most, bench, figure

RANKS, SIZE, SAMPLES, LEARNED, SHARE = (2, 4), 64, 6400, 1280, 0.05
DIM, RATE = 16, 0.05


def trained(place: Path, rank: int, ranks: int, indices: NDArray, offsets: NDArray, rows: int, *, cache_rows: int,
            rule: str = "sgd", size: int = SIZE, learn: int = LEARNED,
            before: Callable[[int], None] = lambda step: None) -> dict[str, int]:
    """The part of one process. before: called with each step's number. Twice over the log: with rows fetched ahead, and
    without, where what a popular mini-batch exchanges is seen alone.

    Returns different: words that differ from one process'; by kind, popular and other: mini-batches without rows
    fetched ahead; and bytes that this rank has sent in them, exchanged and reduced
    """
    import torch
    import torch.distributed as dist

    from hotrail.training import DispatchLoader, RankedEmbeddingBag
    from hotrail.training.bag import step

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=ranks)
    slopes = torch.randn(len(offsets) - 1, DIM, generator=torch.Generator().manual_seed(3))
    samples = [(torch.from_numpy(indices[offsets[k]:offsets[k + 1]].astype(np.int64)), slopes[k])
               for k in range(len(slopes))]

    def collated(part: list[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lengths = [0, *(len(items) for items, _ in part)]
        return (torch.cat([torch.zeros(0, dtype=torch.long), *(items for items, _ in part)]),
                torch.tensor(lengths).cumsum(0), torch.stack([torch.zeros(DIM), *(slope for _, slope in part)])[1:])

    bag = RankedEmbeddingBag(rows, DIM, cache_rows=cache_rows, rate=RATE, rule=rule, std=0.1, include_last_offset=True)
    plain = torch.nn.EmbeddingBag.from_pretrained(bag.table(), freeze=False, mode="sum", include_last_offset=True)
    state = torch.zeros(rows) if rule != "sgd" else None
    count, sent = 0, {}
    for fetch in (3, 0):
        loader = DispatchLoader(samples, {bag: itemgetter(0)}, batch_size=size, learn=learn, rank=rank, ranks=ranks,
                                fetch=fetch, collate_fn=collated)
        sent = {f"{kind}_{what}": 0 for kind in ("popular", "other") for what in ("exchanged", "reduced")}
        for part in loader:
            before(count)
            count += 1
            kind, exchanged, reduced = "popular" if loader.is_popular else "other", bag.exchanged, bag.reduced
            (bag(*part[:2]) * part[2]).sum().backward()
            sent[f"{kind}_exchanged"] += bag.exchanged - exchanged
            sent[f"{kind}_reduced"] += bag.reduced - reduced
            parts: list[Any] = [None] * ranks
            dist.all_gather_object(parts, part)
            total = torch.zeros(rows, DIM)
            for its in parts:
                plain.weight.grad = None
                (plain(*its[:2]) * its[2]).sum().backward()
                total += plain.weight.grad
            with torch.no_grad():
                step(plain.weight, state, torch.arange(rows), total, RATE)
    saved = bag.state_dict()
    again = RankedEmbeddingBag(rows, DIM, cache_rows=cache_rows, rate=RATE, rule=rule, include_last_offset=True)
    again.load_state_dict(saved)
    different = sum(int((each.table() != plain.weight).sum()) for each in (bag, again))
    dist.barrier()
    return {"different": different, "popular": loader.popular_batches, "other": loader.other_batches, **sent}


def main(place: Path, rank: int, ranks: int) -> None:
    given = np.load(place / "log.npz")
    print(json.dumps(trained(place, rank, ranks, given["indices"], given["offsets"], int(given["rows"]),
                             cache_rows=int(given["rows"] * SHARE))))


@bench("train_ranks", needs="torch")
def ranks() -> Iterator[Row]:
    """2 and 4 gloo processes against one, bit for bit, and what they exchange."""
    for name, log in logs():
        table = max(log.indices, key=lambda each: log.rows[each])
        indices, offsets = log.bags(table)
        offsets = offsets[:SAMPLES + 1]
        for count in RANKS:
            with TemporaryDirectory() as folder:
                place = Path(folder)
                np.savez(place / "log.npz", indices=indices[:offsets[-1]], offsets=offsets, rows=log.rows[table])
                running = [subprocess.Popen([sys.executable, "-m", "bench.train_ranks", folder, str(rank), str(count)],
                                            stdout=subprocess.PIPE, cwd=ROOT, text=True,
                                            env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(count)]
                found = [json.loads(process.communicate()[0]) for process in running]
            what, id = f"{name}, {table}, {count} processes", f"train.ranks.{count}.{name}"
            yield at_most(id, f"{what}: words that differ from one process that sums in the order of ranks",
                          sum(each["different"] for each in found), "words", 0)
            yield at_most(f"{id}.popular", f"{what}: bytes that popular mini-batches exchange but for the all-reduce",
                          sum(each["popular_exchanged"] for each in found), "bytes", 0)
            first = found[0]
            yield figure(f"{id}.share", f"{what}: popular mini-batches",
                         100 * first["popular"] / (first["popular"] + first["other"]), "%")
            for kind in ("popular", "other"):
                if first[kind]:
                    yield figure(f"{id}.{kind}.bytes", f"{what}: bytes that a rank sends for {kind} mini-batches, each",
                                 round(sum(each[f"{kind}_exchanged"] + each[f"{kind}_reduced"] for each in found)
                                       / count / first[kind]), "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
