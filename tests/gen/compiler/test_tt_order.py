"""Communities of warm rows: what they save is counted on lookups that they were not learned from."""

import builtins

import numpy as np
import pytest

from gen.compiler.tt_order import communities
from golden.tt.reuse import first_products, leading_keys

MODES = (4, 3, 10)


def walks(seed, groups=12, size=10):
    """Lookups in stretches, each inside one scattered group of rows."""
    random = np.random.default_rng(seed)
    members = random.permutation(groups * size).reshape(groups, size)
    walk = np.repeat(random.integers(0, groups, 400), 12)
    return members[walk, random.integers(0, size, walk.size)]


def test_what_is_held_out_is_counted():
    asked = walks(2)
    found = communities(120, asked, MODES, entries=2, lanes=1)
    assert np.array_equal(np.sort(found.order), np.arange(120)) and found.lookups == 2400
    number = np.argsort(found.order)
    assert found.products == first_products(leading_keys(number[asked[2400:]], MODES), entries=2, lanes=1)
    assert 1.5 * found.products < found.by_frequency
    later = np.concatenate([asked[:2400], walks(3)[2400:]])
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
        communities(120, walks(1), MODES, entries=2, lanes=1)
