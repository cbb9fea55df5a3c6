"""What every instruction has to keep to by itself, read off the kernel's description."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value

from hw.isa import WORD_BITS, Kernel


class Decoder:
    """Which instruction it is, and whether it is refused for its opcode, a reserved bit or a value.

    Adds itself to `m`, as a part of a program's checks: nothing of it is wide enough to be placed by itself.

    Parameters  m: the module; kernel: its opcodes follow one another; item: the instruction, of
                hw.layouts.instruction_layout; more: (what must not be, in which instructions, by their places in
                `kernel.instructions`) each, besides what the fields allow; words: those with reserved bits
    Members     kind: a bit for each instruction, a cycle after it is there; refused: two cycles after
    """

    def __init__(self, m: Module, kernel: Kernel, item, more: Sequence[tuple[Value, set[int]]], *,
                 words: Sequence[int] = (0,)):
        self.kind = kind = Signal(len(kernel.instructions), name="kind", reset_less=True)
        opcodes = [instruction.opcode for instruction in kernel.instructions]
        assert kernel.fields[0].name == "opcode" and not kernel.fields[0].offset
        assert sorted(opcodes) == list(range(min(opcodes), max(opcodes) + 1))
        wrong: list[tuple[Value, set[int]]] = []        # what must not be, and of which kinds
        for field in kernel.fields:
            users = {at for at, instruction in enumerate(kernel.instructions)
                     if field.name in {use.field for use in instruction.uses}}
            value = item[field.name]
            if field.minimum:
                assert field.minimum == 1
                wrong.append((value == 0, users))
            if field.highest != (1 << field.bits) - 1:
                above = field.highest + 1
                # By the high bits alone where that will do: no chain of carries.
                wrong.append((value >> above.bit_length() - 1 != 0 if not above & above - 1 else value >= above, users))
        wrong += more
        flags = Signal(len(wrong), name="flags", reset_less=True)
        unknown = Signal(name="unknown", reset_less=True)
        reserved = Signal(name="reserved", reset_less=True)
        self.refused = Signal(name="refused", reset_less=True)
        bits = Cat(item.as_value()[WORD_BITS * word:WORD_BITS * (word + 1)] & kernel.reserved(word) for word in words)
        m.d.sync += [
            kind.eq(Cat(item.opcode == opcode for opcode in opcodes)),
            unknown.eq((item.opcode < min(opcodes)) | (item.opcode > max(opcodes))),
            reserved.eq(bits.any()),
            *(flags[at].eq(value) for at, (value, _) in enumerate(wrong)),
            self.refused.eq(unknown | reserved | Cat(
                flags[at] & Cat(kind[user] for user in sorted(users)).any()
                for at, (_, users) in enumerate(wrong)).any()),
        ]
