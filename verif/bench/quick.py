"""cocotb's signals without the objects that it makes on the way.

A bench looks at valid, ready and payloads millions of times, and writes as often. For every look cocotb makes a `Logic`
or a `LogicArray` with its range, for every name of a port it goes through its tables, for every write it asks for
limits: half of a bench's time. `install` puts look-ups and what a signal's limits were in their place, with the same
results; what is rare goes cocotb's own way. These are its inner parts: its version is pinned, and
tests/verif/test_quick.py compares them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import cocotb.handle
from cocotb import _gpi_triggers
from cocotb.handle import HierarchyObject, LogicObject, _GPISetAction, _LogicArrayObjectBase, _schedule_write
from cocotb.triggers import ReadOnly
from cocotb.types import Logic, LogicArray, Range

_LOGIC = {text: Logic(text) for text in "01"}
_TEXT = {number: text for text, number in (("0", 0), ("1", 1))}
_ONE, _REPR_OF_ONE = 1, _LOGIC["1"]._repr
_DEPOSIT = _GPISetAction.DEPOSIT
_DEPOSIT_NUMBER = _DEPOSIT.value
_INT_BITS = 32      # what cocotb writes as a number
_own_get, _own_value, _own_equal = LogicObject.get, LogicObject.value, Logic.__eq__
_own_child, _own_array_value, _own_int = (HierarchyObject.__getattr__, _LogicArrayObjectBase.value,
                                          LogicArray.__int__)
_new = LogicArray.__new__


def text(signal: Any) -> Callable[[], str]:
    """What a signal shows, as the simulator's text: "0" or "1" of one bit, for what looks at it in every cycle."""
    shown: Callable[[], str] = signal._handle.get_signal_val_binstr
    return shown


def _child(scope: Any, name: str) -> Any:
    """Found once, a name is an attribute like any other."""
    found = _own_child(scope, name)
    scope.__dict__[name] = found
    return found


def _get(signal: Any) -> Any:
    found = _LOGIC.get(signal._handle.get_signal_val_binstr())
    return _own_get(signal) if found is None else found


def _write(signal: Any, write: Callable[[int, Any], None], value: Any) -> None:
    if cocotb.handle._trust_inertial:
        write(_DEPOSIT_NUMBER, value)
    else:
        _schedule_write(signal, write, _DEPOSIT, value)


def _set(signal: Any, value: Any) -> None:
    text = _TEXT.get(value) if type(value) in (int, bool) else None
    if text is None or signal.is_const or isinstance(_gpi_triggers._current_gpi_trigger, ReadOnly):
        _own_value.fset(signal, value)
    else:
        _write(signal, signal._handle.set_signal_val_binstr, text)


def _equal(one: Any, other: Any) -> Any:
    if other is _ONE:
        return one._repr == _REPR_OF_ONE
    text = _TEXT.get(other) if type(other) in (int, bool) else None
    return _own_equal(one, other) if text is None else one._repr == _LOGIC[text]._repr


@cache
def _range(length: int) -> Range:
    return Range(length - 1, "downto", 0)


def _get_array(signal: Any) -> LogicArray:
    """As LogicArray._from_handle, with one range for all of a length."""
    found = _new(LogicArray)
    text = signal._handle.get_signal_val_binstr()
    found._value_as_array = found._value_as_int = None
    found._value_as_str, found._range, found._warn_indexing = text, _range(len(text)), False
    return found


def _set_array(signal: Any, value: Any) -> None:
    limits = signal.__dict__.get("_limits")
    if limits is None:
        limits = signal._limits = signal._min_val, signal._max_val, len(signal), signal.is_const
    low, high, width, constant = limits
    if (type(value) is not int or not low <= value <= high or constant
            or isinstance(_gpi_triggers._current_gpi_trigger, ReadOnly)):
        _own_array_value.fset(signal, value)
    elif width <= _INT_BITS:
        _write(signal, signal._handle.set_signal_val_int, value)
    else:
        _write(signal, signal._handle.set_signal_val_binstr, f"{value + (value < 0) * (1 << width):0{width}b}")


def _int(array: LogicArray) -> int:
    """Of known bits; what they mean where some are not is cocotb's business."""
    if array._value_as_int is None and array._value_as_str is not None:
        try:
            array._value_as_int = int(array._value_as_str, 2)
        except ValueError:
            return _own_int(array)
    return _own_int(array) if array._value_as_int is None else array._value_as_int


def install() -> None:
    """From here on, in this process."""
    LogicObject.get, LogicObject.value, Logic.__eq__ = _get, property(_get, _set), _equal
    HierarchyObject.__getattr__ = _child
    LogicArray.__int__ = _int
    if not cocotb.handle.do_indexing_changed_warning:
        _LogicArrayObjectBase.get, _LogicArrayObjectBase.value = _get_array, property(_get_array, _set_array)
