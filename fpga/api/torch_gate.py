"""Which modules cards can stand in for. What is understood is here; everything else is refused before anything is
compiled, with the module's place in the model and what it has.

A card holds rows and pools them. A module that does more with its weights than its class does, by a forward of its own,
a hook, a parametrisation or another tensor, would silently give other values.
"""

import dis
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from fpga.api.torch import OnCards

BAG, ROWS = "EmbeddingBagCollection", "EmbeddingCollection"
TABLES = torch.nn.Embedding, torch.nn.EmbeddingBag
#: Of TorchRec, by class: the method that gives configurations, the attribute that has the tables, and what else may lie
#: inside.
COLLECTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    f"torchrec.{module}.embedding_modules.{name}": (configs, tables, inside)
    for module, inside in (("modules", ()), ("quant", ("tbes", "_kjt_to_jt_dict", "_features_order_tensor")))
    for name, configs, tables in ((BAG, "embedding_bag_configs", "embedding_bags"),
                                  (ROWS, "embedding_configs", "embeddings"))}
QUANTISED = "fbgemm_gpu.split_table_batched_embeddings_ops_inference.IntNBitTableBatchedEmbeddingBagsCodegen"
#: What a subclass may define without changing what it computes from its weight.
HARMLESS = {"__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__", "__init__",
            "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__repr__", "__static_attributes__",
            "__weakref__", "_abc_impl", "_load_from_state_dict", "_save_to_state_dict", "extra_repr",
            "from_pretrained", "reset_parameters"}
#: Whose modules hold tables in a form of their own.
HELD = "fbgemm_gpu.", "torch.ao.nn.quantized.modules.embedding_ops."
FORMATS = torch.float32, torch.float16, torch.bfloat16, torch.float64
ADVICE = "a card holds rows and pools them: take the rows as the model means them into a plain"


def kind_of(module: torch.nn.Module) -> type | None:
    """The class that is understood and that a module is of or derives from; None: it holds no table."""
    return next((each for each in type(module).__mro__ if each in TABLES or _name(each) in COLLECTIONS), None)


def place_of(name: str, module: torch.nn.Module) -> str:
    """A module's name in its model, without what torch.compile puts around it."""
    return ".".join(part for part in name.split(".") if part not in ("", "_orig_mod")) or type(module).__name__


def check(module: torch.nn.Module, place: str) -> None:
    """Raises ValueError: a module that holds tables, or is made of such, and is not understood"""
    kind = kind_of(module)
    if isinstance(module, OnCards):
        raise ValueError(f"module {place} is on cards already: compile the model that it was made from")
    if kind is None:
        _check_stranger(module, place)
        return
    _check_as_its_class(module, kind, place)
    if kind in TABLES:
        if module.max_norm is not None:
            raise ValueError(f"module {place}: max_norm = {module.max_norm} changes rows as they are read, which a "
                             "card does not; take the rows as trained and build the module without it")
        check_weight(getattr(module, "weight", None), place)
    else:
        _check_collection(module, kind, place)


def check_weight(weight: Any, place: str) -> None:
    """Raises ValueError: values that are not there, or that a card cannot hold exactly"""
    if type(weight) not in (torch.Tensor, torch.nn.Parameter):
        raise ValueError(f"module {place}: its weight is a {type(weight).__name__}, not a plain tensor; take its "
                         f"values into a plain {_title(torch.nn.Embedding)}")
    if weight.is_meta:
        raise ValueError(f"module {place}: its weight is on the device meta and has no values yet; load them first")
    if weight.layout is not torch.strided or weight.dtype not in FORMATS:
        raise ValueError(f"module {place}: its weight is a tensor of {weight.dtype} and {weight.layout}; rows must be "
                         f"{', '.join(str(each) for each in FORMATS)} and strided")
    if weight.dtype is torch.float64 and not torch.equal(weight.nan_to_num(), weight.float().double().nan_to_num()):
        raise ValueError(f"module {place}: its weight is torch.float64 and has values that float32, the card's format, "
                         "rounds; model.float() rounds them")


def check_functions(model: torch.nn.Module, tables: Collection[torch.nn.Module]) -> None:
    """Raises ValueError: a function that keeps a module with one of the tables, as a lambda does: a copy of the model
    would call the model's own tables by it"""
    held = {id(table) for table in tables}
    for name, module in model.named_modules():
        compiled = {attribute: method for attribute, _, method in compiled_methods(module)}
        parts = {"forward": getattr(type(module), "forward", None)} | _copied(module) | compiled
        for attribute, part in parts.items():
            for kept in _kept(part):
                if any(id(each) in held for each in kept.modules()):
                    raise ValueError(
                        f"module {place_of(name, model)}: {attribute.lstrip('_')} is or has a function that keeps the "
                        f"{type(kept).__name__} itself, whose tables a copy of the model would call in the place of "
                        "the cards'; write it as a method, or set it on what hotrail.compile returns")


