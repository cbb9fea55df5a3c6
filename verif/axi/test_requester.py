"""Requests for runs and rows against the model, every output in every cycle, and the beats that they add up to."""

import os

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from hw.axi.bus import request_layout
from hw.axi.requester import REQUEST_LOG2, request_beats
from verif.bench import reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.parts import Requester as Model
from verif.bench.runner import seeds, simulate

WAIVED = {"illegal_config_wrong": "Any shape of its operands is allowed, so that there is nothing to refuse."}
BEAT_BYTES = 16
REQUEST = 1 << REQUEST_LOG2


class Asker(wiring.Component):
    """Members: start, address, span, hold  In; less_one, stride  In, with rows; o  Out(stream); asking  Out"""

    def __init__(self, *, rows: bool):
        self.rows = rows
        super().__init__({
            "start": In(1), "address": In(64), "span": In(20), "hold": In(1), "less_one": In(5), "stride": In(17),
            "o": Out(stream.Signature(request_layout())), "asking": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.asking.eq(request_beats(
            m, self.o, start=self.start, address=self.address, span=self.span, beat_bytes=BEAT_BYTES, hold=self.hold,
            rows=(self.less_one, self.stride) if self.rows else None))
        return m


class Bench:
    """Drives the requester and its model, and compares all outputs in every cycle."""

    def __init__(self, dut):
        self.dut, self.model = dut, Model()
        self.layout = layout_of("o__payload")
        self.asked: list[tuple[int, int]] = []

    async def cycle(self, run: tuple[int, int, int, int] | None = None, *, ready: bool = True, hold: bool = False):
        """One clock edge; run: (address in beats, span, less_one, stride) to start with."""
        dut, model = self.dut, self.model
        address, span, less_one, stride = run or (0, 0, 0, 0)
        dut.start.value, dut.address.value, dut.span.value = run is not None, address * BEAT_BYTES, span
        dut.less_one.value, dut.stride.value, dut.hold.value, dut.o__ready.value = less_one, stride, hold, ready
        await RisingEdge(dut.clk)
        assert (dut.asking.value, dut.o__valid.value) == (model.asking, model.request is not None)
        if model.request is not None:
            got = self.layout.unpack(int(dut.o__payload.value))
            assert (got["address"] // BEAT_BYTES, got["beats"]) == model.request
            if ready:
                self.asked.append(model.request)
        model.step(run, taken=ready and model.request is not None, hold=hold)

    async def ask(self, address: int, span: int, less_one: int = 0, stride: int = 0, *, ready=None, hold=None) -> int:
        """A run or rows to their end; the cycles until the last request has left. ready, hold: probabilities."""
        random, cycles = rng(f"{address} {span}"), 0
        self.asked = []
        await self.cycle((address, span, less_one, stride))
        while self.model.asking or self.model.request:
            await self.cycle(ready=ready is None or random.random() < ready, hold=hold is not None and
                             random.random() < hold)
            cycles += 1
        if less_one:
            assert self.asked == [(address + at * stride, span) for at in range(less_one + 1)]
        else:
            assert self.asked == [(at, min(REQUEST, address + span - at))
                                  for at in range(address, address + span, REQUEST)]
        return cycles


async def fresh(dut) -> Bench:
    start(dut)
    dut.start.value = 0
    await reset(dut)
    return Bench(dut)


def drawn(random) -> tuple[int, int, int, int]:
    """A run of any length, or rows if the requester knows them."""
    address = random.getrandbits(40)
    if os.environ["ROWS"] == "1" and random.getrandbits(1):
        return address, random.randrange(1, 2000), random.randrange(1, 32), random.getrandbits(17)
    return address, random.choice([random.getrandbits(6), random.getrandbits(20)]), 0, random.getrandbits(17)


@cocotb.test()
async def smoke(dut):
    """Five beats are one request."""
    bench = await fresh(dut)
    await bench.ask(100, 5)
    assert bench.asked == [(100, 5)]


@cocotb.test()
async def random_match_golden(dut):
    """Runs and rows one behind the other, with pauses of the port and holds."""
    bench = await fresh(dut)
    for _ in range(60):
        await bench.ask(*drawn(rng(f"run {_}")), ready=0.6, hold=0.2)


@cocotb.test()
async def backpressure_both_sides(dut):
    """A port that is slow or closed for long, and a run that begins as soon as the one before may still stand there."""
    bench = await fresh(dut)
    for number in range(60):
        random = rng(f"pressure {number}")
        await bench.cycle(drawn(random), ready=False)
        while bench.model.asking:
            await bench.cycle(ready=random.random() < 0.2)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The first request two cycles after the start, then one a cycle; a whole last request costs a cycle more."""
    bench = await fresh(dut)
    for span, requests in ((1, 1), (REQUEST - 1, 1), (7 * REQUEST + 3, 8)):
        assert await bench.ask(0, span) == requests + 1
    assert await bench.ask(0, REQUEST) == 2
    if os.environ["ROWS"] == "1":
        assert await bench.ask(0, 3, 9, 5) == 11


@cocotb.test()
async def reset_midstream(dut):
    """A reset in the midst of a long run: nothing more is asked for, and the next run is whole."""
    bench = await fresh(dut)
    for cycles in range(4):
        await bench.cycle((5, 20 * REQUEST, 0, 0))
        for _ in range(cycles):
            await bench.cycle(ready=bool(cycles & 1))
        dut.start.value = 0
        await reset(dut)
        bench = Bench(dut)
        await bench.cycle()
        await bench.ask(9, REQUEST + 1)


@cocotb.test()
async def corner_values(dut):
    """No beats, one, around one and two longest requests, the longest run, the last address; a run given up."""
    bench = await fresh(dut)
    for span in (0, 1, REQUEST - 1, REQUEST, REQUEST + 1, 2 * REQUEST - 1, 2 * REQUEST, (1 << 20) - 1):
        await bench.ask((1 << 60) - 1 - span, span)
    await bench.cycle((0, 9 * REQUEST, 0, 0))
    await bench.cycle()
    await bench.cycle()
    await bench.cycle((77, 3, 0, 0), ready=False)
    bench.asked = []
    while bench.model.asking or bench.model.request:
        await bench.cycle()
    assert bench.asked[-1] == (77, 3) and len(bench.asked) <= 2


@pytest.mark.turns(1)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("number", seeds())
def test_requester(number, rows):
    simulate(Asker(rows=rows), "verif.axi.test_requester", name=f"axi_requester_{int(rows)}", tests=6, seed=number,
             env={"ROWS": int(rows)})
