"""Shapes of tensor trains: sizes as the unit's loader counts them, row modes against brute force, bounds kept."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from gen.compress.search import best, candidates, capacity, cycles_of, knots, pareto
from gen.data.shapes import factorizations
from gen.rtl.config import load
from golden import tt
from golden.tt import Limits, Loader
from golden.tt.image import image, slices_of
from tests.golden.tt.test_layout import CASES

TINY = load("tiny").cores["emb"].tt
BIG = load("smartssd").cores["emb"].tt


def limits(config):
    return Limits(**{name: getattr(config, name) for name in Limits.__dataclass_fields__})


def cores_of(candidate):
    ranks = (1, *candidate.ranks, 1)
    return [np.ones((ranks[k], candidate.modes[k], candidate.columns[k], ranks[k + 1]), np.float32)
            for k in range(len(candidate.modes))]


@pytest.mark.parametrize("grid_log2, columns, rank", CASES[::3])
def test_lines_of_slices_are_those_of_the_image(grid_log2, columns, rank):
    modes = (3, 2, 5, 3)[: len(columns)]
    ranks = (1, *(max(1, rank - k) for k in range(len(columns) - 1)), 1)
    layout = tt.plan(modes, columns, ranks, grid_log2=grid_log2)
    packed = image(layout, [np.ones((ranks[k], modes[k], columns[k], ranks[k + 1]), np.float32)
                            for k in range(len(modes))])
    lines = {"x": 0, "y": 0}
    for part in slices_of(layout):
        lines[part.memory] += part.lines(modes[part.core])
    assert lines == {"x": len(packed.x), "y": len(packed.y)}


@pytest.mark.parametrize("rows, dim, config, form", [
    (1, 4, TINY, "float32"), (90, 16, TINY, "float32"), (700, 8, TINY, "float32"), (3000, 64, BIG, "float32"),
    (3000, 64, BIG, "block16")])
def test_loader_takes_every_candidate_and_counts_the_same(rows, dim, config, form):
    found = candidates(rows, dim, config=config, ranks=(1, 3, 4, 8), form=form)
    assert len(found) > 5
    for one in found:
        loader = Loader(limits(config))
        _, layout, _ = loader.add(cores_of(one), rows=rows, block16=form == "block16")
        assert (loader.x_used, loader.y_used) == (one.x_lines, one.y_lines), one
        assert one.words == sum(core.size for core in cores_of(one))
        assert one.macs == layout.macs and prod(one.modes) >= rows and prod(one.columns) == dim
        assert one.cycles == max(1, layout.slots / config.lanes)
        assert one.share == max(one.x_lines / config.x_lines, one.y_lines / config.y_lines, 1 / config.tables)
        assert one.bytes == one.share * capacity(config)
        # A decomposition of these ranks exists.
        sizes = [i * j for i, j in zip(one.modes, one.columns, strict=True)]
        assert all(rank <= min(prod(sizes[:k + 1]), prod(sizes[k + 1:])) for k, rank in enumerate(one.ranks))


def test_shares_add_up_to_what_the_loader_takes():
    rng = np.random.default_rng(3)
    loader, used = Loader(limits(TINY)), 0.0
    while True:
        one = best(int(rng.integers(1, 4000)), int(rng.choice([4, 8, 16])), config=TINY, rank=int(rng.choice([1, 4])))
        if used + one.share > 1:
            break
        used += one.share
        loader.add(cores_of(one))
    assert loader.count >= 4


def brute(rows, columns, rank, config):
    """The least share of all row modes."""
    layout = tt.plan((1,) * len(columns), columns, (1, *[rank] * (len(columns) - 1), 1), grid_log2=config.grid_log2)
    each = np.arange(1, max(rows, rank) + 1)
    modes = np.stack(np.meshgrid(*[each] * len(columns)), axis=-1).reshape(-1, len(columns))
    modes = modes[(modes.prod(axis=1) >= rows) & (modes[:, 0] * columns[0] >= rank)
                  & (modes[:, -1] * columns[-1] >= rank)]
    lines = {"x": 0, "y": 0}
    for part in slices_of(layout):
        lines[part.memory] = lines[part.memory] + part.lines(modes[:, part.core])
    return np.maximum(lines["x"] / config.x_lines, (lines["y"] + lines["y"] % 2) / config.y_lines).min()


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 50])
def test_row_modes_are_those_of_the_least_share(rows):
    config = replace(TINY, tables=1 << 12)      # a slot counts nothing
    for one in candidates(rows, 8, config=config, ranks=(2, 5), cores=(2, 3)):
        least = brute(rows, one.columns, one.rank, config)
        # An odd number of Y lines is rounded up, which the search does not weigh.
        assert least <= one.share <= least + 1 / config.y_lines, one


def test_four_cores_as_brute_force_has_them():
    config = replace(TINY, tables=1 << 12)
    for one in candidates(11, 8, config=config, ranks=(2,), cores=(4,)):
        least = brute(11, one.columns, 2, config)
        assert least <= one.share <= least + 1 / config.y_lines, one


def test_pareto_keeps_what_nothing_beats():
    found = candidates(20000, 64, config=BIG, ranks=(2, 4, 8, 16))
    kept = pareto(found)
    assert 4 <= len(kept) < len(found)

    def beats(a, b):
        return a.bytes <= b.bytes and a.cycles <= b.cycles and a.rank >= b.rank

    for one in found:
        better = [other for other in found if beats(other, one) and not beats(one, other)]
        if one in kept:
            assert not better, one
        else:
            assert any(beats(other, one) for other in kept), one


@pytest.mark.parametrize("bounds", [{"bytes": 100_000}, {"cycles": 2}, {"bytes": 60_000, "cycles": 4}, {"rank": 4}])
def test_best_of_all_within_the_bounds(bounds):
    one = best(300_000, 64, config=BIG, **bounds)
    found = [each for each in candidates(300_000, 64, config=BIG, cores=(3,))
             if each.bytes <= bounds.get("bytes", 1e9) and each.cycles <= bounds.get("cycles", 1e9)
             and each.rank == bounds.get("rank", each.rank)]
    assert one.rank == max(each.rank for each in found)
    same = [each for each in found if each.rank == one.rank]
    assert (one.cycles, one.share) == min((each.cycles, each.share) for each in same)
    assert one.bytes <= bounds.get("bytes", 1e9) and one.cycles <= bounds.get("cycles", 1e9)


@pytest.mark.turns(1)
@pytest.mark.parametrize("dim, rank, rows", [(64, 4, 40_000_000), (64, 16, 2_000_000), (16, 4, 477)])
def test_lines_between_knots_are_never_below_the_truth(dim, rank, rows):
    at, sizes = knots(rows, dim, rank=rank, config=BIG)
    assert at[0] == 0 == sizes[0] and at[-1] == rows and (np.diff(at) > 0).all() and (np.diff(sizes) >= 0).all()
    some = np.unique(np.concatenate([at[1:], at[1:] - 1, np.geomspace(1, rows, 150).astype(int)]))
    some = some[some > 0]
    truth = np.array([best(int(each), dim, config=BIG, rank=rank).bytes for each in some])
    told = np.interp(some, at, sizes)
    assert (told >= truth).all() and (told <= 1.11 * truth + 1).all()
    assert all(best(int(each), dim, config=BIG, rank=rank).cycles == cycles_of(dim, rank, config=BIG)
               for each in some[::20])


def test_knots_end_where_the_unit_is_full():
    at, sizes = knots(1 << 20, 16, rank=16, config=TINY)
    assert 0 < at[-1] < 1 << 20 and sizes[-1] <= capacity(TINY)
    assert best(int(at[-1]), 16, config=TINY, rank=16).share <= 1
    with pytest.raises(ValueError, match="no tensor train"):
        best(int(at[-1]) + 1, 16, config=TINY, rank=16, cycles=cycles_of(16, 16, config=TINY))
    assert [len(each) for each in knots(1000, 16, rank=64, config=TINY)] == [1, 1]


def test_the_fastest_of_the_papers_table():
    """SCRec's D = 64 at rank 4: a row a cycle, and thousandfold smaller where tables are large."""
    one = best(2_720_716, 64, config=BIG, rank=4)
    assert one.cycles == 1 and one.columns == (4, 4, 4) and one.ratio > 4000
    assert best(20, 64, config=BIG, rank=16).ratio < 1        # small tables grow, as SCRec Fig. 6 shows


def test_bad_input_is_a_sentence():
    with pytest.raises(ValueError, match="^rows is 0; it must be a whole number of 1 or more$"):
        candidates(0, 64, config=BIG)
    with pytest.raises(ValueError, match="^one of bytes, cycles and rank must be given: without a bound"):
        best(10, 64, config=BIG)
    with pytest.raises(ValueError, match=r"^no tensor train of 1,000 rows of 64 words within 10 bytes: the least are "
                                         r"49,152 bytes and 1 cycles a row$"):
        best(1000, 64, config=BIG, bytes=10)
    with pytest.raises(ValueError, match=r"^no tensor train of 1,000 rows of 1024 words at rank 4: the embedding "
                                         r"dimension is 1024, this unit takes at most 512$"):
        best(1000, 1024, config=BIG, rank=4)
    with pytest.raises(ValueError, match=r"at rank 128: rank R_1 is 128, this unit takes at most 64$"):
        cycles_of(64, 128, config=BIG)


def test_every_factorisation_is_tried():
    columns = {one.columns for one in candidates(100, 16, config=TINY, ranks=(2,), cores=(2,))}
    assert columns <= set(factorizations(16, 2)) and len(columns) >= 3
