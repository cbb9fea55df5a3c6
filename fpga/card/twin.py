"""The twin of a simulated card: the same memory, link and drive around a model of the core's time.

What a program yields is computed before its run begins, by the models that the hardware is held to; the run then takes
the time that the core would take, clock by clock (fpga/card/cpp/twin).
"""

import ctypes
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fpga.card import checks
from fpga.card.identity import Identity, of
from fpga.card.interface import POSITIONS, Buffer, CardError, Faults, KernelLike, SsdStream
from fpga.card.memory import MODEL_SOURCES
from fpga.card.model import SOURCES, Master, Model, Ports
from fpga.card.sim import SENT, SimCard
from gen.compiler import twin_emb, twin_mlp
from gen.compiler.twin_layouts import EMB_RUN, MLP_RUN, packed
from gen.model.device import Device
from gen.rtl.cpp import library
from gen.rtl.verilator import CACHE

NO_FAULTS = "the twin models no faults"
# Registers are written one by one: to read several as a vector waits until they are stored.
FLAGS = ("-std=c++17", "-O3", "-fno-tree-slp-vectorize", "-fvisibility=hidden", "-Wl,-Bsymbolic")


@cache
def build(core: str) -> tuple[Path, float, bool]:
    """A core's library, compiled once for the same sources; the seconds that took, and whether it was there."""
    read = sorted(SOURCES.glob("twin/*")) + [SOURCES / name for name in ("harness.cpp", *MODEL_SOURCES)]
    return library("twin", SOURCES / "twin" / f"{core}.cpp", read, FLAGS, cache=CACHE)


