"""What the source papers evaluate, measured with hotrail's models: SCRec's figures 9 to 11.

docs/papers.md (`python -m bench.page`) has each beside the paper's reading.

Figure 11: MELS at D 256, batches of 1,024, every table whole on a card, one, two and three memories, with the link and
without it, which SCRec leaves out. All accesses may leave the SSD and may read TT rows, and none is to a row that the
statistics lack; or shares are those that keep accuracy. SCRec's hot_thr (eq. 22, §IV.A) keeps 1 % of the accesses of
large tables on the SSD: what the drives alone allow then is a row of its own, and plans that keep 1 % of every table's
there.

Figure 9: RM0 to RM3 on Criteo's shape, batches of 128 on 8 cards, over cores of this machine: with NumPy, one lookup
for all tables in batches of 256; or with Meta's DLRM in PyTorch, an operator per table and layer for 128 samples.

Figure 10: samples per joule of 8 cards, between the bounds of fpga.card.energy, over GPUs that hold the tables, by
their data sheet and full bandwidth: no GPU is as fast on random rows. GPUs exchange pooled vectors in no time, or by an
all-to-all behind the reads. Where nobody pays for transfers the cards have no link either.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np

from bench.data import CALIBRATION, needed
from bench.framework import Row, bench, figure, one_thread
from bench.plan import STATISTICS, TABLES
from fpga.api.servers import Machine, core_seconds, machines, sample_bytes
from fpga.card.costs import measure
from gen.data.profile import Profile
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import mels
from gen.model.device import Device
from gen.model.network import Model
from gen.model.recommender import Recommender
from gen.planner.assume import model_of
from gen.planner.build import build
from gen.planner.costs import Costs
from gen.planner.plan import Plan
from gen.planner.planning import make

CARDS, COUNTS, LEVELS = 8, (1, 2, 4, 8), (1, 2, 3)
MELS_DIM, MELS_BATCH, MELS_DIMS = 256, 1024, (64, 128, 256, 512)
CRITEO_BATCH, CRITEO_DIMS = 128, (16, 32, 64, 128, 256)
DLRM_BYTES, DLRM_BATCHES, DLRM_S = 1 << 26, 16, 3.0     # of a table at most; different ones; of measuring
GAP, SECONDS = 0.05, 20.0
A40 = Machine("NVIDIA A40", 0, 48e9, 696e9, 300)
#: Bytes per second that reach a GPU in an all-to-all, assumed: 25 GB/s; 8 GPUs that share a port of 100 Gb/s.
EXCHANGE = {"low": 25e9, "high": 100e9 / 8 / 8}
CORES = 12                          # of the Xeon Silver 4310, SCRec table II
HOT_THR, LARGE = 0.99, 1e-4         # of SCRec §IV.A: the accesses beside the SSD, at most, and rows of a large table
FREE: dict[str, Any] = {"hot_share": 1.0, "tt_share": 1.0, "unseen": False}


@cache
def costs(dim: int) -> Costs:
    return measure("smartssd", "smartssd", dims={dim})


def placed(profile: Profile, of: Recommender, prices: Costs, *, cards: int = CARDS, levels: int = 3,
           safe: bool = False, hot_share: float = 1.0) -> Plan | None:
    """At free shares, or at those that keep accuracy; None where the cards do not hold the tables."""
    shares: dict[str, Any] = {} if safe else {**FREE, "hot_share": hot_share, "tt_gain": 0.0}
    try:
        return make(of, profile, prices, cards=cards, levels=levels, gap=GAP, seconds=SECONDS, explain=False,
                    table_wise=True, **shares)
    except ValueError:
        return None


def exchange_s(of: Recommender, gpus: int, bytes_s: float) -> float:
    """Seconds of a GPU for a sample in an all-to-all of pooled vectors: all but those of its own tables reach it."""
    return sum(4 * spec.dim for spec in of.tables.values()) * (gpus - 1) / gpus / bytes_s


def without_link(prices: Costs) -> Costs:
    """Of cards whose transfers take no time."""
    return replace(prices, link_s=0.0, packet_s=prices.read_s, turn_s=0.0)


def _rate(id: str, what: str, plan: Plan | None) -> Row:
    return figure(id, what, "the cards do not hold it" if plan is None else round(plan.samples_per_s),
                  "" if plan is None else "samples/s")


def drives(profile: Profile, of: Recommender, prices: Costs) -> float:
    """Samples per second that the drives of 8 cards allow with 1 - HOT_THR of the accesses of large tables on them."""
    items = build(of, profile, prices, cards=CARDS, table_wise=True, **FREE).problem.items
    large = LARGE * max(item.total_rows for item in items)
    seconds = 0.0
    for item in items:
        if item.total_rows > large:
            seconds += float(item.drive_s[np.flatnonzero(item.share <= HOT_THR)[-1]])
    return of.batch * CARDS / seconds


@bench("papers_screc_11")
def figure_11() -> Iterator[Row]:
    """SCRec Fig. 11: samples per second of MELS on 1 to 8 cards, by memories, with the link and without."""
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        of = model_of(profile, MELS_DIM, MELS_BATCH)[0]
        given = costs(MELS_DIM)
        free = without_link(given)
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
        yield figure(f"papers.screc.fig11.{year}.{CARDS}.drives", f"MELS {year}, {CARDS} cards: what the drives allow "
                     f"where tables of more than {100 * LARGE:g} % of the largest one's rows read them for "
                     f"{100 * (1 - HOT_THR):.0f} % of their accesses", round(drives(profile, of, free)), "samples/s")
        for levels in LEVELS:
            yield _rate(f"papers.screc.fig11.{year}.{CARDS}.safe.{levels}",
                        f"MELS {year}, {CARDS} cards, shares that keep accuracy, rows that the statistics lack "
                        f"expected: {levels} of the memories",
                        placed(profile, of, costs(MELS_DIM), levels=levels, safe=True))


@bench("papers_screc_11_hot")
def hot_threshold() -> Iterator[Row]:
    """SCRec Fig. 11 on 8 cards without the link, with at most hot_thr of each table's accesses beside the SSD."""
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        of = model_of(profile, MELS_DIM, MELS_BATCH)[0]
        for levels in LEVELS[1:]:
            plan = placed(profile, of, without_link(costs(MELS_DIM)), levels=levels, hot_share=HOT_THR)
            yield _rate(f"papers.screc.fig11.{year}.{CARDS}.hot.{levels}", f"MELS {year}, {CARDS} cards, without the "
                        f"link, hot_thr {HOT_THR} of every table: {levels} of the memories", plan)


