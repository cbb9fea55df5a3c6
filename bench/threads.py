"""One card called by four threads, beside one thread with the same batches: twins, simulated in this process and in one
of their own. The figure is the median of many turns, each of which takes a slice of time of the one and of the four."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, pairwise

import numpy as np

from bench.framework import Row, at_least, bench
from bench.twin import MIXED, SUITE, Case
from fpga.api.embedding import EmbeddingBags
from fpga.api.network import MlpNetwork
from gen.model.network import Layer, Network

THREADS, BATCHES, SAMPLES = 4, 4, 16
TURNS, SLICE_S = 101, 0.1
WIDTHS = (64, 64, 16)

Call = Callable[[], object]


def rate(calls: Sequence[Call], threads: int) -> float:
    """Calls per second of so many threads, each of which makes them one after the other, from its own on."""
    made, start, end = [0] * threads, threading.Barrier(threads + 1), threading.Event()

    def work(number: int) -> None:
        mine = cycle((*calls[number:], *calls[:number]))
        start.wait()
        while not end.is_set():
            next(mine)()
            made[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for each in workers:
        each.start()
    start.wait()
    begin = time.perf_counter()
    end.wait(SLICE_S)
    end.set()
    for each in workers:
        each.join()
    return sum(made) / (time.perf_counter() - begin)


def ratio(calls: Sequence[Call]) -> float:
    """Calls per second of four threads over those of one."""
    for call in calls:
        call()
    return float(np.median([rate(calls, THREADS) / rate(calls, 1) for _ in range(TURNS)]))


def table(case: Case, bags: int, *, process: bool = False) -> tuple[EmbeddingBags, list[Call]]:
    """The case's table on a twin; batches of so many bags."""
    made = EmbeddingBags([case.table()], card="twin", preset=case.preset, process=process)
    return made, [partial(made.batch, case.batch(bags, seed)) for seed in range(BATCHES)]


def network() -> tuple[MlpNetwork, list[Call]]:
    """A small network on a twin; batches of 16 samples."""
    random = np.random.default_rng(1)
    layers = [Layer(random.standard_normal(shape, np.float32)) for shape in pairwise(WIDTHS)]
    made = MlpNetwork(Network(layers), card="twin", preset="tiny")
    return made, [partial(made, random.standard_normal((SAMPLES, WIDTHS[0]), np.float32)) for _ in range(BATCHES)]


@bench("threads")
def rows() -> Iterator[Row]:
    """Calls of one card per second, by four threads relative to one."""
    tiny = next(case for case in SUITE if case.name == "tiny")
    for name, what, (made, calls) in (
            ("emb", "10 bags of the tiny EMB core", table(tiny, 10)),
            ("emb.mixed", "40 bags of the shipping EMB core in all memories", table(MIXED, 40)),
            ("emb.process", "the first, the card in a process of its own", table(tiny, 10, process=True)),
            ("mlp", "16 samples of a network", network())):
        with made:
            yield at_least(f"threads.{name}", f"{what}: calls of four threads over one's", ratio(calls), "x", 1)
