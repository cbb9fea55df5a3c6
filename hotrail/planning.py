"""The commands from a click log to a plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gen.base.sealed import writing
from gen.base.staging import staged, together
from gen.base.tools import build_folder
from gen.data.profile import FILE as PROFILE
from gen.model.recommender import WORDS
from gen.planner.plan import FILE
from hotrail.as_json import JSON, result
from hotrail.completion import device_names, preset_names
from hotrail.reading import Count, Number, Readings, log_options

HELD_BACK = click.option("--held-back", type=Number(0, 1, max_open=True), default=0.0, show_default=True,
                         help="Share of the samples, the log's last, that is counted apart, to hold the plan against.")
MODEL = click.option("--model", type=click.Path(path_type=Path), help="The model's .toml [tables as the log has them].")
DEVICE = click.option("--device", shell_complete=device_names, default="smartssd", show_default=True,
                      help="Name of a device, or a path that ends in .toml.")
PRESET = click.option("--preset", shell_complete=preset_names, default="smartssd", show_default=True,
                      help="The preset whose cores the cards have.")
TT_SHARE = click.option("--tt-share", type=Number(0, 1),
                        help="Largest share of each table's accesses that reads TT rows, which are "
                             "approximations; 1 is SCRec's program [the model's, else 0.1].")
RESULTS = click.option("--results", type=click.Choice(WORDS["results"]),
                       help="Format in which pooled vectors leave the cards [the model's, else float32].")
ROW_FORMAT = click.option("--row-format", type=click.Choice(WORDS["row_format"]),
                          help="Format of rows in DRAM and on the SSD [the model's, else float32].")
TT_FORMAT = click.option("--tt-format", type=click.Choice(WORDS["tt_format"]),
                         help="Format of tensor-train cores on chip; block16 takes half the room "
                              "[the model's, else float32].")
ERROR_BUDGET = click.option("--error-budget", type=click.FloatRange(0),
                            help="Largest error that formats may bring to a table's pooled vectors, root mean square "
                                 "over their size; row and TT formats are chosen within it "
                                 "[the model's, else formats as given].")
WEIGHTS = click.option("--weights", type=click.Path(path_type=Path),
                       help="The model's parameters, an .npz, of whose rows errors are measured [normal rows].")
HORIZON = click.option("--horizon", metavar="SAMPLES",
                       help="Samples until the next refresh, which the plan is made for, or a multiple of the log's "
                            "with an x [0.25x].")
DIM = click.option("--dim", type=Count(), help="Values per row, without a model [64].")
VALUES = click.option("--dim", type=Count(), default=64, show_default=True, help="Values per row.")
SAMPLE = click.option("--sample", type=Number(0, 1, min_open=True), default=1.0, show_default=True,
                      help="Share of the log's samples to count.")


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@MODEL
@log_options
@DEVICE
@PRESET
@click.option("--cards", type=Count(), default=8, show_default=True,
              help="Number of cards, EMB and MLP cores together.")
@click.option("--levels", type=click.IntRange(1, 3), default=3, show_default=True,
              help="Memories to use: 1 SSD only, 2 DRAM and SSD, 3 DRAM, tensor trains (TT) and SSD.")
@click.option("--rank", type=Count(), default=4, show_default=True, help="Rank of the tensor trains.")
@click.option("--hot-share", type=Number(0, 1),
              help="Largest share of each table's accesses that leaves the SSD [the model's, else 1].")
@TT_SHARE
@click.option("--tt-gain", type=Number(0, 1), default=0.1, show_default=True,
              help="Share of a batch's time that TT rows must save; a plan in which they save less has none.")
@click.option("--table-wise", is_flag=True, help="Every table whole on one card, as in SCRec's program.")
@click.option("--join", is_flag=True,
              help="Join small tables of which each sample has one index, a row for each pair of their rows.")
@RESULTS
@ROW_FORMAT
@TT_FORMAT
@ERROR_BUDGET
@WEIGHTS
@DIM
@click.option("--batch", type=Count(), help="Samples per batch [the model's, else 2048].")
@SAMPLE
@HELD_BACK
@HORIZON
@click.option("--gap", type=Number(0), default=0.01, show_default=True,
              help="Optimality gap at which a search may end.")
@click.option("--seconds", type=Number(0, min_open=True), default=60.0, show_default=True,
              help="Limit of each search, in seconds of work: the plan does not depend on the machine's speed.")
@click.option("--quick", is_flag=True, help="Only this placement, no comparison with fewer memories or one more card.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for plan.json, profile.npz, index.html [build/plan].")
@JSON
def plan(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], quick: bool, out: Path | None,
         **options: Any) -> None:
    """Places the rows of LOG in memories of cards.

    Prints the lower bound, the optimality gap, what each card waits for, and the effect of more memory or cards.
    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS), a saved profile, or counts that
    are published: criteo_kaggle, mels2021, mels2022.
    """
    from fpga.api import planning as flow
    from hotrail.report import plan as report
    from hotrail.terminal import progress, say

    request = flow.Options(log, tables=table, explain=not quick, **options, **how)
    readings = Readings()
    folder = out or build_folder() / "plan"
    with together(folder, "plan") as half:
        try:
            with progress() as shown:
                planned, profile = flow.run(request, half, say=say, progress=shown, read=readings)
        except ValueError:
            # Counting may have taken long; but a profile is not put beside a plan that was made of another.
            if (half / PROFILE).exists() and not (folder / FILE).exists():
                with together(folder, "plan") as kept:
                    (half / PROFILE).rename(kept / PROFILE)
                say(f"saved      {folder / PROFILE}: `hotrail plan` takes it in the log's place")
            raise
        page = report.write(planned, profile, half)
    report.show(planned)
    say(f"plan       {folder / FILE}, the page beside it: {folder / page.name}")
    result(plan=folder / FILE, profile=folder / PROFILE, page=folder / page.name, device=planned.device,
           preset=planned.preset, source=planned.source, batch=planned.batch, batch_s=planned.seconds,
           bound_s=planned.bound, gap=planned.gap, samples_per_s=planned.samples_per_s, levels=planned.levels,
           tt_share=planned.approximated, ssd_share=planned.from_ssd, unseen_share=planned.unseen,
           cards=planned.cards, tables=planned.tables,
           fewer_levels_s={levels: each[0] for levels, each in planned.ablation.items()},
           what_if_s={what: each[0] for what, each in planned.what_if.items()}, assumed=planned.assumed,
           held_back=planned.held, horizon=planned.horizon, log=readings.log, formats={
               name: {"row_format": spec.row_format, "tt_format": spec.tt_format}
               for name, spec in planned.model.tables.items()}, error_budgets=planned.widths, accuracy=planned.accuracy)


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@MODEL
@log_options
@click.option("--sample", type=Number(0, 1, min_open=True), default=1.0, show_default=True,
              help="Share of the samples to count; up to one half the sampling error is shown.")
@click.option("--together", "second", is_flag=True,
              help="A second pass: popular samples, tables whose rare rows occur together, miss ratios of LRU.")
@VALUES
@click.option("--rank", type=Count(), default=4, show_default=True, help="Rank for the compression ratio.")
@HELD_BACK
@click.option("--workers", type=Count(0), default=0, show_default=True,
              help="Processes of a Dask cluster on this machine; 0: none.")
@click.option("--scheduler", help="Address of a Dask scheduler.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for profile.npz, index.html [build/profile].")
@JSON
def profile(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], model: Path | None, sample: float,
            second: bool, dim: int, rank: int, held_back: float, workers: int, scheduler: str | None, out: Path |
            None) -> None:
    """Counts the accesses of LOG per row.

    Also counts the rows that a sample looks up, the compression by tensor trains, and rows that occur together.
    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS), a saved profile, or counts that
    are published: criteo_kaggle, mels2021, mels2022.
    """
    from gen.data.profiling import flow
    from gen.model.recommender import Recommender
    from hotrail.report import profile as report
    from hotrail.terminal import progress, say

    folder = out or build_folder() / "profile"
    options = flow.Options(log, Recommender.load(model) if model else None, dim, sample, second, held_back,
                           workers, scheduler, table, **how)
    readings = Readings()
    said: list[str] = []
    with together(folder, "profile") as half:
        with progress() as shown:
            counted = flow.run(options, half, say=said.append, progress=shown, read=readings)
        page = report.write(counted, half, dim=dim, rank=rank)
    for line in said:       # now that the profile is in its place, whoever reads may go away
        say(line)
    say(f"profile    {report.sentence(counted)}")
    report.show(counted, dim=dim, rank=rank)
    say(f"saved      {folder / PROFILE}, the page beside it: {folder / page.name}")
    result(profile=folder / PROFILE, page=folder / page.name, source=counted.source, log=readings.log,
           samples=counted.samples, sampled=counted.sampled, tables={name: {
               "rows": table.rows, "rows_accessed": table.heat.touched, "accesses": table.heat.total,
               "indices_per_sample": table.pooling, "longest_bag": int(table.bag_lengths.max(initial=0)),
               "rows_of_half": table.heat.icdf(0.5), "rows_of_90": table.heat.icdf(0.9)}
               for name, table in counted.tables.items()})


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@log_options
@VALUES
@click.option("--batch", type=Count(), default=2048, show_default=True, help="Samples per batch.")
@SAMPLE
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file [build/model.toml].")
@JSON
def model(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], dim: int, batch: int, sample: float,
          out: Path | None) -> None:
    """Writes the model file that `hotrail plan --model` takes, from LOG.

    It has the log's tables, rows and policies of ids. Comments say what was assumed: edit these.
    LOG is a click log (files or a folder; text, JSON, npz, Parquet, MELS), a saved profile, or counts that
    are published: criteo_kaggle, mels2021, mels2022.
    """
    from gen.data.profiling import flow
    from gen.planner.assume import model_of, text_of
    from hotrail.terminal import progress, say

    path = out or build_folder() / "model.toml"
    if path.suffix != ".toml":
        raise click.UsageError(f"{path} must end in .toml")
    if path.exists():
        raise click.UsageError(f"{path} exists already; --out names another file")
    options, readings = flow.Options(log, None, dim, sample, tables=table, **how), Readings()
    with progress() as shown:
        profile = flow.profile_of(options, say=say, progress=shown, read=readings)
    built, notes = model_of(profile, dim, batch)
    built = replace(built, log=options.over(built.log))
    with writing(path), staged(path) as half:
        half.write_text(text_of(built, profile, notes), encoding="utf-8")
    for note in notes:
        say(f"assumed    {note}")
    say(f"model      {path}: {len(built.tables)} tables, {sum(spec.rows for spec in built.tables.values()):,} rows")
    result(model=path, tables=built.tables, batch=built.batch, assumed=notes, log=readings.log)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("log", nargs=-1, required=True)
@log_options
@click.option("--within", type=Number(0), default=0.05, show_default=True,
              help="So much more time than that of a plan made afresh is allowed.")
@SAMPLE
@click.option("--table-wise", is_flag=True, help="The plan made afresh has every table whole on one card.")
@click.option("--gap", type=Number(0), default=0.01, show_default=True,
              help="Optimality gap at which a search may end.")
@click.option("--seconds", type=Number(0, min_open=True), default=60.0, show_default=True,
              help="Limit of each search, in seconds of work.")
@click.option("--bundle", "whole", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for the whole bundle that the delta leaves [none].")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the delta [build/refresh].")
@JSON
def refresh(bundle: Path, log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], within: float,
            sample: float, table_wise: bool, gap: float, seconds: float, whole: Path | None, out: Path | None) -> None:
    """Adapts BUNDLE to the traffic of LOG.

    Moves as few rows as possible between DRAM and SSD. Writes a delta, which running cards take between two batches.
    """
    from fpga.api import refreshing as flow
    from gen.bundle import Bundle
    from gen.planner.horizon import schedule
    from gen.planner.plan import duration
    from hotrail.terminal import progress, say

    options, readings = flow.Options(log, within, sample, gap, seconds, table_wise, whole, table, **how), Readings()
    folder, opened = out or build_folder() / "refresh", Bundle(bundle)
    with progress() as shown:
        refreshed, delta = flow.run(opened, options, folder, say=say, progress=shown, read=readings)
    size = sum((delta.folder / name).stat().st_size for name in delta.members)
    say(f"batch      {duration(refreshed.plan.seconds)}; {duration(refreshed.stayed_s)} if no row moved, "
        f"{duration(refreshed.fresh.seconds)} by a plan made afresh")
    moves = f"{refreshed.rows:,} move" if refreshed.rows else "no row has to move"
    fewer = f"; fewer than {refreshed.least:,} do not suffice" if refreshed.least else ""
    say(f"rows       {moves}{fewer}; a plan made afresh moves {refreshed.fresh_rows:,}")
    if (samples := schedule(opened.plan, within)) is not None:
        say(f"schedule   refresh again after {samples:,} samples: until then a batch is expected to take at most "
            f"{within:.0%} longer")
    say(f"delta      {delta.folder}: {size:,} bytes" + (f"; the bundle that it leaves: {whole}" if whole else ""))
    result(delta=delta.folder, bundle=whole, size_bytes=size, batch_s=refreshed.plan.seconds,
           stayed_s=refreshed.stayed_s, fresh_s=refreshed.fresh.seconds, rows=refreshed.rows,
           rows_least=refreshed.least, rows_fresh=refreshed.fresh_rows,
           next_samples=schedule(opened.plan, within), assumed=refreshed.plan.assumed, log=readings.log)


COMMANDS = (plan, profile, model, refresh)