@bench("papers_screc_10_free")
def figure_10_free() -> Iterator[Row]:
    """SCRec Fig. 10 where neither cards nor GPUs pay for transfers, cards at the slot's 25 W."""
    watts, dim = CARDS * Device.load("smartssd").power.slot_w, MELS_DIMS[-1]
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        of = model_of(profile, dim, MELS_BATCH)[0]
        if plan := placed(profile, of, without_link(costs(dim))):
            over = plan.samples_per_s / watts * A40.watts * sample_bytes(of, profile) / A40.bytes_s
            yield figure(f"papers.screc.fig10.{year}.d{dim}.free", f"MELS {year}, D {dim}: samples per joule of {CARDS}"
                         f" cards without a link at {watts:.0f} W over GPUs at their full bandwidth", round(over, 2),
                         "times")


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
            read_s = sample_bytes(of, profile) / A40.bytes_s
            for bound, whole in watts.items():
                ratio, cards = plan.samples_per_s / whole * A40.watts, f"{what}: samples per joule of {CARDS} cards"
                yield figure(f"{id}.{bound}", f"{cards} at {whole:.0f} W over GPUs at their full bandwidth",
                             round(ratio * read_s, 3), "times")
                sent_s = exchange_s(of, gpus, EXCHANGE[bound])
                yield figure(f"{id}.exchange.{bound}", f"{cards} at {whole:.0f} W over GPUs that exchange vectors at "
                             f"{EXCHANGE[bound] / 1e9:.3g} GB/s each", round(ratio * (read_s + sent_s), 1), "times")


