"""Tensors that torch.save has written, without torch, and without running what the file says.

The file is a zip archive: a pickle that names tensors, and the bytes of each, not packed. The pickle is followed here
operation by operation: it makes tensors, parameters, numbers, texts and containers of them. What else
torch.load(weights_only=True) takes, as a device or a quantised tensor, becomes `Unread`, and any other name is refused.
A tensor is a part of its stored numbers, and has no more numbers than these; the bytes are mapped. bfloat16, which
NumPy does not have, is widened to float32, which is exact.
"""

import collections
import math
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.bounds import COLUMNS, archive, readable

_STORAGES = {"LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1",
             "BoolStorage": "?", "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2",
             "BFloat16Storage": "u2"}
# Of tensors without a storage of their own kind, which name their numbers' format beside untyped bytes.
_FORMATS = {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "int8": "i1", "int16": "i2", "int32": "i4",
            "int64": "i8", "bool": "?", "float16": "f2", "float32": "f4", "float64": "f8"}
_CALLS = {("torch._utils", "_rebuild_tensor"): "tensor", ("torch._utils", "_rebuild_tensor_v2"): "tensor",
          ("torch._utils", "_rebuild_tensor_v3"): "untyped", ("torch._utils", "_rebuild_parameter"): "parameter",
          ("torch._utils", "_rebuild_parameter_with_state"): "parameter",
          ("torch._tensor", "_rebuild_from_type_v2"): "typed", ("collections", "OrderedDict"): "dictionary"}
# What is made of these is no array; torch's own loader of weights takes them too.
_UNREAD = {("collections", "Counter"), ("_codecs", "encode"), ("builtins", "set"), ("builtins", "complex"),
           ("builtins", "bytearray"), ("__builtin__", "set"), ("__builtin__", "complex"), ("__builtin__", "bytearray"),
           ("torch", "Size"), ("torch", "Tensor"), ("torch", "device"), ("torch.nn.parameter", "Parameter"),
           ("torch.serialization", "_get_layout")}
PICKLE_BYTES = 1 << 20      # of names and shapes; more is no file of tensors
AXES = 16
_MARK = object()


def read(path: str | Path) -> Any:
    """What was saved: containers of arrays that cannot be written, mapped from the file.

    Raises      ValueError: no such file, one of before torch 1.6, anything in it but tensors of numbers, a tensor that
                leaves its bytes or repeats them
    """
    path = Path(path)
    with readable(path, "tensors"):
        try:
            with archive(path) as files, path.open("rb") as raw:
                members = {PurePosixPath(info.filename).parts[1:]: info for info in files.infolist()}
                if ("data.pkl",) not in members:
                    raise ValueError(f"{path} holds no data.pkl; torch.save writes one")
                info = members["data.pkl",]
                if info.file_size > PICKLE_BYTES:
                    raise ValueError(f"{path}: data.pkl is longer than {PICKLE_BYTES:,} bytes; tensors need less")
                order = _first(files, members["byteorder",]) if ("byteorder",) in members else b"little"
                return _Made(path, raw, members, order == b"little").follow(files.read(info))
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is no file of torch.save since 1.6: {error}") from None


