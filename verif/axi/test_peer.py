"""The AXI engines against cocotbext-axi, whose slaves and master are by another hand: a second opinion.

What this project's own models share with the engines, a misread rule for example, they do not share with it.
"""

import warnings

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi.control import CTRL, IDLE, START, ControlSlave
from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa import EMB
from verif.axi.test_writer import OUTSTANDING, clients
from verif.bench import reset, rng, start
from verif.bench.memory import BASE
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import Sink, Source, bursty, sometimes

UNIT = None     # several units against another library

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus
    from cocotbext.axi.sparse_memory import SparseMemory

SIZE = 6 * 4096


def _pauses(channel, label):
    """Its generators say when to pause, ours when to go."""
    channel.set_pause_generator(not go for go in bursty(rng(label)))


@cocotb.test()
async def reader(dut):
    start(dut)
    dut.stop.value = 0
    draw = rng("reader")
    step = layout_of("bus__rdata").width // 8
    ram = AxiRamRead(AxiReadBus.from_prefix(dut, "bus", bus_separator="__"), dut.clk, dut.rst,
                     mem=SparseMemory(2**62))
    _pauses(ram.ar_channel, "ar")
    _pauses(ram.r_channel, "r")
    content = draw.randbytes(SIZE)
    ram.write(BASE, content)
    await reset(dut)
    source = Source(dut, "i_requests", pattern=sometimes(0.5, rng("i")))
    sink = Sink(dut, "o", pattern=sometimes(0.7, rng("o")))
    want = []
    for _ in range(120):
        count = draw.choice((1, 2, 4, draw.randint(1, 100)))
        first = draw.randrange(SIZE // step - count)
        source.put({"address": BASE + first * step, "beats": count})
        want += [{"data": int.from_bytes(content[(first + k) * step:(first + k + 1) * step], "little"), "error": 0,
                  "last": int(k == count - 1)} for k in range(count)]
    got = await sink.wait(len(want), cycles=20 * len(want))
    assert got == want
    await ClockCycles(dut.clk, 10)
    assert dut.idle.value == 1 and len(sink.beats) == len(want)


@cocotb.test()
async def writer(dut):
    start(dut)
    dut.stop.value = 0
    draw = rng("writer")
    step = layout_of("bus__wdata").width // 8
    ram = AxiRamWrite(AxiWriteBus.from_prefix(dut, "bus", bus_separator="__"), dut.clk, dut.rst,
                      mem=SparseMemory(2**62))
    for name in ("aw", "w", "b"):
        _pauses(getattr(ram, f"{name}_channel"), name)
    before = bytearray(draw.randbytes(SIZE))
    ram.write(BASE, bytes(before))
    await reset(dut)
    requests = [Source(dut, f"i_requests__{k}") for k in range(3)]
    data = [Source(dut, f"i_data__{k}", pattern=sometimes(0.6, rng(f"d{k}"))) for k in range(3)]
    owed = 0
    third = SIZE // step // 3
    for _ in range(90):
        client = draw.randrange(3)
        count = draw.choice((1, 2, 4, draw.randint(1, clients(step)[client])))
        first = client * third + draw.randrange(third - count)
        requests[client].put({"address": BASE + first * step, "beats": count})
        for k in range(count):
            word = draw.getrandbits(8 * step)
            data[client].put({"data": word})
            before[(first + k) * step:(first + k + 1) * step] = word.to_bytes(step, "little")
        owed += 1
    for _ in range(40_000):
        await RisingEdge(dut.clk)
        owed -= sum(getattr(dut, f"done__{k}").value == 1 for k in range(3))
        assert all(getattr(dut, f"error__{k}").value == 0 for k in range(3))
        if not owed:
            break
    assert not owed
    assert bytes(ram.read(BASE, SIZE)) == bytes(before)
    # One beat on either side of the buffer is as it was: nothing.
    assert not any(ram.read(BASE - step, step)) and not any(ram.read(BASE + SIZE, step))


@cocotb.test()
async def control(dut):
    start(dut)
    dut.done.value = 0
    dut.status.value = 0
    await reset(dut)
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus", bus_separator="__"), dut.clk, dut.rst)
    for channel in (master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                    master.read_if.ar_channel, master.read_if.r_channel):
        _pauses(channel, channel.__class__.__name__)
    draw = rng("control")
    values = {argument.name: draw.getrandbits(argument.bits) for argument in EMB.arguments}
    for argument in EMB.arguments:
        await master.write(argument.offset, values[argument.name].to_bytes(argument.bits // 8, "little"))
    for argument in EMB.arguments:
        got = await master.read(argument.offset, argument.bits // 8)
        assert int.from_bytes(got.data, "little") == values[argument.name], argument.name
    assert layout_of("arguments").unpack(int(dut.arguments.value)) == values
    # Single bytes, as its strobes write them.
    await master.write(EMB.arguments[0].offset + 1, b"\x5a")
    assert layout_of("arguments").unpack(int(dut.arguments.value))["program"] == (
        values["program"] & ~0xFF00 | 0x5A00)
    assert (await master.read_dword(CTRL)) == 1 << IDLE
    await master.write_dword(CTRL, 1 << START)
    assert (await master.read_dword(CTRL)) == 1 << START


@pytest.mark.turns(1, of="second opinions")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("second_opinion", unit="axi/reader")
def test_reader_against_another_memory(number):
    """The same requests against the memory model of an independent library."""
    simulate(Reader(beat_bytes=16, outstanding=128), "verif.axi.test_peer", name="axi_reader_16", tests=1,
             only=r"\.reader$", seed=number)


@pytest.mark.turns(1, of="second opinions")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("second_opinion", unit="axi/writer")
def test_writer_against_another_memory(number):
    """The same requests against the memory model of an independent library."""
    simulate(WritePort(beat_bytes=16, clients=clients(16), outstanding=OUTSTANDING), "verif.axi.test_peer",
             name="axi_writer_16", tests=1, only=r"\.writer$", seed=number)


@pytest.mark.turns(1, of="second opinions")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("second_opinion", unit="axi/control")
def test_control_against_another_master(number):
    """An independent library's AXI4-Lite master writes, reads back and starts."""
    simulate(ControlSlave(kernel=EMB), "verif.axi.test_peer", name="axi_control", tests=1, only=r"\.control$",
             seed=number)
