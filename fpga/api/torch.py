"""torch.nn.EmbeddingBag on a card; needs the extra `torch` (pip install 'hotrail[torch]').

    bags = EmbeddingBags([table_of(model.genre, "genre", device)])
    model.genre = EmbeddingBag(bags, "genre", mode="mean")

For inference: the rows are the card's, nothing flows back to them.
"""

import copy
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fpga.api.embedding import Table

BAGS = 1 << 16      # of one row each, which are read back at once


class Tables(Protocol):
    """What EmbeddingBag looks up: fpga.api.embedding.EmbeddingBags, or tables on several cards."""

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and values of each. Raises ValueError: no such table"""
        ...

    def __call__(self, table: str, *arguments: Any, **options: Any) -> np.ndarray:
        ...


def table_of(module: "torch.nn.EmbeddingBag | torch.nn.Embedding", name: str, device: ArrayLike,
             **options: Any) -> Table:
    """The weights of a module as a table; `device` and the options are those of Table.place."""
    return Table.place(name, module.weight.detach().cpu().numpy(), device, **options)


class _Like(torch.nn.Parameter):
    """An empty parameter in the place of rows: it has their dtype and device, and goes where the model goes. Whoever
    computes with it wants the rows, and is told so."""

    SAME = {"bfloat16", "clone", "contiguous", "cpu", "cuda", "data", "detach", "double", "empty_like", "float",
            "half", "pin_memory", "requires_grad_", "share_memory_", "to", "type"}      # it is still empty
    ASKED = SAME | {"__deepcopy__", "__format__", "__hash__", "__repr__", "_has_compatible_shallow_copy_type",
                    "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
                    "is_floating_point", "is_pinned", "nelement", "new", "new_empty", "new_full", "new_ones",
                    "new_tensor", "new_zeros", "numel", "size", "stride"}
    ROWS = {"H", "T", "imag", "mH", "mT", "real"}       # attributes; of others whatever they are

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = getattr(function, "__name__", str(function))
        attribute = name in ("__get__", "__set__")
        if attribute:
            name = function.__self__.__name__
        if name in cls.ROWS or not attribute and name not in cls.ASKED:
            raise ValueError(f"{name} of a parameter whose rows are on cards: ask the weight of its module, which "
                             "reads them back")
        options = options or {}
        result = super().__torch_function__(function, types, arguments, options)
        of = arguments[0] if arguments else options.get("input")
        same = name in cls.SAME and isinstance(of, cls) and type(result) is torch.Tensor
        return result.as_subclass(cls) if same else result


class _Rows(torch.nn.Parameter):
    """Rows that were read back. What would change them, which are the cards', is refused; results are plain tensors."""

    VIEWS = {"data", "detach"}
    KEPT = {"requires_grad_", "retain_grad"}
    IN_PLACE = {"__iadd__", "__iand__", "__idiv__", "__ifloordiv__", "__imod__", "__imul__", "__ior__", "__ipow__",
                "__isub__", "__itruediv__", "__ixor__", "__setitem__"}

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name, options = getattr(function, "__name__", str(function)), options or {}
        attribute = function.__self__.__name__ if name in ("__get__", "__set__") else ""
        changes = (name in cls.IN_PLACE or name.endswith("_") and name[-2:] != "__" and name not in cls.KEPT
                   or name == "__set__" and attribute == "data")
        if changes and any(isinstance(each, cls) for each in (*arguments[:1], *options.values())) \
                or isinstance(options.get("out"), cls):
            raise ValueError(f"{attribute or name} of rows that are on cards, which it would not change: do it to the "
                             "model before hotrail.compile")
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*arguments, **options)
        view = name in cls.VIEWS or attribute in cls.VIEWS and name == "__get__"
        return result.as_subclass(cls) if view and type(result) is torch.Tensor else result


