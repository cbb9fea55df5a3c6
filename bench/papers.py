"""What the source papers evaluate, measured with hotrail's models: SCRec's figures 9 to 11.

docs/papers.md (`python -m bench.page`) has each beside the paper's reading. Figure 11: MELS at D 256, batches of
1,024, every table whole on a card, one, two and three memories, at the shares of SCRec (all accesses may leave the SSD,
all may read TT rows, no access to a row that the statistics lack), with the link and without it, which SCRec leaves
out; and at the shares that keep accuracy. Figure 9: RM0 to RM3 on Criteo's shape, batches of 128 on 8 cards, over
processors. Figure 10: samples per joule of 8 cards, between the bounds of fpga.card.energy, over GPUs that hold the
tables, by their data sheet and full bandwidth: no GPU is as fast on random rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure
from bench.plan import STATISTICS, TABLES
from fpga.api.servers import SERVER, Machine, core_seconds, machines, sample_bytes
from fpga.card.costs import measure
from gen.data.profile import Profile
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import mels
from gen.model.device import Device
from gen.model.network import Model
from gen.model.recommender import Recommender
from gen.planner.assume import model_of
from gen.planner.costs import Costs
from gen.planner.plan import Plan
from gen.planner.planning import make

CARDS, COUNTS, LEVELS = 8, (1, 2, 4, 8), (1, 2, 3)
MELS_DIM, MELS_BATCH, MELS_DIMS = 256, 1024, (64, 128, 256, 512)
CRITEO_BATCH, CRITEO_DIMS = 128, (16, 32, 64, 128, 256)
GAP, SECONDS = 0.05, 20.0
A40 = Machine("NVIDIA A40", 0, 48e9, 696e9, 300)


@cache
def costs(dim: int) -> Costs:
    return measure("smartssd", "smartssd", dims={dim})


def placed(profile: Profile, of: Recommender, prices: Costs, *, cards: int = CARDS, levels: int = 3,
           safe: bool = False) -> Plan | None:
    """At SCRec's shares, or at those that keep accuracy; None where the cards do not hold the tables."""
    shares: dict[str, Any] = {} if safe else {"hot_share": 1.0, "tt_share": 1.0, "tt_gain": 0.0, "unseen": False}
    try:
        return make(of, profile, prices, cards=cards, levels=levels, gap=GAP, seconds=SECONDS, explain=False,
                    table_wise=True, **shares)
    except ValueError:
        return None


def _rate(id: str, what: str, plan: Plan | None) -> Row:
    return figure(id, what, "the cards do not hold it" if plan is None else round(plan.samples_per_s),
                  "" if plan is None else "samples/s")


@bench("papers_screc_11")
def figure_11() -> Iterator[Row]:
    """SCRec Fig. 11: samples per second of MELS on 1 to 8 cards, by memories, with the link and without."""
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        of = model_of(profile, MELS_DIM, MELS_BATCH)[0]
        given = costs(MELS_DIM)
        free = replace(given, link_s=0.0, packet_s=given.read_s, turn_s=0.0)
        for name, said, prices in (("", "", given), (".nolink", ", without the link", free)):
            for cards in COUNTS:
                found = {levels: placed(profile, of, prices, cards=cards, levels=levels) for levels in LEVELS}
                id, what = f"papers.screc.fig11.{year}.{cards}{name}", f"MELS {year}, {cards} cards{said}"
                for levels, plan in found.items():
                    yield _rate(f"{id}.{levels}", f"{what}: {levels} of the memories", plan)
                for levels in LEVELS[:-1]:
                    if (less := found[levels]) and (all_ := found[LEVELS[-1]]):
                        yield figure(f"{id}.over{levels}", f"{what}: three memories over {levels}",
                                     round(less.seconds / all_.seconds, 2), "times")
                if (last := found[LEVELS[-1]]) and cards == CARDS:
                    yield figure(f"{id}.tt", f"{what}: accesses that read TT rows",
                                 round(100 * last.approximated, 1), "%")
        for levels in LEVELS:
            yield _rate(f"papers.screc.fig11.{year}.{CARDS}.safe.{levels}",
                        f"MELS {year}, {CARDS} cards, shares that keep accuracy, rows that the statistics lack "
                        f"expected: {levels} of the memories",
                        placed(profile, of, costs(MELS_DIM), levels=levels, safe=True))


@bench("papers_screc_10")
def figure_10() -> Iterator[Row]:
    """SCRec Fig. 10: samples per joule of 8 cards over GPUs that hold the tables."""
    power = Device.load("smartssd").power
    watts = {"low": CARDS * power.slot_w, "high": CARDS * (power.fpga_idle_w + power.drive_idle_w)}
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        for dim in MELS_DIMS:
            of = model_of(profile, dim, MELS_BATCH)[0]
            plan, id = placed(profile, of, costs(dim)), f"papers.screc.fig10.{year}.d{dim}"
            what = f"MELS {year}, D {dim}"
            gpus, _ = machines(A40, of, profile, 1.0, 0.0)
            yield figure(f"{id}.gpus", f"{what}: GPUs of 48 GB that hold the tables", gpus, "GPUs")
            if plan is None:
                continue
            theirs = A40.bytes_s / sample_bytes(of, profile) / A40.watts
            for bound, whole in watts.items():
                yield figure(f"{id}.{bound}", f"{what}: samples per joule of {CARDS} cards at {whole:.0f} W over GPUs "
                             "at their full bandwidth", round(plan.samples_per_s / whole / theirs, 3), "times")


@bench("papers_screc_9")
def figure_9() -> Iterator[Row]:
    """SCRec Fig. 9b: RM0 to RM3 on Criteo's shape, 8 cards, over a core of this machine and a server of 64."""
    profile = criteo(needed(CALIBRATION))
    for rm in range(4):
        for dim in CRITEO_DIMS:
            of = replace(model_of(profile, dim, CRITEO_BATCH)[0], network=Model.load(f"screc_rm{rm}", dim=dim))
            plan = placed(profile, of, costs(dim))
            id, what = f"papers.screc.fig9.rm{rm}.d{dim}", f"RM{rm}, D {dim}, {CARDS} cards, batches of {CRITEO_BATCH}"
            yield _rate(id, what, plan)
            if plan is None:
                continue
            core_s = core_seconds(of, profile)
            yield figure(f"{id}.emb", f"{what}: EMB cards", sum(card.kind == "emb" for card in plan.cards), "cards")
            yield figure(f"{id}.core", f"{what}: over one core of this machine, NumPy",
                         round(plan.samples_per_s * core_s, 1), "times")
            yield figure(f"{id}.server", f"{what}: over {SERVER.cores} such cores",
                         round(plan.samples_per_s * core_s / SERVER.cores, 2), "times")
