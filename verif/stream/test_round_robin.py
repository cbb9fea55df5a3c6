"""Turns: everybody who asks after everybody who was last, of one to six."""

from itertools import product

import cocotb
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from hw.stream.round_robin import round_robin
from verif.bench.pack import layout_of
from verif.bench.runner import simulate

WAIVED = {
    "random_match_golden": "The testpoint corner_values tries all values of all inputs, which leaves nothing to draw.",
    "backpressure_both_sides": "It is a function of who asks and who was last; there is nothing to hold back.",
    "latency_and_rate_as_documented": "It is a function without state: there is nothing to count or to reset.",
    "reset_midstream": "It is a function without state: there is nothing to count or to reset.",
    "illegal_config_wrong": "It takes any number of requests, so that there is nothing to refuse.",
}


class Turns(wiring.Component):
    """Members: requests  In; last  In; granted  Out"""

    def __init__(self, count: int):
        super().__init__({"requests": In(count), "last": In(count), "granted": Out(count)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.granted.eq(Cat(round_robin(list(self.requests), self.last)))
        return m


def expected(count: int, requests: int, last: int) -> int:
    """The first one that asks behind the place `last`, -1 for none so far, round the end."""
    return next((1 << at % count for at in range(last + 1, last + 1 + count) if requests >> at % count & 1), 0)


async def granted(dut, requests: int, last: int) -> int:
    dut.requests.value, dut.last.value = requests, 1 << last if last >= 0 else 0
    await Timer(1, "ns")
    return int(dut.granted.value)


@cocotb.test()
async def smoke(dut):
    """Who asks alone has the turn, whoever was last."""
    assert await granted(dut, 1, -1) == 1
    assert await granted(dut, 1, 0) == 1


@cocotb.test()
async def corner_values(dut):
    """All that can ask and all that can have been last: the next one in the round, one at most."""
    count = layout_of("requests").width
    for requests, last in product(range(1 << count), range(-1, count)):
        assert await granted(dut, requests, last) == expected(count, requests, last), f"{requests:b} after {last}"


@pytest.mark.turns(1)
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_round_robin(count):
    simulate(Turns(count), "verif.stream.test_round_robin", name=f"round_robin_{count}", tests=2)
