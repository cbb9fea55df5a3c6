"""Networks out of ONNX files: a graph that is followed from its output to its inputs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gen.model.network import Layer, Network

# Fewest and most inputs of each operator.
OPERATORS = {"Gemm": (2, 3), "MatMul": (2, 2), "Add": (2, 2), "Relu": (1, 1), "Sigmoid": (1, 1), "Concat": (1, 256)}


@dataclass(frozen=True, eq=False)
class _Chain:
    """Layers that begin at a graph's input (`source`, its name) or at its one Concat (`source` None)."""

    source: str | None
    layers: tuple[Layer, ...]


def read_onnx(path: str | Path) -> Network:
    """The network of an ONNX file of Gemm (alpha = beta = 1, no transA), MatMul and Add, Relu, Sigmoid, Concat.

    One chain of layers, or a bottom whose output is concatenated (axis 1) with inputs of the graph, the sparse
    features, all of one width; then the top. The features come in the Concat's order.
    Raises      ValueError: one sentence that names the node
    """
    path = Path(path)
    model, to_array = _opened(path)
    try:
        return _Graph(model.graph, to_array).network()
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


#: Operators that pass on what they are given.
AROUND = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
#: Operators that choose among indices or join them; others make other indices of them.
CHOOSING = ("Concat", "Expand", "Gather", "Slice", "Split", "Tile", "Transpose")
#: Operators of constants that a table may be made by.
FOLDED = (*AROUND, "Add", "CastLike", "Concat", "Constant", "DequantizeLinear", "Div", "Mul", "Slice", "Sub",
          "Transpose")
LOOKUPS = ("Gather", "GatherBlockQuantized", "GatherElements", "GatherND")
_NAMED = "tables={NAME: KEY} names the tables to be read"
POOLINGS = {"ReduceMean": "mean", "ReduceMax": "max", "ReduceSum": "sum"}


@dataclass(frozen=True, eq=False)
class Lookups:
    """Of a table in a graph. array: (rows, dim); columns: the graph's inputs that look it up, () where other indices do
    too; computed: an operator that makes its indices of others, "" where none does; mode: how its rows are pooled."""

    array: np.ndarray
    columns: tuple[str, ...]
    computed: str
    mode: str


def looked_up(path: str | Path, *, whole: bool) -> dict[str, Lookups]:
    """The embedding tables of an ONNX file, by name: constants (rows, dim) whose rows are looked up. One that the graph
    makes of another constant, as by a Cast, has the name of that. whole: no table may be passed over.

    Raises      ValueError: one sentence that names the file
    """
    path = Path(path)
    model, to_array = _opened(path)
    try:
        return _Tables(model, to_array).found(whole)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


