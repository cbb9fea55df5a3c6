"""UltraRAM with its own error correction, in lockstep with an array of words and the flips that it was given."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gen.rtl.primitives import models
from gen.rtl.verilog import convert
from hw.uram import LINES, ProtectedUram
from verif.bench import reset, rng, start
from verif.bench.runner import seeds, simulate

WAIVED = {
    "backpressure_both_sides": "Both ports are accessed in every cycle; nothing is ever held back.",
    "illegal_config_wrong": "The memory has no parameters: it is one UltraRAM, whatever is asked for.",
}

WORD = 64
CODEWORD = 72
GOOD = (False, False)
DOUBLE = (False, True)


class Bench:
    """Both ports in every cycle; all that is read is judged. `words`: by line; `flips`: stored wrong, by line."""

    def __init__(self, dut):
        self.dut, self.edge = dut, RisingEdge(dut.clk)
        self.words: dict[int, int] = {}
        self.flips: dict[int, int] = {}
        self.due: deque = deque([(None, None)] * ProtectedUram.latency)

    @classmethod
    async def begin(cls, dut):
        start(dut)
        bench = cls(dut)
        await reset(dut)
        await bench.edge
        return bench

    def _read(self, line):
        """The word as it is read and its flags; None where nothing is known of it."""
        if line not in self.words:
            return None
        flipped = self.flips.get(line, 0)
        if flipped.bit_count() < 2:
            return self.words[line], (flipped != 0, False)
        return None if flipped.bit_count() > 2 else (self.words[line] ^ flipped & (1 << WORD) - 1, DOUBLE)

    async def step(self, a=0, b=0, write=None, flips=0):
        """Reads line a by port a, and by port b reads line b or writes a word to it."""
        dut = self.dut
        dut.a_address.value, dut.b_address.value = a, b
        dut.write.value, dut.word.value, dut.flips.value = write is not None, write or 0, flips
        self.due.append((self._read(a), None if write is not None else self._read(b)))
        if write is not None:
            self.words[b] = write
            self.flips[b] = {0: 0, 1: 1 << 30, 2: 1 << 30, 3: 1 << 30 | 1 << 62}[flips]
        await self.edge
        for name, want in zip("ab", self.due.popleft(), strict=True):
            got = int(getattr(dut, name).value)
            if want is not None:
                word, flags = got & (1 << WORD) - 1, (bool(got >> WORD & 1), bool(got >> WORD + 1 & 1))
                assert (word, flags) == want, f"port {name}: {word:#x} {flags}, expected {want[0]:#x} {want[1]}"

    async def flush(self):
        for _ in range(ProtectedUram.latency + 1):
            await self.step()

    async def broken(self, line, bits):
        """Turns bits of a codeword over in the array, while nothing but line 0, which is not it, is on its way."""
        await self.flush()
        array = self.dut.uram.mem
        array[line].value = int(array[line].value) ^ bits
        self.flips[line] = self.flips[line] ^ bits
        await self.step()


@cocotb.test()
async def smoke(dut):
    """A word is written and read by both ports."""
    bench = await Bench.begin(dut)
    await bench.step(b=3, write=0x0123456789ABCDEF)
    await bench.step(a=3, b=3)
    await bench.flush()


@cocotb.test()
async def random_match_golden(dut):
    """Reads and writes in every cycle, on few lines so that they meet and on all; a read in the cycle of a write gets
    the old word, and flips that are asked for come out as flags."""
    random, bench = rng("traffic"), await Bench.begin(dut)
    for lines in (4, LINES):
        for _ in range(3000):
            write = random.getrandbits(WORD) if random.random() < 0.5 else None
            flips = random.choice((0, 0, 0, 1, 2, 3)) if write is not None else 0
            await bench.step(random.randrange(lines), random.randrange(lines), write, flips)
    await bench.flush()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A word comes `latency` cycles after its address, one a cycle from each port."""
    bench = await Bench.begin(dut)
    for line in range(8):
        await bench.step(b=line, write=line + 1)
    await bench.flush()
    dut.write.value, seen = 0, []
    for cycle in range(8 + ProtectedUram.latency):
        dut.a_address.value = dut.b_address.value = 7 - cycle % 8
        await bench.edge
        seen.append((int(dut.a.value), int(dut.b.value)))
    assert seen[ProtectedUram.latency:] == [(line + 1, line + 1) for line in reversed(range(8))]
    assert seen[ProtectedUram.latency - 1] == (1, 1)    # of line 0, which was read last before


@cocotb.test()
async def reset_midstream(dut):
    """A reset leaves contents, and words on their way, as they are."""
    bench = await Bench.begin(dut)
    await bench.step(b=9, write=77)
    dut.rst.value = 1
    for _ in range(6):
        await bench.step(a=9, b=9)
    dut.rst.value = 0
    await bench.flush()


@cocotb.test()
async def corner_values(dut):
    """No bit, every bit, all bits, in the first and the last line."""
    bench = await Bench.begin(dut)
    for word in (0, (1 << WORD) - 1, *(1 << bit for bit in range(WORD))):
        for line in (0, LINES - 1):
            await bench.step(a=LINES - 1 - line, b=line, write=word)
        await bench.step(a=0, b=LINES - 1)
    await bench.flush()


@cocotb.test()
@pytest.mark.testpoint("flipped_bits")
async def flipped_bits(dut):
    """Each of the 72 bits flipped alone is put right and counts as corrected; two are found wherever they are."""
    random, bench = rng("flips"), await Bench.begin(dut)
    pairs = [(1 << one | 1 << other) for one in range(CODEWORD) for other in range(one)]
    for bits in (*(1 << bit for bit in range(CODEWORD)), *random.sample(pairs, 400)):
        line = random.randrange(1, LINES)
        await bench.step(b=line, write=random.getrandbits(WORD))
        await bench.broken(line, bits)
        await bench.step(a=line, b=line)
    await bench.flush()


@pytest.mark.parametrize("number", seeds())
def test_uram(number):
    simulate(ProtectedUram(), "verif.test_uram", name="uram", tests=6, seed=number, memories=("mem",))


def test_the_model_is_used_where_the_primitive_is():
    """Simulators get the model of a primitive that is instantiated, and of no other."""
    texts, _ = convert(ProtectedUram())
    assert list(texts) == ["dut.v"]
    assert list(models(texts)) == ["URAM288.v"]
    assert models({"other.v": "module other;\nendmodule\n"}) == {}
