"""C++ for Vitis HLS and Google's XLS beside the RTL: how fast a C simulation is, what an HLS compiler's logic costs."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from bench.framework import LeftOut, Row, at_least, at_most, bench, figure
from fpga.card import open as open_card
from fpga.synth.map import Report, synthesise
from gen.base.tools import build_folder
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import CardImages, Table
from gen.hls import project
from gen.hls.vectors import UNTOUCHED, Vectors, emb_case, emb_start
from gen.rtl import config
from gen.rtl.verilog import convert
from golden.emb.core import Emb, Memory
from golden.fp import fp32
from hw.emb.pooling import PoolingUnit
from hw.fp.add import Add
from hw.fp.dot import FusedDot
from hw.fp.multiply import Multiply
from hw.fp.operand import unpack
from hw.isa import EMB

BAGS, ROWS, DIM = 400, 5000, 16
TIMES = 20          # the C simulation plays the program so often
FAMILY = "ultrascale_plus"


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


class _Words(Component):
    """Fused dot products of binary32 words, a beat per cycle: what XLS' of the same words are held against."""

    def __init__(self, width: int):
        self.dot = FusedDot(width=min(width, 8), subs=max(1, width // 8), terms_log2=8, family=FAMILY)
        self.latency = self.dot.latency
        self.width = width
        words = data.ArrayLayout(32, width)
        super().__init__({"x": In(words), "y": In(words), "first": In(1), "o": Out(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dot = dot = self.dot
        for at in range(self.width):
            m.d.comb += [
                dot.x[at].eq(unpack(self.x[at])),
                dot.y[at].eq(unpack(self.y[at])),
            ]
        m.d.comb += [
            dot.first.eq(self.first),
            dot.combine.eq(self.width // 8 - 1 if self.width > 8 else 0),
            self.o.eq(dot.o[0]),
        ]
        return m


_OPERATION = """import float32;
pub fn {name}(x: u32, y: u32) -> u32 {{
  float32::flatten(float32::{name}(float32::unflatten(x), float32::unflatten(y)))
}}
"""
# A process takes a beat and keeps sums; of the pooling unit, WORDS of each of 16 beats of a row.
_MAC = """import float32;
pub struct Beat { x: u32, y: u32, first: u1 }
pub proc mac {
  i: chan<Beat> in;
  o: chan<u32> out;
  config(i: chan<Beat> in, o: chan<u32> out) { (i, o) }
  init { u32:0 }
  next(sum: u32) {
    let (tok, beat) = recv(join(), i);
    let product = float32::mul(float32::unflatten(beat.x), float32::unflatten(beat.y));
    let before = if beat.first { float32::zero(u1:0) } else { float32::unflatten(sum) };
    let after = float32::flatten(float32::add(before, product));
    send(tok, o, after);
    after
  }
}
"""
_POOL = """import float32;
pub struct Beat { words: u32[WORDS], weight: u32, context: u4, first: u1, last: u1, maximum: u1 }
fn lane(before: u32, word: u32, beat: Beat) -> u32 {
  let sum = float32::unflatten(before);
  let value = float32::unflatten(word);
  let product = float32::mul(value, float32::unflatten(beat.weight));
  let added = float32::add(if beat.first { float32::zero(u1:0) } else { sum }, product);
  let largest = if beat.first || float32::gt_2(value, sum) { word } else { before };
  if beat.maximum { largest } else { float32::flatten(added) }
}
pub proc pool {
  i: chan<Beat> in;
  o: chan<u32[WORDS]> out;
  config(i: chan<Beat> in, o: chan<u32[WORDS]> out) { (i, o) }
  init { zero!<u32[WORDS][16]>() }
  next(sums: u32[WORDS][16]) {
    let (tok, beat) = recv(join(), i);
    let before = sums[beat.context];
    let after = for (k, after): (u32, u32[WORDS]) in u32:0..u32:WORDS {
      update(after, k, lane(before[k], beat.words[k], beat))
    }(before);
    send_if(tok, o, beat.last, after);
    update(sums, beat.context, after)
  }
}
"""
POOL_WORDS = 4


def _dot(width: int) -> str:
    """DSLX of a dot product: products, and a tree of additions."""
    lines = ["import float32;", f"pub fn dot(x: u32[{width}], y: u32[{width}]) -> u32 {{"]
    lines += [f"  let p{k} = float32::mul(float32::unflatten(x[u32:{k}]), float32::unflatten(y[u32:{k}]));"
              for k in range(width)]
    level = [f"p{k}" for k in range(width)]
    while len(level) > 1:
        sums = [f"t{len(level)}_{k}" for k in range(len(level) // 2)]
        lines += [f"  let {name} = float32::add({level[2 * k]}, {level[2 * k + 1]});" for k, name in enumerate(sums)]
        level = sums
    return "\n".join([*lines, f"  float32::flatten({level[0]})", "}", ""])


def _ir(name: str, text: str) -> tuple[str, str]:
    """DSLX as optimised code between, and the name of its top."""
    from xls import c_api
    plain = c_api.convert_dslx_to_ir(text, f"{name}.x", name)
    processes = re.findall(r"(?m)^(?:top )?proc (\S+?)[<(]", plain)
    top = processes[-1] if processes else c_api.mangle_dslx_name(name, name)
    return c_api.optimize_ir(plain, top), top


def _verilog(name: str, ir: str, stages: int) -> str:
    """A pipeline of so many stages with registers at both ends, a beat per cycle."""
    from xls import c_api
    of_process = {"reset": "rst", "worst_case_throughput": 1, "streaming_channel_data_suffix": "_data",
                  "streaming_channel_valid_suffix": "_vld", "streaming_channel_ready_suffix": "_rdy"}
    text = c_api.parse_ir_package(ir).schedule_and_codegen(
        with_delay_model=True, generator="pipeline", module_name=f"xls_{name}", pipeline_stages=stages,
        delay_model="unit", flop_inputs=True, flop_outputs=True, use_system_verilog=False,
        **(of_process if "proc " in ir else {})).get_verilog_text()
    # Verilog declares the variables of generated loops before them.
    variables = sorted(set(re.findall(r"for \(genvar (\w+)", text)))
    declared = "".join(f"  genvar {name};\n" for name in variables)
    return text.replace("for (genvar ", "for (").replace("\n);\n", f"\n);\n{declared}", 1)


def _mapped(texts: dict[str, str], top: str) -> Report:
    return synthesise(texts, top, cache=build_folder() / "synth")


def _rows(name: str, what: str, unit: Any, text: str) -> Iterator[Row]:
    """What XLS' takes with as many stages as our unit, then ours, which should take no more."""
    ir, _ = _ir(name.rstrip("0123456789"), text)
    theirs = _mapped({f"xls_{name}.v": _verilog(name, ir, unit.latency)}, f"xls_{name}")
    texts, metadata = convert(unit, f"hls_{name}")
    ours = _mapped(texts, metadata["top"])
    for key, about in (("lut", "LUT"), ("ff", "FF"), ("dsp", "DSP48E2"), ("levels", "LUT levels")):
        peer, own = (report.worst.levels if key == "levels" else report.total.as_dict()[key]
                     for report in (theirs, ours))
        yield figure(f"hls.xls.{name}.{key}.xls", f"{what}, {unit.latency} stages, XLS", peer, about)
        yield at_most(f"hls.xls.{name}.{key}", f"{what}, {unit.latency} stages, ours", own, about, peer)


def _differing(name: str, reference: Any, count: int = 1000) -> int:
    """Pairs of words of which an XLS function says something else than the oracle."""
    from xls import c_api
    ir, top = _ir(name, _OPERATION.format(name=name))
    package = c_api.parse_ir_package(ir)
    function = package.get_function(top)
    random = np.random.default_rng(1)
    x, y = random.integers(0, 1 << 32, (2, count)).astype(np.uint32)
    near = random.random(count) < 0.5
    y[near] = x[near] ^ random.integers(0, 1 << 25, int(near.sum())).astype(np.uint32)
    wanted = fp32.bits(reference(x, y)).tolist()
    found = [function.interpret([c_api.Value.make_ubits(32, int(a)), c_api.Value.make_ubits(32, int(b))]).to_string()
             for a, b in zip(x, y, strict=True)]
    return sum(int(text.split(":")[1]) != value for text, value in zip(found, wanted, strict=True))


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


@bench("hls_xls")
def hls_xls() -> Iterator[Row]:
    """Google's XLS beside our RTL: float32 arithmetic and a pooling unit, same latency, same mapping."""
    if find_spec("xls") is None:
        raise LeftOut("XLS is not installed: pip install 'hotrail[xls]'")
    for name, reference, unit in (("mul", fp32.mul, Multiply()), ("add", fp32.add, Add())):
        yield at_most(f"hls.xls.{name}.differing", f"XLS' float32::{name}: words that differ from ours, of 1,000 pairs",
                      _differing(name, reference), "words", 0)
        yield from _rows(name, f"float32 {name}, both rounded once", unit, _OPERATION.format(name=name))
    yield from _rows("mac", "multiply-accumulate, XLS rounded at every step, ours once", _Words(1), _MAC)
    for width in (4, 8, 16):
        yield from _rows(f"dot{width}", f"dot product of {width}; XLS: rounded {2 * width - 1} times, ours once and "
                         "with an accumulator", _Words(width), _dot(width))
    pool = PoolingUnit(words=POOL_WORDS, contexts_log2=4, tag_bits=0, family=FAMILY)
    yield from _rows("pool", f"pooling unit, {POOL_WORDS} words, 16 beats of a row, sum or maximum; XLS rounded at "
                     "every step, ours once", pool, _POOL.replace("WORDS", str(POOL_WORDS)))
