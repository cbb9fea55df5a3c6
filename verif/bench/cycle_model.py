"""The cores' cycle model, which is their twins' C++: parts of it in a library that the bench of a unit steps."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from gen.rtl.cpp import library
from gen.rtl.verilator import CACHE

CPP = Path(__file__).resolve().parents[2] / "fpga" / "card" / "cpp"


@cache
def load(source: Path) -> ctypes.CDLL:
    """The library of a C++ file that hands parts of the model out; functions named *_new return a handle."""
    files = sorted([*CPP.glob("*.h"), *CPP.glob("twin/*.h")])
    path, *_ = library(f"{source.parent.name}-{source.stem}", source, files, ("-std=c++17", "-O2"), cache=CACHE)
    return ctypes.CDLL(str(path))


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Of its first number; the array must outlive the call that it is for."""
    return ctypes.c_void_p(array.ctypes.data)
