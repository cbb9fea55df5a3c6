"""Models of PyTorch and TorchRec with their tables on cards whose cores are the oracle; skipped without these."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import hotrail  # noqa: E402
from fpga.api.torch_modules import _found  # noqa: E402
from gen.data.checkpoint import read  # noqa: E402
from gen.data.logs import of_arrays  # noqa: E402
from tests.support.oracle_cards import opened_by  # noqa: E402

SAMPLES = 300
RANDOM = np.random.default_rng(8)
SEEN = np.concatenate([[0], np.cumsum(RANDOM.integers(0, 6, SAMPLES))])
COLUMNS = {"user": RANDOM.zipf(1.4, SAMPLES) % 50, "item": RANDOM.integers(0, 70, SAMPLES),
           "seen": RANDOM.zipf(1.3, SEEN[-1]) % 70}
LAYOUT = {"preset": "tiny", "cards": 2, "batch": 64}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def cards(monkeypatch):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    return opened_by(monkeypatch)


def log(**columns):
    return of_arrays(columns or COLUMNS, {"seen": SEEN} if not columns else None)


class Model(torch.nn.Module):
    """Two columns of items look up one table."""

    def __init__(self):
        super().__init__()
        self.user = torch.nn.Embedding(50, 8)
        self.sparse = torch.nn.ModuleDict({"item": torch.nn.EmbeddingBag(70, 8, mode="sum", padding_idx=0)})
        self.top = torch.nn.Linear(24, 1)

    def forward(self, user, item, seen, offsets):
        table = self.sparse["item"]
        return self.top(torch.cat([self.user(user), table(item[:, None]), table(seen, offsets)], dim=1))


def batch(start, stop):
    return (*(torch.from_numpy(COLUMNS[name][start:stop]) for name in ("user", "item")),
            torch.from_numpy(COLUMNS["seen"][SEEN[start]:SEEN[stop]]), torch.from_numpy(SEEN[start:stop] - SEEN[start]))


def test_a_model_of_torch(cards, tmp_path):
    model = Model().eval()
    on_cards = hotrail.compile(model, log(), out=tmp_path / "bundle", columns={"sparse.item": ("item", "seen")},
                               **LAYOUT)
    with torch.no_grad():
        for start in (0, 100):
            torch.testing.assert_close(on_cards(*batch(start, start + 90)), model(*batch(start, start + 90)), **CLOSE)
    assert isinstance(model.user, torch.nn.Embedding) and "table='sparse.item'" in repr(on_cards)
    assert list(on_cards.state_dict()) == ["top.weight", "top.bias"]
    assert [name for name, each in on_cards.named_parameters() if each.numel()] == ["top.weight", "top.bias"]
    assert hotrail.verify(on_cards.cards.bundle, log(), SAMPLES).different == ""
    assert len(cards) == 4      # two of the model, two that verified
    on_cards.cards.close()
    assert cards[0].closed and cards[1].closed


def test_a_table_by_itself(cards, tmp_path):
    table = torch.nn.Embedding(50, 8)
    on_cards = hotrail.compile(table, log(Embedding=COLUMNS["user"]), out=tmp_path / "bundle", **LAYOUT)
    indices = torch.randint(0, 50, (3, 4, 2))
    assert torch.equal(on_cards(indices), table(indices))
    assert on_cards(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3, 8)
    with pytest.raises(ValueError, match="table Embedding: the index 50 is no row from 0 to 49"):
        on_cards(torch.tensor([1, 50]))


def test_ids_that_are_no_rows(cards, tmp_path):
    """The log has ids, the model is called with rows."""
    table, rows = torch.nn.EmbeddingBag(50, 8, mode="mean"), RANDOM.permutation(50)
    ids = {int(each) + 1000: row for row, each in enumerate(rows[:30])}
    on_cards = hotrail.compile(table, log(EmbeddingBag=COLUMNS["user"] + 1000), ids={"EmbeddingBag": ids},
                               out=tmp_path / "bundle", **LAYOUT)
    indices = torch.randint(0, 50, (40, 3))
    torch.testing.assert_close(on_cards(indices), table(indices), **CLOSE)
    with pytest.raises(ValueError, match="table EmbeddingBag: offsets must begin with 0, not with 2"):
        on_cards(indices.reshape(-1), torch.tensor([2, 5]))


def test_what_does_not_fit(cards, tmp_path):
    with pytest.raises(ValueError, match="Linear has no embedding tables: no torch.nn.EmbeddingBag"):
        hotrail.compile(torch.nn.Linear(2, 2), log())
    with pytest.raises(ValueError, match="max_norm = 1.0 changes rows as they are read, which a card does not"):
        hotrail.compile(torch.nn.Embedding(3, 4, max_norm=1.0), log())
    for wrong in ({"card": "twn"}, {"device": "smartsd"}, {"preset": "tinyy"}):      # before the log is read
        with pytest.raises((hotrail.CardError, ValueError), match="there is no (kind of card|device|preset) '"):
            hotrail.compile(torch.nn.Embedding(4, 4), "no.csv", **wrong)
    with pytest.raises(ValueError, match="table user: arrays has no column 'x'; it has user, item, seen"):
        hotrail.compile(Model(), log(), columns={"user": "x"}, out=tmp_path / "bundle", **LAYOUT)


# TorchRec.

@pytest.fixture
def torchrec():
    return pytest.importorskip("torchrec", reason="needs the extra torchrec")


def collection(torchrec, **options):
    configs = [torchrec.EmbeddingBagConfig(name="t_item", embedding_dim=8, num_embeddings=70,
                                           feature_names=["item", "seen"]),
               torchrec.EmbeddingBagConfig(name="t_user", embedding_dim=16, num_embeddings=50, feature_names=["user"],
                                           pooling=torchrec.PoolingType.MEAN)]
    return torchrec.EmbeddingBagCollection(tables=configs, **options)


def jagged(torchrec, samples, columns=COLUMNS, weights=None):
    """The first samples as TorchRec has them."""
    edges = {name: SEEN if name == "seen" else np.arange(SAMPLES + 1) for name in ("item", "seen", "user")}
    values = np.concatenate([columns[name][:edge[samples]] for name, edge in edges.items()])
    lengths = np.concatenate([np.diff(edge)[:samples] for edge in edges.values()])
    return torchrec.KeyedJaggedTensor(keys=list(edges), values=torch.from_numpy(values),
                                      lengths=torch.from_numpy(lengths),
                                      weights=None if weights is None else weights[:len(values)])


def same(on_cards, model, features):
    with torch.no_grad():
        got, wanted = on_cards(features), model(features)
    assert type(got) is type(wanted) and got.keys() == wanted.keys()
    assert got.length_per_key() == wanted.length_per_key()
    torch.testing.assert_close(got.values(), wanted.values().float(), **CLOSE)


def test_a_collection(cards, torchrec, tmp_path):
    model = collection(torchrec)
    on_cards = hotrail.compile(model, log(), out=tmp_path / "bundle", **LAYOUT)
    runs = [card.runs for card in cards]
    same(on_cards, model, jagged(torchrec, 100))
    assert max(card.runs - before for card, before in zip(cards, runs)) == 1     # one run of a card for all tables
    assert on_cards.embedding_bag_configs() == model.embedding_bag_configs()


@pytest.mark.parametrize("quantised", [False, True])
def test_sequences(cards, torchrec, tmp_path, quantised):
    configs = [torchrec.EmbeddingConfig(name="t_item", embedding_dim=8, num_embeddings=70,
                                        feature_names=["item", "seen"]),
               torchrec.EmbeddingConfig(name="t_user", embedding_dim=8, num_embeddings=50, feature_names=["user"])]
    model = torchrec.EmbeddingCollection(tables=configs)
    if quantised:
        from torchrec.quant.embedding_modules import EmbeddingCollection

        observer = torch.quantization.PlaceholderObserver
        model.qconfig = torch.quantization.QConfig(activation=observer.with_args(dtype=torch.float),
                                                   weight=observer.with_args(dtype=torch.qint8))
        model = EmbeddingCollection.from_float(model)
    on_cards = hotrail.compile(model, log(), out=tmp_path / "bundle", **LAYOUT)
    for features in (jagged(torchrec, 80), torchrec.KeyedJaggedTensor.from_lengths_sync(
            ["item", "seen", "user"], torch.tensor([3, 4]), torch.tensor([1, 0, 1]))):
        with torch.no_grad():
            got, wanted = on_cards(features), model(features)
        assert list(got) == list(wanted)
        for key, each in got.items():
            torch.testing.assert_close(each.values(), wanted[key].values(), **CLOSE)
            assert torch.equal(each.lengths(), wanted[key].lengths())


def test_a_weighted_collection(cards, torchrec, tmp_path):
    configs = [torchrec.EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=70,
                                           feature_names=["item", "seen", "user"])]
    model = torchrec.EmbeddingBagCollection(tables=configs, is_weighted=True)
    on_cards = hotrail.compile(model, log(), out=tmp_path / "bundle", **LAYOUT)
    same(on_cards, model, jagged(torchrec, 50, weights=torch.rand(10_000)))


def test_two_tables_of_one_column(cards, torchrec, tmp_path):
    configs = [torchrec.EmbeddingBagConfig(name=name, embedding_dim=8, num_embeddings=70, feature_names=["item", other])
               for name, other in (("wide", "seen"), ("deep", "user"))]
    model = torchrec.EmbeddingBagCollection(tables=configs)
    on_cards = hotrail.compile(model, log(), out=tmp_path / "bundle", **LAYOUT)
    same(on_cards, model, jagged(torchrec, 50))


def test_two_collections_with_a_table_of_one_name(torchrec):
    model = torch.nn.ModuleList([collection(torchrec), collection(torchrec)])
    with pytest.raises(ValueError, match="ModuleList has 4 tables, more than one of them named 't_item'"):
        hotrail.compile(model, log())


@pytest.mark.parametrize("kind", ["qint8", "quint4x2", "float16"])
def test_a_quantised_collection(cards, torchrec, tmp_path, kind):
    from torchrec.quant import EmbeddingBagCollection

    model = collection(torchrec)
    observer = torch.quantization.PlaceholderObserver
    model.qconfig = torch.quantization.QConfig(activation=observer.with_args(dtype=torch.float),
                                               weight=observer.with_args(dtype=getattr(torch, kind)))
    quantised = EmbeddingBagCollection.from_float(model)
    on_cards = hotrail.compile(quantised, log(), out=tmp_path / "bundle", **LAYOUT)
    same(on_cards, quantised, jagged(torchrec, 60))


def test_a_quantised_state_dict(torchrec):
    """As torch.save would write it, with scale and bias apart."""
    from torchrec.quant import EmbeddingBagCollection
    from torchrec.quant.embedding_modules import quant_prep_enable_quant_state_dict_split_scale_bias

    model = collection(torchrec)
    observer = torch.quantization.PlaceholderObserver
    model.qconfig = torch.quantization.QConfig(activation=observer.with_args(dtype=torch.float),
                                               weight=observer.with_args(dtype=torch.qint8))
    quant_prep_enable_quant_state_dict_split_scale_bias(model)
    quantised = EmbeddingBagCollection.from_float(model)
    of_state = {table.name: table.array for table in read(quantised.state_dict())}
    of_module = {table.name: table.array for each in _found(quantised) for table in each.tables}
    assert set(of_state) == set(of_module) == {"t_item", "t_user"}
    for name, array in of_state.items():
        np.testing.assert_array_equal(array, of_module[name])


def test_managed_collisions(cards, torchrec, tmp_path):
    """The log has raw ids; TorchRec's own module makes rows of them, in the model and in the bundle."""
    from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
    from torchrec.modules.mc_modules import (
        DistanceLFU_EvictionPolicy,
        ManagedCollisionCollection,
        MCHManagedCollisionModule,
    )

    config = torchrec.EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=20, feature_names=["user"])
    managed = MCHManagedCollisionModule(zch_size=20, device=torch.device("cpu"), eviction_interval=1,
                                        eviction_policy=DistanceLFU_EvictionPolicy())
    model = ManagedCollisionEmbeddingBagCollection(
        torchrec.EmbeddingBagCollection(tables=[config]),
        ManagedCollisionCollection({"t": managed}, [config]))
    raw = COLUMNS["user"] * 97 + 5
    features = torchrec.KeyedJaggedTensor(keys=["user"], values=torch.from_numpy(raw),
                                          lengths=torch.ones(SAMPLES).long())
    for _ in range(3):
        model(features)
    model.eval()
    known = log(user=raw)
    on_cards = hotrail.compile(model, known, out=tmp_path / "bundle", **LAYOUT)
    with torch.no_grad():
        wanted, got = model(features)[0].values(), on_cards(features)[0].values()
    torch.testing.assert_close(got, wanted, **CLOSE)
    from fpga.api.serving import Cards, serve

    with Cards(on_cards.cards.bundle) as opened:
        served = np.concatenate([each.done.vectors["user"] for each in serve(opened, known, SAMPLES)])
    assert len(np.unique(wanted.numpy(), axis=0)) > 10
    np.testing.assert_array_equal(served, wanted.numpy())
