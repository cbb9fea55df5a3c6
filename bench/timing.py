"""What timing the cores can hope for: estimated slack, how well delays are estimated, and AMD's guidelines."""

from collections.abc import Iterator
from statistics import median

from bench.framework import Row, at_least, at_most, bench, figure
from bench.gate import SHIPPING
from fpga.synth import failfast as guides
from fpga.synth.map import Report
from fpga.synth.timing.calibrate import calibration
from fpga.synth.timing.report import netlist_of, timing
from fpga.vitis.description import prepare
from fpga.vitis.gate import measure
from gen.model.platform import Platform

PERIOD_NS = 1000 / Platform.load().clocks_mhz[0]
MEDIAN, WORST = 5, 15       # per cent that a path may be predicted off
SLACK_NS = 0.3


def _reports() -> Iterator[tuple[str, Report]]:
    """The shipping kernels by name, mapped as the gate maps them."""
    for name, (preset, core) in SHIPPING.items():
        yield name, measure(*prepare(preset, core), print)


@bench("timing")
def estimated() -> Iterator[Row]:
    """Slack of the shipping kernels by static timing analysis, and the error of its delays on routed paths."""
    found = calibration()
    what = "routed paths of -2LV parts, violated or of four nets and more, predicted from other designs' nets"
    yield at_most("timing.calibration.median", f"{what}: median error", round(100 * found.median, 1), "%", MEDIAN)
    yield at_most("timing.calibration.worst", f"{what}: worst error", round(100 * found.worst, 1), "%", WORST)
    yield figure("timing.calibration.bias", f"{what}: median with its sign, below 0 where too fast",
                 round(100 * found.bias, 1), "%")
    yield figure("timing.calibration.cells.median", "the same paths with their nets as routed, predicted from other "
                 "designs' LUTs: median error", round(100 * median(map(abs, found.cells)), 1), "%")
    yield figure("timing.calibration.cells.worst", "worst error of these", round(100 * max(map(abs, found.cells)), 1),
                 "%")
    free = [error for errors in found.free.values() for error in errors]
    yield figure("timing.calibration.free", "paths of one to three nets that meet their clock, to which nothing is "
                 "fitted: median error", round(100 * median(map(abs, free)), 1), "%")
    yield figure("timing.calibration.all", "median error of all of these paths",
                 round(100 * median(map(abs, [*found.every, *free])), 1), "%")
    for name, report in _reports():
        timed = timing(report, print)
        yield at_least(f"timing.{name}.slack", f"worst slack at {PERIOD_NS:g} ns, estimated", timed.slack_ns(PERIOD_NS),
                       "ns", SLACK_NS)


@bench("failfast")
def over() -> Iterator[Row]:
    """AMD's guidelines for timing closure that the shipping kernels are over."""
    for name, report in _reports():
        lines = [*guides.of_area(report), *guides.of_netlist(netlist_of(report))]
        named = ", ".join(line.key for line in lines if line.over)
        yield at_most(f"failfast.{name}.over", f"guidelines of {len(lines)} that are passed over: {named or 'none'}",
                      sum(line.over for line in lines), "lines", 0)
