"""The custom logic for AWS F2: a soak in simulation, its area and logic depth by Yosys, the slack of its own logic."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.area import SHIPPING, UNITS
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.synth import failfast as guides
from fpga.synth.depth import MAX_CHAINS, MAX_LEVELS
from fpga.synth.map import synthesise
from fpga.synth.timing.report import netlist_of, timing
from fpga.vitis import gate, hdk
from gen.base.tools import build_folder, environment
from gen.model.platform import RESOURCES, Platform
from gen.rtl import config
from gen.rtl.f2 import BEAT_BYTES
from gen.rtl.verilog import convert
from hw.f2.interconnect import Interconnect
from hw.f2.logic import ADDRESS_BITS

ROOT = Path(__file__).parents[1]
BAGS, SEEDS = 100_000, range(1, 11)
TEST = "verif/f2/test_logic.py::test_soak"
SOURCES = ("gen", "golden", "hw", "verif")      # of what the soak runs
LIMIT = 2000        # cycles after which the shell ends a request of the host
CORE = "emb"


@bench("f2_soak")
def soak() -> Iterator[Row]:
    """Bags through F2's custom logic with stalls, resets and pages that do not land: all right, none hangs."""
    told = [_soaked(seed) for seed in SEEDS]
    yield at_least("cards.f2.soak", "bags of the EMB core between models of the shell and sh_ddr, bit for bit the "
                   "oracle's, with stalls; none was wrong, none hung", sum(each["bags"] for each in told), "bags", BAGS)
    for key, what in (("host", "reset by the host"), ("shell", "reset by the shell"),
                      ("late", "ended, as a page did not land in time")):
        yield figure(f"cards.f2.soak.{key}", f"runs of these that were {what}; the next run was right",
                     sum(each["interrupted"][key] for each in told), "runs")
    for name in told[0]["worst"]:
        yield at_most(f"cards.f2.soak.{name.replace(' ', '_')}", f"{name.upper()}: the longest wait of the host",
                      max(each["worst"][name] for each in told), "cycles", LIMIT)


def _soaked(seed: int) -> dict[str, Any]:
    """What the soak of a seed reports. It is kept as long as what it runs is as committed, so that a bench that was
    stopped goes on."""
    def git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(["git", *arguments, "HEAD", "--", *SOURCES], cwd=ROOT, capture_output=True)

    committed = git("diff", "--quiet").returncode == 0
    state = hashlib.sha256(git("ls-tree").stdout).hexdigest()[:16]
    path = build_folder() / "f2-soak" / f"{state}-{seed}.json"
    if not committed or not path.exists():
        print(f"seed {seed}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        run = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:xdist", TEST], cwd=ROOT, capture_output=True,
                             text=True, env=environment() | {
                                 "HOTRAIL_F2_SOAK": str(path), "HOTRAIL_SEED": str(seed), "HOTRAIL_REGRESS": "1",
                                 "PYTHONPATH": os.fspath(ROOT)})
        if run.returncode:
            raise RuntimeError(f"{TEST} failed:\n{run.stdout[-3000:]}")
    told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return told


@bench("f2")
def custom_logic() -> Iterator[Row]:
    """Area of F2's custom logic with and without the EMB core, its depth, and AMD's guidelines for the board."""
    board, preset = Platform.load(hdk.BOARD), SHIPPING[CORE]
    made = hdk.logic(config.load(preset), CORE)
    report = gate.measure(made, made.texts, print)
    alone = Interconnect(beat_bytes=BEAT_BYTES, address_bits=ADDRESS_BITS)
    texts, metadata = convert(alone, "interconnect")
    own = synthesise(texts, metadata["top"], cache=build_folder() / "synth", say=print)
    for key in RESOURCES:
        yield at_most(f"cards.f2.{key}", f"custom logic around the EMB core of {preset}, without sh_ddr; what AMD's "
                      "guideline leaves it", report.total.as_dict()[key], UNITS[key], guides.left(key, board))
        yield figure(f"cards.f2.join.{key}", "of these the interconnect of host, core and memory",
                     own.total.as_dict()[key], UNITS[key])
    yield at_most("cards.f2.levels", "longest path", max(report.worst.levels, report.boundary.levels), "LUT levels",
                  MAX_LEVELS)
    yield at_most("cards.f2.chains", "most carry chains on a path", report.most_chains.chains, "chains", MAX_CHAINS)
    lines = [*guides.of_area(report, platform=board), *guides.of_netlist(netlist_of(report), board)]
    named = ", ".join(line.key for line in lines if line.over)
    yield at_most("cards.f2.failfast", f"guidelines of {len(lines)} that are passed over: {named or 'none'}",
                  sum(line.over for line in lines), "lines", 0)
    period = 1000 / board.clocks_mhz[0]
    yield at_least("cards.f2.slack", f"the interconnect: worst slack at {period:g} ns, estimated with the SmartSSD's "
                   "delays and region, whose part is slower", timing(own, print).slack_ns(period), "ns", 0)
