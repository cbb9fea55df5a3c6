"""The EMB core's cycle model, which is its twin's C++, part by part: what the benches of units are held against.

`Front` shows what the registers show in the present cycle; `step` is the clock edge that ends it.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gen.compiler.twin_emb import jobs_of
from verif.bench.cycle_model import address, load

DEALT = ("dram", "ssd", "lookups", "steps")
CLIENTS = 4


def _library() -> ctypes.CDLL:
    found = load(Path(__file__).with_suffix(".cpp"))
    found.front_new.restype = ctypes.c_void_p
    found.front_step.restype = ctypes.c_uint32
    return found


class Front:
    """hw.emb.front.Front, from the first cycle after its reset: when what stands where, for programs of BAGS and FILL.

    requests: (address in beats, beats) of program, lengths, indices, weights, None where valid is low; shows: whether a
    beat of dram, ssd, lookups, steps is offered; finished: instructions; done
    Parameters  words: the program, (instructions, 16); code, inputs: beats where it and its inputs lie; queues: depths,
                by dram, ssd, tt, steps
    """

    def __init__(self, words: np.ndarray, *, code: int, inputs: int, beat_words: int, stripe_beats: int,
                 queues: Mapping[str, int]):
        jobs = jobs_of(words, stripe_beats)
        sizes = np.array([beat_words, *(queues[name] for name in ("dram", "ssd", "tt", "steps")), 0], np.uint32)
        self._library = _library()
        self._front = ctypes.c_void_p(self._library.front_new(
            address(jobs), ctypes.c_uint64(len(jobs)), ctypes.c_uint64(code), ctypes.c_uint64(inputs), address(sizes)))
        self._shown = np.zeros(3 * CLIENTS + len(DEALT) + 2, np.uint64)
        self._show()

    def __del__(self) -> None:
        self._library.front_delete(self._front)

    def _show(self) -> None:
        self._library.front_shows(self._front, address(self._shown))
        *found, self.finished, done = self._shown.tolist()
        self.done = bool(done)
        self.requests = [(at, beats) if there else None for there, at, beats in
                         np.reshape(found[:3 * CLIENTS], (CLIENTS, 3)).tolist()]
        self.shows = {name: bool(there) for name, there in zip(DEALT, found[3 * CLIENTS:], strict=True)}

    def step(self, *, start: bool, data: Sequence[Sequence[int] | None], requests_taken: Sequence[bool],
             taken: Mapping[str, bool], bags_done: bool) -> list[bool]:
        """One clock edge. data: the beats that stand at the four clients; returns which of them were taken."""
        beats = [None if beat is None else (ctypes.c_uint32 * len(beat))(*beat) for beat in data]
        pointers = (ctypes.c_void_p * CLIENTS)(*(None if beat is None else ctypes.addressof(beat) for beat in beats))
        gone = self._library.front_step(self._front, start, _bits(requests_taken), pointers,
                                        _bits([taken[name] for name in DEALT]), bags_done)
        self._show()
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
    _library().rows_run(
        address(numbers), ctypes.c_uint32(sizes["lap_bits"]), address(table),
        address(cycles), ctypes.c_uint64(len(given)), ctypes.c_uint64(beats), ctypes.c_int64(latency), address(taken),
        address(requested), address(left))
    return taken.tolist(), [tuple(each) for each in requested[requested[:, 0] >= 0].tolist()], left.tolist()
