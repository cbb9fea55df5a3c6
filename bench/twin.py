"""The twin beside the Verilated card: cycles and values over a suite of cases, and lookups per second of one core."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_least, at_most, bench, figure
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from fpga.card.twin import build
from gen.compiler.emb import Bags
from gen.compiler.tables import CardImages
from gen.rtl.config import load

RING_BYTES = 1 << 20
CORES = {16: (2, 2, 4), 64: (4, 4, 4), 128: (4, 8, 4)}      # columns of the tensor trains
TRIALS = 3
ERROR, RATE = 2.0, 1e6


@dataclass(frozen=True)
class Case:
    """A table and its batches. shares: of the rows in DRAM, as TT and on the SSD, the hottest first; zipf: exponent of
    the accesses, 0 for uniform ones; pooling: indices of a bag; cached: rows of the row cache."""

    name: str
    dim: int = 64
    shares: tuple[float, float, float] = (1, 0, 0)
    zipf: float = 0.0
    preset: str = "smartssd"
    row_format: str = "float32"
    results: str = "float32"
    pooling: int = 20
    cached: int = 0
    rows: int = 30_000

    def table(self) -> Table:
        random = np.random.default_rng(self.dim)
        ends = np.cumsum(self.shares[:2]) * self.rows
        device = np.select([np.arange(self.rows) < end for end in ends], [DRAM, TT], SSD)
        cores: list[NDArray[np.float32]] = []
        if self.shares[1]:
            modes, columns = (31, 31, 33), CORES[self.dim]
            ranks = 1, 4, 4, 1
            cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1]), dtype=np.float32)
                     for k in range(3)]
        return Table.place("t", random.standard_normal((self.rows, self.dim), dtype=np.float32), device, cores=cores,
                           rank=np.arange(self.rows), row_format=self.row_format, results=self.results)

    def batch(self, bags: int, seed: int) -> list[Bags]:
        random = np.random.default_rng(seed)
        share = np.cumsum(np.arange(1, self.rows + 1) ** -self.zipf)
        drawn = np.searchsorted(share, random.random(bags * self.pooling) * share[-1])
        return [Bags("t", np.minimum(drawn, self.rows - 1), np.arange(bags + 1) * self.pooling)]

    def on(self, kind: str) -> EmbeddingBags:
        images = CardImages([self.table()], load(self.preset).cores["emb"], cache_rows={"t": self.cached})
        return EmbeddingBags(images, card=kind, preset=self.preset, ring_bytes=RING_BYTES)


MIXED = Case("mixed", shares=(0.05, 0.85, 0.1), zipf=1.05, pooling=40)
SUITE = (
    Case("d16", 16), Case("d64"), Case("d64.zipf", zipf=1.05), Case("d128", 128), Case("d512", 512, pooling=5),
    Case("bags1", pooling=1), Case("int8", row_format="int8"), Case("int4.zipf", row_format="int4", zipf=1.05),
    Case("half", row_format="float16", results="float16"),
    Case("tt", shares=(0, 1, 0)), Case("tt.zipf", shares=(0, 1, 0), zipf=1.05),
    Case("dram.tt", shares=(0.3, 0.7, 0), zipf=0.8), Case("ssd", shares=(0.5, 0, 0.5), zipf=1.05), MIXED,
    Case("cache", shares=(0.05, 0.85, 0.1), zipf=0.8, cached=500),
    Case("tiny", 16, preset="tiny"), Case("tiny.mixed", 16, (0.3, 0.4, 0.3), 0.8, preset="tiny"),
)
RATES = (SUITE[0], SUITE[1], SUITE[2], SUITE[9], MIXED)


def _counts(card: EmbeddingBags, batches: list[list[Bags]]) -> tuple[list[int], list[NDArray[np.uint32]], float]:
    """Cycles and vectors of each batch; processor seconds of all."""
    start, cycles, vectors = time.process_time(), [], []
    for requests in batches:
        vectors += [each.view(np.uint32) for each in card.batch(requests)]
        cycles.append(card.last["cycles"])
    return cycles, vectors, time.process_time() - start


@bench("twin")
def twin() -> Iterator[Row]:
    """The EMB core's twin against the Verilated core on DDR4: cycles, bits of vectors, lookups per second."""
    yield figure("twin.build_s", "seconds that compiling the twin took", round(build("emb")[1], 1), "s")
    errors, different, spent = [], 0, np.zeros(2)
    for case in SUITE:
        batches = [case.batch(2400 // case.pooling // 8, seed) for seed in (1, 2)]
        with case.on("sim") as card, case.on("twin") as other:
            wanted, exact, slow = _counts(card, batches)
            found, values, fast = _counts(other, batches)
        spent += slow, fast
        errors += [100 * abs(one - two) / one for one, two in zip(wanted, found, strict=True)]
        different += sum(int((one != two).any(axis=1).sum()) for one, two in zip(exact, values, strict=True))
    what = f"{len(SUITE)} cases, {len(errors)} batches"
    yield at_most("twin.error", f"{what}: cycles of a batch against the Verilated core's, worst", max(errors), "%",
                  ERROR)
    yield figure("twin.error.median", f"{what}: median", float(np.median(errors)), "%")
    yield at_most("twin.different", f"{what}: vectors that differ in a bit", different, "vectors", 0)
    yield figure("twin.faster", f"{what}: processor time of the Verilated card over the twin's",
                 round(float(spent[0] / spent[1])), "times")
    for case in RATES:
        rate, cycles = _rate(case)
        name = "" if case is MIXED else f".{case.name}"
        what = f"{case.name}: lookups per second of one core, {cycles:.2f} cycles per lookup"
        yield (at_least(f"twin.lookups_per_s{name}", what, rate, "lookups/s", RATE) if case is MIXED else
               figure(f"twin.lookups_per_s{name}", what, rate, "lookups/s"))


def _rate(case: Case) -> tuple[int, float]:
    """Lookups per second of processor time, compiling the program and fetching included, and cycles per lookup."""
    batch, seconds = case.batch(60_000 // case.pooling, 3), []
    with case.on("twin") as card:
        for _ in range(TRIALS):
            seconds.append(_counts(card, [batch])[2])
        return round(60_000 / min(seconds)), card.last["cycles"] / 60_000
