"""The stream parts against the identity, under every mix of pauses on both sides."""

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import ClockCycles, RisingEdge

from hw.stream.skid_buffer import SkidBuffer
from verif.bench import reset, rng, start
from verif.bench.parts import SkidBuffer as Model
from verif.bench.runner import seeds, simulate
from verif.bench.stream import Monitor, Scoreboard, Sink, Source, bursty, never, sometimes

SHAPE = data.StructLayout({"tag": 5, "words": data.ArrayLayout(32, 3)})


def _beats(count, random):
    return [
        {"tag": random.getrandbits(5), "words": [random.getrandbits(32) for _ in range(3)]}
        for _ in range(count)
    ]


async def _pass(dut, count, source_pattern=None, sink_pattern=None):
    start(dut)
    await reset(dut)
    board = Scoreboard()
    source = Source(dut, "i", pattern=source_pattern)
    sink = Sink(dut, "o", pattern=sink_pattern, on_beat=board.got)
    Monitor(dut, "i")
    beats = _beats(count, rng("beats"))
    board.expect(*beats)
    source.put(*beats)
    await sink.wait(count, cycles=40 * count + 100)
    await source.drained()
    await ClockCycles(dut.clk, 4)
    board.done()
    return source, sink


@cocotb.test()
async def smoke(dut):
    """One beat."""
    await _pass(dut, 1)


@cocotb.test()
async def random_match_golden(dut):
    """300 beats with random pauses on both sides come out as they went in."""
    await _pass(dut, 300, sometimes(0.5, rng("i")), sometimes(0.5, rng("o")))


@cocotb.test()
async def backpressure_both_sides(dut):
    """300 beats with pauses that come in bursts on both sides: none is lost, doubled or changed while it waits."""
    await _pass(dut, 300, bursty(rng("i")), bursty(rng("o")))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle, each one cycle later."""
    source, sink = await _pass(dut, 100)
    assert [b - a for a, b in zip(source.taken_at, sink.at)] == [1] * 100
    assert sink.at[-1] - sink.at[0] == 99


@cocotb.test()
@pytest.mark.testpoint("one_cycle_reset")
async def reset_midstream(dut):
    """A reset of one cycle with both registers full: nothing comes out, and the next beats are whole."""
    start(dut)
    await reset(dut)
    source = Source(dut, "i")
    source.put(*_beats(5, rng("before")))
    dut.o__ready.value = 0
    await ClockCycles(dut.clk, 6)
    assert dut.o__valid.value == 1
    source.stop()
    await RisingEdge(dut.clk)
    await reset(dut)
    await RisingEdge(dut.clk)
    assert dut.o__valid.value == 0 and dut.i__ready.value == 1
    await _pass(dut, 20)


@cocotb.test()
async def corner_values(dut):
    """A sink that is closed at first fills both registers: the second beat waits in the spare one."""
    source, sink = await _pass(dut, 8, None, never(10))
    assert source.taken_at[:2] == [1, 2] and source.taken_at[2] > 10


@cocotb.test()
@pytest.mark.testpoint("random_match_golden")
async def cycles_as_golden(dut):
    """Valid, payload and ready in every cycle as the model's, at rates that keep it empty, full and in between."""
    start(dut)
    dut.i__valid.value = dut.o__ready.value = 0
    await reset(dut)
    model, random = Model(), rng("cycles")
    for cycle in range(1200):
        rates = ((0.9, 0.3), (0.3, 0.9), (0.9, 0.9))[cycle // 400]
        offered, taken = (random.random() < rate for rate in rates)
        payload = random.getrandbits(101)
        dut.i__payload.value, dut.i__valid.value, dut.o__ready.value = payload, offered, taken
        await RisingEdge(dut.clk)
        assert (dut.i__ready.value, dut.o__valid.value) == (model.ready, model.o is not None)
        assert model.o is None or dut.o__payload.value == model.o
        model.step(payload if offered else None, taken and model.o is not None)


@pytest.mark.parametrize("number", seeds())
def test_skid_buffer(number):
    simulate(SkidBuffer(SHAPE), "verif.stream.test_skid_buffer", name="skid_buffer", tests=7, seed=number)


def test_illegal_config_wrong():
    """What is no shape is refused with a sentence."""
    with pytest.raises(TypeError, match="Object 'eight' cannot be converted to an Amaranth shape"):
        SkidBuffer("eight")
