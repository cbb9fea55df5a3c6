"""Tables out of the files of trained models; torch's own are read without it."""

from types import SimpleNamespace

import numpy as np
import pytest

from gen.data.checkpoint import fused_rows, of_fbgemm, read
from gen.data.trained import placed
from gen.model.row_formats import quantise, values
from tests.fuzz.logs import tensor, torch_file

RANDOM = np.random.default_rng(2)
USER, ITEM = (RANDOM.standard_normal((rows, 4)).astype(np.float32) for rows in (5, 7))


def state(arrays):
    """The file of a state dict of float32 arrays."""
    made = b"ccollections\nOrderedDict\n)R("
    for number, (name, array) in enumerate(arrays.items()):
        steps = [step // array.itemsize for step in array.strides]
        made += b"X" + len(name).to_bytes(4, "little") + name.encode()
        made += tensor(str(number), "FloatStorage" if array.dtype == np.float32 else "ByteStorage", array.size, 0,
                       array.shape, steps)
    return torch_file(list(arrays.values()), made + b"u")


@pytest.fixture
def saved(tmp_path):
    def write(arrays, name="m.pt"):
        (tmp_path / name).write_bytes(state(arrays))
        return tmp_path / name

    return write


def names(tables):
    return {table.name: table.array.shape for table in tables}


def test_torchrec_names_its_tables(saved):
    path = saved({"sparse.ebc.embedding_bags.user.weight": USER, "embeddings.item.weight": ITEM,
                  "over.weight": np.ones((3, 4), np.float32)})
    found = read(path)
    assert names(found) == {"user": (5, 4), "item": (7, 4)} and np.array_equal(found[1].array, ITEM)


@pytest.mark.parametrize("key", ["user_embedding", "user_embedding.weight"])
def test_tables_are_named_by_the_user(saved, key):
    path = saved({"user_embedding.weight": USER, "fc.weight": ITEM, "fc.bias": np.ones(3, np.float32)})
    (found,) = read(path, {"user_id": key})
    assert found.name == "user_id" and np.array_equal(found.array, USER)


def test_dictionaries_within(saved):
    (found,) = read({"epoch": 3, "model": {"ebc.embedding_bags.user.weight": USER}})
    assert np.array_equal(found.array, USER)


def test_an_npz_file_with_its_ids(tmp_path):
    np.savez(tmp_path / "m.npz", table_user=USER, ids_user=[3, 9, 11, 12, 40], table_item=quantise(ITEM, "int8"))
    user, item = read(tmp_path / "m.npz")
    assert placed(user, np.zeros(0, np.uint64)).vocabulary.tolist() == [3, 9, 11, 12, 40]
    assert item.row_format == "int8" and item.dim == 4
    (chosen,) = read(tmp_path / "m.npz", {"other": "table_user"})
    assert chosen.name == "other"


def test_a_quantised_state_dict(saved):
    """Scale and bias beside the codes, as TorchRec saves them."""
    fused = quantise(USER, "int4")
    ends = np.ascontiguousarray(fused[:, -4:]).view(np.float16)
    arrays = {"e.embedding_bags.user.weight": fused[:, :-4].copy(),
              "e.embedding_bags.user.weight_qscale": ends[:, :1], "e.embedding_bags.user.weight_qbias": ends[:, 1:]}
    (found,) = read(arrays, quantised="int4")
    assert np.array_equal(found.array, fused) and (found.dim, found.row_format) == (4, "int4")
    with pytest.raises(ValueError, match="e.embedding_bags.user.weight_qscale or .weight_qbias is missing"):
        read({name: array for name, array in arrays.items() if "qscale" not in name})


def of_inference(form, codes, ends):
    return SimpleNamespace(embedding_specs=[("user", 5, 4, SimpleNamespace(value=form), 0)], pooling_mode=1,
                           split_embedding_weights=lambda: [(codes, ends)])


def test_tables_of_fbgemm():
    """As its two kinds of batched tables give them."""
    codes = RANDOM.integers(0, 256, (5, 4), np.uint8)
    ends = RANDOM.standard_normal((5, 2)).astype(np.float16)
    (found,) = of_fbgemm(of_inference("INT8", codes, ends.view(np.uint8)))
    wanted = codes * ends[:, :1].astype(np.float64) + ends[:, 1:]
    np.testing.assert_allclose(values(found.array, "int8"), wanted, rtol=1e-6, atol=1e-6)
    assert (found.name, found.mode, found.dim) == ("user", "mean", 4)
    (half,) = of_fbgemm(of_inference("FP16", USER.astype(np.float16).view(np.uint8), None))
    assert np.array_equal(half.array, USER.astype(np.float16))
    plain = SimpleNamespace(embedding_specs=[(5, 4, 0, 0), (7, 4, 0, 0)], table_names=["user", "item"],
                            split_embedding_weights=lambda: [USER, ITEM])
    assert names(read(plain)) == {"user": (5, 4), "item": (7, 4)}
    with pytest.raises(ValueError, match="table user: FBGEMM's int2 is not read; fp32, fp16, int8 and int4 are"):
        of_fbgemm(of_inference("INT2", codes, ends))


def test_widening_scale_and_bias_is_exact():
    ends = RANDOM.standard_normal((5, 2)).astype(np.float16)
    fused = fused_rows(np.zeros((5, 4), np.uint8), ends, "int8")
    assert np.array_equal(np.ascontiguousarray(fused[:, 4:]).view(np.float32), ends.astype(np.float32))


def test_tables_of_an_onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Cast", ["user_id"], ["whole"], to=TensorProto.INT64),
             helper.make_node("Gather", ["user.weight", "whole"], ["u"]),
             helper.make_node("Gather", ["item.weight", "seen"], ["i"]),
             helper.make_node("Gather", ["item.weight", "bought"], ["j"]),
             helper.make_node("MatMul", ["u", "fc.weight"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("user_id", "seen", "bought")]
    weights = {"user.weight": USER, "item.weight": ITEM, "fc.weight": np.ones((4, 1), np.float32)}
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph), str(tmp_path / "m.onnx"))
    user, item = read(tmp_path / "m.onnx")
    assert (user.name, user.columns) == ("user", ("user_id",)) and np.array_equal(user.array, USER)
    assert (item.name, item.columns) == ("item", ("seen", "bought")) and np.array_equal(item.array, ITEM)
    (chosen,) = read(tmp_path / "m.onnx", {"id": "user.weight"})
    assert chosen.name == "id" and chosen.columns == ()


