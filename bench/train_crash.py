"""Training through a cache of rows that is killed at random and resumed from its checkpoints, against one that is not.

A life takes STEPS steps more than the one before at most, and saves after each; up to SECONDS after it has begun it is
killed, wherever it is: while it loads, trains or saves, or waits for the kill. Row-wise Adagrad, dropout and Adam.
Needs the extra torch.
"""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import numpy as np

from bench.framework import Row, at_most, bench

KILLS, STEPS, SECONDS = 100, 6, 0.04


def train(place: Path, steps: int, waits: bool, begun: Connection) -> None:
    """A life: from the checkpoint at `place`, if there is one, to so many steps."""
    import torch

    from hotrail.training import CachedEmbeddingBag, ahead, load, save

    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(5)
    given = [((torch.rand(60, generator=random) ** 3 * 300).long(), torch.arange(0, 60, 3)) for _ in range(steps)]
    bag = CachedEmbeddingBag(300, 8, cache_rows=80, rate=0.05, rule="rowwise_adagrad")
    top = torch.nn.Linear(8, 1)
    parts = {"bag": bag, "top": top, "optimizer": torch.optim.Adam(top.parameters())}
    begun.send(True)
    first = load(place, **parts)["step"] if place.exists() else 0
    for step, (indices, offsets) in enumerate(ahead(given[first:], {bag: lambda one: one[0]}), start=first + 1):
        loss = (top(torch.nn.functional.dropout(bag(indices, offsets))) - torch.rand(20, 1)).square().mean()
        parts["optimizer"].zero_grad()
        loss.backward()
        parts["optimizer"].step()
        save(place, **parts, step=step)
    while waits:
        sleep(1)


def different(folder: Path, kills: int) -> int:
    """Words of the table, the network and torch's random numbers that differ after so many kills, and none.

    Raises      RuntimeError: a life that ended before its kill, or in an error
    """
    import torch

    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "hotrail.training", "torch._dynamo"])       # Adam loads the last one
    random = np.random.default_rng(8)

    def life(name: str, lives: int, killed: bool) -> None:
        begun, begins = processes.Pipe(duplex=False)
        process = processes.Process(target=train, args=(folder / name, STEPS * lives, killed, begins))
        process.start()
        begins.close()
        if killed:
            begun.recv()
            sleep(random.random() * SECONDS)
            process.kill()
        process.join()
        if process.exitcode != (-9 if killed else 0):
            raise RuntimeError(f"life {lives} of {name} ended with {process.exitcode}")

    for number in range(kills):
        life("killed.pt", number + 1, True)
    for name in ("killed.pt", "whole.pt"):
        life(name, kills + 1, False)
    ours, its = (torch.load(folder / name, weights_only=True) for name in ("killed.pt", "whole.pt"))
    assert ours["step"] == its["step"] == STEPS * (kills + 1)
    pairs = [(ours["random"], its["random"]), *((ours[part][name], its[part][name]) for part in ("bag", "top")
                                               for name in its[part])]
    return sum(int((one != other).sum()) for one, other in pairs)


@bench("train_cache_crash", needs="torch")
def rows() -> Iterator[Row]:
    """Words that differ from an uninterrupted training after 100 kills at random."""
    with TemporaryDirectory() as folder:
        yield at_most("train.cache.crash", f"words that differ after {KILLS} kills at random and "
                      f"{STEPS * (KILLS + 1)} steps", different(Path(folder), KILLS), "words", 0)
