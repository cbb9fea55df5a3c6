"""Small cores, tables of all three memories and batches for them, that several tests share."""

import numpy as np

from gen.compiler.tables import DRAM, SSD, TT, Table
from gen.model import row_formats
from golden.fp.narrow import narrow, widen
from hw.emb.config import EmbConfig
from hw.tt.config import TTConfig

_TT = {"lanes": 1, "grid_log2": 1, "lut_products": 0, "x_lines": 256, "y_lines": 512, "t_lines": 64,
       "t_middle_lines": 64, "tables": 8, "index_bits": 20, "mode_bits": 8, "rank_max": 16,
       "dim_max": 64, "reuse_entries": 32, "in_flight": 16, "output_beats": 256}
_EMB = {"row_beats_max": 16, "stripe_beats": 8, "banks": 8, "window_beats": 256, "window_sets": 32,
        "delivery_rows": 32, "rows_in_flight": 16, "reads_in_flight": 8, "writes_in_flight": 8, "dram_queue": 32,
        "ssd_queue": 32, "tt_queue": 32, "bag_queue": 32, "partial_beats": 64, "lut_products": 0, "program_beats": 16,
        "input_beats": 16, "output_beats": 64}


def config(**changes) -> EmbConfig:
    """A core with beats of four words."""
    return EmbConfig(tt=TTConfig(**_TT), **{**_EMB, **changes})


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


__all__ = ["DRAM", "SSD", "TT", "as_stored", "bags", "config", "cores", "mixed", "only"]
