"""A trained PyTorch model with its embedding tables on cards; needs the extra `torch` (pip install 'hotrail[torch]').

    on_cards = compile(model, "clicks.csv", device="smartssd", cards=8)
    predictions = on_cards(batch)               # as model(batch)

Tables are torch.nn.EmbeddingBag, torch.nn.Embedding and TorchRec's EmbeddingBagCollection and EmbeddingCollection,
quantised or not, found by what they have; TorchRec is not imported. The networks stay torch's.
"""

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fpga.api.embedding import EmbeddingBags
from fpga.api.serving import Cards
from fpga.api.torch import EmbeddingBag, array
from fpga.api.trained import laid_out
from gen.compiler.emb import Bags
from gen.data.checkpoint import array_of, of_fbgemm
from gen.data.logs.opening import LogLike
from gen.data.trained import Placed, TrainedTable

__all__ = ["CollectionOnCards", "EmbeddingOnCards", "RowsOnCards", "SequencesOnCards", "compile"]


def compile(model: torch.nn.Module, log: LogLike, *, columns: Mapping[str, str | Sequence[str]] | None = None,
            card: str = "sim", card_options: Mapping[str, Any] | None = None, **options: Any) -> torch.nn.Module:
    """A copy of a trained model whose embedding tables are on cards, placed by a click log; called as the model is.

    Tables are named by their place in the model ("bottom.user"), those of TorchRec by their own names. The model itself
    does not change; the copy shares no table with it. For inference: nothing flows back to the rows. Pooled vectors are
    float32 on the CPU, bit for bit those of the golden model; torch's own differ by the order of FP32 additions.

    Parameters  log: of the ids that the model is called with or was trained on, see ids of fpga.api.trained.bundle;
                columns: of the log, by table, one name or several that share it [TorchRec's feature names, else the
                last part of the table's name]; card: "sim", "twin" or "xrt", card_options: as fpga.card.open takes
                them; options: as fpga.api.trained.bundle: ids, unknown, out, device, preset, cards, batch, levels,
                row_format, tt_format, results, format, sample, say
    Returns     the copy; `cards` of it are the open cards (close them), `cards.bundle` what is on them
    Rate        a run of each card per call of a table's module; a collection of TorchRec is one module
    Raises      ValueError: a model without tables, a table, column or id that does not fit; CardError: the card's
    """
    found = list(_found(model))
    if not found:
        raise ValueError(f"{type(model).__name__} has no embedding tables: no torch.nn.EmbeddingBag, "
                         "torch.nn.Embedding or collection of TorchRec's")
    held = [table for each in found for table in each.tables]
    bundle, laid = laid_out(held, type(model).__name__, log, columns=columns, **options)
    cards = Cards(bundle, card=card, **(card_options or {}))
    try:
        rows = RowsOnCards(cards, laid)
        made = copy.deepcopy(model, {id(each.module): each.on_cards(rows) for each in found})
    except BaseException:
        cards.close()
        raise
    vars(made)["cards"] = cards
    return made


