"""C++ for Vitis HLS beside the RTL: how fast a C simulation of the EMB kernel is."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.framework import Row, at_least, at_most, bench, figure
from fpga.card import open as open_card
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import CardImages, Table
from gen.hls import project
from gen.hls.vectors import HOSTILE, UNTOUCHED, Vectors, emb_case, emb_start, vectors
from gen.rtl import config
from golden.emb.core import Emb, Memory
from hw.isa import EMB

BAGS, ROWS, DIM = 400, 5000, 16
TIMES = 20          # the C simulation plays the program so often
SEEDS = 30


def _program(table: Table) -> tuple[CardImages, Any]:
    """A batch of bags of one table in card memory, in the preset `tiny`."""
    images = CardImages([table], config.load("tiny").cores["emb"])
    random = np.random.default_rng(1)
    offsets = np.arange(BAGS + 1) * 10
    return images, Compiler(images).compile([Bags("t", random.integers(0, ROWS, offsets[-1]), offsets)])


def _built(folder: Path, cores: Mapping[str, Any], *switches: str) -> Path:
    """The C simulation of these cores, compiled in a folder, which gets an empty folder for vectors."""
    for file, content in project.contents(cores).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(b"" if file.startswith("vectors/") else content)
    subprocess.run(["make", "BINARY=csim_bench", "csim_bench", *switches], cwd=folder, check=True, capture_output=True)
    return folder / "csim_bench"


def _csim(images: CardImages, program: Any) -> float:
    """Lookups per second of the C simulation."""
    out, words = Vectors(), images.words
    rows = images.rows.reshape(-1).copy()
    emb_start(out, rows, 0)
    outputs = np.full(program.outputs_beats * words, UNTOUCHED, np.uint32)
    emb_case(out, Emb.of(images.config), Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, rows),
             page_beats=1)
    with tempfile.TemporaryDirectory() as name:
        built = _built(Path(name), {"emb": images.config}, "CXXFLAGS=-O3")
        (Path(name) / "vectors" / "emb.bin").write_bytes(out.data)
        said = subprocess.run([built, "vectors", str(TIMES)], cwd=name, check=True, text=True,
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


@bench("hls_equal")
def equal() -> Iterator[Row]:
    """The units and the EMB kernel in C++ against the oracle, every preset, with sanitizers."""
    differing = cases = hostile = 0
    for preset in config.names():
        cores = {name: each for name, each in config.load(preset).cores.items() if name in project.UNITS}
        if not cores:
            continue
        with tempfile.TemporaryDirectory() as name:
            built = _built(Path(name), cores, "SANITIZE=1")
            for seed in range(1, SEEDS + 1):
                for file, content in vectors(cores, seed).items():
                    (Path(name) / "vectors" / file).write_bytes(content)
                done = subprocess.run([built, "vectors"], cwd=name, text=True, capture_output=True)
                wrong = re.search(r"FAILED: (\d+) words differ", done.stdout)
                if done.returncode and not wrong:
                    raise RuntimeError(f"preset {preset}, seed {seed}: {done.stderr[-2000:]}")
                differing += int(wrong[1]) if wrong else 0
                cases += sum(map(int, re.findall(r"(?m)^\w+: (\d+) cases$", done.stdout)))
                hostile += HOSTILE if "emb" in cores else 0
    yield at_most("hls.equal", f"words that differ from the oracle in {cases:,} vectors and programs, all presets, "
                  f"{SEEDS} seeds", differing, "words", 0)
    yield at_least("hls.hostile", "programs among them with a flipped bit: same code and results, no access outside a "
                   "buffer", hostile, "programs", 500)
