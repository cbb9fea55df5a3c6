"""A host and a core's masters on one memory, all by another hand (cocotbext-axi), against an array of bytes.

The masters are AxiMasters whose ready signals of answers stay high, as those of hw.axi do.
"""

import warnings
from functools import partial
from logging import ERROR, getLogger

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from hw.f2.interconnect import Interconnect
from verif.bench import report, reset, rng, start
from verif.bench.axi import DECERR
from verif.bench.directed import fair_shares as equal
from verif.bench.driver import Driver
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.f2.shell import HOST_ID, ISSUED, LIMIT, TLP_BYTES, Deadlines, issue_all

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiBus, AxiMaster, AxiRam, AxiResp

BEAT, ADDRESS_BITS = 64, 20
SIZE = 1 << ADDRESS_BITS
PART = 8192     # bytes of the memory that are each port's own
PORTS = ("host", "m00_axi", "m01_axi")
WITHIN = {"timeout_time": 2, "timeout_unit": "ms"}     # many times the longest test's: the masters wait without end


class Bench:
    """Masters of all ports, which pause as `pattern` makes them, and a memory, which does as `slow` does."""

    def __init__(self, dut, pattern=None, slow=None):
        self.dut = dut
        self.host, *cores = self.masters = [
            AxiMaster(AxiBus.from_prefix(dut, name, bus_separator="__"), dut.clk, dut.rst,
                      max_burst_len=TLP_BYTES // BEAT if name == "host" else 64) for name in PORTS]
        self.memory = AxiRam(AxiBus.from_prefix(dut, "memory", bus_separator="__"), dut.clk, dut.rst, size=SIZE)
        self.content = bytearray(rng("content").randbytes(3 * PART))
        self.memory.write(0, bytes(self.content))
        self.read, self.write = ([partial(getattr(master, name), **{key: HOST_ID if master is self.host else 0})
                                  for master in self.masters] for name, key in (("read", "arid"), ("write", "awid")))
        for name, part, makes in (*zip(PORTS, self.masters, [pattern] * 3, strict=True), ("", self.memory, slow)):
            for side, channels in ((part.write_if, ("aw", "w", "b")), (part.read_if, ("ar", "r"))):
                for channel in channels if makes else ():
                    if part in cores and channel in ("b", "r"):
                        continue
                    getattr(side, f"{channel}_channel").set_pause_generator(
                        not go for go in makes(rng(f"{name} {channel}")))

    @classmethod
    async def begin(cls, dut, *arguments):
        getLogger("cocotb.dut").setLevel(ERROR)     # cocotbext-axi tells of every transfer that a reset ends
        start(dut)
        bench = cls(dut, *arguments)
        await reset(dut, 4)
        return bench

    async def traffic(self, number, rounds, longest=1200):
        """A port's own part, read and written in any length and at any byte by the host, in beats by a core."""
        draw, base = rng(f"port {number}"), number * PART
        step = 1 if number == 0 else BEAT
        for _ in range(rounds):
            at = base + step * draw.randrange(PART // step - 1)
            size = min(base + PART - at, step * draw.randint(1, longest // step))
            name = draw.getrandbits(13) if number == 0 else 0
            if draw.random() < 0.5:
                data = draw.randbytes(size)
                assert (await self.write[number](at, data, awid=name)).resp == AxiResp.OKAY
                self.content[at:at + size] = data
            else:
                read = await self.read[number](at, size, arid=name)
                assert read.resp == AxiResp.OKAY and read.data == self.content[at:at + size], f"{PORTS[number]} {at:#x}"

    async def all(self, rounds):
        for task in [cocotb.start_soon(self.traffic(number, rounds)) for number in range(3)]:
            await task
        assert self.memory.read(0, 3 * PART) == self.content
        assert not any(self.memory.read(3 * PART, PART)), "written behind all parts"


@cocotb.test(**WITHIN)
async def smoke(dut):
    """What one port writes the others read."""
    bench = await Bench.begin(dut)
    for writer, reader in ((0, 1), (1, 2), (2, 0)):
        data = bytes([*range(writer, 256), *range(writer)])
        await bench.write[writer](1024 * writer, data)
        assert (await bench.read[reader](1024 * writer, len(data))).data == data


@cocotb.test(**WITHIN)
async def random_match_golden(dut):
    """All ports at once: lengths, places and strobes of any kind by the host, bursts of whole beats by the core."""
    await (await Bench.begin(dut)).all(25)


@cocotb.test(**WITHIN)
async def top_values(dut):
    """The beats on both sides of every power of two, to the memory's last, by each port: no place is another one."""
    bench, draw = await Bench.begin(dut), rng("top")
    places = sorted({at for bit in range(12, ADDRESS_BITS + 1) for at in ((1 << bit) - BEAT, 1 << bit) if at < SIZE})
    for port in range(3):
        written = {at: draw.randbytes(BEAT) for at in places}
        for at, data in written.items():
            assert (await bench.write[port](at, data)).resp == AxiResp.OKAY
        for at, data in written.items():
            assert (await bench.read[port - 1](at, BEAT)).data == data == bench.memory.read(at, BEAT), hex(at)


@cocotb.test(**WITHIN)
async def backpressure_both_sides(dut):
    """The same while masters and memory pause at random, and in bursts."""
    await (await Bench.begin(dut, lambda r: sometimes(0.6, r), bursty)).all(12)


@cocotb.test(**WITHIN)
async def latency_and_rate_as_documented(dut):
    """Cycles from the host and from a core to the memory and back, a beat per cycle."""
    bench = await Bench.begin(dut)
    seen, edge = {}, RisingEdge(dut.clk)
    names = [f"{port}__{channel}" for port in (*PORTS, "memory") for channel in ("ar", "r", "aw", "w", "b")]

    def watch():
        cycle = 0
        while True:
            yield
            cycle += 1
            for name in names:
                if getattr(dut, f"{name}valid").value == 1 and getattr(dut, f"{name}ready").value == 1:
                    seen.setdefault(name, []).append(cycle)

    watching = Driver(watch(), dut.clk)
    for port, read, write, there, back in zip(PORTS, bench.read, bench.write, (2, 1, 1), (2, 1, 1), strict=True):
        seen.clear()
        await read(0, 64 * BEAT if port != "host" else 256)
        assert seen["memory__ar"][0] - seen[f"{port}__ar"][0] == there, f"{port}: {seen}"
        assert seen[f"{port}__r"][0] - seen["memory__r"][0] == back, f"{port}: {seen}"
        assert seen[f"{port}__r"][-1] - seen[f"{port}__r"][0] == len(seen[f"{port}__r"]) - 1, "a beat per cycle"
        seen.clear()
        await write(0, bytes(bench.content[:256]))
        assert seen["memory__w"][0] - seen[f"{port}__aw"][0] == there + 2, f"{port}: {seen}"
        assert seen[f"{port}__b"][0] - seen["memory__b"][0] == back, f"{port}: {seen}"
    watching.stop()
    await edge


@cocotb.test(**WITHIN)
@pytest.mark.testpoint("host_within_its_time")
async def host_within_its_time(dut):
    """32 reads and writes of the host at once, while both masters ask for as much as they can and the memory moves a
    beat in two cycles: all are answered within the 8 us after which the shell ends them, whose time runs from when the
    shell issues them, before the port shows them."""
    bench = await Bench.begin(dut, None, lambda r: sometimes(0.5, r))
    issue_all(bench.host)
    for channel, room in ((bench.memory.read_if.ar_channel, 64), (bench.memory.write_if.aw_channel, 64),
                          (bench.memory.write_if.w_channel, 4096)):
        channel.queue_occupancy_limit = room        # a memory that takes whatever it is asked
    going = True

    async def flood(number):
        at = number * PART
        while going:
            for task in [cocotb.start_soon(job) for job in (
                    *(bench.read[number](at, 64 * BEAT) for _ in range(4)),
                    *(bench.write[number](at, bytes(bench.content[at:at + 64 * BEAT])) for _ in range(4)))]:
                await task

    late = Deadlines(dut.clk, {
        "read": (dut.host__arvalid, dut.host__arready, dut.host__rvalid, dut.host__rready, dut.host__rlast),
        "write": (dut.host__awvalid, dut.host__awready, dut.host__bvalid, dut.host__bready, None)})
    most, cycle = {"r": 0, "b": 0}, 0

    def watch():
        """Beats of the core that the memory has to answer."""
        nonlocal cycle
        owed = {"r": 0, "b": 0}
        sizes = {1: [], 2: []}
        taken = lambda name: all(getattr(dut, f"memory__{name}{pin}").value == 1 for pin in ("valid", "ready"))
        source = lambda name: int(getattr(dut, f"memory__{name}id").value) >> 13 & 3
        while True:
            yield
            cycle += 1
            for address, answer in (("ar", "r"), ("aw", "b")):
                if taken(address) and (port := source(address)):
                    beats = int(getattr(dut, f"memory__{address}len").value) + 1
                    owed[answer] += beats
                    if answer == "b":
                        sizes[port].append(beats)
                if taken(answer) and (port := source(answer)):
                    owed[answer] -= sizes[port].pop(0) if answer == "b" else 1
                most[answer] = max(most[answer], owed[answer])

    watching = Driver(watch(), dut.clk)
    floods = [cocotb.start_soon(flood(number)) for number in (1, 2)]
    await ClockCycles(dut.clk, 300)
    began = cycle
    for task in [cocotb.start_soon(job) for _ in range(ISSUED) for job in (
            bench.read[0](0, TLP_BYTES), bench.write[0](TLP_BYTES, bytes(bench.content[TLP_BYTES:2 * TLP_BYTES])))]:
        await task
    took, going = cycle - began, False
    for task in floods:
        await task
    late.stop()
    watching.stop()
    assert 128 < most["r"] < 256 and 128 < most["b"] < 256, f"beats of the core in flight: {most}"
    assert took < 1000 < LIMIT, f"{took} cycles: 256 beats at half the rate, the host's own 128, and the way"
    assert [len(waits) for waits in late.waits.values()] == [ISSUED, ISSUED]
    report(together=took, worst={name: max(waits) for name, waits in late.waits.items()})


@cocotb.test(**WITHIN)
async def fair_shares(dut):
    """A core's ports ask without a pause: neither has more bursts granted than the other."""
    bench, edge, count = await Bench.begin(dut), RisingEdge(dut.clk), 16
    for channel, begin in (("ar", lambda port, at: bench.read[port](at, BEAT)),
                           ("aw", lambda port, at: bench.write[port](at, bytes(BEAT)))):
        tasks = [cocotb.start_soon(begin(port, port * PART + at * BEAT)) for at in range(count) for port in (1, 2)]
        counts = [0, 0]
        while max(counts) < count:
            await edge
            for number, name in enumerate(PORTS[1:]):
                counts[number] += all(getattr(dut, f"{name}__{channel}{pin}").value == 1 for pin in ("valid", "ready"))
        equal(counts, slack=2)
        for task in tasks:
            await task


@cocotb.test(**WITHIN)
async def reset_midstream(dut):
    """A reset of ports and memory at any time of bursts: the next ones are sound."""
    draw, bench = rng("when"), await Bench.begin(dut)
    for _ in range(6):
        tasks = [cocotb.start_soon(job) for number in range(3)
                 for job in (bench.read[number](0, 256), bench.write[number](0, bytes(bench.content[:256])))]
        await ClockCycles(dut.clk, draw.randint(1, 60))
        for task in tasks:
            task.cancel()
        await reset(dut, 3)
        assert all(getattr(dut, f"memory__{name}valid").value == 0 for name in ("ar", "aw", "w"))
        assert all(getattr(dut, f"{port}__{name}valid").value == 0 for port in PORTS for name in ("r", "b"))
        await bench.all(2)


@cocotb.test(**WITHIN)
@pytest.mark.testpoint("corner_values", "outside_of_the_memory")
async def corner_values(dut):
    """The last beat of the memory; every address bit above it is answered DECERR and writes nothing; single bytes; IDs
    come back."""
    bench = await Bench.begin(dut)
    last = SIZE - BEAT
    for read, write in zip(bench.read, bench.write, strict=True):
        assert (await write(last, b"\xA5" * BEAT)).resp == AxiResp.OKAY
        assert (await read(last, BEAT)).data == b"\xA5" * BEAT
        for bit in (ADDRESS_BITS, 41, 63):
            at = last - BEAT | 1 << bit
            assert (await write(at, b"\x5A" * BEAT)).resp == AxiResp.DECERR
            assert (await read(at, BEAT)).resp == AxiResp.DECERR
    assert not any(bench.memory.read(last - BEAT, BEAT))
    for byte in (0, BEAT - 1, BEAT):
        await bench.write[0](byte, b"\xC3")
        assert (await bench.read[0](byte, 1)).data == b"\xC3"


@cocotb.test(**WITHIN)
@pytest.mark.testpoint("any_order")
async def answers_in_any_order(dut):
    """A memory that answers the last first, with its own errors: each answer reaches who asked, with its ID."""
    start(dut)
    for name in PORTS:
        for pin in ("awvalid", "wvalid", "arvalid"):
            getattr(dut, f"{name}__{pin}").value = 0
        getattr(dut, f"{name}__rready").value = getattr(dut, f"{name}__bready").value = 1
    for pin in ("rvalid", "bvalid"):
        getattr(dut, f"memory__{pin}").value = 0
    for pin in ("arready", "awready", "wready"):
        getattr(dut, f"memory__{pin}").value = 1
    await reset(dut, 4)
    draw, edge = rng("order"), RisingEdge(dut.clk)
    for address, answer in 16 * (("ar", "r"), ("aw", "b")):
        asked = []
        for port in PORTS:
            number, beyond = draw.getrandbits(13) if port == "host" else 0, port == "m01_axi"
            pins = {f"{address}addr": beyond << draw.randrange(ADDRESS_BITS, 64), f"{address}len": 0,
                    f"{address}id": number, f"{address}valid": 1, "wvalid": address == "aw", "wlast": 1}
            for name, value in pins.items():
                getattr(dut, f"{port}__{name}").value = value
            await edge
            for name in ("awvalid", "arvalid", "wvalid"):
                getattr(dut, f"{port}__{name}").value = 0
            while not asked or asked[-1][0] != port:
                await edge
                if getattr(dut, f"memory__{address}valid").value == 1:
                    asked.append((port, int(getattr(dut, f"memory__{address}id").value), number))
        await ClockCycles(dut.clk, 6)       # the data as well
        for port, tag, number in reversed(asked):
            response = draw.choice((0, 2, DECERR))
            for name, value in {"id": tag, "resp": response, "valid": 1}.items():
                getattr(dut, f"memory__{answer}{name}").value = value
            dut.memory__rdata.value, dut.memory__rlast.value = 7, 1
            await edge
            getattr(dut, f"memory__{answer}valid").value = 0
            for _ in range(5):
                await edge
                if getattr(dut, f"{port}__{answer}valid").value == 1:
                    break
            got = {name: int(getattr(dut, f"{port}__{answer}{name}").value) for name in ("valid", "resp")}
            assert got == {"valid": 1, "resp": DECERR if port == "m01_axi" else response}, (port, got)
            assert answer == "b" or getattr(dut, f"{port}__rdata").value == 7
            assert port != "host" or getattr(dut, f"host__{answer}id").value == number


@cocotb.test(**WITHIN)
async def one_channel_stalled(dut):
    """Each channel of the memory, and the host's of answers, stands still for long while all ports ask for more than
    may be in flight; then all is answered."""
    bench = await Bench.begin(dut)
    issue_all(bench.host)
    for side, name in (*((bench.memory.write_if, name) for name in ("aw", "w", "b")),
                       *((bench.memory.read_if, name) for name in ("ar", "r")),
                       (bench.host.write_if, "b"), (bench.host.read_if, "r")):
        channel = getattr(side, f"{name}_channel")
        channel.pause = True
        written, tasks = {}, []
        for port, (read, write) in enumerate(zip(bench.read, bench.write, strict=True)):
            at = port * PART
            for number in range(20):
                written[at + BEAT * number] = data = rng(f"{name} {port} {number}").randbytes(BEAT)
                tasks.append(cocotb.start_soon(write(at + BEAT * number, data)))
                tasks.append(cocotb.start_soon(read(at + PART // 2, BEAT)))
        await ClockCycles(dut.clk, 150)
        channel.pause = False
        for task in tasks:
            assert (await task).resp == AxiResp.OKAY
        assert all(bench.memory.read(at, BEAT) == data for at, data in written.items()), f"{name} stood still"


@pytest.mark.turns(1, of="beside the product")
@pytest.mark.parametrize("number", seeds())
def test_interconnect(number):
    simulate(Interconnect(beat_bytes=BEAT, address_bits=ADDRESS_BITS), "verif.f2.test_interconnect",
             name="f2_interconnect", tests=11, seed=number)


@pytest.mark.parametrize("changes, message", [
    ({"beat_bytes": 12}, "beat_bytes must be one of 4, 8, 16, 32, 64 \\(32 to 512 bits\\), not 12"),
    ({"address_bits": 64}, "address_bits must be 13 to 63, not 64"),
    ({"core_beats": 700}, "core_beats must be a power of two of at least 128, not 700"),
])
def test_illegal_config_wrong(changes, message):
    """Sizes that no port or memory has are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        Interconnect(**{"beat_bytes": BEAT, "address_bits": ADDRESS_BITS, **changes})
