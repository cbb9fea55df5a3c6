"""A run of the Hotline core as its twin takes it: what is known of its samples, and what mini-batches and rows hold."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.compiler import twin
from golden.hotline.order import Portion
from golden.hotline.train import GATHERED, Hotline, Memory, MiniBatch, Plan
from hw.hotline.config import HotlineConfig
from hw.isa import HOTLINE
from hw.isa.hotline import JOIN

__all__ = ["WORDS", "Memory", "Prepared", "Values", "sizes"]

WORDS = HOTLINE.words      # of an instruction
NOWHERE = 255              # the bank of a word that is not looked up

# The fields of an instruction, in the order of HotlineJob in fpga/card/cpp/twin/hotline_dispatch.h.
JOB = ("opcode", "position", "join", "pinned", "pooled", "half", "count", "source", "sample_beats", "indices",
       "row_beats_log2", "batch", "mailbox_slots", "mailbox_pitch", "gradients_pitch", "out")
# Counters that depend on time, or on what has been dealt, in the order of fpga/card/cpp/twin/hotline.cpp.
TIMED = ("cycles", "batches_popular", "batches_gathered", "batches_updated", "dma_rd", "dma_wr", "gpu_rd", "v_mul",
         "v_add", "shared", "stall_logger", "stall_frames", "stall_mailbox", "stall_gather")
SAMPLES = [HOTLINE.instruction(name).opcode for name in ("LEARN", "TRAIN")]
# What happens in a run, as hotline.cpp numbers it.
DEALT_POPULAR, DEALT_GATHERED, UPDATED, SAVED, LATE = range(5)


def sizes(config: HotlineConfig) -> NDArray[np.int64]:
    """What the time depends on, in the order of Sizes in fpga/card/cpp/twin/hotline.cpp."""
    names = ("lanes", "words", "banks", "sets", "queue", "waves", "frames", "frame_beats", "row_slots",
             "embedding_beats", "batches", "domain_bits", "positions", "program_beats", "input_beats", "row_read_beats",
             "output_beats")
    return np.array([*twin.frame(HOTLINE, config), *(getattr(config, name) for name in names),
                     HOTLINE.value("finished").word], np.int64)


class Prepared(NamedTuple):
    """A run before it begins. jobs: (instructions, JOB and two more); beats: what is known of all samples' beats, in
    the order of SampleBeats in hotline_logger.h; totals: of the block's counters, those of TIMED at `places` still to
    come."""

    jobs: NDArray[np.int64]
    beats: tuple[NDArray, ...]
    totals: NDArray[np.uint64]
    places: NDArray[np.int64]


class Values:
    """What a core computes, with what stays in it from run to run."""

    def __init__(self, config: HotlineConfig):
        names = ("words", "positions", "banks", "sets", "frame_beats", "row_slots", "embedding_beats", "policy",
                 "insert_log2")
        self._core = Hotline(**{name: getattr(config, name) for name in names})
        self._plan: Plan | None = None
        self._batch: MiniBatch | None = None        # the gathered one that was dealt last

    def prepare(self, memory: Memory, gradients: NDArray[np.uint32]) -> Prepared:
        """All that does not depend on time. Raises ValueError: the program would end in an error, in one sentence; then
        nothing has changed."""
        core, plans = self._core, list[Plan]()
        image, counts = core.image.copy(), core.counts.copy()
        images = np.zeros(len(memory.mailbox), np.uint32)       # as SAVE writes them
        try:
            result = core.run(Memory(memory.program, memory.inputs, images, memory.rows, memory.hot,
                                     memory.gradients_beats), planned=plans.append)
            twin.check(HOTLINE, result)
        except ValueError:
            core.image[:], core.counts[:] = image, counts
            raise
        items = twin.fields(HOTLINE, memory.program.reshape(-1, WORDS))
        self._memory, self._gradients, self._images = memory, gradients, images
        self._saves = iter(items["out"][items["opcode"] == HOTLINE.instruction("SAVE").opcode].tolist())
        self._plans = iter([plan for plan in plans if plan.registers])
        self._plan, self._number = None, 0
        self._waiting: tuple[deque[Portion], ...] = ()
        known = {name: value for name, value in result.counters.items() if name not in TIMED}
        return Prepared(self._jobs(items, plans), self._beats(plans), *twin.totals(HOTLINE, known, TIMED))

    def happens(self, event: int, hot: Callable[[int], NDArray[np.uint32]]) -> None:
        """Something that changes the card's memory: see hotline.cpp. hot: so many words of hot rows, in the order
        of samples and positions, as the mini-batch that is dealt has read them. Raises ValueError: the run would end
        in an error."""
        if event == LATE:
            raise ValueError("the GPU takes longer than the timeout, or claims more mini-batches than were dealt")
        if event == SAVED:
            at, size = next(self._saves) * self._core.words, self._core.image.size
            self._memory.mailbox[at:at + size] = self._images[at:at + size]
        elif event == UPDATED:
            assert self._plan is not None and self._batch is not None
            item, words = self._plan.item, self._core.words
            at = self._batch.number % item["mailbox_slots"] * item["gradients_pitch"] * words
            self._core.update(self._plan, self._memory, self._batch, self._gradients[at:at + self._batch.updates.size])
        else:
            self._deal(event, hot)

    def _deal(self, kind: int, hot: Callable[[int], NDArray[np.uint32]]) -> None:
        if self._plan is None or not any(self._waiting):
            self._plan = next(self._plans)
            self._waiting = tuple(deque(portions) for portions in self._plan.waiting)
        item, portion, read = self._plan.item, self._waiting[kind].popleft(), None
        if kind == GATHERED and item["pooled"]:
            shape = len(portion.samples), item["indices"], self._core.words << item["row_beats_log2"]
            read = hot(int(np.prod(shape))).reshape(shape)
        batch = self._core.deal(self._plan, self._memory, kind, portion, self._number, read)
        self._number += 1
        if kind == GATHERED:
            self._batch = batch

    def _jobs(self, items: dict[str, NDArray[np.int64]], plans: list[Plan]) -> NDArray[np.int64]:
        vectors, first = np.zeros_like(items["opcode"]), np.zeros_like(items["opcode"])
        at = 0
        dealt = iter(plans)
        for number in np.flatnonzero(np.isin(items["opcode"], SAMPLES)):
            plan = next(dealt)
            vectors[number] = sum(register.join == JOIN.BEGIN for register in plan.registers) * items["pooled"][number]
            first[number] = at
            at += items["count"][number] * items["sample_beats"][number]
        return np.ascontiguousarray(np.stack([*(items[name] for name in JOB), vectors, first], axis=1))

    def _beats(self, plans: list[Plan]) -> tuple[NDArray[Any], ...]:
        if not plans:
            kinds = np.uint8, np.uint8, np.uint64, np.int64, np.uint32, np.uint32
            return tuple(np.zeros((0, self._core.words), kind) for kind in kinds)
        parts = [self._beats_of(plan) for plan in plans]
        return tuple(np.ascontiguousarray(np.concatenate(each)) for each in zip(*parts, strict=True))

    def _beats_of(self, plan: Plan) -> tuple[NDArray[Any], ...]:
        """Of the beats of a Plan's samples: (beats, words) banks, (beats,) whether any word is looked up and a mask of
        the cold ones, (beats, words) rows' numbers, places, words as translated."""
        words, (count, width) = self._core.words, plan.samples.shape
        indices = plan.looked.shape[1]

        def wide(values: NDArray[Any], dtype: Any, filled: int = 0) -> NDArray[Any]:
            out = np.full((count, width), filled, dtype)
            out[:, :indices] = values
            return out.reshape(-1, words)

        banks = np.full(plan.looked.shape, NOWHERE, np.uint8)
        banks[plan.looked] = self._core.banks_of(plan.rows[plan.looked])
        cold = (wide(plan.cold, np.uint64) << np.arange(words, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        asked = np.asarray(wide(plan.looked, np.uint8).max(axis=1))
        return (wide(banks, np.uint8, NOWHERE), asked, np.asarray(cold),
                wide(plan.rows, np.int64), wide(plan.places, np.uint32), plan.samples.reshape(-1, words))
