"""The shipping MLP core on the simulated card: multiplier slots that networks, layers and matrix products use."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bench.card import stream_cycles
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.api.network import Runner
from fpga.card import open as open_card
from fpga.card.twin import MlpTwin
from gen.compiler.mlp import Compiler, Program, gemms
from gen.model.device import Device
from gen.model.network import Layer, Network
from gen.rtl import config
from golden.fp import fp32
from golden.systolic import matrix
from hw.mlp.config import MlpConfig

PRESET = "smartssd"
DEVICE = "smartssd"
MODELS = ("rm0", "rm1", "rm2", "rm3")
DIMS = (16, 32, 64, 128, 256)
LAYER_DIMS = (16, 64)
LAYER_BATCHES = 4       # two rounds, as batches go through the network two by two: half of them is every layer
BATCH = 128
CLOCK_HZ = 250e6
WHOLE, LAYER = 95, 99       # per cent of the slots, targets
GEMMS = {64: (16, 90), 128: (6, 95), 256: (2, 98)}     # side -> products in a row, per cent of the roofline
EMPTY = np.zeros((0, 16), np.uint32)
Runs = Iterator[tuple[Program, NDArray[np.uint32]]]


@cache
def _runner(memory: str) -> Runner:
    return Runner(open_card("sim", core="mlp", preset=PRESET, device=DEVICE, memory=memory), _config().words)


@cache
def _config() -> MlpConfig:
    chosen: MlpConfig = config.load(PRESET).cores["mlp"]
    return chosen


def _model(name: str, dim: int) -> Network:
    return Network.model(f"screc_{name}", dim=dim)


def _inputs(compiler: Compiler, count: int) -> NDArray[np.uint32]:
    network, random = compiler.network, np.random.default_rng(count)
    sparse = random.standard_normal((count, network.features, network.dim), np.float32) if network.features else None
    return compiler.inputs(random.standard_normal((count, network.inputs), np.float32), sparse)


def _cycles(memory: str, program: Program, inputs: NDArray[np.uint32]) -> int:
    runner = _runner(memory)
    runner.run(program.words, inputs, program.outputs_beats)
    return runner.last["cycles"]


def _load(memory: str, compiler: Compiler) -> None:
    runner = _runner(memory)
    runner.weights(compiler.weights)
    if len(compiler.load.words):
        _cycles(memory, compiler.load, EMPTY)


def _batches(memory: str, network: Network, batch: int, batches: int, times: int = 2) -> Runs:
    """Runs of so many batches and of `times` as many."""
    compiler = Compiler(network, _config(), batch=batch)
    _load(memory, compiler)
    for count in (batch * batches, times * batch * batches):
        yield compiler.compile(count), _inputs(compiler, count)


def _products(memory: str, many: int, rows: int, inner: int, columns: int) -> Runs:
    """Runs of so many matrix products, one behind the other, and of twice as many."""
    random = np.random.default_rng(1)
    pairs = [(random.standard_normal((rows, inner), np.float32), random.standard_normal((inner, columns), np.float32))
             for _ in range(2 * many)]
    for some in (pairs[:many], pairs):
        made = gemms(some, _config())
        _runner(memory).weights(made.weights)
        yield made.program, made.inputs


def _latency(memory: str, network: Network) -> Runs:
    """A run of as many samples as a unit takes, each layer's columns shared out over the units."""
    compiler = Compiler(network, _config(), batch=_config().rows)
    _load(memory, compiler)
    yield compiler.compile(compiler.batch, mode="latency"), _inputs(compiler, compiler.batch)


def _more(memory: str, runs: Runs) -> dict[str, int]:
    """Counters of the second run less those of the first: what a run takes to begin and to end is left out. Those of
    the run itself where there is one."""
    found: list[Mapping[str, int]] = [Counter()]
    for program, inputs in runs:
        _cycles(memory, program, inputs)
        found.append(_runner(memory).last)
    return {name: found[-1][name] - found[-2][name] for name in found[-1]}


def _steady(memory: str, network: Network, batch: int = BATCH, batches: int = 1) -> float:
    """Cycles of a batch in a row of them."""
    return _more(memory, _batches(memory, network, batch, batches))["cycles"] / batches


@bench("mlp_networks")
def networks() -> Iterator[Row]:
    """RM0 to RM3 of SCRec whole, batches of 128, weights resident or streamed: slots with useful products."""
    macs = _config().macs
    useful: dict[str, float] = {}
    taken: dict[str, float] = {}
    for name in MODELS:
        for dim in DIMS:
            network = _model(name, dim)
            used = _steady("ideal", network, batches=2 if network.macs < 200_000 else 1)
            needed = network.macs * BATCH / macs
            useful[name], taken[name] = useful.get(name, 0) + needed, taken.get(name, 0) + used
            yield figure(f"mlp.slots.{name}.d{dim}", f"{name.upper()}, D {dim}: multiplier slots used",
                         100 * needed / used, "%")
            yield figure(f"mlp.inferences.{name}.d{dim}", "inferences at 250 MHz", CLOCK_HZ * BATCH / used / 1e3, "k/s")
    for name in MODELS:
        what = f"{name.upper()}, all D together: multiplier slots used"
        yield at_least(f"mlp.slots.{name}", what, 100 * useful[name] / taken[name], "%", WHOLE)


