"""The tables of verif.bench.quick against cocotb's own ways, without a simulator; the benches try them with one."""

from unittest import mock

import numpy as np
import pytest
from cocotb.handle import HierarchyObject, LogicArrayObject, LogicObject, _LogicArrayObjectBase
from cocotb.triggers import ReadOnly, ReadWrite
from cocotb.types import Bit, Logic, LogicArray

from verif.bench import quick

PLACES = [(LogicObject, "get"), (LogicObject, "value"), (Logic, "__eq__"), (LogicArray, "__int__"),
          (HierarchyObject, "__getattr__"), (_LogicArrayObjectBase, "get"), (_LogicArrayObjectBase, "value")]
OWN = [getattr(owner, name) for owner, name in PLACES]
INHERITED = [name not in vars(owner) for owner, name in PLACES]


@pytest.fixture(autouse=True)
def restored():
    """cocotb's own accessors are back behind each test."""
    yield
    for (owner, name), own, inherited in zip(PLACES, OWN, INHERITED, strict=True):
        if not inherited:
            setattr(owner, name, own)
        elif name in vars(owner):
            delattr(owner, name)


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

    def __init__(self, shown, signed=0):
        self.shown, self.signed, self.written = shown, signed, []

    def get_signal_val_binstr(self):
        return self.shown

    def get_signed(self):
        return self.signed

    def get_num_elems(self):
        return len(self.shown)

    def get_const(self):
        return False

    def set_signal_val_binstr(self, action, value):
        self.written.append((action, value))

    def set_signal_val_int(self, action, value):
        self.written.append((action, value))


def signal(shown="0", kind=LogicObject, signed=0):
    made = object.__new__(kind)
    made.__dict__.update(_handle=Simulated(shown, signed), _path="a", _name="a")
    return made


def test_what_a_signal_shows_as_text():
    assert [quick.text(signal(shown))() for shown in "01X"] == ["0", "1", "X"]


@pytest.mark.parametrize("shown", "01XZxz")
def test_a_look_is_the_same_object(shown):
    """Known and unknown values: `Logic` has one object for each."""
    before = signal(shown).value
    quick.install()
    assert signal(shown).value is before


@pytest.mark.parametrize("shown", ["01", "1" * 40, "0X1", "LH10", "Z" * 33, "0" * 64])
def test_a_look_at_several_bits_is_the_same(shown):
    """The array, its range, its text, and its number or the error of one that has unknown bits."""
    def looked():
        seen = signal(shown, LogicArrayObject).value
        try:
            number = int(seen)
        except ValueError as error:
            number = str(error)
        return type(seen), str(seen), seen.range, len(seen), number, seen == 1, seen[0], seen == LogicArray(str(seen))

    before = looked()
    quick.install()
    assert looked() == before


def test_a_name_is_looked_up_once():
    found, asked = object(), []
    scope = object.__new__(HierarchyObject)
    scope.__dict__.update(_path="top", _get=lambda name: asked.append(name) or {"clk": found}.get(name))
    quick.install()
    assert scope.clk is found and scope.clk is found and asked == ["clk"]
    for _ in range(2):
        with pytest.raises(AttributeError, match="top contains no child object named other"):
            scope.other     # noqa: B018
    with pytest.raises(AttributeError, match="forget to add `.value`"):
        scope.clk = 1


@pytest.mark.parametrize("value", [0, 1, True, False, "1", "X", Logic(0), 2, 1.0, None, np.int64(1)], ids=repr)
@pytest.mark.parametrize("phase", [object.__new__(ReadOnly), object.__new__(ReadWrite)],
                         ids=lambda each: type(each).__name__)
def test_a_write_is_the_same_call_or_error(value, phase):
    """What cocotb refuses, every write in the phase for looks among it, is refused with its words."""
    check_writes(lambda: signal(), value, phase)


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("width", [2, 32, 33, 70])
@pytest.mark.parametrize("phase", [object.__new__(ReadOnly), object.__new__(ReadWrite)],
                         ids=lambda each: type(each).__name__)
def test_a_write_of_several_bits_is_the_same_call_or_error(width, signed, phase):
    half = 1 << width - 1
    for value in (0, 1, True, -1, half - 1, half, -half, -half - 1, 2 * half - 1, 2 * half, "0" * width, "X" * width,
                  LogicArray(1, width), 1.0, None, np.int64(1)):
        check_writes(lambda: signal("0" * width, LogicArrayObject, signed), value, phase)


def check_writes(made, value, phase):
    """By cocotb, by cocotb that waits for its own phase of writes, and by what is in its place."""
    def tried(trusted):
        one = made()
        with mock.patch("cocotb._gpi_triggers._current_gpi_trigger", phase), \
                mock.patch("cocotb.handle._trust_inertial", trusted), \
                mock.patch("cocotb.handle._schedule_write", direct), \
                mock.patch("verif.bench.quick._schedule_write", direct):
            try:
                one.value = value
            except (RuntimeError, TypeError, ValueError) as error:
                return str(error)
        return one._handle.written

    def direct(handle, write, action, text):
        write(action.value, text)

    before = tried(False)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in PLACES:
            patch.setattr(owner, name, getattr(owner, name))
        quick.install()
        assert [tried(False), tried(True)] == [before, before], value
