"""Millions of vectors through an arithmetic unit: a Verilated model with a plain C++ main that reads operands
from a file and writes results to one, a record a cycle. Python makes the vectors and judges the results.

cocotb, which handles a cycle in Python, would take a day for what takes a minute here.
"""
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gen.rtl import verilator, verilog
from hw.fp.dot import FusedDot
from hw.fp.operand import unpack
from verif.bench.runner import seeds

__all__ = ["DotLane", "Lanes", "Runner"]

_MAIN = r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#include "Vtop.h"
#include "verilated.h"

// Usage: binary operands results latency seed. After a reset a record of IN words goes in at every clock, a record of
// OUT words comes out `latency` clocks later; the last ones are flushed out with the last record standing.
int main(int argc, char** argv) {
    if (argc != 5) return 2;
    FILE* in = fopen(argv[1], "rb");
    FILE* out = fopen(argv[2], "wb");
    const long latency = strtol(argv[3], nullptr, 10);
    if (!in || !out) return 3;
    VerilatedContext context;
    context.randReset(2);  // registers begin at random
    context.randSeed(atoi(argv[4]));
    Vtop dut{&context};
    static_assert(sizeof(dut.i) >= IN * 4 && sizeof(dut.o) >= OUT * 4, "ports");
    std::vector<uint32_t> record(IN), result(OUT);
    long taken = 0, cycle = 0, left = latency;
    memset(&dut.i, 0, IN * 4);
    for (int edge = 0; edge < 4; edge++) {
        dut.rst = edge < 2;
        dut.clk = edge & 1;
        dut.eval();
    }
    for (;; ++cycle) {
        if (fread(record.data(), 4, IN, in) == IN) {
            memcpy(&dut.i, record.data(), IN * 4);
            ++taken;
        } else if (left-- == 0) {
            break;
        }
        dut.clk = 0;
        dut.eval();
        if (cycle >= latency) {
            memcpy(result.data(), &dut.o, OUT * 4);
            fwrite(result.data(), 4, OUT, out);
        }
        dut.clk = 1;
        dut.eval();
    }
    dut.final();
    return fclose(out) == 0 ? 0 : 4;
}
"""


class Lanes(wiring.Component):
    """Equal two-operand units side by side: i = x0, y0, x1, y1, ...; o = o0, o1, ..., 32 bits each."""

    def __init__(self, make, lanes: int):
        self._units = [make() for _ in range(lanes)]
        self.latency = self._units[0].latency
        super().__init__({"i": In(64 * lanes), "o": Out(32 * lanes)})

    def elaborate(self, platform):
        m = Module()
        for k, unit in enumerate(self._units):
            m.submodules[f"unit{k}"] = unit
            m.d.comb += [
                unit.x.eq(self.i[64 * k:64 * k + 32]),
                unit.y.eq(self.i[64 * k + 32:64 * k + 64]),
                self.o[32 * k:32 * k + 32].eq(unit.o),
            ]
        return m


class DotLane(wiring.Component):
    """A FusedDot behind `unpack`: i = control, x words, y words. Control: first in bit 0, combine in bits 1 and
    2; bit 8 + k makes x[k] padding, bit 24 + k (k below 8) y[k].
    """

    def __init__(self, **parameters):
        self._dot = FusedDot(**parameters)
        self._terms = self._dot.width * self._dot.subs
        self.latency = self._dot.latency
        super().__init__({"i": In(32 * (1 + 2 * self._terms)), "o": Out(32 * self._dot.subs)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dot = dot = self._dot
        words = [self.i[32 * k:32 * k + 32] for k in range(1 + 2 * self._terms)]
        m.d.comb += [dot.first.eq(words[0][0]), dot.combine.eq(words[0][1:3]),
                     self.o.eq(Cat(*(dot.o[s] for s in range(dot.subs))))]
        for k in range(self._terms):
            m.d.comb += [dot.x[k].eq(unpack(words[1 + k])), dot.y[k].eq(unpack(words[1 + self._terms + k]))]
            with m.If(words[0][8 + k]):
                m.d.comb += [dot.x[k].zero.eq(1), dot.x[k].special.eq(1)]
            if k < 8:
                with m.If(words[0][24 + k]):
                    m.d.comb += [dot.y[k].zero.eq(1), dot.y[k].special.eq(1)]
        return m


class Runner:
    """A built model of a component with ports `i` and `o` and a constant `latency`.

    translated: makes other Verilog with the same top, `vectors`, of the component's: a netlist, for instance;
    by default its registers begin at random. Long campaigns are worth the compiler's optimisation.
    """

    def __init__(self, component: wiring.Component, name: str,
                 translated: Callable[[dict[str, str]], dict[str, str]] | None = None):
        self.latency = component.latency
        self._in = len(component.i) // 32
        self._out = len(component.o) // 32
        texts, _ = verilog.convert(component, "vectors")
        built = verilator.build(
            texts if translated is None else translated(texts), "vectors", f"vectors_{name}", target="vectors",
            arguments=(), sources={"main.cpp": f"enum {{ IN = {self._in}, OUT = {self._out} }};{_MAIN}"},
            opt="-O1" if os.environ.get("HOTRAIL_REGRESS") else "-O0", random=translated is None)
        self._binary = built.target

    def __call__(self, records: np.ndarray, work: Path) -> np.ndarray:
        """uint32 (N, words of i) -> uint32 (N, words of o); `work` is a folder for the files between."""
        records = np.ascontiguousarray(records, np.uint32)
        if records.ndim != 2 or records.shape[1] != self._in:
            raise ValueError(f"records has shape {records.shape}, must be (N, {self._in})")
        records.tofile(work / "operands")
        run = subprocess.run([self._binary, work / "operands", work / "results", str(self.latency),
                              str(1 + seeds()[0] % (2**31 - 1))])
        if run.returncode:
            raise RuntimeError(f"{self._binary.parents[1].name} ended with code {run.returncode}")
        return np.fromfile(work / "results", np.uint32).reshape(len(records), self._out)
