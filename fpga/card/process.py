"""A card in a process of its own, so that several simulated cards work at the same time."""

import multiprocessing
import os
import signal
import threading
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any

import numpy as np

from fpga.card.interface import Buffer, Card, CardError, Faults, LinkUse, SsdStream, Violation
from fpga.card.sim import SimCard
from fpga.card.threads import exclusive

LOOK_S = 1.0        # between looks of an idle card for its parent
CLOSE_S = 10.0      # that a card may take to end


class _Abandoned(Exception):
    """Whoever asked wants no answer any more."""


def _serve(pipe: Connection, parent: int, make: Callable[[], SimCard]) -> None:
    """The worker: a card that answers questions by their numbers, until the pipe or its parent ends. A question that
    comes while the card is at work on another shows that the other was abandoned: its work stops, its answer is an
    error that nobody takes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def look() -> None:
        if pipe.poll() or os.getppid() != parent:
            raise _Abandoned

    try:
        card = make()
        card.between = look
        pipe.send((0, True, (card.clock_mhz, card.beat_bytes, card.identity)))
    except Exception as error:
        pipe.send((0, False, error))
        return
    with card:
        while True:
            try:
                while not pipe.poll(LOOK_S):
                    if os.getppid() != parent:
                        return
                question = pipe.recv()
            except (EOFError, OSError):
                return
            if question is None:
                return
            number, name, arguments, named = question
            try:
                result = getattr(card, name)
                answer = (number, True, result(*arguments, **named) if callable(result) else result)
            except _Abandoned:
                answer = (number, False, CardError(f"{name} was abandoned"))
            except Exception as error:
                if not isinstance(error, CardError):
                    error = RuntimeError(f"in the card's process: {traceback.format_exc()}")
                answer = (number, False, error)
            try:
                pipe.send(answer)
            except OSError:
                return


class _Line:
    """Questions and answers through a pipe, by threads of their own: an exception in the caller's, as that of Ctrl-C,
    leaves no half message behind. Answers come with the numbers of their questions."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._incoming: SimpleQueue[Any] = SimpleQueue()
        for work in (self._send, self._receive):
            threading.Thread(target=work, name=f"hotrail-card{work.__name__}", daemon=True).start()

    def put(self, question: Any) -> None:
        self._outgoing.put(bytes(ForkingPickler.dumps(question)))

    def take(self, number: int) -> tuple[bool, Any]:
        """The answer to a question; those of others, which nobody waits for, are thrown away.

        Raises      EOFError: the process has ended
        """
        while True:
            answer = self._incoming.get()
            if answer is None:
                self._incoming.put(None)
                raise EOFError
            if answer[0] == number:
                return answer[1:]

    def end(self) -> None:
        """Ends the worker, also one that is at work."""
        self.put(None)
        self._outgoing.put(None)

    def _send(self) -> None:
        try:
            while (message := self._outgoing.get()) is not None:
                self._pipe.send_bytes(message)
        except OSError:
            pass        # the other thread sees the end as well

    def _receive(self) -> None:
        try:
            while True:
                self._incoming.put(self._pipe.recv())
        except Exception:       # whatever it is, nobody must wait for what does not come
            self._incoming.put(None)


