"""What the benches of the MLP core's parts share: configurations, and memories whose bits can be flipped."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from cocotb.triggers import RisingEdge

from gen.rtl.config import load
from golden import secded
from hw.mlp.config import MlpConfig
from hw.mlp.records import LATENCY
from verif.bench import reset, seed, start
from verif.bench.pack import layout_of

TINY: MlpConfig = load("tiny").cores["mlp"]
# A beat of the array is half a piece, a column group a whole beat.
NARROW = replace(TINY, rows=4, width=1, row_lines=64, weight_lines=64, addend_lines=32)


def words_of(value: Any, count: int) -> list[int]:
    """The 32-bit words of a port's value."""
    number = int(value)
    return [number >> 32 * at & 0xFFFFFFFF for at in range(count)]


class MemoryBench(ABC):
    """A memory cycle by cycle; all outputs are judged. What lies in it outlives a test, as it does a reset.

    A memory's own draws reads, writes and loads, says what they do to golden's `model`, and where its codewords are; a
    place is a codeword's numbers in `codewords`, and its line.

    unit: the memory; latency: from a read to its outputs; lines: of it; asks, writes: the ports of reads and of writes,
    which are taken at once; loads: whether there is the stream i_load, which waits for them; codewords: how many there
    are in a line, by their numbers; cycles: of random traffic; rounds: of flips
    """

    before: Any = None      # the bench of the test before, of this process
    unit: Any
    model: Any
    latency = LATENCY
    lines: int
    asks = "slot"
    writes: str
    loads = True
    codewords: tuple[int, ...]
    cycles, rounds = 1000, 12

    def __init__(self, dut: Any, random: np.random.Generator):
        self.dut, self.random = dut, random
        self.edge = RisingEdge(dut.clk)
        self.layouts = {name: layout_of(name) for name in (self.asks, self.writes, *["i_load__payload"] * self.loads)}
        self.cycle = 0
        self.settling: deque[tuple[int, Callable[[], None]]] = deque()   # cycle from which reads see it, what to do
        self.due: dict[int, dict[str, np.ndarray]] = {}                  # cycle -> outputs
        self.flags: dict[int, tuple[int, bool]] = {}                     # cycle -> corrected, uncorrectable
        self.flipped: dict[Any, int] = {}                                # place of a codeword -> bits

    @classmethod
    async def begin(cls, dut: Any, what: str) -> Any:
        """After a reset and with every line written. What the test before has left is what the golden model has, unless
        there are flipped bits in it or writes were under way."""
        start(dut)
        bench: Any = cls(dut, np.random.default_rng(seed(what)))
        bench.idle()
        await reset(dut, keeps=True)
        await bench.edge
        if cls.before is None or cls.before.flipped or cls.before.settling:
            for way, change in bench.everything():
                await bench.step(**{way: change})
            await bench.flush()
        cls.before = bench
        return bench

    # What a memory's own says.

    @abstractmethod
    def a_read(self, within: int = 0, **fixed: Any) -> dict[str, Any]:
        """Any read of the first `within` lines [all]."""

    @abstractmethod
    def a_write(self, within: int = 0, **fixed: Any) -> dict[str, Any]:
        """Any write."""

    def a_load(self, within: int = 0, **fixed: Any) -> dict[str, Any]:
        """Any load."""
        raise NotImplementedError

    @abstractmethod
    def everything(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Changes that write every line: each a write or a load."""

    @abstractmethod
    def over(self, way: str, line: int) -> dict[str, Any]:
        """A write or a load, as `way` says, over the first codewords of a line and no others that `counted` shows."""

    @abstractmethod
    def counted(self, line: int) -> dict[str, Any]:
        """A read whose first word out is the first codeword's of a line, and that counts what is wrong with it."""

    def reads(self, line: int) -> list[dict[str, Any]]:
        """Reads that show all of a line."""
        return [self.counted(line)]

    @abstractmethod
    def written(self, write: dict[str, Any]) -> Callable[[Any], object]:
        """Writes into the model; whether a place is written."""

    def loaded(self, load: dict[str, Any]) -> Callable[[Any], object]:
        """Loads into the model; whether a place is written."""
        raise NotImplementedError

    @abstractmethod
    def expected(self, read: dict[str, Any]) -> tuple[dict[str, np.ndarray], list[tuple[bool, bool]]]:
        """The outputs of a read, and the flags of the flipped codewords that count, by `misread`."""

    @abstractmethod
    def array(self, place: tuple[int, ...]) -> Any:
        """The simulator's memory with a codeword."""

    # A cycle.

    def within(self, within: int) -> int:
        """A line."""
        return int(self.random.integers(within or self.lines))

    def words(self, *shape: int) -> Any:
        return self.random.integers(0, 1 << 32, shape).tolist()

    def idle(self) -> None:
        self.show(None)
        getattr(self.dut, self.writes).value = 0
        if self.loads:
            self.dut.i_load__valid.value = 0

    def show(self, read: dict[str, Any] | None) -> None:
        """The read on its inputs."""
        self.dut.valid.value = read is not None
        if read is not None:
            self.dut.slot.value = self.layouts["slot"].pack(read)

    def put(self, write: dict[str, Any] | None) -> None:
        """The write on its port."""
        getattr(self.dut, self.writes).value = self.layouts[self.writes].pack({**write, "valid": 1}) if write else 0

    async def step(self, read: dict[str, Any] | None = None, write: dict[str, Any] | None = None,
                   load: dict[str, Any] | None = None) -> bool:
        """A cycle; whether the load was taken: none is beside a write."""
        while self.settling and self.settling[0][0] <= self.cycle:      # what reads of this cycle see
            self.settling.popleft()[1]()
        self.show(read)
        if read is not None:
            outputs, flags = self.expected(read)
            self.due[self.cycle + self.latency] = outputs
            self.flags[self.cycle + self.unit.flag_latency] = sum(c for c, _ in flags), any(b for _, b in flags)
        self.put(write)
        if self.loads:
            self.dut.i_load__valid.value = load is not None
        if load is not None:
            self.dut.i_load__payload.value = self.layouts["i_load__payload"].pack(load)
        await self.edge
        taken = load is not None and not write
        assert load is None or self.dut.i_load__ready.value == taken, f"cycle {self.cycle}: a load, results {write}"
        for change, to in ((write, self.written), (load if taken else None, self.loaded)):
            if change:
                self.settling.append((self.cycle + self.unit.write_latency, partial(self._change, to, change)))
        self._judge()
        return taken

    def _change(self, to: Callable[[Any], Callable[[Any], object]], change: dict[str, Any]) -> None:
        """Flips where something was written are gone."""
        is_written = to(change)
        self.flipped = {place: bits for place, bits in self.flipped.items() if not is_written(place)}

    def misread(self, words: np.ndarray, bits: int) -> tuple[bool, bool]:
        """Two words as a codeword with those bits flipped is read; whether corrected, and whether that cannot be."""
        right = np.array([int(words[0]) | int(words[1]) << 32], np.uint64)
        data, corrected, bad = secded.decode(right ^ np.uint64(bits & (1 << 64) - 1),
                                             secded.encode(right) ^ np.uint8(bits >> 64))
        words[:] = int(data[0]) & 0xFFFFFFFF, int(data[0]) >> 32
        return bool(corrected[0]), bool(bad[0])

    def _judge(self) -> None:
        for name, want in self.due.pop(self.cycle, {}).items():
            got = words_of(getattr(self.dut, name).value, want.size)
            assert got == want.ravel().tolist(), f"cycle {self.cycle}: {name}"
        told = (int(self.dut.corrected.value), self.dut.uncorrectable.value == 1)
        assert told == self.flags.pop(self.cycle, (0, False)), f"cycle {self.cycle}: flags {told}"
        self.cycle += 1

    @property
    def corrected(self) -> int:
        """What the read of the last cycle will count."""
        return self.flags[self.cycle - 1 + self.unit.flag_latency][0]

    async def flush(self) -> None:
        for _ in range(self.unit.flag_latency + 1):
            await self.step()
        assert not self.due and not self.flags

    async def look(self) -> None:
        """At every line."""
        for line in range(self.lines):
            for read in self.reads(line):
                await self.step(read)

    def flip(self, place: tuple[int, ...], bits: int) -> None:
        """Turns bits of a codeword in the array over; when nothing is on its way."""
        memory, line = self.array(place), place[-1]
        memory[line].value = int(memory[line].value) ^ bits
        self.flipped[place] = bits

    def flip_all(self, line: int) -> None:
        """A bit of every codeword of a line."""
        for place in product(*map(range, self.codewords)):
            self.flip((*place, line), 1 << int(self.random.integers(72)))

    async def traffic(self, cycles: int, *, within: int = 0, reads: float = 1.0, writes: float = 0.5,
                      loads: float = 0.7) -> int:
        """Reads, writes and loads at once. Returns how many loads had to wait."""
        load, waited = None, 0
        for _ in range(cycles):
            read, write, another = self.random.random(3) < (reads, writes, loads * self.loads)
            if load is None and another:
                load = self.a_load(within)
            taken = await self.step(self.a_read(within) if read else None, self.a_write(within) if write else None,
                                    load)
            waited += load is not None and not taken
            load = None if taken else load
        return waited


# Tests of every memory.

async def random_traffic(dut: Any, kind: type[MemoryBench]) -> None:
    """Reads and writes of every kind in every cycle, on few lines so that they meet and on all, equal to the golden
    model; a read before a write has settled gives the old line."""
    bench = await kind.begin(dut, "traffic")
    await bench.traffic(bench.cycles, within=3)
    await bench.traffic(bench.cycles, reads=0.6, writes=0.5 if bench.loads else 1.0)
    await bench.flush()


async def latency(dut: Any, kind: type[MemoryBench], output: str) -> None:
    """Words come when the contract says; what is written or loaded is seen `write_latency` later, not before."""
    bench = await kind.begin(dut, "latency")
    unit, read = bench.unit, bench.counted(9)
    for way in ("write", "load")[:1 + bench.loads]:
        change, seen = bench.over(way, 9), []
        word = np.ravel(change["words"])[0]
        for cycle in range(bench.latency + unit.write_latency + 1):
            await bench.step(read if cycle <= unit.write_latency else None, **({way: change} if cycle == 0 else {}))
            if cycle >= bench.latency:
                seen.append(words_of(getattr(dut, output).value, 1)[0] == word)
        assert seen == [False] * unit.write_latency + [True]
        await bench.flush()
    # A read with nothing before or behind it.
    await bench.step(read)
    await bench.flush()


async def reset_with_flags_and_writes(dut: Any, kind: type[MemoryBench]) -> None:
    """Contents survive a reset; flags of reads before it do not come out behind it, nor does a write in the cycle of
    the reset or before go on."""
    bench = await kind.begin(dut, "reset")
    bench.flip((0,) * len(bench.codewords) + (5,), 0b11)
    for _ in range(bench.unit.flag_latency):
        await bench.step(bench.counted(5))
    await bench.step(write=bench.a_write())
    bench.put(bench.a_write())
    dut.rst.value = 1
    await bench.edge
    bench.idle()
    dut.rst.value = 0
    for kept in (bench.due, bench.flags, bench.settling):
        kept.clear()
    bench.cycle += 1
    way = "load" if bench.loads else "write"
    await bench.step(**{way: bench.over(way, 5)})
    await bench.look()
    await bench.flush()


async def flips(dut: Any, kind: type[MemoryBench]) -> None:
    """One flip is put right and counted where the read needs the codeword, two are told there, neither elsewhere; what
    is written again is whole."""
    bench = await kind.begin(dut, "flips")
    for _ in range(bench.rounds):
        for _ in range(16):
            place = *bench.random.integers(0, bench.codewords).tolist(), bench.within(4)
            if place not in bench.flipped:
                bench.flip(place, some_flips(bench.random))
        for _ in range(40):
            await bench.step(bench.a_read(4))
        for _ in range(3):
            await bench.step(write=bench.a_write(4))
            if bench.loads:
                await bench.step(load=bench.a_load(4))
        await bench.flush()


def some_flips(random: np.random.Generator) -> int:
    """One bit of a codeword, sometimes two."""
    bits, count = 0, int(random.choice([1, 1, 2]))
    while bits.bit_count() < count:
        bits |= 1 << int(random.integers(72))
    return bits
