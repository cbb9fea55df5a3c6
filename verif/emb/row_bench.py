"""What the row fetch's bench is made of: the memory that it plays, rows of all kinds, what they must bring about."""

import os
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from cocotb.triggers import RisingEdge

from golden.emb import row_decoder
from golden.emb import rows as golden
from hw.emb.rows import EVENTS
from hw.isa.emb import ROW_FORMAT
from verif.bench import reset, start
from verif.bench.pack import layout_of
from verif.bench.stream import always
from verif.emb import cycles

SMALL = {"words": 4, "row_beats_max": 4, "window_beats": 128, "window_sets": 8, "delivery_rows": 32,
         "stripe_beats": 8, "banks": 4, "decoder_latency": row_decoder.LATENCY, "lap_bits": 2}
SHIPPED = {"words": 16, "row_beats_max": 32, "window_beats": 4096, "window_sets": 1024, "delivery_rows": 256,
           "stripe_beats": 8, "banks": 8, "decoder_latency": row_decoder.LATENCY, "lap_bits": 8}
ROWS_AT, RING_AT = 0x5A3C_6940_1234_5000, 0xA5C3_96BF_EDCB_A000     # each bit is another
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
        idle_for, owed, end = 0, 0, run.cycles + 400 * len(rows) + 4000
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
            owed -= len(kinds)
            assert not (owed and dut.idle.value == 1), f"idle in cycle {cycle} with {owed} beats to come"
            if offering and dut.i__ready.value == 1:
                run.taken.append(cycle)
                owed += rows[next_row]["vector"] + 1
                offering, next_row = False, next_row + 1
            if only is not None and cycle >= only:
                return run
            idle_for = idle_for + 1 if len(run.left) >= want and len(run.taken) - first == len(rows) else 0
            assert cycle < end, (f"{len(run.left)} of {want} beats, {len(run.taken) - first} of {len(rows)} rows "
                                 f"taken after {cycle} cycles")
        assert dut.idle.value == 1, "not idle with nothing under way"
        return run


def arrays(rows):
    return (np.array([row["offset"] for row in rows], np.int64),
            *(np.array([row[name] + 1 for row in rows], np.int64) for name in ("beats", "piece")),
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
        form = ROW_FORMAT(row["row_format"])
        slots, header = 32 // form.bits, form.header
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
    """Rows of all kinds; their sizes, formats and pieces follow from their place, but now and then one place has two
    sizes, or two lengths of pieces."""
    longest = config()["row_beats_max"]
    rows = []
    for _ in range(count):
        offset = int(random.zipf(1.3)) % universe if random.random() < 0.7 else int(random.integers(universe))
        beats = 1 + offset % longest if random.random() < 0.98 else int(random.integers(1, longest + 1))
        ssd = random.random() < ring
        copies = ssd and random.random() < copy / ring
        form = 0 if copies else (0, 0, 0, *ROW_FORMAT)[offset // longest % 8]
        place = offset * longest | (int(random.integers(4)) << 30 if random.random() < 0.1 else 0)
        choice = pieces(row_decoder.beats(beats, form))
        cut = int(random.choice(choice)) if random.random() < 0.1 and not ssd else None
        rows.append(row(
            place, beats, form=form, piece=cut,
            tier=int(ssd), ring=int(ssd), copy=int(copies), first=int(random.integers(2)),
            last=int(random.integers(2)), weight=int(random.integers(1 << 32)), maximum=int(random.integers(2))))
    return rows


async def fresh(dut, **kwargs):
    start(dut)
    bench = Bench(dut, **kwargs)
    await reset(dut)
    return bench


def modelled(rows, offered, latency):
    """(taken, requested, left) as the bench sees them, by the cycle model on an ideal memory."""
    taken, requested, left = cycles.rows(config(), rows, offered, latency)
    beat_bytes = 4 * config()["words"]
    return taken, [(cycle, (RING_AT if ring else ROWS_AT) + offset * beat_bytes & (1 << 64) - 1, beats)
                   for cycle, offset, beats, ring in requested], left
