"""What `hotrail train-time` prints, and its page."""

from dataclasses import dataclass
from pathlib import Path

from gen.planner.plan import duration
from gen.training.systems import Predicted
from gen.training.workload import Workload
from hotrail.report.page import Axis, Bars, Page, Series, Table, Text
from hotrail.terminal import console, print_table

__all__ = ["Report", "show", "write"]

HEAD = ("system", "step", "samples per second", "speedup", "PCIe per step", "between GPUs", "what binds")
NOTE = ("Estimates by a model fitted to published step times. It misses half of the others by more than a tenth, "
        "speedups of Hotline on four GPUs by up to a factor of two (docs/train-time.md).")


@dataclass(frozen=True)
class Report:
    """source: of the log. baseline, baseline_s: the user's system and its step. given: the popular share is."""

    source: str
    gpu: str
    of: Workload
    systems: list[Predicted]
    baseline: str
    baseline_s: float
    given: bool

    @property
    def sentence(self) -> str:
        of = self.of
        popular = "as given" if self.given else (f"the least, tables taken as independent; {of.popular_most:.1%} the "
                                                 "most, rare rows together in samples; --popular sets it")
        return (f"{self.source}: {of.tables:,.0f} tables, {of.lookups:,.2f} lookups per sample; {of.batch:,} samples "
                f"per step on {of.gpus} {self.gpu}; {of.cached_rows:,} rows on each GPU, {of.popular:.1%} of samples "
                f"popular ({popular}); {of.unique:,.0f} distinct rows per step, {of.cold:,.0f} of them cold; baseline "
                f"{self.baseline}, {duration(self.baseline_s)} per step")


def show(report: Report) -> None:
    shown = console(140)
    shown.print(f"log        {report.sentence}", soft_wrap=True)
    print_table(shown, HEAD, _cells(report))
    shown.print(f"note       {NOTE}", soft_wrap=True)


def _cells(report: Report) -> list[list[str]]:
    return [[each.system, duration(each.step.seconds), f"{report.of.batch / each.step.seconds:,.0f}",
             f"{report.baseline_s / each.step.seconds:.2f}", f"{each.pcie_bytes / 1e6:,.2f} MB",
             f"{each.link_bytes / 1e6:,.2f} MB", each.step.binds] if each.step else
            [each.system, "-", "-", "-", "-", "-", each.lacks] for each in report.systems]


def write(report: Report, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    made = Page("hotrail train-time", "A training step in seven systems", lead=f"{report.sentence}.")
    steps = {each.system: each.step for each in report.systems if each.step}
    resources = list(dict.fromkeys(name for step in steps.values() for name in step.busy))
    made.add("Steps", Text(NOTE), Table("A step of each system", HEAD, _cells(report), key="system"),
             Bars("Work of a step", "Milliseconds of each resource per step. Where mini-batches overlap, a step is "
                  "shorter than their sum.", Axis("ms"), Axis("system"),
                  [Series(name, [(system, 1e3 * step.busy.get(name, 0.0)) for system, step in steps.items()])
                   for name in resources], key="system", labels=list(steps), across=True))
    made.add("Stages", Table("Stages of each step", ("system", "stage", "per mini-batch, on average"), [
        [system, name, duration(seconds)] for system, step in steps.items() for name, seconds in step.stages.items()],
                             left=2))
    return made.write(folder)
