"""Embedding tables of trained models, as their frameworks have saved them: state dicts, npz and ONNX files, FBGEMM.

    tables = read("model.pt", {"user_id": "user_embedding", "item_id": "item_embedding"})

Rows are taken as they are, of quantised tables too; which ids they were trained for stands in gen.data.trained.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.base.npy import member, opened
from gen.data.logs import torch_file
from gen.data.trained import Ids, TrainedTable
from gen.model.row_formats import CODES, fused_dim
from gen.model.weights import ALWAYS_BYTES

#: A table of TorchRec's in a state dict.
TORCHREC = re.compile(r"(?:.*\.)?embedding(?:_bag)?s\.([^.]+)\.weight")
#: What TorchRec makes rows of ids by, in a state dict: of which table, and what of it.
MANAGED = re.compile(r"(?:.*\.)?_managed_collision_modules\.([^.]+)\.(.+)")
WEIGHT = ".weight"
REMAPPED = ("index_remappings_array", "index_remapping_hash_table")
MODES = {0: "sum", 1: "mean"}      # FBGEMM's PoolingMode; another one stays a name that no table may have
TORCH = ".pt", ".pth", ".bin", ".ckpt"
#: FBGEMM's classes whose weights are all that they look up, but for ids that are remapped.
FBGEMM = ("SplitTableBatchedEmbeddingBagsCodegen", "IntNBitTableBatchedEmbeddingBagsCodegen",
          "DenseTableBatchedEmbeddingBagsCodegen")


def read(source: Any, tables: Mapping[str, str] | None = None, quantised: str = "int8") -> list[TrainedTable]:
    """The tables of a trained model.

    source: a path of torch.save (.pt, .pth, .bin, .ckpt; read without torch), .npz or .onnx, a state dict, or FBGEMM's
    table-batched embeddings. tables: by name, where each lies: the key in a state dict, with or without ".weight", the
    array in an npz file, the initializer in an ONNX file. Left out: TorchRec's names, table_NAME of an npz file (see
    gen.model.weights), initializers that a Gather looks up, FBGEMM's own names. quantised: int8 or int4, of tables of
    uint8 whose format the file does not say.
    Raises      ValueError: one sentence with the file, and the arrays that it has
    """
    if tables is not None and not isinstance(tables, Mapping):
        raise ValueError(f"tables must say by name where each lies, as {{'user': 'user_embedding'}}, not {tables!r}")
    if hasattr(source, "split_embedding_weights"):
        return of_fbgemm(source)
    if isinstance(source, Mapping):
        return of_state(source, tables, "the state dict", quantised)
    if not isinstance(source, str | Path):
        raise ValueError("a model is a path, a state dict or FBGEMM's tables (of a module its state_dict()), not a "
                         f"{type(source).__name__}")
    path = Path(source)
    if path.suffix == ".npz":
        return _of_npz(path, tables, quantised)
    if path.suffix == ".onnx":
        from gen.model.onnx import looked_up

        found = looked_up(path, whole=tables is None)
        named = tables or {name.removesuffix(WEIGHT): name for name in found}
        return [TrainedTable(name, found[key].array, found[key].array.shape[1], found[key].mode,
                             found[key].columns if tables is None else (),
                             ids=_unread(name, f"{found[key].computed} in the graph") if found[key].computed else None)
                for name, key in _located(named, {name: each.array for name, each in found.items()}, path.name)]
    if path.suffix in TORCH or path.name.endswith(".pth.tar"):
        content = torch_file.read(path)
        if not isinstance(content, Mapping):
            raise ValueError(f"{path} holds a {type(content).__name__}, no state dict; torch.save(model.state_dict(), "
                             "path) writes one")
        return of_state(content, tables, str(path), quantised)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, and a model is a file; of a distributed checkpoint "
                         "torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes one")
    by = "; safetensors.numpy.load_file(path) makes a state dict" if path.suffix == ".safetensors" else ""
    raise ValueError(f"{path} ends in {path.suffix!r}; models are read from {', '.join(TORCH)}, .npz and .onnx{by}")


def of_state(state: Mapping[str, Any], tables: Mapping[str, str] | None, where: str,
             quantised: str = "int8") -> list[TrainedTable]:
    """Of a state dict, whose values may be dictionaries again. Raises ValueError: as `read`"""
    arrays = dict(_flat(state))
    wide = {name.removesuffix(WEIGHT): array for name, array in arrays.items() if len(array.shape) == 2}
    for name, array in arrays.items():
        if name.rpartition(".")[2] in REMAPPED and len(array):
            raise ValueError(f"{where}: {name} says that FBGEMM has pruned its tables, and not which table each part "
                             "of it is of; give FBGEMM's module or the quantised collection itself")
    if tables is None:
        tables = {match[1]: name for name in arrays if (match := TORCHREC.fullmatch(name))}
        if not tables:
            raise ValueError(f"{where} has no tables of TorchRec's; name its tables by tables={{NAME: KEY}}: of two "
                             f"dimensions are {_few(wide)}")
    managed: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        if match := MANAGED.fullmatch(name):
            managed.setdefault(match[1], {})[match[2]] = array
    trained = []
    for name, key in _located({name: key.removesuffix(WEIGHT) for name, key in tables.items()}, wide, where):
        ids = None
        if (match := TORCHREC.fullmatch(f"{key}{WEIGHT}")) and match[1] in managed:
            ids = managed_ids(name, managed[match[1]], "a managed collision module")
        array = _array(wide[key], f"{where}: {key}")
        scale, bias = (arrays.get(f"{key}.weight_{each}") for each in ("qscale", "qbias"))
        if array.dtype != np.uint8:
            trained.append(TrainedTable(name, array, array.shape[1], ids=ids))
            continue
        if scale is None or bias is None:
            raise ValueError(f"{where}: {key} is quantised, and {key}.weight_qscale or .weight_qbias is missing; save "
                             "it with quant_state_dict_split_scale_bias, or give the module itself")
        ends = np.stack([_array(each, f"{where}: {key}.weight_qscale or .weight_qbias").reshape(-1)
                         for each in (scale, bias)], axis=1)
        trained.append(replace(_quantised(name, array, ends, quantised), ids=ids))
    return trained


def managed_ids(table: str, arrays: Mapping[str, Any], kind: str, offset: int = 0) -> Ids:
    """The row of each id of a module of TorchRec's that manages collisions. arrays: of it, by name; offset: of its rows
    in the module's; kind: of the module. Of one whose ids are not read here, a function that refuses to make rows."""
    raw, rows = (arrays.get(name) for name in ("_mch_sorted_raw_ids", "_mch_remapped_ids_mapping"))
    if raw is None or rows is None:
        return _unread(table, kind)
    raw, rows = array_of(raw), array_of(rows)
    there = raw != np.iinfo(raw.dtype).max      # of a slot without an id; the last one is for all others
    there[-1] = False
    return dict(zip(raw[there].tolist(), (rows[there] - offset).tolist()))


