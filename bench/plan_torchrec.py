"""Placements beside those of TorchRec's planner, the real package (bench.sharding_peer), on 8 cards.

DRAM and SSD, as TorchRec's devices have no tensor trains; embedding alone, as it knows no networks. Both placements are
compared under two costs. Under the cards' cost TorchRec gets the seconds of a shard's memories and link, once their sum
and once the slowest, rates plans by the slowest card, and the better of the two plans counts. Under its own cost the
planner of hotrail solves that problem. A placement's seconds are `gen.planner.choices.loads` of it alone, or
TorchRec's rating of it; that it fits is checked as well.
"""

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec

from bench.data import CALIBRATION, needed
from bench.framework import LeftOut, Row, at_most, bench, figure
from bench.plan import CARDS, SECONDS, SMALL_SECONDS, STATISTICS, TABLES, costs, model
from bench.sharding_peer import Devices, OurCost, TheirCost, choices_of, overfull, plan_of, planned, priced
from gen.data.profile import Profile
from gen.data.profiling.criteo import criteo
from gen.data.profiling.mels import mels
from gen.planner.build import build
from gen.planner.choices import loads, with_levels
from gen.planner.problem import Problem, TableChoice
from gen.planner.solve import solve

LIMIT = 60      # seconds of a processor core after which each of TorchRec's searches ends


def peak(problem: Problem, chosen: Sequence[TableChoice]) -> float:
    """Seconds of the slowest card. Raises ValueError: a card does not hold its tables"""
    cards = loads(problem, chosen, problem.cards)
    for number, card in enumerate(cards):
        if card.dram_bytes > problem.dram_bytes or card.ssd_bytes > problem.ssd_bytes:
            raise ValueError(f"card {number}: {card.dram_bytes:,} bytes of DRAM and {card.ssd_bytes:,} of the SSD; "
                             f"there are {problem.dram_bytes:,} and {problem.ssd_bytes:,}")
    return max(card.seconds for card in cards)


def compared(id: str, what: str, profile: Profile, seconds: float) -> Iterator[Row]:
    """seconds: of work of each search of ours."""
    of = model(profile)
    problem = with_levels(build(of, profile, costs(), cards=CARDS).problem, 2)
    devices, name = Devices.of(problem, of, costs()), f"TorchRec {version('torchrec')}'s planner"
    start = time.process_time()
    theirs = [plan for summed in (True, False)
              if (plan := planned(devices, OurCost(problem, summed=summed), LIMIT)) is not None]
    yield figure(f"{id}.seconds", f"{what}, {name}, two searches of at most {LIMIT} s each: time of a processor core",
                 round(time.process_time() - start, 1), "s")
    ours = peak(problem, solve(problem, gap=0.0, seconds=seconds).tables)
    if theirs:
        least = min(peak(problem, choices_of(problem, plan)) for plan in theirs)
        yield at_most(id, f"{what}, DRAM and SSD: batch time over that of {name}, which uses the cards' cost",
                      round(ours / least, 3), "x", 1.0)
    else:
        yield figure(id, f"{what}, DRAM and SSD: {name}, which uses the cards' cost", "none found", "")
    cost = TheirCost(devices)
    plan = planned(devices, cost, LIMIT)
    if plan is None:
        yield figure(f"{id}.own", f"{what}, DRAM and SSD: {name}, under its own cost", "none found", "")
        return
    as_theirs, options = priced(devices)
    best = plan_of(solve(as_theirs, gap=0.0, seconds=seconds).tables, options)
    if overfull(devices, best):
        raise ValueError(f"devices {overfull(devices, best)} do not hold their tables by TorchRec's storage")
    yield at_most(f"{id}.own", f"{what}, DRAM and SSD: batch time over that of {name}, both under its own cost",
                  round(cost.rate(best) / cost.rate(plan), 3), "x", 1.0)
    yield figure(f"{id}.as_it_is", f"{what}, DRAM and SSD: batch time over that of {name} under its own cost, both "
                 "served by the cards", round(ours / peak(problem, choices_of(problem, plan)), 3), "x")


@bench("plan_torchrec")
def torchrec() -> Iterator[Row]:
    """Placements beside those of TorchRec's own planner, under the cards' cost and under its own."""
    if find_spec("torchrec") is None:
        raise LeftOut("needs the packages torchrec and fbgemm-gpu-cpu: uv pip install '.[torchrec]'")
    yield from compared("plan.torchrec.criteo", "Criteo, 26 tables x 8 cards", criteo(needed(CALIBRATION)),
                        SMALL_SECONDS)
    for year, tables in TABLES.items():
        yield from compared(f"plan.torchrec.mels{year}", f"MELS {year}, {tables} tables x 8 cards",
                            mels(needed(STATISTICS.format(year))), SECONDS / 4)
