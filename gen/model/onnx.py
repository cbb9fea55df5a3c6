"""Networks out of ONNX files: a graph that is followed from its output to its inputs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gen.model.network import Layer, Network

__all__ = ["gathered", "read_onnx"]


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
    graph, to_array = _opened(path)
    try:
        return _Graph(graph, to_array).network()
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


#: Operators between an input of indices and the Gather that looks them up.
AROUND = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def gathered(path: str | Path) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
    """The embedding tables of an ONNX file: constants (rows, dim) that a Gather along axis 0 looks up, by name. Each
    with the graph's inputs that its indices come from.

    Raises      ValueError: one sentence that names the file
    """
    path = Path(path)
    graph, to_array = _opened(path)
    constants = {item.name: item for item in graph.initializer}
    producers = {name: node for node in graph.node for name in node.output}
    tables: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {}
    for node in graph.node:
        table = constants.get(node.input[0]) if node.op_type == "Gather" and len(node.input) == 2 else None
        if table is None or len(table.dims) != 2 or _attributes(node).get("axis", 0):
            continue
        name, steps = node.input[1], 0
        while name in producers and producers[name].op_type in AROUND and steps < len(producers):
            name, steps = producers[name].input[0], steps + 1
        try:
            array, before = tables.get(table.name) or (_constant(table, to_array), ())
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        tables[table.name] = array, (*before, name) if name not in producers and name not in before else before
    return tables


def _opened(path: Path) -> tuple[Any, Any]:
    """An ONNX file's graph, and what makes an array of a tensor, also of one whose bytes lie in a file beside it."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        raise ValueError("reading ONNX files needs the package onnx: pip install 'hotrail[onnx]'") from None
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:      # protobuf's own, of no common class
        raise ValueError(f"{path.name}: not an ONNX file: {str(error).partition(chr(10))[0]}") from None
    folder = path.absolute().parent

    def to_array(item: Any) -> Any:
        if item.data_location == onnx.TensorProto.EXTERNAL:
            _check_beside(folder, {entry.key: entry.value for entry in item.external_data}.get("location", ""))
        return numpy_helper.to_array(item, base_dir=str(folder))

    return graph, to_array


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
