"""Row fetch: every beat, every request and every cycle against the golden window, on a memory that the bench plays."""

import os
from collections import deque
from dataclasses import dataclass, field

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.emb import row_decoder
from golden.emb import rows as golden
from golden.emb.row_requests import Fetched
from hw.emb.rows import EVENTS, RowFetch
from hw.isa.emb import ROW_FORMAT
from verif.bench import report, reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import always, bursty, sometimes

SMALL = {"words": 4, "row_beats_max": 4, "window_beats": 64, "window_sets": 8, "delivery_rows": 16,
         "stripe_beats": 8, "banks": 4, "decoder_latency": row_decoder.LATENCY, "lap_bits": 2}
SHIPPED = {"words": 16, "row_beats_max": 32, "window_beats": 4096, "window_sets": 1024, "delivery_rows": 256,
           "stripe_beats": 8, "banks": 8, "decoder_latency": row_decoder.LATENCY, "lap_bits": 8}
ROWS_AT, RING_AT = 0x40_0000_1000, 0xFFFF_FFF0_0000_0000
ONE = 0x3F800000


def config():
    return SHIPPED if os.environ.get("ROWS") == "shipped" else SMALL


@dataclass
class Run:
    """What a run showed, cycle by cycle from the first after the reset."""

    taken: list[int] = field(default_factory=list)
    requests: list[tuple[int, int, int]] = field(default_factory=list)  # cycle, address, beats
    left: list[int] = field(default_factory=list)
    beats: list = field(default_factory=list)  # of both kinds, in order: ("o" | "o_copy", payload)
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))
    cycles: int = 0


