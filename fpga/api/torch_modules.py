"""A trained PyTorch model with its embedding tables on cards; needs the extra `torch` (pip install 'hotrail[torch]').

    on_cards = compile(model, "clicks.csv", device="smartssd", cards=8)
    predictions = on_cards(batch)               # as model(batch)

Tables are torch.nn.EmbeddingBag, torch.nn.Embedding and TorchRec's EmbeddingBagCollection and EmbeddingCollection,
quantised or not, known by their classes (fpga.api.torch_gate); TorchRec is not imported. The networks stay torch's.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fpga.api.embedding import EmbeddingBags
from fpga.api.serving import Cards
from fpga.api.torch import EmbeddingBag, OnCards, OneTable, array
from fpga.api.torch_gate import check, check_functions, compiled_methods, kind_of, place_of, pooling
from fpga.api.trained import laid_out
from fpga.card.opening import check_kind
from gen.compiler.emb import Bags
from gen.data.checkpoint import array_of, managed_ids, of_fbgemm
from gen.data.logs.opening import LogLike
from gen.data.trained import Placed, TrainedTable


def compile(model: torch.nn.Module, log: LogLike, *, columns: Mapping[str, str | Sequence[str] | None] | None = None,
            card: str = "sim", card_options: Mapping[str, Any] | None = None, **options: Any) -> torch.nn.Module:
    """A copy of a trained model whose embedding tables are on cards, placed by a click log; called as the model is.

    Tables are named by their place in the model ("bottom.user"), those of TorchRec by their own names. The model itself
    does not change; the copy shares no table with it. For inference: nothing flows back to the rows. Pooled vectors are
    bit for bit those of the golden model, in the dtype and on the device of the module; torch's own differ by the order
    of FP32 additions. Several threads may call it. What a forward computes is known when it is called: one that
    computes with its tables' parameters(), gives them other weights by torch.func.functional_call, or is mapped by
    torch.func.vmap raises ValueError in its first call.

    Parameters  log: of the ids that the model is called with or was trained on, see ids of fpga.api.trained.bundle;
                columns: of the log, by table, one name or several that share it [TorchRec's feature names, else the
                last part of the table's name], None for a module that stays in torch, as of positions; card: a kind,
                "sim" as a rule, and card_options: as fpga.card.open takes them; options: as fpga.api.trained.bundle:
                ids, unknown, out, device, preset, cards, batch, levels, row_format, tt_format, results, format,
                sample, say
    Returns     the copy; `cards` of it are the open cards (close them), `cards.bundle` what is on them
    Rate        a run of each card per call of a table's module; a collection of TorchRec is one module
    Raises      ValueError: a model without tables, a module that does more with them than a card does
                (fpga.api.torch_gate), a table, column or id that does not fit; CardError: the card's
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"hotrail.compile takes a torch.nn.Module, not a {type(model).__name__}; hotrail.bundle takes "
                         "files and state dicts")
    left = {name for name, named in (columns or {}).items() if named is None}
    modules = list(_found(model, left))
    if not modules:
        raise ValueError(f"{type(model).__name__} has no embedding tables: no torch.nn.EmbeddingBag, "
                         "torch.nn.Embedding or collection of TorchRec's")
    check_kind(card)
    check_functions(model, [each.module for each in modules])
    held = [table for each in modules for table in each.tables]
    named = {name: each for name, each in (columns or {}).items() if each is not None}
    bundle, laid = laid_out(held, type(model).__name__, log, columns=named, otherwise=", and None leaves it in torch",
                            **options)
    cards = Cards(bundle, card=card, **(card_options or {}))
    try:
        compiled = _copied(model, modules, RowsOnCards(cards, laid))
    except BaseException:
        cards.close()
        raise
    vars(compiled)["cards"] = cards
    return compiled


def _copied(model: torch.nn.Module, found: Sequence["_Found"], rows: "RowsOnCards") -> torch.nn.Module:
    """The model with what takes the place of its tables. Methods that torch.compile has compiled are compiled anew.

    Raises      ValueError: a model that cannot be copied, or whose copy keeps its tables
    """
    places = {id(each.module): each.on_cards(rows) for each in found}
    copies: dict[int, Any] = dict(places)
    try:
        duplicate = copy.deepcopy(model, copies)
        for module in model.modules():
            for attribute, compiler, method in compiled_methods(module) if id(module) in copies else ():
                setattr(copies[id(module)], attribute, compiler(copy.deepcopy(method, copies)))
    except Exception as error:      # whatever the model's parts raise
        within = "; compile what it wraps, its module" if hasattr(model, "module") else ""
        raise ValueError(f"{type(model).__name__} cannot be copied by copy.deepcopy: "
                         f"{str(error).partition(chr(10))[0] or type(error).__name__}{within}") from error
    there = {id(each) for each in duplicate.modules()}
    for each in found:
        if id(places[id(each.module)]) not in there:
            raise ValueError(f"the copy of {type(model).__name__} keeps its table {each.tables[0].name}: a module "
                             "around it has a way of its own to be copied")
    return duplicate


