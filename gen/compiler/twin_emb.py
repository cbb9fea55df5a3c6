"""A run of the EMB core as its twin takes it: the program as numbers, and what it yields."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gen.compiler import twin
from gen.compiler.twin_layouts import EMB_JOB, EMB_SIZES, EMB_TIMED, packed
from golden.emb import pooling, row_decoder
from golden.emb.core import Emb, Memory
from golden.tt.clock import Clock
from golden.tt.layout import Layout
from golden.tt.load import Limits, Loader
from hw.emb.config import EmbConfig
from hw.isa import EMB
from hw.isa.emb import DEVICE
from hw.tt.unit import load_wait

__all__ = ["WORDS", "Memory", "Prepared", "Values", "sizes"]

WORDS = EMB.words      # of an instruction
LOAD, BAGS = (EMB.instruction(name).opcode for name in ("LOAD", "BAGS"))


def sizes(config: EmbConfig) -> NDArray[np.int64]:
    """What the time depends on."""
    more = {"pool_latency": pooling.latency(config.lut_products > 0), "load_wait": load_wait(config.tt),
            "doorbell": EMB.value("filled").word}
    values = more | {name: getattr(config, name) for name in EMB_SIZES if name not in more}
    return np.concatenate([twin.frame(EMB, config), packed(EMB_SIZES, values)])


def jobs_of(words: NDArray[np.uint32], stripe_beats: int) -> NDArray[np.int64]:
    """A program (instructions, WORDS) as the core's cycle model takes it: (instructions, EMB_JOB)."""
    item = twin.fields(EMB, words)
    item["stored"] = np.array([row_decoder.beats(int(beats), int(form)) for beats, form in
                               zip(item["row_beats"], item["row_format"], strict=True)], np.int64)
    cut = item["piece_beats"] > 0
    item["piece"] = np.where(cut, item["piece_beats"], item["stored"])
    item["block_rows"] = np.where(cut, stripe_beats // np.maximum(item["piece_beats"], 1), 1)
    return np.ascontiguousarray(np.stack([item[name] for name in EMB_JOB], axis=1))


class Prepared:
    """A run before it begins; its results lie in the memory already.

    jobs: (instructions, EMB_JOB); totals: of the block's counters, those of EMB_TIMED at `places` still to come;
    clocks: of the tensor trains, one up to each LOAD and one behind the last, None where nothing is looked up.
    """

    def __init__(self, jobs: NDArray[np.int64], totals: NDArray[np.uint64], places: NDArray[np.int64],
                 clocks: Sequence[Clock | None]):
        self.jobs, self.totals, self.places, self.clocks = jobs, totals, places, clocks


class Values:
    """What a core computes, with the tensor trains that it holds."""

    def __init__(self, config: EmbConfig):
        self._config = config
        self._core = Emb.of(config)
        self._layouts: list[Layout] = []

    def tensor_trains(self, cores: Sequence[Sequence[NDArray[np.float32]]]) -> None:
        """The cores of the tables that programs load from now on, by their numbers; none is loaded."""
        loader = Loader(Limits.of(self._config.tt))
        layouts = [loader.layout(each) for each in cores]
        self.forget()
        self._layouts, self._core.tables = layouts, list(cores)

    def forget(self) -> None:
        """No table is loaded any more."""
        self._core.loaded.clear()

    def prepare(self, memory: Memory) -> Prepared:
        """Carries a program out, in place. Raises ValueError: it would end in an error, or looks up a table whose cores
        are not known, in one sentence; what is loaded is then what was before."""
        loaded, bounds = set(self._core.loaded), dict(self._core.bounds)
        try:
            result = self._core.run(memory)
            twin.check(EMB, result)
        except ValueError:
            self._core.loaded, self._core.bounds = loaded, bounds
            raise
        jobs = jobs_of(memory.program.reshape(-1, WORDS), self._config.stripe_beats)
        loads = np.flatnonzero(jobs[:, EMB_JOB.index("opcode")] == LOAD)    # the unit forgets its products
        return Prepared(jobs, *twin.totals(EMB, result.counters, EMB_TIMED),
                        [self._clock(memory, part) for part in np.split(jobs, loads)])

    def _clock(self, memory: Memory, jobs: NDArray[np.int64]) -> Clock | None:
        """The lookups of tensor trains in the order in which the core makes them."""
        words, at = self._config.words, {name: place for place, name in enumerate(EMB_JOB)}
        tables, rows, ends = [], [], []
        for job in jobs:
            if job[at["opcode"]] != BAGS:
                continue
            lengths = memory.inputs[job[at["lengths"]] * words:][:job[at["count"]]]
            index = memory.inputs[job[at["indices"]] * words:][:job[at["indices_count"]]]
            mine = np.flatnonzero(index >> 30 == DEVICE.TT)
            if not len(mine):
                continue
            bag = np.repeat(np.arange(len(lengths)), lengths)[mine]
            first = np.concatenate([[True], bag[1:] != bag[:-1]])
            starts = np.flatnonzero(first)
            inside = np.arange(len(mine)) - starts[np.cumsum(first) - 1]
            ends.append(inside % job[at["chunk_rows"]] == 0)
            rows.append((index[mine] & (1 << 30) - 1).astype(np.int64))
            tables.append(np.full(len(mine), job[at["tt_table"]]))
        if not rows:
            return None
        begins = np.flatnonzero(np.concatenate(ends))
        return Clock(self._layouts, np.concatenate(tables), np.concatenate(rows),
                     np.append(begins, sum(map(len, rows))), **self._config.tt.timing)
