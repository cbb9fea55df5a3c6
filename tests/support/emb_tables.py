"""Small cores, tables of all three memories and batches for them, that several tests share."""

from dataclasses import replace

import numpy as np

from gen.compiler.tables import DRAM, SSD, TT, Table
from gen.model import row_formats
from gen.rtl.config import load
from golden.fp.narrow import narrow, widen
from hw.emb.config import EmbConfig


def config(**changes) -> EmbConfig:
    """The core of the preset `tiny`, with beats of four words: most models that tests build are of it."""
    return replace(load("tiny").cores["emb"], **changes)


def cores(random, modes, columns, rank):
    ranks = (1, *[rank] * (len(modes) - 1), 1)
    return [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


def mixed(random, name="items", rows=300, columns=(2, 2, 4), modes=(5, 5, 4), rank=4) -> Table:
    """A table of which a third lies in each memory, hot rows by a shuffled rank."""
    dim = int(np.prod(columns))
    device = random.permutation(np.arange(rows) % 3)
    train = cores(random, modes, columns, rank)
    return Table.place(name, random.standard_normal((rows, dim)).astype(np.float32), device, cores=train,
                       rank=random.permutation(rows))


def only(random, name, device, rows, dim) -> Table:
    """A table in one memory, without a tensor train."""
    assert device in (DRAM, SSD)
    return Table.place(name, random.standard_normal((rows, dim)).astype(np.float32), device)


def bags(random, rows, count, longest, zipf=0.0):
    """(indices, offsets) of `count` bags of 0 to `longest` indices."""
    lengths = random.integers(0, longest + 1, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    share = 1 / np.arange(1, rows + 1) ** zipf
    return random.choice(rows, offsets[-1], p=share / share.sum()), offsets


def as_stored(values, form):
    """The float32 values of rows in a format, by its definition."""
    if form in ("int8", "int4"):
        return row_formats.values(row_formats.quantise(values, form), form)
    return values if form == "float32" else widen(narrow(values, form), form)


def dense(table) -> np.ndarray:
    """All rows of a table as they are stored, float64 (rows, dim); the tensor train's multiplied out."""
    rows = np.zeros((table.rows, table.dim))
    device, number = table.placement >> 30, table.placement & 0x3FFFFFFF
    for place, values in ((DRAM, table.dram), (SSD, table.ssd)):
        rows[device == place] = as_stored(values, table.row_format)[number[device == place]]
    if table.cores:
        full = table.cores[0][0].astype(np.float64)
        for core in table.cores[1:]:
            full = np.einsum("iur,rjvs->ijuvs", full, core.astype(np.float64))
            full = full.reshape(full.shape[0] * full.shape[1], -1, full.shape[-1])
        rows[device == TT] = full.reshape(-1, table.tt_dim)[number[device == TT], :table.dim]
    return rows


__all__ = ["DRAM", "SSD", "TT", "as_stored", "bags", "config", "cores", "dense", "mixed", "only"]
