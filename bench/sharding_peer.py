"""TorchRec's own planner (packages torchrec and fbgemm-gpu-cpu), given the tables and cards of a planner's problem.

A card's DRAM is the HBM of a TorchRec device, its SSD the DDR. A table lies in HBM (kernel fused), in DDR (fused_uvm),
or in DDR with its hottest rows in HBM (fused_uvm_caching, with a cache load factor); table-wise, column-wise in halves,
or as a copy on every device (data_parallel, in HBM), as far as the problem has the same kind for the table. TorchRec
takes one load factor a table: here its greedy proposers choose among those of tenths of the accesses, and its
EmbeddingOffloadScaleupProposer finds others. Row-wise kinds are left out, as cards have none.

An option is TorchRec's ShardingOption; a plan is a list of options, one a table, with a rank on each shard.
"""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import process_time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from gen.model.recommender import Recommender
from gen.planner.choices import DRAM, LOADS, SSD, TIMES, Choices, cuts
from gen.planner.costs import Costs
from gen.planner.problem import Item, Problem, Sharding, TableChoice

TENTHS, HALVES = 10, 2
COLUMNS, COPIES, WHOLE = "column_wise", "data_parallel", "table_wise"
KERNELS = IN_HBM, IN_COPIES, IN_DDR, CACHED = "fused", "dense", "fused_uvm", "fused_uvm_caching"


@dataclass(frozen=True)
class Misses:
    """What TorchRec asks of a table's accesses (its CacheStatistics), the hottest rows in the cache."""

    item: Item

    def __deepcopy__(self, memo: object) -> "Misses":
        return self

    @property
    def expected_lookups(self) -> float:
        return self.item.lookups

    def expected_miss_rate(self, clf: float) -> float:
        return 1 - float(np.interp(clf * self.item.total_rows, self.item.rows, self.item.share))

    @property
    def cacheability(self) -> float:
        """The area below the miss rate, by cache load factor."""
        sizes = np.append(self.item.rows / self.item.total_rows, 1.0)
        return float(np.trapezoid(np.append(1 - self.item.share, 0.0), sizes))