@bench("mlp_layers")
def layers() -> Iterator[Row]:
    """Each layer of RM0 to RM3 between others of a row of batches, by the twin, which equals the RTL."""
    sizes = _config()
    card = open_card("twin", core="mlp", preset=PRESET, device=DEVICE, memory="ideal")
    assert isinstance(card, MlpTwin)
    runner = Runner(card, sizes.words)
    for name in MODELS:
        for dim in LAYER_DIMS:
            network = _model(name, dim)
            compiler = Compiler(network, sizes, batch=BATCH)
            program = compiler.compile(LAYER_BATCHES * BATCH, cold=True)
            runner.weights(compiler.weights)
            runner.run(program.words, _inputs(compiler, LAYER_BATCHES * BATCH), program.outputs_beats)
            spans = card.spans(len(program.words)).tolist()
            order = sorted((at for at, (_, _, count) in enumerate(spans) if count), key=lambda at: spans[at][0])
            spent, slots, all_slots = Counter[str](), Counter[str](), Counter[str]()
            for at, (number, following) in enumerate(pairwise(order)):
                about = program.steps[number].about.split(",")[0].removeprefix("layer ")
                all_slots[about] += spans[number][2]
                # The first batch waits for weights, the last has nobody behind it.
                if len(order) // 4 <= at < len(order) * 3 // 4:
                    spent[about] += spans[following][0] - spans[number][0]
                    slots[about] += spans[number][2]
            all_slots[program.steps[order[-1]].about.split(",")[0].removeprefix("layer ")] += spans[order[-1]][2]
            for label, layer in network.layers():
                whole = layer.inputs % sizes.width == 0 and layer.outputs % sizes.columns == 0
                useful = LAYER_BATCHES * BATCH * layer.inputs * layer.outputs / sizes.macs / all_slots[label]
                share = 100 * useful * slots[label] / spent[label]
                what = f"{name.upper()}, D {dim}, layer {label}, {layer.inputs} to {layer.outputs}: slots used"
                key = f"mlp.layer.{name}.d{dim}.{label.replace(' ', '')}"
                yield at_least(key, what, share, "%", LAYER) if whole else figure(key, what, share, "%")


def _least(memory: str, macs: float, rows: float, weights: float, results: float) -> float:
    """Cycles that it takes at least: of the multipliers, and of beats in memory. Rows and weights come by a port each,
    results leave by the other way of the first."""
    if memory == "ideal":
        return max(macs / _config().macs, rows, weights, results)
    return max(macs / _config().macs, stream_cycles(Device.load(DEVICE), (rows, weights), results))


@bench("mlp_gemm")
def products() -> Iterator[Row]:
    """FP32 matrix products one behind the other from memory to memory, against the slowest of 512 products a
    cycle and what brings and takes their matrices.
    """
    sizes = _config()
    for memory in ("ideal", "ddr4"):
        for side, (many, target) in GEMMS.items():
            made = _products(memory, many, side, side, side)
            if memory == "ideal":
                used = _more(memory, made)["cycles"] / many
            else:   # whole: where a refresh falls, two runs begin and end differently
                *_, (program, inputs) = made
                used = _cycles(memory, program, inputs) / (2 * many)
            compute, beats = side**3 / sizes.macs, side**2 / sizes.words
            what = f"{side} x {side} x {side}, {memory} memory" + ("" if memory == "ideal" else ", the whole run")
            key = f"mlp.gemm.{side}.{memory}"
            share = round(100 * _least(memory, side**3, beats, beats, beats) / used, 1)
            label = f"{what}: of the roofline"
            yield at_least(f"{key}.roofline", label, share, "%", target) if memory == "ideal" else figure(
                f"{key}.roofline", label, share, "%")
            yield figure(f"{key}.slots", f"{what}: multiplier slots", round(100 * compute / used, 1), "%")
    network = Network.gemm(np.random.default_rng(1).standard_normal((64, 64), np.float32))
    used = _steady("ideal", network, batch=64, batches=16)
    yield at_least("mlp.gemm.64.resident", "64 x 64 x 64, weights resident: multiplier slots (Vitis BLAS on a U250, "
                   "not resident: 38.8, 69.8 and 82.5 % at 64, 128 and 256)", 100 * 512 / used, "%", 97)


