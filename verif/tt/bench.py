"""Drives a TT unit: loads tables, asks for chunks of rows, and puts the beats of their sums together."""

import json
import os
from pathlib import Path
from typing import Any, Self

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from golden.tt.load import Beat, Limits, Loader
from verif.bench import reset, start
from verif.bench.pack import layout_of
from verif.bench.stream import Monitor, Pattern, Sink, Source

__all__ = ["Bench", "limits_of", "session"]


def limits_of(config: Any) -> Limits:
    """The limits that a configuration puts on tables."""
    return Limits(**{name: getattr(config, name) for name in Limits.__dataclass_fields__})


class Bench:
    """A TT unit with a source on every input and a sink and a monitor on its output. beat_words: of a beat of a sum."""

    def __init__(self, dut: Any, beat_words: int, *, lookups: Pattern | None = None, ready: Pattern | None = None,
                 watch: bool = True):
        self.dut = dut
        self._bits = 32 * beat_words
        self.load_source = Source(dut, "i_load")
        self.lookup_source = Source(dut, "i_lookups", pattern=lookups)
        self._whole = 0     # vectors that have left
        self.sink = Sink(dut, "o_vectors", raw=True, pattern=ready, on_beat=self._count)
        self.monitors = [Monitor(dut, name) for name in ("o_vectors", "i_lookups", "i_load")] if watch else []

    @classmethod
    async def begin(cls, dut: Any, config: Any, **arguments: Any) -> Self:
        start(dut)
        bench = cls(dut, config.beat_words, **arguments)
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
        drivers: list[Any] = [self.load_source, self.lookup_source, self.sink, *self.monitors]
        for part in drivers:
            part.stop()

    def ask(self, chunks) -> None:
        """Chunks [(table, [row, ..])]."""
        self.lookup_source.put(*({"table": int(table), "index": int(i), "begin": int(at == 0),
                                  "end": int(at == len(rows) - 1)}
                                 for table, rows in chunks for at, i in enumerate(rows)))

    def _count(self, payload: int) -> None:
        self._whole += payload >> self._bits & 1

    async def sums(self, count: int, cycles: int = 200_000) -> list[tuple[np.ndarray, bool, int]]:
        """(words, error, edge of the last beat) of the first `count` chunks; words past D are in their place."""
        last = 1 << self._bits
        left = cycles
        while self._whole < count:
            await ClockCycles(self.dut.clk, 16)
            left -= 16
            assert left > 0, f"{self._whole} of {count} vectors"
        out: list[tuple[np.ndarray, bool, int]] = []
        parts: list[bytes] = []
        for payload, at in zip(self.sink.beats, self.sink.at, strict=True):
            parts.append((payload & last - 1).to_bytes(self._bits // 8, "little"))
            error = bool(payload >> (self._bits + 1))
            if payload & last:
                out.append((np.frombuffer(b"".join(parts), "<u4"), error, at))
                parts = []
            else:
                assert not error, "an error mark inside a vector"
        return out[:count]

    def counters(self) -> dict[str, int]:
        return layout_of("counters").unpack(int(self.dut.counters.value))


@cocotb.test()
async def session(dut):
    """Runs what the file HOTRAIL_SESSION asks for: tables, chunks; leaves sums, cycles and counters there."""
    path = Path(os.environ["HOTRAIL_SESSION"])
    asked = np.load(path, allow_pickle=False)
    about = json.loads(str(asked["about"]))
    loader = Loader(Limits(**about["limits"]))
    start(dut)
    bench = Bench(dut, 4 ** about["limits"]["grid_log2"], watch=False)
    await reset(dut)
    dims = []
    for table in range(about["tables"]):
        cores = [asked[f"core_{table}_{k}"] for k in range(about["cores"][table])]
        _, layout, beats = loader.add(cores, rows=about["rows"][table])
        dims.append(layout.dim)
        await bench.load(beats)
    begin = bench.lookup_source.cycle
    offsets, tables = asked["offsets"], asked["table"]
    bench.ask([(tables[first], asked["index"][first:end])
               for first, end in zip(offsets[:-1], offsets[1:], strict=True)])
    found = await bench.sums(len(offsets) - 1, cycles=about["cycles"])
    await ClockCycles(dut.clk, 2)
    sizes = [dims[tables[first]] for first in offsets[:-1]]
    np.savez(path.with_suffix(".out.npz"),
             words=np.concatenate([words[:size] for (words, _, _), size in zip(found, sizes, strict=True)]),
             sizes=np.array(sizes),
             errors=np.array([error for _, error, _ in found]),
             taken_at=np.array(bench.lookup_source.taken_at) - begin,
             last_at=np.array([at for _, _, at in found]) - begin,
             counters=json.dumps(bench.counters()))