def of_fbgemm(tables: Any) -> list[TrainedTable]:
    """Of FBGEMM's SplitTableBatchedEmbeddingBagsCodegen or IntNBitTableBatchedEmbeddingBagsCodegen."""
    _check_fbgemm(tables)
    if hasattr(tables, "flush"):
        tables.flush()      # rows that its cache has changed
    specs = list(tables.embedding_specs)
    named = [spec[0] if isinstance(spec[0], str) else "" for spec in specs]
    names = [name or f"table{number}" for number, name in enumerate(getattr(tables, "table_names", None) or named)]
    pooling = getattr(tables, "pooling_mode", 0)
    mode = MODES.get(getattr(pooling, "value", pooling)) or str(getattr(pooling, "name", pooling)).lower()
    trained = []
    for number, (name, spec, part) in enumerate(zip(names, specs, tables.split_embedding_weights(), strict=True)):
        rows = _remapped(tables, number, name, spec[1] if isinstance(part, tuple) else spec[0])
        if not isinstance(part, tuple):
            array = _array(part, f"table {name}")
            trained.append(TrainedTable(name, _at(array, rows), array.shape[1], mode))
            continue
        form = str(getattr(spec[3], "value", spec[3])).lower()
        codes = _at(_array(part[0], f"table {name}"), rows)
        if form in ("fp32", "fp16"):
            array = np.ascontiguousarray(codes).view(np.float32 if form == "fp32" else np.float16)
            trained.append(TrainedTable(name, array[:, :spec[2]], spec[2], mode))
        elif form in CODES:
            ends = _at(np.ascontiguousarray(array_of(part[1])).view(np.float16), rows)
            trained.append(_quantised(name, codes, ends, form, mode))
        else:
            raise ValueError(f"table {name}: FBGEMM's {form} is not read; fp32, fp16, int8 and int4 are")
    return trained


