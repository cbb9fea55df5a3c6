"""Cards and what stands above them, called by several threads at once: every answer is that of one thread alone."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fpga.card.runs
from fpga import card
from fpga.api.embedding import EmbeddingBags
from fpga.api.network import MlpNetwork
from fpga.api.serving import Cards, batches, serve
from fpga.card import CardError
from gen.bundle import write
from gen.compiler.tables import DRAM
from gen.delta import write as change
from gen.model.weights import SeededWeights
from golden.emb.core import Emb
from tests.gen.test_delta import SPLIT, swapped
from tests.support import bundles, emb_card, mlp_card, mlp_sizes
from tests.support import emb_tables as make

THREADS, TURNS, CALLS = 4, 5, 40


def slow(kind):
    """A card of an oracle at whose calls another thread gets its turn."""
    class Slow(kind):
        def send(self, buffer, data, offset=0):
            time.sleep(2e-4)
            self.write(buffer, data, offset)

        def wait(self, timeout_cycles=0, timeout_s=None):
            time.sleep(2e-4)
            return 0

    return Slow


def at_once(work):
    """work(number) in threads that begin together; what they return."""
    start = threading.Barrier(THREADS)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(begin, range(THREADS)))


def bags_on(held):
    random = np.random.default_rng(5)
    table = make.only(random, "items", DRAM, 60, 8)
    asked = [EmbeddingBags.request("items", random.integers(0, 60, (3 + number, 4))) for number in range(THREADS)]
    return EmbeddingBags([table], card=held, preset=make.config()), asked


def slow_emb():
    return slow(emb_card.OracleCard)(Emb.of(make.config(), []))


def test_bags():
    bags, asked = bags_on(slow_emb())
    wanted = [bags.batch([each])[0] for each in asked]

    def work(number):
        if number:
            return [bags.batch([asked[number]])[0] for _ in range(TURNS)]
        return [vectors for vectors, in bags.batches([asked[0]] for _ in range(TURNS))]

    for number, found in enumerate(at_once(work)):
        for each in found:
            np.testing.assert_array_equal(each, wanted[number])


def test_networks():
    network = mlp_sizes.plain(9, 4)
    net = MlpNetwork(network, card=slow(mlp_card.OracleCard)(mlp_sizes.core(mlp_sizes.TINY)), preset=mlp_sizes.TINY)
    asked = [mlp_sizes.batch(network, 5 + number, seed=number)[0] for number in range(THREADS)]
    wanted = [net(each) for each in asked]
    for number, found in enumerate(at_once(lambda number: [net(asked[number]) for _ in range(TURNS)])):
        for each in found:
            np.testing.assert_array_equal(each, wanted[number])


def test_two_objects_on_one_card():
    """Each is told what the other has left on the card: it brings its own again, and neither sees the other's."""
    held = slow_emb()
    bags, asked = bags_on(held)
    (wanted,) = bags.batch([asked[1]])
    buffers = held.buffers()

    def work(number):
        if number:
            return bags.batch([asked[1]])[0]
        with held.lock:
            was = held.buffers()
            time.sleep(0.002)
            assert held.buffers() == was
        return wanted

    for found in at_once(work):
        np.testing.assert_array_equal(found, wanted)
    assert held.buffers() == buffers


def test_cards_of_a_bundle_and_a_delta(tmp_path, monkeypatch):
    """Every batch is that of the state before or of the one behind, though its rows move meanwhile."""
    base = write(tmp_path / "base", bundles.plan(None, split=SPLIT), bundles.profile(bundles.log()), SeededWeights(3))
    delta = change(tmp_path / "delta", base, base.plan, swapped(base, count=3))
    left = [*base.emb_cards, *base.emb_cards]

    def opened(kind, *, core, **options):
        images = base.images(left.pop(0))
        return slow(emb_card.OracleCard)(Emb.of(images.config, images.cores))

    monkeypatch.setattr(fpga.card.runs, "open_card", opened)
    chunks = list(batches(bundles.log(), 12 * THREADS, 12))
    with Cards(base) as cards:
        wanted = [[cards.infer(chunk).vectors] for chunk in chunks]
        cards.refresh(delta)
        for each, chunk in zip(wanted, chunks, strict=True):
            each.append(cards.infer(chunk).vectors)

    def work(number):
        if number == THREADS - 1:
            cards.refresh(delta)
        if number == 0:
            return [each.done.vectors for each in serve(cards, bundles.log(), 12, batch=12)]
        return [cards.infer(chunks[number]).vectors for _ in range(TURNS)]

    with Cards(base) as cards:
        for number, found in enumerate(at_once(work)):
            for each in found:
                assert any(all(np.array_equal(vectors, state[name]) for name, vectors in each.items())
                           for state in wanted[number])
        assert cards.state == delta.state


