"""What `hotrail train-time` prints, and its page."""

from dataclasses import dataclass
from pathlib import Path

from gen.planner.plan import duration, rate
from gen.training.systems import Predicted
from gen.training.workload import DENSE, Workload
from hotrail.report.page import Axis, Bars, Page, Series, Table, Text
from hotrail.terminal import console, print_table

HEAD = ("system", "step", "samples per second", "speedup", "PCIe per step", "between GPUs", "what binds")
NOTE = ("Estimates of a model fitted to published step times. Its median error on published figures that it was not "
        "fitted to is 12 %, its largest 87 %")
HOTLINE = "; it overestimates the speedup of Hotline on four GPUs by up to a factor of two"


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
    def sentences(self) -> dict[str, str]:
        """By what they are about."""
        of = self.of
        popular = "as --popular says" if self.given else (
            f"the least, tables taken as independent; {of.popular_most:.1%} the most, rare rows together in samples; "
            "--popular sets it")
        networks = f"{of.dense:,} parameters" + (" as in Meta's DLRM for Criteo Kaggle" if of.dense == DENSE else "")
        baseline = f"{self.baseline}, {duration(self.baseline_s)} per step"
        own = next(each.step for each in self.systems if each.system == self.baseline)
        if own and duration(own.seconds) != duration(self.baseline_s):
            ratio = self.baseline_s / own.seconds
            baseline += (f", as measured; the model takes it to be {duration(own.seconds)}, "
                         f"{rate(max(ratio, 1 / ratio))} times {'less' if ratio > 1 else 'more'} than you measured; "
                         "speedups include that")
        return {"log": f"{self.source}: {of.tables:,.0f} tables, {of.lookups:,.2f} lookups per sample",
                "step": f"{of.batch:,} samples on {of.gpus} {self.gpu}, {of.unique:,.0f} distinct rows, {of.cold:,.0f} "
                        "of them cold",
                "model": f"rows of {of.dim:,} values (--dim), networks of {networks} (--dense)",
                "popular": f"{of.popular:.1%} of samples, with {of.cached_rows:,} rows on each GPU: {popular}",
                "baseline": baseline}

    @property
    def note(self) -> str:
        """How far estimates can be trusted; of Hotline only where it is estimated on several GPUs."""
        hotline = any(each.system == "hotline" and each.step for each in self.systems) and self.of.gpus > 1
        return f"{NOTE}{HOTLINE if hotline else ''} (docs/train-time.md)."


def show(report: Report) -> None:
    shown = console(140)
    for what, said in report.sentences.items():
        shown.print(f"{what:<10} {said}", soft_wrap=True)
    print_table(shown, HEAD, _cells(report))
    shown.print(f"note       {report.note}", soft_wrap=True)


def _cells(report: Report) -> list[list[str]]:
    return [[each.system, duration(each.step.seconds), f"{report.of.batch / each.step.seconds:,.0f}",
             f"{report.baseline_s / each.step.seconds:.2f}", f"{each.pcie_bytes / 1e6:,.2f} MB",
             f"{each.link_bytes / 1e6:,.2f} MB", each.step.binds] if each.step else
            [each.system, "-", "-", "-", "-", "-", each.lacks] for each in report.systems]


def write(report: Report, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    made = Page("hotrail train-time", "A training step in seven systems", lead=f"{report.sentences['log']}.")
    steps = {each.system: each.step for each in report.systems if each.step}
    resources = list(dict.fromkeys(name for step in steps.values() for name in step.busy))
    made.add("Steps", *(Text(f"{what[0].upper()}{what[1:]}: {said}.") for what, said in report.sentences.items()
                        if what != "log"), Text(report.note),
             Table("A step of each system", HEAD, _cells(report), key="system"),
             Bars("Work of a step", "Milliseconds of each resource per step. Where mini-batches overlap, a step is "
                  "shorter than their sum.", Axis("ms"), Axis("system"),
                  [Series(name, [(system, 1e3 * step.busy.get(name, 0.0)) for system, step in steps.items()])
                   for name in resources], key="system", labels=list(steps), across=True))
    made.add("Stages", Table("Stages of each step", ("system", "stage", "per mini-batch, on average"), [
        [system, name, duration(seconds)] for system, step in steps.items() for name, seconds in step.stages.items()],
                             left=2))
    return made.write(folder)
