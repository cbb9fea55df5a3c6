"""What a click log says of its tables: heat of rows, lengths of bags, what comes together.    Source: SCRec §III.B"""

from gen.data.profiling.co_access import together
from gen.data.profiling.stream import merge, profile

__all__ = ["merge", "profile", "together"]