class RowsOnCards:
    """Tables of a bundle's cards, looked up by the rows of the trained model: called as EmbeddingBags is, by several
    threads one after the other."""

    request = staticmethod(EmbeddingBags.request)

    def __init__(self, cards: Cards, tables: Mapping[str, Placed]):
        self.cards = cards
        self._numbers = {name: each.numbers() for name, each in tables.items()}
        self._dims = {name: each.spec.dim for name, each in tables.items()}
        self._words: dict[str, tuple[NDArray[np.uint32], NDArray[np.uint32]]] = {}

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and values of each. Raises ValueError: no such table"""
        if table not in self._numbers:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(self._numbers)}")
        return len(self._numbers[table]), self._dims[table]

    def __call__(self, table: str, *arguments: Any, **options: Any) -> NDArray[np.float32]:
        """Vectors (bags, dim) of one table; the arguments are those of torch.nn.functional.embedding_bag."""
        return self.batch({table: self.request(table, *arguments, **options)})[table]

    def batch(self, requests: Mapping[str, Bags]) -> dict[str, NDArray[np.float32]]:
        """The vectors of requests by key: one run of each card.

        Raises      ValueError: a row that the table does not have; RunError, CardError: the card's
        """
        vectors = {key: np.zeros((0, self._dims[each.table]), np.float32) for key, each in requests.items()}
        with self.cards.lock:       # no delta comes between the rows' places and their vectors
            remapped = {key: self._remapped(each) for key, each in requests.items()
                        if len(np.asarray(each.offsets)) > 1}
            return vectors | self.cards.lookup(remapped).vectors if remapped else vectors

    def _remapped(self, bags: Bags) -> Bags:
        rows, count = np.asarray(bags.indices), len(self._numbers[bags.table])
        if rows.dtype.kind not in "iu":
            raise ValueError(f"table {bags.table}: indices must be whole numbers, not {rows.dtype}")
        past = (rows < 0) | (rows >= count)
        if past.any():
            raise ValueError(f"table {bags.table}: the index {rows[np.argmax(past)]} is no row from 0 to {count - 1}")
        return replace(bags, indices=self._places(bags.table)[rows], remapped=True)

    def _places(self, table: str) -> NDArray[np.uint32]:
        """Where each row of the trained model is, now."""
        words = self.cards.places(table)
        held = self._words.get(table)
        if held is None or held[0] is not words:
            held = self._words[table] = words, words[self._numbers[table]]
        return held[1]


class EmbeddingOnCards(OneTable):
    """A table with the forward of torch.nn.Embedding: rows of indices of any shape."""

    @torch.compiler.disable(reason="tables are on cards")
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        vectors = self.bags(self.table, array(input).reshape(-1, 1), mode="sum")
        return self._result(vectors).reshape(*input.shape, self.embedding_dim)


class _Collection(OnCards):
    """Tables of TorchRec's. features: (key, table, name) of each vector that is made, in the order of `configs`, which
    is that of the collection's own results."""

    def __init__(self, rows: RowsOnCards, configs: Sequence[Any], like: torch.Tensor):
        super().__init__(like, like.dtype)
        self.rows, self.device = rows, like.device
        shared = [name for config in configs for name in config.feature_names]
        self.features = [(name if shared.count(name) == 1 else f"{name}@{config.name}", config.name, name)
                         for config in configs for name in config.feature_names]

    def extra_repr(self) -> str:
        return ", ".join(f"{table}: {self.rows.shape(table)}" for table in dict.fromkeys(
            table for _, table, _ in self.features))


