"""The EMB core's cycle model, which is its twin's C++, part by part: what the benches of units are held against.

`Front` shows what the registers show in the present cycle; `step` is the clock edge that ends it.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gen.compiler.twin_emb import jobs_of
from verif.bench.cycle_model import Part, address, load

DEALT = ("dram", "ssd", "lookups", "steps")
CLIENTS = 4
SOURCE = Path(__file__).with_suffix(".cpp")


class Front(Part):
    """hw.emb.front.Front, from the first cycle after its reset: when what stands where, for programs of BAGS and FILL.

    requests: (address in beats, beats) of program, lengths, indices, weights, None where valid is low; dram, ssd,
    lookups, steps: whether a beat is offered; finished: instructions; done
    Parameters  words: the program, (instructions, 16); code, inputs: beats where it and its inputs lie; queues: depths,
                by dram, ssd, tt, steps
    """

    source, name = SOURCE, "front"
    shows = (*(f"{what}{client}" for client in range(CLIENTS) for what in ("there", "at", "beats")), *DEALT, "finished",
             "done")

    def __init__(self, words: np.ndarray, *, code: int, inputs: int, beat_words: int, stripe_beats: int,
                 queues: Mapping[str, int]):
        jobs = jobs_of(words, stripe_beats)
        sizes = np.array([beat_words, *(queues[name] for name in ("dram", "ssd", "tt", "steps")), 0], np.uint32)
        super().__init__(jobs, len(jobs), code, inputs, sizes)

    def _show(self) -> None:
        super()._show()
        shown = list(self._shown.values())
        self.requests = [(at, beats) if there else None
                         for there, at, beats in zip(*(shown[k:3 * CLIENTS:3] for k in range(3)), strict=True)]

    def step(self, *, start: bool, data: Sequence[Sequence[int] | None], requests_taken: Sequence[bool],
             taken: Mapping[str, bool], bags_done: bool) -> list[bool]:
        """One clock edge. data: the beats that stand at the four clients; returns which of them were taken."""
        beats = [None if beat is None else (ctypes.c_uint32 * len(beat))(*beat) for beat in data]
        pointers = (ctypes.c_void_p * CLIENTS)(*(None if beat is None else ctypes.addressof(beat) for beat in beats))
        gone = self._call("step", start, _bits(requests_taken), pointers, _bits([taken[name] for name in DEALT]),
                          bags_done)
        return [bool(gone >> k & 1) for k in range(CLIENTS)]


def _bits(flags: Sequence[bool]) -> int:
    return sum(bool(flag) << at for at, flag in enumerate(flags))


def rows(sizes: Mapping[str, int], given: Sequence[Mapping[str, int]], offered: Sequence[int], latency: int
         ) -> tuple[list[int], list[tuple[int, ...]], list[int]]:
    """hw.emb.rows.RowFetch in front of an ideal memory: the cycles in which each row is taken, each request stands at
    the port, as (cycle, offset, beats, ring), and each beat of values leaves.

    sizes: the unit's parameters; given: fields of its input, rows; offered: the cycle from which each is
    """
    names = ("window_beats", "window_sets", "row_beats_max", "delivery_rows", "stripe_beats", "banks")
    fields = ("offset", "beats", "piece", "vector", "row_format", "last", "copy", "ring")
    assert sizes["lap_bits"] in (2, 8)
    table = np.array([[row[name] for name in fields] for row in given], np.uint32)
    beats = sum(row["vector"] + 1 for row in given)
    taken, left = np.zeros(len(given), np.int64), np.zeros(beats, np.int64)
    requested = np.full((sum(row["beats"] + 1 for row in given), 4), -1, np.int64)
    cycles, numbers = np.array(offered, np.int64), np.array([sizes[name] for name in names], np.uint32)
    load(SOURCE).rows_run(
        address(numbers), ctypes.c_uint32(sizes["lap_bits"]), address(table),
        address(cycles), ctypes.c_uint64(len(given)), ctypes.c_uint64(beats), ctypes.c_int64(latency), address(taken),
        address(requested), address(left))
    return taken.tolist(), [tuple(each) for each in requested[requested[:, 0] >= 0].tolist()], left.tolist()


class Fetched(NamedTuple):
    """A row on its way to the row fetch: its place in its arena, stored beats less one, those of a piece less one,
    whether it lies in the ring."""

    offset: int
    beats: int
    piece: int
    ring: bool


class RowRequests(Part):
    """hw.emb.row_requests.RowRequests: `request` is what stands at the port, `ring` whether it is of the ring; full: as
    the output of that name."""

    source, name = SOURCE, "row_requests"
    shows = ("asks", "address", "beats", "ring", "full")

    def __init__(self, *, stripe_beats: int, banks: int, rows: int):
        super().__init__(stripe_beats, banks, rows)

    def step(self, row: Fetched | None, taken: bool, beat: bool) -> int:
        """row: that enters; taken: the request is; beat: one comes back, of the bank that is returned."""
        given = None if row is None else np.array([*row[:3], 0, 0, 0, 0, row.ring], np.uint32)
        return self._call("step", given, taken, beat)


def arbiter(sizes: Sequence[int], dram: np.ndarray, ssd: np.ndarray, shown: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """hw.emb.landing.TierArbiter: (taken, ssd_taken, waiting): the cycle after which each row of DRAM stands at its
    output (-1: not within the cycles looked at), the same of the SSD's, and whether a row is waited for in each cycle.

    sizes: its parameters, and beats of the ring; dram, ssd (rows, 6): the cycle from which each is offered, offset,
    beats as stored and of the values, last, copy; shown (cycles, 5): ready, filled, and whether a beat of DRAM's
    vectors, one of the SSD's, a copied row came back
    """
    numbers, rows = np.array(sizes, np.uint32), [np.ascontiguousarray(tier, np.int64) for tier in (dram, ssd)]
    shown, waiting = np.ascontiguousarray(shown, np.int64), np.zeros(len(shown), np.int64)
    taken = [np.full(len(tier), -1, np.int64) for tier in rows]
    tiers = [part for tier in rows for part in (address(tier), ctypes.c_uint64(len(tier)))]
    load(SOURCE).arbiter_run(address(numbers), *tiers, address(shown), ctypes.c_uint64(len(shown)),
                             *map(address, taken), address(waiting))
    return taken[0], taken[1], waiting.astype(np.bool_)


class Vector(NamedTuple):
    """out: its first beat; beats: in full; last: the instruction's last."""

    out: int
    beats: int
    last: bool


class Joined(NamedTuple):
    """Vectors behind one another; out: the first beat; beats, bags: in all; last: an instruction ends with them."""

    out: int
    beats: int
    bags: int
    last: bool


class WriteJoiner(Part):
    """hw.emb.write_joiner.WriteJoiner; `o` is what leaves, None or a Joined."""

    source, name = SOURCE, "joiner"
    shows = ("there", "out", "beats", "bags", "last")

    def __init__(self, *, block_beats: int):
        super().__init__(block_beats)

    @property
    def o(self) -> Joined | None:
        return Joined(self.out, self.beats, self.bags, self.last) if self.there else None

    def step(self, vector: Vector | None) -> None:
        """vector: that comes in this cycle."""
        self._call("step", vector is not None, *(ctypes.c_uint32(value) for value in vector or (0, 0, 0)))
