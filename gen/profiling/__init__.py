"""What a click log says of its tables: heat of rows, lengths of bags, what comes together.    Source: SCRec §III.B"""

from gen.profiling.stream import merge, profile
from gen.profiling.together import together

__all__ = ["merge", "profile", "together"]
