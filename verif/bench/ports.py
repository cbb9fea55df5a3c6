"""How much of an AXI port the engines use: beats a cycle from the first beat to the last, ideal memory."""

import os

import cocotb
from cocotb.triggers import RisingEdge

from verif.bench import report, reset, rng, start
from verif.bench.axi import AxiMemory, CardMemory
from verif.bench.pack import layout_of
from verif.bench.stream import Sink, Source

SIZES = [int(size) for size in os.environ.get("HOTRAIL_BYTES", "64").split(",")]
LATENCY = int(os.environ.get("HOTRAIL_LATENCY", "100"))
BEATS = 4096  # of each measurement


async def _begin(dut, sources):
    start(dut)
    dut.stop.value = 0
    for source in sources:
        getattr(dut, f"{source}__valid").value = 0
    await reset(dut)


def _share(at: list[int]) -> float:
    return (len(at) - 1) / (at[-1] - at[0])


@cocotb.test()
async def reads(dut):
    """Rows of each size in random places, aligned to a beat: some of them lie in two pages."""
    await _begin(dut, ["i_requests"])
    draw = rng("rows")
    step = layout_of("bus__rdata").width // 8
    memory = CardMemory(step)
    rows = memory.allocate("rows", 64 * 4096, data=draw.randbytes(64 * 4096), writable=False)
    port = AxiMemory(dut, "bus", memory, latency=LATENCY)
    source, sink = Source(dut, "i_requests"), Sink(dut, "o", raw=True)
    shares = {}
    for size in SIZES:
        beats, seen = size // step, len(port.read_at)
        for _ in range(BEATS // beats):
            first = draw.randrange(rows.size // step - beats)
            source.put({"address": rows.address + first * step, "beats": beats})
        await sink.wait(seen + BEATS, cycles=100 * BEATS)
        shares[str(size)] = _share(port.read_at[seen:])
    memory.check()
    report(reads=shares)


@cocotb.test()
async def writes(dut):
    """Vectors of each size in random places, from two clients in turn."""
    await _begin(dut, [f"{name}__{k}" for name in ("i_requests", "i_data") for k in range(2)])
    draw = rng("vectors")
    step = layout_of("bus__wdata").width // 8
    memory = CardMemory(step)
    outputs = memory.allocate("outputs", 64 * 4096, readable=False)
    port = AxiMemory(dut, "bus", memory, latency=LATENCY)
    requests = [Source(dut, f"i_requests__{k}") for k in range(2)]
    data = [Source(dut, f"i_data__{k}") for k in range(2)]
    edge = RisingEdge(dut.clk)
    shares = {}
    for size in SIZES:
        beats, seen = size // step, len(port.written_at)
        for number in range(BEATS // beats):
            first = draw.randrange(outputs.size // step - beats)
            requests[number % 2].put({"address": outputs.address + first * step, "beats": beats})
            data[number % 2].put_raw(draw.getrandbits(8 * step) for _ in range(beats))
        for _ in range(100 * BEATS):
            await edge
            if len(port.written_at) == seen + BEATS and port.quiet:
                break
        assert len(port.written_at) == seen + BEATS
        shares[str(size)] = _share(port.written_at[seen:])
    memory.check()
    report(writes=shares)
