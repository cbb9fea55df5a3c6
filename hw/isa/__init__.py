"""What software and the cores agree on: arguments, instructions, result blocks and error codes, described once.

The decoders, the control slave, the C and Python headers, the compilers and the reference pages are read off these
objects; none of them writes a number down again. Plain data, standard library only.
"""

from hw.isa.emb import EMB, LONGEST_BAG
from hw.isa.hotline import HOTLINE
from hw.isa.kernel import OK, WORD_BITS, Argument, Code, Field, Instruction, Kernel, Register, Use, Value
from hw.isa.mlp import MLP

__all__ = ["EMB", "HOTLINE", "LONGEST_BAG", "MLP", "OK", "WORD_BITS", "Argument", "Code", "Field", "Instruction",
           "Kernel", "Register", "Use", "Value"]