def compiled_methods(module: torch.nn.Module) -> Iterator[tuple[str, Any, MethodType]]:
    """Methods that torch.compile has compiled in a module's attributes: the attribute, the compiler, the method."""
    for attribute, value in _copied(module).items():
        method = getattr(value, "_torchdynamo_orig_callable", None)
        if isinstance(value, FunctionType) and isinstance(method, MethodType):
            for compiler in _compilers(value):
                yield attribute, compiler, method


def _copied(module: torch.nn.Module) -> dict[str, Any]:
    """Attributes that copy.deepcopy copies as they are: not torch.compile's, of which torch makes new ones or none."""
    if "_orig_mod" in module._modules:
        return {}
    return {name: value for name, value in vars(module).items() if name not in ("_modules", "_compiled_call_impl")}


def _compilers(function: Any) -> list[Any]:
    """Of a function that torch.compile has made: what makes such functions."""
    return [each for each in _closed_over(function) if type(each).__module__ == "torch._dynamo.eval_frame"
            and callable(each) and not isinstance(each, FunctionType)]


def _kept(value: Any) -> Iterator[torch.nn.Module]:
    """Modules that functions in a value reach by what they close over and by names of their file; not through lists or
    functions that those names stand for."""
    stack, seen = [(value, False)], set[tuple[int, bool]]()
    while stack:
        each, within = stack.pop()      # within: a function, which copy.deepcopy does not enter
        if (id(each), within) in seen:
            continue
        seen.add((id(each), within))
        if isinstance(each, torch.nn.Module):
            if within:
                yield each
        elif isinstance(each, FunctionType):
            modules = (each.__globals__.get(name) for name in _names(each.__code__))
            stack += [(part, True) for part in (
                *_closed_over(each), *(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values(),
                *(part for part in modules if isinstance(part, torch.nn.Module)))]
        elif isinstance(each, MethodType):
            stack += [(each.__func__, within), (each.__self__, within)]
        elif isinstance(each, partial):
            stack += [(part, within) for part in (each.func, *each.args, *each.keywords.values())]
        elif isinstance(each, dict):
            stack += [(part, within) for part in each.values()]
        elif isinstance(each, list | tuple | set):
            stack += [(part, within) for part in each]


def _closed_over(function: Any) -> list[Any]:
    """What a function's closure holds."""
    held = []
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):      # of a name that has no value yet
            held.append(cell.cell_contents)
    return held


