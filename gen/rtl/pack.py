"""Packs payloads by the layouts of a unit's metadata: dicts for structs, lists for arrays, integers for the rest."""

from typing import Any


class Layout:
    """Packs and unpacks values of one shape.

    >>> pair = Layout({"width": 6, "fields": [{"name": "a", "offset": 0, "width": 4, "signed": True},
    ...                                       {"name": "b", "offset": 4, "width": 2, "signed": False}]})
    >>> pair.pack({"a": -1, "b": 2}), pair.unpack(0b101111)
    (47, {'a': -1, 'b': 2})
    """

    def __init__(self, shape: dict[str, Any]):
        self.width: int = shape["width"]
        self._mask = (1 << self.width) - 1
        self._signed = bool(shape.get("signed"))
        self._fields = (
            [(f["name"], f["offset"], Layout(f)) for f in shape["fields"]] if "fields" in shape else None
        )
        self._element = Layout(shape["element"]) if "element" in shape else None
        self._length: int = shape.get("length", 0)
        self._names = frozenset(name for name, _, _ in self._fields or ())
        self._is_number = self._fields is None and self._element is None
        self._low: int = -(1 << self.width - 1) if self._signed else 0
        self._high: int = self._mask >> 1 if self._signed else self._mask

    def pack(self, value: Any) -> int:
        """An integer; missing struct fields are zero. A value out of range is a ValueError."""
        if self._fields is not None and isinstance(value, dict):
            if not value.keys() <= self._names:
                raise ValueError(
                    f"no field {', '.join(sorted(value.keys() - self._names))}; there are "
                    f"{', '.join(name for name, _, _ in self._fields)}"
                )
            word = 0
            for name, offset, inner in self._fields:
                item = value.get(name, 0)
                if inner._is_number and type(item) is int and inner._low <= item <= inner._high:
                    word |= (item & inner._mask) << offset
                else:
                    word |= inner.pack(item) << offset
            return word
        if self._element is not None and not isinstance(value, int):
            items = list(value)
            if len(items) != self._length:
                raise ValueError(f"an array of {self._length} was given {len(items)} items")
            word = 0
            for i, item in enumerate(items):
                word |= self._element.pack(item) << (i * self._element.width)
            return word
        number = int(value)
        if not self._low <= number <= self._high:
            raise ValueError(
                f"{number} does not fit {self.width} {'signed' if self._signed else 'unsigned'} bits"
            )
        return number & self._mask

    def unpack(self, word: int) -> Any:
        if self._fields is not None:
            return {name: word >> offset & inner._mask if inner._is_number and not inner._signed
                    else inner.unpack(word >> offset & inner._mask) for name, offset, inner in self._fields}
        if self._element is not None:
            width, inner = self._element.width, self._element
            if (
                inner._fields is None
                and inner._element is None
                and not inner._signed
                and width in (8, 16, 32)
            ):
                # The usual case, words of a vector, without a shift of the whole payload for each of them.
                text = word.to_bytes(self._length * width // 8, "little")
                step = width // 8
                return [int.from_bytes(text[i : i + step], "little") for i in range(0, len(text), step)]
            return [inner.unpack(word >> (i * width) & inner._mask) for i in range(self._length)]
        if self._signed and word >> (self.width - 1):
            return word - (1 << self.width)
        return word