class OnCards(torch.nn.Module):
    """What stands in for a module whose tables are on cards. Results carry no gradient; they have the dtype and the
    device of `like`, which follow the model's `to`, `half` and so on, but for a dtype that is given. An empty parameter
    keeps them, so that a model finds them by its parameters() too; no state dict has it.
    torch.compile leaves `forward` to Python."""

    def __init__(self, like: torch.Tensor | None = None, dtype: torch.dtype | None = None):
        super().__init__()
        self._dtype = dtype
        empty = torch.empty(0, dtype=torch.float32, device="cpu")
        self._like = _Like(empty if like is None else empty.to(like.device, like.dtype), requires_grad=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnCards":
        """Another module of the same cards, whose dtype, device and hooks are its own."""
        made = memo[id(self)] = type(self).__new__(type(self))
        for name, each in vars(self).items():
            made.__dict__[name] = copy.copy(each) if isinstance(each, dict) else each
        for name in ("_parameters", "_modules"):
            made.__dict__[name] = copy.deepcopy(vars(self)[name], memo)
        return made

    def _save_to_state_dict(self, *_: Any) -> None:
        """The rows are the cards'."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """As `_save_to_state_dict`."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a model on cards cannot be saved: save the model that it was made from, or its state_dict()")

    def _result(self, vectors: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(vectors).to(self._like.device, self._dtype or self._like.dtype)


class OneTable(OnCards):
    """A table of `bags`. stands_for: the class of torch's whose forward it has."""

    stands_for: type[torch.nn.Module] = torch.nn.Embedding

    def __init__(self, bags: Tables, table: str, like: torch.Tensor | None = None):
        super().__init__(like)
        self.num_embeddings, self.embedding_dim = bags.shape(table)
        self.bags, self.table = bags, table
        self._rows: torch.Tensor | None = None

    @property
    def weight(self) -> torch.Tensor:
        """The rows, for a model that looks at all of them: read back from the cards when they are first asked for."""
        return self._weight()

    @torch.compiler.disable(reason="rows are on a card")
    def _weight(self) -> torch.Tensor:
        if self._rows is None:
            numbers = np.arange(self.num_embeddings).reshape(-1, 1)
            self._rows = torch.from_numpy(np.concatenate([
                self.bags(self.table, numbers[start:start + BAGS], mode="sum")
                for start in range(0, len(numbers), BAGS)]))
        return _Rows(self._rows.to(self._like.device, self._like.dtype, copy=True), requires_grad=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":        # also of torch.func.functional_call
            raise ValueError(f"table {self.table!r} is on cards, which keep its rows: give the model that is compiled "
                             "its weight")
        super().__setattr__(name, value)

    @property       # type: ignore[misc]
    def __class__(self) -> Any:
        """What it stands in for, to a model that asks by isinstance."""
        return self.stands_for

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, table={self.table!r}"


class EmbeddingBag(OneTable):
    """One table of `bags`, with the forward of torch.nn.EmbeddingBag; mode, include_last_offset and padding_idx as
    there. Vectors carry no gradient. like: a tensor whose dtype and device they have [float32, on the CPU].
    """

    stands_for = torch.nn.EmbeddingBag

    def __init__(self, bags: Tables, table: str, *, mode: str = "mean", include_last_offset: bool = False,
                 padding_idx: int | None = None, like: torch.Tensor | None = None):
        super().__init__(bags, table, like)
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx

    @torch.compiler.disable(reason="tables are on a card")
    def forward(self, input: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        padding = self.padding_idx
        if padding is not None and padding < 0:
            padding += self.num_embeddings
        return self._result(self.bags(self.table, array(input), None if offsets is None else array(offsets),
                                      None if per_sample_weights is None else array(per_sample_weights),
                                      self.mode, self.include_last_offset, padding))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


def array(tensor: torch.Tensor) -> np.ndarray:
    """Of a tensor that no gradient is wanted of. bfloat16, which NumPy does not have, as float32."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a table takes tensors, not a {type(tensor).__name__}")
    if torch.jit.is_tracing():
        raise ValueError("a trace holds the values of one call, and no card: call the model itself")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError("per_sample_weights wants a gradient, which a card does not give; use torch.no_grad()")
    held = tensor.detach().cpu()
    try:
        return (held.float() if held.dtype is torch.bfloat16 else held).numpy()
    except RuntimeError as error:       # of vmap, of an export
        raise ValueError("a card takes tensors whose numbers are there, not those of torch.func.vmap or an export: "
                         f"{error}") from None
