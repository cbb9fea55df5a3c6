"""Amaranth layouts read off a kernel's description: what decoders and the control slave declare."""

from amaranth.lib import data

from hw.isa import WORD_BITS, Kernel


def instruction_layout(kernel: Kernel) -> data.FlexibleLayout:
    """All fields of an instruction at their places in its words, word 0 lowest."""
    return data.FlexibleLayout(kernel.words * WORD_BITS,
                               {field.name: data.Field(field.bits, field.offset) for field in kernel.fields})


def arguments_layout(kernel: Kernel) -> data.StructLayout:
    """The arguments in order, pointers of 64 bits and scalars of 32."""
    return data.StructLayout({argument.name: argument.bits for argument in kernel.arguments})


def counters_layout(kernel: Kernel) -> data.StructLayout:
    """The counters of the result block in order, as they lie in it."""
    return data.StructLayout({value.name: value.bits for value in kernel.counters})