@bench("papers_screc_9")
def figure_9() -> Iterator[Row]:
    """SCRec Fig. 9b: RM0 to RM3 on Criteo's shape, 8 cards, over one core of this machine and over 12, with NumPy."""
    profile = criteo(needed(CALIBRATION))
    for rm in range(4):
        for dim in CRITEO_DIMS:
            of = replace(model_of(profile, dim, CRITEO_BATCH)[0], network=Model.load(f"screc_rm{rm}", dim=dim))
            plan = placed(profile, of, costs(dim))
            id, what = f"papers.screc.fig9.rm{rm}.d{dim}", f"RM{rm}, D {dim}, {CARDS} cards, batches of {CRITEO_BATCH}"
            yield _rate(id, what, plan)
            if plan is None:
                continue
            core_s = core_seconds(of, profile, by="numpy")
            yield figure(f"{id}.emb", f"{what}: EMB cards", sum(card.kind == "emb" for card in plan.cards), "cards")
            times = round(plan.samples_per_s * core_s, 1)
            yield figure(f"{id}.core", f"{what}: over one core of this machine, NumPy", times, "times")
            yield figure(f"{id}.cpu", f"{what}: over {CORES} such cores", round(times / CORES, 2), "times")


def dlrm_seconds(of: Recommender, profile: Profile, threads: int) -> float:
    """Seconds of so many threads for a sample by modules as Meta's DLRM has them in PyTorch: an EmbeddingBag per table,
    layers with bias, features put one behind the other."""
    import torch
    from torch import nn

    def layers(widths: tuple[int, ...], last: nn.Module) -> nn.Sequential:
        found = [each for k, width in enumerate(widths[1:]) for each in (nn.Linear(widths[k], width), nn.ReLU())]
        return nn.Sequential(*found[:-1], last)

    network, random = of.network, np.random.default_rng(1)
    assert network is not None
    rows = {name: min(spec.rows, DLRM_BYTES // (4 * spec.dim)) for name, spec in of.tables.items()}
    bags = [nn.EmbeddingBag(rows[name], spec.dim, mode="sum") for name, spec in of.tables.items()]
    inputs = network.bottom[-1] + sum(spec.dim for spec in of.tables.values())
    bottom, top = layers(network.bottom, nn.ReLU()), layers((inputs, *network.top), nn.Sigmoid())
    batches = [[torch.from_numpy(profile.tables[name].heat.drawn(of.batch, random) * 0x9E3779B1 % rows[name])
                for name in of.tables] for _ in range(DLRM_BATCHES)]
    dense, offsets, took = torch.randn(of.batch, network.bottom[0]), torch.arange(of.batch), []
    one_thread()
    torch.set_num_threads(threads)
    end = time.perf_counter() + DLRM_S
    with torch.inference_mode():
        for indices in cycle(batches):
            start = time.perf_counter()
            pooled = [bag(each, offsets) for bag, each in zip(bags, indices, strict=True)]
            top(torch.cat([bottom(dense), *pooled], dim=1))
            took.append(time.perf_counter() - start)
            if start > end:
                break
    return float(min(took)) / of.batch


@bench("papers_screc_9_dlrm", needs="torch")
def figure_9_dlrm() -> Iterator[Row]:
    """SCRec Fig. 9b: RM0 to RM3 on Criteo's shape at D 16, 8 cards, over Meta's DLRM in PyTorch on 1, 2, 4 ... all
    threads; on an idle machine alone: beside other work several threads wait for each other."""
    profile, dim = criteo(needed(CALIBRATION)), CRITEO_DIMS[0]
    for rm in range(4):
        of = replace(model_of(profile, dim, CRITEO_BATCH)[0], network=Model.load(f"screc_rm{rm}", dim=dim))
        if plan := placed(profile, of, costs(dim)):
            what = f"RM{rm}, D {dim}, {CARDS} cards, batches of {CRITEO_BATCH}"
            cores = len(os.sched_getaffinity(0))
            for threads in sorted({1 << k for k in range(cores.bit_length())} | {cores}):
                id = f"papers.screc.fig9.rm{rm}.d{dim}.dlrm" + (f".t{threads}" if threads > 1 else "")
                yield figure(id, f"{what}: over Meta's DLRM in PyTorch on {threads} of {cores} threads of "
                             "this machine, its fastest batch",
                             round(plan.samples_per_s * dlrm_seconds(of, profile, threads), 1), "times")
