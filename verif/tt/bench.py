"""Drives a TT unit: loads tables, asks for rows, and puts the lanes' beats together to vectors."""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, Timer

from golden.tt.load import Beat, Limits, Loader
from verif.bench import report, reset, start
from verif.bench.pack import layout_of
from verif.bench.stream import Monitor, Pattern, Sink, Source

__all__ = ["Bench", "PooledBench", "Vectors", "limits_of", "session"]


def limits_of(config: Any) -> Limits:
    """The limits that a configuration puts on tables."""
    return Limits(**{name: getattr(config, name) for name in Limits.__dataclass_fields__})


@dataclass
class Vectors:
    """What a lane's stream brought: vectors of 32-bit words, their error marks and the edges of their beats."""

    words: list[np.ndarray] = field(default_factory=list)
    errors: list[bool] = field(default_factory=list)
    last_at: list[int] = field(default_factory=list)
    beats_at: list[int] = field(default_factory=list)


class Bench:
    """A TT unit with a source on every input and a sink and a monitor on every output."""

    def __init__(self, dut: Any, lanes: int, line_words: int, *, lookups: Pattern | None = None,
                 ready: list[Pattern] | None = None, watch: bool = True):
        self.dut = dut
        self.lanes = lanes
        self._words = line_words
        self.load_source = Source(dut, "i_load")
        self.lookup_source = Source(dut, "i_lookups", pattern=lookups)
        names = self._connect(ready)
        self.monitors = [Monitor(dut, name) for name in (*names, "i_lookups", "i_load")] if watch else []

    def _connect(self, ready: list[Pattern] | None) -> list[str]:
        """Puts sinks on the outputs; returns their names."""
        names = [f"o_vectors__{lane}" for lane in range(self.lanes)]
        self.sinks = [Sink(self.dut, name, raw=True, pattern=ready[lane] if ready else None)
                      for lane, name in enumerate(names)]
        return names

    @classmethod
    async def begin(cls, dut: Any, config: Any, **arguments: Any) -> Self:
        start(dut)
        bench = cls(dut, config.lanes, config.beat_words if config.pool_log2 else config.line_words, **arguments)
        await reset(dut)
        return bench

    async def load(self, beats: list[Beat], flips: dict[int, int] | None = None) -> None:
        """Sends load beats; flips: beat number -> bits of its first codeword to store wrong."""
        flips = flips or {}
        self.load_source.put(*({"target": b.target, "part": b.part, "address": b.address, "data": b.data,
                                "flip": flips.get(at, 0)} for at, b in enumerate(beats)))
        await self.load_source.drained()
        await ClockCycles(self.dut.clk, 4)

    def stop(self) -> None:
        """Ends all drivers at once; a reset follows."""
        drivers: list[Any] = [self.load_source, self.lookup_source, *self.sinks, *self.monitors]
        for part in drivers:
            part.stop()

    def ask(self, tables, indices) -> None:
        self.lookup_source.put(*({"table": int(t), "index": int(i)} for t, i in zip(tables, indices, strict=True)))

    async def vectors(self, count: int, cycles: int = 200_000) -> list[tuple[np.ndarray, bool, int]]:
        """(words, error, edge of the last beat) of the first `count` lookups, in their order."""
        expected = [len(range(lane, count, self.lanes)) for lane in range(self.lanes)]
        left = cycles
        while any(len(self.lane(at).words) < want for at, want in enumerate(expected)):
            await ClockCycles(self.dut.clk, 16)
            left -= 16
            assert left > 0, f"{[len(self.lane(at).words) for at in range(self.lanes)]} of {expected} vectors"
        lanes = [self.lane(at) for at in range(self.lanes)]
        out = []
        for k in range(count):
            lane, at = lanes[k % self.lanes], k // self.lanes
            out.append((lane.words[at], lane.errors[at], lane.last_at[at]))
        return out

    def lane(self, number: int) -> Vectors:
        """The vectors that a lane has delivered so far."""
        sink = self.sinks[number]
        bits = 32 * self._words
        done, parts = Vectors(beats_at=list(sink.at)), []
        for payload, at in zip(sink.beats, sink.at, strict=True):
            words = np.frombuffer((payload & (1 << bits) - 1).to_bytes(bits // 8, "little"), "<u4")
            keep = payload >> bits & (1 << self._words) - 1
            if keep != (1 << self._words) - 1:
                mask = np.frombuffer(keep.to_bytes(self._words // 8, "little"), np.uint8)
                words = words[np.unpackbits(mask, bitorder="little").astype(bool)]
            parts.append(words)
            if payload >> (bits + self._words) & 1:
                done.words.append(np.concatenate(parts))
                done.errors.append(bool(payload >> (bits + self._words + 1) & 1))
                done.last_at.append(at)
                parts = []
        return done

    def counters(self) -> dict[str, int]:
        return layout_of("counters").unpack(int(self.dut.counters.value))


class PooledBench(Bench):
    """The same for a unit with pooling, whose vectors leave as one stream."""

    def _connect(self, ready: list[Pattern] | None) -> list[str]:
        self.sinks = [Sink(self.dut, "o_vectors", raw=True, pattern=ready[0] if ready else None)]
        return ["o_vectors"]

    def ask_chunks(self, chunks) -> None:
        """Chunks [(table, [row, ..])]."""
        self.lookup_source.put(*({"table": int(table), "index": int(i), "begin": int(at == 0),
                                  "end": int(at == len(rows) - 1)}
                                 for table, rows in chunks for at, i in enumerate(rows)))

    async def sums(self, count: int, cycles: int = 200_000) -> list[tuple[np.ndarray, bool, int]]:
        """(words, error, edge of the last beat) of the first `count` chunks; words past D are in their place."""
        width = self._words
        last = 1 << 32 * width
        left = cycles
        while sum(bool(beat & last) for beat in self.sinks[0].beats) < count:
            await ClockCycles(self.dut.clk, 16)
            left -= 16
            assert left > 0, f"{sum(bool(beat & last) for beat in self.sinks[0].beats)} of {count} vectors"
        out: list[tuple[np.ndarray, bool, int]] = []
        parts: list[bytes] = []
        for payload, at in zip(self.sinks[0].beats, self.sinks[0].at, strict=True):
            parts.append((payload & last - 1).to_bytes(4 * width, "little"))
            error = bool(payload >> (32 * width + 1))
            if payload & last:
                out.append((np.frombuffer(b"".join(parts), "<u4"), error, at))
                parts = []
            else:
                assert not error, "an error mark inside a vector"
        return out[:count]


@cocotb.test()
async def session(dut):
    """Runs what the file HOTRAIL_SESSION asks for: tables, lookups; leaves vectors, cycles and counters there."""
    path = Path(os.environ["HOTRAIL_SESSION"])
    asked = np.load(path, allow_pickle=False)
    about = json.loads(str(asked["about"]))
    loader = Loader(Limits(**about["limits"]))
    start(dut)
    bench = Bench(dut, about["lanes"], 8 ** about["limits"]["grid_log2"], watch=False)
    await reset(dut)
    for table in range(about["tables"]):
        cores = [asked[f"core_{table}_{k}"] for k in range(about["cores"][table])]
        _, _, beats = loader.add(cores, rows=about["rows"][table])
        await bench.load(beats)
    begin = bench.lookup_source.cycle
    bench.ask(asked["table"], asked["index"])
    found = await bench.vectors(len(asked["index"]), cycles=about["cycles"])
    await ClockCycles(dut.clk, 2)
    words = np.concatenate([words for words, _, _ in found]) if found else np.zeros(0, np.uint32)
    np.savez(path.with_suffix(".out.npz"), words=words,
             sizes=np.array([len(words) for words, _, _ in found]),
             errors=np.array([error for _, error, _ in found]),
             taken_at=np.array(bench.lookup_source.taken_at) - begin,
             last_at=np.array([at for _, _, at in found]) - begin,
             counters=json.dumps(bench.counters()))


@cocotb.test()
async def speed(dut):
    """Simulated cycles a second with one lookup on offer every cycle and no Python between the cycles."""
    about = json.loads(os.environ["HOTRAIL_SPEED"])
    loader = Loader(Limits(**about["limits"]))
    side = 1 << about["limits"]["grid_log2"]
    random = np.random.default_rng(1)
    cores = [random.standard_normal(shape).astype(np.float32)
             for shape in ((1, 4, side, side), (side, 4, side, side), (side, 4, side, 1))]
    _, _, beats = loader.add(cores)
    start(dut, 2)
    bench = Bench(dut, about["lanes"], side**3, watch=False)
    await reset(dut)
    await bench.load(beats)
    bench.stop()
    for lane in range(about["lanes"]):
        getattr(dut, f"o_vectors__{lane}__ready").value = 1
    dut.i_lookups__payload.value = layout_of("i_lookups__payload").pack({"table": 0, "index": 21})
    dut.i_lookups__valid.value = 1
    await Timer(2 * 1000, "ns")
    # Processor time: what one thread does, whoever else uses the machine.
    before = time.process_time()
    await Timer(2 * about["cycles"], "ns")
    seconds = time.process_time() - before
    counted = bench.counters()
    assert counted["lookups"] > 0.9 * about["cycles"], "the unit was not busy"
    report(cycles_per_s=about["cycles"] / seconds)