def _check_fbgemm(tables: Any) -> None:
    """Raises ValueError: FBGEMM's tables that do more than look rows up, or have these in another form"""
    kind = type(tables)
    own = [each.__module__.startswith("fbgemm_gpu.") for each in kind.__mro__]
    if any(own) and not (own[0] and kind.__name__ in FBGEMM):
        of = "" if own[0] else f", a {kind.__mro__[own.index(True)].__name__} with more to it,"
        raise ValueError(f"FBGEMM's {kind.__name__}{of} is not read; {' and '.join(FBGEMM)} are")
    for changed in ("_forward_pre_hooks", "_forward_hooks", "forward"):
        if vars(tables).get(changed):
            raise ValueError(f"FBGEMM's {kind.__name__} has {changed} of its own, which a bundle would not call: "
                             "remove it, or take the rows as it leaves them")
    if not getattr(tables, "weight_initialized", True):
        raise ValueError(f"FBGEMM's {kind.__name__} has no weights yet; load them first")
    if getattr(tables, "reverse_qparam", False) or getattr(tables, "scale_bias_size_in_bytes", None) not in (None, 4):
        raise ValueError(f"FBGEMM's {kind.__name__} has scale and bias before its rows, or not in 4 bytes, which is "
                         "not read; reverse_qparam=False and scale_bias_size_in_bytes=4 are")


def _remapped(tables: Any, number: int, name: str, rows: int) -> NDArray[np.int64] | None:
    """Which row each id of a pruned table of FBGEMM's has, `rows` where it has none; None: a table that is not pruned.

    Raises      ValueError: pruned by a hash table, to rows that there are not, or as FBGEMM itself mixes up
    """
    if getattr(tables, "index_remapping_hash_table_cpu", None) is not None or \
            len(getattr(tables, "index_remapping_hash_table", ())):
        raise ValueError(f"table {name}: FBGEMM has pruned it by a hash table, which is not read; "
                         "set_index_remappings(..., use_array_for_index_remapping=True) has it as an array")
    all_rows = getattr(tables, "index_remappings_array", None)
    if all_rows is None or not len(all_rows):
        return None
    edges = array_of(tables.index_remappings_array_offsets)
    each_its_own = list(range(len(tables.embedding_specs)))
    if len(edges) != len(each_its_own) + 1 or list(getattr(tables, "feature_table_map", each_its_own)) != each_its_own:
        raise ValueError(f"table {name}: FBGEMM has pruned tables of which several features share one, and looks their "
                         "ids up in other tables' index_remappings_array; each feature needs a table of its own")
    numbers = array_of(all_rows)[edges[number]:edges[number + 1]].astype(np.int64)
    if not len(numbers):
        if not array_of(getattr(tables, "original_rows_per_table", [1] * len(edges)))[number]:
            raise ValueError(f"table {name}: index_remappings_array has no ids of it, for which FBGEMM reads row 0; "
                             "None in set_index_remappings_array leaves a table as it is")
        return None
    if numbers.max() >= rows:
        raise ValueError(f"table {name}: index_remappings_array has row {numbers.max()}; the table has {rows} rows")
    return np.where(numbers < 0, rows, numbers)


