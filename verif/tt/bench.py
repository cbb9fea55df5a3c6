"""A TT unit between its streams: tables of random cores, chunks of their rows, and how sums and cycles are judged."""

from dataclasses import replace
from typing import Any

import numpy as np
from cocotb.triggers import ClockCycles

from gen.rtl.config import load
from golden.tt.block16 import rounded_cores
from golden.tt.cycles import cycles
from golden.tt.load import Beat, Limits, Loader
from golden.tt.rows import chunk_rows, pooled
from hw.uram import LINES
from verif.bench import rng
from verif.bench.harness import Harness
from verif.bench.pack import layout_of

CONFIGS = {
    "tiny": lambda: load("tiny").cores["tt"],
    "two_lanes": lambda: replace(load("tiny").cores["tt"], output_beats=256, lanes=2),
    "uram": lambda: replace(CONFIGS["two_lanes"](), family="ultrascale_plus"),
    "smartssd": lambda: load("smartssd").cores["tt"],
    "side_4": lambda: replace(CONFIGS["tiny"](), grid_log2=2, dim_max=256, output_beats=256),
    "grouped": lambda: replace(CONFIGS["side_4"](), grouped=True, family="ultrascale_plus"),
    "block16_only": lambda: replace(CONFIGS["grouped"](), block16_only=True, x_lines=6144),
}


class Table:
    """Random cores of one shape, of whose rows so many exist, in half the bits or not; its layout once it is loaded."""

    layout: Any = None

    def __init__(self, random, modes, columns, ranks, *, block16=False):
        ranks = (1, *ranks, 1)
        self.block16 = bool(block16)
        self.cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                      for k in range(len(modes))]
        if block16:
            self.cores = list(rounded_cores(self.cores))
        self.rows = int(np.prod(modes))


class Recorded:
    """A pattern that remembers what it said."""

    def __init__(self, pattern):
        self._pattern = pattern
        self.said: list[bool] = []

    def __iter__(self):
        return self

    def __next__(self):
        self.said.append(next(self._pattern))
        return self.said[-1]


def most_rows(config, layout):
    """Of a chunk of a table with this layout."""
    return chunk_rows(layout, rank_max=config.rank_max, t_lines=config.t_lines, t_middle_lines=config.t_middle_lines)


def chunks_of(config, random, tables, count, full=0.4):
    """Chunks (table, rows) of all sizes, many full; rows of a chunk often alike or near each other."""
    out = []
    for _ in range(count):
        number = int(random.integers(len(tables)))
        most = most_rows(config, tables[number].layout)
        size = most if random.random() < full else int(random.integers(1, most + 1))
        index = int(random.integers(tables[number].rows))
        rows = []
        for _ in range(size):
            near = index + int(random.integers(3)) if random.random() < 0.5 else int(random.integers(1 << 20))
            index = near % tables[number].rows
            rows.append(index)
        out.append((number, rows))
    return out


def expected(config, tables, chunks):
    """The chunks' sums as words, +0 up to the end of the last beat."""
    out: list[Any] = [None] * len(chunks)
    for number, table in enumerate(tables):
        mine = [at for at, (t, _) in enumerate(chunks) if t == number]
        indices = [i if i < table.rows else 0 for at in mine for i in chunks[at][1]]
        offsets = np.cumsum([0] + [len(chunks[at][1]) for at in mine])
        sums = pooled(table.cores, indices, offsets, grid_log2=config.grid_log2, grouped=config.grouped)
        padding = -sums.shape[1] % config.beat_words if len(sums) else 0
        for at, one in zip(mine, sums, strict=True):
            out[at] = np.pad(one.view(np.uint32), (0, padding))
    return out


