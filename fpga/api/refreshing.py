"""From a bundle and new traffic to a delta on disk: profile, costs of the device, the rows that move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpga.card.costs import measure
from gen.base.members import check_replaceable
from gen.bundle import Bundle
from gen.data.logs.reading import Reading
from gen.data.profiling import flow
from gen.delta import Delta, apply, write
from gen.model.log_options import LogOptions
from gen.planner.refresh import Refreshed, refresh


@dataclass(frozen=True)
class Options(LogOptions):
    """As the command has them, beside how the log is read. logs: see gen.data.profiling.flow; within, gap, seconds,
    table_wise: see gen.planner.refresh; whole: where the bundle goes that the delta leaves, None: nowhere."""

    logs: Sequence[str]
    within: float = 0.05
    sample: float = 1.0
    gap: float = 0.01
    seconds: float = 60.0
    table_wise: bool = False
    whole: Path | None = None
    tables: Sequence[str] = ()


def run(bundle: Bundle, options: Options, folder: Path, *, say: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        read: Callable[[Reading], None] = lambda _: None) -> tuple[Refreshed, Delta]:
    """Writes the delta and, where it is asked for, the bundle that it leaves, each whole or not at all.

    Raises      ValueError: what is missing or does not fit, or no swaps that are fast enough, in one sentence
    """
    check_replaceable(Path(folder), "delta")
    if options.whole is not None:
        check_replaceable(Path(options.whole), "bundle")
    model = bundle.plan.model
    specs = [*model.tables.values(), *(each.spec for each in bundle.plan.stored.values())]
    costs = measure(bundle.device, str(bundle.preset), dims={spec.dim for spec in specs},
                    row_formats=sorted({spec.row_format for spec in model.tables.values()}))
    costs = costs.shared(len(bundle.plan.cards))
    profile = flow.profile_of(flow.Options(options.logs, model, sample=options.sample, tables=options.tables,
                                           **options.given()), say=say, progress=progress, read=read)
    vocabularies = {name: ids for name in model.tables if (ids := bundle.vocabulary(name)) is not None}
    found = refresh(bundle.plan, {name: bundle.words(name) for name in model.tables}, vocabularies, profile, costs,
                    within=options.within, gap=options.gap, seconds=options.seconds, table_wise=options.table_wise,
                    say=lambda line: say(f"search     {line}"))
    delta = write(folder, bundle, found.plan, found.words)
    if options.whole is not None:
        apply(options.whole, bundle, delta)
    return found, delta
