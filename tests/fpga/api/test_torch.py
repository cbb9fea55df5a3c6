"""The PyTorch module against torch.nn.functional.embedding_bag; skipped where torch is not installed."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from fpga.api.torch import EmbeddingBag, table_of  # noqa: E402
from tests.fpga.api.test_embedding import opened  # noqa: E402
from tests.support import emb_tables as make  # noqa: E402

ROWS, DIM = 120, 10


@pytest.fixture
def weight():
    torch.set_num_threads(1)
    return torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1))


def module(weight, **options):
    """A module over DRAM and SSD with the rows of `weight`."""
    table = table_of(torch.nn.EmbeddingBag.from_pretrained(weight), "items", np.arange(ROWS) % 2 * 2)
    return EmbeddingBag(opened([table], cache_rows={"items": 7}), "items", **options)


def bags(random, last=False):
    indices, offsets = make.bags(random, ROWS, 40, 9)
    return torch.from_numpy(indices), torch.from_numpy(offsets if last else offsets[:-1])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets(weight, mode, padding, last):
    indices, offsets = bags(np.random.default_rng(1), last)
    if padding is not None:
        indices[::4] = padding % ROWS
    got = module(weight, mode=mode, include_last_offset=last, padding_idx=padding)(indices, offsets)
    want = torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode, include_last_offset=last,
                                             padding_idx=padding)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_default_mode_and_bags_of_one_length(weight):
    indices = torch.randint(0, ROWS, (6, 4), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(module(weight)(indices), torch.nn.EmbeddingBag.from_pretrained(weight)(indices),
                               rtol=1e-5, atol=1e-5)


def test_weights(weight):
    indices, offsets = bags(np.random.default_rng(3))
    factors = torch.randn(len(indices), generator=torch.Generator().manual_seed(3))
    part = module(weight, mode="sum")
    want = torch.nn.functional.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=factors)
    torch.testing.assert_close(part(indices, offsets, factors), want, rtol=1e-5, atol=1e-5)
    factors.requires_grad_()
    with pytest.raises(ValueError, match="per_sample_weights wants a gradient, which a card does not give"):
        part(indices, offsets, factors)
    with torch.no_grad():
        torch.testing.assert_close(part(indices, offsets, factors), want, rtol=1e-5, atol=1e-5)


def test_in_a_model(weight):
    part = module(weight, mode="sum")
    model = torch.nn.Sequential(part, torch.nn.Linear(DIM, 2))
    indices = torch.arange(12).reshape(3, 4)
    assert model(indices).shape == (3, 2) and "items" in repr(model)
    assert not part(indices).requires_grad and not any(each.numel() for each in part.parameters())
    assert next(part.parameters()).dtype is torch.float32 and list(model.state_dict()) == ["1.weight", "1.bias"]
    model.load_state_dict(model.state_dict())


def test_its_parameter_is_no_table(weight):
    part = module(weight, mode="sum")
    empty = next(copy.deepcopy(part).half().to("cpu").parameters())
    assert empty.dtype is torch.float16 and torch.equal(torch.ones(2).to(empty), torch.ones(2, dtype=torch.float16))
    assert torch.equal(empty.new_zeros(3), torch.zeros(3).half()) and next(part.parameters()).dtype is torch.float32
    for wants_rows in (torch.Tensor.norm, torch.nn.functional.normalize, lambda rows: rows.data.sum(),
                       lambda rows: rows.T, lambda rows: torch.cat([rows, rows]), lambda rows: rows ** 2,
                       lambda rows: rows[0], lambda rows: torch.clone(input=rows).sum()):
        with pytest.raises(ValueError, match="of a parameter whose rows are on cards: ask the weight of its module"):
            wants_rows(empty)


def test_wrong(weight):
    with pytest.raises(ValueError, match="there is no table 'x'; there are items"):
        EmbeddingBag(module(weight).bags, "x")
