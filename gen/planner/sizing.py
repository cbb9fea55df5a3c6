"""How many cards serve a load within a latency: copies of the model, each on a group of cards."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from gen.model.device import Device
from gen.planner.arrivals import Latency, Stages, latency, sustained
from gen.planner.plan import Plan


@dataclass(frozen=True, eq=False)
class Copy:
    """The model on one group of cards. rate: samples per second that it sustains within the latency asked for; number:
    copies that sustain the load together; found: the latency of each at its share of the load."""

    plan: Plan
    stages: Stages
    rate: float
    number: int
    found: Latency | None

    @property
    def cards(self) -> int:
        return self.number * len(self.plan.cards)


def groups(most: int, network: bool) -> Iterator[int]:
    """Cards of a group that are tried: 1, 2, 4 .. and `most`; two at least where there are MLP cards."""
    number = 2 if network else 1
    while number < most:
        yield number
        number *= 2
    yield most


def copies(plan: Plan, device: Device, qps: float, p99_s: float) -> Copy:
    """Copies of a plan's cards that sustain the load. number is 0 where one sample alone takes longer than p99_s."""
    stages = Stages.of(plan, device)
    rate = sustained(stages, p99_s)
    number = ceil(qps / rate) if rate else 0
    return Copy(plan, stages, rate, number, latency(stages, qps / number) if number else None)
