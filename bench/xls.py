"""Google's XLS beside the RTL: what an HLS compiler makes of float32 arithmetic and of a pooling unit."""

import re
from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from bench.framework import Row, at_most, bench, figure
from fpga.synth.map import synthesise
from gen.base.tools import build_folder
from gen.rtl.verilog import convert
from hw.emb.pooling import PoolingUnit
from hw.fp.add import Add
from hw.fp.dot import FusedDot
from hw.fp.multiply import Multiply
from hw.fp.operand import unpack

FAMILY = "ultrascale_plus"
#: Cycles after which a process that keeps a sum sends it: more stages than these stay empty, as all of an addition lies
#: between the sum before and after.
KEPT_LATENCY = {"mac": 4, "pool": 3}


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


def operation(name: str) -> str:
    """DSLX of an operation of XLS' float32 library on words."""
    return f"""import float32;
pub fn {name}(x: u32, y: u32) -> u32 {{
  float32::flatten(float32::{name}(float32::unflatten(x), float32::unflatten(y)))
}}
"""


# A process takes a beat and keeps sums; of the pooling unit, of each of 16 contexts.
MAC = """import float32;
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
POOL_WORDS = 4
POOL = """import float32;
pub struct Beat { words: u32[WORDS], weight: u32, context: u4, first: u1, last: u1, maximum: u1 }
fn is_nan(word: u32) -> bool { (word & u32:0x7FFFFFFF) > u32:0x7F800000 }
fn order(word: u32) -> s32 {
  let size = (word & u32:0x7FFFFFFF) as s32;
  if word >> u32:31 == u32:1 { s32:-1 - size } else { size }
}
fn largest(x: u32, y: u32) -> u32 {
  let value = if y & u32:0x7F800000 == u32:0 { y & u32:0x80000000 } else { y };
  if is_nan(x) || is_nan(value) { u32:0x7FC00000 } else if order(x) >= order(value) { x } else { value }
}
fn lane(before: u32, word: u32, beat: Beat) -> u32 {
  let product = float32::mul(float32::unflatten(word), float32::unflatten(beat.weight));
  let sum = if beat.first { float32::zero(u1:0) } else { float32::unflatten(before) };
  let least = if beat.first { u32:0xFF800000 } else { before };
  if beat.maximum { largest(least, word) } else { float32::flatten(float32::add(sum, product)) }
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
""".replace("WORDS", str(POOL_WORDS))


def dot(width: int) -> str:
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


def pipeline(name: str, text: str, latency: int) -> str:
    """Verilog of the module xls_<name>, whose results stand `latency` cycles after the operands, one set per cycle.
    The first registers hold the operands, the last ones the results."""
    from xls import c_api
    ir, _ = _ir(name.rstrip("0123456789"), text)
    of_process = {"reset": "rst", "worst_case_throughput": 1, "streaming_channel_data_suffix": "_data",
                  "streaming_channel_valid_suffix": "_vld", "streaming_channel_ready_suffix": "_rdy"}
    verilog = c_api.parse_ir_package(ir).schedule_and_codegen(
        with_delay_model=True, generator="pipeline", module_name=f"xls_{name}", pipeline_stages=latency - 1,
        delay_model="unit", flop_inputs=True, flop_outputs=True, use_system_verilog=False,
        **(of_process if "proc " in ir else {})).get_verilog_text()
    # Verilog declares the variables of generated loops before them.
    variables = sorted(set(re.findall(r"for \(genvar (\w+)", verilog)))
    declared = "".join(f"  genvar {name};\n" for name in variables)
    return verilog.replace("for (genvar ", "for (").replace("\n);\n", f"\n);\n{declared}", 1)


def _rows(name: str, what: str, unit: Any, text: str) -> Iterator[Row]:
    """What XLS' takes, with our unit's latency where it uses as many cycles, then ours, which should take no more."""
    latency = KEPT_LATENCY.get(name, unit.latency)
    texts, metadata = convert(unit, f"hls_{name}")
    theirs, ours = (synthesise(each, top, cache=build_folder() / "synth") for each, top in (
        ({f"xls_{name}.v": pipeline(name, text, latency)}, f"xls_{name}"), (texts, metadata["top"])))
    for key, about in (("lut", "LUT"), ("ff", "FF"), ("dsp", "DSP48E2"), ("levels", "LUT levels")):
        peer, own = (report.worst.levels if key == "levels" else report.total.as_dict()[key]
                     for report in (theirs, ours))
        yield figure(f"hls.xls.{name}.{key}.xls", f"XLS, {what}", peer, about)
        yield at_most(f"hls.xls.{name}.{key}", f"Ours, {what}", own, about, peer)
    for suffix, whose, cycles in ((".xls", "XLS", latency), ("", "Ours", unit.latency)):
        yield figure(f"hls.xls.{name}.latency{suffix}", f"{whose}, {what}: latency, a result in every cycle", cycles,
                     "cycles")


@bench("hls_xls", needs="xls")
def hls_xls() -> Iterator[Row]:
    """Google's XLS beside our RTL: float32 arithmetic and a pooling unit, same latency, same mapping."""
    for name, unit in (("mul", Multiply()), ("add", Add())):
        yield from _rows(name, f"float32 {name}, both rounded once", unit, operation(name))
    yield from _rows("mac", "multiply-accumulate, XLS rounded at every step, ours once", _Words(1), MAC)
    for width in (4, 8, 16):
        yield from _rows(f"dot{width}", f"dot product of {width}, XLS rounded {2 * width - 1} times, ours once, "
                         "with an accumulator", _Words(width), dot(width))
    pool = PoolingUnit(words=POOL_WORDS, contexts_log2=4, tag_bits=0, family=FAMILY)
    yield from _rows("pool", f"pooling unit, {POOL_WORDS} values, 16 contexts, sum or maximum, XLS rounded at every "
                     "step, ours once", pool, POOL)