class RowsOnCards:
    """Tables of a bundle's cards, looked up by the rows of the trained model: called as EmbeddingBags is."""

    request = staticmethod(EmbeddingBags.request)

    def __init__(self, cards: Cards, tables: Mapping[str, Placed]):
        self.cards = cards
        self._words = {name: cards.bundle.words(name)[each.numbers()] for name, each in tables.items()}
        self._dims = {name: each.spec.dim for name, each in tables.items()}

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and values of each. Raises ValueError: no such table"""
        if table not in self._words:
            raise ValueError(f"there is no table {table!r}; there are {', '.join(self._words)}")
        return len(self._words[table]), self._dims[table]

    def __call__(self, table: str, *arguments: Any, **options: Any) -> NDArray[np.float32]:
        """Vectors (bags, dim) of one table; the arguments are those of torch.nn.functional.embedding_bag."""
        return self.batch({table: self.request(table, *arguments, **options)})[table]

    def batch(self, requests: Mapping[str, Bags]) -> dict[str, NDArray[np.float32]]:
        """The vectors of requests by key: one run of each card.

        Raises      ValueError: a row that the table does not have; RunError, CardError: the card's
        """
        found = {key: np.zeros((0, self._dims[each.table]), np.float32) for key, each in requests.items()}
        asked = {key: self._remapped(each) for key, each in requests.items() if len(np.asarray(each.offsets)) > 1}
        return found | self.cards.lookup(asked).vectors if asked else found

    def _remapped(self, bags: Bags) -> Bags:
        words, rows = self._words[bags.table], np.asarray(bags.indices)
        past = (rows < 0) | (rows >= len(words))
        if past.any():
            raise ValueError(f"table {bags.table}: the index {rows[np.argmax(past)]} is no row from 0 to "
                             f"{len(words) - 1}")
        return replace(bags, indices=words[rows], remapped=True)


class EmbeddingOnCards(torch.nn.Module):
    """A table with the forward of torch.nn.Embedding: rows of indices of any shape."""

    def __init__(self, rows: RowsOnCards, table: str):
        super().__init__()
        self.rows, self.table = rows, table
        self.num_embeddings, self.embedding_dim = rows.shape(table)

    def __deepcopy__(self, memo: dict[int, Any]) -> "EmbeddingOnCards":
        return self         # the cards are what they are

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        found = self.rows(self.table, array(input).reshape(-1, 1))
        return torch.from_numpy(found).reshape(*input.shape, self.embedding_dim)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, table={self.table!r}"


class _Collection(torch.nn.Module):
    """Tables of TorchRec's. features: (key, table, name) of each vector that is made."""

    def __init__(self, rows: RowsOnCards, configs: Sequence[Any]):
        super().__init__()
        self.rows, self.configs = rows, list(configs)
        shared = [name for config in configs for name in config.feature_names]
        self.features = [(name if shared.count(name) == 1 else f"{name}@{config.name}", config.name, name)
                         for config in configs for name in config.feature_names]

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Collection":
        return self         # the cards are what they are

    def extra_repr(self) -> str:
        return ", ".join(f"{config.name}: {self.rows.shape(config.name)}" for config in self.configs)


class SequencesOnCards(_Collection):
    """Tables with the forward of TorchRec's EmbeddingCollection: a KeyedJaggedTensor in, a JaggedTensor of rows for
    each feature out. One run of each card."""

    def embedding_configs(self) -> list[Any]:
        return self.configs

    def forward(self, features: Any) -> Any:
        jagged = features.to_dict()
        requests = {key: self.rows.request(table, array(jagged[name].values()).reshape(-1, 1))
                    for key, table, name in self.features}
        vectors = self.rows.batch(requests)
        kind = sys.modules[type(features).__module__].JaggedTensor
        return {key: kind(values=torch.from_numpy(vectors[key]), lengths=jagged[name].lengths())
                for key, _, name in self.features}


class CollectionOnCards(_Collection):
    """Tables with the forward of TorchRec's EmbeddingBagCollection: a KeyedJaggedTensor in, a KeyedTensor out. One run
    of each card."""

    def __init__(self, rows: RowsOnCards, configs: Sequence[Any], modes: Mapping[str, str], is_weighted: bool):
        super().__init__(rows, configs)
        self.modes, self.is_weighted = dict(modes), is_weighted

    def embedding_bag_configs(self) -> list[Any]:
        return self.configs

    def forward(self, features: Any) -> Any:
        jagged = features.to_dict()
        requests = {}
        for key, table, name in self.features:
            bags = jagged[name]
            weights = array(bags.weights()) if self.is_weighted else None
            requests[key] = self.rows.request(table, array(bags.values()), array(bags.offsets()), weights,
                                              self.modes[table], include_last_offset=True)
        vectors = self.rows.batch(requests)
        keyed = sys.modules[type(features).__module__].KeyedTensor
        return keyed(keys=list(requests), length_per_key=[vectors[key].shape[1] for key in requests],
                     values=torch.from_numpy(np.concatenate([vectors[key] for key in requests], axis=1)))