def _first(found: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with found.open(info) as file:
        return file.read(16)


@dataclass(frozen=True, eq=False)
class Unread:
    """What is saved beside tensors and is none, or a tensor that is no array of numbers. name: what makes it."""

    name: str


@dataclass(frozen=True, eq=False)
class _Name:
    """What the pickle calls by a name and may: a function or a kind of numbers. widens: bfloat16 to float32."""

    name: str
    call: str = ""
    dtype: np.dtype | None = None
    widens: bool = False


@dataclass(frozen=True, eq=False)
class _Storage:
    """The numbers of a member."""

    numbers: NDArray


@dataclass
class _Made:
    """What a pickle makes, by a stack and a memory of what was made before."""

    path: Path
    raw: IO[bytes]
    members: dict[tuple[str, ...], zipfile.ZipInfo]
    little: bool
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    storages: dict[tuple[str, str], _Storage] = field(default_factory=dict)

    def follow(self, data: bytes) -> Any:
        """Its last value."""
        argument: Any
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name == "STOP":
                break
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _STORES:
                self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
            elif name in _LOADS:
                self.stack.append(self.memo[argument])
            elif name == "GLOBAL":
                self.stack.append(self._named(*argument.split(" ", 1)))
            elif name not in ("PROTO", "FRAME"):
                action = getattr(self, f"_{name.lower()}", None)
                if action is None:
                    raise ValueError(f"its pickle has the operation {name}, which no tensor needs")
                action()
        return self.stack.pop()

    def _named(self, module: str, name: str) -> _Name:
        full, order = f"{module}.{name}", "<" if self.little else ">"
        if call := _CALLS.get((module, name)):
            return _Name(full, call)
        if module == "torch" and name in _STORAGES:
            return _Name(full, dtype=np.dtype(order + _STORAGES[name]), widens=name == "BFloat16Storage")
        if full == "torch.storage.UntypedStorage":
            return _Name(full, dtype=np.dtype("u1"))
        if module == "torch" and name in _FORMATS:
            return _Name(full, "unread", np.dtype(order + _FORMATS[name]))
        if (module, name) in _UNREAD or module == "torch._utils" and name.startswith("_rebuild_") or \
                module == "torch" and (name.endswith("Storage") or _IS_FORMAT.fullmatch(name)):
            return _Name(full, "unread")
        raise ValueError(f"{self.path} names {full}; only tensors of numbers are read: save these alone, as "
                         "torch.save(model.state_dict(), path) does, or torch.save(checkpoint[KEY], path)")

    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            if at == 0:
                raise ValueError("its pickle has no mark where one is needed")
            at -= 1
        items = self.stack[at + 1:]
        del self.stack[at:]
        return items

    def _stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("its pickle has a name that is no text")
        self.stack.append(self._named(module, name))

    def _tuple(self) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _tuple1(self) -> None:
        self._last(1)

    def _tuple2(self) -> None:
        self._last(2)

    def _tuple3(self) -> None:
        self._last(3)

    def _last(self, count: int) -> None:
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _append(self) -> None:
        self._grow([self.stack.pop()])

    def _appends(self) -> None:
        self._grow(self._since_mark())

    def _grow(self, more: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("its pickle appends to what is no list")
        self.stack[-1].extend(more)

    def _setitem(self) -> None:
        value = self.stack.pop()
        self._set([self.stack.pop(), value])

    def _setitems(self) -> None:
        self._set(self._since_mark())

    def _set(self, pairs: list[Any]) -> None:
        held = self.stack[-1]
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # A tuple within a tuple may be endless to hash.
            if not isinstance(held, dict) or not all(
                    type(part) in _KEYS for part in (key if type(key) is tuple else (key,))):
                raise ValueError("its pickle has a key that is no text and no number, or no dictionary for it")
            held[key] = value

    def _build(self) -> None:
        """What torch notes on a dictionary, or on what is not read, is left out."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict | Unread):
            raise ValueError("its pickle sets what is no dictionary")

    def _binpersid(self) -> None:
        self.stack.append(self._storage(self.stack.pop()))

    def _reduce(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        self.stack.append(self._called(called, arguments))

    _newobj = _reduce

    def _called(self, called: Any, given: Any) -> Any:
        if type(called) is not _Name or type(given) is not tuple or not called.call:
            raise ValueError("its pickle calls what is no tensor")
        if called.call == "unread":
            return Unread(called.name)
        if called.call == "tensor":
            return self._tensor(*given)
        if called.call == "untyped":
            return self._untyped(*given)
        if called.call == "parameter" and given:
            return given[0]
        if called.call == "typed":      # a tensor with attributes, or one of another class
            function, kind, arguments = (*given, None, None, None)[:3]
            is_plain = type(kind) is _Name and kind.name in ("torch.Tensor", "torch.nn.parameter.Parameter")
            if is_plain and type(function) is _Name and function.call in ("tensor", "untyped"):
                return self._called(function, arguments)
            return Unread(called.name)
        if given == ():
            return collections.OrderedDict()
        raise ValueError("its pickle makes a dictionary of something")

    def _storage(self, named: Any) -> "_Storage | Unread":
        """The numbers of a member, mapped."""
        if type(named) is not tuple or len(named) != 5:
            raise ValueError("its pickle names a storage by something else than torch does")
        kind, number, key, _, count = named
        whole = type(kind) is type(key) is str and type(number) is _Name
        if not whole or kind != "storage" or type(count) is not int:
            raise ValueError("its pickle names a storage by something else than torch does")
        if number.dtype is None:
            return Unread(number.name)
        if (info := self.members.get(("data", key))) is None:
            raise ValueError(f"{self.path} has no bytes for its storage {key[:80]!r}")
        dtype = number.dtype
        if info.compress_type != zipfile.ZIP_STORED or not 0 <= count * dtype.itemsize <= info.file_size:
            raise ValueError(f"{self.path}: the storage {key!r} of {info.file_size:,} bytes is packed, or too "
                             f"short for {count} numbers of {dtype.itemsize} bytes")
        if (key, number.name) not in self.storages:     # all of them, that none is widened twice
            numbers = self._mapped(info, dtype, info.file_size // dtype.itemsize)
            if number.widens:
                numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
            self.storages[key, number.name] = _Storage(numbers)
        return _Storage(self.storages[key, number.name].numbers[:count])

    def _mapped(self, info: zipfile.ZipInfo, dtype: np.dtype, count: int) -> NDArray:
        if not count:
            return np.zeros(0, dtype)
        # The local header has lengths of its own.
        self.raw.seek(info.header_offset)
        header = self.raw.read(30)
        if len(header) < 30 or header[:4] != b"PK\3\4":
            raise ValueError(f"{self.path} is damaged where {info.filename!r} begins")
        name, extra = struct.unpack("<HH", header[26:30])
        start = info.header_offset + 30 + name + extra
        if start + count * dtype.itemsize > self.path.stat().st_size:
            raise ValueError(f"{self.path} ends before {info.filename!r} does")
        return np.memmap(self.path, dtype, "r", start, (count,))

    def _untyped(self, storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> "NDArray | Unread":
        """A tensor of bytes and the format of its numbers: behind whether it wants a gradient, and hooks."""
        kind = more[2] if len(more) > 2 else None
        if type(storage) is not _Storage or type(kind) is not _Name or storage.numbers.dtype != np.uint8:
            raise ValueError("its pickle makes a tensor of something else than a storage and a format")
        if kind.dtype is None:
            return Unread(kind.name)
        numbers = storage.numbers[:len(storage.numbers) // kind.dtype.itemsize * kind.dtype.itemsize]
        return self._tensor(_Storage(numbers.view(kind.dtype)), offset, size, stride)

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> "NDArray | Unread":
        if type(storage) is Unread:
            return storage
        if type(storage) is not _Storage or type(size) is not tuple or type(stride) is not tuple:
            raise ValueError("its pickle makes a tensor of something else than a storage")
        numbers = storage.numbers
        whole = len(size) == len(stride) and all(type(n) is int and n >= 0 for n in (offset, *size, *stride))
        if not whole or len(size) > AXES:
            raise ValueError(f"{self.path}: a tensor has a shape, strides or an offset that no tensor has")
        if 0 in size:
            if max(size) > COLUMNS:
                raise ValueError(f"{self.path}: a tensor without numbers has the shape {size}")
            return np.zeros(size, numbers.dtype)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        if last >= len(numbers) or math.prod(size) > len(numbers):
            raise ValueError(f"{self.path}: a tensor of shape {size} leaves its {len(numbers):,} numbers")
        # numpy holds the view against the buffer once more.
        return np.ndarray(size, numbers.dtype, numbers, offset * numbers.itemsize,
                          [step * numbers.itemsize for step in stride])


_IS_FORMAT = re.compile(r"(?:b?float|complex|u?int|quint|qint|bits)[0-9a-z_]+|per_[a-z_]+")
_VALUES = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "INT", "UNICODE",
           "FLOAT")
_KEYS = (str, int, float, bool, type(None))
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "MARK": lambda: _MARK}
_STORES, _LOADS = ("BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT"), ("BINGET", "LONG_BINGET", "GET")
