"""The placement: it beats chance, fills evenly, keeps blocks on their sites, and refinement never makes it worse."""

import numpy as np
import pytest

from fpga.synth.shells import region
from fpga.synth.timing.delays import Family
from fpga.synth.timing.packing import pack
from fpga.synth.timing.place import Objects, Sites, Window, in_order, objects, place, refined, spread, window
from fpga.synth.timing.sta import Graph
from tests.support.netlists import cell, ff, module, netlist

SIDE = 24


def grid(blocks: int = 0):
    """SIDE x SIDE registers, each with a LUT of its two neighbours before it; a row of them also feeds DSP slices."""
    cells = {}
    for row in range(SIDE):
        for column in range(SIDE):
            own = 2 + 2 * (SIDE * row + column)
            left, below = own - 1 - 2 if column else "0", own - 1 - 2 * SIDE if row else "0"
            cells[f"lut_{row}_{column}"] = cell("LUT2", I0=left if column else "0", I1=below if row else "0", O=own)
            cells[f"ff_{row}_{column}"] = ff(own, own + 1)
    for number in range(blocks):
        cells[f"dsp_{number}"] = cell("DSP48E2", {"PREG": "1"}, A=[3 + 2 * number])
    return netlist(module(cells, clk=[1]))


@pytest.fixture(scope="module")
def placed():
    known = grid(blocks=SIDE)
    packed = pack(known)
    graph = Graph(known, packed)
    found = objects(known, packed)
    x, y, inside = place(known, found, lambda x, y: graph.criticality(graph.times(x, y)))
    return graph, found, x, y, inside


def test_beats_chance(placed):
    """Worst path and all wire are less than half of what the same places give in any order."""
    graph, found, x, y, _ = placed
    slices = np.nonzero(found.block[found.of] == Family.OTHER)[0]
    rng = np.random.default_rng(3)
    mixed_x, mixed_y = x.copy(), y.copy()
    order = rng.permutation(len(found.area))
    at = np.zeros((2, len(found.area)))
    at[0][found.of], at[1][found.of] = x, y
    own = np.nonzero(found.block == Family.OTHER)[0]
    to = own[np.argsort(order[own])]
    at[:, own] = at[:, to]
    mixed_x[slices], mixed_y[slices] = at[0][found.of[slices]], at[1][found.of[slices]]
    ours, chance = graph.times(x, y), graph.times(mixed_x, mixed_y)
    wire = [float(np.concatenate([times.through_net, times.end_net]).sum()) for times in (ours, chance)]
    assert wire[0] < 0.6 * wire[1]
    assert ours.ends.max() < chance.ends.max()


def test_blocks_lie_on_their_sites(placed):
    _, found, x, y, inside = placed
    mine = found.block[found.of] == Family.DSP
    sites = set(zip(*(side.round(3) for side in inside.sites("dsp"))))
    taken = list(zip(x[mine].round(3), y[mine].round(3)))
    assert len(taken) == SIDE and set(taken) <= sites and len(set(taken)) == SIDE


def test_blocks_in_a_row_lie_around_where_they_are_wanted():
    """A crowd spreads to both sides without overlaps, at an end inwards, and closer where there is too little room."""
    sizes = np.array([1.0, 4.0, 2.0, 1.0])
    crowd = in_order(np.full(4, 20.0), sizes, 40.0)
    assert np.allclose(np.diff(crowd), [2.5, 3.0, 1.5]) and np.average(crowd, weights=sizes) == pytest.approx(20)
    assert np.allclose(in_order(np.zeros(4), sizes, 40.0), [0.5, 3.0, 6.0, 7.5])
    assert np.allclose(in_order(np.array([1.0, 9.0]), np.ones(2), 40.0), [1.0, 9.0])
    assert np.allclose(in_order(np.zeros(4), sizes, 4.0), [0.25, 1.5, 3.0, 3.75])


def test_a_block_moves_to_a_free_site():
    """The one that is pulled harder takes the only free site; a cascade, which takes the sites beside its own, and what
    nothing pulls stay."""
    inside = Window(0, 0, region()["columns"], region()["rows"])
    places = np.stack(inside.sites("dsp"))
    count = places.shape[1] - 3     # all sites but one are taken, by single slices and at the end a cascade of three
    found = Objects(np.arange(count), np.zeros(count), np.full(count, Family.DSP, np.int8),
                    np.r_[np.ones(count - 1), 3.0], 0.0)
    at = np.concatenate([places[:, :count - 1], places[:, [count]]], axis=1)
    pull = np.zeros(count)
    pull[[0, 1, count - 1]] = 1.0, 2.0, 3.0
    before, free = at.copy(), places[:, -1]
    Sites(found, at, inside).move(at, pull, np.repeat(free[:, None], count, axis=1))
    assert (at[:, 1] == free).all()
    still = np.r_[2:count]
    assert (at[:, still] == before[:, still]).all() and len(set(map(tuple, at.T))) == count


def test_refinement_shortens_the_longest_path(placed):
    graph, found, x, y, inside = placed
    better = graph.times(*refined(graph, found, x, y, inside)).ends.max()
    assert better < graph.times(x, y).ends.max()


def test_spread_fills_evenly_and_keeps_the_order():
    """A crowd in a corner is laid out over a window: each quarter gets a quarter, and neighbours stay neighbours."""
    rng = np.random.default_rng(5)
    x, y = rng.random(4096) ** 3, rng.random(4096) ** 3
    inside = Window(10, 20, 32, 64)
    to_x, to_y = spread(x, y, np.ones(4096), inside)
    counts, _, _ = np.histogram2d(to_x, to_y, bins=4, range=[[10, 42], [20, 84]])
    assert counts.min() >= 240 and counts.max() <= 272
    assert np.corrcoef(np.argsort(np.argsort(x)), to_x)[0, 1] > 0.9


def test_objects_join_what_shares_a_slice():
    """A LUT and its register are one object, neighbours join it up to half a slice, nothing is lost."""
    known = grid()
    found = objects(known, pack(known))
    for row in range(2 * SIDE):
        assert found.of[2 * row] == found.of[2 * row + 1]
    assert found.area.max() <= 1.0 + 1e-9 and len(found.area) < SIDE**2 / 2
    assert found.area.sum() == pytest.approx(SIDE**2 * (1 / 8 + 1 / 16))
    assert found.slices == pytest.approx(SIDE**2 / 8)


def test_window_holds_the_blocks():
    """A few cells and all DSP slices of the region: the window is the region; with one, it is small."""
    many, few = (objects(known, pack(known)) for known in (
        netlist(module({f"d{n}": cell("DSP48E2", A=[n + 2]) for n in range(1344)})),
        netlist(module({"d": cell("DSP48E2", A=[2]), "f": ff(2, 3)}))))
    assert window(many).width == region()["columns"] and len(window(many).sites("dsp")[0]) == 1344
    assert window(few).width < 20
