"""Programs with one thing in them that is wrong: what the tests of the cores share.

A change takes a run, whose `words` are a row for each instruction, and spoils it.
"""



class ProgramMutator:
    """Changes of programs of the core `kernel`."""

    def __init__(self, kernel):
        self.kernel = kernel

    def value_of(self, words, name):
        """A field of an instruction."""
        item = self.kernel.field(name)
        return int(words[item.word]) >> item.low & (1 << item.bits) - 1

    def edges(self, name):
        """Values of a field at what the kernel's description allows, and just outside, as far as it can hold them."""
        item = self.kernel.field(name)
        found = {0, 1, item.minimum, item.highest, item.highest + 1, (1 << item.bits) - 1}
        return sorted(value for value in found if value < 1 << item.bits)

    def set(self, words, name, value):
        """Gives a field of an instruction a value."""
        item = self.kernel.field(name)
        kept = 0xFFFFFFFF & ~((1 << item.bits) - 1 << item.low)
        words[item.word] = int(words[item.word]) & kept | value << item.low

    def garble(self, draw, words):
        """Puts anything into the fields that an instruction ignores. draw: a generator."""
        opcode = self.value_of(words, "opcode")
        own = {item.name: self.value_of(words, item.name) for item in self.kernel.fields
               if item.name == "opcode" or opcode in self.kernel.uses(item)}
        for item in self.kernel.fields:
            if item.name not in own and draw.integers(2):
                self.set(words, item.name, int(draw.integers(1 << item.bits)))
        for name, value in own.items():     # it may lie where another instruction has another field
            self.set(words, name, value)
        return words

    def last_of(self, run, name, **fields):
        """The number of the last instruction of that name whose fields are as given."""
        return [n for n, words in enumerate(run.words) if words[0] & 0xFF == self.kernel.instruction(name).opcode
                and all(self.value_of(words, key) == value for key, value in fields.items())][-1]

    def put(self, name, field, value, **fields):
        """Gives a field of the last such instruction a value, or one made of what it has."""
        def change(run):
            words = run.words[self.last_of(run, name, **fields)]
            self.set(words, field, value(self.value_of(words, field)) if callable(value) else value)
        return change


def shorter(arena, beats=1):
    """The buffer ends before what the program uses of it."""
    def change(run):
        if hasattr(run, f"{arena}_beats"):
            setattr(run, f"{arena}_beats", getattr(run, f"{arena}_beats") - beats)
        else:
            setattr(run, arena, getattr(run, arena)[:-beats])
    return change
