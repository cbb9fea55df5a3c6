"""A bounded queue in front of a bundle's cards, for a server whose requests come from many threads.

    with Cards(Bundle("build/bundle")) as cards, ServingQueue(cards, depth=8) as queue:
        answer = queue.submit(chunk, dense)         # blocks while 8 batches wait
        predictions = answer.result().predictions

A caller that must not block gives a timeout, and sheds load when QueueFull is raised.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore, get_ident
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fpga.api.serving import Cards, Done
from fpga.card import CardError
from gen.data.logs import Chunk


class QueueFull(Exception):
    """As many batches wait for the cards as the queue holds: send fewer, or later."""


class ServingQueue:
    """Batches that wait for `cards`, which one thread serves in the order in which the queue took them; the cards are
    not closed here. depth: batches that may wait behind the one being served, 1 or more.

    A batch that does not fit the model has its own error. A CardError, of which a RunError is one, ends the queue: the
    batches behind it, and those that come later, end with a CardError that gives the reason.
    Raises      ValueError: another depth
    """

    def __init__(self, cards: Cards, *, depth: int = 8):
        if depth < 1:
            raise ValueError(f"depth must be 1 or more batches, not {depth}")
        self.cards, self.depth = cards, depth
        self._places, self._process = Semaphore(depth + 1), os.getpid()
        self._worker = ThreadPoolExecutor(1, "hotrail-serving")
        self._failure: CardError | None = None      # of the batch that ended it
        self._thread = 0        # the worker's

    def submit(self, chunk: Chunk, dense: NDArray[np.float32] | None = None, *,
               timeout_s: float | None = None) -> Future[Done]:
        """What `Cards.infer` will give for a batch. timeout_s: seconds to wait while the queue is full, 0 not to wait
        [as long as it takes]; the queue's own thread, which runs the callbacks of answers, never waits. A batch that is
        cancelled keeps its place until its turn.

        Raises      QueueFull: it was full for so long; CardError: the queue is closed, or of the process that forked
        """
        if os.getpid() != self._process:
            raise CardError(f"the queue's thread is in process {self._process}, which this one was forked from: open "
                            "another queue")
        if not self._places.acquire(timeout=0 if get_ident() == self._thread else timeout_s):
            raise QueueFull(f"the queue is full: {self.depth} batches wait for the cards")
        answer: Future[Done] = Future()
        try:
            self._worker.submit(self._answer, answer, chunk, dense)
        except RuntimeError:
            self._places.release()
            raise CardError("the queue is closed") from None
        return answer

    def _answer(self, answer: Future[Done], chunk: Chunk, dense: NDArray[np.float32] | None) -> None:
        self._thread = get_ident()
        done, failure = None, None
        if wanted := answer.set_running_or_notify_cancel():
            try:
                done = self._serve(chunk, dense)
            except BaseException as error:
                failure = error
        self._places.release()      # before callbacks, which may submit
        if failure is not None:
            answer.set_exception(failure)
        elif wanted:
            answer.set_result(done)     # type: ignore[arg-type]

    def _serve(self, chunk: Chunk, dense: NDArray[np.float32] | None) -> Done:
        if self._failure is not None:
            raise CardError(f"not served, since a batch before it has failed: {self._failure}") from self._failure
        try:
            return self.cards.infer(chunk, dense)
        except CardError as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Takes no more batches, and returns when those that wait have been served; a second call does nothing."""
        self._worker.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
