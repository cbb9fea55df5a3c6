"""The command from a load to the number of cards, and whether they pay off."""

from pathlib import Path
from typing import Any

import click

from gen.base.staging import together
from gen.base.tools import build_folder
from hotrail.as_json import JSON, result
from hotrail.planning import (
    DEVICE,
    DIM,
    ERROR_BUDGET,
    MODEL,
    PRESET,
    RESULTS,
    ROW_FORMAT,
    SAMPLE,
    TT_FORMAT,
    TT_SHARE,
    WEIGHTS,
)
from hotrail.reading import Count, Number, Readings, log_options

PRICE = Number(0)


@click.command()
@click.argument("log", nargs=-1, required=True, type=click.Path())
@click.option("--qps", type=Number(0, min_open=True), required=True,
              help="Samples per second, which arrive at random.")
@click.option("--p99-ms", type=Number(0, min_open=True), required=True,
              help="Milliseconds within which 99 % of the samples must have their result.")
@MODEL
@log_options
@DEVICE
@PRESET
@click.option("--cards", type=Count(), default=8, show_default=True,
              help="Most cards that share one copy of the model.")
@click.option("--card-price", type=PRICE, help="USD for a card [517 for a SmartSSD, November 2026].")
@click.option("--server-price", type=PRICE, help="USD for a CPU server of 64 cores [7,890, its processor in 2021].")
@click.option("--gpu-price", type=PRICE, help="USD for a GPU of 80 GB [8,000, March 2026].")
@click.option("--kwh-price", type=PRICE, help="USD for a kilowatt-hour [0.12, September 2024].")
@click.option("--years", type=Number(0, min_open=True), default=3.0, show_default=True,
              help="Years that devices are used.")
@TT_SHARE
@RESULTS
@ROW_FORMAT
@TT_FORMAT
@ERROR_BUDGET
@WEIGHTS
@DIM
@click.option("--batch", type=Count(), help="Most samples per batch [the model's, else 2048].")
@SAMPLE
@click.option("--seconds", type=Number(0, min_open=True), default=60.0, show_default=True,
              help="Limit of each search for a placement, in seconds of work.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for profile.npz, index.html [build/size].")
@JSON
def size(log: tuple[str, ...], how: dict[str, Any], table: tuple[str, ...], qps: float, p99_ms: float,
         card_price: float | None, server_price: float | None, gpu_price: float | None, kwh_price: float | None,
         years: float, out: Path | None, **options: Any) -> None:
    """Says how many cards serve LOG's model at a load, and whether they pay off beside CPU cores and GPUs.

    A plan is made for groups of 1, 2, 4 .. cards, each of which holds the model. Samples arrive at random; batches
    follow each other through link, memories and networks by the plan's seconds. Cores look up rows with FBGEMM where
    it is installed, else at its recorded rates. LOG: see `hotrail plan --help`.
    """
    from fpga.api import planning as flow
    from fpga.api.comparison import Lookups, compare, sentence
    from fpga.api.servers import LOOKUPS, core_seconds, gpu, lookups_by, machines, server
    from fpga.api.verdict import Prices, decide
    from gen.model.device import Device
    from hotrail.report import size as report
    from hotrail.terminal import progress, say

    asked = flow.Options(log, tables=table, explain=False, **options, **how)
    readings = Readings()
    folder = out or build_folder() / "size"
    with together(folder, "size") as half:
        with progress() as shown:
            found, profile, notes = flow.size(asked, qps, p99_ms * 1e-3, half, say=say, progress=shown,
                                               read=readings)
        by = lookups_by()
        say(f"core       lookups by {LOOKUPS[by]}, layers by NumPy on this machine")
        card = Device.load(asked.device)
        core_s = core_seconds(found[0].plan.model, profile, by=by)
        prices = Prices.given(card.name, card=card_price, server_usd=server_price, gpu_usd=gpu_price, kwh=kwh_price,
                              years=years)
        load = Lookups.of(found[0].plan.model, profile)
        offers = compare(load, prices)
        sized = report.Sized(found, qps, p99_ms * 1e-3, core_s, LOOKUPS[by],
                             decide(found, card, profile, qps, core_s, prices, p99_ms * 1e-3), notes, offers,
                             sentence(offers, load) if offers else "")
        page = report.write(sized, half)
    report.show(sized)
    for what, said in report.sentences(sized):
        say(f"{what:<10} {said}")
    say(f"report     {folder / page.name}")
    made, others = sized.decision, [(each, machines(each, found[0].plan.model, profile, qps, core_s))
                                    for each in (server(), gpu())]
    result(page=folder / page.name, log=readings.log, qps=qps, p99_s=p99_ms * 1e-3,
           verdict=made.kind, sentence=made.sentence, cards=sized.best.cards if sized.best else None,
           plan_over_twin=made.spread, break_even_card_usd=made.break_even, choices=report.choices(sized),
           prices=prices, groups=[{
               "cards_per_copy": len(each.plan.cards), "copies": each.number, "cards": each.cards,
               "batch_s": each.plan.seconds, "latency_s": each.found._asdict() if each.found else None}
                   for each in found],
           compared=[{"machine": each.name, "rows_s": each.rows_s, "samples_s": each.samples_s, "limit": each.limit,
                      "watts": each.watts, "usd": each.usd} for each in offers],
           core_s=core_s, core_by=LOOKUPS[by], assumed=notes, others=[
               {"machine": each.name, "number": number, "by": why} for each, (number, why) in others])


COMMANDS = (size,)