@bench("mlp_latency")
def latency() -> Iterator[Row]:
    """One sample through RM3: latency mode against throughput mode on the same core."""
    for dim in (16, 64):
        network = _model("rm3", dim)
        took = {}
        for mode in ("throughput", "latency"):
            compiler = Compiler(network, _config(), batch=1)
            _load("ideal", compiler)
            took[mode] = _cycles("ideal", compiler.compile(1, mode=mode), _inputs(compiler, 1))
            yield figure(f"mlp.latency.d{dim}.{mode}", f"RM3, D {dim}, one sample, {mode} mode", took[mode], "cycles")
        times = took["throughput"] / took["latency"]
        what = f"RM3, D {dim}, one sample: times shorter in latency mode"
        # At D 64 the weights do not fit and come from memory once a run, whatever the mode.
        yield at_least(f"mlp.latency.d{dim}", what, times, "times", 3.5) if dim == 16 else figure(
            f"mlp.latency.d{dim}", what, times, "times")


@bench("mlp_stream")
def stream() -> Iterator[Row]:
    """RM3, D = 256: 14.5 MiB of weights streamed from DDR4-2400 for every batch, against computing alone."""
    network = _model("rm3", 256)
    used = _steady("ddr4", network)
    needed = network.macs * BATCH / _config().macs
    yield at_least("mlp.stream.rm3.d256", "RM3, D 256, batches of 128: of the compute-bound rate",
                   100 * needed / used, "%", 95)


@bench("mlp_stream_card")
def stream_card() -> Iterator[Row]:
    """Streams of weights and samples in the card's memory, where the core waits for them, against what it can give."""
    random, shares = np.random.default_rng(1), {}
    square, last = (Layer(random.standard_normal((1024, outputs), np.float32)) for outputs in (1024, 8))
    # Half of the weights of a square layer fit the core. Four times as many samples end alike.
    for name, what, runs in (
        ("weights", "1,024 to 1,024 to 1,024 to 8, four samples, the whole run",
         _latency("ddr4", Network((square, square, last)))),
        ("samples", "1,024 to 8, weights resident", _batches("ddr4", Network((last,)), 256, 1, times=4)),
        ("both", "products of 32 x 512 and 512 x 32", _products("ddr4", 8, 32, 512, 32)),
        ("busy", "1,024 to 1,024 to 8, batches of 16: the array is busy for nine tenths of the stream",
         _batches("ddr4", Network((square, last)), 16, 1)),
    ):
        more = _more("ddr4", runs)
        beats = [more[f"{stream}_beats"] for stream in ("rows", "weights", "outputs")]
        least = _least("ddr4", 0, *beats)
        shares[name] = 100 * least / more["cycles"]
        yield figure(f"mlp.stream.card.{name}", f"{what}: of {least:,.0f} cycles", shares[name], "%")
        bytes_s = 4 * _config().words * sum(beats) / more["cycles"] * CLOCK_HZ
        yield figure(f"mlp.stream.card.{name}.rate", "the same in bytes", bytes_s / 1e9, "GB/s")
    del shares["busy"]      # memory is not all that it waits for
    yield at_least("mlp.stream.card", "the least of weights, samples and both", min(shares.values()), "%", 95)


@bench("mlp_numerics")
def numerics() -> Iterator[Row]:
    """Errors against float64: a layer of 512 terms beside NumPy's float32; the sigmoid in units of the last place."""
    random = np.random.default_rng(2)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((128, 512), (512, 256)))
    exact = x.astype(np.float64) @ w.astype(np.float64)
    ours = np.abs(matrix.products(x, w.T, _config().width, grouped=_config().grouped) - exact)
    numpy = np.abs((x @ w) - exact)
    yield at_most("mlp.error", "RMS error of 512 terms against NumPy float32's", float(
        np.sqrt((ours**2).mean() / (numpy**2).mean())), "times", 1)
    points = np.concatenate([random.uniform(-90, 20, 200_000), random.standard_normal(200_000)]).astype(np.float32)
    exact = 1 / (1 + np.exp(-points.astype(np.float64)))
    seen = np.abs(fp32.sigmoid(points).astype(np.float64) - exact) / np.spacing(exact.astype(np.float32))
    normal = exact >= np.finfo(np.float32).tiny
    yield at_most("mlp.sigmoid.ulp", "sigmoid, 400,000 points: largest error", float(seen[normal].max()), "ulp", 2)


@bench("mlp_sim")
def simulation() -> Iterator[Row]:
    """Speed of the simulated card with the shipping MLP core, the array busy."""
    network = _model("rm1", 64)
    _steady("ideal", network)
    yield at_least("sim.mlp.cycles_per_s", "the shipping MLP core on the simulated card, one thread",
                   _runner("ideal").card.cycles_per_s, "cycles/s", 20_000)
