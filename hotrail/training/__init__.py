"""Training with tables larger than the device's memory; needs the extra `torch` (pip install 'hotrail[torch]')."""

from importlib import import_module
from typing import Any

from gen.base.extras import extra

_WHERE = {"CachedEmbeddingBag": "bag", "CachedEmbeddingBagCollection": "tables", "DispatchLoader": "loader",
          "RankedEmbeddingBag": "ranks", "TensorTrainBag": "tensor_trains", "ahead": "bag", "load": "store",
          "save": "store", "sizes": "loader"}

__all__ = ["CachedEmbeddingBag", "CachedEmbeddingBagCollection", "DispatchLoader", "RankedEmbeddingBag",
           "TensorTrainBag", "ahead", "load", "save", "sizes"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("hotrail.training"):
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