@dataclass(frozen=True, eq=False)
class _Found:
    """A module that holds tables."""

    module: torch.nn.Module
    tables: tuple[TrainedTable, ...]

    def on_cards(self, rows: RowsOnCards) -> torch.nn.Module:
        """What takes its place."""
        module, (first, *_) = self.module, self.tables
        if isinstance(module, torch.nn.EmbeddingBag):
            return EmbeddingBag(rows, first.name, mode=module.mode, include_last_offset=module.include_last_offset,
                                padding_idx=module.padding_idx)
        if isinstance(module, torch.nn.Embedding):
            return EmbeddingOnCards(rows, first.name)
        if hasattr(module, "embedding_configs"):
            return SequencesOnCards(rows, module.embedding_configs())
        weighted = getattr(module, "is_weighted", False)
        return CollectionOnCards(rows, module.embedding_bag_configs(), {each.name: each.mode for each in self.tables},
                                 bool(weighted() if callable(weighted) else weighted))


#: What TorchRec's two collections have.
_COLLECTIONS = (("embedding_bag_configs", "embedding_bags"), ("embedding_configs", "embeddings"))


def _found(model: torch.nn.Module) -> Iterator[_Found]:
    """The modules that hold tables, each once. What lies inside one is its own."""
    inside: set[int] = set()
    ids: dict[str, Any] = {}
    for module in model.modules():
        managed = getattr(module, "_managed_collision_modules", {})
        ids |= {table: trained for table, each in managed.items() if (trained := _managed(each)) is not None}
    for name, module in model.named_modules():
        if id(module) in inside:
            continue
        if any(hasattr(module, configs) and hasattr(module, tables) for configs, tables in _COLLECTIONS):
            inside |= {id(each) for each in module.modules()}
            yield _Found(module, tuple(replace(each, ids=ids.get(each.name)) for each in _of_collection(module)))
        elif isinstance(module, torch.nn.EmbeddingBag | torch.nn.Embedding):
            if module.max_norm is not None:
                raise ValueError(f"table {name}: max_norm = {module.max_norm} changes rows as they are read, which a "
                                 "card does not; take the rows as trained and build the module without it")
            named = name or type(module).__name__
            yield _Found(module, (TrainedTable(named, array_of(module.weight), module.embedding_dim,
                                               getattr(module, "mode", "sum"), (named.rpartition(".")[2],)),))


def _managed(module: Any) -> dict[int, int] | None:
    """{id: row} of TorchRec's MCHManagedCollisionModule; None: another one."""
    if not hasattr(module, "_mch_sorted_raw_ids"):
        return None
    raw, rows = array_of(module._mch_sorted_raw_ids), array_of(module._mch_remapped_ids_mapping)
    there = raw != np.iinfo(raw.dtype).max        # of a slot without an id; the last one is for all others
    there[-1] = False
    return dict(zip(raw[there].tolist(), (rows[there] - module._output_global_offset).tolist()))


def _of_collection(module: Any) -> Iterator[TrainedTable]:
    """The tables of a collection, in the order of its configurations."""
    batched: dict[str, TrainedTable] = {}
    for each in getattr(module, "_emb_modules", ()):
        batched |= {table.name: table for table in of_fbgemm(each)}
    configs, tables = next((getattr(module, configs)(), getattr(module, tables))
                           for configs, tables in _COLLECTIONS if hasattr(module, configs))
    for config in configs:
        pooling = getattr(config, "pooling", "sum")     # a sequence's rows are bags of one
        table = batched.get(config.name)
        if table is None:
            table = TrainedTable(config.name, array_of(tables[config.name].weight), config.embedding_dim)
        yield replace(table, mode=str(getattr(pooling, "value", pooling)).lower(), columns=tuple(config.feature_names))
