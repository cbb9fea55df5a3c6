"""One-bit signals of cocotb without the objects that it makes on the way.

A bench looks at valid and ready millions of times. cocotb makes a `Logic` of every look, one more of the number that it
is compared with, and another of every number that is written: a third of a bench's time. `install` puts look-ups in
tables in their place, with the same results; what is rare goes cocotb's own way. These are its inner parts: its version
is pinned, and tests/verif/test_quick.py compares them.
"""

from typing import Any

from cocotb.handle import LogicObject, _GPISetAction, _schedule_write, current_gpi_trigger
from cocotb.triggers import ReadOnly
from cocotb.types import Logic

__all__ = ["install"]

_LOGIC = {text: Logic(text) for text in "01"}
_TEXT = {number: text for text, number in (("0", 0), ("1", 1))}
_own_get, _own_value, _own_equal = LogicObject.get, LogicObject.value, Logic.__eq__


def _get(signal: Any) -> Any:
    found = _LOGIC.get(signal._handle.get_signal_val_binstr())
    return _own_get(signal) if found is None else found


def _set(signal: Any, value: Any) -> None:
    text = _TEXT.get(value) if type(value) in (int, bool) else None
    if text is None or signal.is_const or isinstance(current_gpi_trigger(), ReadOnly):
        _own_value.fset(signal, value)
    else:
        _schedule_write(signal, signal._handle.set_signal_val_binstr, _GPISetAction.DEPOSIT, text)


def _equal(one: Any, other: Any) -> Any:
    text = _TEXT.get(other) if type(other) in (int, bool) else None
    return _own_equal(one, other) if text is None else one._repr == _LOGIC[text]._repr


def install() -> None:
    """From here on, in this process."""
    LogicObject.get, LogicObject.value, Logic.__eq__ = _get, property(_get, _set), _equal
