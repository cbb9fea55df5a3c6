"""The link of a simulated card: transfers of the host in both directions, beside runs and the drive's pages."""

import re

import numpy as np
import pytest

from fpga.card import CardError, CardHang, CardViolation, Faults, LinkUse
from tests.support.kernels import SCATTER, WRONG
from tests.support.trial_card import BASE, QUICK, arguments, content, copying, opened, ring_run

pytestmark = pytest.mark.turns(12, of="memories")

CHUNK = 4096
OPTIONS = QUICK.options()
BEGIN, END, PAGE = (OPTIONS[f"link.{name}"] for name in ("begin", "end", "page"))


def spent(sim, work):
    """What a piece of work returns, and the cycles that passed."""
    before = sim.counters()["cycles"]
    result = work()
    return result, sim.counters()["cycles"] - before


def cycles_of(size):
    """Of the link for so many bytes, in chunks."""
    return -(-size * PAGE // CHUNK)


def test_the_rate_is_that_of_the_facts():
    """Gen3 x4: 3.9 GB/s after encoding, of which 81 % arrive."""
    assert 1e-9 / QUICK.link.byte_s == pytest.approx(3.159, rel=1e-3)
    assert PAGE == pytest.approx(CHUNK * QUICK.link.byte_s * QUICK.kernel_mhz * 1e6, abs=1)


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.parametrize("size", [4, 64, CHUNK, 40 * CHUNK + 100])
def test_a_transfer_takes_latency_and_the_link_s_time(size, memory):
    with opened(memory) as sim:
        buffer, data = sim.allocate(1 << 18, "buffer", fill=0), content(size)
        sim.send(buffer, data)
        _, taken = spent(sim, sim.settle)
        assert 0 <= taken - (BEGIN + cycles_of(size) + END) <= 3 + size // CHUNK
        assert (sim.read(buffer, count=size) == data).all()
        found, taken = spent(sim, lambda: sim.fetch(buffer, count=size))
        assert (found == data).all()
        # The memory is read ahead of the link: only the first chunk is waited for.
        assert 0 <= taken - (BEGIN + cycles_of(size) + END) <= 300 + size // CHUNK
        use, cycles = sim.link(), -(-size // CHUNK)
        assert (use.in_bytes, use.out_bytes) == (size, size)
        assert all(0 <= each - cycles_of(size) <= cycles for each in (use.in_cycles, use.out_cycles))
        sim.clear()
        assert sim.link() == LinkUse() and use.plus(use).since(use) == use and use.cycles == max(use[1::2])


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_buffers_at_any_byte(seed):
    """What lies beside stays as it was."""
    random = np.random.default_rng(seed)
    with opened("ddr4") as sim:
        buffer, mirror = sim.allocate(3 * CHUNK + 5, "buffer", fill=9), np.full(3 * CHUNK + 5, 9, np.uint8)
        for _ in range(12):
            first, last = np.sort(random.integers(0, len(mirror) + 1, 2))
            mirror[first:last] = random.integers(0, 256, last - first)
            sim.send(buffer, mirror[first:last].copy(), int(first))
            first, last = np.sort(random.integers(0, len(mirror) + 1, 2))
            sim.settle()
            assert (sim.fetch(buffer, count=int(last - first), offset=int(first)) == mirror[first:last]).all()
        assert (sim.read(buffer) == mirror).all() and not sim.violations()


def test_the_directions_are_independent():
    with opened("ddr4") as sim:
        size = 64 * CHUNK
        here, there = sim.allocate(size, "here", fill=1), sim.allocate(size, "there", fill=2)

        def both():
            begun = sim.begin_fetch(there)
            sim.send(here, content(size))
            sim.settle()
            return sim.end_fetch(begun)

        found, taken = spent(sim, both)
        assert (found == 2).all() and taken < 1.02 * cycles_of(size) + BEGIN + END + 300
        # Two of one direction wait for each other, their latencies do not.
        sim.send(here, content(size))
        sim.send(there, content(size))
        _, taken = spent(sim, sim.settle)
        assert 2 * cycles_of(size) < taken < 2.02 * cycles_of(size) + BEGIN + END + 300


def test_a_run_waits_for_what_was_sent():
    with opened("ddr4") as sim:
        source, target, _, given = copying(sim)
        data = content(source.bytes, seed=7)
        sim.send(source, data)
        sim.run(given)
        sim.wait()
        assert (sim.fetch(target) == data).all()


def test_a_core_goes_on_beside_a_transfer():
    """And its run counts the same cycles, however long the transfer is."""
    with opened() as sim:
        rows, results = sim.allocate(1 << 16, "rows", fill=1), sim.allocate(1 << 18, "results", fill=5)
        given = arguments(source=rows, mode=SCATTER, beats=20_000, mask=1023)
        sim.run(given)
        alone = sim.wait()

        def beside():
            begun = sim.begin_fetch(results)
            sim.run(given)
            cycles = sim.wait()
            return cycles, sim.end_fetch(begun)

        (cycles, found), taken = spent(sim, beside)
        assert cycles == alone and (found == 5).all()
        assert taken == pytest.approx(max(alone, cycles_of(results.bytes)) + BEGIN + END, rel=0.02)
        sim.run(given)
        (found, taken) = spent(sim, lambda: sim.fetch(results))
        assert (found == 5).all() and taken < 1.02 * cycles_of(results.bytes) + BEGIN + END + 300
        assert sim.wait() == alone


@pytest.mark.parametrize("way", ["to the host", "to the card"])
def test_transfers_use_the_card_s_memory(way):
    """A reader of random rows is slower beside a transfer, by less than what the link takes; the link is as fast as
    alone."""
    with opened("ddr4") as sim:
        rows, results = sim.allocate(1 << 22, "rows", fill=1), sim.allocate(1 << 20, "results", fill=5)
        given = arguments(source=rows, mode=SCATTER, beats=60_000, mask=65535)
        sim.run(given)
        alone = sim.wait()
        sim.clear()
        sim.run(given)
        if way == "to the host":
            found, taken = spent(sim, lambda: sim.fetch(results))
            assert (found == 5).all()
        else:
            sim.send(results, data := content(results.bytes))
            _, taken = spent(sim, sim.settle)
        together = sim.wait()
        assert taken < 1.01 * cycles_of(results.bytes) + BEGIN + END + 300
        if way == "to the card":
            assert (sim.read(results) == data).all()
        moved = {name: sim.counters()[f"ddr.{name}"] for name in ("reads", "writes")}
        lines = results.bytes // 64
        assert moved == ({"reads": 60_000 + lines, "writes": 0} if way == "to the host" else
                         {"reads": 60_000, "writes": lines})
        assert alone < together < 1.6 * alone


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_pages_and_transfers_share_the_way_to_the_card(memory):
    """Turn by turn: neither waits until the other has ended, and both together take what the link takes."""
    with opened(memory) as sim:
        given, target, _, expected = ring_run(sim, 64, 16)
        extra, data = sim.allocate(64 * CHUNK, "extra", fill=0), content(64 * CHUNK, 8)
        sim.run(given)
        alone = sim.wait()
        sim.clear()
        sim.run(given)
        sim.send(extra, data)
        together = sim.wait()
        sim.settle()
        assert (sim.read(target) == expected).all() and (sim.read(extra) == data).all()
        use = sim.link()
        assert use.in_bytes == 128 * CHUNK and use.in_cycles == 128 * PAGE and use.out_bytes == 0
        assert alone < together < alone + 66 * PAGE


def test_a_reset_ends_transfers():
    with opened() as sim:
        buffer = sim.allocate(CHUNK, "buffer", fill=3)
        begun = sim.begin_fetch(buffer)
        sim.send(buffer, bytes(CHUNK))
        sim.reset()
        with pytest.raises(CardError, match="there is no such transfer to the host"):
            sim.end_fetch(begun)
        sim.settle()
        assert (sim.fetch(buffer) == 3).all(), "what was not sent yet does not arrive"
        begun = sim.begin_fetch(buffer)
        assert (sim.end_fetch(begun) == 3).all()
        with pytest.raises(CardError, match="it was taken, or a reset has ended it"):
            sim.end_fetch(begun)


def test_what_others_move_is_counted():
    with opened() as sim:
        _, taken = spent(sim, lambda: sim.passed(to_card=3 * CHUNK, to_host=CHUNK))
        assert not taken and sim.link() == LinkUse(3 * CHUNK, 3 * PAGE, CHUNK, PAGE)


def test_nothing_takes_no_time():
    with opened() as sim:
        buffer = sim.allocate(CHUNK, "buffer", fill=3)

        def nothing():
            sim.send(buffer, b"")
            sim.settle()
            return sim.fetch(buffer, count=0)

        found, taken = spent(sim, nothing)
        assert not found.size and not taken


def test_a_card_in_its_own_process():
    with opened(process=True) as sim:
        buffer, data = sim.allocate(CHUNK, "buffer", fill=3), content(CHUNK)
        sim.send(buffer, data)
        sim.settle()
        assert (sim.end_fetch(sim.begin_fetch(buffer)) == data).all() and (sim.fetch(buffer) == data).all()
        sim.passed(to_card=CHUNK)
        assert sim.link() == LinkUse(2 * CHUNK, 2 * PAGE, 2 * CHUNK, 2 * PAGE)


def within_a_burst_of_writes(sim):
    """A copy that is at work, and no data come for the burst that its port has begun to write; what is expected."""
    _, target, data, given = copying(sim)
    sim.run(given)
    while sim.counters()["m00_axi.beats_written"] % 64 != 10:
        sim.step(1)
    sim.set_faults(Faults(stalls={"w": 0.95}, stall_cycles=1 << 30))
    return given, target, data


@pytest.mark.parametrize("end", ["the data come", "reset"])
def test_a_port_that_stops_within_a_burst_of_writes(end):
    """AXI4 has no interleaved writes: the host's wait, and are given up with a sentence; reads go past. Then the same
    card goes on."""
    with opened("ddr4") as sim:
        extra, more = sim.allocate(16 * CHUNK, "extra", fill=6), content(16 * CHUNK, 4)
        given, target, data = within_a_burst_of_writes(sim)
        found, taken = spent(sim, lambda: sim.fetch(extra))
        assert (found == 6).all() and taken < cycles_of(extra.bytes) + BEGIN + END + 500
        sim.send(extra, more)
        with pytest.raises(CardHang) as error:
            sim.settle()
        assert re.fullmatch(r"the core has let nothing cross the link for \d+ cycles, its status register is 0x0; "
                            "bursts under way: m00_axi 1", str(error.value))
        sim.set_faults(Faults())
        if end == "reset":
            sim.reset()
            sim.send(extra, more)
            sim.run(given)
        sim.settle()
        sim.wait()
        assert (sim.fetch(extra) == more).all() and (sim.fetch(target) == data).all()


@pytest.mark.parametrize("end", [0, QUICK.memory.bytes])
def test_a_burst_of_reads_across_an_end_of_the_memory(end):
    """Half of its lines are the interconnect's to answer; reads of others go on behind it."""
    with opened("ddr4") as sim:
        _, target, _, given = copying(sim, beats=64, wrong=WRONG.index("crosses_4k"))
        extra = sim.allocate(16 * CHUNK, "extra", fill=6)
        sim.run(given | {"source": BASE + end - CHUNK})
        with pytest.raises(CardViolation) as error:
            sim.wait()
        assert {v.rule for v in error.value.violations} >= {"crosses_4k", "read_outside"}
        found, taken = spent(sim, lambda: sim.fetch(extra))
        assert (found == 6).all() and taken < cycles_of(extra.bytes) + BEGIN + END + 500
