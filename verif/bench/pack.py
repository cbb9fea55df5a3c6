"""The unit under test as its metadata says: the layouts of its ports; and instructions as words."""

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from gen.rtl.pack import Layout
from hw.isa import Kernel

__all__ = ["Layout", "Ports", "encode", "layout_of", "metadata"]


@cache
def metadata() -> dict[str, Any]:
    """The metadata of the unit under test, as `gen.rtl.verilog` wrote it."""
    with open(os.environ["HOTRAIL_METADATA"]) as handle:
        return json.load(handle)


def layout_of(port: str) -> Layout:
    """The layout of one of the unit's ports."""
    ports = metadata()["ports"]
    if port not in ports:
        raise ValueError(f"the unit has no port {port}; it has {', '.join(ports)}")
    return Layout(ports[port])


def encode(kernel: Kernel, item: Mapping[str, int]) -> list[int]:
    """The words of an instruction with these values of its fields, whatever it uses or allows."""
    word = sum(item.get(field.name, 0) << field.offset for field in kernel.fields)
    return [word >> 32 * at & 0xFFFFFFFF for at in range(kernel.words)]


class Ports:
    """Ports of the unit by name, as plain values; written only where they change."""

    def __init__(self, dut: Any):
        self._dut = dut
        self._last: dict[str, int] = {}
        self._layouts: dict[str, Any] = {}

    def set(self, name: str, value: Any) -> None:
        if not isinstance(value, int):
            value = self._layout(name).pack(value)
        if self._last.get(name) != value:
            self._last[name] = value
            getattr(self._dut, name).value = value

    def drive(self, **values: Any) -> None:
        for name, value in values.items():
            self.set(name, value)

    def get(self, name: str) -> int:
        return int(getattr(self._dut, name).value)

    def fields(self, name: str) -> Any:
        return self._layout(name).unpack(self.get(name))

    def clear(self, *names: str) -> None:
        for name in names:
            self.set(name, 0)

    def _layout(self, name: str) -> Any:
        if name not in self._layouts:
            self._layouts[name] = layout_of(name)
        return self._layouts[name]
