"""Collections under TorchRec's interface against torch's own bags, and tables that are tensor trains."""

from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from hotrail.training import CachedEmbeddingBagCollection, TensorTrainBag, ahead  # noqa: E402

BATCH, RATE = 12, 0.1


@dataclass
class Config:
    name: str
    embedding_dim: int
    num_embeddings: int
    feature_names: list
    pooling: str = "SUM"


class Jagged:
    """One feature of torchrec.KeyedJaggedTensor: up to four indices a sample."""

    def __init__(self, rows, random):
        lengths = torch.randint(0, 5, (BATCH,), generator=random)
        self._offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        self._values = torch.randint(0, rows, (int(self._offsets[-1]),), generator=random)
        self._weights = torch.rand(len(self._values), generator=random)

    def values(self):
        return self._values

    def offsets(self):
        return self._offsets

    def weights(self):
        return self._weights


ITEM, DAY = Config("t_item", 8, 500, ["seen", "bought"]), Config("t_day", 4, 9, ["day"], "MEAN")


def features(count, seed=1):
    random = torch.Generator().manual_seed(seed)
    return [{name: Jagged(table.num_embeddings, random) for table in (ITEM, DAY) for name in table.feature_names}
            for _ in range(count)]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_equals_torch(is_weighted):
    configs = [ITEM] if is_weighted else [ITEM, DAY]
    tables = CachedEmbeddingBagCollection(configs, cache_rows={"t_item": 150}, rate=RATE, is_weighted=is_weighted)
    assert tables.embedding_bag_configs() == configs and tables.is_weighted() == is_weighted
    plain = {table.name: torch.nn.EmbeddingBag.from_pretrained(
        tables.embedding_bags[table.name].table().clone(), freeze=False, mode=table.pooling.lower(),
        include_last_offset=True) for table in configs}
    optimizer = torch.optim.SGD([bag.weight for bag in plain.values()], lr=RATE)
    for batch in ahead(features(15), tables.lookups(lambda batch: batch), depth=3):
        found = tables(batch)
        assert found.keys() == [name for table in configs for name in table.feature_names]
        wanted = {name: plain[table.name](batch[name].values(), batch[name].offsets(),
                                          batch[name].weights() if is_weighted else None)
                  for table in configs for name in table.feature_names}
        for name, vectors in wanted.items():
            # Of two features, torch adds the sums of each; one lookup adds them one by one.
            torch.testing.assert_close(found[name], vectors, rtol=1e-5 if name != "day" else 0, atol=1e-7)
        assert torch.equal(found.values(), torch.cat([found[name] for name in wanted], dim=1))
        assert list(found.to_dict()) == found.keys()
        sum(each.sin().sum() for each in wanted.values()).backward()
        found.values().sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert list(tables.state_dict()) == [f"embedding_bags.{table.name}.weight" for table in configs]
    for table in configs:
        torch.testing.assert_close(tables.state_dict()[f"embedding_bags.{table.name}.weight"], plain[table.name].weight,
                                   rtol=1e-5, atol=1e-7)


def test_features_that_two_tables_share_are_named_by_table():
    other = Config("t_other", 4, 500, ["seen"])
    tables = CachedEmbeddingBagCollection([ITEM, other], cache_rows={}, rate=RATE)
    assert tables(features(1)[0]).keys() == ["seen@t_item", "bought", "seen@t_other"]


def test_a_tensor_train_learns_what_a_dense_table_does():
    """Of full rank it holds any table: its loss falls as the dense one's, whose hottest rows are the same."""
    tables = CachedEmbeddingBagCollection([Config("t", 8, 64, ["one"])], cache_rows={"t": 10}, rate=RATE,
                                          heat={"t": np.arange(64)},
                                          tensor_trains={"t": {"rank": 16, "rule": "adagrad", "std": 0.1}})
    bag = tables.embedding_bags["t"]
    assert bag.dense.shape == (10, 8) and not bag.warm[54:].any() and bag.warm[:54].all()
    target, losses = torch.randn(64, 8, generator=torch.Generator().manual_seed(2)), []
    every = torch.arange(64)
    for _ in range(400):
        loss = (bag(every, every[:1].new_tensor(range(65))) - target).square().mean()
        loss.backward()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.05 * losses[0]
    torch.testing.assert_close(bag(every[:, None]).detach(), bag.table(), rtol=1e-4, atol=1e-5)


