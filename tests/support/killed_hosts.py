"""Hosts that are killed: one in a process of its own works with a card of this one, and gets SIGKILL at any moment."""

import itertools
import multiprocessing
import os
import signal
from unittest import mock


class _Gone(Exception):
    """The host has been killed."""


class _Line:
    """A card as the host has it: the other process carries its calls out."""

    def __init__(self, pipe):
        self._pipe = pipe

    def __getattr__(self, name):
        def call(*arguments, **named):
            self._pipe.send((name, arguments, named))
            return self._pipe.recv()

        return call


def _host(bench, runs, pipe):
    bench.card, bench.buffers = _Line(pipe), {}
    for run in itertools.cycle(runs):
        bench.start(run)
        bench.finish(run)


def kill(bench, runs, moment):
    """A host carries out runs on the bench's card, one after the other, until it is killed.

    moment: ("call", n), before its n-th call; ("register", n), before the n-th register that is written; or ("cycle",
    n), in the n-th cycle of a run or when that is done. Its driver resets the core and gives its memory back."""
    what, number = moment
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    host = context.Process(target=_host, args=(bench, runs, theirs), daemon=True)
    for held in bench.card.buffers():
        bench.card.free(held)
    bench.buffers = {}
    host.start()
    theirs.close()

    def tick(kind, by=1):
        nonlocal number
        number -= by * (kind == what)
        if number <= 0:
            os.kill(host.pid, signal.SIGKILL)
            host.join()
            raise _Gone

    written = bench.card._write
    try:
        with mock.patch.object(bench.card, "_write", lambda *of: (tick("register"), written(*of))):
            while True:
                name, arguments, named = mine.recv()
                tick("call")
                if name in ("step", "wait") and what == "cycle":
                    cycles = min(arguments[0], number)
                    tick("cycle", number if bench.card.step(cycles) or name == "wait" else cycles)
                    mine.send(False)
                else:
                    mine.send(getattr(bench.card, name)(*arguments, **named))
    except _Gone:
        pass
    finally:
        mine.close()
        host.kill()
        host.join()
    for held in bench.gone():
        bench.card.free(held)
    bench.sound()