@dataclass(frozen=True, eq=False)
class Devices:
    """The cards and tables as TorchRec takes them. module: an EmbeddingBagCollection of all tables, without weights;
    constraints: by table; samples: of a batch, of one device."""

    problem: Problem
    topology: Any
    module: Any
    constraints: Mapping[str, Any]
    samples: int

    @classmethod
    def of(cls, problem: Problem, model: Recommender, costs: Costs) -> "Devices":
        """Bandwidths are the card's peaks, as those of TorchRec's constants are, in bytes per millisecond."""
        from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
        from torchrec.distributed.planner import ParameterConstraints, Topology
        from torchrec.distributed.types import CacheParams

        drive, link = 1e-3 * costs.page_bytes / costs.page_s, 1e-3 / costs.link_s
        topology = Topology(problem.cards, "cuda", hbm_cap=problem.dram_bytes, ddr_cap=problem.ssd_bytes, ssd_cap=0,
                            hbm_mem_bw=1e-3 / costs.read_s, ddr_mem_bw=drive, hbm_to_ddr_mem_bw=drive,
                            intra_host_bw=link, inter_host_bw=link)
        module = EmbeddingBagCollection(device="meta", tables=[
            EmbeddingBagConfig(name=name, embedding_dim=spec.dim, num_embeddings=spec.rows, feature_names=[name])
            for name, spec in model.tables.items()])
        return cls(problem, topology, module, {item.name: ParameterConstraints(
            sharding_types=list(ways(problem, j)), compute_kernels=list(KERNELS),
            min_partition=model.tables[item.name].dim // HALVES, pooling_factors=[item.lookups / model.batch],
            cache_params=CacheParams(load_factor=0.5, stats=Misses(item)))
            for j, item in enumerate(problem.items)}, model.batch // problem.cards)


def ways(problem: Problem, table: int) -> dict[str, int]:
    """The number of the way in which a table lies, by TorchRec's name."""
    found = {WHOLE: 0}
    for number, way in enumerate(problem.ways(table)):
        if (way.by, way.count) == ("columns", HALVES):
            found[COLUMNS] = number
        if (way.by, way.count) == ("samples", problem.cards):
            found[COPIES] = number
    return found


@dataclass(frozen=True, eq=False)
class TheirCost:
    """TorchRec's cost of a plan: EmbeddingPerfEstimator for inference, NoopPerfModel, EmbeddingStorageEstimator and
    what a card's DRAM holds of a batch, which TorchRec leaves out of inference."""

    devices: Devices

    def estimate(self, options: list[Any], sharder_data_map: Mapping[str, Any]) -> None:
        from torchrec.distributed.planner.shard_estimators import (
            EmbeddingPerfEstimator,
            EmbeddingStorageEstimator,
        )

        for estimator in EmbeddingPerfEstimator, EmbeddingStorageEstimator:
            estimator(self.devices.topology, dict(self.devices.constraints), is_inference=True).estimate(
                options, sharder_data_map)
        for option in options:
            table, choice = choice_of(self.devices.problem, option)
            for shard in option.shards:
                shard.storage.hbm += self.devices.problem.ways(table)[choice.way].item.bags_bytes

    def rate(self, plan: Sequence[Any]) -> float:
        """Milliseconds of the slowest device."""
        from torchrec.distributed.planner.perf_models import NoopPerfModel

        return NoopPerfModel(self.devices.topology).rate(list(plan))


class OurCost:
    """The problem's cost in TorchRec's places. summed: the perf of a shard, which its partitioner adds up, is the sum
    of the seconds of memories and link; else those of the slowest."""

    def __init__(self, problem: Problem, *, summed: bool):
        self.problem, self.summed = problem, summed
        self._choices = Choices.of(problem)
        self._loads: dict[tuple[str, str, str, float | None], NDArray[np.float64]] = {}

    def estimate(self, options: list[Any], sharder_data_map: object) -> None:
        from torchrec.distributed.planner.types import Perf, Storage

        for option in options:
            load = self._load(option)
            seconds = float(load[:TIMES].sum() if self.summed else load[:TIMES].max())
            for shard in option.shards:
                shard.perf, shard.storage = Perf(seconds, 0, 0, 0), Storage(int(load[DRAM]), int(load[SSD]))

    def rate(self, plan: Sequence[Any]) -> float:
        """Seconds of the slowest card."""
        full = np.zeros((self.problem.cards, LOADS))
        for option in plan:
            np.add.at(full, [shard.rank for shard in option.shards], self._load(option))
        return float(full[:, :TIMES].max())

    def _load(self, option: Any) -> NDArray[np.float64]:
        """(LOADS,) of each shard."""
        key = option.name, option.sharding_type, option.compute_kernel, option.cache_load_factor
        if key not in self._loads:
            table, choice = choice_of(self.problem, option)
            at = np.array([np.searchsorted(self._choices.table, table) + choice.way])
            load = self._choices.load(at, np.array([choice.i_dram]), np.array([choice.i_hot]))[0]
            if option.compute_kernel == CACHED:     # rows past the step: bytes that save no time
                item = self.problem.ways(table)[choice.way].item
                rows = round(option.cache_load_factor * item.total_rows) - int(item.rows[choice.i_dram])
                load[DRAM] += rows * item.row_bytes
            self._loads[key] = load
        return self._loads[key]


class Enumerator:
    """TorchRec's, with each table's cached kernel at several load factors: those of tenths of its accesses, or at every
    step. cost: fills in perf and storage of the options."""

    def __init__(self, devices: Devices, cost: TheirCost | OurCost, *, every: bool = False):
        self.devices, self.cost, self.every = devices, cost, every
        self._sharders: Mapping[str, Any] = {}

    def enumerate(self, module: Any, sharders: list[Any]) -> list[Any]:
        from torchrec.distributed.planner.enumerators import EmbeddingEnumerator

        plain = EmbeddingEnumerator(self.devices.topology, self.devices.samples, dict(self.devices.constraints),
                                    estimator=self.cost)
        items = {item.name: item for item in self.devices.problem.items}
        found = []
        for option in plain.enumerate(module, sharders):
            for factor in self._factors(items[option.name]) if option.compute_kernel == CACHED else [None]:
                found.append(copy.deepcopy(option))
                found[-1].cache_params = replace(option.cache_params, load_factor=factor)
        self._sharders = plain._sharder_data_map
        self.populate_estimates(found)
        return found

    def populate_estimates(self, options: list[Any]) -> None:
        self.cost.estimate(options, self._sharders)

    def _factors(self, item: Item) -> list[float | None]:
        at = cuts(item)
        if not self.every:
            least = np.searchsorted(item.share[at], np.arange(1, TENTHS + 1) / TENTHS - 1e-9)
            at = np.unique(at[least.clip(max=len(at) - 1)])
        return [float(rows / item.total_rows) for rows in item.rows[at] if 0 < rows < item.total_rows]


def planned(devices: Devices, cost: TheirCost | OurCost, seconds: int, *, scaled: bool = True) -> list[Any] | None:
    """The plan that EmbeddingShardingPlanner finds under a cost, by its default proposers, with GreedyPerfPartitioner;
    None: it finds none. seconds: its own time limit, here of a processor core, as other jobs may share it. scaled: with
    EmbeddingOffloadScaleupProposer, which in 1.8.0 does not end where no table can use more HBM."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, planners
    from torchrec.distributed.planner import proposers as of
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec.distributed.planner.types import PlannerError

    planner = EmbeddingShardingPlanner(
        devices.topology, devices.samples, Enumerator(devices, cost), FixedPercentageStorageReservation(0.0),
        [*([of.EmbeddingOffloadScaleupProposer()] if scaled else ()), of.UniformProposer(), of.GridSearchProposer(),
         of.GreedyProposer(), of.GreedyProposer(use_depth=False)],
        performance_model=cost, stats=[], constraints=dict(devices.constraints), debug=False, timeout_seconds=seconds)
    logging.disable(logging.WARNING)
    try:
        with patch.object(planners, "time", SimpleNamespace(time=process_time)):
            planner.plan(devices.module, [EmbeddingBagCollectionSharder()])
    except PlannerError:
        return None
    finally:
        logging.disable(logging.NOTSET)
    return planner._best_plan


def choice_of(problem: Problem, option: Any) -> tuple[int, TableChoice]:
    """An option's table and what it is of the problem; without ranks cards are not known."""
    table = next(j for j, item in enumerate(problem.items) if item.name == option.name)
    item, at = problem.items[table], cuts(problem.items[table])
    if option.compute_kernel == IN_DDR:
        step = 0
    elif option.compute_kernel == CACHED:
        rows = round(option.cache_load_factor * item.total_rows)
        step = int(at[np.searchsorted(item.rows[at], rows, side="right") - 1])
    else:
        step = int(at[-1])
    cards = tuple(shard.rank for shard in option.shards if shard.rank is not None)
    return table, TableChoice(cards, step, step, ways(problem, table)[option.sharding_type])


def choices_of(problem: Problem, plan: Sequence[Any]) -> tuple[TableChoice, ...]:
    """A plan as the problem's placement."""
    found = dict(choice_of(problem, option) for option in plan)
    return tuple(found[table] for table in range(len(problem.items)))


def priced(devices: Devices) -> tuple[Problem, list[list[list[Any]]]]:
    """The problem with TorchRec's cost in the place of its own, all of a shard's time as time of DRAM; and the option
    of each table, way and step. A step that takes more and is no faster is left out."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    enumerator = Enumerator(devices, TheirCost(devices), every=True)
    options: dict[tuple[str, str], list[Any]] = {}
    for option in enumerator.enumerate(devices.module, [EmbeddingBagCollectionSharder()]):
        options.setdefault((option.name, option.sharding_type), []).append(option)
    items, shardings, by_step = [], [], []
    for j, item in enumerate(devices.problem.items):
        kinds, of_table = ways(devices.problem, j), []
        for kind in kinds:
            steps: list[Any] = []
            for option in sorted(options[item.name, kind], key=lambda each: each.shards[0].storage.hbm):
                if not steps or option.shards[0].perf.total < steps[-1].shards[0].perf.total:
                    steps.append(option)
            of_table.append(steps)
        whole, *others = (_item(item.name, steps) for steps in of_table)
        items.append(whole)
        shardings.append(tuple(
            Sharding(devices.problem.ways(j)[way].by, devices.problem.ways(j)[way].count, each)
            for way, each in zip(list(kinds.values())[1:], others, strict=True)))
        by_step.append(of_table)
    problem = devices.problem
    return Problem(tuple(items), problem.cards, problem.dram_bytes, 0, problem.ssd_bytes,
                   shardings=tuple(shardings)), by_step


def _item(name: str, steps: Sequence[Any]) -> Item:
    """A shard's cost and bytes at each step, from the fewest bytes of HBM."""
    perf = np.array([option.shards[0].perf.total for option in steps])
    hbm = np.array([option.shards[0].storage.hbm for option in steps])
    ddr = np.maximum.accumulate(np.array([option.shards[0].storage.ddr for option in steps])[::-1])[::-1]
    none = np.zeros(1, np.int64)
    return Item(name, hbm - hbm[0], int(hbm[-1] - hbm[0]), 1, 0.0, 0.0, 0.0, 0.0, none, none.astype(float),
                ssd_reads=np.zeros(len(steps)), ssd_landing=1e-3 * (perf - perf[-1]), bags_s=1e-3 * float(perf[-1]),
                bags_bytes=int(hbm[0]), ssd_bytes=ddr, shares=np.linspace(0.0, 1.0, len(steps)))


def plan_of(chosen: Sequence[TableChoice], by_step: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
    """A placement of `priced` as TorchRec's plan."""
    plan = []
    for choice, of_table in zip(chosen, by_step, strict=True):
        plan.append(copy.deepcopy(of_table[choice.way][choice.i_hot]))
        for shard, card in zip(plan[-1].shards, choice.cards, strict=True):
            shard.rank = card
    return plan


def overfull(devices: Devices, plan: Sequence[Any]) -> list[int]:
    """Devices that do not hold the shards of a plan, by TorchRec's storage."""
    from torchrec.distributed.planner.types import Storage

    used = [Storage(0, 0) for _ in devices.topology.devices]
    for option in plan:
        for shard in option.shards:
            used[shard.rank] += shard.storage
    return [device.rank for device, each in zip(devices.topology.devices, used, strict=True)
            if not each.fits_in(device.storage)]
