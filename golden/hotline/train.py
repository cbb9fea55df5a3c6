"""What the Hotline core computes: a program carried out on plain memory, bit for bit.

LEARN     every index that is neither NONE nor pinned accesses the logger, in order (sample, position)
TRAIN     hot indices become 1 << 31 | number; samples without a cold one make popular mini-batches, the others
          gathered ones, which bring their cold rows; what the GPU returns: row = row + rate * gradient, each rounded
CLEAR, SAVE, LOAD     the logger's image

A gathered mini-batch has the rows as all gathered ones before it leave them; so neither contents nor rows depend on
time, only the order in which the two classes alternate does: it is given, or that in which frames fill. Where a
program has several faults, the result names the first in the program's order; the core may meet another one first, and
may have dispatched fewer mini-batches than the samples before it fill.

Source: Hotline thesis, 5.2, 6; EL-Rec, V.B
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from golden.fp import fp32
from golden.hotline import bank, randomizer, reducer
from golden.hotline.dispatch import GATHERED, POPULAR, sent
from golden.hotline.lookup import HOT_BIT, NONE
from golden.hotline.order import Portion, dispatch, merge
from golden.hotline.program import OPCODES, Arguments, Program, Sizes, decode
from hw.isa import HOTLINE

__all__ = ["GATHERED", "NONE", "POPULAR", "Hotline", "Memory", "MiniBatch", "Plan", "Result"]

BEGIN, ADD = reducer.BEGIN, reducer.ADD
OK, ABORTED, BOUNDS, INDEX = (HOTLINE.code(name) for name in ("OK", "ABORTED", "BOUNDS", "INDEX"))
ROWS = 3                # detail of BOUNDS
WORDS = HOTLINE.words
ENTRY = (1 << 17) - 1   # bits of an entry of the logger's image
COUNTERS = ("instructions", "samples", "accesses", "hits", "popular", "batches_popular", "batches_gathered",
            "batches_updated", "dma_wr", "gpu_rd", "v_mul", "v_add")

Words = NDArray[np.uint32]
Item = Mapping[str, int]        # an instruction's fields


@dataclass
class Memory:
    """The buffers, (n,) uint32 each, whole beats; those of the mailbox and the rows are changed in place.
    gradients_beats: of the buffer that the GPU writes, whose words come from the function `gpu`."""

    program: Words
    inputs: Words
    mailbox: Words
    rows: Words
    hot: Words = field(default_factory=lambda: np.zeros(0, np.uint32))
    gradients_beats: int = 0


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """A mini-batch as it lies in its GPU's mailbox, `number` the k of the run, `own` the j of the GPU. samples: (n,
    words of a sample); rows: (rows, words of a row), cold rows, or vectors if pooled, with `half` their (beats, words);
    numbers: of the samples in their instruction; places: beats of the cold rows in the rows' buffer, updates: what they
    are after the mini-batch, (rows, words of a row)."""

    number: int
    kind: int
    samples: Words
    rows: Words
    numbers: NDArray[np.int64]
    places: NDArray[np.int64]
    updates: Words
    gpu: int
    own: int


@dataclass(frozen=True)
class Result:
    """How a run ended. cold: cold indices, those whose row was read and those whose row was there already; batches: as
    dispatched; ready: behind those, by kind, what the samples before a fault fill as well."""

    code: int
    instruction: int
    sample: int
    position: int
    detail: int
    counters: dict[str, int]
    cold: int
    batches: tuple[MiniBatch, ...]
    ready: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A TRAIN before its mini-batches are dispatched. samples: (n, words of a sample), with hot rows' numbers; cold,
    places: (n, indices), which of them have no hot row, the rows' beats in the rows' buffer; waiting: portions by kind;
    registers: by position."""

    item: "Item"
    samples: Words
    cold: NDArray[np.bool_]
    places: NDArray[np.int64]
    waiting: tuple[list[Portion], list[Portion]]
    registers: "tuple[Register, ...]"


class _Fault(Exception):
    def __init__(self, code: int, detail: int = 0, sample: int = 0, position: int = 0):
        super().__init__(code)
        self.code, self.detail, self.sample, self.position = code, detail, sample, position


class _Over(Exception):
    """The order of kinds ends here."""


@dataclass(frozen=True)
class Register:
    """An address register; one that was not written has no rows."""

    first: int = 0
    rows: int = 0
    base: int = 0
    pinned: int = 0
    join: int = 0


