"""Programs with one thing in them that is wrong: what the tests of the cores share.

A change takes a run, whose `words` are a row for each instruction, and spoils it.
"""

import numpy as np


class ProgramMutator:
    """Changes of programs of the core `kernel`."""

    def __init__(self, kernel):
        self.kernel = kernel

    def value_of(self, words, name):
        """A field of an instruction."""
        item = self.kernel.field(name)
        return int(words[item.word]) >> item.low & (1 << item.bits) - 1

    def last_of(self, run, name, **fields):
        """The number of the last instruction of that name whose fields are as given."""
        return [n for n, words in enumerate(run.words) if words[0] & 0xFF == self.kernel.instruction(name).opcode
                and all(self.value_of(words, key) == value for key, value in fields.items())][-1]

    def put(self, name, field, value, **fields):
        """Gives a field of the last such instruction a value, or one made of what it has."""
        def change(run):
            words, item = run.words[self.last_of(run, name, **fields)], self.kernel.field(field)
            new = value(self.value_of(words, field)) if callable(value) else value
            kept = 0xFFFFFFFF & ~((1 << item.bits) - 1 << item.low)
            words[item.word] = int(words[item.word]) & kept | new << item.low
        return change

    def bit(self, name, word, number):
        """Sets a bit of the last such instruction."""
        def change(run):
            run.words[self.last_of(run, name), word] |= np.uint32(1 << number)
        return change


def every(*changes):
    def change(run):
        for one in changes:
            one(run)
    return change


def shorter(arena, beats=1):
    """The buffer ends before what the program uses of it."""
    def change(run):
        if hasattr(run, f"{arena}_beats"):
            setattr(run, f"{arena}_beats", getattr(run, f"{arena}_beats") - beats)
        else:
            setattr(run, arena, getattr(run, arena)[:-beats])
    return change


def longer(run):
    """The program says one more instruction than was written: zeros follow."""
    run.words = np.concatenate([run.words, np.zeros((1, run.words.shape[1]), np.uint32)])
