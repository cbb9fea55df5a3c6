"""What is converted is kept by module and put together again for whoever asks; never what somebody may have changed."""

import pytest

from gen.rtl import conversions, verilog
from gen.rtl.verilog import convert
from hw.systolic.array import SystolicArray

SIZES = dict(columns=2, width=1, terms_log2=2, lut_products=0)


class Changed(SystolicArray):
    """Not the project's own: its parts may be anything."""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The modules that are converted from here on, with none kept."""
    names, rtlil = [], verilog._rtlil
    monkeypatch.setattr(conversions, "FOLDER", tmp_path)
    monkeypatch.setattr(verilog, "_rtlil", lambda unit, name, placer: names.append(name) or rtlil(unit, name, placer))
    return names


def test_each_module_is_converted_once(made, tmp_path, monkeypatch):
    """The same for another top, and the bytes are those of a conversion in one go."""
    first = convert(SystolicArray(rows=2, **SIZES), "two")
    assert sorted(made) == sorted(["two", *(name.removesuffix(".v") for name in first[0] if name != "two.v")])
    assert convert(SystolicArray(rows=2, **SIZES), "two") == first and len(made) == len(first[0])
    made.clear()
    larger = convert(SystolicArray(rows=3, **SIZES), "three")
    assert made == ["three"]
    monkeypatch.setattr(conversions, "FOLDER", tmp_path / "empty")
    assert convert(SystolicArray(rows=3, **SIZES), "three") == larger and len(made) == 1 + len(larger[0])


@pytest.mark.parametrize("lost", range(3))
def test_what_is_missing_is_converted_again(made, tmp_path, lost):
    whole = convert(SystolicArray(rows=2, **SIZES), "two")
    sorted(tmp_path.iterdir())[lost].unlink()
    made.clear()
    assert convert(SystolicArray(rows=2, **SIZES), "two") == whole and made
    made.clear()
    assert convert(SystolicArray(rows=2, **SIZES), "two") == whole and not made


def test_nothing_is_kept_of_a_unit_that_may_have_been_changed(made, tmp_path):
    convert(Changed(rows=2, **SIZES), "two")
    assert not list(tmp_path.iterdir())
    own = convert(SystolicArray(rows=2, **SIZES), "two")
    made.clear()
    assert convert(Changed(rows=2, **SIZES), "two")[0] == own[0] and len(made) == len(own[0])
