"""What the benches of the MLP core's parts share: configurations, and memories whose bits can be flipped."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from cocotb.triggers import RisingEdge

from golden import secded
from hw.mlp.config import MlpConfig
from verif.bench import reset, start
from verif.bench.pack import layout_of

TINY = MlpConfig(
    units=2, rows=2, width=2, words=8, lut_products=0, row_lines=256, weight_lines=512, addend_lines=256,
    reads_in_flight=8, writes_in_flight=8, program_beats=16, load_beats=32, output_beats=32, staged_tiles=8)
# A beat of the array is half a piece, a column group a whole beat.
NARROW = MlpConfig(**{**asdict(TINY), "rows": 4, "width": 1, "row_lines": 64, "weight_lines": 64, "addend_lines": 32})


def words_of(value: Any, count: int) -> list[int]:
    """The 32-bit words of a port's value."""
    number = int(value)
    return [number >> 32 * at & 0xFFFFFFFF for at in range(count)]


class MemoryBench(ABC):
    """A memory cycle by cycle; all outputs are judged. What lies in it outlives a test, as it does a reset.

    A memory's own has `step`, which drives a cycle's inputs, notes with `expect` and `writes` what follows from them,
    and ends with `judge`; and `fill(random)`. quiet: inputs that are 0 when nothing happens; packed: those with a
    layout; flag_latency: cycles from what is read to the flags.
    """

    before: Any = None      # the bench of the test before, of this process
    quiet: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    flag_latency = 0

    def __init__(self, dut: Any):
        self.dut = dut
        self.edge = RisingEdge(dut.clk)
        self.layouts = {name: layout_of(name) for name in self.packed}
        self.cycle = 0
        self.writes: deque[tuple[int, Callable[[], None]]] = deque()     # cycle from which reads see it, what to do
        self.due: dict[int, dict[str, np.ndarray]] = {}                  # cycle -> outputs
        self.flags: dict[int, tuple[int, bool]] = {}                     # cycle -> corrected, uncorrectable
        self.flipped: dict[Any, int] = {}                                # place of a codeword -> bits

    @classmethod
    async def begin(cls, dut: Any, random: np.random.Generator) -> Any:
        """After a reset and with every line written. What the test before has left is what the golden model has, unless
        there are flipped bits in it or writes were under way."""
        start(dut)
        bench: Any = cls(dut)
        bench.idle()
        await reset(dut, keeps=True)
        await bench.edge
        if cls.before is None or cls.before.flipped or cls.before.writes:
            await bench.fill(random)
            await bench.flush()
        cls.before = bench
        return bench

    @abstractmethod
    async def fill(self, random: np.random.Generator) -> None:
        """Writes every line."""

    def idle(self) -> None:
        for name in self.quiet:
            getattr(self.dut, name).value = 0

    def settle(self) -> None:
        """What reads of this cycle see of the writes."""
        while self.writes and self.writes[0][0] <= self.cycle:
            self.writes.popleft()[1]()

    def rewritten(self, places: Callable[[Any], object]) -> None:
        """Flips where something was written are gone."""
        self.flipped = {place: bits for place, bits in self.flipped.items() if not places(place)}

    def misread(self, words: np.ndarray, bits: int) -> tuple[bool, bool]:
        """Two words as a codeword with those bits flipped is read; whether corrected, and whether that cannot be."""
        right = np.array([int(words[0]) | int(words[1]) << 32], np.uint64)
        data, corrected, bad = secded.decode(right ^ np.uint64(bits & (1 << 64) - 1),
                                             secded.encode(right) ^ np.uint8(bits >> 64))
        words[:] = int(data[0]) & 0xFFFFFFFF, int(data[0]) >> 32
        return bool(corrected[0]), bool(bad[0])

    def expect(self, latency: int, outputs: dict[str, np.ndarray], flags: Sequence[tuple[bool, bool]]) -> None:
        """What the reads of this cycle give. flags: of the codewords that count."""
        self.due[self.cycle + latency] = outputs
        self.flags[self.cycle + self.flag_latency] = sum(c for c, _ in flags), any(b for _, b in flags)

    def judge(self) -> None:
        """At the end of a cycle."""
        for name, want in self.due.pop(self.cycle, {}).items():
            got = words_of(getattr(self.dut, name).value, want.size)
            assert got == want.ravel().tolist(), f"cycle {self.cycle}: {name}"
        told = (int(self.dut.corrected.value), self.dut.uncorrectable.value == 1)
        assert told == self.flags.pop(self.cycle, (0, False)), f"cycle {self.cycle}: flags {told}"
        self.cycle += 1

    @abstractmethod
    async def step(self) -> Any:
        """A cycle with what is given on the inputs, else with nothing."""

    async def flush(self) -> None:
        for _ in range(self.flag_latency + 1):
            await self.step()
        assert not self.due and not self.flags

    async def reset_now(self) -> None:
        """A reset of a cycle that meets whatever the caller has put on the inputs."""
        self.dut.rst.value = 1
        await self.edge
        self.idle()
        self.dut.rst.value = 0
        self.due.clear()
        self.flags.clear()
        self.writes.clear()
        self.cycle += 1

    def flip(self, memory: Any, line: int, place: Hashable, bits: int) -> None:
        """Turns bits of a codeword in the array over; when nothing is on its way."""
        memory[line].value = int(memory[line].value) ^ bits
        self.flipped[place] = bits


def some_flips(random: np.random.Generator) -> int:
    """One bit of a codeword, sometimes two."""
    bits, count = 0, int(random.choice([1, 1, 2]))
    while bits.bit_count() < count:
        bits |= 1 << int(random.integers(72))
    return bits
