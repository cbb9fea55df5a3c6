"""A soak of EMB cards: random bags and faults on the same objects, every vector held against two oracles.

One oracle carries out the program on memory as the host believes it to be (rows of the row cache where the compiler's
cache has them), so a host whose belief is not the card's is found by the first bag that looks there; every bit counts.
The other knows nothing of programs: sums of the tables' rows in float64, to rounding.
"""

import gc
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from fpga import card
from fpga.api.embedding import EmbeddingBags
from fpga.card import CardError, Device, ErrorResponse, Faults, Silence
from gen.compiler.emb import Bags
from gen.compiler.oracle import EmbOracle, first_difference
from gen.compiler.tables import CardImages
from gen.model.recommender import ROW_FORMATS
from gen.model.row_formats import store
from gen.rtl.config import load
from tests.support import emb_tables as make
from tests.support.cutting import Cut

# A drive and a host with short times, so that a run is bound by the core.
QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)
LIMITS = {"timeout_cycles": 6_000, "limit_cycles": 60_000, "ring_bytes": 8 * 4096}
PORTS = (("m00_axi", "read"), ("m01_axi", "read"), ("m00_axi", "write"))


class Watched(EmbeddingBags):
    """Remembers what the host believed of the row caches when a program was run."""

    def _run(self, program, requests=()):
        self.believed = {name: cache.slots.copy() for name, cache in self.compiler.caches.items()}
        return super()._run(program, requests)


class Bench:
    """One card and its objects."""

    def __init__(self, process, seed):
        self.draw = np.random.default_rng(seed)
        self.config = load("tiny").cores["emb"]
        self.process = process
        self.card = Cut(card.open("sim", device=QUICK, core="emb", preset="tiny", memory="ideal", process=process))
        self.bags = None
        self.reload()

    def reload(self):
        """Other tables on the same card."""
        if self.bags is not None:
            self.bags.close()
        for buffer in self.card.buffers():      # of tables that were cut short as they were given to us
            self.card.free(buffer)
        formats = self.draw.choice(ROW_FORMATS, 3).tolist()
        self.tables = {table.name: replace(table, row_format=form) for form, table in zip(formats, (
            make.mixed(self.draw, "items", rows=150 + int(self.draw.integers(150))),
            make.only(self.draw, "users", make.SSD, 100 + int(self.draw.integers(300)), 20),
            make.only(self.draw, "ads", make.DRAM, 90, 12)), strict=True)}
        self.dense = {name: make.dense(table) for name, table in self.tables.items()}
        caches = {"items": int(self.draw.integers(4, 40)), "users": int(self.draw.integers(4, 40))}
        images = CardImages(list(self.tables.values()), self.config, 4096, caches)
        self.bags = Watched(images, card=self.card, preset=self.config, **LIMITS)
        self.oracle = EmbOracle(images, self.bags.compiler)

    def requests(self, bags):
        """About so many bags, of all modes."""
        found, names = [], list(self.tables)
        while bags > 0:
            count = int(min(bags, self.draw.integers(1, 24)))
            table = self.tables[names[int(self.draw.integers(len(names)))]]
            indices, offsets = make.bags(self.draw, table.rows, count, 4, zipf=0.6)
            mode = ("sum", "mean", "max")[int(self.draw.integers(3))]
            found.append(Bags(table.name, indices, offsets, None, mode))
            bags -= count
        return found

    def judge(self, requests, vectors):
        """Where the answer is wrong, in words; empty: nowhere."""
        images, program = self.bags.images, self.bags.program
        if not program.count:
            return ""
        rows = images.rows.copy()
        for name, slots in self.bags.believed.items():
            placed = images.placed[name]
            ranks = np.flatnonzero(slots >= 0)
            stored = store(placed.table.ssd[ranks], placed.table.row_format, images.words)
            placed.write(rows, placed.own_rows + slots[ranks], stored)
        self.oracle.rows = rows.reshape(-1)
        wanted, _ = self.oracle.run(program)
        if different := first_difference(vectors, wanted):
            return different
        for request, found in zip(requests, vectors, strict=True):
            plain = _pooled(self.dense[request.table], request)
            if not np.allclose(found, plain, rtol=1e-3, atol=1e-3):
                return f"table {request.table}: {np.abs(found - plain).max()} away from the plain sums"
        return ""

    def faults(self):
        """A fault for the next run: its kind, and what the card is set to; interrupts set none."""
        draw = self.draw
        kind = ("bus error", "silence", "dead host", "lost page", "doorbell ahead", "stalls", "signal", "cut",
                "reload")[int(draw.choice(9, p=[.22, .04, .12, .12, .06, .1, .14, .16, .04]))]
        port, way = PORTS[int(draw.integers(3))]
        beat = int(2 ** draw.uniform(0, 11))
        return kind, {
            "bus error": lambda: Faults(errors=(ErrorResponse(port, way, ("SLVERR", "DECERR")[beat & 1], beat),)),
            "silence": lambda: Faults(silences=(Silence(port, way, beat),)),
            "dead host": lambda: Faults(host_dies_after=int(draw.integers(4))),
            "lost page": lambda: Faults(lost=(int(draw.integers(4)),)),
            "doorbell ahead": lambda: Faults(doorbell_ahead=self.bags.compiler.ring_beats + 16,
                                             doorbell_after=int(draw.integers(1, 3))),
            "stalls": lambda: Faults(seed=beat, stalls=dict.fromkeys(("aw", "w", "b", "ar", "r"), 0.5)),
        }.get(kind, Faults)()

    def attempt(self, requests, kind, faults):
        """Runs a batch under a fault; whether it was answered all the same."""
        self.card.set_faults(faults)
        kinds = {kind} if kind != "reload" else {kind, ("cut", "signal", "")[int(self.draw.integers(3))]}
        self.card.cut(int(self.draw.integers(30)) if "cut" in kinds else None, bool(self.draw.integers(2)))
        if "signal" in kinds:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 + self.draw.random() ** 2 * 0.05)
        try:
            if kind == "reload":
                self.reload()
            return self.bags.batch(requests) if kind != "reload" else None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.card.cut(None)
            self.card.set_faults(Faults())

    def close(self):
        self.bags.close()
        self.card.inner.close()