def _at(array: NDArray, rows: NDArray[np.int64] | None) -> NDArray:
    """A row for each id, where rows are given: zeros behind the last row, which is what FBGEMM adds up for an id that
    was pruned. A quantised row of zeros, with scale and bias 0, has the value 0."""
    if rows is None:
        return array
    return np.concatenate([array, np.zeros((1, array.shape[1]), array.dtype)])[rows]


def fused_rows(codes: NDArray[np.uint8], ends: NDArray, form: str) -> NDArray[np.uint8]:
    """FBGEMM's fused rows (gen.model.row_formats) of codes (rows, bytes) and scale and bias (rows, 2) of float16 or
    float32. Widening scale and bias, as int8 does, is exact."""
    dtype = np.float32 if form == "int8" else np.float16
    return np.concatenate([codes, np.ascontiguousarray(ends.astype(dtype)).view(np.uint8)], axis=1)


def array_of(value: Any) -> NDArray:
    """A tensor or an array as an array. bfloat16, which NumPy does not have, as float32."""
    value = getattr(value, "elem", value)       # TorchRec's UInt4Tensor
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.asarray(value)


def _unread(table: str, by: str) -> Ids:
    """Of a table whose ids become rows in a way that is not read: a function that refuses to make rows."""
    def refuse(_: NDArray[np.uint64]) -> NDArray[np.int64]:
        raise ValueError(f"table {table}: {by} makes rows of its ids, which is not read; ids={{{table!r}: ...}} says "
                         "which row each id of the log has")

    return refuse


def _quantised(name: str, codes: NDArray, ends: NDArray, form: str, mode: str = "sum") -> TrainedTable:
    if form not in CODES:
        raise ValueError(f"table {name}: quantised = {form!r}: must be {' or '.join(CODES)}")
    rows = fused_rows(codes, ends, form)
    return TrainedTable(name, rows, fused_dim(form, rows.shape[1]), mode, row_format=form)


def _array(value: Any, what: str) -> NDArray:
    """Raises ValueError: a tensor of no values, as on the device meta, or of no numbers that NumPy has"""
    try:
        return array_of(value)
    except Exception as error:      # torch's are of no common class
        raise ValueError(f"{what} cannot be read as an array of numbers: {str(error).partition(chr(10))[0]}") from None


def _flat(state: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors and arrays by their keys, those of dictionaries within joined by dots."""
    for key, value in state.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            yield f"{before}{key}", value


def _of_npz(path: Path, tables: Mapping[str, str] | None, quantised: str) -> list[TrainedTable]:
    """Of an npz file, with ids_NAME beside table_NAME."""
    try:
        archive = opened(path, "npz file")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    arrays = {name.removesuffix(".npy"): member(archive, name, max(ALWAYS_BYTES, path.stat().st_size))
              for name in archive.namelist() if name.endswith(".npy")}
    if tables is None:
        tables = {name.removeprefix("table_"): name for name in arrays if name.startswith("table_")}
    trained = []
    for name, key in _located(tables, {name: array for name, array in arrays.items() if array.ndim == 2}, path.name):
        array = arrays[key]
        if array.dtype == np.uint8:
            trained.append(TrainedTable(name, array, fused_dim(quantised, array.shape[1]), row_format=quantised,
                                      ids=arrays.get(f"ids_{name}")))
        else:
            trained.append(TrainedTable(name, array, array.shape[1], ids=arrays.get(f"ids_{name}")))
    return trained


def _located(tables: Mapping[str, str], arrays: Mapping[str, Any], where: str) -> Sequence[tuple[str, str]]:
    """Raises ValueError: a table that is not there, or none"""
    for name, key in tables.items():
        if key not in arrays:
            raise ValueError(f"{where} has no {key!r} for table {name}; of two dimensions are {_few(arrays)}")
    if not tables:
        raise ValueError(f"{where} has no tables; of two dimensions are {_few(arrays)}: tables={{NAME: ..}} says which")
    return list(tables.items())


def _few(arrays: Mapping[str, Any]) -> str:
    names = [f"{name} {tuple(array.shape)}" for name, array in arrays.items()]
    return (", ".join(names[:12]) or "none") + (f" and {len(names) - 12} more" if len(names) > 12 else "")
