"""Row fetch: every beat, every request and every cycle against the golden window, on a memory that the bench plays."""

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from hw.emb.rows import RowFetch
from hw.isa.emb import ROW_FORMAT
from verif.bench import report, rng, seed
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, never, sometimes
from verif.emb.row_bench import (
    SHIPPED,
    SMALL,
    addresses,
    check,
    config,
    fresh,
    mixture,
    modelled,
    row,
    sources,
)

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


@cocotb.test()
async def smoke(dut):
    """A row, a repeated one and one of the ring: found or fetched, beats and tags right."""
    rows = [row(3, 2), row(8), row(3, 2, first=0), row(3, 2, ring=1, tier=1)]
    run = await (await fresh(dut)).feed(rows)
    found = check(run, rows, sources(rows))
    assert found.tolist() == [False, False, True, False]


@cocotb.test()
async def random_match_golden(dut):
    """Rows of all kinds, hot and rare: every request and beat equal to the golden window's; the ring goes round many
    times, and the table is cleared on the way."""
    random = np.random.default_rng(seed("rows"))
    shares = []
    for universe in (6, 40, 400):
        rows = mixture(random, 700 if REGRESS else 400, universe=universe)
        run = await (await fresh(dut, latency=int(random.integers(1, 60)))).feed(rows)
        found = check(run, rows, sources(rows))
        shares.append(float(found.mean()))
        laps = sum(beats for _, _, beats in run.requests) / config()["window_beats"]
        assert config() is SHIPPED or laps > 2 or universe == 6
    assert shares[0] > shares[1] > shares[2] > 0, shares