class _Tables:
    """Lookups of a graph, those within loops and branches too."""

    def __init__(self, model: Any, to_array: Any):
        self.model, self.to_array = model, to_array
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.users: dict[str, list[Any]] = {}
        self._enter(model.graph)
        self.inputs = {item.name for item in model.graph.input} - self.initializers.keys()
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.constant = set(self.initializers)
        self.unread = set[str]()    # made of constants of two dimensions by other operators
        wide = {name for name, item in self.initializers.items() if len(item.dims) == 2}
        for node in self.nodes:     # each behind those that it uses
            if not (self.constant | self.unread).issuperset(filter(None, node.input)):
                continue
            if node.op_type in FOLDED and self.constant.issuperset(filter(None, node.input)):
                self.constant.update(node.output)
            elif not wide.isdisjoint(node.input):
                self.unread.update(node.output)
            if not wide.isdisjoint(node.input):
                wide.update(node.output)

    def _enter(self, graph: Any) -> None:
        self.initializers |= {item.name: item for item in graph.initializer}
        for node in graph.node:
            self.nodes.append(node)
            for name in node.input:
                self.users.setdefault(name, []).append(node)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._enter(attribute.g)
                    for item in attribute.g.output:     # what a branch ends in is its node's
                        self.users.setdefault(item.name, []).append(node)

    def found(self, whole: bool) -> dict[str, Lookups]:
        arrays: dict[str, np.ndarray] = {}
        names: dict[str, str] = {}      # of a table, by the value that is looked up
        tables: dict[str, Lookups] = {}
        for node in self.nodes:
            data, index = (*node.input, "", "")[:2]
            if node.op_type not in LOOKUPS or index in self.constant or not index:
                continue
            if data in self.unread and whole:
                raise ValueError(f"node {_name(node)}: {data!r}, which it looks up, is made of constants by "
                                 f"{self.producers[data].op_type}, which is not read; {_NAMED}")
            if data not in self.constant:
                continue
            if data in self.initializers and len(self.initializers[data].dims) != 2:
                continue
            if not self._by_rows(node):
                if whole:
                    raise ValueError(f"node {_name(node)}: {data!r} is looked up by {node.op_type} along axis "
                                     f"{_attributes(node).get('axis', 0)}, which is not read; {_NAMED}")
                continue
            if data not in arrays:
                arrays[data], root = self._value(data)
                names[data] = data if root in names.values() else root
            name = names[data]
            if arrays[data].ndim != 2:
                continue
            column, computed = self._source(index)
            mode, before = self._mode(node.output[0]), tables.get(name)
            if before is None:
                tables[name] = Lookups(arrays[data], (column,) if column else (), computed, mode)
                continue
            if mode != before.mode and whole:
                raise ValueError(f"{name!r} is pooled by {before.mode} and by {mode}; a table has one pooling")
            joined = tuple(dict.fromkeys((*before.columns, column))) if column and before.columns else ()
            tables[name] = replace(before, columns=joined, computed=before.computed or computed)
        return tables

    def _by_rows(self, node: Any) -> bool:
        """Whether each index names a row of a table (rows, dim)."""
        numbers = _attributes(node)
        if node.op_type == "Gather":
            return numbers.get("axis", 0) in (0, -2)
        before = self.producers.get(node.input[1])      # of rank 1 more, so that a row is what it names
        return (node.op_type == "GatherND" and not numbers.get("batch_dims", 0) and before is not None
                and before.op_type == "Unsqueeze")

    def _value(self, name: str) -> tuple[np.ndarray, str]:
        """A constant, and the initializer of two dimensions that it is or is made of, where there is one alone."""
        if name in self.initializers:
            return _constant(self.initializers[name], self.to_array), name
        from onnx import TensorProto, helper
        from onnx.reference import ReferenceEvaluator

        needed, nodes = {name}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(filter(None, node.input))
                nodes.append(node)
        given = [each for each in needed if each in self.initializers]
        values = [helper.make_tensor_value_info(each, TensorProto.UNDEFINED, None) for each in (*given, name)]
        graph = helper.make_graph(nodes[::-1], "constant", values[:-1], values[-1:])
        try:
            evaluated = ReferenceEvaluator(helper.make_model(graph, opset_imports=self.model.opset_import))
            value, = evaluated.run(None, {each: self.to_array(self.initializers[each]) for each in given})
        except Exception as error:      # of no common class
            raise ValueError(f"{name!r} cannot be made of the file's constants: "
                             f"{' '.join(str(error).split()) or type(error).__name__}") from None
        roots = [each for each in given if len(self.initializers[each].dims) == 2]
        return np.asarray(value), roots[0] if len(roots) == 1 else name

    def _source(self, name: str) -> tuple[str, str]:
        """The graph's input that indices are, "" where they are not one as it is; the operator that computes them."""
        direct = True
        for _ in self.nodes:
            node = self.producers.get(name)
            if node is None or not node.input:
                break
            if node.op_type not in (*AROUND, *CHOOSING) or node.input[0] in self.constant:
                return "", node.op_type
            direct &= node.op_type in AROUND
            name = node.input[0]
        return name if direct and name in self.inputs else "", ""

    def _mode(self, rows: str) -> str:
        """How rows are pooled: by the first reductions along another axis than their own; of several by the one that is
        no sum, which exporters have for bags at the end."""
        names, kinds = [rows], set()
        for name in names:
            for node in self.users.get(name, ()):
                if node.op_type in POOLINGS and self._axes(node) <= {0, 1, -2}:
                    kinds.add(POOLINGS[node.op_type])
                elif node.op_type in (*AROUND, "If", "Mul", "Slice"):
                    names.extend(each for each in node.output if each not in names)
        return next((kind for kind in POOLINGS.values() if kind in kinds), "sum")

    def _axes(self, node: Any) -> set[int]:
        """That a node reduces; -1 where the graph does not say."""
        given = next((list(item.ints) for item in node.attribute if item.name == "axes"), None)
        if given is None and len(node.input) > 1 and node.input[1] in self.constant:
            given = self._value(node.input[1])[0].reshape(-1).tolist()
        return {-1} if given is None else set(given)


