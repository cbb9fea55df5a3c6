"""Packing of payloads, for any layout."""

import pytest
from amaranth import signed, unsigned
from amaranth.lib import data
from hypothesis import given
from hypothesis import strategies as st

from gen.rtl.pack import Layout
from gen.rtl.verilog import describe


def shapes():
    leaf = st.builds(lambda w, s: signed(w) if s else unsigned(w), st.integers(1, 40), st.booleans())
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(data.ArrayLayout, inner, st.integers(1, 4)),
            st.dictionaries(st.sampled_from("abcdef"), inner, min_size=1, max_size=4).map(data.StructLayout),
        ),
        max_leaves=6,
    )


@given(shapes(), st.data())
def test_there_and_back(shape, draw):
    layout = Layout(describe(shape))
    word = draw.draw(st.integers(0, (1 << layout.width) - 1))
    assert layout.pack(layout.unpack(word)) == word


@given(shapes(), st.data())
def test_as_amaranth_packs(shape, draw):
    """Constants of Amaranth are the reference for where a field lies."""
    layout = Layout(describe(shape))
    word = draw.draw(st.integers(0, (1 << layout.width) - 1))
    if isinstance(shape, data.Layout):
        value = layout.unpack(word)
        assert shape.const(value).as_value().value & ((1 << layout.width) - 1) == word


def test_wrong_values():
    pair = Layout(describe(data.StructLayout({"a": 4, "b": data.ArrayLayout(signed(3), 2)})))
    with pytest.raises(ValueError, match="16 does not fit 4 unsigned bits"):
        pair.pack({"a": 16})
    with pytest.raises(ValueError, match="-5 does not fit 3 signed bits"):
        pair.pack({"b": [0, -5]})
    with pytest.raises(ValueError, match="no field c; there are a, b"):
        pair.pack({"c": 1})
    with pytest.raises(ValueError, match="an array of 2 was given 3 items"):
        pair.pack({"b": [1, 2, 3]})