@pytest.mark.parametrize("arrays, tables, sentence", [
    ({"fc.weight": ITEM}, None, "has no tables of TorchRec's; name its tables by tables={NAME: KEY}: of two dimensions "
                                "are fc (7, 4)"),
    ({"fc.weight": ITEM}, {"user": "user"}, "has no 'user' for table user; of two dimensions are fc (7, 4)"),
    ({"fc.weight": ITEM}, {}, "has no tables; of two dimensions are fc (7, 4)"),
])
def test_tables_that_are_not_there(saved, arrays, tables, sentence):
    path = saved(arrays)
    with pytest.raises(ValueError) as error:
        read(path, tables)
    assert str(error.value) == f"{path} {sentence}"


@pytest.mark.parametrize("source, sentence", [
    ("m.csv", "m.csv ends in '.csv'; models are read from .pt, .pth, .bin, .npz and .onnx"),
    (3, "a model is a path, a state dict or FBGEMM's tables (of a module its state_dict()), not a int"),
    ("none.pt", "none.pt cannot be read"),
    ("none.npz", "none.npz cannot be read: No such file or directory"),
    ("none.onnx", "there is no file none.onnx"),
])
def test_what_is_no_model(source, sentence):
    with pytest.raises(ValueError) as error:
        read(source)
    assert sentence in str(error.value)
