"""How many indices of Criteo Kaggle's samples, without payload, LEARN takes per cycle, on the simulated card."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.data import CALIBRATION, needed
from bench.framework import Row, at_least, bench, figure
from fpga.card import open as open_card
from fpga.card.runs import Runs
from gen.compiler.emb import encode
from gen.compiler.hotline_numbers import numbered
from gen.data.logs.criteo import ClickLog
from gen.rtl.config import load
from golden.hotline.randomizer import permute
from hw.isa import HOTLINE

PRESET, DEVICE = "hotline_fpga", "smartssd"
SAMPLES = 16_000
HEAD = 1000         # samples by which rows are numbered
SMALL = 2000        # rows of a table whose rows are pinned: all of them together are 0.01 % of the rows
PCIE = 11.25        # indices that 15.75 GB/s bring in a cycle of 350 MHz (Hotline, table 7.4)


def _program(config, rows: NDArray[np.int64], first: NDArray[np.int64], pinned: NDArray[np.bool_],
             count: int) -> NDArray[np.uint32]:
    """Registers of tables of `rows` rows with numbers from `first` on, and `count` samples to learn from."""
    words = [encode("S_WR", {"position": at, "pinned": int(pinned[at]), "first_low": int(first[at]),
                             "table_rows": int(rows[at])}, HOTLINE) for at in range(len(rows))]
    return np.stack([*words, encode("CLEAR", {}, HOTLINE), encode("LEARN", {
        "count": count, "sample_beats": -(-len(rows) // config.words), "indices": len(rows)}, HOTLINE)])


@bench("hotline_rate")
def rates() -> Iterator[Row]:
    """Indices that LEARN takes per cycle, of Criteo Kaggle's shape, all looked up or small tables pinned."""
    config, log = load(PRESET).cores["hotline"], ClickLog(needed(CALIBRATION))
    rows = np.array(log.rows, np.int64)
    ranks = next(iter(log.ranks(2 * SAMPLES)))
    indices, head = (np.stack([log.row(table, part[:, table]) for table in range(len(rows))], axis=1)
                     for part in (ranks, next(iter(log.ranks(HEAD, 2 * SAMPLES)))))
    samples = np.zeros((len(indices), -(-len(rows) // config.words) * config.words), np.uint32)
    samples[:, :len(rows)] = indices
    none, small = np.zeros(len(rows), bool), rows <= SMALL
    told = {"banks": config.banks, "domain_bits": config.domain_bits, "most": 1 << config.domain_bits}
    kinds = {
        "all": ("all looked up", none, numbered(rows.tolist(), None, **told)),
        "spread": (f"all looked up, numbered by {HEAD:,} samples", none, numbered(rows.tolist(), list(head.T), **told)),
        "pinned": (f"tables of up to {SMALL:,} rows pinned ({small.sum()} of them)", small,
                   numbered(np.where(small, 0, rows).tolist(), None, **told)),
    }
    for memory in ("ideal", "ddr4"):
        with open_card("sim", core="hotline", preset=PRESET, device=DEVICE, memory=memory) as card:
            runs = Runs(card, "hotline", config.words)
            for name in ("mailbox", "gradients", "hot", "rows"):
                runs.ensure_buffer(name, 0)
            runs.write("inputs", samples)
            sizes = {f"{name}_beats": 0 for name in ("mailbox", "gradients", "hot", "rows")}
            for kind, (what, pinned, first) in kinds.items():
                took = []
                for count in (SAMPLES, 2 * SAMPLES):
                    runs.clear_result()
                    if runs.run(_program(config, rows, first, pinned, count),
                                {**sizes, "inputs_beats": samples.size // config.words, "timeout": 0}):
                        raise runs.error()
                    took.append(runs.last["cycles"])
                rate = round(len(rows) * SAMPLES / (took[1] - took[0]), 2)
                row = (f"hotline.rate.{kind}.{memory}", f"{len(rows)} indices a sample, {what}: indices taken a cycle, "
                       f"RTL, {memory} memory", rate, "indices/cycle")
                yield figure(*row) if kind == "all" else at_least(*row, PCIE)
    for kind, (_, pinned, first) in kinds.items():
        numbers = (indices + first[:-1])[:, ~pinned].ravel()
        busiest = np.bincount(permute(numbers, config.domain_bits) & config.banks - 1).max()
        yield figure(f"hotline.rate.{kind}.bank", "what the bank that is asked most allows",
                     round(indices.size / busiest, 2), "indices/cycle")
    yield figure("hotline.rate.port", "what a beat a cycle brings",
                 round(len(rows) / (samples.shape[1] / config.words), 2), "indices/cycle")
