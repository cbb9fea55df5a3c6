"""The Hsiao decoder against the check matrix: every single and every double flip, and words without any."""
import cocotb
import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from golden import secded
from hw.secded import Decoder, encode
from verif.bench import rng, start
from verif.bench.runner import seeds, simulate

WAIVED = {
    "backpressure_both_sides":
        "The decoder follows a memory's read port and takes a word in every cycle; there is nothing to hold "
        "back.",
}

ALL_ONES = (1 << 64) - 1


class Codec(wiring.Component):
    """The decoder with an encoder before it and the flips of a broken memory in between."""

    data: In(64)
    flips: In(72)
    check: Out(8)
    o: Out(64)
    corrected: Out(1)
    uncorrectable: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder()
        check = Signal(8)
        m.d.comb += [
            check.eq(encode(self.data)), self.check.eq(check),
            decoder.codeword.eq(Cat(self.data, check) ^ self.flips),
            self.o.eq(decoder.data), self.corrected.eq(decoder.corrected),
            self.uncorrectable.eq(decoder.uncorrectable),
        ]
        return m


async def _clock(dut):
    """Starts the clock and lets one edge pass: the very first comes before anything driven is seen."""
    start(dut)
    edge = RisingEdge(dut.clk)
    await edge
    return edge


async def _through(dut, words, flips):
    """Feeds a word with its flips in every cycle; what comes out is judged against the golden model."""
    edge = await _clock(dut)
    words, flips = list(words), list(flips)
    checks = secded.encode(np.array(words, np.uint64))
    data = np.array([w ^ f & ALL_ONES for w, f in zip(words, flips)], np.uint64)
    check = np.array([int(c) ^ f >> 64 for c, f in zip(checks, flips)], np.uint8)
    want = list(zip(*(column.tolist() for column in secded.decode(data, check))))
    got = []
    for cycle in range(len(words) + Decoder.latency + 1):
        # A read right after an edge shows what stood before it: one cycle on top of the latency.
        if cycle < len(words):
            dut.data.value, dut.flips.value = words[cycle], flips[cycle]
        await edge
        if cycle < len(words):
            assert dut.check.value == int(checks[cycle]), f"check bits of {words[cycle]:#x}"
        if cycle >= Decoder.latency and len(got) < len(words):
            got.append((int(dut.o.value), dut.corrected.value == 1, dut.uncorrectable.value == 1))
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a == b, f"word {words[index]:#x} with flips {flips[index]:#x}: {a}, expected {b}"
    return got


@cocotb.test()
async def smoke(dut):
    """A good word, a corrected one and an uncorrectable one come out with the right flags."""
    got = await _through(dut, [0x0123456789ABCDEF] * 3, [0, 1 << 5, 0b11])
    assert got[0] == (0x0123456789ABCDEF, False, False)
    assert got[1] == (0x0123456789ABCDEF, True, False)
    assert got[2] == (0x0123456789ABCDEC, False, True)


@cocotb.test()
async def random_match_golden(dut):
    """Random words with none to four flips, data and flags equal to the golden model."""
    random = rng("words")
    words = [random.getrandbits(64) for _ in range(4000)]
    # Up to four flips: beyond two the code promises nothing, but hardware and golden must agree.
    flips = [sum({1 << random.randrange(72) for _ in range(random.randrange(5))}) for _ in words]
    await _through(dut, words, flips)


@cocotb.test()
@pytest.mark.testpoint("corner_values")
async def every_single_flip(dut):
    """Every position flipped alone is put right."""
    random = rng("single")
    words = [random.getrandbits(64) for _ in range(72)]
    got = await _through(dut, words, [1 << bit for bit in range(72)])
    assert got == [(word, True, False) for word in words]


@cocotb.test()
@pytest.mark.testpoint("corner_values")
async def every_double_flip(dut):
    """Every two positions flipped together are told."""
    random = rng("double")
    flips = [1 << a | 1 << b for a in range(72) for b in range(a)]
    words = [random.getrandbits(64) for _ in flips]
    got = await _through(dut, words, flips)
    assert got == [(word ^ flip & ALL_ONES, False, True) for word, flip in zip(words, flips)]


@cocotb.test()
async def corner_values(dut):
    """Zeros, ones, walking zeros and ones."""
    # An erased memory reads as a good zero; walking bits touch every column of the matrix.
    words = [0, ALL_ONES, *(1 << bit for bit in range(64)), *(ALL_ONES ^ 1 << bit for bit in range(64))]
    got = await _through(dut, words, [0] * len(words))
    assert got == [(word, False, False) for word in words]


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """One bad word between good ones shows in exactly one cycle, two after it was shown to the decoder."""
    edge = await _clock(dut)
    seen = []
    for cycle in range(12):
        dut.data.value, dut.flips.value = cycle, 1 << 7 if cycle == 4 else 0
        await edge
        seen.append(dut.corrected.value == 1)
    assert [cycle for cycle, flag in enumerate(seen) if flag] == [4 + secded.latency()]
    assert secded.latency() == Decoder.latency


@cocotb.test()
async def reset_midstream(dut):
    """A reset neither changes nor delays the words on their way, as the contract says."""
    edge = await _clock(dut)
    for cycle in range(20):
        dut.rst.value = 5 <= cycle < 9
        dut.data.value, dut.flips.value = 1000 + cycle, 1 << cycle
        await edge
        if cycle >= Decoder.latency:
            assert dut.o.value == 1000 + cycle - Decoder.latency and dut.corrected.value == 1


@pytest.mark.parametrize("number", seeds())
def test_secded(number):
    simulate(Codec(), "verif.test_secded", name="secded", tests=7, seed=number)


def test_illegal_config_wrong():
    """Encoding a word of another width is refused with a sentence."""
    with pytest.raises(ValueError, match="encode takes 64 data bits, not 32"):
        encode(Signal(32))