def test_order_numbers_the_rows_of_a_tensor_train():
    order = np.roll(np.arange(20), 7)
    bag = TensorTrainBag(20, 4, rate=RATE, order=order)
    assert bag.number.tolist() == order.tolist()


@pytest.mark.parametrize("indices", [[1, 4, 1], []])
@pytest.mark.parametrize("rows", [20, 400])
def test_a_mini_batch_without_a_row_of_the_tensor_train(indices, rows):
    bag = TensorTrainBag(rows, 4, cache_rows=5, rate=RATE, rank=2)
    before = bag.table()
    bag(torch.tensor(indices, dtype=torch.long), torch.tensor([0, 1 if indices else 0])).sum().backward()
    before.index_add_(0, torch.tensor(indices, dtype=torch.long), torch.full((len(indices), 4), -RATE))
    torch.testing.assert_close(bag.table(), before)


def test_wrong():
    for tables, options, sentence in (
            ([], {}, "tables are none: there must be at least one"),
            ([ITEM, ITEM], {}, "tables are t_item, t_item"),
            ([ITEM], {"heat": {"t_day": [1]}}, "heat has 't_day', which is none of the tables t_item"),
            ([DAY], {"is_weighted": True}, "weighted features are summed, and its pooling is mean"),
            ([Config("t", 4, 9, ["a", "a"])], {}, "its features a, a are not different")):
        with pytest.raises(ValueError, match=sentence):
            CachedEmbeddingBagCollection(tables, **{"cache_rows": {}, "rate": RATE, **options})
    with pytest.raises(ValueError, match="cache_rows is 20; it must be 0 to 19"):
        TensorTrainBag(20, 4, cache_rows=20, rate=RATE)
    with pytest.raises(IndexError, match="index 20 is none of the table's 20 rows"):
        TensorTrainBag(20, 4, rate=RATE)(torch.tensor([[20]]))
    with pytest.raises(ValueError, match="rate is -1.0; it must be a number from 0 on"):
        TensorTrainBag(20, 4, rate=-1.0)
    with pytest.raises(ValueError, match="the last offset is 1, and there are 2 indices"):
        TensorTrainBag(20, 4, rate=RATE, include_last_offset=True)(torch.tensor([3, 4]), torch.tensor([0, 1]))


def test_takes_the_place_of_torchrec():
    """Its configurations, features and state; vectors in its own form."""
    torchrec = pytest.importorskip("torchrec", reason="needs the extra torchrec")
    configs = [torchrec.EmbeddingBagConfig(
        name=table.name, embedding_dim=table.embedding_dim, num_embeddings=table.num_embeddings,
        feature_names=table.feature_names, pooling=getattr(torchrec.PoolingType, table.pooling))
        for table in (ITEM, DAY)]
    theirs = torchrec.EmbeddingBagCollection(tables=configs)
    ours = CachedEmbeddingBagCollection(theirs.embedding_bag_configs(), cache_rows={"t_item": 150}, rate=RATE)
    ours.load_state_dict(theirs.state_dict())
    optimizer = torch.optim.SGD(theirs.parameters(), lr=RATE)
    given = [torchrec.KeyedJaggedTensor.from_jt_dict(
        {name: torchrec.JaggedTensor(part.values(), offsets=part.offsets()) for name, part in batch.items()})
        for batch in features(10)]
    for batch in ahead(given, ours.lookups(lambda batch: batch)):
        found, wanted = ours(batch), theirs(batch)
        assert type(found) is type(wanted) and found.keys() == wanted.keys()
        torch.testing.assert_close(found.values(), wanted.values(), rtol=1e-5, atol=1e-7)
        for one in (found, wanted):
            one.values().sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=1e-5, atol=1e-7)
