"""What hotrail.compile understands of a model gives the model's own values; all else is refused at once, by a sentence.

Skipped without torch, in parts without TorchRec. The cards' cores are the oracle.
"""

import copy
import io
import threading
from functools import partial
from types import MethodType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import hotrail  # noqa: E402
from fpga.api.torch import OnCards  # noqa: E402
from gen.data.logs import of_arrays  # noqa: E402
from gen.delta import write as change  # noqa: E402
from tests.support.oracle_cards import opened_by  # noqa: E402

nn = torch.nn
COLUMNS = {"user": np.arange(200) % 50, "item": np.arange(200) % 30}
U, I = torch.tensor([3, 7, 49, 0]), torch.tensor([5, 5, 29, 0])


class Model(nn.Module):
    """A module `user` that a test gives, beside a plain one."""

    def __init__(self, user=None):
        super().__init__()
        self.user, self.item = user or nn.Embedding(50, 8), nn.Embedding(30, 8, padding_idx=2)

    def forward(self, user, item):
        return self.user(user) + self.item(item)


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    opened_by(monkeypatch)
    return lambda model, **options: hotrail.compile(model, of_arrays(COLUMNS, None), out=tmp_path / "bundle",
                                                    preset="tiny", cards=1, batch=64, **options)


def refused(model):
    with pytest.raises(ValueError) as error:
        hotrail.compile(model, "no log is read")
    return str(error.value)


class Scaled(nn.Embedding):
    def forward(self, input):
        return super().forward(input) * 4


class Called(nn.Embedding):
    def __call__(self, input):
        return super().__call__(input) * 4


class Scored(nn.Embedding):
    def scores(self, vectors):
        return vectors @ self.weight.T


class Initialised(nn.Embedding):
    """A start of its own, and nothing else."""

    def __init__(self, rows, dim):
        super().__init__(rows, dim)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.uniform_(self.weight)


class Subtensor(nn.Parameter):
    pass


def changed(change, *arguments, **named):
    """An embedding that a function of it, or one of its methods, has changed."""
    module = nn.Embedding(50, 8)
    (getattr(module, change) if isinstance(change, str) else lambda *more, **others: change(module, *more, **others))(
        *arguments, **named)
    return module