def _opened(path: Path) -> tuple[Any, Any]:
    """An ONNX file's model, without functions of its own, and what makes an array of a tensor, also of one whose bytes
    lie in a file beside it."""
    try:
        import onnx
        from onnx import inliner, numpy_helper
    except ImportError:
        raise ValueError("reading ONNX files needs the package onnx: pip install 'hotrail[onnx]'") from None
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        model = onnx.load(str(path), load_external_data=False)
        if model.functions:
            model = inliner.inline_local_functions(model)
    except Exception as error:      # protobuf's own, of no common class
        raise ValueError(f"{path.name}: not an ONNX file: {str(error).partition(chr(10))[0]}") from None
    folder = path.absolute().parent

    def to_array(item: Any) -> Any:
        if item.data_location == onnx.TensorProto.EXTERNAL:
            _check_beside(folder, {entry.key: entry.value for entry in item.external_data}.get("location", ""))
        return numpy_helper.to_array(item, base_dir=str(folder))

    return model, to_array


def _check_beside(folder: Path, location: str) -> None:
    """Raises ValueError: a tensor's bytes may not lie there. onnx would refuse it by an exception of C++, which ends a
    process in which some other libraries are loaded."""
    inside = Path(location)
    if not location or inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"its bytes lie in {location!r}, which is no file beside the network's")
    steps = [folder / Path(*inside.parts[:count]) for count in range(1, len(inside.parts) + 1)]
    if any(step.is_symlink() for step in steps) or not steps[-1].is_file():
        raise ValueError(f"its bytes lie in {folder / inside}, which is no file")