def _keyed(features: Any, wanted: Iterable[str]) -> Any:
    """A KeyedJaggedTensor, of a TensorDict too, as TorchRec's own collections take it.

    Raises      TypeError: something else; ValueError: it lacks a feature
    """
    form = sys.modules.get("torchrec.sparse.tensor_dict")
    features = features if form is None else form.maybe_td_to_kjt(features, None)
    if not hasattr(features, "to_dict"):
        raise TypeError(f"a collection of tables takes a KeyedJaggedTensor, not a {type(features).__name__}")
    if lacking := [name for name in wanted if name not in features.keys()]:
        raise ValueError(f"the KeyedJaggedTensor has no feature {lacking[0]!r}; it has {', '.join(features.keys())}")
    return features


class SequencesOnCards(_Collection):
    """Tables with the forward of TorchRec's EmbeddingCollection: a KeyedJaggedTensor in, a JaggedTensor of rows for
    each feature out. One run of each card."""

    def __init__(self, rows: RowsOnCards, module: Any, like: torch.Tensor):
        super().__init__(rows, module.embedding_configs(), like)
        self._configs, self._needs_indices = module.embedding_configs(), bool(module.need_indices())
        self._dim, self._names = module.embedding_dim(), module.embedding_names_by_table()
        self.embeddings = torch.nn.ModuleDict({config.name: EmbeddingOnCards(rows, config.name, like)
                                               for config in self._configs})

    def embedding_configs(self) -> list[Any]:
        return self._configs

    def embedding_dim(self) -> int:
        return self._dim

    def embedding_names_by_table(self) -> list[list[str]]:
        return self._names

    def need_indices(self) -> bool:
        return self._needs_indices

    @torch.compiler.disable(reason="tables are on cards")
    def forward(self, features: Any) -> Any:
        features = _keyed(features, (name for _, _, name in self.features))
        jagged = features.to_dict()
        requests = {key: self.rows.request(table, array(jagged[name].values()).reshape(-1, 1))
                    for key, table, name in self.features}
        vectors = self.rows.batch(requests)
        kind = sys.modules[type(features).__module__].JaggedTensor
        return {key: kind(values=self._result(vectors[key]), lengths=jagged[name].lengths(),
                          weights=jagged[name].values() if self._needs_indices else None)
                for key, _, name in self.features}


class CollectionOnCards(_Collection):
    """Tables with the forward of TorchRec's EmbeddingBagCollection: a KeyedJaggedTensor in, a KeyedTensor out. One run
    of each card."""

    def __init__(self, rows: RowsOnCards, module: Any, like: torch.Tensor):
        groups = getattr(module, "_key_to_tables", None)        # a quantised one's results are in their order
        configs = module.embedding_bag_configs()
        super().__init__(rows, configs if groups is None else [each for group in groups.values() for each in group],
                         like)
        self._configs, self._is_weighted, self._takes_inverse = configs, bool(module.is_weighted()), groups is None
        self.modes = {config.name: pooling(config) for config in configs}
        self.embedding_bags = torch.nn.ModuleDict({
            config.name: EmbeddingBag(rows, config.name, mode=self.modes[config.name], include_last_offset=True,
                                      like=like) for config in configs})

    def embedding_bag_configs(self) -> list[Any]:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted

    @torch.compiler.disable(reason="tables are on cards")
    def forward(self, features: Any) -> Any:
        features = _keyed(features, (name for _, _, name in self.features))
        jagged = features.to_dict()
        requests = {}
        for key, table, name in self.features:
            bags = jagged[name]
            weights = array(bags.weights()) if self._is_weighted else None
            requests[key] = self.rows.request(table, array(bags.values()), array(bags.offsets()), weights,
                                              self.modes[table], include_last_offset=True)
        vectors = self._expanded(self.rows.batch(requests), features.inverse_indices_or_none())
        keyed = sys.modules[type(features).__module__].KeyedTensor
        return keyed(keys=list(requests), length_per_key=[vectors[key].shape[1] for key in requests],
                     values=self._result(np.concatenate([vectors[key] for key in requests], axis=1)))

    def _expanded(self, vectors: dict[str, NDArray[np.float32]], inverse: Any) -> dict[str, NDArray[np.float32]]:
        """The vectors of all samples, where features have their distinct bags alone. inverse: names and (features,
        samples) the bag of each sample.

        Raises      ValueError: features of different numbers of bags without it, or a quantised collection, which does
                    not take it
        """
        if inverse is not None and not self._takes_inverse:
            raise ValueError("the KeyedJaggedTensor has inverse_indices, which a quantised collection of TorchRec does "
                             "not apply; give it the features of all samples")
        if inverse is not None:
            names, index = list(inverse[0]), array(inverse[1])
            if lacking := [name for _, _, name in self.features if name not in names]:
                raise ValueError(f"the KeyedJaggedTensor's inverse_indices have no feature {lacking[0]!r}; they have "
                                 f"{', '.join(names)}")
            return {key: vectors[key][index[names.index(name)]] for key, _, name in self.features}
        if len({len(each) for each in vectors.values()}) > 1:
            counts = ", ".join(f"{key} {len(each)}" for key, each in vectors.items())
            raise ValueError(f"features have different numbers of bags ({counts}): a KeyedJaggedTensor of variable "
                             "strides needs inverse_indices")
        return vectors