class ProcessCard(Card):
    """The same calls as those of the simulated card that `make` gives in the worker; `run`, `wait` and the others
    return when the worker has done them.

    `begin_wait` lets a card work while the caller turns to others: its result comes from `end_wait`. A call that an
    exception ends, as that of Ctrl-C, is abandoned by the worker too, within a slice of the simulation, as soon as the
    next one is made. The process ends with its parent, whatever ends that."""

    def __init__(self, make: Callable[[], SimCard]):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: Any = context.Process(
            target=_serve, args=(theirs, os.getpid(), make), daemon=True)
        self._asked, self._waiting = 0, 0       # numbers of the last question, and of the one that end_wait answers
        # The worker is born deaf to Ctrl-C, which is meant for the parent, before it comes to where it ignores it. The
        # tracker of resources, which the first worker starts, would make it hear again.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        self._line = _Line(self._pipe)
        weakref.finalize(self, self._line.end)
        try:
            self.clock_mhz, self.beat_bytes, self.identity = self._answer(0)
        except BaseException:
            self.close()
            raise

    def _answer(self, number: int) -> Any:
        try:
            sound, result = self._line.take(number)
        except EOFError:
            self._process.join()
            raise CardError(f"the card's process ended with code {self._process.exitcode}") from None
        if not sound:
            raise result
        return result

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        return self._answer(self._send(name, *arguments, **named))

    def _send(self, name: str, *arguments: Any, **named: Any) -> int:
        if self._process is None:
            raise CardError("the card is closed")
        if self._waiting:
            raise CardError("the card is waiting for its run; call end_wait first")
        self._asked = number = self._asked + 1
        self._line.put((number, name, arguments, named))
        return number

    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        return self._ask("allocate", bytes, name, fill, p2p)

    def free(self, buffer: Buffer) -> None:
        self._ask("free", buffer)

    def buffers(self) -> tuple[Buffer, ...]:
        return self._ask("buffers")

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._ask("write", buffer, data if isinstance(data, np.ndarray) else bytes(data), offset)

    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        return self._ask("read", buffer, dtype, count, offset)

    def send(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._ask("send", buffer, data if isinstance(data, np.ndarray) else bytes(data), offset)

    def begin_fetch(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> Any:
        return self._ask("begin_fetch", buffer, dtype, count, offset)

    def end_fetch(self, begun: Any) -> np.ndarray:
        return self._ask("end_fetch", begun)

    def link(self) -> LinkUse:
        return self._ask("link")

    def commands(self) -> Counter[str]:
        return self._ask("commands")

    def passed(self, *, to_card: int = 0, to_host: int = 0) -> None:
        self._ask("passed", to_card=to_card, to_host=to_host)

    def settle(self) -> None:
        self._ask("settle")

    def tensor_trains(self, cores: Sequence[Sequence[np.ndarray]]) -> None:
        self._ask("tensor_trains", cores)

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        self._ask("run", dict(arguments))

    def wait(self, timeout_cycles: int = 10_000_000, timeout_s: float | None = None) -> int:
        return self._ask("wait", timeout_cycles, timeout_s)

    @exclusive
    def begin_wait(self, timeout_cycles: int = 10_000_000) -> None:
        """As `wait`, without its result: the card works on while the caller does something else."""
        self._waiting = self._send("wait", timeout_cycles, None)

    @exclusive
    def end_wait(self) -> int:
        """The result of `begin_wait`, or its error."""
        number, self._waiting = self._waiting, 0
        if not number:
            raise CardError("begin_wait was not called")
        return self._answer(number)

    def status(self) -> int | None:
        return self._ask("status")

    def code(self) -> int | None:
        return self._ask("code")

    def abort(self) -> None:
        self._ask("abort")

    def reset(self, cycles: int = 4) -> None:
        self._ask("reset", cycles)

    def step(self, cycles: int) -> bool:
        return self._ask("step", cycles)

    def stream(self, stream: SsdStream | None) -> None:
        self._ask("stream", stream)

    def set_faults(self, faults: Faults) -> None:
        self._ask("set_faults", faults)

    def counters(self) -> dict[str, int]:
        return self._ask("counters")

    def clear(self) -> None:
        self._ask("clear")

    def violations(self) -> tuple[Violation, ...]:
        return self._ask("violations")

    @property
    def cycles_per_s(self) -> float:
        return self._ask("cycles_per_s")

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._waiting = 0
        try:
            self._line.end()
            process.join(CLOSE_S)
        finally:
            if process.is_alive():
                process.kill()
                process.join()
            self._pipe.close()
