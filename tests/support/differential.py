"""A core beside its twin, where it has one, and its oracle: all say the same of programs that no compiler writes.

A program is allowed or has one mistake, so the place of its first fault is the only one. What a core adds is how its
programs are drawn (`Draw`) and how it is started and judged (a FaultyBench); `Differential` brings them together.
"""

import os
from abc import abstractmethod
from functools import cache

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, Faults
from fpga.card.model import build
from gen.rtl.cores import CORES
from gen.rtl.headers import KERNELS
from tests.support.faulty import CHANNELS
from tests.support.program_mutator import ProgramMutator


@cache
def _model(core, config):
    return build(CORES[core].unit(config), f"card_{core}")


def opened(kind, core, config, **options):
    """A card with the core of that name, "sim", or its twin. The core is converted once, however many are opened."""
    if kind == "twin":
        return card.open(kind, core=core, preset=config, **options)
    return card.open(kind, core=_model(core, config), kernel=KERNELS[core], **options)


class Draw:
    """Draws programs of a core, and mistakes.

    A run has `words`, a row for each instruction, and `mistake`, what is wrong with it in words. orders:
    mistakes in the order of instructions.
    """

    orders: tuple[str, ...] = ("missing", "twice", "last")

    def __init__(self, kernel, random):
        self.kernel, self.r, self.mutator = kernel, random, ProgramMutator(kernel)

    @abstractmethod
    def draw(self, wrong=False):
        """A run; wrong: with one mistake."""

    def one(self, values):
        return values[int(self.r.integers(len(values)))]

    def upto(self, most, least=0):
        """A whole number, often one of the ends."""
        return int(self.one((least, most, self.r.integers(least, most + 1))))

    # One mistake. Some of them are none: a value that is allowed.

    def spoil(self, run, *kinds):
        """One mistake of these kinds, methods that are given the run and the number of an instruction."""
        number = int(self.r.integers(len(run.words)))
        name = self.kernel.opcodes[int(run.words[number, 0]) & 0xFF]
        run.mistake = f"{name} {number}: {self.one(kinds)(run, number)}"

    def put(self, run, number, field, value):
        self.mutator.set(run.words[number], field, value)
        return f"{field} = {value}"

    def edge(self, run, number):
        """A field at the end of what is allowed, or behind it."""
        opcode = int(run.words[number, 0]) & 0xFF
        names = [item.name for item in self.kernel.fields if opcode in self.kernel.uses(item)]
        field = self.one(names)
        return self.put(run, number, field, self.one(self.mutator.edges(field)))

    def reserved(self, run, number):
        word = self.one((0, 9))
        bits = [bit for bit in range(32) if self.kernel.reserved(word) >> bit & 1]
        if not bits:
            return "none"
        bit = self.one(bits)
        run.words[number, word] |= np.uint32(1 << bit)
        return f"bit {bit} of word {word}"

    def order(self, run, number):
        """An instruction that is missing, there twice or too late."""
        every, what = np.arange(len(run.words)), self.one(self.orders)
        if what == "missing" and len(every) == 1:       # a program has an instruction
            return "none"
        run.words = run.words[{"missing": np.delete(every, number), "twice": np.insert(every, number, number),
                               "last": np.append(np.delete(every, number), number)}[what]]
        return what


class Differential:
    """programs: a Draw; memory: of the cards. A core's own has `bench(kind)`, a FaultyBench of the core or of its twin.
    place: the words of the result block that say how a run ended and where; twins: whether there is a twin. failed: the
    run of the last trial that found a difference."""

    place: tuple[str, ...] = ("code", "instruction", "detail")
    twins = True

    def __init__(self, programs, memory="ideal"):
        self.programs, self.memory = programs, memory
        self.begin()

    @abstractmethod
    def bench(self, kind):
        """A card with the core, kind "sim", or with its twin."""

    def begin(self):
        """Opens the cards."""
        self.cards = [self.bench(kind) for kind in (("sim", "twin") if self.twins else ("sim",))]
        self.sim, self.twin = self.cards[0], self.cards[1] if self.twins else None
        self.again()

    @abstractmethod
    def again(self):
        """What stays in the cores and in memory from run to run: anew, on all."""

    def ready(self, run):
        """Before a program: what it needs of those before it is the same on all."""

    def same(self, run, code):
        """After a program with a mistake, or one that ended in a fault: all hold the same again."""
        self.again()

    def settle(self, run, code):
        """A twin has not run what ended in a fault; with DDR4 its memory is then at another time, so it begins anew."""
        if code and self.twin and self.memory == "ddr4":
            self.close()
            self.begin()
        else:
            self.same(run, code)

    def trial(self, wrong=False, stalls=False):
        """Draws a program and compares. Returns the code that it ended with."""
        run = self.programs.draw(wrong)
        self.ready(run)
        faults = Faults(seed=int(self.programs.r.integers(1, 1 << 30)), stalls={
            channel: float(self.programs.r.uniform(0, 0.8)) for channel in CHANNELS} if stalls else {})
        for bench in self.cards:
            bench.card.set_faults(faults)
        try:
            code = self.compare(run)
        except Exception as error:
            error.add_note(f"{run.mistake or 'no mistake'}, {faults}")
            self.failed = run
            raise
        for bench in self.cards:
            bench.card.set_faults(Faults())
        if code or run.mistake:
            self.settle(run, code)
        return code

    def compare(self, run):
        """Carries a program out on all; the code that it ended with, which is the same."""
        for bench in self.cards:
            bench.card.clear()
        self.sim.start(run)
        told, left = self.sim.finish(run)
        if told["code"]:
            result = self.sim.judge(run, told, left, self.place)
            if self.twin:
                name = next(code.name for code in self.sim.kernel.codes if code.code == result.code)
                with pytest.raises(CardError, match=f"instruction {result.instruction} would end the run in {name}$"):
                    self.twin.start(run)
                self.twin.busy = False
            return result.code
        self.sim.compare(run, told, left)
        if self.twin:
            self.twin.start(run)
            other, same = self.twin.finish(run)
            assert other == told, {name: (other[name], told[name]) for name in told if other[name] != told[name]}
            self.twin.equal(same, left)
            # The run's cycles are in `told`; the card counts those between runs as well.
            one, two = ({**bench.card.counters(), "cycles": 0} for bench in self.cards)
            assert two == one, {name: (two[name], one[name]) for name in one if two[name] != one[name]}
        return 0

    def close(self):
        for bench in self.cards:
            bench.card.close()


def try_some(trials, wrong, count):
    """So many programs, every other one with stalls. Where they are many: of those with a mistake, codes of several
    kinds; of the others most end well."""
    ends = [trials.trial(wrong, stalls=bool(number % 2))
            for number in range(20 * count if os.environ.get("HOTRAIL_REGRESS") else count)]
    if len(ends) < 100:
        return
    if wrong:
        assert len(set(ends)) > 2, ends
    else:
        assert sum(map(bool, ends)) < len(ends) / 3, ends
