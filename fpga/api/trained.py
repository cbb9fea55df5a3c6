"""From a trained model's tables and a click log to a bundle: profile, placement, images, in one call.

    made = bundle("model.pt", "clicks.csv", out="build/bundle", tables={"user_id": "user_embedding"}, cards=2)
    with Cards(made) as cards: ...
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fpga.card.costs import measure
from gen import bundle as bundles
from gen.base.tools import build_folder
from gen.bundle import Bundle
from gen.data.checkpoint import read
from gen.data.logs.columns import by_table
from gen.data.logs.opening import LogLike, named_in, opened
from gen.data.profile import Profile
from gen.data.profiling import stream
from gen.data.shapes import positive
from gen.data.trained import Ids, Placed, TrainedTable, TrainedWeights, placed
from gen.model.device import Device
from gen.model.log_options import LogOptions
from gen.model.recommender import CHOSEN, ROW_FORMATS, Recommender
from gen.planner.planning import make
from gen.planner.widths import head, measured
from gen.rtl import config

BATCH = 2048
READING = tuple(each.name for each in fields(LogOptions))
OPTIONS = ("results", *CHOSEN, "error_budget")      # of a TableSpec, for all tables


def bundle(model: Any, log: LogLike, *, out: str | Path | None = None, tables: Mapping[str, str] | None = None,
          columns: Mapping[str, str | Sequence[str]] | None = None, ids: Ids | Mapping[str, Ids] | None = None,
          unknown: Mapping[str, int] | None = None, quantised: str = "int8",
          say: Callable[[str], None] | None = None, **options: Any) -> Bundle:
    """A bundle of a trained model's tables, placed by a log on the cards of a device. Rows are stored as given: pooled
    vectors differ from the model's by the order of FP32 additions alone.

    Parameters  model: a path (.pt, .pth, .bin, .ckpt, .npz, .onnx), a state dict or FBGEMM's tables, see
                gen.data.checkpoint.read with tables and quantised; log: paths as gen.data.logs.open_log takes them, or
                what it returns; out: the bundle's folder, default build/bundle; columns: of the log, by table, one name
                or several that share the table [the table's name]; ids: how the log's ids become rows, by table or one
                of these for all: "index", "modulo", "vocabulary" (ascending ids of the log), row k's id for every k,
                a row for each id ({id: row}, ids may be texts; by table alone), or a function of ids to rows, as a
                hash, which is tabulated for the ids of the log ["index"]; unknown: the row of ids that are in none of
                them, by table [the last one]; say: gets lines of progress; options: device ["smartssd"], preset
                ["smartssd"], cards [8], batch [2048] and mode [the model's, else "sum"] of all tables, levels of
                memories [2: DRAM and SSD; 3 adds tensor trains, which approximate rows], row_format, tt_format and
                results [float32], or error_budget, within which the first two are chosen by the errors of pooled
                vectors of the log, sample, the share of the log that is counted [1], and how it is read, as open_log
                takes it: format, missing, separator, fields, lists, order_by
    Raises      ValueError: one sentence with the table, column or file that does not fit
    """
    held = read(model, tables, quantised)
    source = Path(model).name if isinstance(model, str | Path) else type(model).__name__
    return laid_out(held, source, log, out=out, columns=columns, ids=ids, unknown=unknown, say=say, **options)[0]


def laid_out(held: Sequence[TrainedTable], source: str, log: LogLike, *, out: str | Path | None = None,
             columns: Mapping[str, str | Sequence[str]] | None = None, ids: Any = None,
             unknown: Mapping[str, int] | None = None, say: Callable[[str], None] | None = None,
             device: str = "smartssd", preset: str = "smartssd", cards: int = 8, batch: int = BATCH,
             mode: str | None = None, levels: int = 2, sample: float = 1.0, otherwise: str = "",
             **options: Any) -> tuple[Bundle, dict[str, Placed]]:
    """As `bundle`, of tables that are known, and how each table's rows lie in the bundle. source: whose tables they
    are; otherwise: what else is possible where the log has no column of a table's."""
    silent, say = say is None, say or (lambda text: None)
    how = {name: options.pop(name, None) for name in READING}
    reading = LogOptions.of({name: value for name, value in how.items() if value is not None})
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(OPTIONS)}, device, preset, cards, "
                            f"batch, mode, levels, sample, {', '.join(READING)}")
    positive("cards", cards)
    positive("batch", batch)
    config.load(preset)
    Device.load(device)
    held = [_named(table, columns or {}, ids, unknown or {}, mode) for table in held]
    if twice := [name for name, count in Counter(table.name for table in held).items() if count > 1]:
        raise ValueError(f"{source} has {len(held)} tables, more than one of them named {twice[0]!r}")
    for named in (columns or {}, unknown or {}, ids if isinstance(ids, Mapping) else {}):
        for name in named:
            if name not in [table.name for table in held]:
                raise ValueError(f"there is no table {name!r}; there are {', '.join(table.name for table in held)}")
    by_name = {table.name: table.columns or (table.name,) for table in held}
    names = tuple(dict.fromkeys(column for each in by_name.values() for column in each))
    try:
        source_log = opened(log, names, **reading.given())
        found = by_table(source_log, by_name)
    except ValueError as error:
        if at := named_in(error, by_name):
            raise ValueError(f"{error}: columns={{{at!r}: COLUMN}} names the table's own{otherwise}") from error
        raise
    profile = stream.profile(found, sample=sample)
    say(f"profile    {profile.source}: {profile.samples:,} samples, {len(profile.tables)} tables")
    chosen = {name: value for name, value in options.items() if value is not None}
    laid = {table.name: placed(table, _counted(profile, table.name),
                               **(chosen if table.array.dtype.kind == "f" else _without_format(chosen)))
            for table in held}
    model = Recommender(Path(source).stem, source, {name: each.spec for name, each in laid.items()}, None, batch,
                        reading)
    profile = stream.with_rows(profile, {name: spec.rows for name, spec in model.tables.items()})
    weights = TrainedWeights(list(laid.values()), source)
    budgets = any(spec.error_budget is not None for spec in model.tables.values())
    costs = measure(device, preset, dims={spec.dim for spec in model.tables.values()}, row_formats=ROW_FORMATS
                    if budgets else sorted({spec.row_format for spec in model.tables.values()}))
    plan = make(model, profile, costs.shared(cards), cards=cards, levels=levels, explain=False,
                errors=measured(model, weights, profile, head(source_log)) if budgets else None,
                say=lambda line: say(f"search     {line}"))
    bundle = bundles.write(out or build_folder() / "bundle", plan, profile, weights, say=say)
    for warning in bundle.warnings if silent else ():
        warnings.warn(warning, stacklevel=3)
    return bundle, laid


def _named(table: TrainedTable, columns: Mapping[str, str | Sequence[str]], ids: Any, unknown: Mapping[str, int],
           mode: str | None) -> TrainedTable:
    """With what is given for it."""
    named = columns.get(table.name, table.columns)
    of_ids = ids.get(table.name) if isinstance(ids, Mapping) else ids
    return replace(table, columns=(named,) if isinstance(named, str) else tuple(named), mode=mode or table.mode,
                   ids=table.ids if of_ids is None else of_ids, unknown=unknown.get(table.name, table.unknown))


def _counted(profile: Profile, table: str) -> Any:
    ids = profile.tables[table].ids
    assert ids is not None, "a log that is read has ids"
    return ids


def _without_format(given: Mapping[str, Any]) -> dict[str, Any]:
    """Rows that are quantised already stay so."""
    return {name: value for name, value in given.items() if name not in ("row_format", "error_budget")}
