"""What the AXI engines get out of the card's memory."""

from collections.abc import Iterator

from bench.card import stream_cycles
from bench.framework import Row, at_least, bench, figure
from bench.streams import BEAT_BYTES, READ, READ_OTHER, WRITE, Streams
from fpga.card import Device
from fpga.card import open as open_card
from gen.rtl import config

SHARE = 95  # per cent of the port's beats, of what the card's memory can give
STREAM_BEATS = 16_384
STREAMS = {
    "read": ("one read", (READ,)),
    "write": ("one written", (WRITE,)),
    "reads": ("one read by each port", (READ, READ_OTHER)),
    "copy": ("one read and one written", (READ, WRITE)),
    "all": ("two read and one written", (READ, READ_OTHER, WRITE)),
}


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