def test_workers_of_one_queue(tmp_path, monkeypatch):
    """Every batch goes to one thread, and the next is not read before somebody asks."""
    base = write(tmp_path / "base", bundles.plan(None), bundles.profile(bundles.log()), SeededWeights(3))
    bundles.Opened(base, monkeypatch)
    with Cards(base) as cards:
        served = serve(cards, bundles.log(), 48, batch=4)
        found = [first for part in at_once(lambda _: [batch.chunk.first for batch in served]) for first in part]
    assert sorted(found) == list(range(0, 48, 4))
    bags, asked = bags_on(slow_emb())
    (wanted,), taken = bags.batch([asked[0]]), []
    given = bags.batches(taken.append(number) or [asked[0]] for number in range(9))
    next(given)
    assert len(taken) == 3
    rest = [vectors for part in at_once(lambda _: list(given)) for vectors, in part]
    assert len(rest) == 8 and all(np.array_equal(each, wanted) for each in rest)


def test_a_card_itself():
    """Calls of the simulated card's library, which knows no threads; a twin has the same."""
    with card.open("twin", core="emb", preset="tiny", memory="ideal") as twin:
        def work(number):
            for turn in range(CALLS):
                buffer = twin.allocate(4096, f"{number} {turn}")
                content = np.full(4096, number * CALLS + turn, np.uint8)
                twin.send(buffer, content)
                twin.settle()
                np.testing.assert_array_equal(twin.read(buffer), content)
                assert twin.counters()["violations"] == 0
            held = twin.buffers()
            return len({each.address for each in held}) == len(held)

        assert at_once(work) == [True] * THREADS
        assert len(twin.buffers()) == THREADS * CALLS and not twin.violations()


def test_a_call_of_a_card_is_not_entered_by_another_one():
    """While a transfer takes several slices of a simulation, another thread's call waits."""
    came, order = threading.Event(), []

    def between():
        order.append("transfer")
        came.set()
        time.sleep(2e-3)

    with card.open("twin", core="emb", preset="tiny", memory="ideal") as twin, ThreadPoolExecutor(1) as threads:
        twin.send(twin.allocate(1 << 20, "long"), np.zeros(1 << 20, np.uint8))
        twin.between = between
        other = threads.submit(lambda: (came.wait(), twin.counters(), order.append("counters")))
        twin.settle()
        other.result()
    assert order.count("transfer") > 2 and order[-1] == "counters"


def test_closing_waits_for_the_run():
    bags, asked = bags_on(slow_emb())
    (wanted,) = bags.batch([asked[0]])
    begun, wait = threading.Event(), bags.card.wait
    bags.card.wait = lambda *limits: (begun.set(), time.sleep(0.01), wait(*limits))[-1]
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(bags.batch, [asked[0]])
        begun.wait()
        bags.close()
        np.testing.assert_array_equal(run.result()[0], wanted)
    with pytest.raises(CardError, match="it is closed: its buffers were given back"):
        bags.batch([asked[0]])


def test_a_fork_amid_calls():
    """A child has whole cards, whose locks nobody holds: it gets the same vectors."""
    bags, asked = bags_on(slow_emb())
    wanted, stop = [bags.batch([each])[0] for each in asked], threading.Event()

    def call():
        while not stop.is_set():
            bags.batch([asked[0]])

    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(call) for _ in range(2)]
        try:
            for _ in range(3):
                if not (child := os.fork()):
                    signal.alarm(3000)      # a hang, not a busy machine
                    equal = all(np.array_equal(bags.batch([each])[0], right) for each, right in zip(asked, wanted))
                    os._exit(0 if equal else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
        for each in calls:
            each.result()