@dataclass(frozen=True, eq=False)
class _Found:
    """A module that holds tables. on_cards: what takes its place."""

    module: torch.nn.Module
    tables: tuple[TrainedTable, ...]
    on_cards: Callable[[RowsOnCards], torch.nn.Module]


def _found(model: torch.nn.Module, left: Set[str] = frozenset()) -> Iterator[_Found]:
    """The modules that hold tables, each once. What lies inside one is its own. left: places of those to pass over.

    Raises      ValueError: a module that is not understood; one of `left` that is none or lies inside one
    """
    inside: set[int] = set()
    passed: set[str] = set()
    ids: dict[str, Any] = {}
    for module in model.modules():
        for table, each in getattr(module, "_managed_collision_modules", {}).items():
            ids[table] = managed_ids(table, dict(each.named_buffers()), f"a {type(each).__name__}",
                                     getattr(each, "_output_global_offset", 0))
        for table in getattr(module, "table_name_to_unpruned_hash_sizes", ()):      # of one that prunes in training
            ids[table] = managed_ids(table, {}, f"a {type(module).__name__}")
    for name, module in model.named_modules():
        if id(module) in inside:
            continue
        place = place_of(name, module)
        if place in left and kind_of(module) is not None:
            inside |= {id(each) for each in module.modules()}
            passed.add(place)
            continue
        check(module, place)
        if kind_of(module) is None:
            continue
        if isinstance(module, torch.nn.EmbeddingBag | torch.nn.Embedding):
            yield _of_table(module, place)
        else:
            inside |= {id(each) for each in module.modules()}
            yield _of_collection(module, ids)
    for name in sorted(left - passed):
        raise ValueError(f"columns: there is no module {name!r} with tables that can stay in torch by itself")


def _of_table(module: Any, place: str) -> _Found:
    """A torch.nn.EmbeddingBag or torch.nn.Embedding."""
    pools = isinstance(module, torch.nn.EmbeddingBag)
    table = TrainedTable(place, array_of(module.weight), module.embedding_dim, module.mode if pools else "sum",
                         (place.rpartition(".")[2],))

    def on_cards(rows: RowsOnCards) -> torch.nn.Module:
        bag = EmbeddingBag(rows, place, mode=module.mode, include_last_offset=module.include_last_offset,
                            padding_idx=module.padding_idx, like=module.weight) if pools else \
            EmbeddingOnCards(rows, place, module.weight)
        # What the model may look up of it, as padding_idx; not what torch has there in the place of a call.
        bag.__dict__.update({name: value for name, value in vars(module).items()
                              if name not in vars(bag) and not hasattr(type(bag), name)})
        return bag

    return _Found(module, (table,), on_cards)


def _of_collection(module: Any, ids: Mapping[str, Any]) -> _Found:
    """A collection of TorchRec's, its tables in the order of its configurations."""
    batched: dict[str, TrainedTable] = {}
    for each in getattr(module, "_emb_modules", ()):
        batched |= {table.name: table for table in of_fbgemm(each)}
    pools = hasattr(module, "embedding_bag_configs")
    held = module.embedding_bags if pools else module.embeddings
    tables = []
    for config in module.embedding_bag_configs() if pools else module.embedding_configs():
        table = batched.get(config.name)
        if table is None:
            table = TrainedTable(config.name, array_of(held[config.name].weight), config.embedding_dim)
        tables.append(replace(table, mode=pooling(config), columns=tuple(config.feature_names),
                              ids=ids.get(config.name)))
    # Its results are float32 whatever its rows are, those of a quantised one of its choice.
    dtype = module.output_dtype() if hasattr(module, "_emb_modules") else torch.float32
    like = torch.empty(0, dtype=dtype, device=module.device)
    return _Found(module, tuple(tables), lambda rows: (CollectionOnCards if pools else SequencesOnCards)(
        rows, module, like))
