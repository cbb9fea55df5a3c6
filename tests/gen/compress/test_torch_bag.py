"""Embedding bags with rows in a TT: values, gradients and steps against torch's autograd of the plain formula.

Skipped where torch is not installed.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from gen.compress.post_hoc import decompose  # noqa: E402
from gen.compress.torch_bag import TieredBag, tiers  # noqa: E402
from golden import tt  # noqa: E402
from golden.tt.block16 import rounded_cores  # noqa: E402

ROWS = 60
SHAPES = {"two": ((8, 8), (4, 3), (5,)), "three": ((5, 3, 4), (2, 3, 2), (4, 3)),
          "four": ((3, 4, 2, 3), (2, 1, 3, 2), (2, 4, 3))}
TIERS = {"all": np.ones(ROWS, int), "mixed": np.arange(ROWS) % 3, "none": np.zeros(ROWS, int)}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def bag_of(shape="three", tier="mixed", **options):
    modes, columns, ranks = SHAPES[shape]
    return TieredBag(TIERS[tier], 12, rank=ranks, modes=modes, columns=columns, dtype=torch.float64, **options)


def plain_table(bag):
    """The table by one einsum of whole cores, a function that autograd sees through."""
    rows = torch.zeros(ROWS, 12, dtype=torch.float64)
    if len(bag.cores):
        block = torch.ones(1, 1, 1, dtype=torch.float64)
        for core in bag.cores:
            block = torch.einsum("xyr,irjs->xiyjs", block, core)
            block = block.reshape(block.shape[0] * block.shape[1], -1, block.shape[4])
        rows = torch.where(bag.warm[:, None], block[:, :, 0][torch.where(bag.warm, bag.number, 0)], rows)
    if len(bag.dense):
        rows = torch.where(bag.warm[:, None], rows, bag.dense[torch.where(bag.warm, 0, bag.number)])
    return rows


def batch(seed=0, bags=40):
    """Bags of 0 to 5 rows, with many repetitions, and a weight an index."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, bags)
    indices = rng.zipf(1.3, lengths.sum()) % ROWS
    return (torch.from_numpy(indices), torch.from_numpy(np.r_[0, np.cumsum(lengths)[:-1]]),
            torch.from_numpy(rng.random(len(indices))), torch.from_numpy(rng.standard_normal((bags, 12))))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_vectors_and_gradients_are_those_of_the_plain_formula(shape, tier, mode):
    bag = bag_of(shape, tier, mode=mode)
    indices, offsets, weights, slope = batch()
    weights = weights.requires_grad_() if mode == "sum" else None
    found = []
    for one in (lambda: bag(indices, offsets, weights),
                lambda: torch.nn.functional.embedding_bag(indices, plain_table(bag), offsets, mode=mode,
                                                          per_sample_weights=weights)):
        bag.zero_grad(set_to_none=True)
        out = one()
        (out * slope).sum().backward()
        grads = [parameter.grad.clone() for parameter in bag.parameters() if parameter.numel()]
        found.append((out.detach(), grads, None if weights is None else weights.grad.clone()))
        if weights is not None:
            weights.grad = None
    (mine, my_grads, my_weights), (plain, grads, of_weights) = found
    torch.testing.assert_close(mine, plain, rtol=1e-12, atol=1e-13)
    assert len(my_grads) == len(grads)
    for a, b in zip(my_grads, grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    if weights is not None:
        torch.testing.assert_close(my_weights, of_weights, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule, optimiser, tier", [
    *[("sgd", torch.optim.SGD, tier) for tier in TIERS], *[("adagrad", torch.optim.Adagrad, tier) for tier in TIERS],
    ("adam", torch.optim.Adam, "all")])
def test_fused_steps_are_those_of_the_optimiser(rule, optimiser, tier):
    fused = bag_of(tier=tier, rate=0.05, rule=rule, seed=4)
    plain = bag_of(tier=tier, seed=4)
    steps = optimiser([each for each in plain.parameters() if each.numel()], lr=0.05)
    for seed in range(4):
        indices, offsets, _, slope = batch(seed)
        (fused(indices, offsets) * slope).sum().backward()
        assert all(each.grad is None for each in fused.parameters()), "a gradient was kept"
        steps.zero_grad()
        (torch.nn.functional.embedding_bag(indices, plain_table(plain), offsets, mode="sum") * slope).sum().backward()
        steps.step()
    for a, b in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-9, atol=1e-11)


