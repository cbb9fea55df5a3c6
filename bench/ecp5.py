"""An EMB core on a board with an ECP5: what it takes of the part and how fast it is, placed and routed."""

from collections.abc import Iterator

from bench.framework import LeftOut, Row, at_least, at_most, bench, figure
from fpga.synth import ecp5 as flow
from fpga.synth.board import EcpBoard
from gen.rtl.board import PRESET

BOARD, CORE = "ulx3s_85f", "emb"
UNITS = {"TRELLIS_COMB": ("lut", "LUT4"), "TRELLIS_FF": ("ff", "FF"), "DP16KD": ("ebr", "DP16KD"),
         "MULT18X18D": ("mult", "MULT18X18D")}


@bench("ecp5")
def ecp5() -> Iterator[Row]:
    """A bitstream by open tools alone: the EMB core of `ecp5`, a memory and a serial link in an LFE5U-85F."""
    board = EcpBoard.load(BOARD)
    try:
        layout = flow.make(board, CORE, PRESET, say=print)
    except flow.Ecp5Error as error:
        raise LeftOut(str(error)) from None
    for kind, (name, unit) in UNITS.items():
        used, there = layout.used[kind]
        yield at_most(f"ecp5.{name}", f"board with the EMB core of {PRESET}; the part's", used, unit, there)
    reached, wanted = layout.clock
    yield at_least("ecp5.fmax", f"clock of it, speed grade {board.part.speed}", round(reached, 2), "MHz", wanted)
    mapping, placing = layout.seconds
    yield figure("ecp5.minutes", "mapping, placing and routing", round((mapping + placing) / 60, 1), "min")
    yield figure("ecp5.peak_gb", "memory of placing and routing", round(layout.peak_bytes / 2**30, 2), "GB")
    yield figure("ecp5.bitstream_bytes", "the bitstream, compressed", layout.file.stat().st_size, "bytes")
