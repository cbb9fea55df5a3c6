"""Networks from arrays, model files and ONNX files, and everything that is refused."""

import numpy as np
import pytest

from gen.model.network import Layer, Model, Network, models
from gen.model.onnx import read_onnx
from tests.support import mlp_sizes as make

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def ones(k, n, activation="none"):
    return Layer(np.ones((k, n)), np.zeros(n), activation)


def test_a_dense_network_by_hand():
    network = Network([Layer([[1, 2], [3, 4]], [0, -20], "relu"), Layer([[1], [1]], None, "sigmoid")])
    assert network.inputs == 2 and network.outputs == 1 and network.macs == 6
    np.testing.assert_allclose(network([[1, 1], [0, 0]]), [[1 / (1 + np.exp(-4))], [0.5]])


def test_interactions_by_hand():
    bottom = [Layer(np.eye(2))]
    features = np.array([[[1, 2], [3, 4]]])
    joined = Network(bottom, "concat", 2, 2, [Layer(np.eye(6))])
    np.testing.assert_array_equal(joined([[5, 6]], features), [[5, 6, 1, 2, 3, 4]])
    dots = Network(bottom, "dot", 2, 2, [Layer(np.eye(5))])
    np.testing.assert_array_equal(dots([[5, 6]], features), [[5, 6, 17, 39, 11]])
    assert dots.macs == 4 + 3 * 2 + 25 and joined.top_inputs == 6 and dots.top_inputs == 5


