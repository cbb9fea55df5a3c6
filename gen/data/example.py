"""The small files that the pages of docs/ read: one log in several formats, a model and its parameters.

All is drawn from one seed. A sample has a user and an item, drawn by Zipf's law; users and items have tastes, and the
label says whether they agree.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.base.staging import staged

SEED, SAMPLES, DIM = 3, 2000, 16
ROWS = {"user": 300, "item": 80}
#: Of Criteo's format, as many samples.
LINES = 200

Log = dict[str, NDArray[np.int64]]


def _npz(path: Path, log: Log) -> None:
    arrays: dict[str, Any] = {f"idx_{name}": log[name] for name in ROWS}
    np.savez(path, **arrays, label=log["label"])


def _csv(path: Path, log: Log) -> None:
    rows = zip(*(values.tolist() for values in log.values()))
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in (tuple(log), *rows)), "utf-8")


def _criteo(log: Log, first: int = 0) -> bytes:
    """Some of the samples: a label, 13 counts and 26 hashes a line, of which the first two are the user's and the
    item's."""
    lines = []
    for sample in range(first, first + LINES):
        user, item, label = (int(log[name][sample]) for name in ("user", "item", "label"))
        counts = [str(sample * step % 97) for step in range(1, 14)]
        hashes = [f"{hashed:08x}" for hashed in (user, item, *(sample * step % 50 for step in range(1, 25)))]
        lines.append("\t".join([str(label), *counts, *hashes]) + "\n")
    return "".join(lines).encode()


def _zipped(first: int) -> Callable[[Path, Log], object]:
    return lambda path, log: path.write_bytes(gzip.compress(_criteo(log, first), mtime=0))


def _model(path: Path, log: Log) -> None:
    text = f"dim = {DIM}\nbatch = 256\n" + "".join(f"[tables.{name}]\nrows = {rows}\n" for name, rows in ROWS.items())
    path.write_text(text, "utf-8")


def _taste(name: str) -> NDArray[np.float32]:
    """(rows, DIM), of a table."""
    rows = np.random.default_rng([SEED, ROWS[name]]).standard_normal((ROWS[name], DIM))
    return np.asarray(rows / np.sqrt(DIM), np.float32)


def _rows(named: str) -> Callable[[Path, Log], None]:
    arrays: dict[str, Any] = {named.format(name): _taste(name) for name in ROWS}
    return lambda path, log: np.savez(path, **arrays)


#: What each file holds, and what writes it.
FILES: dict[str, tuple[str, Callable[[Path, Log], object]]] = {
    "clicks.csv": (f"{SAMPLES:,} samples: a user, an item, a label", _csv),
    "clicks.npz": ("the same as arrays", _npz),
    "clicks/part.npz": ("the same in a folder", _npz),
    "train.txt": (f"{LINES} of them in Criteo's format", lambda path, log: path.write_bytes(_criteo(log))),
    "train.txt.gz": ("the same, compressed", _zipped(0)),
    "day_0.gz": (f"{LINES} others", _zipped(LINES)),
    "day_1.gz": (f"{LINES} others", _zipped(2 * LINES)),
    "model.toml": ("the model's two tables", _model),
    "trained.npz": (f"their rows, of {DIM} values, under names of a training's", _rows("{}_embedding")),
    "weights.npz": ("the same under the names that `hotrail compile` asks for", _rows("table_{}")),
}


def write(folder: Path) -> list[Path]:
    """Writes the files into a folder; what they are.

    Raises      ValueError: a file is there already; nothing is written then
    """
    for name in FILES:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} exists already; name another folder")
    log, paths = _log(), []
    for name, (_, writes) in FILES.items():
        with staged(folder / name) as half:
            writes(half, log)
        paths.append(folder / name)
    return paths


def _log() -> Log:
    random = np.random.default_rng(SEED)
    user = random.zipf(1.4, SAMPLES) % ROWS["user"]
    item = random.zipf(1.3, SAMPLES) % ROWS["item"]
    agree = (_taste("user").astype(np.float64)[user] * _taste("item").astype(np.float64)[item]).sum(1) * DIM**0.5
    return {"user": user, "item": item, "label": (agree + 0.5 * random.standard_normal(SAMPLES) > 0).astype(np.int64)}
