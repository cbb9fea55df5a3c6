"""Mini-batches in Hotline's order: what each holds, what is trained by them, and what the cache has to fetch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

from hotrail.training import CachedEmbeddingBag, DispatchLoader  # noqa: E402

ROWS, SMALL, DIM, SIZE = 2000, 30, 8, 32


class Log(Dataset):
    """Samples (number, three items by Zipf, one day)."""

    def __init__(self, samples, seed=1):
        random = np.random.default_rng(seed)
        self.items = torch.from_numpy(np.minimum(random.zipf(1.4, (samples, 3)), ROWS) - 1)
        self.days = torch.from_numpy(random.integers(0, SMALL, samples))

    def __len__(self):
        return len(self.days)

    def __getitem__(self, number):
        return number, self.items[number], self.days[number]


class Stream(IterableDataset):
    def __init__(self, log):
        self.log = log

    def __iter__(self):
        return (self.log[number] for number in range(len(self.log)))


def bags():
    return (CachedEmbeddingBag(ROWS, DIM, cache_rows=400, rate=0.1), CachedEmbeddingBag(SMALL, DIM, cache_rows=SMALL,
                                                                                      rate=0.1))


def loader_of(log, item, day, **options):
    return DispatchLoader(log, {item: lambda sample: sample[1], day: lambda sample: sample[2]}, batch_size=SIZE,
                          **{"learn": 300, **options})


@pytest.mark.parametrize("samples, drop_last", [(640, False), (1001, False), (1001, True), (5, False), (0, False)])
@pytest.mark.parametrize("kind", [Log, lambda samples: Stream(Log(samples))])
def test_all_samples_in_as_many_mini_batches(samples, drop_last, kind):
    item, day = bags()
    loader = loader_of(kind(samples), item, day, drop_last=drop_last)
    found = []
    for numbers, items, days in loader:
        kept = torch.isin(items, torch.from_numpy(loader._rows.of("0"))).all(1)
        assert kept.all() or not loader.is_popular
        found.append((loader.is_popular, numbers))
        for bag, indices in ((item, items), (day, days[:, None])):
            bag(indices).sum().backward()
    plain = DataLoader(Log(samples), SIZE, drop_last=drop_last)
    assert [len(numbers) for _, numbers in found] == [len(numbers) for numbers, *_ in plain]
    every = torch.cat([torch.zeros(0), *(numbers for _, numbers in found)]).long()
    assert len(every.unique()) == len(every) and (drop_last or len(every) == samples)
    if samples > 500:
        assert 0.2 < np.mean([popular for popular, _ in found]) < 0.9
        assert loader.popular_batches + loader.other_batches == len(found)
        order = [popular for popular, _ in found[:-2]]
        assert (False, False) not in zip(order, order[1:], strict=False), "a popular one comes between two others"


def test_what_it_trains_equals_torch_and_popular_ones_fetch_nothing():
    log = Log(1200)
    item, day = bags()
    plain = torch.nn.EmbeddingBag.from_pretrained(item.table().clone(), freeze=False, mode="sum")
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    loader = loader_of(log, item, day, fetch=0, depth=0)
    seen = []
    for _ in range(2):
        for _, items, days in loader:
            before = item.moved
            found = item(items)
            assert not loader.is_popular or item.moved == before
            day(days[:, None])
            wanted = plain(items)
            assert torch.equal(found, wanted)
            for one in (found, wanted):
                one.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(items)
    assert torch.equal(item.table(), plain.weight)
    again = loader_of(log, *bags(), num_workers=2)
    assert all(torch.equal(one, two) for (_, one, _), two in zip(again, seen[:len(again)], strict=True))


def test_a_bag_without_a_number_of_popular_rows_has_its_own():
    item, day = bags()
    loader = loader_of(Log(320), item, day, popular={item: 20})
    assert len(list(loader)) == 10 and len(loader._rows.of("0")) <= 20 and len(loader._rows.of("1")) == SMALL


def test_parts_of_ranks_are_the_whole():
    log, parts = Log(300), []
    whole = [numbers for numbers, *_ in loader_of(log, *bags())]
    for rank in range(3):
        parts.append([numbers for numbers, *_ in loader_of(log, *bags(), rank=rank, ranks=3)])
    assert all(torch.equal(torch.cat(part), one) for part, one in zip(zip(*parts, strict=True), whole, strict=True))


def test_wrong():
    item, day = bags()
    with pytest.raises(ValueError, match="makes the batches itself: batch_size must be a number"):
        DispatchLoader(Log(9), {}, batch_size=None)
    with pytest.raises(ValueError, match="rank 3 of 3 with batch_size 32"):
        loader_of(Log(9), item, day, rank=3, ranks=3)
    for rank in range(3):
        with pytest.raises(ValueError, match="a mini-batch has 1 samples, and some of 3 ranks none: drop_last=True"):
            list(loader_of(Log(SIZE + 1), item, day, rank=rank, ranks=3))
    assert len(list(loader_of(Log(SIZE + 1), item, day, rank=2, ranks=3, collate_fn=len))) == 2
    log = Log(40)
    log.items[7, 1] = ROWS
    with pytest.raises(IndexError, match=f"table 0: index {ROWS} is none of its {ROWS} rows"):
        list(loader_of(log, item, day))


@pytest.mark.parametrize("given", [torch.tensor([1.5]), [2.0, 3.0], torch.tensor([True])])
def test_indices_are_integers(given):
    bag = CachedEmbeddingBag(SMALL, DIM, cache_rows=SMALL, rate=0.1)
    with pytest.raises(TypeError, match=r"lookup 0 of the DispatchLoader gives .* indices, such as .*; indices are"):
        next(iter(DispatchLoader([0], {bag: lambda sample: given})))
