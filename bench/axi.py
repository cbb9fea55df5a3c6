"""What the AXI engines get out of a port, and what they cost."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Out, connect, flipped

from bench.card import stream_cycles
from bench.framework import Row, at_least, at_most, bench, figure
from bench.streams import BEAT_BYTES, READ, READ_OTHER, WRITE, Streams
from fpga.card import Device
from fpga.card import open as open_card
from fpga.synth.map import MAX_CHAINS, MAX_LEVELS, synthesise
from gen.base.tools import build_folder
from gen.rtl import config
from gen.rtl.play import Phase, build
from gen.rtl.verilog import convert
from hw.axi.control import ControlSlave
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa import EMB

LATENCY = 100
ROW_BYTES = (64, 128, 256, 512, 1024, 2048)
BEATS = 4096             # of each measurement
ROWS_BYTES = 64 * 4096   # that they lie in
SHARE = 95  # per cent of the port's beats, of what the card's memory can give
STREAM_BEATS = 16_384
STREAMS = {
    "read": ("one read", (READ,)),
    "write": ("one written", (WRITE,)),
    "reads": ("one read by each port", (READ, READ_OTHER)),
    "copy": ("one read and one written", (READ, WRITE)),
    "all": ("two read and one written", (READ, READ_OTHER, WRITE)),
}


def _engines() -> dict[str, tuple[str, Any]]:
    """The engines as the shipping core has them."""
    emb = config.load("smartssd").cores["emb"]
    beat = emb.beat_bytes
    return {
        "reader": (f"row port, {emb.rows_in_flight} bursts in flight",
                   Reader(beat_bytes=beat, outstanding=emb.rows_in_flight)),
        "port": ("read port of five clients",
                 ReadPort(beat_bytes=beat, outstanding=emb.reads_in_flight,
                          clients=(emb.program_beats, *[emb.input_beats] * 3, 1))),
        "writer": ("write port of three clients, 512-bit selection included",
                   WritePort(beat_bytes=beat, outstanding=emb.writes_in_flight, clients=(emb.output_beats,) * 3)),
        "control": ("control slave", ControlSlave(kernel=EMB)),
    }


class IdealMemory(wiring.Component):
    """A master before memory that takes every address at once and answers it `latency` cycles later, without a pause.

    Members     the master's streams; beat  Out  a beat of data is transferred
    """

    def __init__(self, master: Any, latency: int):
        self._master, self._latency = master, latency
        streams = {name: member for name, member in master.signature.members.items() if name.startswith(("i_", "o"))}
        super().__init__({**streams, "beat": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.master = master = self._master
        for name in self.signature.members:
            if name != "beat":
                ports = getattr(self, name), getattr(master, name)
                for own, inner in zip(*(p if isinstance(p, list) else [p] for p in ports), strict=True):
                    connect(m, flipped(own), inner)
        bus = master.bus
        # What is answered: a burst with its length, or a burst whose data has come.
        asked = Cat(bus.arvalid, bus.arlen) if bus.signature.reads else bus.wvalid & bus.wlast
        for stage in range(self._latency - 1):
            later = Signal(len(asked), name=f"after_{stage}")
            m.d.sync += later.eq(asked)
            asked = later
        m.submodules.due = due = SyncFIFO(width=len(asked), depth=256)
        m.d.comb += [due.w_en.eq(asked[0]), due.w_data.eq(asked)]
        if bus.signature.reads:
            at = Signal(8)
            m.d.comb += [
                bus.arready.eq(1),
                bus.rvalid.eq(due.r_rdy),
                bus.rlast.eq(at == due.r_data[1:]),
                self.beat.eq(bus.rvalid & bus.rready),
                due.r_en.eq(self.beat & bus.rlast),
            ]
            with m.If(self.beat):
                m.d.sync += at.eq(Mux(bus.rlast, 0, at + 1))
        else:
            m.d.comb += [
                bus.awready.eq(1),
                bus.wready.eq(1),
                bus.bvalid.eq(due.r_rdy),
                self.beat.eq(bus.wvalid),
                due.r_en.eq(bus.bready),
            ]
        return m


def _shares(name: str, master: Any, sizes: Sequence[int], clients: Sequence[str]) -> list[float]:
    """Of the port's beats, from the first to the last, for rows of each size in random places."""
    random = np.random.default_rng(1)
    step = master.beat_bytes
    player = build(IdealMemory(master, LATENCY), f"bench_axi_{name}")
    phases = []
    for size in sizes:
        beats = size // step
        put: dict[str, list[int]] = {}
        for client in clients:
            count = BEATS // beats // len(clients)
            rows = random.integers(ROWS_BYTES // step - beats, size=count) * step
            put[f"i_requests{client}"] = player.packed(
                f"i_requests{client}", ({"address": int(row), "beats": beats} for row in rows))
            if client:
                put[f"i_data{client}"] = [0] * (count * beats)
        phases.append(Phase(put, rest=2 * BEATS))     # until the last beat is there
    done = player.play(phases, samples=["beat"])
    at = np.flatnonzero(done.samples["beat"][:, 0])
    counts = [BEATS // (size // step) * (size // step) for size in sizes]
    assert len(at) == sum(counts), f"{len(at)} beats, not {sum(counts)}"
    return [round(100 * (len(mine) - 1) / int(mine[-1] - mine[0]), 1)
            for mine in np.split(at, np.cumsum(counts)[:-1])]


@bench("axi_stream")
def streams() -> Iterator[Row]:
    """Streams of the engines alone in the card's memory, each by itself and together, against what it can give."""
    emb, device = config.load("smartssd").cores["emb"], Device.load("smartssd")
    engines = Streams(reads_in_flight=emb.reads_in_flight, writes_in_flight=emb.writes_in_flight,
                      output_beats=emb.output_beats)
    shares = []
    with open_card("sim", device=device, core=engines, memory="ddr4") as sim:
        buffers = {name: sim.allocate(2 * STREAM_BEATS * BEAT_BYTES, name, fill=0)
                   for name in ("source", "other", "target")}
        for name, (what, chosen) in STREAMS.items():
            took = []
            for beats in (STREAM_BEATS, 2 * STREAM_BEATS):
                sim.run({**buffers, "beats": beats, "streams": sum(chosen)})
                took.append(sim.wait())
            reads = [STREAM_BEATS if port in chosen else 0 for port in (READ, READ_OTHER)]
            least = stream_cycles(device, reads, STREAM_BEATS if WRITE in chosen else 0)
            used = took[1] - took[0]
            shares.append(100 * least / used)
            yield figure(f"axi.stream.card.{name}", f"{what}: of {least / STREAM_BEATS:.3f} cycles a beat of each",
                         round(shares[-1], 1), "%")
            yield figure(f"axi.stream.card.{name}.rate", "the same in bytes", round(
                len(chosen) * STREAM_BEATS * BEAT_BYTES * device.kernel_mhz / used / 1e3, 1), "GB/s")
    yield at_least("axi.stream.card", "the least of them", round(min(shares), 1), "%", SHARE)


@bench("axi")
def axi() -> Iterator[Row]:
    """Beats a cycle of random rows and vectors behind ideal memory of 100 cycles, and the engines' area."""
    emb = config.load("smartssd").cores["emb"]
    sizes = [size for size in ROW_BYTES if size >= emb.beat_bytes]
    reader = Reader(beat_bytes=emb.beat_bytes, outstanding=emb.rows_in_flight)
    for size, share in zip(sizes, _shares("reader", reader, sizes, [""]), strict=True):
        yield at_least(f"axi.read.{size}", f"random rows of {size} B, memory of {LATENCY} cycles; of the port's beats",
                       share, "%", SHARE)
    writer = WritePort(beat_bytes=emb.beat_bytes, outstanding=emb.writes_in_flight, clients=(emb.output_beats,) * 2)
    for size, share in zip(sizes, _shares("writer", writer, sizes, ["__0", "__1"]), strict=True):
        what = f"random vectors of {size} B, responses after {LATENCY} cycles, {emb.writes_in_flight} in flight"
        # Where the responses under way allow no more, there is nothing to reach.
        bound = emb.writes_in_flight * size // emb.beat_bytes >= LATENCY + size // emb.beat_bytes
        yield at_least(f"axi.write.{size}", what, share, "%", SHARE) if bound else figure(
            f"axi.write.{size}", what, share, "%")
    for name, (what, engine) in _engines().items():
        texts, metadata = convert(engine, f"hotrail_axi_{name}")
        known = synthesise(texts, metadata["top"], cache=build_folder() / "synth")
        yield figure(f"axi.{name}.lut", what, known.total.lut, "LUT")
        yield figure(f"axi.{name}.ff", what, known.total.ff, "FF")
        yield figure(f"axi.{name}.bram36", what, known.total.bram36, "BRAM36")
        yield at_most(f"axi.{name}.levels", "longest path", known.worst.levels, "LUT levels", MAX_LEVELS)
        yield at_most(f"axi.{name}.chains", "most carry chains on a path", known.most_chains.chains, "chains",
                      MAX_CHAINS)
