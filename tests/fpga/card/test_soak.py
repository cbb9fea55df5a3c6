"""The soak of EMB cards (tests.support.soak): a short one, the long one, and that it finds a host that believes
too much."""

import pytest

from fpga.card import CardHang, Faults, Silence
from fpga.card.runs import OnCard, RunError
from tests.support.soak import Bench, Soak

STALLED = {"read": "STALLED: no transfer and no work for 3000 cycles; waited for: .*m01 read$",
           "write": "^the core ended with STALLED, as its register says, and could not write its result block$"}
LEAST_BAGS, MOST_GROWN = 100_000, 64 << 20


def soaked(bags, **options):
    soak = Soak(**options)
    try:
        return soak.run(bags)
    finally:
        soak.close()


def test_short():
    soak = soaked(1_000, seed=4)
    assert not soak.wrong and len(soak.faults) >= 3 and sum(soak.ends.values()) == sum(soak.faults.values())


@pytest.mark.regress
@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
def test_a_silent_memory_ends_by_the_clock(process):
    """Where the limit of cycles is far away and the watchdog is off; with it the core says what it waited for."""
    bench = Bench(process, 1)
    try:
        bench.bags._runs.limit_cycles = 10**15
        requests = bench.requests(40)
        for port, way in (("m01_axi", "read"), ("m00_axi", "write")):
            bench.bags._runs.timeout_cycles, bench.bags._runs.limit_s = 0, 0.3
            with pytest.raises(CardHang, match="^the core was not done after .* cycles, its status register is 0x1"):
                bench.attempt(requests, "silence", Faults(silences=(Silence(port, way),)))
            bench.bags._runs.timeout_cycles, bench.bags._runs.limit_s = 3000, 600.0
            assert not bench.judge(requests, bench.bags.batch(requests))
            with pytest.raises(RunError, match=STALLED[way]):
                bench.attempt(requests, "silence", Faults(silences=(Silence(port, way),)))
            assert not bench.judge(requests, bench.bags.batch(requests))
    finally:
        bench.close()


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


@pytest.mark.regress
def test_it_finds_a_host_that_goes_on_as_if_nothing_had_been(monkeypatch):
    monkeypatch.setattr(OnCard, "_ensure_known", lambda self: None)
    assert soaked(400, processes=(False,), seed=2).wrong
