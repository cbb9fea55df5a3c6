"""Calls of several threads at one card beside those of one thread: how many samples per second they get.

A twin of the shipping core in the place of the card. Runs follow each other on the card; a thread compiles its program
while the card works for another. Trials of one and of several threads alternate, and the median of their ratios counts;
the processor time beside it says what taking turns costs.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench.framework import Row, at_least, bench, figure
from fpga.api.embedding import DRAM, EmbeddingBags, Table
from gen.compiler.emb import Bags

PRESET, DIM, ROWS, BAG = "smartssd", 64, 20_000, 4
THREADS, TRIALS, LEAST = 4, 11, 1
#: Samples of a call, and calls of a trial.
CALLS = {16: 100, 1024: 8}


def seconds(bags: EmbeddingBags, requests: list[Bags], threads: int) -> tuple[float, float]:
    """Elapsed, and of the processor, of all requests, each a call, shared out over so many threads."""
    def work(number: int) -> None:
        for request in requests[number::threads]:
            bags.batch([request])

    with ThreadPoolExecutor(threads) as pool:
        begin, busy = time.perf_counter(), time.process_time()
        list(pool.map(work, range(threads)))
        return time.perf_counter() - begin, time.process_time() - busy


@bench("card_threads")
def threads() -> Iterator[Row]:
    """Samples per second of 4 threads at a twin, over those of one thread."""
    random = np.random.default_rng(1)
    table = Table.place("rows", random.standard_normal((ROWS, DIM), dtype=np.float32), DRAM)
    with EmbeddingBags([table], card="twin", preset=PRESET) as bags:
        for samples, calls in CALLS.items():
            requests = [bags.request("rows", random.integers(0, ROWS, (samples, BAG))) for _ in range(calls)]
            seconds(bags, requests, 1)
            took = np.array([[seconds(bags, requests, number) for number in (1, THREADS)] for _ in range(TRIALS)])
            what = f"calls of {samples:,} samples, {BAG} rows of D = {DIM} each, at a twin"
            yield figure(f"card.threads.{samples}.one", f"{what}: samples per second of one thread",
                         float(f"{samples * calls / took[:, 0, 0].min():.3g}"), "samples/s")
            elapsed, busy = np.median(took[:, 0] / took[:, 1], axis=0).round(2).tolist()
            yield at_least(f"card.threads.{samples}", f"{what}: samples per second of {THREADS} threads over those of "
                           "one, median of trials", elapsed, "x", LEAST)
            yield figure(f"card.threads.{samples}.cpu", f"{what}: the same per second of processor time", busy, "x")