class _Graph:
    """A graph that is followed from its output to its inputs."""

    def __init__(self, graph: Any, to_array: Any):
        self.constants = {item.name: _constant(item, to_array) for item in graph.initializer}
        self.made = {name: node for node in graph.node for name in node.output}
        self.inputs = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in graph.input
                       if item.name not in self.constants}
        self.users: dict[str, int] = {}
        for node in graph.node:
            if node.op_type not in OPERATORS:
                raise ValueError(f"node {_name(node)} is a {node.op_type!r}; supported are Gemm, MatMul with Add, "
                                 "Relu, Sigmoid and Concat")
            least, most = OPERATORS[node.op_type]
            if not least <= len(node.input) <= most or not node.output:
                raise ValueError(f"node {_name(node)}: {node.op_type} has {len(node.input)} inputs and "
                                 f"{len(node.output)} outputs; it takes {least} to {most} and gives 1")
            for name in node.input:
                self.users[name] = self.users.get(name, 0) + 1
        if len(graph.output) != 1:
            raise ValueError(f"the graph has {len(graph.output)} outputs; one is supported")
        self.output = graph.output[0].name

    def network(self) -> Network:
        top = self._chain(self.output)
        if top.source is not None:
            self._used(1)
            return Network(top.layers)
        joins = {id(node): node for node in self.made.values() if node.op_type == "Concat"}
        if len(joins) != 1:
            raise ValueError(f"the graph has {len(joins)} Concat; one is supported")
        (join,) = joins.values()
        axis = _attributes(join).get("axis", 0)
        if axis not in (1, -1):
            raise ValueError(f"node {_name(join)}: Concat along axis {axis} is not supported, only along axis 1")
        direct = [name in self.inputs for name in join.input]
        if direct.count(False) != 1 or len(join.input) < 2:
            raise ValueError(f"node {_name(join)}: Concat needs one chain of layers and inputs of the graph beside it, "
                             f"not {direct.count(False)} and {direct.count(True)}")
        place = direct.index(False)
        bottom = self._chain(join.input[place])
        if bottom.source is None:
            raise ValueError(f"node {_name(join)}: only one Concat is supported")
        names = [name for name in join.input if name in self.inputs]
        widths = {self._width(name) for name in names}
        if len(widths) != 1:
            raise ValueError(f"node {_name(join)}: the sparse features must have one width, not "
                             f"{', '.join(str(width) for width in sorted(widths))}")
        self._used(1 + len(names))
        dim, mine = widths.pop(), bottom.layers[-1].outputs
        # The bottom's output may stand anywhere; here it comes first.
        order = np.concatenate([np.arange(place * dim, place * dim + mine), np.arange(place * dim),
                                np.arange(place * dim + mine, mine + len(names) * dim)])
        first = top.layers[0]
        if first.inputs != len(order):
            raise ValueError(f"layer top 1 has weights for {first.inputs} inputs, and gets {len(order)}")
        layers = (replace(first, weights=first.weights[order]), *top.layers[1:])
        return Network(bottom.layers, "concat", len(names), dim, layers)

    def _used(self, count: int) -> None:
        if len(self.inputs) != count:
            raise ValueError(f"the graph has {len(self.inputs)} inputs, of which {count} are used")

    def _width(self, name: str) -> int:
        shape = self.inputs[name]
        if len(shape) != 2 or shape[1] < 1:
            raise ValueError(f"input {name!r} must have the shape (batch, width), not {tuple(shape)}")
        return shape[1]

    def _chain(self, name: str) -> _Chain:
        """The layers that lead to a value."""
        layers: list[Layer] = []
        while name not in self.inputs:
            if len(layers) > len(self.made):
                raise ValueError(f"the nodes around {name!r} lead back to themselves")
            if name not in self.made:
                raise ValueError(f"{name!r} is made by no node and is no input of the graph")
            node = self.made[name]
            if node.op_type == "Concat":
                break
            if self.users.get(name, 0) > 1:
                raise ValueError(f"node {_name(node)}: its output is used {self.users[name]} times; once is supported")
            activation = "none"
            if node.op_type in ("Relu", "Sigmoid"):
                activation = node.op_type.lower()
                before, name = node, node.input[0]
                node = self.made.get(name)
                if node is None or node.op_type not in ("Gemm", "MatMul", "Add") or self.users[name] > 1:
                    raise ValueError(f"node {_name(before)}: {before.op_type} must follow a Gemm, a MatMul or an Add")
            layer, name = self._linear(node)
            layers.append(replace(layer, activation=activation))
        if not layers:
            raise ValueError("there is no layer between an input and " + (
                "the Concat" if name in self.inputs else "the Concat's end"))
        return _Chain(name if name in self.inputs else None, tuple(layers[::-1]))

    def _linear(self, node: Any) -> tuple[Layer, str]:
        """The layer that ends in a node, and the value that it begins from."""
        where, bias = f"node {_name(node)}", None
        if node.op_type == "Add":
            fixed = [name for name in node.input if name in self.constants]
            moving = [name for name in node.input if name not in self.constants]
            before = self.made.get(moving[0]) if len(moving) == 1 else None
            if len(fixed) != 1 or before is None or before.op_type != "MatMul" or self.users[moving[0]] > 1:
                raise ValueError(f"{where}: Add must add a constant to a MatMul")
            bias, node = self.constants[fixed[0]], before
        if node.op_type not in ("Gemm", "MatMul"):
            raise ValueError(f"{where}: {node.op_type} must follow a Gemm, a MatMul or an Add")
        if node.input[1] not in self.constants:
            raise ValueError(f"node {_name(node)}: {node.op_type} needs weights that are constants of the graph")
        weights = self.constants[node.input[1]]
        if node.op_type == "Gemm":
            attributes = _attributes(node)
            for name, expected in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
                if attributes.get(name, expected) != expected:
                    raise ValueError(f"node {_name(node)}: Gemm with {name} = {attributes[name]!r} is not supported")
            if attributes.get("transB", 0):
                weights = weights.T
            if len(node.input) > 2 and node.input[2]:
                if node.input[2] not in self.constants:
                    raise ValueError(f"node {_name(node)}: Gemm needs a bias that is a constant of the graph")
                bias = self.constants[node.input[2]]
        try:
            if bias is not None:
                bias = np.reshape(bias, -1)
                if weights.ndim == 2 and bias.size == 1 != weights.shape[1]:
                    bias = np.repeat(bias, weights.shape[1])
            return Layer(weights, bias), node.input[0]
        except ValueError as error:
            raise ValueError(f"node {_name(node)}: {error}") from None


def _name(node: Any) -> str:
    return repr(node.name or next(iter(node.output), "without a name"))


def _constant(item: Any, to_array: Any) -> np.ndarray:
    """A tensor of the file, of numbers that are all there."""
    if min(item.dims, default=1) < 0:
        raise ValueError(f"tensor {item.name!r} has the shape {tuple(item.dims)}")
    try:
        values = np.asarray(to_array(item))
    except Exception as error:      # onnx's own, of no common class
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"tensor {item.name!r} cannot be read: {text}") from None
    if values.dtype.name == "bfloat16":      # which NumPy does not have
        values = values.astype(np.float32)
    if values.shape != tuple(item.dims) or values.dtype.kind not in "biuf":
        raise ValueError(f"tensor {item.name!r} is {values.dtype} of shape {values.shape}, not numbers of shape "
                         f"{tuple(item.dims)}")
    return values


def _attributes(node: Any) -> dict[str, Any]:
    """Attributes that are numbers, by name."""
    from onnx import AttributeProto
    kinds = {AttributeProto.INT: "i", AttributeProto.FLOAT: "f"}
    return {item.name: getattr(item, kinds[item.type]) for item in node.attribute if item.type in kinds}
