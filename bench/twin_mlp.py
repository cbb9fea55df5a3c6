"""The MLP core's twin beside the Verilated card: cycles and values over a suite of cases, and samples per second."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_most, bench, figure
from fpga.api.network import Runner
from fpga.card import Faults
from fpga.card import open as open_card
from gen.compiler.mlp import Compiler
from gen.model.network import Network
from gen.rtl import config

BATCHES = 2         # of a case
TRIALS = 3
ERROR = 2.0
STALLS = {"aw": 0.3, "w": 0.3, "b": 0.3, "ar": 0.3, "r": 0.3}


@dataclass(frozen=True)
class Case:
    """A network of SCRec's and a batch. mode: None as the compiler chooses; cold: every batch brings all weights
    anew; stalls: on every channel, in a third of the cycles."""

    model: str
    samples: int
    dim: int = 64
    mode: str | None = None
    cold: bool = False
    memory: str = "ddr4"
    stalls: bool = False
    preset: str = "smartssd"


SUITE = (
    *(Case(model, 32) for model in ("rm0", "rm1", "rm2", "rm3")),
    *(Case(model, 4, mode="latency") for model in ("rm0", "rm1", "rm2", "rm3")),
    Case("rm0", 32, memory="ideal"), Case("rm1", 5, mode="throughput"), Case("rm0", 16, cold=True),
    Case("rm1", 4, mode="latency", cold=True), Case("rm0", 16, stalls=True), Case("rm2", 4, dim=256, cold=True),
    *(Case("rm0", 8, 16, mode, cold, stalls=stalls, preset="tiny")
      for mode in ("throughput", "latency") for cold in (False, True) for stalls in (False, True)),
)
RATES = (Case("rm0", 128), Case("rm2", 128), Case("rm3", 128))


class Found(NamedTuple):
    """Cycles and outputs of each batch, processor seconds of all."""

    cycles: list[int]
    outputs: list[NDArray[np.uint32]]
    seconds: float


def _carry_out(case: Case, kind: str) -> Found:
    chosen, network = config.load(case.preset).cores["mlp"], Network.model(f"screc_{case.model}", dim=case.dim)
    random, compiler = np.random.default_rng(case.samples), Compiler(network, chosen, batch=case.samples)
    dense = random.standard_normal((case.samples, network.inputs), np.float32)
    rows = random.standard_normal((case.samples, network.features, network.dim), np.float32)
    program, inputs = compiler.compile(case.samples, mode=case.mode, cold=case.cold), compiler.inputs(dense, rows)
    with open_card(kind, core="mlp", preset=case.preset, memory=case.memory) as card:
        runner = Runner(card, chosen.words)
        runner.weights(compiler.weights)
        if len(compiler.load.words) and not case.cold:
            runner.run(compiler.load.words, np.zeros((0, chosen.words), np.uint32), 0)
        card.set_faults(Faults(stalls=STALLS if case.stalls else {}))
        found = Found([], [], 0.0)
        for _ in range(BATCHES):
            start = time.process_time()
            found.outputs.append(runner.run(program.words, inputs, program.outputs_beats))
            found.cycles.append(runner.last["cycles"])
            found = found._replace(seconds=found.seconds + time.process_time() - start)
        return found


@bench("twin_mlp")
def twin_mlp() -> Iterator[Row]:
    """The MLP core's twin against the Verilated core: cycles, bits of outputs, samples per second."""
    errors, different, seconds = [], 0, np.zeros(2)
    for case in SUITE:
        card, other = _carry_out(case, "sim"), _carry_out(case, "twin")
        errors += [100 * abs(one - two) / one for one, two in zip(card.cycles, other.cycles, strict=True)]
        different += sum(int((one != two).any(axis=1).sum())
                         for one, two in zip(card.outputs, other.outputs, strict=True))
        seconds += card.seconds, other.seconds
    what = f"{len(SUITE)} cases, {len(errors)} batches"
    yield at_most("twin.mlp.error", f"{what}: cycles of a batch against the Verilated core's, worst", max(errors), "%",
                  ERROR)
    yield at_most("twin.mlp.different", f"{what}: beats of outputs that differ in a bit", different, "beats", 0)
    yield figure("twin.mlp.faster", f"{what}: processor time of the Verilated card over the twin's",
                 round(float(seconds[0] / seconds[1])), "times")
    for case in RATES:
        tried = [_carry_out(case, "twin") for _ in range(TRIALS)]
        best = min(found.seconds for found in tried) / BATCHES
        per_sample = tried[0].cycles[0] / case.samples
        what = f"{case.model.upper()}, D {case.dim}, batches of {case.samples}, {per_sample:.0f} cycles per sample"
        yield figure(f"twin.mlp.samples_per_s.{case.model}", f"{what}: samples per second of one core",
                     round(case.samples / best), "samples/s")