class Soak:
    """bags: that are looked up at least; process: of each card, whether it has one of its own. After `run`: bags,
    faults by kind, ends by kind, wrong (sentences), grown (bytes that this process and the cards' have grown by since
    a tenth of all was done)."""

    def __init__(self, processes=(False, True), seed=1):
        self.benches = [Bench(process, seed + number) for number, process in enumerate(processes)]
        self.bags, self.faults, self.ends, self.wrong, self.grown = 0, Counter(), Counter(), [], 0

    def run(self, bags, batch=60):
        held, before = 0, signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            while self.bags < bags:
                for bench in self.benches:
                    self._once(bench, batch)
                if not held and self.bags > bags / 10:
                    held = self._bytes()
            self.grown = self._bytes() - held
        finally:
            signal.signal(signal.SIGALRM, before)
        return self

    def _once(self, bench, batch):
        """A fault, perhaps, and then a sound batch, on the same objects."""
        if bench.draw.random() < 0.5:
            kind, faults = bench.faults()
            self.faults[kind] += 1
            requests = bench.requests(batch)
            try:
                vectors = bench.attempt(requests, kind, faults)
                self.ends["answered"] += 1
                if vectors is not None:
                    self._judge(bench, requests, vectors, kind)
            except (CardError, KeyboardInterrupt) as error:
                self.ends[type(error).__name__] += 1
                if kind == "reload":
                    bench.reload()
        requests = bench.requests(batch)
        self._judge(bench, requests, bench.bags.batch(requests), "sound")

    def _judge(self, bench, requests, vectors, kind):
        self.bags += sum(len(request.offsets) - 1 for request in requests)
        if found := bench.judge(requests, vectors):
            self.wrong.append(f"{kind}, after {self.bags} bags: {found}")

    def _bytes(self):
        gc.collect()
        pids = [os.getpid(), *(bench.card.inner._process.pid for bench in self.benches if bench.process)]
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf("SC_PAGE_SIZE")

    def close(self):
        for bench in self.benches:
            bench.close()


def _pooled(rows, request):
    """Sums, means or maxima of a request's bags in float64."""
    out = np.zeros((len(request.offsets) - 1, rows.shape[1]))
    for bag, (start, end) in enumerate(zip(request.offsets[:-1], request.offsets[1:], strict=True)):
        if end > start:
            part = rows[request.indices[start:end]]
            out[bag] = {"sum": part.sum, "mean": part.mean, "max": part.max}[request.mode](axis=0)
    return out
