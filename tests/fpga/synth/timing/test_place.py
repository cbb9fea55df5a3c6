"""The placement: it beats chance, fills evenly, keeps blocks on their sites, and refinement never makes it worse."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import diags_array
from scipy.sparse import random as sparse_random
from scipy.sparse.linalg import cg, spsolve

from fpga.synth.timing import refine
from fpga.synth.timing.delays import Family
from fpga.synth.timing.packing import pack
from fpga.synth.timing.place import Design, Objects, objects, place, spread, window
from fpga.synth.timing.refine import filled, refined
from fpga.synth.timing.reproducible import falling, solved
from fpga.synth.timing.sites import Sites, Window, assign, everywhere
from gen.model.platform import region
from tests.support.netlists import cell, ff, module, netlist

pytestmark = pytest.mark.regress

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
    return place(Design.of(grid(blocks=SIDE)), 0.75)


def test_beats_chance(placed):
    """Worst path and all wire are less than half of what the same places give in any order."""
    design, at, _ = placed
    own = np.nonzero(design.objects.block == Family.OTHER)[0]
    mixed = at.copy()
    mixed[:, own] = at[:, np.random.default_rng(3).permutation(own)]
    ours, chance = design.times(at), design.times(mixed)
    wire = [float(np.concatenate([times.through_net, times.end_net]).sum()) for times in (ours, chance)]
    assert wire[0] < 0.6 * wire[1]
    assert ours.ends.max() < chance.ends.max()


def digest() -> str:
    """Of the bits of a placement with blocks, copies, and refinement."""
    design, at, place_ = place(Design.of(grid(blocks=SIDE)), 0.75)
    return hashlib.sha256(refined(design, at, place_).tobytes()).hexdigest()


@pytest.mark.parametrize("variables", [
    {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "Prescott"}])
def test_is_the_same_on_every_processor(variables):
    """Bit for bit without the instructions that NumPy and BLAS take where they are there."""
    here, there = (
        subprocess.run([sys.executable, "-W", "ignore", "-c", f"from {__name__} import digest; print(digest())"],
                       env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}, check=True, text=True,
                       stdout=subprocess.PIPE).stdout
        for more in ({}, variables))
    assert here == there


def test_a_fall_is_an_exponential():
    x = np.linspace(0, 30, 301)
    assert np.allclose(falling(x), np.exp(-x), rtol=30**2 / 2000, atol=0)
    assert falling(np.array([0.0, 2000.0])).tolist() == [1.0, 0.0]


def test_solves_what_scipy_solves():
    """A random system, to the tolerance; a guess that is the answer stays, and no more steps are taken than allowed."""
    random = np.random.default_rng(5)
    half = sparse_random(50, 50, 0.1, random_state=random)
    joined = half + half.T
    diagonal, wanted = np.asarray(joined.sum(axis=1)).ravel() + 0.5, random.standard_normal(50)
    matrix = diags_array(diagonal) - joined
    found = solved(diagonal, joined, wanted, np.zeros(50), tolerance=1e-10, steps=200)
    assert np.abs(found - spsolve(matrix.tocsc(), wanted)).max() < 1e-8
    assert (solved(diagonal, joined, matrix @ found, found, tolerance=1e-3, steps=9) == found).all()
    for steps in (1, 5):
        expected, _ = cg(matrix, wanted, np.zeros(50), rtol=1e-10, maxiter=steps, M=diags_array(1 / diagonal))
        assert np.allclose(solved(diagonal, joined, wanted, np.zeros(50), tolerance=1e-10, steps=steps), expected)


def test_blocks_lie_on_their_sites(placed):
    design, at, _ = placed
    mine = design.objects.block == Family.DSP
    sites = set(zip(*(side.round(3) for side in everywhere().sites("dsp"))))
    taken = list(zip(*at[:, mine].round(3)))
    assert len(taken) == SIDE and set(taken) <= sites and len(set(taken)) == SIDE


def _assigned(at: np.ndarray, sizes: list[float], family: Family = Family.DSP) -> np.ndarray:
    at = at.copy()
    assign(at, np.full(len(sizes), family, np.int8), np.array(sizes), Window(0, 0, 20, 40))
    return at


def test_blocks_are_assigned_to_the_nearest_sites():
    """Blocks on sites stay; of a crowd each takes one of its own, cascades as many in a row that nobody else takes;
    halves of a BRAM share one."""
    pitch = region()["rows"] / region()["dsp"]["sites"]
    columns, rows = Window(0, 0, 20, 40).sites("dsp")
    there = np.stack([columns, rows])[:, ::3]
    assert (_assigned(there, [1.0] * there.shape[1]) == there).all()
    crowd = _assigned(np.full((2, 7), 15.0), [1.0, 4.0, 2.0, 1.0, 4.0, 1.0, 2.0])
    sizes = np.array([1, 4, 2, 1, 4, 1, 2])
    taken = {(x, round(y / pitch - size / 2) + k) for x, y, size in zip(*crowd, sizes) for k in range(size)}
    assert len(taken) == sizes.sum() and {row for _, row in taken} <= set(range(int(40 / pitch)))
    assert (crowd[0] == 19).all()       # its 16 rows have room for all
    halves = _assigned(np.array([[12.0, 12.0, 12.0], [2.5, 2.5, 2.5]]), [0.5, 0.5, 1.0], Family.BRAM)
    assert (halves[:, 0] == halves[:, 1]).all() and (halves[:, 2] == [12.0, 2.5]).all()
    assert (halves[:, 0] == [12.0, 7.5]).all()


def test_blocks_share_sites_where_there_are_too_few():
    count = len(Window(0, 0, 20, 40).sites("uram")[0]) + 500
    at = _assigned(np.full((2, count), 10.0), [1.0] * count)
    assert set(map(tuple, at.T)) == set(zip(*Window(0, 0, 20, 40).sites("dsp")))


EVERYWHERE = everywhere()
HELD = 0.02


def _moved(at: np.ndarray, sizes: np.ndarray, pull: np.ndarray, to: np.ndarray,
           family: Family = Family.DSP) -> np.ndarray:
    """Where blocks are after a move, no two of them on one site."""
    at = at.copy()
    sites = Sites(np.full(len(sizes), family, np.int8), sizes, at, EVERYWHERE)
    sites.move(at, pull, to, HELD)
    taken = np.zeros(len(EVERYWHERE.sites("dsp" if family == Family.DSP else "bram")[0]))
    for first, size in zip(sites.of, sizes):
        taken[first:first + int(np.ceil(size))] += min(1.0, size)
    assert taken.max() <= 1
    return at


def test_a_block_moves_to_a_free_site():
    """What nothing pulls stays."""
    places = np.stack(EVERYWHERE.sites("dsp"))
    at, free = places[:, :-1], places[:, [-1]]
    pull = np.r_[1.0, np.zeros(at.shape[1] - 1)]
    found = _moved(at, np.ones(len(pull)), pull, np.repeat(free, len(pull), axis=1))
    assert (found[:, [0]] == free).all() and (found[:, 1:] == at[:, 1:]).all()


def test_a_block_takes_the_place_of_one_that_is_pulled_less():
    """All sites are taken: two at opposite ends, which want each other's place, get them; one that nothing pulls makes
    room for a third, and goes where that was; one that is pulled harder does not."""
    at = np.stack(EVERYWHERE.sites("dsp"))
    count, to = at.shape[1], at.copy()
    pull = np.zeros(count)
    for one, other, hard in ((0, count - 1, 1.0), (count - 1, 0, 1.0), (5, 700, 1.0), (6, 900, 1.0), (900, 900, 3.0)):
        pull[one], to[:, one] = hard, at[:, other]
    found = _moved(at, np.ones(count), pull, to)
    assert (found[:, [0, count - 1]] == at[:, [count - 1, 0]]).all()
    assert (found[:, 5] == at[:, 700]).all() and (found[:, 900] == at[:, 900]).all()
    assert (found[:, 6] != at[:, 6]).any()      # beside what is pulled harder


def test_halves_of_a_memory_move_into_free_halves():
    places = np.stack(EVERYWHERE.sites("bram"))
    at = np.concatenate([places[:, :-1], places[:, [0]]], axis=1)
    sizes = np.r_[0.5, np.ones(at.shape[1] - 2), 0.5]
    at[:, 0] = places[:, -1]                # two halves on sites of their own
    pull = np.r_[1.0, np.zeros(at.shape[1] - 1)]
    found = _moved(at, sizes, pull, np.repeat(places[:, [0]], at.shape[1], axis=1), Family.BRAM)
    assert (found[:, 0] == places[:, 0]).all() and (found[:, 1:] == at[:, 1:]).all()


@pytest.mark.parametrize("size", (2, 3, 4))
def test_a_cascade_takes_the_sites_around_its_middle(size):
    columns, rows = EVERYWHERE.sites("dsp")
    middle = np.array([[columns[0]], [rows[2 * size:3 * size].mean()]])
    sites = Sites(np.array([Family.DSP], np.int8), np.array([float(size)]), middle, EVERYWHERE)
    assert sites.of.tolist() == [2 * size]


def test_a_cascade_stays_in_one_column():
    """Two sites are free, the last of one column and the first of the next: no place for two."""
    places = np.stack(EVERYWHERE.sites("dsp"))
    height = int((places[0] == places[0, 0]).sum())
    own = np.r_[2:height - 1, height + 1:places.shape[1]]
    at = np.concatenate([places[:, own], places[:, :2].mean(axis=1, keepdims=True)], axis=1)
    sizes = np.r_[np.ones(len(own)), 2.0]
    pull, to = np.where(sizes > 1, 1.0, 0.0), np.repeat(places[:, [height]], len(sizes), axis=1)
    assert (_moved(at, sizes, pull, to) == at).all()


def test_registers_leave_what_they_were_joined_with():
    """Everything is where it was, what shares a slice alone together; the same longest path."""
    design = Design.of(grid(blocks=SIDE))
    at = np.random.default_rng(5).random((2, len(design.objects.luts))) * 50
    loose, to = design.loosened(at)
    assert len(loose.objects.luts) == SIDE**2 + SIDE and len(design.objects.luts) < SIDE**2 / 2 + SIDE
    assert (to[:, loose.objects.of] == at[:, design.objects.of]).all()
    assert loose.times(to).ends.max() == design.times(at).ends.max()


@pytest.mark.parametrize("whole", (False, True))
def test_whole_paths_pull_what_lies_at_their_ends(whole):
    """A cell beside each of two blocks, a long hop between the cells: a block that is not free stays, and knows of its
    short hop alone; one that is free is drawn along by its cell."""
    place = np.array([0.0, 1.0, 100.0, 101.0])
    free = np.array([False, True, True, False]) | whole
    move, pulled, middle = refine._moved(place, np.array([0, 1, 2]), np.array([1, 2, 3]), np.ones(3), free, 2.0)
    assert middle[[0, 3]] == pytest.approx([1.0, -1.0]) and pulled[[0, 3]] == pytest.approx([1.0, 1.0])
    if whole:
        assert move[0] > 5 and move[3] == pytest.approx(-move[0], rel=0.05)
    else:
        assert move[[0, 3]] == pytest.approx([0.0, 0.0], abs=1e-3)


def test_refinement_shortens_the_longest_path(monkeypatch):
    """From any order; nothing leaves the window, and slices are not much fuller than they were."""
    monkeypatch.setattr(refine, "REFINEMENTS", 20)
    design = Design.of(grid())
    inside = window(design.objects, 0.75)
    rng = np.random.default_rng(3)
    low, size = np.array([[inside.left], [inside.bottom]]), np.array([[inside.width], [inside.height]])
    at = low + size * rng.random((2, len(design.objects.luts)))
    before = at.copy()
    better = refined(design, at, inside)
    assert design.times(better).ends.max() < 0.8 * design.times(at).ends.max() and (at == before).all()
    assert filled(design.objects, better, inside)[1] <= filled(design.objects, at, inside)[1] + refine.CROWDED
    assert (better >= low).all() and (better <= low + size).all()


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
    assert found.area.max() <= 1.0 + 1e-9 and len(found.luts) < SIDE**2 / 2
    assert found.area.sum() == pytest.approx(SIDE**2 * (1 / 8 + 1 / 16))
    assert found.slices == pytest.approx(SIDE**2 / 8)


@pytest.mark.parametrize("family", ["LUT", "FF"])
def test_a_bin_is_as_full_as_the_fuller_of_luts_and_registers(family):
    """One bin of eight LUTs a slice: full without any register, and half of what lies there is too much where twice as
    many do. Registers alike, sixteen a slice; both together take no more than one of them."""
    inside, bins = Window(0, 0, 8, 24), 4
    slices = np.array([48.0, 24.0, 96.0, 0.0])
    at = np.array([[2.0, 6.0, 2.0, 6.0], [6.0, 6.0, 18.0, 18.0]])
    none = np.zeros(bins)
    luts, ffs = (slices, none) if family == "LUT" else (none, slices)
    found = Objects(np.arange(bins), luts, ffs, np.full(bins, Family.OTHER, np.int8), none, slices.sum())
    fill, above = filled(found, at, inside)
    assert fill.tolist() == [[1.0, 2.0], [0.5, 0.0]] and above == pytest.approx(1 / 3.5)
    both = replace(found, luts=slices, ffs=slices)
    assert filled(both, at, inside)[0].tolist() == fill.tolist()


def test_window_is_no_larger_than_asked_for():
    """Its sides are as computed, whatever the last digit of their product is."""
    for slices in np.linspace(400, 9000, 200):
        none = np.zeros(0)
        found = Objects(np.zeros(0, np.int64), none, none, np.zeros(0, np.int8), none, slices)
        made = window(found, 0.55)
        assert made.width * made.height == pytest.approx(slices / 0.55)


def test_window_holds_the_blocks():
    """A few cells and all DSP slices of the region: the window is the region; with one, it is small."""
    many, few = (objects(known, pack(known)) for known in (
        netlist(module({f"d{n}": cell("DSP48E2", A=[n + 2]) for n in range(1344)})),
        netlist(module({"d": cell("DSP48E2", A=[2]), "f": ff(2, 3)}))))
    assert window(many, 0.75).width == region()["columns"] and len(window(many, 0.75).sites("dsp")[0]) == 1344
    assert window(few, 0.75).width < 20
