"""C++ for Vitis HLS beside the RTL: how fast a C simulation of the EMB kernel is."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.framework import Row, at_least, bench, figure
from fpga.card import open as open_card
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import CardImages, Table
from gen.hls import project
from gen.hls.vectors import UNTOUCHED, Vectors, emb_case, emb_start
from gen.rtl import config
from golden.emb.core import Emb, Memory
from hw.isa import EMB

BAGS, ROWS, DIM = 400, 5000, 16
TIMES = 20          # the C simulation plays the program so often


def _program(table: Table) -> tuple[CardImages, Any]:
    """A batch of bags of one table in card memory, in the preset `tiny`."""
    images = CardImages([table], config.load("tiny").cores["emb"])
    random = np.random.default_rng(1)
    offsets = np.arange(BAGS + 1) * 10
    return images, Compiler(images).compile([Bags("t", random.integers(0, ROWS, offsets[-1]), offsets)])


def _csim(images: CardImages, program: Any) -> float:
    """Lookups per second of the C simulation."""
    cores = {"emb": images.config}
    out, words = Vectors(), images.words
    rows = images.rows.reshape(-1).copy()
    emb_start(out, rows, 0)
    outputs = np.full(program.outputs_beats * words, UNTOUCHED, np.uint32)
    emb_case(out, Emb.of(images.config), Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, rows),
             page_beats=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in project.contents(cores).items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(b"" if file.startswith("vectors/") else content)
        (folder / "vectors" / "emb.bin").write_bytes(out.data)
        subprocess.run(["make", "csim_bench", "CXXFLAGS+=-O3"], cwd=folder, check=True, capture_output=True)
        said = subprocess.run([folder / "csim_bench", "vectors", str(TIMES)], cwd=folder, check=True, text=True,
                              capture_output=True).stdout
    lookups, seconds = re.findall(r"(\d+) lookups in ([\d.]+) s", said)[0]
    return int(lookups) / float(seconds)


def _verilated(images: CardImages, program: Any) -> float:
    """Lookups per second of the Verilated core with ideal memory, the run alone."""
    card = open_card("sim", core="emb", preset="tiny", memory="ideal")
    try:
        beat = images.config.beat_bytes     # type: ignore[attr-defined]
        buffers = {}
        for name, content in (("program", program.words), ("inputs", program.inputs), ("rows", images.rows),
                              ("outputs", np.zeros(program.outputs_beats * images.words, np.uint32)),
                              ("result", np.zeros(EMB.result_words, np.uint32)), ("ring", np.zeros(1024, np.uint32))):
            buffers[name] = card.allocate(content.nbytes, name)
            card.write(buffers[name], content)
        start = time.perf_counter()
        card.run({**buffers, "program_count": len(program.words), "inputs_beats": len(program.inputs),
                  "outputs_beats": program.outputs_beats, "rows_beats": len(images.rows), "ring_beats": 0,
                  "timeout": 1000})
        card.wait(10_000_000)
        seconds = time.perf_counter() - start
        assert beat and not card.read(buffers["result"], np.uint32)[0]
        return BAGS * 10 / seconds
    finally:
        card.close()


@bench("hls")
def hls() -> Iterator[Row]:
    """The EMB kernel's C simulation beside the Verilated core."""
    random = np.random.default_rng(1)
    images, program = _program(Table.place("t", random.standard_normal((ROWS, DIM)).astype(np.float32), 0))
    fast, slow = _csim(images, program), _verilated(images, program)
    what = f"bags of 10 rows of {DIM} values from card memory, preset tiny, one thread"
    yield figure("hls.csim.lookups_per_s", f"C simulation: {what}", round(fast), "lookups/s")
    yield figure("hls.csim.verilated", f"Verilated core: {what}", round(slow), "lookups/s")
    yield at_least("hls.csim", "C simulation over Verilated core", round(fast / slow, 1), "times", 100)


