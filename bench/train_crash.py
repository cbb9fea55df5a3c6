"""Training through a cache of rows that is killed at random and resumed from its checkpoints, against one that is not.

A life takes STEPS steps more than the one before at most, and saves after each; up to SECONDS after it has begun it is
killed, wherever it is: while it loads, trains or saves, or waits for the kill. Row-wise Adagrad, dropout and Adam.
Needs the extra torch.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import numpy as np

from bench.framework import LeftOut, Row, at_most, bench

KILLS, STEPS, SECONDS = 100, 6, 0.04
TRAINING = """
import sys, time, torch
from pathlib import Path
from hotrail.training import CachedEmbeddingBag, ahead, load, save
torch.manual_seed(0); torch.set_num_threads(1)
place, steps, waits = Path(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3
random = torch.Generator().manual_seed(5)
given = [((torch.rand(60, generator=random) ** 3 * 300).long(), torch.arange(0, 60, 3)) for _ in range(steps)]
bag = CachedEmbeddingBag(300, 8, cache_rows=80, rate=0.05, rule="rowwise_adagrad")
top = torch.nn.Linear(8, 1); optimizer = torch.optim.Adam(top.parameters())
print("begun", flush=True)
first = load(place, bag=bag, top=top, optimizer=optimizer)["step"] if place.exists() else 0
for step, (indices, offsets) in enumerate(ahead(given[first:], {bag: lambda one: one[0]}), start=first + 1):
    loss = (top(torch.nn.functional.dropout(bag(indices, offsets))) - torch.rand(20, 1)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    save(place, bag=bag, top=top, optimizer=optimizer, step=step)
while waits:
    time.sleep(1)
"""


def different(folder: Path, kills: int) -> int:
    """Words of the table, the network and torch's random numbers that differ after so many kills, and none.

    Raises      RuntimeError: a life that ended by itself before its kill, or in an error
    """
    import torch

    def life(name: str, lives: int, *waits: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", TRAINING, str(folder / name), str(STEPS * lives), *waits],
                                stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])

    random = np.random.default_rng(8)
    for number in range(kills):
        with life("killed.pt", number + 1, "waits") as process:
            assert process.stdout is not None
            process.stdout.readline()
            sleep(random.random() * SECONDS)
            process.kill()
        if process.returncode != -9:
            raise RuntimeError(f"life {number} ended with {process.returncode} before it was killed")
    for name in ("killed.pt", "whole.pt"):
        with life(name, kills + 1) as process:
            pass
        if process.returncode:
            raise RuntimeError(f"{name}: training ended with {process.returncode}")
    ours, its = (torch.load(folder / name, weights_only=True) for name in ("killed.pt", "whole.pt"))
    assert ours["step"] == its["step"] == STEPS * (kills + 1)
    pairs = [(ours["random"], its["random"]), *((ours[part][name], its[part][name]) for part in ("bag", "top")
                                               for name in its[part])]
    return sum(int((one != other).sum()) for one, other in pairs)


@bench("train_cache_crash")
def rows() -> Iterator[Row]:
    """Words that differ from an uninterrupted training after 100 kills at random."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise LeftOut("the extra torch") from None
    with TemporaryDirectory() as folder:
        yield at_most("train.cache.crash", f"words that differ after {KILLS} kills at random and "
                      f"{STEPS * (KILLS + 1)} steps", different(Path(folder), KILLS), "words", 0)
