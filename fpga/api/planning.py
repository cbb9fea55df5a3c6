"""From a log to a plan on disk: profile, costs of the device, placement."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fpga.card.costs import PAGE_BYTES, measure
from gen.base.staging import together
from gen.base.tools import build_folder
from gen.data.expected import unseen_share
from gen.data.logs import open_for
from gen.data.logs.bounds import few
from gen.data.logs.log import Chunk, Log
from gen.data.logs.opening import settled
from gen.data.logs.reading import Reading
from gen.data.profile import FILE as PROFILE
from gen.data.profile import Profile
from gen.data.profiling import flow
from gen.data.profiling.held import parted, tail_of
from gen.data.profiling.sources import statistics_of
from gen.data.shapes import positive
from gen.model.device import Device
from gen.model.log_options import LogOptions
from gen.model.recommender import CHOSEN, ROW_FORMATS, WORDS, Recommender, TableSpec
from gen.model.weights import FileWeights
from gen.planner.assume import model_of
from gen.planner.build import check_cards
from gen.planner.costs import Costs, row_bytes
from gen.planner.horizon import horizon_of
from gen.planner.plan import Plan
from gen.planner.planning import make
from gen.planner.served import served
from gen.planner.sizing import Copy, copies, groups
from gen.planner.widths import Errors, accuracy, head, measured

BATCH, DIM = 2048, 64       # without a model
#: Share of a table's accesses from which on it is said that they have no row.
FEW = 0.01
SILENT = "--horizon has no effect: a short log, or counts alone, do not say what later samples ask for"


@dataclass(frozen=True)
class Options(LogOptions):
    """As the command has them, beside how the log is read. logs, tables: see gen.data.profiling.flow; model: a path,
    None: assumed of the log."""

    logs: Sequence[str | Path]
    model: Path | None = None
    device: str = "smartssd"
    preset: str = "smartssd"
    cards: int = 8
    levels: int = 3
    rank: int = 4
    hot_share: float | None = None
    tt_share: float | None = None
    dim: int | None = None
    batch: int | None = None
    sample: float = 1.0
    gap: float = 0.01
    seconds: float = 60.0
    explain: bool = True
    results: str | None = None
    row_format: str | None = None
    tt_format: str | None = None
    held_back: float = 0.0
    tt_gain: float = 0.1
    table_wise: bool = False
    error_budget: float | None = None
    weights: Path | None = None
    join: bool = False
    tables: Sequence[str] = ()
    horizon: float | str | None = None


def plan(log: str | Path | Sequence[str | Path], *, out: str | Path | None = None,
         say: Callable[[str], None] = lambda _: None, **options: Any) -> Plan:
    """Places the rows of a log's tables in memories of cards; seconds per batch, lower bound and what explains them.

    Parameters  log: paths, or what else `hotrail plan` takes; out: folder for plan.json and profile.npz, default
                build/plan; say: gets lines of progress; options: tables, format, missing, separator, fields, lists
                and order_by, as hotrail.open_log takes them, model [its .toml; tables as the log has them], device
                and preset ["smartssd"], cards [8], levels of memories [3], rank [4] of the tensor trains, hot_share,
                tt_share, tt_gain [0.1], dim [64] and batch [2048] without a model, results, row_format and tt_format
                [float32], or error_budget, within which both are chosen, and weights, an .npz, of whose rows errors
                are measured [normal rows], sample [1] and held_back [0] of the samples, gap [0.01], seconds [60] of
                each search, explain [True]: also with fewer memories and more cards, table_wise [False], join [False]
                small tables into products, horizon ["0.25x"]: samples until the next refresh, or a text with an x,
                a multiple of the log's
    Raises      ValueError: what is missing or does not fit, in one sentence; TypeError: no such option
    """
    positive("cards", options.get("cards", 1))
    logs = [str(each) for each in ([log] if isinstance(log, str | Path) else log)]
    with together(Path(out or build_folder() / "plan"), "plan") as half:
        return run(Options(logs, **options), half, say=say)[0]


def run(options: Options, folder: Path, *, say: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        read: Callable[[Reading], None] = lambda _: None) -> tuple[Plan, Profile]:
    """Writes profile.npz and plan.json into `folder`, each whole or not at all; the first as soon as the log is
    counted. read: told how the log was understood.

    Raises      ValueError: what is missing or does not fit, in one sentence
    """
    weights = _weights(options)
    options = options if weights is None else replace(options, logs=settled(options.logs))
    model, profile, costs, notes = _prepared(options, folder, say, progress, read)
    chunks = () if weights is None else _samples(options, model)
    errors = None if weights is None else measured(model, weights, profile, chunks)
    plan = _planned(options, model, profile, costs, options.cards, say, errors)
    if weights is not None:
        plan = replace(plan, accuracy=accuracy(plan.model, weights, profile, chunks))
    with (folder / PROFILE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tail, shared = tail_of(profile), costs.shared(options.cards)
    ahead = horizon_of(plan, profile, shared)
    if options.horizon is not None and ahead is None:
        notes += (SILENT,)
    notes += tuple(_expectations(plan, profile))
    plan = replace(plan, assumed=(*notes, *plan.assumed), profile_sha256=digest,
                   held=None if tail is None else served(plan, profile, tail, shared), horizon=ahead)
    plan.save(folder)
    return plan, profile


def _expectations(plan: Plan, profile: Profile) -> Iterator[str]:
    """Tables whose accesses count by their age; what is expected of ids for which a table has no row."""
    aged = [name for name, spec in plan.model.tables.items()
            if (known := profile.tables[name]).ranking(spec.ids) is not known]
    if aged:
        yield (f"the rows of {few(aged)} come and go: their accesses count by their age, as that told later ones "
               "better in the log itself")
    for name, spec in plan.model.tables.items():
        known = profile.tables[name]
        if spec.ids == "index" and known.returns:
            touched = known.heat.touched
            beyond = known.returns.unseen - unseen_share(known.returns, touched, spec.rows - touched)
            if beyond >= FEW:
                yield (f"table {name}: {beyond:.1%} of the accesses until the next refresh are expected to be to new "
                       f"ids, for which its {spec.rows:,} rows leave no room; they are not planned (rows of the model "
                       "file)")


def size(options: Options, qps: float, p99_s: float, folder: Path, *, say: Callable[[str], None] = lambda _: None,
         progress: Callable[[int, int], None] = lambda done, total: None,
         read: Callable[[Reading], None] = lambda _: None) \
        -> tuple[tuple[Copy, ...], Profile, tuple[str, ...]]:
    """Copies of the model on groups of up to `options.cards` cards that bear so many samples per second within p99_s,
    for every size of a group that can hold the model; the profile; what was assumed. Writes profile.npz into `folder`.

    Raises      ValueError: what is missing or does not fit, in one sentence
    """
    weights = _weights(options)
    options = options if weights is None else replace(options, logs=settled(options.logs))
    model, profile, costs, notes = _prepared(options, folder, say, progress, read)
    errors = None if weights is None else measured(model, weights, profile, _samples(options, model))
    device, plans, refusals = Device.load(options.device), [], []
    for cards in groups(options.cards, model.network is not None):
        try:
            plan = _planned(options, model, profile, costs, cards, say, errors)
        except ValueError as error:     # they do not hold it
            refusals.append(error)
            continue
        plans.append(copies(plan, device.shared(cards), qps, p99_s))
    if not plans:
        raise refusals[-1]
    return tuple(plans), profile, (*notes, *plans[-1].plan.assumed)


def _prepared(options: Options, folder: Path, say: Callable[[str], None],
              progress: Callable[[int, int], None],
              read: Callable[[Reading], None]) -> tuple[Recommender, Profile, Costs, tuple[str, ...]]:
    """The model, the log's profile, which is written, the costs of the device, and what was assumed."""
    dim = DIM if options.dim is None else options.dim
    model = Recommender.load(options.model) if options.model else None
    if model is not None:
        if options.dim is not None:
            raise ValueError(f"--dim {options.dim} with --model {options.model}: the model names the values per row "
                             "of its tables; leave out --dim")
        model = _as_given(replace(model, batch=options.batch or model.batch, log=options.over(model.log)), options)
    check_cards(model, options.cards)
    dims = {spec.dim for spec in model.tables.values()} if model else {dim}
    formats = {spec.row_format for spec in model.tables.values()} if model else {options.row_format or ROW_FORMATS[0]}
    if options.join:
        dims |= set(_of_products(dims, options.preset))
    budgets = [options.error_budget, *(spec.error_budget for spec in (model.tables.values() if model else ()))]
    costs = measure(options.device, options.preset, dims=dims,
                    row_formats=sorted(formats) if budgets.count(None) == len(budgets) else ROW_FORMATS)
    profile = flow.run(flow.Options(options.logs, model, dim, options.sample, held_back=options.held_back,
                                    tables=options.tables, horizon=options.horizon, **options.given()), folder,
                       say=say, progress=progress, read=read)
    say(f"profile    {profile.source}: {profile.samples:,} samples, {len(profile.tables)} tables, "
        f"{sum(table.heat.total for table in profile.tables.values()):,} accesses to "
        f"{sum(table.heat.touched for table in profile.tables.values()):,} rows")
    notes: tuple[str, ...] = ()
    if model is None:
        model, notes = model_of(profile, dim, options.batch or BATCH)
        model = _as_given(replace(model, log=options.over(model.log)), options)
    return model, profile, costs, notes


