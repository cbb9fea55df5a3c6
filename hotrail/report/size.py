"""What `hotrail size` prints, and its page: cards for a load, latency over load, and other machines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fpga.api.servers import Machine
from gen.model.device import Device
from gen.planner.arrivals import latency
from gen.planner.plan import duration
from gen.planner.sizing import Copy
from hotrail.report.page import Axis, Lines, Page, Series, Table, Text
from hotrail.terminal import console, print_table

__all__ = ["Sized", "sentences", "show", "write"]

HEAD = ("cards per copy", "copies", "cards", "batch takes", "lone sample", "samples per second, offline", "within p99",
        "load", "p50", "p95", "p99", "average batch")
#: Shares of the largest load at which the latency is drawn.
LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98)


@dataclass(frozen=True, eq=False)
class Sized:
    """copies: by the cards of a group. core_s: of one core of this machine for a sample. others: a machine, how many of
    it, and what decides that. notes: what the plans assume."""

    copies: tuple[Copy, ...]
    device: Device
    qps: float
    p99_s: float
    core_s: float
    others: tuple[tuple[Machine, int, str], ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> Copy | None:
        """The fewest cards; None where no group is within p99_s at any load."""
        return min((each for each in self.copies if each.number), key=lambda each: each.cards, default=None)


def show(sized: Sized) -> None:
    print_table(console(130), HEAD, _rows(sized), left=1,
                title=f"{sized.qps:,.0f} samples per second, 99 % within {duration(sized.p99_s)}")


def sentences(sized: Sized) -> Iterator[tuple[str, str]]:
    """(of what, a sentence): the decision, and the other machines."""
    best = sized.best
    if best is None:
        least = min(float(each.stages.seconds(1).sum()) for each in sized.copies)
        yield "cards", f"none: a lone sample takes {duration(least)} at least, the limit is {duration(sized.p99_s)}"
    else:
        power = sized.device.power
        idle = power.fpga_idle_w + power.drive_idle_w
        yield ("cards", f"{best.cards}, {best.number} group{'s' * (best.number != 1)} of {len(best.plan.cards)}: "
               f"{best.cards * idle:,.0f} to {best.cards * power.slot_w:,.0f} W, hosts aside")
    yield ("one core", f"{1 / sized.core_s:,.0f} samples per second by NumPy on this machine: "
           f"{sized.qps * sized.core_s:,.1f} such cores" if sized.core_s else "nothing to do")
    for machine, number, why in sized.others:
        yield "at least", f"{number:,} x {machine.name}, {number * machine.watts:,.0f} W of processors, by {why}"


def write(sized: Sized, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    best = sized.best
    made = Page("hotrail size", f"{sized.copies[0].plan.model.name} at {sized.qps:,.0f} samples per second",
                lead="Samples arrive at random (Poisson). Whenever the first stage is free it takes those that wait, "
                     "at most a batch; batches follow each other through link, memories and networks by the plan's "
                     "seconds.",
                facts=[("cards", f"{best.cards:,}" if best else "none will do"),
                       ("99 % within", duration(sized.p99_s)),
                       ("p99 there", duration(best.found.p99) if best and best.found else "-")])
    made.add("Cards", *(Text(f"{what.capitalize()}: {said}.") for what, said in sentences(sized)),
             Table("Groups of cards", HEAD, _rows(sized)), _curve(sized))
    made.add("Stages", *(Table(f"A batch on {len(each.plan.cards)} cards", ("stage", "fixed", "full batch"), [
        (name, duration(fixed), duration(whole)) for name, fixed, whole in zip(
            each.stages.names, each.stages.seconds(0), each.stages.seconds(each.stages.batch), strict=True)])
        for each in sized.copies))
    if sized.notes:
        made.add("Assumed", *(Text(f"{note}.") for note in sized.notes))
    return made.write(folder)


def _rows(sized: Sized) -> list[list[str]]:
    found = []
    for each in sized.copies:
        stages, seen = each.stages, each.found
        full = stages.seconds(stages.batch)
        row = [str(len(each.plan.cards)), f"{each.number:,}" if each.number else "-",
               f"{each.cards:,}" if each.number else "-", duration(float(full.max())),
               duration(float(stages.seconds(1).sum())), f"{stages.most:,.0f}", f"{each.rate:,.0f}"]
        row += ["-"] * 5 if seen is None else [
            f"{sized.qps / each.number / stages.most:.0%}", duration(seen.p50), duration(seen.p95), duration(seen.p99),
            f"{seen.batch:,.1f}"]
        found.append(row)
    return found


def _curve(sized: Sized) -> Lines:
    series = []
    for each in sized.copies:
        loads = [share * each.stages.most for share in LOADS]
        series.append(Series(f"{len(each.plan.cards)} cards", [
            (load, latency(each.stages, load).p99 * 1e3) for load in loads]))
    limit = [min(LOADS) * min(each.stages.most for each in sized.copies),
             max(each.stages.most for each in sized.copies)]
    series.append(Series("limit", [(load, sized.p99_s * 1e3) for load in np.array(limit).tolist()], form="dashed"))
    return Lines("Latency over load", "The 99th percentile of one group of cards at its load.",
                 Axis("samples per second of a group", log=True), Axis("p99, ms", log=True), series, wide=True)