def _names(code: CodeType) -> set[str]:
    """That a function and those within it look up in their file."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return own.union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _check_stranger(module: torch.nn.Module, place: str) -> None:
    """Of a module that is none of those: what looks like one, and would be left out or fail when it is called."""
    if isinstance(module, torch.jit.ScriptModule):
        original = getattr(module, "original_name", "")
        if original in (*(each.__name__ for each in TABLES), BAG, ROWS):
            raise ValueError(f"module {place} is {original} of TorchScript, which holds its tables itself: compile "
                             "the model that was scripted or traced")
    if _is_one_graph(module) and any(map(kind_of, module.modules())):
        raise ValueError(f"module {place} is compiled by torch.compile with fullgraph=True, which a call of a card "
                         "breaks; compile it with fullgraph=False")
    name = _name(type(module))
    if name.startswith(HELD) and hasattr(module, "split_embedding_weights" if name.startswith("fbgemm") else "weight"):
        raise ValueError(f"module {place} is a {name}, whose tables would stay where they are: take its rows into a "
                         "plain torch.nn.EmbeddingBag; hotrail.bundle takes FBGEMM's tables by themselves")
    if name.startswith("torchrec.distributed."):
        raise ValueError(f"module {place} is a {name}: its tables are sharded or about to be; compile the model before")
    for configs, tables, _ in COLLECTIONS.values():
        # By its class, for some modules pass on what they are asked to one inside.
        if hasattr(type(module), configs) and tables in (*module._modules, *vars(module)):
            raise ValueError(f"module {place} is a {name}, which is not supported; of TorchRec's collections are "
                             f"{', '.join(COLLECTIONS)}, whose state dicts have the same tables")


def _is_one_graph(module: torch.nn.Module) -> bool:
    """Whether torch.compile has made a module, or its forward, that must not break."""
    called = vars(module).get("forward"), getattr(type(module), "forward", None)
    compilers = [vars(module).get("dynamo_ctx"), *(each for function in called for each in _compilers(function))]
    return any(getattr(each, "fullgraph", False) is True for each in compilers)


def _check_as_its_class(module: torch.nn.Module, kind: Any, place: str) -> None:
    """Raises ValueError: a module that does not do what its class does."""
    if torch.nn.utils.parametrize.is_parametrized(module):
        names = [name for name, _ in module.parametrizations.named_children()]
        raise ValueError(f"module {place}: parametrizations.{names[0]} makes its {names[0]} of other tensors; "
                         f"torch.nn.utils.parametrize.remove_parametrizations(module, {names[0]!r}) keeps what it is")
    forward = kind.forward     # as the class's own module has it, not what another has put there
    if forward.__module__ != kind.__module__ or hasattr(forward, "__wrapped__"):
        raise ValueError(f"module {place}: {_title(kind)} has a forward of {forward.__module__}, which a card would "
                         "not call; compile the model where the class is as it was")
    for name in _added(type(module), kind):
        raise ValueError(f"module {place} is a {type(module).__name__}, that is {_title(kind)} with {name} of its own; "
                         f"{ADVICE} {_title(kind)}")
    for name in vars(module):
        if callable(getattr(kind, name, None)):
            raise ValueError(f"module {place}: {name} was set on the module itself in the place of that of "
                             f"{_title(kind)}; {ADVICE} {_title(kind)}")
    for attribute, what in (("_forward_pre_hooks", "forward pre-hook"), ("_forward_hooks", "forward hook")):
        for hook in getattr(module, attribute).values():
            raise ValueError(f"module {place} has a {what} ({_title(hook)}), which a card would not call; {ADVICE} "
                             f"{_title(kind)}")
    _, tables, inside = COLLECTIONS.get(_name(kind), ("", "weight", ()))
    more = [name for each in (module._parameters, module._buffers, module._modules) for name in each]
    if more := [name for name in more if name not in (tables, *inside)]:
        raise ValueError(f"module {place}: {more[0]} is a tensor or module of its own, which {_title(kind)} does not "
                         f"have; {ADVICE} {_title(kind)}")


def _added(given: type, kind: type) -> Iterator[str]:
    """What classes between a module's and the one that is understood define."""
    for each in given.__mro__:
        if each not in kind.__mro__ and each.__module__ not in ("abc", "typing"):
            yield from (name for name in vars(each) if name not in HARMLESS)


def _check_collection(module: Any, kind: type, place: str) -> None:
    """Of a collection of TorchRec's: its tables are understood, and are those of its configurations."""
    configs, tables, _ = COLLECTIONS[_name(kind)]
    configured, held = getattr(module, configs)(), getattr(module, tables)
    if list(held) != [config.name for config in configured] and not hasattr(module, "_emb_modules"):
        raise ValueError(f"module {place}: {tables} are {', '.join(held)} and {configs}() names "
                         f"{', '.join(config.name for config in configured)}; they must be the same in one order")
    if configs == "embedding_bag_configs" and module.is_weighted():
        for config in configured:
            if pooling(config) != "sum":
                raise ValueError(f"module {place}: is_weighted with pooling {pooling(config)} of table {config.name}; "
                                 "a card takes weights with sum alone")
    if hasattr(module, "_emb_modules"):
        if not module.output_dtype().is_floating_point:
            raise ValueError(f"module {place}: output_dtype {module.output_dtype()} is not supported; results are "
                             "floats")
        for each in module._emb_modules:
            if _name(type(each)) != QUANTISED:
                raise ValueError(f"module {place}: its tables are a {_name(type(each))}; supported is {QUANTISED}")
        return
    for config in configured:
        table, where = held[config.name], f"{place}.{tables}.{config.name}"
        wanted_kind = torch.nn.EmbeddingBag if tables == "embedding_bags" else torch.nn.Embedding
        if kind_of(table) is not wanted_kind:
            raise ValueError(f"module {where} is a {type(table).__name__}, not a {_title(wanted_kind)}; {ADVICE} "
                             f"{_title(wanted_kind)}")
        check(table, where)
        wanted = {"mode": pooling(config), "include_last_offset": True, "padding_idx": None}
        for name, value in wanted.items() if isinstance(table, torch.nn.EmbeddingBag) else ():
            if getattr(table, name) != value:
                raise ValueError(f"module {where}: {name} = {getattr(table, name)!r}, and the collection means "
                                 f"{value!r}")


def pooling(config: Any) -> str:
    """Of a table of TorchRec's; a sequence's rows are bags of one."""
    found = getattr(config, "pooling", "sum")
    return str(getattr(found, "value", found)).lower()


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _title(what: Any) -> str:
    """A class or a hook in a sentence."""
    if what in TABLES:
        return f"torch.nn.{what.__name__}"
    return str(getattr(what, "__qualname__", None) or type(what).__qualname__)
