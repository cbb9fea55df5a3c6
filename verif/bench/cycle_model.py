"""The cores' cycle model, which is their twins' C++: parts of it in a library that the bench of a unit steps."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gen.rtl.cpp import library
from gen.rtl.verilator import CACHE

CPP = Path(__file__).resolve().parents[2] / "fpga" / "card" / "cpp"


@cache
def load(source: Path) -> ctypes.CDLL:
    """The library of a C++ file that hands parts of the model out; functions named *_new return a handle."""
    files = sorted([*CPP.glob("*.h"), *CPP.glob("twin/*.h"), Path(__file__).with_suffix(".h")])
    path, *_ = library(f"{source.parent.name}-{source.stem}", source, files, ("-std=c++17", "-O2"), cache=CACHE)
    return ctypes.CDLL(str(path))


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Of its first number; the array must outlive the call that it is for."""
    return ctypes.c_void_p(array.ctypes.data)


class Part:
    """A part of the model behind its handle; arguments: arrays and integers of 64 bits. name: of its functions in the
    C++ file `source`: *_new and those that `_call` names. What its registers show in the present
    cycle are its attributes, integers by the names in `shows`; `_call` is the clock edge that ends it."""

    source: Path
    name: str
    shows: tuple[str, ...]

    def __init__(self, *arguments: Any) -> None:
        self._library = load(self.source)
        make = getattr(self._library, f"{self.name}_new")
        make.restype = ctypes.c_void_p
        self._part = ctypes.c_void_p(make(*(
            address(value) if isinstance(value, np.ndarray) else ctypes.c_int64(value) for value in arguments)))
        self._values = np.zeros(len(self.shows), np.int64)
        self._show()

    def __del__(self) -> None:
        self._library.part_delete(self._part)

    def __getattr__(self, name: str) -> int:
        if name not in self.shows:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return self._shown[name]

    def _call(self, function: str, *arguments: Any) -> int:
        """Arguments: arrays or None, flags as 32 bits, ctypes as they are."""
        returned = getattr(self._library, f"{self.name}_{function}")(self._part, *(
            address(value) if isinstance(value, np.ndarray) else value for value in arguments))
        self._show()
        return returned

    def _show(self) -> None:
        self._library.part_shows(self._part, address(self._values))
        self._shown = dict(zip(self.shows, self._values.tolist(), strict=True))

    @property
    def request(self) -> tuple[int, int] | None:
        """(address, beats) that stands there, in beats."""
        return (self.address, self.beats) if self.asks else None