def test_cores_may_have_a_rule_of_their_own():
    """Dense rows as SparseAdam steps them, cores as SGD with another rate does."""
    fused = bag_of(rate=0.02, rule="adam", core_rate=0.3, core_rule="sgd", seed=4)
    plain = bag_of(seed=4)
    adam = torch.optim.SparseAdam([plain.dense], lr=0.02)
    for seed in range(3):
        indices, offsets, _, slope = batch(seed)
        (fused(indices, offsets) * slope).sum().backward()
        plain.zero_grad()
        (torch.nn.functional.embedding_bag(indices, plain_table(plain), offsets, mode="sum") * slope).sum().backward()
        touched = torch.unique(plain.number[indices[~plain.warm[indices]]])
        plain.dense.grad = torch.sparse_coo_tensor(touched[None], plain.dense.grad[touched], plain.dense.shape,
                                                   check_invariants=True)
        adam.step()
        with torch.no_grad():
            for core in plain.cores:
                core -= 0.3 * core.grad
    # SparseAdam adds its epsilon before the second moment is corrected, Adam and this bag behind it.
    torch.testing.assert_close(fused.dense.detach(), plain.dense.detach(), rtol=1e-3, atol=1e-5)
    for a, b in zip(fused.cores, plain.cores, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-3, atol=1e-5)


def test_two_calls_before_a_fused_step_are_refused():
    bag = bag_of(rate=0.1)
    indices, offsets, _, slope = batch()
    one, two = bag(indices, offsets), bag(indices, offsets)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ((one + two) * slope).sum().backward()


@pytest.mark.parametrize("modes, columns, ranks", [((8, 8), (4, 4), 5), ((5, 3, 4), (2, 2, 4), 4),
                                                   ((3, 4, 2, 3), (4, 4, 4, 4), 3)])
