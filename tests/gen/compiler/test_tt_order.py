"""Communities of warm rows: what they save is counted on lookups that they were not learned from."""

import builtins

import numpy as np
import pytest

from gen.compiler.tt_order import communities
from golden.tt.reuse import first_products, leading_keys
from tests.gen.data.test_reorder import planted

MODES = (4, 3, 10)


def test_what_is_held_out_is_counted():
    asked = planted(2)[0]
    found = communities(120, asked, MODES, entries=2, lanes=1)
    assert np.array_equal(np.sort(found.order), np.arange(120)) and found.lookups == 2400
    number = np.argsort(found.order)
    assert found.products == first_products(leading_keys(number[asked[2400:]], MODES), entries=2, lanes=1)
    assert 1.5 * found.products < found.by_frequency
    later = np.concatenate([asked[:2400], planted(3)[0][2400:]])
    assert np.array_equal(communities(120, later, MODES, entries=2, lanes=1).order, found.order)


def test_none_asked_for_and_no_scikit_network(monkeypatch):
    assert communities(5, np.zeros(0, np.int64), (5, 1, 1), entries=2, lanes=1).order.tolist() == [0, 1, 2, 3, 4]
    real = builtins.__import__

    def without(name, *given, **more):
        if name.startswith("sknetwork"):
            raise ModuleNotFoundError(name=name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"--order community needs the package sknetwork: pip install .*\[order\]"):
        communities(120, planted(1)[0], MODES, entries=2, lanes=1)
