"""The soak of EMB cards (tests.soak): a short one, the long one, and that it finds a host that believes too much."""

import pytest

from fpga.runs import OnCard
from tests.soak import Soak

LEAST_BAGS, MOST_GROWN = 100_000, 64 << 20


def soaked(bags, **options):
    soak = Soak(**options)
    try:
        return soak.run(bags)
    finally:
        soak.close()


def test_short():
    soak = soaked(1_500, seed=4)
    assert not soak.wrong and len(soak.faults) >= 3 and sum(soak.ends.values()) == sum(soak.faults.values())


@pytest.mark.regress
def test_long(capsys):
    """Random bags, row caches, tables loaded anew, interrupts, bus errors, silent memories, dead hosts and lost pages
    on two cards, one of them in a process of its own."""
    soak = soaked(LEAST_BAGS)
    with capsys.disabled():
        print(f"\nsoak: {soak.bags} bags, {dict(soak.faults)}, {dict(soak.ends)}, {soak.grown >> 10} KiB grown")
    assert not soak.wrong and soak.bags >= LEAST_BAGS
    assert len(soak.faults) == 9 and soak.ends["KeyboardInterrupt"] > 50
    assert soak.grown < MOST_GROWN


def test_it_finds_a_host_that_goes_on_as_if_nothing_had_been(monkeypatch):
    monkeypatch.setattr(OnCard, "_know", lambda self: None)
    assert soaked(400, processes=(False,), seed=2).wrong
