"""The write joiner against its model, cycle for cycle: vectors behind one another and elsewhere, pauses."""

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from hw.emb.write_joiner import WriteJoiner
from verif.bench import reset, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.emb.cycles import Joined, Vector
from verif.emb.cycles import WriteJoiner as Model

BEATS_MAX, BLOCK = 4, 16
WAIVED = {
    "backpressure_both_sides": "The unit takes a vector per cycle and never waits; there is room for what comes out.",
    "corner_values": "There is no arithmetic but that of places; their wrap at 2^32 beats is in random_match_golden.",
}


def vectors(random, count, *, behind=0.9, lasts=0.05, longest=BEATS_MAX):
    """Places of vectors, most of them where the one before ended; an instruction ends with the last."""
    at, found = int(random.integers(1 << 32)), []
    for _ in range(count):
        if random.random() > behind:
            at = int(random.choice([0, (1 << 32) - 3, int(random.integers(1 << 32))]))
        found.append(Vector(at, int(random.integers(1, longest + 1)), bool(random.random() < lasts)))
        at = (at + found[-1].beats) % (1 << 32)
    found[-1] = found[-1]._replace(last=True)
    return found


class Bench:
    """The unit and its model, edge by edge."""

    def __init__(self, dut):
        self.dut, self.model = dut, Model(block_beats=BLOCK)
        self.pack, self.unpack = layout_of("i").pack, layout_of("o").unpack
        self.cycle = 0
        self.out, self.at = [], []

    async def step(self, vector=None):
        dut = self.dut
        dut.valid.value = vector is not None
        dut.i.value = self.pack({"out": 5, "beats": 0, "last": 1} if vector is None else
                                {"out": vector.out, "beats": vector.beats - 1, "last": vector.last})
        await RisingEdge(dut.clk)
        shown = Joined(**self.unpack(int(dut.o.value))) if dut.o_valid.value == 1 else None
        assert shown == self.model.o, f"cycle {self.cycle}: {shown}, expected {self.model.o}"
        self.model.step(vector)
        if shown is not None:
            self.out.append(shown)
            self.at.append(self.cycle)
        self.cycle += 1

    async def drain(self):
        for _ in range(6):
            await self.step()

    def judge(self, given):
        """Everything came out once and in order, nothing is joined that does not lie behind what is before it."""
        at = 0
        for joined in self.out:
            mine, at = given[at:at + joined.bags], at + joined.bags
            ends = [(one.out + one.beats) % (1 << 32) for one in mine]
            assert joined.out == mine[0].out and joined.beats == sum(one.beats for one in mine)
            assert [one.out for one in mine[1:]] == ends[:-1]
            assert joined.last == mine[-1].last and not any(one.last for one in mine[:-1])
            assert {end // BLOCK for end in ends[:-1]} <= {joined.out // BLOCK}, "joined behind the end of a block"
        assert at == len(given)


async def begin(dut):
    start(dut)
    dut.valid.value = dut.i.value = 0
    await reset(dut)
    return Bench(dut)


@cocotb.test()
async def smoke(dut):
    """Three vectors behind one another are one write, however late the last of them comes."""
    bench = await begin(dut)
    given = [Vector(32, 4, False), Vector(36, 4, False), Vector(40, 2, True)]
    for vector in given:
        await bench.drain()
        await bench.step(vector)
    await bench.drain()
    assert bench.out == [Joined(32, 10, 3, True)]


@cocotb.test()
async def random_match_golden(dut):
    """Thousands of vectors, most behind one another, some past the last beat of 2^32; with pauses."""
    random = np.random.default_rng(seed("vectors"))
    for pause in (0, 0.5, 0.8):
        bench = await begin(dut)
        given = vectors(random, 1500)
        for vector in given:
            while random.random() < pause:
                await bench.step()
            await bench.step(vector)
        await bench.drain()
        bench.judge(given)
        assert any(one.bags > 1 for one in bench.out) and any(one.bags == 1 for one in bench.out)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A vector per cycle. 3 cycles behind the end of a block or of an instruction, 2 behind a vector that lies
    elsewhere."""
    bench = await begin(dut)
    for out, last in ((0, False), (4, False), (8, False), (12, False), (99, False), (103, True), (7, False),
                      (50, False), (54, True)):
        await bench.step(Vector(out, 4, last))
    await bench.drain()
    # The block ends with the vector of cycle 3, the instruction with those of 5 and 8; that of 7 lies elsewhere.
    assert bench.out == [Joined(0, 16, 4, False), Joined(99, 8, 2, True), Joined(7, 4, 1, False),
                         Joined(50, 8, 2, True)]
    assert bench.at == [3 + 3, 5 + 3, 7 + 2, 8 + 3]


@cocotb.test()
async def reset_midstream(dut):
    """What is held is dropped: a vector that would lie behind it is not joined."""
    random = np.random.default_rng(seed("reset"))
    bench = await begin(dut)
    for vector in vectors(random, 20, lasts=0)[:-1]:
        await bench.step(vector)
    await bench.step(Vector(32, 4, False))
    await bench.drain()
    bench = await begin(dut)
    await bench.step(Vector(36, 4, True))
    await bench.drain()
    assert bench.out == [Joined(36, 4, 1, True)]
    # Resets of one and two cycles in any state: from the first cycle on as the model of a unit that holds nothing.
    for number in range(40):
        bench = Bench(dut)
        given = vectors(random, int(random.integers(1, 12)))
        for vector in given:
            await bench.step(vector)
        for _ in range(number % 5):
            await bench.step()
        await reset(dut, 1 + number % 2)
    bench = Bench(dut)
    given = vectors(random, 100)
    for vector in given:
        await bench.step(vector)
    await bench.drain()
    bench.judge(given)


@pytest.mark.parametrize("number", seeds())
def test_write_joiner(number):
    simulate(WriteJoiner(beats_max=BEATS_MAX, block_beats=BLOCK), "verif.emb.test_write_joiner",
             name="emb_write_joiner", tests=4, seed=number)


@pytest.mark.testpoint("illegal_config_wrong")
@pytest.mark.parametrize("sizes,named", [
    ({"beats_max": 3, "block_beats": 16}, "beats_max must be a power of two from 1 to 256, not 3"),
    ({"beats_max": 32, "block_beats": 16}, "block_beats must be a power of two from 32 to 256, not 16"),
    ({"beats_max": 4, "block_beats": 16.0}, "block_beats must be a power of two from 4 to 256, not 16.0"),
])
def test_wrong_sizes(sizes, named):
    """Sizes that are no powers of two, and a block that is shorter than a vector."""
    with pytest.raises(ValueError, match=f"^{named}$"):
        WriteJoiner(**sizes)
