"""How long a training step takes: mini-batches pass through stages, which wait for resources. Discrete events, SimPy.

A mini-batch passes its stages in their order. A resource serves one stage at a time, first come, first served. At most
`in_flight` mini-batches are under way; they begin in their order.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import simpy

MEASURED = 40       # mini-batches at least, in whole cycles


@dataclass(frozen=True)
class Stage:
    """name; on: the resource; seconds: of the resource for one mini-batch."""

    name: str
    on: str
    seconds: float


@dataclass(frozen=True)
class Step:
    """seconds: from the end of one mini-batch to the next, on average. busy: seconds of each resource per mini-batch.
    stages: seconds of each stage per mini-batch."""

    seconds: float
    busy: dict[str, float]
    stages: dict[str, float]

    @property
    def binds(self) -> str:
        """The resource that has no time left, else the longest stage of those that wait for each other."""
        most = max(self.busy, key=lambda name: self.busy[name])
        if self.busy[most] > 0.95 * self.seconds:
            return most
        longest = max(self.stages, key=lambda name: self.stages[name])
        return f"{longest}, stages in sequence"


def simulate(cycle: Sequence[Sequence[Stage]], in_flight: int = 1, together: Collection[str] = ()) -> Step:
    """The step in steady state.

    Parameters  cycle: the stages of each mini-batch, which repeat from the first one; in_flight: mini-batches under
                way; together: resources that one mini-batch at a time has, all of them, for its stages there in a row
    Raises      ValueError: no stage, in_flight below 1, or a stage of negative time
    """
    every = [stage for stages in cycle for stage in stages]
    if not cycle or not all(cycle) or in_flight < 1:
        raise ValueError(f"a step needs stages and in_flight {in_flight} of 1 or more")
    if wrong := [stage for stage in every if not stage.seconds >= 0]:
        raise ValueError(f"stage {wrong[0].name} takes {wrong[0].seconds} seconds, which must be 0 or more")
    busy, stages = dict.fromkeys((each.on for each in every), 0.0), dict.fromkeys((each.name for each in every), 0.0)
    for each in every:
        busy[each.on] += each.seconds / len(cycle)
        stages[each.name] += each.seconds / len(cycle)
    seconds = sum(busy.values()) if in_flight == 1 else _interval(cycle, in_flight, together)
    return Step(seconds, busy, stages)


def _interval(cycle: Sequence[Sequence[Stage]], in_flight: int, together: Collection[str]) -> float:
    world = simpy.Environment()
    window = simpy.Resource(world, in_flight)
    passes = [[(on, sum(stage.seconds for stage in run))
               for on, run in groupby(stages, lambda stage: "" if stage.on in together else stage.on)]
              for stages in cycle]
    resources = {on: simpy.Resource(world) for each in passes for on, _ in each}
    ends: list[float] = []

    def mini_batch(stages: Sequence[tuple[str, float]]) -> Generator[simpy.Event, Any, None]:
        with window.request() as begun:
            yield begun
            for on, seconds in stages:
                with resources[on].request() as granted:
                    yield granted
                    yield world.timeout(seconds)
        ends.append(world.now)

    # Whole cycles; the pipeline is full before them, and behind them follow as many as are under way.
    warm, measured = (len(cycle) * -(-count // len(cycle)) for count in (4 * in_flight, MEASURED))
    for number in range(warm + measured + in_flight + 1):
        world.process(mini_batch(passes[number % len(cycle)]))
    world.run()
    return (ends[warm + measured] - ends[warm]) / measured