class Bench(Harness):
    """config: the unit's; lookups, ready: patterns of its input and its output."""

    raw, watch = ("o_vectors",), ("i_lookups", "i_load")

    def __init__(self, dut, config, *, lookups=None, ready=None):
        self.config = config
        self._bits = 32 * config.beat_words     # of a beat's words; above them the marks of its end and of an error
        self._whole = 0     # vectors that have left
        self._paces = lookups, ready
        super().__init__(dut, {"i_lookups": lookups, "o_vectors": ready})

    def _o_vectors(self, payload):
        self._whole += payload >> self._bits & 1

    async def fresh(self):
        """A bench of the same kind behind a reset, which the tables outlive."""
        return await type(self).begin(self.dut, config=self.config)

    async def load(self, tables):
        """Loads the tables, which then have their layouts, anywhere in the memories; the first two across bounds of a
        deep X memory's parts."""
        limits = Limits.of(self.config)
        loader, packed, random = Loader(limits), Loader(limits), rng(f"places {self.cycle}")
        for table in tables:
            packed.add(table.cores, rows=table.rows, block16=table.block16)
        loader.x_used = 8 * random.randrange((limits.x_lines - packed.x_used) // 8 + 1)
        loader.y_used = 8 * random.randrange((limits.y_lines - packed.y_used) // 8 + 1)
        for number, table in enumerate(tables):
            if self.config.x_lines > LINES and number < 2:
                loader.x_used = (number + 1) * LINES // 2 - 1
            _, table.layout, beats = loader.add(table.cores, rows=table.rows, block16=table.block16)
            await self.send(beats)

    async def send(self, beats: list[Beat], flips: dict[int, int] | None = None) -> None:
        """Sends load beats; flips: beat number -> bits of its first codeword to store wrong."""
        flips = flips or {}
        self.sources["i_load"].put(*({**vars(b), "flip": flips.get(at, 0)} for at, b in enumerate(beats)))
        await self.sources["i_load"].drained()
        await ClockCycles(self.dut.clk, 4)

    def ask(self, chunks) -> None:
        """Chunks [(table, [row, ..])]."""
        self.sources["i_lookups"].put(*({"table": int(table), "index": int(i), "begin": int(at == 0),
                                         "end": int(at == len(rows) - 1)}
                                        for table, rows in chunks for at, i in enumerate(rows)))

    async def sums(self, count: int) -> list[tuple[np.ndarray, bool, int]]:
        """(words, error, edge of the last beat) of the first `count` chunks; words past D are in their place."""
        last = 1 << self._bits
        left = 20_000 + 1_000 * count
        while self._whole < count:
            await ClockCycles(self.dut.clk, 16)
            left -= 16
            assert left > 0, f"{self._whole} of {count} vectors"
        out: list[tuple[np.ndarray, bool, int]] = []
        parts: list[bytes] = []
        sink = self.sinks["o_vectors"]
        for payload, at in zip(sink.beats, sink.at, strict=True):
            parts.append((payload & last - 1).to_bytes(self._bits // 8, "little"))
            error = bool(payload >> (self._bits + 1))
            if payload & last:
                out.append((np.frombuffer(b"".join(parts), "<u4"), error, at))
                parts = []
            else:
                assert not error, "an error mark inside a vector"
        return out[:count]

    async def run(self, tables, chunks):
        """Asks for chunks: every sum is the model's, bit for bit, and comes in its cycle. Returns the model's times."""
        self.ask(chunks)
        found = await self.sums(len(chunks))
        self.judge(tables, chunks, found)
        return self.timing(tables, chunks, found)

    def judge(self, tables, chunks, found):
        for at, ((words, error, _), want) in enumerate(zip(found, expected(self.config, tables, chunks), strict=True)):
            number, rows = chunks[at]
            assert error == any(i >= tables[number].rows for i in rows), f"chunk {at}: error mark {error}"
            assert len(words) == len(want), f"chunk {at} of table {number}: {len(words)} words, not {len(want)}"
            assert np.array_equal(words, want), (
                f"chunk {at}, rows {rows} of table {number}: {np.flatnonzero(words != want)[:4]} of {len(want)} differ")

    def timing(self, tables, chunks, found):
        """Every lookup taken and every sum delivered in the predicted cycle, if these are the first since the reset."""
        count = sum(len(rows) for _, rows in chunks)
        taken = np.array(self.sources["i_lookups"].taken_at[:count])
        begin = taken[0]
        patterns = {}
        pauses, ready = self._paces
        if pauses is not None:
            gaps, run = [], 0
            for go in pauses.said:
                if go:
                    gaps.append(run)
                run = 0 if go else run + 1
            patterns["gaps"] = gaps[:count]
        if ready is not None:
            patterns["ready"] = ready.said[begin - 1:]
        timing = cycles([table.layout for table in tables], [t for t, rows in chunks for _ in rows],
                        [i for _, rows in chunks for i in rows],
                        offsets=np.cumsum([0] + [len(rows) for _, rows in chunks]), **self.config.timing, **patterns)
        wrong = np.flatnonzero(taken - begin != timing.taken_at)
        assert not len(wrong), (f"lookup {wrong[0]} of {count} taken in cycle {taken[wrong[0]] - begin}, "
                                f"predicted {timing.taken_at[wrong[0]]}")
        last = np.array([at for _, _, at in found]) - begin
        wrong = np.flatnonzero(last != timing.last_at)
        assert not len(wrong), (f"sum {wrong[0]} left in cycle {last[wrong[0]]}, "
                                f"predicted {timing.last_at[wrong[0]]}; {len(wrong)} differ")
        return timing

    def counters(self) -> dict[str, int]:
        return layout_of("counters").unpack(int(self.dut.counters.value))