@cocotb.test()
async def backpressure_both_sides(dut):
    """Rows offered in bursts, requests taken in bursts, data with gaps: the same rows are found, beats in order. The
    output cannot be held back."""
    random = np.random.default_rng(seed("pauses"))
    for trial in range(3):
        rows = mixture(random, 400 if REGRESS else 200, universe=60)
        pauses = {name: pattern(rng(f"{name}{trial}")) for name, pattern in (
            ("offers", bursty), ("answers", lambda r: sometimes(0.6, r)), ("requests", bursty))}
        if trial == 1:
            pauses["requests"] = bursty(rng("long"), 120)  # the queue of requests fills up
        run = await (await fresh(dut, latency=int(random.integers(1, 90)), **pauses)).feed(rows)
        check(run, rows, sources(rows))
    # One bank's queue fills up, and all others are empty.
    rows = [row(config()["stripe_beats"] * at) for at in range(60)]
    run = await (await fresh(dut, requests=never(100))).feed(rows)
    check(run, rows, sources(rows))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Every row taken, request and beat on an ideal memory, in the cycle that the golden model says."""
    c = config()
    random = np.random.default_rng(seed("cycles"))
    rates = {}
    longest = c["row_beats_max"]
    cases = []
    for log in range((longest - 1).bit_length() + 1):
        beats = 1 << log
        count = max(24, (3000 if c is SHIPPED else 600) // beats)
        places = random.permutation(1 << 20)[:count]
        cases.append((f"{4 * c['words'] * beats} B", [row(int(place) * beats, beats) for place in places], True))
    for form in list(ROW_FORMAT)[1:]:
        places = random.permutation(1 << 20)[:max(24, (3000 if c is SHIPPED else 600) // longest)]
        cases.append((form.name, [row(int(place) * longest, longest, form=form) for place in places], True))
    cases.append(("found", [row(int(place) * 4) for place in random.integers(0, 5, 700)], True))
    cases.append(("mixture", mixture(random, 600, universe=50), False))
    for name, rows, steady in cases:
        # A row at rest in between; sometimes the whole unit runs dry.
        offered = np.zeros(len(rows), np.int64) if steady else np.cumsum(
            random.choice([0, 1, 1, 2, 5, 90], len(rows), p=[.3, .3, .2, .1, .09, .01]))
        latency = 100 if c is SHIPPED else int(random.integers(1, 40))
        run = await (await fresh(dut, latency=latency, values=False)).feed(rows, offered=offered)
        taken, requested, left = modelled(rows, offered, latency)
        assert run.taken == taken, _first(name, "taken", run.taken, taken)
        assert run.requests == requested, _first(name, "requested", run.requests, requested)
        assert run.left == left, _first(name, "left", run.left, left)
        rates[name] = len(left) / (left[-1] - left[0] + 1)
        if c is SHIPPED and steady:
            assert rates[name] >= 0.95, f"{name}: {rates[name]:.3f} beats a cycle"
    if c is SHIPPED:
        report(rates=rates)
    rows = [row(5), row(5), row(6)]
    run = await (await fresh(dut, latency=30)).feed(rows, offered=[100 + c["window_sets"]] * 3)
    assert run.requests[0][0] - run.taken[0] == 6
    assert run.left[0] - run.requests[0][0] == 30 + 3, "a beat leaves 3 cycles after it arrived"
    assert run.left[1] == run.left[0] + 1
    again = await (await fresh(dut, latency=30)).feed([row(5), row(5)], offered=[0, 200 + c["window_sets"]])
    assert again.left[1] - again.taken[1] == 6


def _first(name, what, got, want):
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"{name}, {what}: {len(got)} of {len(want)}; number {at}: {list(got[at:at + 4])}, expected " \
           f"{list(want[at:at + 4])}"


@cocotb.test()
async def reset_midstream(dut):
    """A reset in any state, also while the table is cleared, drops all rows and the window; the next run is as good as
    the first."""
    random = np.random.default_rng(seed("reset"))
    for _ in range(6):
        bench = await fresh(dut, latency=20)
        await bench.feed(mixture(random, 300, universe=30), only=config()["window_sets"] + int(random.integers(1, 150)))
        rows = mixture(random, 80, universe=30)
        bench = await fresh(dut, latency=20)
        check(await bench.feed(rows), rows, sources(rows))


@cocotb.test()
async def corner_values(dut):
    """Rows one after the other that are equal, that share a set, that differ in size or in pieces alone; evictions in
    neighbouring cycles; the last offset; rows of either arena to copy."""
    longest, sets = config()["row_beats_max"], config()["window_sets"]
    top = (1 << 32) - 1
    cases = [
        [row(7) for _ in range(300)],  # hot for ever
        [row([4, 8][i % 2], 3) for i in range(200)],
        [row([4, 8, 12][i % 3]) for i in range(200)],
        # Offsets of one set: entered and evicted in neighbouring cycles.
        [row(sets * k * (sets + 1)) for k in (0, 1, 2, 0, 1, 2, 0, 0, 1, 1, 2, 2, 2, 1, 0, 0, 3, 0, 3, 1) * 6],
        [row(sets * k * (sets + 1)) for k in np.random.default_rng(seed("set")).integers(0, 4, 300).tolist()],
        [row(64, 1 + i % longest) for i in range(100)],
        [row(64, longest, piece=1 << i % 2) for i in range(100)],
        [row(top), row(top), row(0), row(top), row(top ^ 1), row(0), row(1 << 31), row(1 << 31)],
        # A hot row among enough others to push it out of the window again and again.
        [row(0, longest) if i % 5 == 0 else row(64 + longest * i, longest) for i in range(300)],
        [row(longest * (i % 2), longest, tier=1, ring=i >> 1 & 1, copy=i & 1) for i in range(50)],
    ]
    for rows in cases:
        run = await (await fresh(dut, latency=25)).feed(rows)
        check(run, rows, sources(rows))


@cocotb.test()
@pytest.mark.testpoint("forgets_on_request")
async def flush_window(dut):
    """After a flush nothing is found that was fetched before it, also when the flush clears the table."""
    for lap in range(5):
        bench = await fresh(dut, latency=10)
        rows, head, source = [], 0, []
        for _ in range(1 + lap):
            rows_here = [row(offset, 2) for offset in (0, 4, 8, 4, 0)]
            await bench.feed(rows_here, more=5)
            here = sources(rows_here, head)
            source += (here + len(rows)).tolist()
            rows += rows_here
            head += 6
            dut.flush_window.value = 1
            await RisingEdge(dut.clk)
            bench.run.cycles += 1
            dut.flush_window.value = 0
        found = check(bench.run, rows, np.array(source))
        assert found.sum() == 2 * (1 + lap)


@cocotb.test()
@pytest.mark.testpoint("error_responses")
async def error_beats(dut):
    """SLVERR or DECERR on any beat shows in its bag's tag from there on, and again whenever the row is found; in no
    other tag."""
    random = np.random.default_rng(seed("errors"))
    for _ in range(4):
        rows = mixture(random, 300, universe=12)
        places = sorted({at for row in rows for at in addresses(row)})
        bad = {places[k] for k in random.choice(len(places), 12, replace=False)}    # of 64 bits: NumPy rounds

        def broken(address, bad=bad):
            return (0xDEAD << 4) | 1 if address in bad else 0

        run = await (await fresh(dut, latency=15, broken=broken)).feed(rows)
        check(run, rows, sources(rows), broken)
        assert any(beat.get("tag", beat)["error"] for _, beat in run.beats)


@pytest.mark.parametrize("number", seeds())
def test_row_fetch(number):
    simulate(RowFetch(**SMALL), "verif.emb.test_rows", name="row_fetch_small", tests=8, seed=number)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
def test_row_fetch_shipped(number):
    """At the shipping card's size: beats a cycle by row size at a latency of 100 cycles."""
    result = simulate(RowFetch(**SHIPPED), "verif.emb.test_rows", name="row_fetch_shipped", tests=4, seed=number,
                      env={"ROWS": "shipped"},
                      only="smoke|latency_and_rate_as_documented|flush_window|backpressure_both_sides")
    assert len(result.values["rates"]) == 12


def test_illegal_config_wrong():
    """Sizes that cannot be built are refused with a sentence."""
    for change, sentence in (
        ({"window_beats": 32},
         r"window_beats must be a power of two of at least 64 \(16 rows of row_beats_max\), not 32"),
        ({"window_sets": 3}, "window_sets must be a power of two of at least 2, not 3"),
        ({"window_sets": 1 << 17}, "window_sets must be at most 65536, not 131072"),
        ({"row_beats_max": 3}, "row_beats_max must be a power of two of at least 1, not 3"),
        ({"delivery_rows": 4}, "delivery_rows must be a power of two of at least 8, not 4"),
        ({"lap_bits": 0}, "lap_bits must be 1 to 16, not 0"),
        ({"words": 3}, r"beat_bytes must be one of 4, 8, 16, 32, 64 \(32 to 512 bits\), not 12"),
    ):
        with pytest.raises(ValueError, match=sentence):
            RowFetch(**(SMALL | change))
