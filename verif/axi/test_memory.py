"""The memory model itself: it answers as it should, and every rule of the bus that it watches is told when broken."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from hw.axi.bus import AXI4
from verif.bench import reset, start
from verif.bench.axi import DECERR, OKAY, SLVERR, AxiMemory, AxiRule, CardMemory
from verif.bench.memory import BASE
from verif.bench.runner import simulate

UNIT = None     # the bench's own memory

STEP = 8
EVERY = (1 << STEP) - 1


class Wires(wiring.Component):
    """What the bench drives at `i` stands on the bus: a master that can do anything wrong."""

    i: In(AXI4(8 * STEP))
    bus: Out(AXI4(8 * STEP))

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.bus))
        return m


class Master:
    """Sound defaults; a test changes what it wants to be wrong."""

    def __init__(self, dut, **settings):
        self.dut = dut
        self.memory = CardMemory(STEP)
        self.buffer = self.memory.allocate("it", 2 * 4096, data=bytes(2 * 4096))
        self.port = AxiMemory(dut, "bus", self.memory, **settings)
        self.set(arvalid=0, awvalid=0, wvalid=0, rready=1, bready=1)
        for channel in ("ar", "aw"):
            self.set(**{channel + name: value for name, value in
                        (("burst", 1), ("size", 3), ("id", 0), ("lock", 0), ("cache", 3), ("prot", 0), ("qos", 0),
                         ("region", 0), ("len", 0))})
        self.set(wstrb=EVERY, wlast=1)

    def set(self, **values):
        for name, value in values.items():
            getattr(self.dut, f"i__{name}").value = value

    async def cycle(self, count=1):
        await ClockCycles(self.dut.clk, count)


async def _begin(dut, **settings):
    start(dut)
    await reset(dut)
    return Master(dut, **settings)


async def _address(master, channel, offset=0, **fields):
    """One cycle of an address that the memory takes at once."""
    master.set(**{f"{channel}addr": master.buffer.address + offset, f"{channel}valid": 1},
               **{channel + name: value for name, value in fields.items()})
    await master.cycle()
    master.set(**{f"{channel}valid": 0})


def never():
    while True:
        yield False


ADDRESSES = {
    "odd": {"offset": 4},
    "page": {"offset": 4096 - 2 * STEP, "len": 2},
    "burst": {"burst": 2},
    "size": {"size": 2},
    "id": {"id": 1},
    "lock": {"lock": 1},
    "prot": {"prot": 2},
    "cache": {"cache": 15},
    "qos": {"qos": 1},
    "region": {"region": 8},
}


@cocotb.test(expect_error=AxiRule)
@cocotb.parametrize(channel=["ar", "aw"], what=list(ADDRESSES))
async def wrong_address(dut, channel, what):
    """Not a multiple of the beat, across a page, a burst of another kind, width, thread, access or memory."""
    master = await _begin(dut)
    await _address(master, channel, **ADDRESSES[what])
    await master.cycle(3)


@cocotb.test(expect_error=AxiRule)
@cocotb.parametrize(channel=["ar", "aw"], what=["falls", "moves", "grows"])
async def unsteady_address(dut, channel, what):
    master = await _begin(dut, stalls={channel: never()})
    base = master.buffer.address
    master.set(**{f"{channel}valid": 1, f"{channel}addr": base})
    await master.cycle(2)
    master.set(**{"falls": {f"{channel}valid": 0}, "moves": {f"{channel}addr": base + STEP},
                  "grows": {f"{channel}len": 1}}[what])
    await master.cycle(3)


@cocotb.test(expect_error=AxiRule)
@cocotb.parametrize(what=["strobe", "early", "late", "before", "falls", "changes"])
async def wrong_data(dut, what):
    """A strobe that is low, wlast too early or too late, data before their address, data that do not stand still."""
    master = await _begin(dut, stalls={"w": never()} if what in ("falls", "changes") else None)
    if what != "before":
        await _address(master, "aw", len=1)
    master.set(wvalid=1, wdata=5, wlast=int(what == "early"), wstrb=EVERY - 4 * (what == "strobe"))
    await master.cycle(2 if what != "late" else 3)
    if what == "falls":
        master.set(wvalid=0)
    if what == "changes":
        master.set(wdata=6)
    await master.cycle(3)


@cocotb.test()
async def answers(dut):
    """Data, responses, latency and faults by number and by address."""
    master = await _begin(dut, latency=5)
    memory, port = master.memory, master.port
    base = master.buffer.address
    memory.write(base, bytes(range(64)))
    edge = RisingEdge(dut.clk)

    async def read(offset, beats):
        await _address(master, "ar", offset, len=beats - 1)
        taken, got = 1, []
        for cycle in range(1, 40):
            await edge
            if dut.i__rvalid.value == 1:
                taken = taken if got else cycle
                got.append((int(dut.i__rdata.value), int(dut.i__rresp.value), int(dut.i__rlast.value)))
        return taken, got

    async def write(offset, values):
        await _address(master, "aw", offset, len=len(values) - 1)
        for number, value in enumerate(values):
            master.set(wvalid=1, wdata=value, wlast=int(number == len(values) - 1))
            await edge
        master.set(wvalid=0)
        for cycle in range(1, 40):
            await edge
            if dut.i__bvalid.value == 1:
                return cycle, int(dut.i__bresp.value)
        raise AssertionError("no response")

    word = [int.from_bytes(bytes(range(8 * k, 8 * k + 8)), "little") for k in range(8)]
    assert await read(8, 3) == (5, [(word[1], OKAY, 0), (word[2], OKAY, 0), (word[3], OKAY, 1)])
    assert await write(16, [7, 8]) == (5, OKAY)
    assert memory.read(base + 16, 16) == (7).to_bytes(8, "little") + (8).to_bytes(8, "little")
    port.fail_read[4], port.fail_write[1] = DECERR, SLVERR
    port.wrong_rlast.add(5)
    _, got = await read(32, 3)
    assert [(response, last) for _, response, last in got] == [(OKAY, 0), (DECERR, 0), (OKAY, 0)]
    assert got[0][0] == word[4] and got[1][0] != word[5]
    assert await write(0, [1]) == (5, SLVERR)
    memory.fail(base + 40, response=DECERR, reads=False)
    assert await write(40, [9]) == (5, DECERR) and memory.read(base + 40, 1) == bytes([40])
    _, got = await read(40, 1)
    assert got == [(word[5], OKAY, 1)]
    memory.check()
    assert port.quiet and port.reads == [(base + 8, 3), (base + 32, 3), (base + 40, 1)]
    # What no buffer holds is refused and remembered.
    _, got = await read(2 * 4096, 1)
    assert got[0][1] == DECERR and await write(2 * 4096, [3]) == (5, DECERR)
    assert len(memory.violations) == 2


def test_rules():
    simulate(Wires(), "verif.axi.test_memory", name="axi_memory", tests=2 * len(ADDRESSES) + 6 + 6 + 1)


def test_never_written():
    memory = CardMemory(16, BASE)
    buffer = memory.allocate("half", 64)
    assert memory.load(buffer.address)[1] == SLVERR
    memory.write(buffer.address + 16, bytes(12))
    assert memory.load(buffer.address + 16)[1] == SLVERR, "four bytes of it were never written"
    memory.write(buffer.address + 28, b"\x01\x02\x03\x04")
    data, response = memory.load(buffer.address + 16)
    assert response == OKAY and data >> 96 == 0x04030201
    assert memory.store(buffer.address, 5) == OKAY and memory.load(buffer.address) == (5, OKAY)
    with pytest.raises(AssertionError, match=f"read at {BASE:#x} in half of what was never written"):
        memory.check()


def test_buffers():
    memory = CardMemory(16, BASE)
    first = memory.allocate("first", 100, writable=False, data=bytes(112))
    second = memory.allocate("second", 32, readable=False, offset=64)
    assert first.address == BASE and second.address == first.address + 2 * 4096 + 64
    assert memory.load(first.address + 80)[1] == OKAY
    assert memory.load(first.address + 96)[1] == DECERR, "the buffer ends within that beat"
    assert memory.store(first.address, 0) == DECERR and memory.load(second.address)[1] == DECERR
    assert memory.store(second.address + 16, 1) == OKAY and memory.store(second.address + 32, 1) == DECERR
    with pytest.raises(AssertionError, match="in no readable buffer; write of 16 bytes .* in no writable buffer"):
        memory.check()
    memory.fail(first.address + 5)
    assert memory.load(first.address)[1] == SLVERR and memory.load(first.address + 16)[1] == OKAY
    memory.heal()
    assert memory.load(first.address)[1] == OKAY
