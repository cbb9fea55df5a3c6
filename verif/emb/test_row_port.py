"""The row port: row fetch behind its read engine on an AXI4 memory, with latency, stalls and faults; real logs."""

import os
from collections import defaultdict, deque
from functools import cache

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from gen.base.tools import data_path
from gen.data.logs import Trace, open_log
from golden.emb import rows as golden
from hw.axi.bus import AXI4
from hw.axi.reader import Reader
from hw.emb.rows import EVENTS, RowFetch, pooled_layout, row_layout
from verif.bench import report, reset, rng, seed, start
from verif.bench.axi import DECERR, SLVERR, AxiMemory, CardMemory
from verif.bench.pack import layout_of
from verif.bench.runner import build, one_of, run, seeds
from verif.bench.stream import Source, bursty, sometimes

UNIT = "emb/rows"
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))

WORDS, LONGEST, WINDOW, SETS = 16, 32, 4096, 1024
BEAT = 4 * WORDS
LATENCY = 100
OUTSTANDING = 256


class RowPort(wiring.Component):
    """RowFetch and its reader as the core has them."""

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(row_layout(LONGEST))),
            "rows": In(64),
            "m01_axi": Out(AXI4(8 * BEAT, writes=False)),
            "o_valid": Out(1),
            "o": Out(pooled_layout(WORDS, LONGEST)),
            "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = Reader(beat_bytes=BEAT, outstanding=OUTSTANDING)
        m.submodules.fetch = fetch = RowFetch(words=WORDS, row_beats_max=LONGEST, window_beats=WINDOW,
                                              window_sets=SETS, delivery_rows=256,
                                              stripe_beats=8, banks=8, decoder_latency=1)
        wiring.connect(m, wiring.flipped(self.i), fetch.i)
        wiring.connect(m, fetch.o_requests, reader.i_requests)
        wiring.connect(m, reader.bus, wiring.flipped(self.m01_axi))
        m.d.comb += [
            fetch.i_data.valid.eq(reader.o.valid), fetch.i_data.payload.eq(reader.o.payload), reader.o.ready.eq(1),
            fetch.rows.eq(self.rows), self.o_valid.eq(fetch.o_valid), self.o.eq(fetch.o),
            self.events.eq(fetch.events),
        ]
        return m


class Port:
    """Card memory with rows in it, a source of rows, and what leaves."""

    def __init__(self, dut, beats, *, stalls=None, offers=None, values=True):
        self.dut, self.values = dut, values
        self.content = np.random.default_rng(seed("content")).integers(0, 1 << 32, (beats, WORDS), np.uint32)
        self.memory = CardMemory(BEAT)
        self.buffer = self.memory.allocate("rows", self.content.nbytes, data=self.content.tobytes(), writable=False)
        self.axi = AxiMemory(dut, "m01_axi", self.memory, latency=LATENCY, stalls=stalls)
        self.source = Source(dut, "i", pattern=offers)
        dut.rows.value = self.buffer.address
        self.weights = rng("weights")
        self.left, self.seen, self.found = [], [], 0

    async def feed(self, rows):
        self.source.put(*({"offset": int(offset), "beats": beats - 1, "piece": beats - 1, "vector": beats - 1,
                           "first": 1, "last": 1, "weight": self.weights.getrandbits(32)} for offset, beats in rows))
        want, cycle = sum(beats for _, beats in rows), 0
        edge, o, events = RisingEdge(self.dut.clk), layout_of("o").unpack, layout_of("events").unpack
        done = 0
        while done < 10:
            await edge
            cycle += 1
            if self.dut.o_valid.value == 1:
                self.left.append(cycle)
                if self.values:
                    beat = o(int(self.dut.o.value))
                    self.seen.append((beat["words"], beat["tag"]["error"]))
            self.found += events(int(self.dut.events.value))["shared_row"]
            done += len(self.left) >= want
            assert cycle < 100 * want + 5000, f"{len(self.left)} of {want} beats after {cycle} cycles"
        self.memory.check()
        self.axi.stop()
        self.source.stop()


def sources(rows):
    offset, beats = (np.array(column, np.int64) for column in zip(*rows))
    return golden.window(offset, beats, beats, np.ones(len(rows), np.bool_), WINDOW, SETS)[0]