def word(address, error=0):
    """The beat at an address: its words are made of it."""
    words = config()["words"]
    text = (address * 0x9E3779B97F4A7C15 & (1 << 128) - 1).to_bytes(16, "little")
    return int.from_bytes((text * (words // 4))[:4 * words], "little") ^ error


class Bench:
    """Feeds rows and answers requests; `broken(address)` says whether the beat there is bad."""

    def __init__(self, dut, *, latency=20, offers=None, answers=None, requests=None, broken=None, values=True):
        self.dut, self.latency = dut, latency
        self.offers, self.answers, self.accepts = offers or always(), answers or always(), requests or always()
        self.broken = broken or (lambda address: 0)
        self.values = values
        self.rows = layout_of("i__payload")
        self.run = Run()
        self.waiting = deque()
        dut.i__valid.value, dut.i_data__valid.value, dut.o_requests__ready.value = 0, 0, 1
        dut.rows.value, dut.ring.value, dut.flush_window.value = ROWS_AT, RING_AT, 0

    async def feed(self, rows, *, offered=None, more=40, only=None):
        """Feeds the rows and goes on until all have left and for `more` cycles; a row is offered from its cycle
        of `offered` on, else when the pattern says so. `only`: stop after so many cycles."""
        dut, run = self.dut, self.run
        edge = RisingEdge(dut.clk)
        pack, request = self.rows.pack, layout_of("o_requests__payload").unpack
        layouts = {name: layout_of(name) for name in ("o", "o_copy")}
        events = layout_of("events")
        beat_bytes = 4 * config()["words"]
        first = len(run.taken)
        want = len(run.left) + sum(row["vector"] + 1 for row in rows)
        packed = [pack(row) for row in rows]
        next_row, offering, ready, showing = 0, False, True, None
        idle_for, end = 0, run.cycles + 400 * len(rows) + 4000
        while idle_for <= more:
            cycle = run.cycles
            if not offering and next_row < len(rows) and (
                    next(self.offers) if offered is None else offered[next_row] <= cycle):
                dut.i__payload.value = packed[next_row]
                offering = True
            dut.i__valid.value = offering
            ready = next(self.accepts)
            dut.o_requests__ready.value = ready
            answer = bool(self.waiting) and self.waiting[0][0] <= cycle and next(self.answers)
            dut.i_data__valid.value = answer
            if answer:
                _, address = self.waiting.popleft()
                bad = self.broken(address)
                dut.i_data__payload.value = word(address, bad) | bool(bad) << 8 * beat_bytes
            await edge
            run.cycles += 1
            if offering and dut.i__ready.value == 1:
                run.taken.append(cycle)
                offering, next_row = False, next_row + 1
            if dut.o_requests__valid.value == 1:
                raw = int(dut.o_requests__payload.value)
                assert showing is None or showing == raw, f"the request changed in cycle {cycle}"
                showing = None if ready else raw
                if ready:
                    ask = request(raw)
                    run.requests.append((cycle, ask["address"], ask["beats"]))
                    self.waiting.extend((cycle + self.latency, ask["address"] + beat_bytes * beat)
                                        for beat in range(ask["beats"]))
            else:
                assert showing is None, f"the request was taken back in cycle {cycle}"
            kinds = [name for name, flag in (("o", dut.o_valid), ("o_copy", dut.copy_valid)) if flag.value == 1]
            assert len(kinds) < 2
            for kind in kinds:
                run.left.append(cycle)
                if self.values:
                    run.beats.append((kind, layouts[kind].unpack(int(getattr(dut, kind).value))))
            for name, count in events.unpack(int(dut.events.value)).items():
                run.events[name] += count
            if only is not None and cycle >= only:
                return run
            idle_for = idle_for + 1 if len(run.left) >= want and len(run.taken) - first == len(rows) else 0
            assert cycle < end, (f"{len(run.left)} of {want} beats, {len(run.taken) - first} of {len(rows)} rows "
                                 f"taken after {cycle} cycles")
        assert dut.idle.value == 1, "not idle with nothing under way"
        return run


def arrays(rows):
    return (np.array([row["offset"] for row in rows], np.int64), np.array([row["beats"] + 1 for row in rows], np.int64),
            np.array([not row["ring"] and not row["copy"] for row in rows], np.bool_))


def sources(rows, head=0):
    c = config()
    return golden.window(*arrays(rows), c["window_beats"], c["window_sets"], c["lap_bits"], head)[0]


def addresses(row):
    """Of a row's beats: its pieces lie a stripe apart."""
    start, length = RING_AT if row["ring"] else ROWS_AT, row["piece"] + 1
    return [start + (row["offset"] + beat % length + beat // length * config()["stripe_beats"]) * 4 * config()["words"]
            & (1 << 64) - 1 for beat in range(row["beats"] + 1)]


def bank(address):
    start, stripe = RING_AT if address >= RING_AT else ROWS_AT, config()["stripe_beats"]
    return (address - start) // (4 * config()["words"]) % stripe * config()["banks"] // stripe


def by_bank(requests):
    """The requests of each bank, in their order: banks take turns as it suits them."""
    found = {k: [] for k in range(config()["banks"])}
    for at, beats in requests:
        found[bank(at)].append((at, beats))
    return found


def expected(rows, source, broken=None):
    """(requests, beats) that the rows must bring about."""
    words = config()["words"]
    requests, beats = [], []
    late = [0, 0]
    for at, row in enumerate(rows):
        where = addresses(row)
        if source[at] == at:
            requests += [(first, row["piece"] + 1) for first in where[::row["piece"] + 1]]
        slots = 32 // row_decoder.code_bits(row["row_format"])
        header = 2 if row["row_format"] >= ROW_FORMAT.INT8 else 0
        for beat in range(row["vector"] + 1):
            address = where[(beat + header) // slots]
            bad = broken(address) if broken else 0
            value = word(address, bad)
            if row["copy"]:
                beats.append(("o_copy", {"data": value, "error": int(bad != 0)}))
                continue
            tier = row["tier"]
            late[tier] = int(bad != 0) | (late[tier] if not (row["first"] and beat == 0) else 0)
            beats.append(("o", {
                "words": [value >> 32 * i & 0xFFFFFFFF for i in range(words)], "weight": row["weight"],
                "context": beat | tier << (config()["row_beats_max"] - 1).bit_length(), "first": row["first"],
                "last": row["last"], "maximum": row["maximum"], "tag": {"tier": tier, "error": late[tier]},
                "row_format": row["row_format"], "slot": (beat + header) % slots, "begins": int(beat == 0)}))
    return requests, beats


def check(run, rows, source, broken=None):
    requests, beats = expected(rows, source, broken)
    assert by_bank((at, count) for _, at, count in run.requests) == by_bank(requests)
    for at, (got, want) in enumerate(zip(run.beats, beats, strict=True)):
        assert got == want, f"beat {at}: {got}, expected {want}"
    lengths = np.array([row["beats"] + 1 for row in rows])
    tiers = np.array([row["tier"] for row in rows])
    found = source != np.arange(len(rows))
    assert run.events == {
        "dram_row": (tiers == 0).sum(), "ssd_row": (tiers == 1).sum(), "shared_row": found.sum(),
        "fetched": lengths[~found].sum(), "dram_beat": lengths[tiers == 0].sum(),
        "ssd_beat": lengths[tiers == 1].sum()}, run.events
    return found


def pieces(beats):
    """What a piece of a row may be long."""
    smaller = (1 << k for k in range((config()["stripe_beats"] - 1).bit_length()))
    return [beats, *(piece for piece in smaller if piece < beats and beats % piece == 0)]


def row(offset, vector=1, *, form=0, piece=None, tier=0, ring=0, copy=0, first=1, last=1, weight=ONE, maximum=0):
    """A row of so many beats of values; the length of its pieces follows from its place."""
    beats = row_decoder.beats(vector, form)
    if piece is None:
        piece = beats if ring else pieces(beats)[offset % len(pieces(beats))]
    return {"offset": offset, "ring": ring, "beats": beats - 1, "piece": piece - 1, "vector": vector - 1,
            "row_format": int(form), "tier": tier, "first": first, "last": last, "weight": weight,
            "maximum": maximum, "copy": copy}


def mixture(random, count, *, universe, ring=0.15, copy=0.05):
    """Rows of all kinds; their sizes and formats follow from their place, but now and then one place has two sizes."""
    longest = config()["row_beats_max"]
    rows = []
    for _ in range(count):
        offset = int(random.zipf(1.3)) % universe if random.random() < 0.7 else int(random.integers(universe))
        beats = 1 + offset % longest if random.random() < 0.98 else int(random.integers(1, longest + 1))
        ssd = random.random() < ring
        copies = ssd and random.random() < copy / ring
        form = 0 if copies else (0, 0, 0, *ROW_FORMAT)[offset // longest % 8]
        rows.append(row(
            offset * longest | (int(random.integers(4)) << 30 if random.random() < 0.1 else 0), beats, form=form,
            tier=int(ssd), ring=int(ssd), copy=int(copies), first=int(random.integers(2)),
            last=int(random.integers(2)), weight=int(random.integers(1 << 32)), maximum=int(random.integers(2))))
    return rows


async def fresh(dut, **kwargs):
    start(dut)
    bench = Bench(dut, **kwargs)
    await reset(dut)
    return bench


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
        rows = mixture(random, 700, universe=universe)
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
        rows = mixture(random, 400, universe=60)
        pauses = {name: pattern(rng(f"{name}{trial}")) for name, pattern in (
            ("offers", bursty), ("answers", lambda r: sometimes(0.6, r)), ("requests", bursty))}
        if trial == 1:
            pauses["requests"] = bursty(rng("long"), 120)  # the queue of requests fills up
        run = await (await fresh(dut, latency=int(random.integers(1, 90)), **pauses)).feed(rows)
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
    assert run.left[0] - run.requests[0][0] == 30 + 2, "a beat leaves 2 cycles after it arrived"
    assert run.left[1] == run.left[0] + 1
    again = await (await fresh(dut, latency=30)).feed([row(5), row(5)], offered=[0, 200 + c["window_sets"]])
    assert again.left[1] - again.taken[1] == 5


def modelled(rows, offered, latency):
    """(taken, requested, left) as the bench sees them, by the golden model on an ideal memory."""
    c = config()
    fetch = golden.RowFetch(
        window_beats=c["window_beats"], sets=c["window_sets"], row_beats_max=c["row_beats_max"],
        delivery_rows=c["delivery_rows"], stripe_beats=c["stripe_beats"], banks=c["banks"], lap_bits=c["lap_bits"])
    taken, requested, left, answers = [], [], [], deque()
    wanted, cycle = sum(row["vector"] + 1 for row in rows), 0
    while len(left) < wanted:
        if fetch.out is not None:
            left.append(cycle)
        beat = bool(answers) and answers[0] <= cycle
        if beat:
            answers.popleft()
        request, now = fetch.request, None
        if request is not None:
            offset, beats, ring = request
            address = (RING_AT if ring else ROWS_AT) + offset * 4 * c["words"] & (1 << 64) - 1
            requested.append((cycle, address, beats))
            answers.extend([cycle + latency] * beats)
        if fetch.ready and len(taken) < len(rows) and offered[len(taken)] <= cycle:
            row = rows[len(taken)]
            now = Fetched(row["offset"], row["beats"], row["piece"], row["last"], row["copy"], row["ring"],
                          row["vector"], row["row_format"])
            taken.append(cycle)
        fetch.step(now, beat, request is not None)
        cycle += 1
    return taken, requested, left


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
    """Rows one after the other that are equal, that share a set, that differ in size alone; evictions in neighbouring
    cycles; the last offset."""
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
        [row(top), row(top), row(0), row(top), row(top ^ 1), row(0), row(1 << 31), row(1 << 31)],
        # A hot row among enough others to push it out of the window again and again.
        [row(0, longest) if i % 5 == 0 else row(64 + longest * i, longest) for i in range(300)],
        [row(longest * (i % 2), longest, tier=1, ring=1, copy=i & 1) for i in range(50)],
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
        bad = set(random.choice(sorted({at for row in rows for at in addresses(row)}), 12, replace=False).tolist())

        def broken(address, bad=bad):
            return (0xDEAD << 4) | 1 if address in bad else 0

        run = await (await fresh(dut, latency=15, broken=broken)).feed(rows)
        check(run, rows, sources(rows), broken)
        assert any(beat.get("tag", beat)["error"] for _, beat in run.beats)


@pytest.mark.parametrize("number", seeds())
def test_row_fetch(number):
    simulate(RowFetch(**SMALL), "verif.emb.test_rows", name="row_fetch_small", tests=8, seed=number)


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
