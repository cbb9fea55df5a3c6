"""XLS' Verilog under the benches of our units: bits where both round alike, else those of float32 operations one after
the other; each result in its cycle, which is our unit's where nothing is kept. With the extra xls alone."""

from importlib.util import find_spec

import numpy as np
import pytest

from bench import xls
from gen.rtl import verilog
from golden.fp import fp32
from hw.fp.dot import FusedDot
from verif.bench.runner import build_texts, run
from verif.emb import test_pooling as pooling
from verif.fp import test_fp
from verif.fp.vectors import DotLane, Runner

pytestmark = [pytest.mark.regress, pytest.mark.skipif(find_spec("xls") is None, reason="needs the extra xls")]
LATENCY = {"mul": test_fp.LATENCY["multiply"], "add": test_fp.LATENCY["add"]}
PARAMETERS = dict(words=xls.POOL_WORDS, contexts_log2=4, tag_bits=2, family=xls.FAMILY)


def instead(inputs, outputs, body, name, text, latency):
    """For `Runner`: a top with its ports i and o around a module of XLS'."""
    top = (f"module vectors(input clk, input rst, input [{32 * inputs - 1}:0] i, output [{32 * outputs - 1}:0] o);\n"
           f"  xls_{name} unit(.clk(clk), {body});\nendmodule\n")
    return lambda texts: {"vectors.v": top, f"xls_{name}.v": xls.pipeline(name, text, latency)}


def terms(width):
    """The FusedDot of `width` terms a beat, as the bench has it."""
    return dict(width=min(width, 8), subs=max(1, width // 8), terms_log2=8, family=xls.FAMILY)


def test_multiply_and_add_in_cocotb():
    texts, metadata = verilog.convert(test_fp.Units())
    units = "".join(f"  xls_{name} unit_{name}(.clk(clk), .x(x), .y(y), .out({port}));\n"
                    for name, port in (("mul", "multiply"), ("add", "add")))
    top = (f"module {metadata['top']}(input clk, input rst, input [31:0] x, input [31:0] y, output [31:0] multiply, "
           f"output [31:0] add);\n{units}endmodule\n")
    model = build_texts({f"{metadata['top']}.v": top, **{
        f"xls_{name}.v": xls.pipeline(name, xls.operation(name), latency) for name, latency in LATENCY.items()}},
        metadata, "xls_units")
    assert texts and run(model, "verif.fp.test_fp", tests=3).tests


@pytest.mark.parametrize(("name", "unit"), [("mul", "multiply"), ("add", "add")])
def test_vectors(name, unit):
    kind, golden = test_fp.UNITS[unit]
    lane = test_fp.Lanes(kind, 1)
    of_xls = Runner(lane, f"xls_{name}", instead(
        2, 1, ".x(i[31:0]), .y(i[63:32]), .out(o)", name, xls.operation(name), lane.latency))
    x, y = test_fp._pairs(np.random.default_rng(1), 100_000)
    found = of_xls(np.stack([x, y], -1)).ravel()
    wrong = np.flatnonzero(found != fp32.bits(golden(x, y)))
    assert not len(wrong), f"{len(wrong)}, first {x[wrong[0]]:#x}, {y[wrong[0]]:#x}: {found[wrong[0]]:#x}"


@pytest.mark.parametrize("width", [4, 8, 16])
def test_dot_products(width):
    lane, size = DotLane(**terms(width)), 32 * width
    assert lane.latency == FusedDot(**terms(width)).latency
    of_xls = Runner(lane, f"xls_dot{width}", instead(
        1 + 2 * width, lane._dot.subs, f".x(i[{31 + size}:32]), .y(i[{31 + 2 * size}:{32 + size}]), .out(o[31:0])",
        f"dot{width}", xls.dot(width), lane.latency))
    x, y = np.random.default_rng(width).standard_normal((2, 20_000, width)).astype(np.float32)
    level = fp32.mul(x, y)
    while level.shape[1] > 1:
        level = fp32.add(level[:, ::2], level[:, 1::2])
    found = of_xls(np.concatenate([np.zeros((len(x), 1), np.uint32), fp32.bits(x), fp32.bits(y)], 1))
    assert (found[:, 0] == fp32.bits(level[:, 0])).all()


def test_multiply_accumulate():
    lane = DotLane(**terms(1))
    lane.latency = xls.KEPT_LATENCY["mac"]
    of_xls = Runner(lane, "xls_mac", instead(
        3, 1, ".rst(rst), .mac__i_data({i[63:32], i[95:64], i[0]}), .mac__i_vld(1'b1), .mac__o_data(o), "
        ".mac__o_rdy(1'b1)", "mac", xls.MAC, lane.latency))
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 20_000)).astype(np.float32)
    first = random.random(len(x)) < 0.2
    first[0] = True
    sums, total = [], np.float32(0)
    for product, begins in zip(fp32.mul(x, y), first, strict=True):
        total = fp32.add(np.float32(0) if begins else total, product)
        sums.append(total)
    found = of_xls(np.stack([first, fp32.bits(x), fp32.bits(y)], 1).astype(np.uint32))
    assert (found[:, 0] == fp32.bits(np.array(sums))).all()


def rounded_every_time(values, weights, maximum):
    """(n, words) and (n,) -> (words,)"""
    found = np.full(values.shape[1], 0xFF800000 if maximum else 0, np.uint32)
    for row, weight in zip(values, weights, strict=True):
        found = fp32.bits(fp32.maximum(found, row) if maximum else fp32.add(found, fp32.mul(row, weight)))
    return found


def test_pooling(monkeypatch):
    lane, words = pooling.Words(**PARAMETERS), xls.POOL_WORDS
    lane.latency = xls.KEPT_LATENCY["pool"]
    of_xls = Runner(lane, "xls_pool", instead(
        2 + words, words + 1,
        f".rst(rst), .pool__i_data({{i[{32 * (2 + words) - 1}:64], i[63:32], i[3:0], i[8], i[9], i[10]}}), "
        f".pool__i_vld(i[11]), .pool__o_data(o[{32 * words - 1}:0]), .pool__o_vld(o[{32 * words + 31}]), "
        ".pool__o_rdy(1'b1)", "pool", xls.POOL, lane.latency))
    monkeypatch.setattr(pooling.bags, "pool", lambda values, offsets, weights=None, maximum=False: np.stack([
        rounded_every_time(values[begin:end], (weights if weights is not None else values[:, 0])[begin:end], maximum)
        for begin, end in zip(offsets, offsets[1:])]))
    records, at, want, tags = pooling.schedule(np.random.default_rng(1), 2_000, 16, words)
    found = of_xls(records) & np.array([0xFFFFFFFF] * words + [1 << 31], np.uint32)
    pooling.judge(found, at, want, 0 * tags)