def test_cores_are_those_that_the_unit_takes(modes, columns, ranks):
    bag = TieredBag(np.ones(ROWS, int), int(np.prod(columns)), rank=ranks, modes=modes, columns=columns, seed=2)
    with torch.no_grad():
        rows = bag(torch.arange(ROWS)[:, None]).numpy()
    np.testing.assert_allclose(tt.rows(bag.tt_cores(), np.arange(ROWS)), rows, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(bag.values(), rows, rtol=1e-4, atol=1e-6)


def test_cores_of_a_decomposition_give_its_rows():
    values = np.random.default_rng(1).standard_normal((ROWS, 12)).astype(np.float32)
    cores = decompose(values, (5, 3, 4), (2, 3, 2), (4, 3)).cores
    bag = bag_of("three", "all")
    bag.load_cores(cores)
    np.testing.assert_allclose(bag.values(), tt.dense(cores)[:ROWS], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="^cores have the shapes"):
        bag.load_cores(cores[:2])


def test_arrays_are_what_a_bundle_takes():
    tier = np.array([0, 1, 2, 1, 1, 0])
    bag = TieredBag(tier, 4, rank=2, order=[4, 1, 3], modes=(3, 2), columns=(2, 2), seed=1)
    found = bag.arrays("item")
    assert list(found) == ["table_item", "core1_item", "core2_item", "tt_row_item"]
    assert found["tt_row_item"].tolist() == [-1, 1, -1, 2, 0, -1]
    cores = [found["core1_item"], found["core2_item"]]
    np.testing.assert_allclose(found["table_item"][[4, 1, 3]], tt.dense(cores)[:3], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found["table_item"][[0, 2, 5]], bag.dense.detach().numpy())
    assert list(TieredBag(np.zeros(3), 4).arrays("x")) == ["table_x"]


def test_rows_start_with_the_spread_asked_for():
    for rank in (2, 16):
        values = TieredBag(np.ones(4000), 16, rank=rank, std=0.3, seed=5).values()
        assert 0.2 < values.std() < 0.4


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_zeros_at_the_start_are_learned_from(shape):
    modes, columns, ranks = SHAPES[shape]
    bag = TieredBag(np.ones(ROWS), 12, rank=ranks, modes=modes, columns=columns, std=0.0, rate=0.1)
    assert not bag.values().any()
    assert not bag.cores[-1].any() and all(core.std() > 0.2 for core in bag.cores[:-1])
    bag(torch.arange(ROWS)[:, None]).sum().backward()
    assert (np.abs(bag.values()).max(axis=1) > 0).all()


def test_scale_is_of_all_rates():
    one, other = bag_of(rate=0.2, core_rate=0.4), bag_of(rate=0.1, core_rate=0.2)
    one.scale = 0.5
    indices, offsets, _, slope = batch()
    for bag in (one, other):
        (bag(indices, offsets) * slope).sum().backward()
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_dense_rows_become_a_train_and_go_on():
    """The warm rows are the decomposition's, the others as they were, and a step of Adagrad as if nothing had been."""
    bag = TieredBag(np.zeros(ROWS), 12, rate=0.1, rule="adagrad", std=1.0, seed=3, dtype=torch.float64)
    plain = TieredBag(np.zeros(ROWS), 12, rate=0.1, rule="adagrad", std=1.0, seed=3, dtype=torch.float64)
    indices, offsets, _, slope = batch()
    for one in (bag, plain):
        (one(indices, offsets) * slope).sum().backward()
    tier = TIERS["mixed"]
    order = np.flatnonzero(tier == 1)[::-1]
    made = bag.retiered(tier, order=order, rank=4, modes=(3, 3, 3), columns=(2, 3, 2), rate=0.1, rule="adagrad")
    want = decompose(bag.values()[order], (3, 3, 3), (2, 3, 2), (4, 4)).cores
    values = made.values()
    np.testing.assert_allclose(values[order], tt.dense(want)[:len(order)], rtol=1e-4, atol=1e-5)
    assert 0.1 < made.error < 0.95
    np.testing.assert_array_equal(values[tier != 1], bag.values()[tier != 1])
    sizes = [float(core.detach().square().mean()) for core in made.cores]
    assert max(sizes) < 1.001 * min(sizes)
    for one in (made, plain):
        (one(indices, offsets) * slope).sum().backward()
    np.testing.assert_allclose(made.values()[tier != 1], plain.values()[tier != 1], rtol=1e-6, atol=1e-7)
    assert np.abs(made.values()[order] - values[order]).max() > 1e-3


def test_ranks_are_no_higher_than_the_modes_have_use_for():
    bag = TieredBag(np.ones(20), 16, rank=16)
    assert bag.modes == (3, 3, 3) and [core.shape[3] for core in bag.cores] == [6, 12, 1]


def test_tiers_by_heat():
    assert tiers([5, 9, 0, 5, 1], dram_rows=2, tt_rows=2).tolist() == [0, 0, 2, 1, 1]
    with pytest.raises(ValueError, match=r"^dram_rows 3 and tt_rows 3 must be 0 or more and together at most the 5"):
        tiers([5, 9, 0, 5, 1], dram_rows=3, tt_rows=3)


def test_learns_what_a_train_can_express():
    """Rows of a tensor train of rank 2 are found again by gradient steps from another start."""
    target = torch.from_numpy(bag_of("three", "all", seed=9, std=1.0).values()).double()
    bag = TieredBag(np.ones(ROWS), 12, rank=(4, 3), modes=(5, 3, 4), columns=(2, 3, 2), std=1.0, seed=10,
                    rate=0.1, rule="adagrad", dtype=torch.float64)
    every = torch.arange(ROWS)[:, None]
    for _ in range(600):
        loss = ((bag(every) - target) ** 2).sum()
        loss.backward()
    assert loss.item() < 1e-2 * float((target ** 2).sum())


def test_bad_input_is_a_sentence():
    with pytest.raises(ValueError, match=r"^modes \(2, 2, 2\) multiply to 8, fewer than the tensor train's 60 rows$"):
        TieredBag(np.ones(60), 8, modes=(2, 2, 2))
    with pytest.raises(ValueError, match=r"^columns \(2, 2, 3\) multiply to 12, not to dim 8$"):
        TieredBag(np.ones(8), 8, modes=(2, 2, 2), columns=(2, 2, 3))
    with pytest.raises(ValueError, match="^rule is 'lamb'; it must be one of sgd, adagrad, adam$"):
        TieredBag(np.ones(8), 8, rule="lamb")
    with pytest.raises(ValueError, match="^order must have each of the 2 rows of tier 1 once$"):
        TieredBag([0, 1, 1], 8, order=[1, 1])


def test_block16_in_the_loop_looks_up_rounded_cores_and_teaches_the_ones_behind():
    bag = bag_of("three", "all", tt_format="block16", rate=None)
    held = rounded_cores([core.detach().numpy().swapaxes(0, 1) for core in bag.cores])
    plain = bag_of("three", "all")
    plain.load_cores(held)
    indices, offsets, _, slope = batch()
    found = []
    for one in (bag, plain):
        out = one(indices, offsets)
        (out * slope).sum().backward()
        found.append((out.detach(), [core.grad for core in one.cores]))
    assert torch.equal(found[0][0], found[1][0])
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))
    assert np.array_equal(bag.values(), plain.values())
    assert all(np.array_equal(a, b) for a, b in zip(bag.tt_cores(), held, strict=True))
    assert not any(np.array_equal(core.detach().numpy().swapaxes(0, 1), b) for core, b in zip(bag.cores, held))


def test_steps_below_a_unit_of_block16_add_up():
    """Each would be rounded away by itself: an eighth of a unit, which is 2^-12 at values of 1.5."""
    bag = bag_of("two", "all", tt_format="block16", rate=2.0**-15)
    bag.load_cores([np.full(core.shape, 1.5) for core in bag.tt_cores()])
    before = bag.values()
    for _ in range(5):
        found = bag(torch.arange(ROWS), torch.arange(ROWS))
        assert np.array_equal(found.detach().numpy(), before)
        bag._step("cores.0", torch.ones_like(bag.cores[0]))
    assert (bag.values() < before).all()


def test_a_format_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="tt_format is 'float16'; it must be one of float32, block16"):
        bag_of(tt_format="float16")