def _of_products(dims: set[int], preset: str) -> Iterator[int]:
    """Values of a row of two joined tables, as far as the core takes rows as wide."""
    for dim in {one + other for one, other in product(dims, dims)}:
        with suppress(ValueError):
            row_bytes(preset, dim, PAGE_BYTES)
            yield dim


def _weights(options: Options) -> FileWeights | None:
    """The parameters. Raises ValueError: they cannot be read; a budget that cannot be, or a format and a budget for
    it"""
    if options.error_budget is not None:
        if not 0 <= options.error_budget < math.inf:
            raise ValueError(f"--error-budget {options.error_budget}: must be a number of 0 or more, 0.01 for 1 %")
        for key in CHOSEN:
            if (form := getattr(options, key)) is not None:
                raise ValueError(f"--error-budget {options.error_budget:g} lets the planner choose {key}; leave out "
                                 f"--{key.replace('_', '-')} {form}")
    return None if options.weights is None else FileWeights(options.weights)


def _samples(options: Options, model: Recommender) -> tuple[Chunk, ...]:
    """Of the log, those of which errors are measured: held back ones, if there are any, else its first; none of a log
    that holds counts alone.

    Raises      ValueError: no table has an error budget that they are of use for
    """
    if all(spec.error_budget is None for spec in model.tables.values()):
        raise ValueError(f"--weights {options.weights}: parameters are for the errors of formats, and no table has an "
                         "error budget (--error-budget)")
    if len(options.logs) == 1 and statistics_of(options.logs[0]) is not None:
        return ()
    log: Log = open_for(options.logs, options, model=model)
    return head(parted(log, options.held_back)[1] if options.held_back else log)