SIZES = {   # inputs of the top, multiplications of a sample: by the papers' figures
    "hotline_rm2": (26 * 27 // 2 + 16, 13 * 512 + 512 * 256 + 256 * 64 + 64 * 16 + 351 * 16 + 367 * 512 + 512 * 256
                    + 256),
    "hotline_rm3": (26 * 27 // 2 + 64, 13 * 512 + 512 * 256 + 256 * 64 + 351 * 64 + 415 * 512 + 512 * 512 + 512 * 256
                    + 256),
    "hotline_rm4": (21 * 22 // 2 + 16, 512 + 512 * 256 + 256 * 64 + 64 * 16 + 231 * 16 + 247 * 512 + 512 * 256 + 256),
    "hotline_rm1_bottom": (0, 16),
    "hotline_rm1_top": (0, 30 * 60 + 60),
}


def test_models_have_the_papers_sizes():
    for name, (inputs, macs) in SIZES.items():
        network = Network.model(name)
        assert (network.top_inputs, network.macs) == (inputs, macs), name
    for number, (one, two) in enumerate([(64, 32), (128, 64), (256, 128), (512, 256)]):
        for dim in (16, 256):
            network = Network.model(f"screc_rm{number}", dim=dim)
            assert network.top_inputs == 27 * dim
            assert [layer.outputs for _, layer in network.layers()] == [
                one, two, dim, one, one // 4, 1]
            assert [layer.activation for _, layer in network.layers()] == ["relu"] * 5 + ["sigmoid"]
    assert set(models()) == {*SIZES, *(f"screc_rm{number}" for number in range(4)), "movielens"}


def test_weights_of_a_model_come_from_the_seed():
    one, two, other = (Network.model("hotline_rm1_top", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.bottom[0].weights, two.bottom[0].weights)
    assert not np.array_equal(one.bottom[0].weights, other.bottom[0].weights)


@pytest.mark.parametrize(("make_it", "sentence"), [
    (lambda: Layer(np.ones(3)), r"weights must have the shape \(inputs, outputs\), not \(3,\)"),
    (lambda: Layer(np.ones((0, 3))), r"weights must have the shape \(inputs, outputs\), not \(0, 3\)"),
    (lambda: Layer(np.array([["a"]])), "weights must be numbers"),
    (lambda: Layer(np.array([[1.0, np.nan]])), r"weights must be finite float32 numbers; at \(0, 1\) stands nan"),
    (lambda: Layer(np.array([[1e39]])), r"weights must be finite float32 numbers; at \(0, 0\) stands 1e\+39"),
    (lambda: Layer(np.ones((2, 3)), np.ones(2)), r"bias must have the shape \(3,\), not \(2,\)"),
    (lambda: Layer(np.ones((2, 3)), np.array([0, np.inf, 0])), r"bias must be finite .* at \(1,\) stands inf"),
    (lambda: Layer(np.ones((2, 3)), None, "gelu"), "activation must be one of none, relu, sigmoid, not 'gelu'"),
    (lambda: Network([]), "a network needs a bottom layer at least"),
    (lambda: Network([ones(3, 4), ones(5, 2)]), "layer bottom 2 has weights for 5 inputs, and gets 4"),
    (lambda: Network([ones(3, 4, "sigmoid"), ones(4, 2)]), "layer bottom 1 has a sigmoid; only the network's last"),
    (lambda: Network([ones(3, 4)], "none", 2, 4), "without an interaction has bottom layers alone"),
    (lambda: Network([ones(3, 4)], "sum"), "interaction must be one of none, concat, dot, not 'sum'"),
    (lambda: Network([ones(3, 4)], "dot", 2, 4), "interaction dot needs a top layer at least"),
    (lambda: Network([ones(3, 4)], "dot", 0, 4, [ones(7, 1)]), "features must be 1 to 254, not 0"),
    (lambda: Network([ones(3, 4)], "dot", 255, 4, [ones(7, 1)]), "features must be 1 to 254, not 255"),
    (lambda: Network([ones(3, 4)], "concat", 2, 0, [ones(7, 1)]), "dim must be at least 1, not 0"),
    (lambda: Network([ones(3, 4)], "dot", 2, 5, [ones(7, 1)]), "the bottom's 4 outputs are a feature"),
    (lambda: Network([ones(3, 4)], "dot", 2, 4, [ones(8, 1)]), "layer top 1 has weights for 8 inputs, and gets 7"),
    (lambda: Network([ones(3, 4)], "concat", 2, 4, [ones(8, 1)]), "layer top 1 has weights for 8 inputs, and gets 12"),
    (lambda: Network.model("rm9"), "there is no model 'rm9'; there are hotline_rm1_bottom, "),
    (lambda: Network.model("screc_rm0"), "screc_rm0.toml: the model leaves the features' dimension open: say dim"),
    (lambda: Network.model("hotline_rm2", dim=32), "hotline_rm2.toml: the features' dimension is 16, not 32"),
])
def test_wrong(make_it, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_it()


GOOD = {"about": '"x"', "bottom": "[3, 4]", "interaction": '"dot"', "features": "2", "dim": "4", "top": "[5, 1]",
        "hidden": '"relu"', "last": '"none"'}


@pytest.mark.parametrize(("change", "sentence"), [
    ({"bottom": None}, "mine.toml: bottom: missing key"),
    ({"wide": "3"}, "mine.toml: wide: unknown key; allowed are about, bottom"),
    ({"bottom": "[3, 0]"}, r"mine.toml: bottom = \[3, 0\]: must be a list of widths"),
    ({"bottom": "3"}, "mine.toml: bottom = 3: must be a list of widths"),
    ({"bottom": "[3]"}, r"mine.toml: bottom = \[3\]: must have the dense inputs and a layer's outputs"),
    ({"top": '["a"]'}, r"mine.toml: top = \['a'\]: must be a list of widths"),
    ({"features": '"many"'}, "mine.toml: features = 'many': must be a whole number"),
    ({"features": "0"}, "mine.toml: features must be 1 to 254, not 0"),
    ({"hidden": '"tanh"'}, "mine.toml: hidden = 'tanh': must be one of none, relu, sigmoid"),
    ({"interaction": '"sum"'}, "mine.toml: interaction must be one of none, concat, dot, not 'sum'"),
    ({"about": '"'}, "mine.toml: not valid TOML"),
])
def test_model_files_wrong(tmp_path, change, sentence):
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in (GOOD | change).items() if value is not None))
    with pytest.raises(ValueError, match=sentence):
        Model.load(path)


def test_a_model_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in GOOD.items()), "utf-8")
    assert Network.model(path).top_inputs == 4 + 3