class TwinCard(SimCard):
    """A card whose core is the twin of one. Made by `fpga.card.open`.

    Raises      CardError: what it does not model, in one sentence: an abort, faults other than stalls, a program that
                would end in an error
    """

    core: str

    def __init__(self, config: Any, sizes: np.ndarray, device: Device, kernel: KernelLike, *, memory: str):
        path, *_ = build(self.core)
        bits = 32 * config.words
        masters = Master("m00_axi", bits, True, True), Master("m01_axi", bits, True, False)
        ctypes.CDLL(str(path)).twin_sizes(ctypes.c_void_p(sizes.ctypes.data))     # of the card that is made next
        self._own = of(self.core, config)
        super().__init__(Model(path, Ports(masters, True, True), {}), device, kernel, memory=memory)
        self._library.twin_memory.restype = ctypes.c_void_p
        self._library.twin_attach(ctypes.c_void_p(self._handle))
        self._beat_words = config.words
        self._held: tuple[np.ndarray, ...] = ()      # what the library points to

    def _identify(self) -> Identity:
        return self._own

    def code(self) -> int:
        return 0        # no run ends in an error

    def run(self, arguments: Mapping[str, "int | Buffer"]) -> None:
        if self._running:
            raise CardError("a run is under way; wait for it, or reset the card")
        assert self._kernel is not None
        values = checks.values(self._kernel.arguments, arguments)
        self._settle(SENT)
        try:
            self._held = self._prepare(values)
        except ValueError as error:
            raise CardError(f"{NO_FAULTS}: {error}") from None
        self._library.twin_run(*(ctypes.c_void_p(each) for each in (
            self._handle, *(array.ctypes.data for array in self._held))))
        super().run(arguments)

    @abstractmethod
    def _prepare(self, values: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        """Carries the program out on the card's memory; what `twin_run` of the library takes. Raises ValueError: it
        would end in an error"""

    def _words(self, address: int, beats: int) -> np.ndarray:
        """The card's memory itself, as words. Raises CardError: beats outside of it."""
        size, memory = beats * self._beat_words, self._device.memory
        if address < memory.base or address + 4 * size > memory.base + memory.bytes:
            raise CardError(f"{beats} beats at 0x{address:x} lie outside the card's memory")
        at = self._library.twin_memory(ctypes.c_void_p(self._handle), ctypes.c_uint64(address))
        return np.ctypeslib.as_array((ctypes.c_uint32 * size).from_address(at)) if size else np.zeros(0, np.uint32)

    def _arenas(self, values: Mapping[str, int], instruction_words: int, *names: str) -> list[np.ndarray]:
        """The program, and the buffers of these names, as the card's memory holds them."""
        count = instruction_words * values["program_count"]
        return [self._words(values["program"], -(-count // self._beat_words))[:count],
                *(self._words(values[name], values[f"{name}_beats"]) for name in names)]

    def abort(self) -> None:
        raise CardError("the twin does not model an abort: reset the card, or open one of kind \"sim\"")

    def software_reset(self) -> None:
        self.abort()

    def set_faults(self, faults: Faults) -> None:
        if replace(faults, stalls={}, seed=1, stall_cycles=16, doorbell_after=0) != Faults():
            raise CardError("the twin models stalls, and no errors of the bus, the drive or the host: open a card of "
                            "kind \"sim\"")
        super().set_faults(faults)


class EmbTwin(TwinCard):
    """The EMB core's."""

    core = "emb"

    def __init__(self, config: Any, device: Device, kernel: KernelLike, *, memory: str):
        super().__init__(config, twin_emb.sizes(config), device, kernel, memory=memory)
        self._values = twin_emb.Values(config)
        self._landing: SsdStream | None = None
        self._prepared: twin_emb.Prepared | None = None

    def tensor_trains(self, cores: Sequence[Sequence[np.ndarray]]) -> None:
        self._values.tensor_trains(cores)

    def _prepare(self, values: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        landed, landed_at = self._landed()
        program, inputs, outputs, rows = self._arenas(values, twin_emb.WORDS, "inputs", "outputs", "rows")
        self._prepared = run = self._values.prepare(
            twin_emb.Memory(program, inputs, outputs, rows, landed, landed_at, values["ring_beats"]))
        units = np.stack([np.zeros(9, np.uint64) if clock is None else clock.pointers for clock in run.clocks])
        job = packed(EMB_RUN, {**values, "jobs": len(run.jobs), "units": len(units)}, np.uint64)
        return job, run.jobs, run.totals, run.places, units

    def _landed(self) -> tuple[np.ndarray, int]:
        """What the drive brings in this run, one beat after the other, and the first one's ring position."""
        stream = self._landing
        if stream is None or not len(stream.transfers):
            return np.zeros(0, np.uint32), 0
        content, transfers = self._streamed[0]
        first, beats = int(transfers[0, 1]), stream.page_bytes // stream.beat_bytes
        if ((transfers[:, 1].astype(np.int64) - first - beats * np.arange(len(transfers))) % POSITIONS).any():
            raise CardError("the twin takes pages one behind the other in the ring, without a gap")
        pages = content.reshape(-1).view(np.uint8)
        pages = pages[:len(pages) // stream.page_bytes * stream.page_bytes].reshape(-1, stream.page_bytes)
        return pages[transfers[:, 0].astype(np.int64)].reshape(-1).view(np.uint32), first

    def stream(self, stream: SsdStream | None) -> None:
        super().stream(stream)
        self._landing = stream

    def reset(self, cycles: int = 4) -> None:
        cuts_load = self._running and self._prepared is not None and len(self._prepared.clocks) > 1
        super().reset(cycles)
        if cuts_load:       # of which no table stays loaded
            self._values.forget()


class MlpTwin(TwinCard):
    """The MLP core's."""

    core = "mlp"

    def __init__(self, config: Any, device: Device, kernel: KernelLike, *, memory: str):
        super().__init__(config, twin_mlp.sizes(config), device, kernel, memory=memory)
        self._library.twin_spans.restype = ctypes.c_void_p
        self._values = twin_mlp.Values(config)

    def _prepare(self, values: Mapping[str, int]) -> tuple[np.ndarray, ...]:
        program, inputs, weights, outputs = self._arenas(values, twin_mlp.WORDS, "inputs", "weights", "outputs")
        run = self._values.prepare(twin_mlp.Memory(program, inputs, weights, outputs))
        told = packed(MLP_RUN, {**values, "jobs": len(run.jobs)}, np.uint64)
        return told, *run

    def spans(self, instructions: int) -> np.ndarray:
        """(instructions, 3) of the last run: the cycles of an instruction's first and last slot, from the run's start,
        and its slots; 0 of a load."""
        at = self._library.twin_spans(ctypes.c_void_p(self._handle))
        return np.ctypeslib.as_array((ctypes.c_int64 * (3 * instructions)).from_address(at)).reshape(-1, 3).copy()


TWINS = {each.core: each for each in (EmbTwin, MlpTwin)}        # by their cores' names
