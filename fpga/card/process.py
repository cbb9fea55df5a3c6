"""A card in a process of its own, so that several simulated cards work at the same time."""

import multiprocessing
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fpga.card.interface import Buffer, Card, CardError, Faults, KernelLike, SsdStream, Violation
from fpga.card.model import Model
from fpga.card.sim import SimCard
from gen.device import Device

__all__ = ["ProcessCard"]


def _serve(pipe: Connection, model: Model, device: Device, kernel: KernelLike | None, memory: str) -> None:
    """The worker: a SimCard that does what it is told until the pipe ends."""
    try:
        card = SimCard(model, device, kernel, memory=memory)
        pipe.send((True, (card.clock_mhz, card.beat_bytes)))
    except Exception as error:
        pipe.send((False, error))
        return
    with card:
        while True:
            try:
                name, arguments, named = pipe.recv()
            except (EOFError, OSError):
                return
            try:
                result = getattr(card, name)
                pipe.send((True, result(*arguments, **named) if callable(result) else result))
            except Exception as error:
                if not isinstance(error, CardError):
                    error = RuntimeError(f"in the card's process: {traceback.format_exc()}")
                pipe.send((False, error))


class ProcessCard(Card):
    """The same calls as a SimCard; `run`, `wait` and the others return when the worker has done them.

    `begin_wait` lets a card work while the caller turns to others: its result comes from `end_wait`."""

    def __init__(self, model: Model, device: Device, kernel: KernelLike | None, *, memory: str):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: Any = context.Process(target=_serve, args=(theirs, model, device, kernel, memory), daemon=True)
        self._waiting = False
        self._process.start()
        theirs.close()
        try:
            self.clock_mhz, self.beat_bytes = self._answer()
        except BaseException:
            self.close()
            raise

    def _answer(self) -> Any:
        try:
            sound, result = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise CardError(f"the card's process ended with code {self._process.exitcode}") from None
        if not sound:
            raise result
        return result

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        self._send(name, *arguments, **named)
        return self._answer()

    def _send(self, name: str, *arguments: Any, **named: Any) -> None:
        if self._process is None:
            raise CardError("the card is closed")
        if self._waiting:
            raise CardError("the card is waiting for its run; call end_wait first")
        try:
            self._pipe.send((name, arguments, named))
        except (BrokenPipeError, OSError):
            self._process.join()
            raise CardError(f"the card's process ended with code {self._process.exitcode}") from None

    def allocate(self, bytes: int, name: str, fill: int | None = None, p2p: bool = False) -> Buffer:
        return self._ask("allocate", bytes, name, fill, p2p)

    def free(self, buffer: Buffer) -> None:
        self._ask("free", buffer)

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        self._ask("write", buffer, data if isinstance(data, np.ndarray) else bytes(data), offset)

    def read(self, buffer: Buffer, dtype: Any = np.uint8, count: int | None = None, offset: int = 0) -> np.ndarray:
        return self._ask("read", buffer, dtype, count, offset)

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        self._ask("run", dict(arguments))

    def wait(self, timeout_cycles: int = 10_000_000) -> int:
        self.begin_wait(timeout_cycles)
        return self.end_wait()

    def begin_wait(self, timeout_cycles: int = 10_000_000) -> None:
        """As `wait`, without its result: the card works on while the caller does something else."""
        self._send("wait", timeout_cycles)
        self._waiting = True

    def end_wait(self) -> int:
        """The result of `begin_wait`, or its error."""
        if not self._waiting:
            raise CardError("begin_wait was not called")
        self._waiting = False
        return self._answer()

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
        if self._process is None:
            return
        self._pipe.close()  # the worker ends when its pipe does
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._process = None
