"""Copies of registers and LUTs: whose, how many, and what they drive and load."""

import dataclasses

import numpy as np
import pytest

from fpga.synth.timing.delays import Family
from fpga.synth.timing.packing import pack
from fpga.synth.timing.replicate import groups, replicated
from fpga.synth.timing.sta import Graph
from tests.support.netlists import cell, ff, module, netlist

pytestmark = pytest.mark.regress

EACH = 16           # loads in each of two corners
FAR = 60.0          # columns between these


@pytest.fixture(scope="module")
def known():
    """A LUT and the register behind it, which EACH registers in either corner load; one of those loads itself."""
    cells = {"lut": cell("LUT2", I0=2, I1=3, O=4), "source": ff(4, 5), "other": ff(6, 2)}
    for number in range(2 * EACH):
        cells[f"load_{number}"] = ff(5, 6 + number)
    found = netlist(module(cells, clk=[1]))
    names = [found.cell_name(number) for number in range(len(found.family))]
    at = np.zeros((2, len(names)))
    at[0, [names.index(name) for name in names if name.startswith("load") and int(name[5:]) >= EACH]] = FAR
    return found, names, at


def _copied(known, slow=True, together=None):
    found, names, at = known
    packed = pack(found)
    made, taken, places = replicated(found, packed, np.full(found.nets, slow), at,
                                     np.arange(len(names)) if together is None else together)
    return made, taken, np.concatenate([at, places], axis=1)


def test_each_corner_has_its_own(known):
    """One copy, in the middle of its loads; every load is on one net, no pin is lost, the inputs have a load more."""
    found, names, at = known
    made, taken, to = _copied(known)
    (copy,), source = range(len(names), len(made.family)), names.index("source")
    assert made.nets == found.nets + 1 and to[:, copy].tolist() == [FAR, 0.0]
    assert made.driver()[found.nets] == copy and made.family[copy] == found.family[source]
    assert made.cell_name(copy) == "source (copy)"
    loads, before = made.rows["loads"], found.rows["loads"]
    mine = loads["cell"][loads["net"] == found.nets]
    assert (to[0, mine] == FAR).all() and len(mine) == EACH
    assert len(loads["net"]) == len(before["net"]) + 1
    (data,) = before["net"][before["cell"] == source]
    assert (found.fanout()[data], made.fanout()[data]) == (1, 2)
    assert sorted(taken.ends["cell"][taken.ends["net"] == data]) == [source, copy]


def test_the_path_over_it_is_shorter(known):
    """Half of the way lies before the copy, half behind it; the copy's own input is an end more."""
    found, names, at = known
    made, taken, to = _copied(known)
    to[0, -1] = FAR / 2
    before, after = Graph(found, pack(found)).times(*at), Graph(made, taken).times(*to)
    assert after.ends.max() < before.ends.max()
    assert np.isfinite(after.ends).sum() == np.isfinite(before.ends).sum() + 1


def _behind(source):
    """A register, a cell behind it, which is cell 1, and EACH registers in either corner that this one drives."""
    cells = {"first": ff(3, 4), "source": source}
    found = netlist(module(cells | {f"load_{number}": ff(5, 6 + number) for number in range(2 * EACH)}, clk=[1]))
    return found, np.where(np.arange(len(found.family)) >= EACH + 2, FAR, 0.0) * np.array([[1.0], [0.0]])


def test_a_lut_is_copied():
    """The copy has an arc of its own from its input, to a net of its own; the way over either is shorter."""
    found, at = _behind(cell("LUT1", I0=4, O=5))
    packed, count = pack(found), len(found.family)
    made, taken, to = replicated(found, packed, np.ones(found.nets, bool), at, np.arange(count))
    (copy,) = range(count, len(made.family))
    assert found.cell_name(1) == "source" and made.family[copy] == Family.LUT and made.driver()[found.nets] == copy
    before, (after,) = (np.flatnonzero(taken.through["cell"] == lut) for lut in (1, copy))
    assert taken.through["to_net"][after] == found.nets and taken.through["to_net"][before] != found.nets
    assert taken.through["net"][after] == taken.through["net"][before]
    assert made.fanout()[taken.through["net"][after]] == 2 and copy not in taken.starts["cell"]
    at = np.concatenate([at, to], axis=1)
    assert at[:, copy].tolist() == [FAR, 0.0]
    at[0, 0] = FAR / 2      # the register lies between the corners
    before, after = Graph(found, packed).times(*at[:, :-1]).ends, Graph(made, taken).times(*at).ends
    assert len(after) == len(before) and after.max() < before.max() / 1.5


def test_what_is_not_copied(known):
    """Drivers of nets that are fast, have few loads or loads that stay together; and neither chains nor blocks."""
    found, names, _ = known
    assert len(_copied(known, slow=False)[0].family) == len(names)
    assert len(_copied(known, together=np.zeros(len(names), np.int64))[0].family) == len(names)
    other, at = _behind(cell("MUXF7", I0=4, I1=4, S=4, O=5))
    made, _, to = replicated(other, pack(other), np.ones(other.nets, bool), at, np.arange(len(other.family)))
    assert made is other and to.shape == (2, 0)
    assert not len(dataclasses.replace(made).copies)


def test_groups_are_near_and_not_too_small():
    rng = np.random.default_rng(7)
    at = rng.random((2, 500)) * [[100.0], [400.0]]
    number = groups(at)
    sizes = np.bincount(number)
    assert sizes.min() >= 8 and sizes.sum() == 500 and len(sizes) > 8
    assert groups(at / 1000).max() == 0
