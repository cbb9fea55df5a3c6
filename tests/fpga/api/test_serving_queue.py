"""fpga.api.serving_queue: what waits, what is refused, and how it ends."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from fpga.api.serving import Cards, batches
from fpga.api.serving_queue import QueueFull, ServingQueue
from fpga.card import CardError
from gen.bundle import write
from gen.model.weights import SeededWeights
from tests.support import bundles

FULL = "the queue is full: 2 batches wait for the cards"


class Gate:
    """Cards that answer with the batch's number, one by one, as `open` lets them; `taken`: in this order."""

    def __init__(self, error: Exception | None = None):
        self.taken: list[int] = []
        self.entered, self.error = threading.Semaphore(0), error
        self._left = threading.Semaphore(0)

    def infer(self, chunk, dense):
        self.taken.append(chunk)
        self.entered.release()
        self._left.acquire()
        if self.error is not None and chunk == 0:
            raise self.error
        return SimpleNamespace(number=chunk)

    def open(self, count: int = 1) -> None:
        self._left.release(count)


def full(gate: Gate) -> tuple[ServingQueue, list]:
    """A queue of depth 2: batch 0 is being served, 1 and 2 wait."""
    queue = ServingQueue(gate, depth=2)
    answers = [queue.submit(0)]
    gate.entered.acquire()
    return queue, [*answers, queue.submit(1), queue.submit(2)]


def test_a_full_queue_refuses_or_lets_wait():
    gate = Gate()
    queue, answers = full(gate)
    with pytest.raises(QueueFull, match=FULL):
        queue.submit(3, timeout_s=0)
    with pytest.raises(QueueFull, match=FULL):
        queue.submit(3, timeout_s=0.01)
    with ThreadPoolExecutor(1) as threads:
        blocked = threads.submit(queue.submit, 4)
        time.sleep(0.02)
        assert not blocked.done() and gate.taken == [0]
        gate.open()
        answers.append(blocked.result())
    gate.open(3)
    assert [each.result().number for each in answers] == gate.taken == [0, 1, 2, 4]
    queue.close()


def test_closing_serves_what_waits_and_takes_no_more():
    gate = Gate()
    queue, answers = full(gate)
    with ThreadPoolExecutor(2) as threads:
        blocked = threads.submit(queue.submit, 3)       # before or after the end: it must not hang
        closing = threads.submit(queue.close)
        time.sleep(0.02)
        assert not closing.done()
        gate.open(4)
        closing.result()
        assert [each.result().number for each in answers] == [0, 1, 2]
        try:
            assert blocked.result().result().number == 3
        except CardError as error:
            assert str(error) == "the queue is closed"
    with pytest.raises(CardError, match="the queue is closed"):
        queue.submit(5)
    queue.close()


def test_a_failing_card_ends_all_that_wait():
    gate = Gate(CardError("the link is down"))
    queue, answers = full(gate)
    with queue, ThreadPoolExecutor(1) as threads:
        blocked = threads.submit(queue.submit, 3)
        gate.open()
        with pytest.raises(CardError, match="^the link is down$"):
            answers[0].result()
        for each in (*answers[1:], blocked.result(), queue.submit(4)):
            with pytest.raises(CardError, match="^not served, since a batch before it has failed: the link is down$"):
                each.result()
    assert gate.taken == [0]


def test_a_wrong_batch_ends_alone():
    gate = Gate(ValueError("no table"))
    queue, answers = full(gate)
    with queue:
        gate.open(3)
        with pytest.raises(ValueError, match="no table"):
            answers[0].result()
        assert [each.result().number for each in answers[1:]] == [1, 2]


def test_a_fork_is_told():
    with ServingQueue(Gate()) as queue:
        if not (child := os.fork()):
            try:
                queue.submit(0)
            except CardError as error:
                os._exit(0 if "open another queue" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_depth():
    with pytest.raises(ValueError, match="depth must be 1 or more batches, not 0"):
        ServingQueue(Gate(), depth=0)


def test_answers_are_those_of_the_cards(tmp_path, monkeypatch):
    base = write(tmp_path / "base", bundles.plan(None), bundles.profile(bundles.log()), SeededWeights(3))
    bundles.Opened(base, monkeypatch)
    chunks = list(batches(bundles.log(), 24, 4))
    with Cards(base) as cards:
        wanted = [cards.infer(each).vectors for each in chunks]
        with ServingQueue(cards, depth=1) as queue, ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda chunk: queue.submit(chunk).result().vectors, chunks))
    for right, mine in zip(wanted, found, strict=True):
        assert all(np.array_equal(right[name], mine[name]) for name in right)


def test_a_cancelled_batch_keeps_its_place_and_a_callback_does_not_wait():
    gate = Gate()
    queue, answers = full(gate)
    assert answers[2].cancel()
    with pytest.raises(QueueFull, match=FULL):
        queue.submit(3, timeout_s=0)
    said, told = [], threading.Event()

    def again(_: object) -> None:       # on the queue's own thread: one place is free, a second is not
        queue.submit(4)
        with pytest.raises(QueueFull, match=FULL):
            queue.submit(5)
        said.append("refused")
        told.set()

    answers[0].add_done_callback(again)
    gate.open(3)
    told.wait(60)
    queue.close()
    assert gate.taken == [0, 1, 4] and said == ["refused"] and answers[1].result().number == 1
