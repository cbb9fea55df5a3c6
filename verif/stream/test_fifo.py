"""The queue against its model, every output in every cycle: depths, memories, with a register and without."""

import os

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge

from golden.stream.fifo import Fifo as Model
from hw.stream.fifo import LUT_DEPTH, Fifo
from verif.bench import reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes

WIDTH = 40
SHAPE = data.StructLayout({"tag": 8, "words": data.ArrayLayout(16, 2)})
DEPTHS = {"least": 2, "lut": 8, "bare": 8, "block": 16, "parted": 16, "deep": 4 * LUT_DEPTH}
PARAMETERS = {
    "least": {"headroom": 2},
    "lut": {"headroom": 3},
    "bare": {"register": False, "headroom": 8},
    "block": {"block": True, "headroom": 6},
    "parted": {"block": True, "quick": 0x81_0000_1818},
    "deep": {"headroom": 14},
}


class Bench:
    """Drives both sides of the queue and its model, and compares all outputs in every cycle."""

    def __init__(self, dut):
        self.dut = dut
        name = os.environ["FIFO"]
        known = {key: value for key, value in PARAMETERS[name].items() if key in ("register", "headroom")}
        self.depth, self.registered = DEPTHS[name], known.get("register", True)
        self.model = Model(self.depth, **known)
        self.random = rng("payloads")
        self.pushed: list[int] = []
        self.left: list[int] = []
        self.most = 0

    async def cycle(self, valid: bool, ready: bool) -> None:
        """One clock edge, with a new payload if `valid` and the queue is ready."""
        dut, model = self.dut, self.model
        payload = self.random.getrandbits(WIDTH)
        dut.i__payload.value, dut.i__valid.value, dut.o__ready.value = payload, valid, ready
        await RisingEdge(dut.clk)
        shown = {"i.ready": int(dut.i__ready.value), "o.valid": int(dut.o__valid.value), "held": int(dut.held.value)}
        expected = {"i.ready": model.ready, "o.valid": model.o is not None, "held": model.held}
        if hasattr(dut, "room"):
            shown["room"], expected["room"] = int(dut.room.value), model.room
        if model.o is not None:
            shown["o"], expected["o"] = int(dut.o__payload.value), model.o
        assert shown == expected, f"{shown}, expected {expected}"
        enters, leaves = valid and model.ready, ready and model.o is not None
        if enters:
            self.pushed.append(payload)
        if leaves:
            self.left.append(model.o)
        model.step(payload if enters else None, leaves)
        self.most = max(self.most, len(model.inside) + (self.registered and model.o is not None))

    async def drain(self) -> None:
        """Takes what is inside; all that entered has left in order."""
        while self.model.held:
            await self.cycle(False, True)
        await self.cycle(False, True)
        assert self.left == self.pushed


async def fresh(dut) -> Bench:
    start(dut)
    dut.i__valid.value = dut.o__ready.value = 0
    await reset(dut)
    return Bench(dut)


@cocotb.test()
async def smoke(dut):
    """One payload enters, is shown as it entered and leaves."""
    bench = await fresh(dut)
    await bench.cycle(True, False)
    await bench.cycle(False, False)
    await bench.cycle(False, False)
    assert dut.o__payload.value == bench.pushed[0] and layout_of("o__payload").width == WIDTH
    await bench.drain()


@cocotb.test()
async def random_match_golden(dut):
    """Random pauses on both sides, at rates that keep the queue empty, half full and full; outputs as the model's."""
    bench = await fresh(dut)
    for came, taken in ((0.3, 0.7), (0.5, 0.5), (0.7, 0.3), (0.9, 0.9)):
        valid, ready = sometimes(came, rng(f"i {came}")), sometimes(taken, rng(f"o {taken}"))
        for _ in range(300):
            await bench.cycle(next(valid), next(ready))
    await bench.drain()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Pauses in bursts on both sides: nothing is lost, doubled or changed while it waits."""
    bench = await fresh(dut)
    valid, ready = bursty(rng("i"), 3 * bench.depth), bursty(rng("o"), 3 * bench.depth)
    for _ in range(40 * bench.depth):
        await bench.cycle(next(valid), next(ready))
    await bench.drain()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Two cycles from end to end, one without the register; then a payload a cycle."""
    bench = await fresh(dut)
    latency = 1 + bench.registered
    for number in range(100):
        await bench.cycle(True, True)
        assert len(bench.left) == max(0, number + 1 - latency)
    await bench.drain()


@cocotb.test()
async def reset_midstream(dut):
    """A reset of one cycle with the queue full, half full and with one payload: nothing comes out, the next payloads
    are whole."""
    bench = await fresh(dut)
    for count in (bench.depth + 4, bench.depth // 2, 1):
        for _ in range(count):
            await bench.cycle(True, False)
        await bench.cycle(False, False)
        await bench.cycle(False, True)
        dut.i__valid.value = dut.o__ready.value = 0
        await reset(dut, cycles=1)
        bench = Bench(dut)
        await bench.cycle(False, True)
        for _ in range(bench.depth + 2):
            await bench.cycle(True, bool(bench.random.getrandbits(1)))
        await bench.drain()


@cocotb.test()
async def corner_values(dut):
    """Filled to the last place and emptied: `depth` payloads and one in the register, `room` gone before."""
    bench = await fresh(dut)
    for _ in range(2):
        for _ in range(bench.depth + 4):
            await bench.cycle(True, False)
        assert bench.most == bench.depth + bench.registered
        for _ in range(3):
            await bench.cycle(True, True)
        await bench.drain()
    await ClockCycles(dut.clk, 2)
    assert dut.held.value == 0


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("number", seeds())
def test_fifo(number, name):
    simulate(Fifo(SHAPE, depth=DEPTHS[name], **PARAMETERS[name]), "verif.stream.test_fifo", name=f"fifo_{name}",
             tests=6, seed=number, env={"FIFO": name})


def test_illegal_config_wrong():
    """Depths, headrooms and memories that cannot be are refused with a sentence."""
    for depth in (12, 1, True):
        with pytest.raises(ValueError, match=f"depth must be a power of two of at least 2, not {depth}"):
            Fifo(8, depth=depth)
    for headroom in (0, 17):
        with pytest.raises(ValueError, match=f"headroom must be 1 to depth = 16 places, not {headroom}"):
            Fifo(8, depth=16, headroom=headroom)
    with pytest.raises(ValueError, match="register must be true in block memory, whose output is a register"):
        Fifo(8, depth=16, block=True, register=False)