def _planned(options: Options, model: Recommender, profile: Profile, costs: Costs, cards: int,
             say: Callable[[str], None], errors: Mapping[str, Errors] | None) -> Plan:
    return make(model, profile, costs.shared(cards), cards=cards, rank=options.rank, levels=options.levels,
                hot_share=options.hot_share, tt_share=options.tt_share, tt_gain=options.tt_gain,
                gap=options.gap, seconds=options.seconds, table_wise=options.table_wise, explain=options.explain,
                errors=errors, join=options.join, say=lambda line: say(f"search     {line}"))


def _as_given(model: Recommender, options: Options) -> Recommender:
    """With the formats that the options name for all tables, or the error budget for those whose formats the model does
    not name. Raises ValueError: a table that cannot have one"""
    chosen: dict[str, Any] = {key: value for key in ("results", *CHOSEN)
                             if (value := getattr(options, key)) is not None}

    def formed(spec: TableSpec) -> TableSpec:
        own = dict(chosen)
        if own.keys() & set(CHOSEN):
            own["error_budget"] = None
        elif options.error_budget is not None and all(getattr(spec, key) == WORDS[key][0] for key in CHOSEN):
            own["error_budget"] = options.error_budget
        return replace(spec, **own)

    tables = {name: formed(spec) for name, spec in model.tables.items()}
    for name, spec in tables.items():
        try:
            spec.check()
        except ValueError as error:
            raise ValueError(f"table {name}: {error}") from None
    return replace(model, tables=tables)
