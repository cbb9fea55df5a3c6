"""Hotline cores of several shapes, and logs for them, that several tests share."""

from dataclasses import dataclass, replace

import numpy as np

from gen.compiler.hotline import Layout, Position, Table, Train
from gen.rtl.config import load
from golden.hotline.train import Hotline

TINY = load("tiny").cores["hotline"]
SIZES = ("words", "positions", "banks", "sets", "frame_beats", "row_slots", "embedding_beats", "policy",
         "insert_log2", "gpus")


def core(config=TINY, **values):
    """The oracle of a core."""
    return Hotline(**{name: getattr(config, name) for name in SIZES} | values)


def zipf(random, rows, count, exponent=1.1):
    """Rows, few of them often: which ones is drawn first."""
    share = np.arange(1, rows + 1) ** -float(exponent)
    return random.permutation(rows)[random.choice(rows, count, p=share / share.sum())]


@dataclass(frozen=True)
class Log:
    """Tables, positions, and samples of them. head: those by which rows are numbered, None: table by table."""

    layout: Layout
    indices: np.ndarray
    payload: np.ndarray
    head: np.ndarray | None = None

    @property
    def samples(self):
        return self.layout.samples(self.indices, self.payload)


def log(seed, count=200, *, rows=(600, 900, 40), dim=11, payload=3, config=TINY, none=0.1, pinned=(2,),
        bag=2, join="add", exponent=1.1, head=0):
    """A log with a position for each table, and a bag of the second one; few samples name a row twice. head: samples
    by which rows are numbered, 0: table by table."""
    random = np.random.default_rng(seed)
    tables = [Table(f"t{number}", random.standard_normal((size, dim), np.float32), number in pinned)
              for number, size in enumerate(rows)]
    positions = [Position(table.name) for table in tables] + [
        Position("t1", "begin" if not number else join) for number in range(bag)]
    columns = [zipf(random, rows[table], count, exponent) for table in (*range(len(rows)), *[1] * bag)]
    # The bag's rows are drawn as those of its table's own position: they meet.
    columns[len(rows):] = [random.permutation(columns[1]) for _ in range(bag)]
    indices = np.stack(columns, axis=1)
    indices[random.random(indices.shape) < none] = -1
    known = indices[:head] if head else None
    return Log(Layout(config, tables, positions, payload, known), indices,
               random.standard_normal((count, payload)).astype(np.float32), known)


def wild(random, config=TINY):
    """A log of any shape that the core takes, and how it is dispatched."""
    wide = int(random.integers(1, 5))
    pinned = tuple(np.flatnonzero(random.random(wide) < 0.2).tolist()) if wide > 2 else ()
    dim = int(random.integers(1, 2 * config.words + 1))
    made = log(int(random.integers(1 << 30)), int(random.integers(1, 120)),
               rows=tuple(int(random.integers(1, 1500)) for _ in range(max(2, wide))), dim=dim,
               payload=int(random.integers(0, 9)), none=float(random.choice([0, 0.1, 0.6])), config=config,
               pinned=pinned, bag=0 if random.integers(2) else int(random.integers(1, 4)),
               join="begin" if 1 in pinned else str(random.choice(["begin", "add"])),
               exponent=float(random.choice([0.5, 1.1, 1.6])))
    most = config.frame_beats // made.layout.sample_beats
    how = Train(int(random.integers(1, most + 1)), int(random.integers(1, 6)), -0.25, bool(random.integers(2)),
                bool(random.integers(2)))
    return made, how


def model(vectors, payload):
    """Slopes that depend on all that there is."""
    pull = payload.view(np.float32).sum(axis=1, dtype=np.float32)[:, None, None] if payload.shape[1] else np.float32(1)
    return (vectors * np.float32(0.125) + pull * np.float32(0.01)).astype(np.float32)


def with_config(**values):
    return replace(TINY, **values)
