"""What the AXI engines get out of a port, and what they cost."""

from collections.abc import Iterator
from typing import Any

from bench.framework import Row, at_least, at_most, bench, figure
from fpga.synth.map import MAX_CHAINS, MAX_LEVELS, synthesise
from gen.base.tools import build_folder
from gen.rtl import config
from gen.rtl.verilog import convert
from hw.axi.control import ControlSlave
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa import EMB
from verif.bench.runner import simulate

LATENCY = 100
ROW_BYTES = (64, 128, 256, 512, 1024, 2048)
SHARE = 95  # per cent of the port's beats


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


@bench("axi")
def axi() -> Iterator[Row]:
    """Beats a cycle of random rows and vectors behind ideal memory of 100 cycles, and the engines' area."""
    emb = config.load("smartssd").cores["emb"]
    sizes = [size for size in ROW_BYTES if size >= emb.beat_bytes]
    env = {"HOTRAIL_BYTES": ",".join(map(str, sizes)), "HOTRAIL_LATENCY": LATENCY}
    done = simulate(Reader(beat_bytes=emb.beat_bytes, outstanding=emb.rows_in_flight), "verif.bench.ports",
                    name="bench_axi_reader", tests=1, only=r"\.reads$", env=env)
    for size in sizes:
        yield at_least(f"axi.read.{size}", f"random rows of {size} B, memory of {LATENCY} cycles; of the port's beats",
                       round(100 * done.values["reads"][str(size)], 1), "%", SHARE)
    done = simulate(WritePort(beat_bytes=emb.beat_bytes, outstanding=emb.writes_in_flight,
                              clients=(emb.output_beats,) * 2),
                    "verif.bench.ports", name="bench_axi_writer", tests=1, only=r"\.writes$", env=env)
    for size in sizes:
        what = f"random vectors of {size} B, responses after {LATENCY} cycles, {emb.writes_in_flight} in flight"
        share = round(100 * done.values["writes"][str(size)], 1)
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