async def port(dut, beats, **kwargs):
    start(dut)
    made = Port(dut, beats, **kwargs)
    await reset(dut)
    return made


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def rate(dut):
    """Random rows of 64 B to 2 KB, a latency of 100 cycles: at least 95 % of the port's beats, from the first row
    taken to the last beat out but the first one's latency; rows lie anywhere, across pages too."""
    random = np.random.default_rng(seed("rate"))
    rates = {}
    for beats in (1, 2, 4, 8, 16, 32):
        count = max(150, 3000 // beats) if REGRESS else max(40, 1000 // beats)
        for name, offsets in (("", random.permutation(count) * beats),
                              (" unaligned", random.permutation(count) * beats + beats // 2)):
            if beats == 1 and name:
                continue
            made = await port(dut, (count + 1) * beats, values=False)
            await made.feed([(offset, beats) for offset in offsets])
            assert made.found == 0
            rates[f"{BEAT * beats} B{name}"] = len(made.left) / (made.left[-1] - made.left[0] + 1)
    report(rates=rates)
    assert min(rates.values()) >= 0.95, rates


@cocotb.test()
@pytest.mark.testpoint("backpressure_both_sides", "error_responses")
async def stalls_and_faults(dut):
    """SLVERR and DECERR anywhere, stalls on both channels: beats in order, an error in each row that had one, also
    when it is found again, and in no other."""
    random = np.random.default_rng(seed("faults"))
    tried = 0
    for trial in range(4):
        rows = [(int(place) * 4, 1 + int(place) % 4) for place in random.zipf(1.4, 400 if REGRESS else 200) % 60]
        stalls = {"r": sometimes(0.7, rng(f"r{trial}"))} | ({"ar": bursty(rng(f"ar{trial}"))} if trial > 1 else {})
        made = await port(dut, 256, stalls=stalls, offers=sometimes(0.8, rng(f"i{trial}")) if trial % 2 else None)
        source = sources(rows)
        fetched = sum(beats for at, (_, beats) in enumerate(rows) if source[at] == at)
        made.axi.fail_read = {int(beat): int(random.choice([SLVERR, DECERR]))
                              for beat in random.integers(0, fetched, 10)}
        tried += len(made.axi.fail_read)
        await made.feed(rows)
        assert made.axi.read_beats == fetched and made.found == (source != np.arange(len(rows))).sum()
        begins, number = defaultdict(deque), 0  # of each row, as they were requested: a bank after the other
        for address, beats in made.axi.reads:
            begins[(address - made.buffer.address) // BEAT].append(number)
            number += beats
        bad, seen = {}, iter(made.seen)
        for at, (offset, beats) in enumerate(rows):
            late = 0
            if source[at] == at:
                begin = begins[offset].popleft()
            for beat in range(beats):
                if source[at] == at:
                    bad[at, beat] = begin + beat in made.axi.fail_read
                wrong = bad[int(source[at]), beat]
                late |= wrong
                words, error = next(seen)
                assert error == late, f"row {at}, beat {beat}: error {error}"
                assert wrong or words == made.content[offset + beat].tolist(), f"row {at}, beat {beat}"
        assert next(seen, None) is None
    report(faults=tried)


@cocotb.test()
@pytest.mark.testpoint("random_match_golden")
async def real_log(dut):
    """Lookups of a real log: found row for row as the golden window says, and read once in memory."""
    log = np.load(os.environ["LOOKUPS"])
    beats = int(os.environ["BEATS"])
    rows = [(int(index) * beats, beats) for index in log]
    made = await port(dut, (int(log.max()) + 1) * beats, values=False)
    await made.feed(rows)
    found = int((sources(rows) != np.arange(len(rows))).sum())
    assert made.found == found
    assert made.axi.read_beats == (len(rows) - found) * beats
    report(asked=len(rows) * beats, fetched=made.axi.read_beats)


@cache
def model():
    return build(RowPort(), "row_port")


@pytest.mark.parametrize("number", seeds())
def test_row_port(number):
    result = run(model(), "verif.emb.test_row_port", tests=2, seed=number, only="rate|stalls_and_faults")
    print(result.values["rates"])
    assert len(result.values["rates"]) == 11 and result.values["faults"] > 30


def logs():
    yield "movielens", lambda: Trace.of(open_log("movielens")).table("item_id"), 4
    for file, table in (("anime_420k", "anime"), ("anime_420k", "genre"), ("msweb", "vroot")):
        if path := data_path(f"{file}.npz"):
            yield f"{file}-{table}", lambda path=path, table=table: Trace.of(open_log(path)).table(table), 4


@pytest.mark.parametrize("load,beats", one_of(
    pytest.param(load, beats, id=name) for name, load, beats in logs()))
def test_real_log(load, beats, tmp_path):
    lookups = load()[:4000 if REGRESS else 1000]
    np.save(tmp_path / "lookups.npy", lookups)
    result = run(model(), "verif.emb.test_row_port", tests=1, only="real_log", seed=seeds()[0],
                 env={"LOOKUPS": tmp_path / "lookups.npy", "BEATS": beats})
    assert result.values["fetched"] <= result.values["asked"]
    print(f"fetched {result.values['fetched']} of {result.values['asked']} beats")