# ONNX.


class Graph:
    """An ONNX graph, node after node."""

    def __init__(self):
        self.nodes, self.constants, self.inputs = [], [], []

    def input(self, name, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape]))
        return name

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def gemm(self, x, layer, **attributes):
        at = len(self.nodes)
        weights = layer.weights.T if attributes.get("transB") else layer.weights
        inputs = [x, self.constant(f"w{at}", weights)]
        if layer.bias is not None:
            inputs.append(self.constant(f"b{at}", layer.bias))
        return self.act(self.node("Gemm", *inputs, **attributes), layer)

    def matmul(self, x, layer):
        at = len(self.nodes)
        y = self.node("MatMul", x, self.constant(f"w{at}", layer.weights))
        if layer.bias is not None:
            y = self.node("Add", self.constant(f"b{at}", layer.bias), y)
        return self.act(y, layer)

    def act(self, x, layer):
        return x if layer.activation == "none" else self.node(layer.activation.capitalize(), x)

    def save(self, folder, *outputs):
        graph = helper.make_graph(self.nodes, "g", self.inputs,
                                  [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
                                  self.constants)
        path = folder / "net.onnx"
        onnx.save(helper.make_model(graph), str(path))
        return path


def same(one, two):
    assert (one.interaction, one.features, one.dim) == (two.interaction, two.features, two.dim)
    for (name, left), (other, right) in zip(one.layers(), two.layers(), strict=True):
        assert name == other and left.activation == right.activation
        np.testing.assert_array_equal(left.weights, right.weights)
        assert (left.bias is None) == (right.bias is None)
        if left.bias is not None:
            np.testing.assert_array_equal(left.bias, right.bias)


@pytest.mark.parametrize("how", ["gemm", "transposed", "matmul"])
def test_a_chain_out_of_onnx(tmp_path, how):
    network = make.plain(7, 12, 5, 1, last="sigmoid")
    graph = Graph()
    x = graph.input("x", 7)
    for layer in network.bottom:
        x = graph.matmul(x, layer) if how == "matmul" else graph.gemm(x, layer, transB=int(how == "transposed"))
    same(read_onnx(graph.save(tmp_path, x)), network)


def test_a_product_without_bias_out_of_onnx(tmp_path):
    network = make.plain(7, 3, bias=False)
    graph = Graph()
    same(read_onnx(graph.save(tmp_path, graph.matmul(graph.input("x", 7), network.bottom[0]))), network)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_recommendation_model_out_of_onnx(tmp_path, place):
    """The bottom's output may stand anywhere among the features."""
    network = make.joined("concat", 3, 4, bottom=(5, 8), top=(9, 1))
    graph = Graph()
    x = graph.input("dense", 5)
    parts = [graph.input(f"feature{f}", 4) for f in range(3)]
    for layer in network.bottom:
        x = graph.gemm(x, layer)
    x = graph.node("Concat", *parts[:place], x, *parts[place:], axis=1)
    order = np.argsort(np.concatenate([np.arange(4) + 4 * at for at in (*range(1, place + 1), 0,
                                                                       *range(place + 1, 4))]))
    first = Layer(network.top[0].weights[np.argsort(order)], network.top[0].bias, network.top[0].activation)
    for layer in (first, *network.top[1:]):
        x = graph.matmul(x, layer)
    found = read_onnx(graph.save(tmp_path, x))
    same(found, network)
    dense, embeddings = make.batch(network, 6)
    np.testing.assert_array_equal(found(dense, embeddings), network(dense, embeddings))


def chain(change):
    """A graph of one input and two layers that `change` may spoil."""
    def build(folder):
        graph = Graph()
        return graph.save(folder, *np.atleast_1d(change(graph, graph.input("x", 3))))
    return build


ONE, TWO = ones(3, 4, "relu"), ones(4, 2)


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda g, x: g.node("Softmax", g.gemm(x, ONE)), "net.onnx: node 'softmax_2' is a 'Softmax'; supported are Gemm"),
    (lambda g, x: g.node("Mat\nMul", x), r"is a 'Mat\\nMul'; supported are Gemm"),
    (lambda g, x: g.gemm(x, ONE, alpha=0.5), "node 'gemm_0': Gemm with alpha = 0.5 is not supported"),
    (lambda g, x: g.gemm(x, ONE, beta=2.0), "node 'gemm_0': Gemm with beta = 2.0 is not supported"),
    (lambda g, x: g.gemm(x, ONE, transA=1), "node 'gemm_0': Gemm with transA = 1 is not supported"),
    (lambda g, x: g.node("Gemm", x, x), "node 'gemm_0': Gemm needs weights that are constants of the graph"),
    (lambda g, x: g.node("Gemm", x, g.constant("w", np.ones((3, 3))), x), "node 'gemm_0': Gemm needs a bias that is"),
    (lambda g, x: g.node("Relu", x), "node 'relu_0': Relu must follow a Gemm, a MatMul or an Add"),
    (lambda g, x: g.node("Relu", g.node("Sigmoid", g.gemm(x, TWO))), "node 'relu_2': Relu must follow"),
    (lambda g, x: g.node("Add", x, g.constant("b", np.ones(3))), "node 'add_0': Add must add a constant to a MatMul"),
    (lambda g, x: g.node("Add", g.gemm(x, ONE), g.gemm(x, ONE)), "node 'add_4': Add must add a constant to a MatMul"),
    (lambda g, x: g.gemm(g.gemm(x, ONE), ones(5, 2)), "layer bottom 2 has weights for 5 inputs, and gets 4"),
    (lambda g, x: g.gemm(g.node("Sigmoid", g.gemm(x, TWO)), TWO), "layer bottom 1 has a sigmoid"),
    (lambda g, x: g.gemm(x, Layer(np.ones((3, 4)), np.ones(4))) and [x + "y"], "'xy' is made by no node"),
    (lambda g, x: [g.gemm(x, ONE), g.gemm(x, ONE)], "the graph has 2 outputs; one is supported"),
    (lambda g, x: g.gemm(g.node("Concat", g.gemm(x, ONE), g.input("e", 2), axis=0), ones(6, 1)),
     "node 'concat_2': Concat along axis 0 is not supported"),
    (lambda g, x: g.gemm(g.node("Concat", g.gemm(x, ONE), g.gemm(x, ONE), axis=1), ones(8, 1)),
     "node 'concat_4': Concat needs one chain of layers and inputs of the graph beside it, not 2 and 0"),
    (lambda g, x: g.gemm(g.node("Concat", g.gemm(x, ONE), g.input("e", 2), g.input("f", 3), axis=1), ones(9, 1)),
     "node 'concat_2': the sparse features must have one width, not 2, 3"),
    (lambda g, x: g.gemm(g.node("Concat", g.gemm(x, ONE), g.input("e", 2), axis=1), ones(9, 1)),
     "layer top 1 has weights for 9 inputs, and gets 6"),
    (lambda g, x: g.input("y", 3) and g.gemm(x, ONE), "the graph has 2 inputs, of which 1 are used"),
    (lambda g, x: x, "there is no layer"),
    (lambda g, x: g.matmul(x, ones(3, 2)) and g.node("MatMul", x, g.constant("n", np.full((3, 2), np.nan))),
     "node 'matmul_2': weights must be finite float32 numbers"),
])
def test_onnx_files_wrong(tmp_path, change, sentence):
    path = chain(change)(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        read_onnx(path)


def test_a_layer_that_is_used_twice_wrong(tmp_path):
    graph = Graph()
    y = graph.gemm(graph.input("x", 3), ones(3, 3))
    path = graph.save(tmp_path, graph.node("Concat", graph.gemm(y, ONE), y, axis=1))
    with pytest.raises(ValueError, match="net.onnx: "):
        read_onnx(path)


def test_what_is_no_onnx_file_wrong(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        read_onnx(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="bad.onnx: not an ONNX file"):
        read_onnx(tmp_path / "bad.onnx")
