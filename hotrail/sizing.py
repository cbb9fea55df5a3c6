"""The command from a load to the number of cards."""

from pathlib import Path

import click

from gen.base.staging import together
from gen.base.tools import build_folder
from hotrail.as_json import JSON, result
from hotrail.completion import device_names, preset_names
from hotrail.planning import FORMAT

__all__ = ["COMMANDS"]


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@click.option("--qps", type=click.FloatRange(0, min_open=True), required=True,
              help="Samples per second, which arrive at random.")
@click.option("--p99-ms", type=click.FloatRange(0, min_open=True), required=True,
              help="Milliseconds within which 99 % of the samples must have their result.")
@click.option("--model", type=click.Path(path_type=Path), help="The model's .toml [tables as the log has them].")
@FORMAT
@click.option("--device", shell_complete=device_names, default="smartssd", show_default=True,
              help="Name of a device, or a path that ends in .toml.")
@click.option("--preset", shell_complete=preset_names, default="smartssd", show_default=True,
              help="The preset whose cores the cards have.")
@click.option("--cards", type=click.IntRange(1), default=8, show_default=True,
              help="Most cards that share one copy of the model.")
@click.option("--tt-share", type=click.FloatRange(0, 1),
              help="Largest share of each table's accesses that reads TT rows, which are approximations "
                   "[the model's, else 0.1].")
@click.option("--results", type=click.Choice(("float32", "float16", "bfloat16")),
              help="Format in which pooled vectors leave the cards [the model's, else float32].")
@click.option("--row-format", type=click.Choice(("float32", "float16", "bfloat16", "int8", "int4")),
              help="Format of rows in DRAM and on the SSD [the model's, else float32].")
@click.option("--tt-format", type=click.Choice(("float32", "block16")),
              help="Format of tensor-train cores on chip; block16 takes half the room [the model's, else float32].")
@click.option("--dim", type=click.IntRange(1), default=64, show_default=True, help="Values per row, without a model.")
@click.option("--batch", type=click.IntRange(1), help="Most samples per batch [the model's, else 2048].")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
              help="Share of the log's samples to count.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="Limit of each search for a placement, in seconds of work.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for profile.npz, index.html [build/size].")
@JSON
def size(log: tuple[str, ...], qps: float, p99_ms: float, model: Path | None, kind: str | None, device: str,
         preset: str, cards: int, tt_share: float | None, results: str | None, row_format: str | None,
         tt_format: str | None, dim: int, batch: int | None, sample: float, seconds: float, out: Path | None) -> None:
    """Says how many cards serve LOG's model at a load, and what CPU servers and GPUs it would take.

    A plan is made for groups of 1, 2, 4 .. cards, each of which holds the model. Samples arrive at random; batches
    follow each other through link, memories and networks by the plan's seconds. One core of this machine is measured.
    """
    from fpga.api import planning as flow
    from fpga.api.servers import GPU, SERVER, core_seconds, machines
    from gen.model.device import Device
    from hotrail.report import size as report
    from hotrail.terminal import progress, say

    options = flow.Options(log, kind, model, device, preset, cards, 3, tt_share=tt_share, dim=dim, batch=batch,
                           sample=sample, seconds=seconds, explain=False, results=results, row_format=row_format,
                           tt_format=tt_format)
    folder = out or build_folder() / "size"
    with together(folder) as half:
        with progress() as shown:
            found, profile, notes = flow.size(options, qps, p99_ms * 1e-3, half, say=say, progress=shown)
        of = found[0].plan.model
        say("measuring  one core of this machine")
        core_s = core_seconds(of, profile)
        others = [(each, *machines(each, of, profile, qps, core_s)) for each in (SERVER, GPU)]
        sized = report.Sized(found, Device.load(device), qps, p99_ms * 1e-3, core_s, tuple(others), notes)
        page = report.write(sized, half)
    report.show(sized)
    for line in report.sentences(sized):
        say(line)
    say(f"report     {folder / page.name}")
    result(page=folder / page.name, qps=qps, p99_s=p99_ms * 1e-3, cards=sized.best.cards if sized.best else None,
           groups=[{"cards_per_copy": len(each.plan.cards), "copies": each.number, "cards": each.cards,
                    "batch_s": each.plan.seconds, "latency_s": each.found._asdict() if each.found else None}
                   for each in found],
           core_s=core_s, others=[{"machine": each.name, "number": number, "by": why} for each, number, why in others])


COMMANDS = (size,)
