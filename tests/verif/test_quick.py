"""The tables of verif.bench.quick against cocotb's own ways, without a simulator; the benches try them with one."""

from unittest import mock

import numpy as np
import pytest
from cocotb.handle import LogicObject
from cocotb.triggers import ReadOnly, ReadWrite
from cocotb.types import Bit, Logic

from verif.bench import quick

OWN = LogicObject.get, LogicObject.value, Logic.__eq__


@pytest.fixture(autouse=True)
def restored():
    """cocotb's own accessors are back behind each test."""
    yield
    LogicObject.get, LogicObject.value, Logic.__eq__ = OWN


@pytest.mark.parametrize("other", [0, 1, 2, -1, True, False, "0", "1", "X", "z", "?", Logic(1), Bit(1), 1.0, None,
                                   np.int64(1)], ids=repr)
def test_logic_equals_what_it_did(other):
    """Every value of the nine, beside numbers, texts and what is neither."""
    values = [*map(Logic, "UX01ZWLH-"), Bit(0), Bit(1)]
    before = [(value == other, value != other) for value in values]
    quick.install()
    assert [(value == other, value != other) for value in values] == before


class Simulated:
    """A signal of the simulator: what it shows, and what was written to it."""

    def __init__(self, shown):
        self.shown, self.written = shown, []

    def get_signal_val_binstr(self):
        return self.shown

    def set_signal_val_binstr(self, action, value):
        self.written.append((action, value))


def signal(shown="0"):
    made = object.__new__(LogicObject)
    made.__dict__.update(_handle=Simulated(shown), _path="a")
    return made


@pytest.mark.parametrize("shown", "01XZxz")
def test_a_look_is_the_same_object(shown):
    """Known and unknown values: `Logic` has one object for each."""
    before = signal(shown).value
    quick.install()
    assert signal(shown).value is before


@pytest.mark.parametrize("value", [0, 1, True, False, "1", "X", Logic(0), 2, 1.0, None, np.int64(1)], ids=repr)
@pytest.mark.parametrize("phase", [object.__new__(ReadOnly), object.__new__(ReadWrite)],
                         ids=lambda each: type(each).__name__)
def test_a_write_is_the_same_call_or_error(value, phase):
    """What cocotb refuses, every write in the phase for looks among it, is refused with its words."""
    def tried():
        made = signal()
        with mock.patch.object(LogicObject, "is_const", False), \
                mock.patch("cocotb.handle.current_gpi_trigger", lambda: phase), \
                mock.patch("verif.bench.quick.current_gpi_trigger", lambda: phase), \
                mock.patch("cocotb.handle._schedule_write", direct), \
                mock.patch("verif.bench.quick._schedule_write", direct):
            try:
                made.value = value
            except (RuntimeError, TypeError, ValueError) as error:
                return str(error)
        return made._handle.written

    def direct(handle, write, action, text):
        write(action.value, text)

    before = tried()
    quick.install()
    assert tried() == before