class Hotline:
    """A Hotline core with what stays in it from run to run: the logger.

    policy, insert_log2: of the logger, see golden.hotline.bank; sizes: as in the core's configuration, see
    golden.hotline.program.Sizes. image: (banks, sets, ways) uint32, an entry as in hw.hotline.records.image_layout.
    """

    def __init__(self, *, policy: str, insert_log2: int, **sizes: int):
        self.sizes, self.policy, self.insert_log2 = Sizes(**sizes), policy, insert_log2
        self.words, self.banks, self.sets = self.sizes.words, self.sizes.banks, self.sizes.sets
        self.bank_bits, self.set_bits = (self.banks - 1).bit_length(), (self.sets - 1).bit_length()
        self.image = np.zeros((self.banks, self.sets, bank.WAYS), np.uint32)
        self._begin()

    def _begin(self) -> None:
        """What a run begins with."""
        self.counts = np.zeros(self.banks, np.uint32)
        self.registers = [Register()] * self.sizes.positions
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._cold = 0
        self._batches: list[MiniBatch] = []
        self._kinds: Iterator[int] | None = None
        self._gpus: Iterator[int] = iter(())
        self._own = [0] * self.sizes.gpus
        self._gpu: Callable[[MiniBatch], Words] | None = None
        self._ready = (0, 0)

    def run(self, memory: Memory, kinds: Iterable[int] | None = None,
            gpu: Callable[[MiniBatch], Words] | None = None, count: int | None = None,
            gpus: Iterable[int] = ()) -> Result:
        """Carries out `count` instructions (default: all of the program) and says how that went.

        kinds: of the mini-batches as they are dispatched, of the whole run; None: in the order in which frames fill.
        With fewer than there are the run ends behind the last, with ABORTED. gpu: gradients of a gathered
        mini-batch's rows, (rows, words of a row) binary32; called for every mini-batch; without it they are zeros.
        gpus: which GPU each mini-batch goes to, those that are not named to the first.
        Raises ValueError: kinds that no order has.
        """
        program = memory.program.reshape(-1, WORDS).tolist()
        self._begin()
        self._kinds, self._gpu, self._gpus = None if kinds is None else iter(kinds), gpu, iter(gpus)
        program_of = Program(sizes=self.sizes, arguments=Arguments(
            len(memory.inputs) // self.words, len(memory.mailbox) // self.words, memory.gradients_beats,
            len(memory.hot) // self.words))
        for number, words in enumerate(program[:count]):
            refused = program_of.refused(words)
            if refused is not None:
                return self._result(refused[0], number, _Fault(*refused))
            try:
                self._carry_out(decode(words), memory, program_of)
            except _Fault as fault:
                return self._result(fault.code, number, fault)
            except _Over:
                return self._result(ABORTED, number)
            self._counters["instructions"] += 1
        return self._result(OK, 0)

    def _result(self, code: int, number: int, fault: _Fault | None = None) -> Result:
        place = (fault.sample, fault.position, fault.detail) if fault else (0, 0, 0)
        return Result(code, number, *place, dict(self._counters), self._cold, tuple(self._batches), self._ready)

    # Instructions.

    def _carry_out(self, item: Item, memory: Memory, program: Program) -> None:
        kind = OPCODES[item["opcode"]]
        self._ready = (0, 0)
        if kind == "S_WR":
            program.register(item)
            self.registers[item["position"]] = Register(
                item["first_high"] << 32 | item["first_low"], item["table_rows"], item["base"], item["pinned"],
                item["join"])
        elif kind == "CLEAR":
            self._put(np.zeros_like(self.image))
        elif kind == "LEARN":
            self._learn(item, memory)
        elif kind == "TRAIN":
            self._train(item, memory)
        elif kind == "SAVE":
            memory.mailbox[item["out"] * self.words:][:self.image.size] = self.image.swapaxes(0, 1).reshape(-1)
        else:
            image = memory.inputs[item["source"] * self.words:][:self.image.size]
            self._put(image.reshape(self.sets, self.banks, bank.WAYS).swapaxes(0, 1) & ENTRY)

    def _put(self, image: NDArray) -> None:
        self.image[:], self.counts[:] = image, 0

    def _samples(self, item: Item, memory: Memory) -> tuple[Words, NDArray[np.bool_], NDArray, _Fault | None]:
        """Samples up to the first fault, which of their indices are looked up, and the rows' numbers."""
        count, indices = item["count"], item["indices"]
        samples = memory.inputs[item["source"] * self.words:][:count * item["sample_beats"] * self.words]
        samples = samples.reshape(count, -1).copy()
        registers = self.registers[:indices]
        index = samples[:, :indices].astype(np.int64)
        looked = (index != NONE) & ~np.array([bool(register.pinned) for register in registers])
        wrong = looked & (index >= np.array([register.rows for register in registers]))
        fault = None
        if wrong.any():
            count, position = divmod(int(np.argmax(wrong)), indices)
            fault = _Fault(INDEX, int(index[count, position]), count, position)
        rows = index + np.array([register.first for register in registers])
        return samples[:count], looked[:count], rows[:count], fault

    def _places(self, rows: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Bank, set and identifier of rows."""
        word = randomizer.permute(rows, self.sizes.domain_bits)
        return (word & (self.banks - 1), word >> self.bank_bits & (self.sets - 1),
                word >> self.bank_bits + self.set_bits)

    def _learn(self, item: Item, memory: Memory) -> None:
        samples, looked, rows, fault = self._samples(item, memory)
        banks, sets, ids = self._places(rows[looked])
        hit, _ = bank.run(self.image, self.counts, banks, sets, ids, self.insert_log2, True, self.policy)
        self._counters["samples"] += len(samples)
        self._counters["accesses"] += len(banks)
        self._counters["hits"] += int(np.count_nonzero(hit))
        if fault is not None:
            raise fault

    def look_up(self, rows: NDArray) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which rows are hot, and their numbers: bank lowest, then set, then way."""
        banks, sets, ids = self._places(np.asarray(rows, np.int64))
        ways = self.image[banks, sets].astype(np.int64)
        same = (ways & bank.VALID != 0) & (ways & (1 << bank.ID_BITS) - 1 == ids[..., None])
        way = np.argmax(same, axis=-1)
        return same.any(-1), banks | sets << self.bank_bits | way << self.bank_bits + self.set_bits

    def _train(self, item: Item, memory: Memory) -> None:
        samples, looked, rows, fault = self._samples(item, memory)
        hit, number = np.zeros(looked.shape, bool), np.zeros(looked.shape, np.int64)
        hit[looked], number[looked] = self.look_up(rows[looked])
        cold = looked & ~hit
        index = samples[:, :item["indices"]].astype(np.int64)
        samples[:, :item["indices"]] = np.where(hit, 1 << HOT_BIT | number, index)
        self._counters["samples"] += len(samples)
        self._counters["accesses"] += int(looked.sum())
        self._counters["hits"] += int(hit.sum())
        self._counters["popular"] += int((~cold.any(axis=1)).sum())
        row_beats = 1 << item["row_beats_log2"]
        place = np.array([register.base for register in self.registers[:item["indices"]]]) + index * row_beats
        outside = cold & ((place + row_beats) * self.words > len(memory.rows))
        popular, gathered = dispatch(cold, rows, item["batch"], slots=self.sizes.slots(item["row_beats_log2"]),
                                 room=item["indices"])
        if fault is not None:   # what is not full waits for samples that never come
            popular, gathered = ([portion for portion in part if portion.ends >= 0] for part in (popular, gathered))
        if outside.any():       # a row that the rows' buffer does not have is met by the gathering alone
            sample = int(np.argmax(outside.any(axis=1)))
            fault = _Fault(BOUNDS, ROWS)
            gathered = [portion for portion in gathered if portion.samples[-1] < sample]
        self._ready = (len(popular), len(gathered))
        plan = Plan(item, samples, cold, place, (popular, gathered), tuple(self.registers[:item["indices"]]))
        self._deal(plan, memory, fault)
        if fault is not None:
            raise fault

    def _deal(self, plan: Plan, memory: Memory, fault: _Fault | None) -> None:
        """Dispatches a TRAIN's mini-batches, each with what the GPU makes of it."""
        popular, gathered = plan.waiting
        order = merge(popular, gathered) if self._kinds is None else self._given(popular, gathered, fault)
        waiting = (iter(popular), iter(gathered))
        for kind in order:
            batch = self._batch(plan, memory, kind, next(waiting[kind]), len(self._batches))
            self._batches.append(batch)
            gradients = None if self._gpu is None else self._gpu(batch)
            if kind == GATHERED:
                if gradients is None:
                    gradients = np.zeros(batch.updates.shape, np.uint32)
                self._update(plan, memory, batch, fp32.bits(gradients))
            self._ready = (self._ready[0] - (kind == POPULAR), self._ready[1] - (kind == GATHERED))

    def _given(self, popular: list[Portion], gathered: list[Portion], fault: _Fault | None) -> Iterator[int]:
        """The kinds of this instruction's mini-batches as they were dispatched."""
        left = [len(popular), len(gathered)]
        assert self._kinds is not None
        while any(left):
            kind = next(self._kinds, None)
            if kind is None:
                if fault is not None:
                    return
                raise _Over
            if not left[kind]:
                raise ValueError(f"mini-batch {len(self._batches)} cannot be of kind {kind}: there are no more")
            left[kind] -= 1
            yield kind

    def _batch(self, plan: Plan, memory: Memory, kind: int, portion: Portion, number: int) -> MiniBatch:
        """A mini-batch, the run's `number`, into the mailbox. Its `updates` are the rows as they are."""
        item = plan.item
        row_beats, words = 1 << item["row_beats_log2"], self.words
        own, mine = plan.samples[portion.samples], plan.cold[portion.samples]
        own[:, :item["indices"]][mine] = portion.ordinals
        places = np.zeros(len(portion.keys), np.int64)
        places[portion.ordinals] = plan.places[portion.samples][mine]
        rows = memory.rows.reshape(-1, words)[places[:, None] + np.arange(row_beats)]
        rows = rows.reshape(len(places), row_beats * words)
        rest = self._pool(plan, memory, own, mine, rows) if kind == GATHERED and item["pooled"] else rows
        if item["half"]:
            rest = sent(rest.reshape(-1, words), 1)
        gpu = next(self._gpus, 0)
        batch = MiniBatch(number, kind, own, rest, portion.samples, places, rows.copy(), gpu, self._own[gpu])
        self._own[gpu] += 1
        header = np.zeros(words, np.uint32)
        header[:4] = batch.number, kind, len(own), len(places)
        whole = np.concatenate([header, own.reshape(-1), rest.reshape(-1)])
        slot = gpu * item["mailbox_slots"] + batch.own % item["mailbox_slots"]
        memory.mailbox[slot * item["mailbox_pitch"] * words:][:len(whole)] = whole
        self._counters[("batches_popular", "batches_gathered")[kind]] += 1
        self._cold += len(portion.ordinals)
        return batch

    def _update(self, plan: Plan, memory: Memory, batch: MiniBatch, gradients: Words) -> None:
        """What the GPU makes of a gathered mini-batch, into the rows and into `updates`. gradients: (rows, words of a
        row), bit patterns."""
        item, rows = plan.item, len(batch.places)
        row_beats = 1 << item["row_beats_log2"]
        batch.updates[:] = reducer.update(batch.updates, item["rate"], gradients.reshape(batch.updates.shape))
        at = batch.places[:, None] + np.arange(row_beats)
        memory.rows.reshape(-1, self.words)[at] = batch.updates.reshape(rows, row_beats, self.words)
        self._counters["dma_wr"] += rows
        self._counters["v_mul"] += rows * row_beats
        self._counters["v_add"] += rows * row_beats
        self._counters["batches_updated"] += 1

    def _pool(self, plan: Plan, memory: Memory, samples: Words, cold: NDArray[np.bool_], rows: Words) -> Words:
        """A vector for each sample and position that begins one: the rows of the positions behind it added to it, or
        multiplied with it; NONE is +0 where it begins one and left out elsewhere, a pinned row +0."""
        row_beats = 1 << plan.item["row_beats_log2"]
        hot = memory.hot.reshape(-1, row_beats * self.words)
        vectors: list[Words] = []
        for position, register in enumerate(plan.registers):
            index = samples[:, position]
            terms = np.zeros((len(samples), row_beats * self.words), np.uint32)
            mine = cold[:, position]
            there = ~mine & (index != NONE) & (not register.pinned)
            terms[mine] = rows[index[mine]]
            terms[there] = hot[index[there] & (1 << HOT_BIT) - 1]
            self._counters["gpu_rd"] += int(there.sum())
            if register.join == BEGIN:
                vectors.append(reducer.step(terms, terms, BEGIN))
                continue
            known = (mine | there)[:, None]
            self._counters["v_add" if register.join == ADD else "v_mul"] += int(known.sum()) * row_beats
            vectors[-1] = np.where(known, reducer.step(vectors[-1], terms, register.join), vectors[-1])
        return np.stack(vectors, axis=1).reshape(-1, row_beats * self.words)
