"""Several tables under the interface of TorchRec's EmbeddingBagCollection.

    tables = CachedEmbeddingBagCollection(configs, cache_rows={"t_item": 500_000}, rate=0.01)
    for batch in ahead(loader, tables.lookups(lambda batch: batch.sparse_features)):
        pooled = tables(batch.sparse_features)          # pooled["item"], pooled.values()

TorchRec need not be installed: tables and features are taken by their attributes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import ArrayLike

from hotrail.training.bag import CachedEmbeddingBag
from hotrail.training.tensor_trains import TensorTrainBag


class TableConfig(Protocol):
    """torchrec.EmbeddingBagConfig, as far as it is read; pooling: an enum of SUM and MEAN, or these words."""

    name: str
    embedding_dim: int
    num_embeddings: int
    feature_names: list[str]
    pooling: Any


class Jagged(Protocol):
    """torchrec.JaggedTensor, as far as it is read."""

    def values(self) -> torch.Tensor: ...
    def offsets(self) -> torch.Tensor: ...
    def weights(self) -> torch.Tensor: ...


class Features(Protocol):
    """torchrec.KeyedJaggedTensor, as far as it is read."""

    def __getitem__(self, key: str) -> Jagged: ...


class Pooled:
    """Vectors by feature, where torchrec's KeyedTensor is not there: keys(), values() (batch, all dims), [feature]."""

    def __init__(self, keys: Sequence[str], vectors: Sequence[torch.Tensor]):
        self._vectors = dict(zip(keys, vectors, strict=True))

    def keys(self) -> list[str]:
        return list(self._vectors)

    def values(self) -> torch.Tensor:
        return torch.cat(list(self._vectors.values()), dim=1)

    def __getitem__(self, key: str) -> torch.Tensor:
        return self._vectors[key]

    def to_dict(self) -> dict[str, torch.Tensor]:
        return dict(self._vectors)


class CachedEmbeddingBagCollection(torch.nn.Module):
    """One bag for each table, as TorchRec orders and names them.

    Parameters  tables: their configurations; cache_rows: of each table, by its name, which need not be given where all
                rows fit; heat: by name. is_weighted: features have weights. tensor_trains: tables whose rows are
                tensor trains but for `cache_rows` of the hottest, by name, with options of TensorTrainBag. options: of
                all bags, as CachedEmbeddingBag takes them
    Members     embedding_bags: by table
    Raises      ValueError: no tables, equal names, a feature that a table has twice, names of cache_rows, heat or
                tensor_trains that no table has, weights where a table has means
    """

    def __init__(self, tables: Iterable[TableConfig], *, cache_rows: Mapping[str, int], rate: float,
                 heat: Mapping[str, ArrayLike] | None = None, is_weighted: bool = False,
                 tensor_trains: Mapping[str, Mapping[str, Any]] | None = None, place: str | Path | None = None,
                 **options: Any):
        super().__init__()
        self._tables, self._is_weighted = list(tables), is_weighted
        trains, heat = tensor_trains or {}, heat or {}
        names = [table.name for table in self._tables]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"tables are {', '.join(names) or 'none'}: there must be at least one, each with a name "
                             "of its own")
        for given, of in ((cache_rows, "cache_rows"), (heat, "heat"), (trains, "tensor_trains")):
            if other := [name for name in given if name not in names]:
                raise ValueError(f"{of} has {other[0]!r}, which is none of the tables {', '.join(names)}")
        self.embedding_bags = torch.nn.ModuleDict()
        for table in self._tables:
            mode = str(getattr(table.pooling, "value", table.pooling)).lower()
            if is_weighted and mode != "sum":
                raise ValueError(f"table {table.name}: weighted features are summed, and its pooling is {mode}")
            if len(set(table.feature_names)) < len(table.feature_names):
                raise ValueError(f"table {table.name}: its features {', '.join(table.feature_names)} are not different")
            rows = cache_rows.get(table.name, 0 if table.name in trains else table.num_embeddings)
            common: dict[str, Any] = {"heat": heat.get(table.name), "mode": mode, "rate": rate,
                                      "include_last_offset": True}
            if table.name in trains:
                bag: torch.nn.Module = TensorTrainBag(table.num_embeddings, table.embedding_dim, cache_rows=rows,
                                                      **common, **trains[table.name])
            else:
                its = {**options, "place": f"{place}/{table.name}"} if place is not None else options
                bag = CachedEmbeddingBag(table.num_embeddings, table.embedding_dim, cache_rows=rows, **common, **its)
            self.embedding_bags[table.name] = bag
        features = [feature for table in self._tables for feature in table.feature_names]
        self._keys = [feature if features.count(feature) == 1 else f"{feature}@{table.name}" for table in self._tables
                      for feature in table.feature_names]
        self._dims = [table.embedding_dim for table in self._tables for _ in table.feature_names]

    def embedding_bag_configs(self) -> list[TableConfig]:
        return self._tables

    def is_weighted(self) -> bool:
        return self._is_weighted

    def lookups(self, features: Callable[[Any], Features]) -> dict[Any, Callable[[Any], torch.Tensor]]:
        """What `ahead` takes: by bag, its indices. features: takes the features from a batch."""
        def indices(table: TableConfig, batch: Any) -> torch.Tensor:
            given = features(batch)
            return torch.cat([given[name].values() for name in table.feature_names])

        return {self.embedding_bags[table.name]: partial(indices, table) for table in self._tables}

    def forward(self, features: Features) -> Any:
        """Pooled vectors by feature, (batch, dim) each: torchrec's KeyedTensor where that is installed, else Pooled.

        Raises      as CachedEmbeddingBag
        """
        vectors: list[torch.Tensor] = []
        for table in self._tables:
            # One lookup for all features of a table: equal rows take one step.
            parts = [features[name] for name in table.feature_names]
            ends = parts[0].offsets().new_tensor([0, *(part.values().numel() for part in parts)]).cumsum(0)
            offsets = torch.cat([*(part.offsets()[:-1] + first for part, first in zip(parts, ends)), ends[-1:]])
            weights = torch.cat([part.weights() for part in parts]) if self._is_weighted else None
            pooled = self.embedding_bags[table.name](torch.cat([part.values() for part in parts]), offsets, weights)
            vectors += pooled.split([part.offsets().numel() - 1 for part in parts])
        if find_spec("torchrec") is None:
            return Pooled(self._keys, vectors)
        from torchrec import KeyedTensor

        return KeyedTensor(keys=self._keys, length_per_key=self._dims, values=torch.cat(vectors, dim=1))