@pytest.mark.parametrize("make, sentence", [
    (lambda: Scaled(50, 8), "is a Scaled, that is torch.nn.Embedding with forward of its own"),
    (lambda: Called(50, 8), "is a Called, that is torch.nn.Embedding with __call__ of its own"),
    (lambda: Scored(50, 8), "is a Scored, that is torch.nn.Embedding with scores of its own"),
    (lambda: changed("register_forward_hook", lambda *_: None), "has a forward hook (<lambda>"),
    (lambda: changed("register_forward_pre_hook", lambda *_: None), "has a forward pre-hook (<lambda>"),
    (lambda: changed(setattr, "forward", lambda input: 0), ": forward was set on the module itself"),
    (lambda: changed(nn.utils.weight_norm), "has a forward pre-hook (WeightNorm)"),
    (lambda: changed(nn.utils.parametrizations.spectral_norm), ": parametrizations.weight makes its weight of other"),
    (lambda: changed("register_buffer", "mask", torch.ones(2)), ": mask is a tensor or module of its own"),
    (lambda: changed("register_parameter", "scale", nn.Parameter(torch.ones(1))), ": scale is a tensor or module"),
    (lambda: changed("add_module", "top", nn.Linear(2, 2)), ": top is a tensor or module of its own"),
    (lambda: nn.Embedding(50, 8, max_norm=2.0), ": max_norm = 2.0 changes rows as they are read"),
    (lambda: nn.EmbeddingBag(50, 8, max_norm=2.0), ": max_norm = 2.0 changes rows as they are read"),
    (lambda: nn.Embedding(50, 8, device="meta"), ": its weight is on the device meta and has no values yet"),
    (lambda: nn.Embedding(50, 8, dtype=torch.float64), ": its weight is torch.float64 and has values that float32"),
    (lambda: nn.Embedding(50, 8, dtype=torch.complex64), ": its weight is a tensor of torch.complex64"),
    (lambda: changed(setattr, "weight", Subtensor(torch.ones(50, 8))), ": its weight is a Subtensor, not a plain"),
])
def test_what_a_table_does_beyond_its_rows_is_refused(make, sentence):
    assert f"module user{sentence if sentence[0] == ':' else ' ' + sentence}" in refused(Model(make()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_that_hold_their_tables_themselves_are_refused(compiled):
    assert "module user is Embedding of TorchScript, which holds its tables itself" in refused(
        torch.jit.trace(Model(), (U, I)))
    assert "module Model is compiled by torch.compile with fullgraph=True, which a call of a card breaks" in refused(
        torch.compile(Model(), backend="eager", fullgraph=True)).replace("OptimizedModule", "Model")
    Model_of_one_graph = type("Model", (Model,), {
        "forward": torch.compile(Model.forward, backend="eager", fullgraph=True)})
    assert "module Model is compiled by torch.compile with fullgraph=True" in refused(Model_of_one_graph())
    locked, model = Model(), Model()
    locked.lock = threading.Lock()
    with pytest.raises(ValueError, match="Model cannot be copied by copy.deepcopy: cannot pickle"):
        compiled(locked)
    model.__class__ = type("Model", (Model,), {"__deepcopy__": lambda self, memo: self})
    with pytest.raises(ValueError, match="the copy of Model keeps its table user"):
        compiled(model)


def test_a_class_whose_forward_another_has_changed_is_refused(monkeypatch):
    plain = nn.Embedding.forward
    monkeypatch.setattr(nn.Embedding, "forward", lambda self, input: plain(self, input) * 2)
    sentence = refused(Model())
    assert f"module user: torch.nn.Embedding has a forward of {__name__}, which a card would not call" in sentence


@pytest.mark.filterwarnings("ignore")
def test_tables_that_torch_has_quantised_are_refused():
    from torch.ao.quantization import convert, float_qparams_weight_only_qconfig, prepare

    model = Model(nn.EmbeddingBag(50, 8, mode="sum")).eval()
    model.user.qconfig = float_qparams_weight_only_qconfig
    model = convert(prepare(model))
    assert "module user is a torch.ao.nn.quantized.modules.embedding_ops.EmbeddingBag, whose tables" in refused(model)


class Reader(Model):
    """Looks at its tables past their forward, and at what they are."""

    def __init__(self):
        super().__init__(Initialised(50, 8))
        self.user.scale, self.out = 2.0, nn.Linear(8, 30, bias=False)
        self.out.weight = self.item.weight      # tied

    def forward(self, user, item):
        vectors = self.user(user.to(next(self.parameters()).device)) * self.user.scale
        scores = vectors @ self.item.weight.T + self.out(vectors)
        return scores * (item != self.item.padding_idx)[:, None] + nn.functional.embedding(
            item, self.item.weight).sum(1, keepdim=True)


@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_that_the_model_reads_and_its_dtype(compiled, to):
    """Rows of bfloat16 and of float64 that float32 holds are exact; what is left are the model's own sums."""
    model = Reader().to(to).eval()
    on_cards = compiled(model)
    with torch.no_grad():
        wanted, found = model(U, I), on_cards(U, I)
        assert found.dtype is to and torch.equal(found, wanted)
        assert on_cards.item.weight.dtype is to and torch.equal(on_cards.item.weight, model.item.weight)
        assert torch.equal(on_cards.get_parameter("item.weight"), model.item.weight)
        assert copy.deepcopy(on_cards).half()(U, I).dtype is torch.float16
        assert torch.equal(on_cards(U, I), wanted)


def renormalised(self, user, item):
    self.user.weight.data = nn.functional.normalize(self.user.weight.data)
    return self.user(user)


def zeroed(self, user, item):
    self.user.weight[0] = 0
    return self.user(user)


def halved(self, user, item):
    self.user.weight.detach().div_(2)
    return self.user(user)


def initialised(self, user, item):
    nn.init.normal_(self.user.weight)       # which torch hands on by keyword
    return self.user(user)


def test_slices_of_the_rows_are_copies(compiled):
    on_cards = compiled(Model())
    wanted = on_cards.user.weight.clone()
    with torch.no_grad():
        on_cards.user.weight[0].zero_()
        on_cards.user.weight.detach().numpy().fill(0)
    assert torch.equal(on_cards.user.weight, wanted)


@pytest.mark.parametrize("forward, what", [
    (renormalised, "data"), (zeroed, "__setitem__"), (halved, "div_"), (initialised, "normal_")])
def test_a_model_that_changes_its_rows_is_refused(compiled, forward, what):
    on_cards = compiled(type("Model", (Model,), {"forward": forward})())
    with torch.no_grad(), pytest.raises(ValueError, match=f"^{what} of rows that are on cards, which it would not"):
        on_cards(U, I)
    sums = torch.zeros(50, 8)
    sums += on_cards.user.weight.requires_grad_(False)
    assert type(sums) is torch.Tensor and torch.equal(sums, copy.deepcopy(on_cards.user.weight))


class Positions(Model):
    """Of whose positions a log has no column."""

    def __init__(self):
        super().__init__()
        self.position = Scaled(4, 8)

    def forward(self, user, item):
        return super().forward(user, item) + self.position(torch.arange(4))


def test_a_table_that_stays_in_torch(compiled):
    model = Positions()
    on_cards = compiled(model, columns={"position": None})
    with torch.no_grad():
        assert torch.equal(on_cards(U, I), model(U, I)) and type(on_cards.position) is Scaled
    with pytest.raises(ValueError, match="no module 'positions' with tables that can stay in torch by itself"):
        compiled(model, columns={"position": None, "positions": None})
    model.position = nn.Embedding(4, 8)
    with pytest.raises(ValueError, match=r"columns={'position': COLUMN} names the table's own, and None leaves it in"):
        compiled(model)


class Asks(Model):
    def forward(self, user, item):
        many = isinstance(self.user, nn.EmbeddingBag)
        return self.user(user.reshape(-1, 1) if many else user) * (2 if isinstance(self.item, nn.Embedding) else 1)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_a_model_that_asks_what_its_modules_are(compiled, kind):
    model = Asks(kind(50, 8))
    on_cards = compiled(model)
    with torch.no_grad():
        assert torch.equal(on_cards(U, I), model(U, I))
    assert "OnCards(30, 8, table='item')" in repr(on_cards)


def test_torch_compile_before_and_after_and_what_is_no_call(compiled):
    model = Model().eval()
    with torch.no_grad():
        wanted = model(U, I)
        before = compiled(torch.compile(model, backend="eager"))
        assert sum(isinstance(each, OnCards) for each in before.modules()) == 2
        assert torch.equal(before(U, I), wanted)
        model.user.compile(backend="eager")
        on_cards = compiled(model, columns={"user": "user"})
        assert on_cards.user._compiled_call_impl is None
        assert torch.equal(torch.compile(on_cards, backend="eager")(U, I), wanted)
    with pytest.raises(ValueError, match="a trace holds the values of one call, and no card"):
        torch.jit.trace(on_cards, (U, I))
    with pytest.raises(ValueError, match="module user is on cards already: compile the model that it was made from"):
        compiled(on_cards)
    with pytest.raises(TypeError, match="a model on cards cannot be saved"):
        torch.save(on_cards, io.BytesIO())
    with pytest.raises(TypeError, match="a table takes tensors, not a ndarray"):
        on_cards(U.numpy(), I)
    for wrong in (U.bool(), U.float()):
        with pytest.raises(ValueError, match="table user: indices must be whole numbers, not "):
            on_cards(wrong, I)


class Compiles(Model):
    """Of methods that it compiles itself, one of which reads a table."""

    def __init__(self):
        super().__init__()
        self.rows, self.half = (torch.compile(method, backend="eager") for method in (self.row, self.scale))

    def row(self, user):
        return self.user(user)

    def scale(self, vectors):
        return vectors / 2

    def forward(self, user, item):
        return self.rows(user) + self.half(self.item(item))


def test_methods_that_are_compiled_or_set_on_a_model(compiled):
    """They call the cards, as the model's call its tables: other rows of the model change nothing."""
    whole, given, partly = Model(), Model(), Model()
    whole.forward = torch.compile(whole.forward, backend="eager")
    given.forward = MethodType(lambda self, user, item: self.user(user), given)
    partly.forward = partial(Model.forward, partly)
    for model in (whole, given, partly, Compiles()):
        model.acts = [torch.relu, lambda vectors: later(vectors)]
        on_cards = compiled(model)
        with torch.no_grad():
            wanted = model(U, I)
            for table in (model.user, model.item):
                table.weight.zero_()
            assert torch.equal(on_cards(U, I), wanted)
            on_cards.forward = torch.compile(on_cards.forward, backend="eager")
            assert torch.equal(on_cards(U, I), wanted)
    later = torch.relu


NAMED = Model()
user = NAMED.user      # a name that a forward has as an attribute alone


@pytest.mark.parametrize("attribute, make", [
    ("forward", lambda model: lambda user, item: model.user(user)),
    ("forward", lambda model: lambda user, item, model=model: model.user(user)),
    ("forward", lambda model: MethodType(lambda self, user, item: model.user(user), model)),
    ("forward", lambda model: lambda user, item: NAMED.user(user)),
    ("forward", lambda model: lambda user, item: (lambda: NAMED.user(user))()),
    ("forward", lambda model: torch.compile(lambda user, item: model.user(user), backend="eager")),
    ("parts", lambda model: [{"user": partial(lambda user: model.user(user))}]),
])
def test_functions_that_keep_the_model_are_refused(attribute, make):
    NAMED.__dict__.pop("forward", None)
    assert "no log is read" in refused(NAMED)
    setattr(NAMED, attribute, make(NAMED))
    assert f"module Model: {attribute} is or has a function that keeps the Model itself, whose" in refused(NAMED)


def test_what_is_known_when_a_model_is_called(compiled):
    on_cards = compiled(Model())
    call = torch.func.functional_call
    with torch.no_grad():
        assert torch.equal(call(on_cards, dict(on_cards.named_parameters()), (U, I)), on_cards(U, I))
        with pytest.raises(ValueError, match="table 'user' is on cards, which keep its rows"):
            call(on_cards, dict(Model().named_parameters()), (U, I))
        with pytest.raises(ValueError, match="not those of torch.func.vmap or an export"):
            torch.func.vmap(on_cards)(U, I)


def test_hooks_around_a_table_and_wrappers(compiled):
    """A hook of the model runs on its copy; a wrapper's name is not the table's."""
    model = Model()
    model.register_forward_hook(lambda module, given, result: result * 2)
    with torch.no_grad():
        assert torch.equal(compiled(nn.DataParallel(model))(U, I), model(U, I))


def test_weights_of_bags_in_bfloat16(compiled):
    class Bags(Model):
        def forward(self, user, item):
            half = torch.full((4, 1), 0.5, dtype=self.user.weight.dtype)
            return self.user(user[:, None], per_sample_weights=half) + self.item(item)

    model = Bags(nn.EmbeddingBag(50, 8, mode="sum")).bfloat16()
    with torch.no_grad():
        assert torch.equal(compiled(model)(U, I), model(U, I))


def test_rows_that_a_delta_moves(compiled, tmp_path):
    model = Model()
    on_cards = compiled(model)
    base = on_cards.cards.bundle
    words = np.array(base.words("user"))
    words[[3, 7]] = words[[7, 3]]
    on_cards(U, I)
    on_cards.cards.refresh(change(tmp_path / "delta", base, base.plan, {"user": words}))
    with torch.no_grad():
        assert torch.equal(on_cards(U, I), model(U, I))


# TorchRec.

@pytest.fixture
def torchrec():
    return pytest.importorskip("torchrec", reason="needs the extra torchrec")


def bags(torchrec, *, poolings=("sum", "mean", "sum"), **options):
    """Tables a, b and c of user, item and user."""
    kinds = torchrec.PoolingType
    return torchrec.EmbeddingBagCollection(tables=[torchrec.EmbeddingBagConfig(
        name=name, embedding_dim=8, num_embeddings=50, feature_names=[feature], pooling=kinds[pooling.upper()])
        for name, feature, pooling in zip("abc", ("user", "item", "user"), poolings, strict=True)], **options)


def quantised(collection):
    from torchrec.quant import EmbeddingBagCollection

    observer = torch.quantization.PlaceholderObserver
    collection.qconfig = torch.quantization.QConfig(activation=observer.with_args(dtype=torch.float16),
                                                    weight=observer.with_args(dtype=torch.qint8))
    return EmbeddingBagCollection.from_float(collection)


def features(torchrec, **options):
    return torchrec.KeyedJaggedTensor(keys=["user", "item"], values=torch.tensor([1, 2, 3, 4, 5]),
                                      lengths=torch.tensor([1, 1, 1, 2]), **options)


def test_features_of_distinct_bags(compiled, torchrec):
    """The samples of each feature are those of its inverse indices, as TorchRec has it; results are float32."""
    model = bags(torchrec).bfloat16()
    given = torchrec.KeyedJaggedTensor(
        keys=["user", "item"], values=torch.tensor([1, 2, 3]), lengths=torch.tensor([1, 1, 1]),
        stride_per_key_per_rank=[[2], [1]], inverse_indices=(["item", "user"], torch.tensor([[0, 0, 0], [0, 1, 0]])))
    on_cards = compiled(model)
    with torch.no_grad():
        wanted, found = model(given), on_cards(given)
        assert found.keys() == wanted.keys() and torch.equal(found.values(), wanted.values())
        assert on_cards.half()(given).values().dtype is torch.float32 and not on_cards.is_weighted()
        assert torch.equal(on_cards.embedding_bags["b"].weight.float(), model.embedding_bags["b"].weight.half().float())
    uneven = torchrec.KeyedJaggedTensor(keys=["user", "item"], values=torch.tensor([1, 2, 3]),
                                        lengths=torch.tensor([1, 1, 1]), stride_per_key_per_rank=[[2], [1]])
    with pytest.raises(ValueError, match=r"different numbers of bags \(user@a 2, item 1, user@c 2\)"):
        on_cards(uneven)
    lacking = features(torchrec, inverse_indices=(["user"], torch.tensor([[0, 1, 0]])))
    with pytest.raises(ValueError, match="inverse_indices have no feature 'item'; they have user"):
        on_cards(lacking)


def test_a_quantised_collection_keeps_its_order_and_dtype(compiled, torchrec):
    """Which is that of its poolings, not of its configurations."""
    model = quantised(bags(torchrec))
    found, wanted = compiled(model)(features(torchrec)), model(features(torchrec))
    assert found.keys() == wanted.keys() == ["user@a", "user@c", "item"]
    assert found.values().dtype is wanted.values().dtype is torch.float16
    torch.testing.assert_close(found.values(), wanted.values(), rtol=1e-3, atol=1e-3)


def test_sequences_with_their_indices(compiled, torchrec):
    model = torchrec.EmbeddingCollection(need_indices=True, tables=[torchrec.EmbeddingConfig(
        name="a", embedding_dim=8, num_embeddings=50, feature_names=["user", "item"])])
    on_cards = compiled(model)
    with torch.no_grad():
        found, wanted = on_cards(features(torchrec)), model(features(torchrec))
    assert on_cards.need_indices() and on_cards.embedding_dim() == 8
    for name, each in wanted.items():
        assert torch.equal(found[name].values(), each.values()) and torch.equal(found[name].weights(), each.weights())


def test_feature_processors_around_a_collection(compiled, torchrec):
    from torchrec.modules.feature_processor_ import PositionWeightedModule
    from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

    model = FeatureProcessedEmbeddingBagCollection(
        bags(torchrec, poolings=("sum",) * 3, is_weighted=True),
        {name: PositionWeightedModule(max_feature_length=3) for name in ("user", "item")})
    with torch.no_grad():
        model._feature_processors["item"].position_weight.copy_(torch.tensor([0.5, 2, 3]))
        torch.testing.assert_close(compiled(model)(features(torchrec)).values(), model(features(torchrec)).values())


def test_ids_of_a_module_that_is_not_read(compiled, torchrec):
    from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
    from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
    from torchrec.modules.mc_modules import ManagedCollisionCollection

    config = torchrec.EmbeddingBagConfig(name="a", embedding_dim=8, num_embeddings=50, feature_names=["user"])
    hashed = HashZchManagedCollisionModule(zch_size=50, device=torch.device("cpu"), total_num_buckets=1)
    model = ManagedCollisionEmbeddingBagCollection(torchrec.EmbeddingBagCollection(tables=[config]),
                                                   ManagedCollisionCollection({"a": hashed}, [config]))
    with pytest.raises(ValueError, match="table a: a HashZchManagedCollisionModule makes rows of its ids"):
        compiled(model)


def test_ids_of_a_module_that_prunes_in_training(compiled, torchrec):
    """It makes rows of ids by a table of its own, in the model; whether the log's ids are rows must be said."""
    from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection
    from torchrec.modules.itep_modules import GenericITEPModule

    collection = torchrec.EmbeddingBagCollection(tables=[torchrec.EmbeddingBagConfig(
        name="a", embedding_dim=8, num_embeddings=50, feature_names=["user"])])
    model = ITEPEmbeddingBagCollection(collection, GenericITEPModule(
        table_name_to_unpruned_hash_sizes={"a": 90}, lookups=None, enable_pruning=False, pruning_interval=1))
    with pytest.raises(ValueError, match="table a: a GenericITEPModule makes rows of its ids"):
        compiled(model)
    found, wanted = compiled(model, ids="index")(features(torchrec)), model(features(torchrec))
    assert torch.equal(found.values(), wanted.values())


def test_collections_that_are_not_understood_are_refused(torchrec):
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

    fused = FusedEmbeddingBagCollection(tables=bags(torchrec).embedding_bag_configs(), optimizer_type=torch.optim.SGD,
                                        optimizer_kwargs={"lr": 0.1}, device=torch.device("cpu"))
    assert "module FusedEmbeddingBagCollection is a torchrec.modules.fused_embedding_modules.Fused" in refused(fused)
    assert "table b; a card takes weights with sum alone" in refused(bags(torchrec, is_weighted=True))
    assert "module EmbeddingBagCollection.embedding_bags.a: its weight is on the device meta" in refused(
        bags(torchrec, device=torch.device("meta")))
    hooked, other, mode = bags(torchrec), bags(torchrec), bags(torchrec)
    hooked.embedding_bags["b"].register_forward_hook(lambda *_: None)
    other.embedding_bags["b"] = nn.Linear(2, 2)
    mode.embedding_bags["b"].mode = "max"
    where = "module EmbeddingBagCollection.embedding_bags.b"
    assert f"{where} has a forward hook" in refused(hooked)
    assert f"{where} is a Linear, not a torch.nn.EmbeddingBag" in refused(other)
    assert f"{where}: mode = 'max', and the collection means 'mean'" in refused(mode)
