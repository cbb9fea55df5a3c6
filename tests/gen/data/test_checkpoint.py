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
    ({"fc.weight": ITEM}, {}, "has no tables; of two dimensions are fc (7, 4): tables={NAME: ..} says which"),
])
def test_tables_that_are_not_there(saved, arrays, tables, sentence):
    path = saved(arrays)
    with pytest.raises(ValueError) as error:
        read(path, tables)
    assert str(error.value) == f"{path} {sentence}"


@pytest.mark.parametrize("source, sentence", [
    ("", ". is a folder, and a model is a file; of a distributed checkpoint torch.distributed.checkpoint."),
    ("m.csv", "m.csv ends in '.csv'; models are read from .pt, .pth, .bin, .ckpt, .npz and .onnx"),
    (3, "a model is a path, a state dict or FBGEMM's tables (of a module its state_dict()), not a int"),
    ("none.pt", "none.pt cannot be read"),
    ("none.npz", "none.npz cannot be read: No such file or directory"),
    ("none.onnx", "there is no file none.onnx"),
])
def test_what_is_no_model(source, sentence):
    with pytest.raises(ValueError) as error:
        read(source)
    assert sentence in str(error.value)


def test_managed_ids_of_a_state_dict():
    """As TorchRec's module has them: sorted ids, the last slot and those without an id for all others."""
    none = np.iinfo(np.int64).max
    state = {"m._embedding_module.embedding_bags.user.weight": USER,
             "m._c._managed_collision_modules.user._mch_sorted_raw_ids": np.array([7, 90, none, none, none]),
             "m._c._managed_collision_modules.user._mch_remapped_ids_mapping": np.array([3, 0, 1, 2, 4])}
    (found,) = read(state)
    assert found.ids == {7: 3, 90: 0} and found.unknown is None
    state = {name.replace("_mch_sorted_raw_ids", "_hash_zch_identities"): each for name, each in state.items()}
    (found,) = read(state)
    with pytest.raises(ValueError, match="table user: a managed collision module makes rows of its ids"):
        placed(found, np.zeros(1, np.uint64))


# What a pickle of torch.save has beside plain tensors, by hand.

def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def call(name, *parts):
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode() + b"(" + b"".join(parts) + b"tR"


def dictionary(**parts):
    return b"}(" + b"".join(text(name) + part for name, part in parts.items()) + b"u"


def file_of(path, arrays, **parts):
    path.write_bytes(torch_file(arrays, dictionary(**parts)))
    return path


def test_bfloat16_and_parameters(tmp_path):
    """Widened, which is exact; views of one storage share it."""
    bits = (USER.view(np.uint32) >> 16).astype(np.uint16)
    whole = tensor("0", "BFloat16Storage", 20, 0, (5, 4), (4, 1))
    part = call("torch._utils._rebuild_parameter", tensor("0", "BFloat16Storage", 20, 8, (2, 2), (4, 1)), b"\x88", b"}")
    path = file_of(tmp_path / "m.pt", [bits.view(np.uint8)], user=whole, part=part)
    user, chosen = read(path, {"user": "user", "part": "part"})
    wanted = (bits.astype(np.uint32) << 16).view(np.float32).reshape(5, 4)
    assert user.array.dtype == np.float32 and np.array_equal(user.array, wanted)
    assert np.array_equal(chosen.array, wanted[2:4, :2])


def test_what_lies_beside_the_tables_is_passed_over(tmp_path):
    """As torch.load(weights_only=True) takes it: a device, a size, a set, a format, tensors that are no arrays."""
    user = tensor("0", "FloatStorage", 20, 0, (5, 4), (4, 1))
    empty, false = call("collections.OrderedDict"), b"\x89"
    untyped = (b"(" + text("storage") + b"ctorch.storage\nUntypedStorage\n" + text("1") + text("cpu")
               + b"K\x08tQ" + b"K\x00" + b"(K\x02K\x02t" + b"(K\x02K\x01t" + false + empty)
    narrow = call("torch._utils._rebuild_tensor_v3", untyped, b"ctorch\nuint16\n")
    eighth = call("torch._utils._rebuild_tensor_v3", untyped, b"ctorch\nfloat8_e4m3fn\n")
    marked = call("torch._tensor._rebuild_from_type_v2", b"ctorch._utils\n_rebuild_tensor_v2\n",
                  b"ctorch\nTensor\n", b"(" + user.partition(b"\n_rebuild_tensor_v2\n(")[2][:-1], b"}")
    numbers = np.array([1, 2, 3, 60000], np.uint16)
    path = file_of(
        tmp_path / "m.pt", [USER, numbers.view(np.uint8)], state=dictionary(user=user, marked=marked, narrow=narrow),
        device=call("torch.device", text("cpu")), size=call("torch.Size", b"(K\x01t"), half=b"ctorch\nfloat16\n",
        seen=call("__builtin__.set", b"]"), eighth=eighth, pairs=b"}(K\x01K\x02tK\x03s", none=b"}N\x88s",
        codes=call("torch._utils._rebuild_qtensor", tensor("0", "QInt8Storage", 20, 0, (5, 4), (4, 1))))
    found = read(path, {"user": "state.user", "marked": "state.marked"})
    assert all(np.array_equal(each.array, USER) for each in found)
    with pytest.raises(ValueError, match=r"of two dimensions are state.user \(5, 4\), state.marked \(5"):
        read(path, {"codes": "codes"})
    with pytest.raises(ValueError, match="table narrow: its rows must be floats, not uint16"):
        read(path, {"narrow": "state.narrow"})


def test_what_cannot_be_read_is_named_where_it_is_a_table():
    """A tensor of no values elsewhere in a state dict is nothing to it."""
    class Meta:
        shape, dtype = (5, 4), "torch.float32"

        def __array__(self, *_, **__):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    state = {"user.weight": USER, "item.weight": Meta()}
    assert np.array_equal(read(state, {"user": "user"})[0].array, USER)
    with pytest.raises(ValueError, match="the state dict: item cannot be read as an array of numbers: Cannot copy out"):
        read(state, {"item": "item"})
    with pytest.raises(ValueError, match="index_remappings_array says that FBGEMM has pruned its tables"):
        read({"e.embedding_bags.user.weight": USER, "e.tbes.0.index_remappings_array": np.arange(9)})


@pytest.mark.parametrize("form", ["FP32", "INT8"])
def test_pruned_tables_of_fbgemm(form):
    """An id reads the row that it was given, zeros where it was pruned; a table that was not pruned is as it is."""
    kept = np.array([-1, 3, 0, -1, 4, 1, 2, -1], np.int32)
    codes = USER.view(np.uint8) if form == "FP32" else RANDOM.integers(0, 256, (5, 4), np.uint8)
    ends = None if form == "FP32" else RANDOM.standard_normal((5, 2)).astype(np.float16)
    kind = SimpleNamespace(value=form)
    tables = SimpleNamespace(
        embedding_specs=[("whole", 5, 4, kind, 0), ("user", 5, 4, kind, 0)], pooling_mode=0,
        split_embedding_weights=lambda: [(codes, ends)] * 2, index_remappings_array=kept,
        index_remappings_array_offsets=np.array([0, 0, len(kept)]))
    whole, user = of_fbgemm(tables)
    plain, pruned = (each.array if form == "FP32" else values(each.array, "int8") for each in (whole, user))
    assert plain.shape == (5, 4) and np.array_equal(pruned[kept >= 0], plain[kept[kept >= 0]])
    assert pruned.shape == (8, 4) and not pruned[kept < 0].any()
    tables.index_remapping_hash_table_cpu = object()
    with pytest.raises(ValueError, match="table whole: FBGEMM has pruned it by a hash table, which is not"):
        of_fbgemm(tables)
    tables.index_remapping_hash_table_cpu, kept[1] = None, 5
    with pytest.raises(ValueError, match="table user: index_remappings_array has row 5; the table has 5 rows"):
        of_fbgemm(tables)


@pytest.fixture
def inference():
    """FBGEMM's own tables `user` and `item` of random rows, in a form; options: of its class."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    pytest.importorskip("fbgemm_gpu", reason="needs the extra torchrec")
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
        EmbeddingLocation,
        IntNBitTableBatchedEmbeddingBagsCodegen,
    )

    def made(form, kind=IntNBitTableBatchedEmbeddingBagsCodegen, **options):
        tables = kind([(name, rows, 8, SparseType[form], EmbeddingLocation.HOST)
                       for name, rows in (("user", 20), ("item", 30))],
                      device="cpu", output_dtype=SparseType.FP32, **options)
        tables.initialize_weights()
        for codes, ends in tables.split_embedding_weights():
            numbers = torch.from_numpy(RANDOM.standard_normal((len(codes), 8)).astype(np.float32))
            if ends is None:
                codes.copy_((numbers if form == "FP32" else numbers.half()).view(torch.uint8))
                continue
            codes.copy_(torch.from_numpy(RANDOM.integers(0, 256, codes.shape, np.uint8)))
            ends.copy_(numbers[:, :ends.shape[1] // 2].half().contiguous().view(torch.uint8))
        return tables

    return made


def remappings(torch, *, rows=(20, 30), ids=(35, 30)):
    """As FBGEMM takes them: a row of some ids, of others -1."""
    return [torch.from_numpy(np.where(RANDOM.random(count) < 0.3, -1, RANDOM.integers(0, most, count)).astype(np.int32))
            for most, count in zip(rows, ids)]


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("form", ["FP32", "FP16", "INT8", "INT4"])
def test_tables_are_what_fbgemm_itself_looks_up(inference, form, pruned):
    import torch

    tables = inference(form, index_remapping=remappings(torch) if pruned else None)
    counts = (35, 30) if pruned else (20, 30)
    bags = max(counts)      # of an id each; ids that there are not are 0
    ids = np.concatenate([np.arange(bags) * (np.arange(bags) < count) for count in counts]).astype(np.int32)
    looked_up = tables(torch.from_numpy(ids), torch.arange(2 * bags + 1, dtype=torch.int32)).numpy()
    for number, (table, count) in enumerate(zip(of_fbgemm(tables), counts, strict=True)):
        rows = values(table.array, table.row_format) if table.array.dtype == np.uint8 else table.array
        assert rows.shape == (count, 8)
        np.testing.assert_allclose(rows, looked_up[:count, 8 * number:8 * number + 8], rtol=1e-6, atol=1e-6)


def test_what_fbgemm_s_own_tables_do_beyond_their_rows_is_refused(inference):
    import torch

    kind = type(inference("INT8"))
    array, hashed, shared, empty, none, changed = (inference("INT8", **options) for options in (
        {}, {"index_remapping": remappings(torch), "use_array_for_index_remapping": False},
        {"feature_table_map": [0, 1, 1], "index_remapping": remappings(torch)}, {}, {}, {}))
    empty.set_index_remappings_array([remappings(torch)[0], torch.empty(0, dtype=torch.int32)])
    none.set_index_remappings_array([remappings(torch)[0], None])
    changed.forward = lambda *given: 0
    assert [len(table.array) for table in of_fbgemm(none)] == [35, 30]
    assert [len(table.array) for table in of_fbgemm(array)] == [20, 30]
    for tables, sentence in (
            (hashed, "table user: FBGEMM has pruned it by a hash table"),
            (shared, "table user: FBGEMM has pruned tables of which several features share one"),
            (empty, "table item: index_remappings_array has no ids of it, for which FBGEMM reads row 0"),
            (changed, "FBGEMM's IntNBitTableBatchedEmbeddingBagsCodegen has forward of its own"),
            (inference("INT8", type("Scaled", (kind,), {})), "FBGEMM's Scaled, a IntNBitTableBatchedEmbedding"),
            (inference("INT4", reverse_qparam=True), "has scale and bias before its rows"),
            (inference("INT8", scale_bias_size_in_bytes=8), "has scale and bias before its rows, or not in 4 bytes"),
            (kind(array.embedding_specs, device="cpu"), "has no weights yet; load them first")):
        with pytest.raises(ValueError, match=sentence):
            of_fbgemm(tables)


def test_other_kinds_of_fbgemm_s_tables_are_refused():
    tables = SimpleNamespace(embedding_specs=[(5, 4, 0, 0)], split_embedding_weights=lambda: [USER])
    tables.pooling_mode = SimpleNamespace(value=2, name="NONE")
    with pytest.raises(ValueError, match="table table0: mode = 'none': must be one of sum, mean, max"):
        placed(of_fbgemm(tables)[0], np.zeros(0, np.uint64))
    tables._forward_hooks = {0: print}
    with pytest.raises(ValueError, match="has _forward_hooks of its own, which a bundle would not call"):
        of_fbgemm(tables)
    strange = type("SSDTableBatchedEmbeddingBags", (), {"__module__": "fbgemm_gpu.tbe.ssd"})()
    with pytest.raises(ValueError, match="FBGEMM's SSDTableBatchedEmbeddingBags is not read; SplitTable"):
        of_fbgemm(strange)


# Graphs that look a table up: what they have beside USER as "w" and whole numbers; their nodes, from ids to y.

def node(kind, inputs, output, **attributes):
    from onnx import helper

    return helper.make_node(kind, inputs.split(), [output], **attributes)


def branch(*nodes):
    """An If whose branches do the same."""
    from onnx import TensorProto, helper

    branches = {name: helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
                for name in ("then_branch", "else_branch")}
    return node("If", "true", "y", **branches)


LOOKED_UP = {
    "plain": lambda: [node("Gather", "w ids", "y")],
    "along axis -2": lambda: [node("Gather", "w ids", "y", axis=-2)],
    "of half precision": lambda: [node("Cast", "w", "h", to=10), node("Cast", "h", "f", to=1),
                                  node("Gather", "f ids", "y")],
    "scaled before": lambda: [node("Mul", "w two", "s"), node("Gather", "s ids", "y")],
    "turned": lambda: [node("Transpose", "w", "t", perm=[1, 0]), node("Transpose", "t", "u", perm=[1, 0]),
                       node("Gather", "u ids", "y")],
    "by pages": lambda: [node("Unsqueeze", "ids last", "i"), node("GatherND", "w i", "y")],
    "in a branch": lambda: [branch(node("Gather", "w ids", "t"))],
    "quantised": lambda: [node("DequantizeLinear", "codes two", "d"), node("Gather", "d ids", "y")],
    "rounded": lambda: [node("Floor", "w", "f"), node("Gather", "f ids", "y")],
    "remapped": lambda: [node("Gather", "map ids", "i"), node("Gather", "w i", "y")],
    "mean": lambda: [node("Gather", "w ids", "r"), node("ReduceMean", "r zero", "y", keepdims=0)],
    "max in a branch": lambda: [node("Gather", "w ids", "r"),
                                branch(node("Slice", "r zero all", "s"), node("ReduceMax", "s zero", "t", keepdims=0))],
    "its own mean": lambda: [node("Gather", "w ids", "r"), node("ReduceMean", "r last", "y", keepdims=0)],
    "elements": lambda: [node("Unsqueeze", "ids last", "i"), node("GatherElements", "w i", "y")],
    "columns": lambda: [node("Gather", "w ids", "y", axis=1)],
    "modulo": lambda: [node("Mod", "ids five", "i"), node("Gather", "w i", "y")],
    "sliced": lambda: [node("Slice", "ids zero all", "i"), node("Gather", "w i", "y")],
    "twice": lambda: [node("Gather", "w ids", "a"), node("Add", "ids zero", "i"), node("Gather", "w i", "b"),
                      node("Add", "a b", "y")],
    "two poolings": lambda: [node("Gather", "w ids", "a"), node("ReduceMean", "a zero", "y"),
                             node("Gather", "w ids", "b"), node("ReduceMax", "b zero", "z")],
}
CONSTANTS = {"last": [-1], "zero": [0], "all": [99], "five": 5, "map": [4, 3, 2, 1, 0]}


def graph_of(path, name):
    """A file with one of LOOKED_UP, and what it makes of ids."""
    from onnx import TensorProto, helper, numpy_helper, save
    from onnx.reference import ReferenceEvaluator

    arrays = {key: np.array(value, np.int64) for key, value in CONSTANTS.items()} | {
        "w": USER, "two": np.float32(2), "true": np.array(True), "codes": np.arange(20, dtype=np.uint8).reshape(5, 4)}
    graph = helper.make_graph(
        LOOKED_UP[name](), "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, key) for key, array in arrays.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    save(model, str(path))
    return lambda ids: ReferenceEvaluator(model).run(None, {"ids": np.asarray(ids)})[0]


@pytest.mark.parametrize("name, mode", [(name, "sum") for name in list(LOOKED_UP)[:8]] + [
    ("mean", "mean"), ("max in a branch", "max"), ("its own mean", "sum")])
def test_tables_that_an_onnx_graph_looks_up_in_other_ways(tmp_path, name, mode):
    """Rows as onnx's own evaluator has them; a bag is pooled as the graph pools it."""
    pytest.importorskip("onnx")
    run = graph_of(tmp_path / "m.onnx", name)
    table, = read(tmp_path / "m.onnx")
    assert table.name == ("codes" if name == "quantised" else "w")
    assert (table.columns, table.mode, table.ids) == (("ids",), mode, None)
    if mode == "sum":
        rows = run(np.arange(5))
        np.testing.assert_array_equal(table.array if rows.ndim == 2 else table.array.mean(1), rows)
    else:
        np.testing.assert_array_equal(getattr(np, mode)(table.array[[1, 3]], 0), run([1, 3]))


@pytest.mark.parametrize("name, sentence", [
    ("rounded", "m.onnx: node 'y': 'f', which it looks up, is made of constants by Floor, which is not read; tables="),
    ("remapped", "table w: Gather in the graph makes rows of its ids"),
    ("elements", r"m.onnx: node 'y': 'w' is looked up by GatherElements along axis 0, which is not read; tables="),
    ("columns", r"m.onnx: node 'y': 'w' is looked up by Gather along axis 1, which is not read; tables="),
    ("two poolings", "m.onnx: 'w' is pooled by mean and by max; a table has one pooling"),
    ("modulo", r"table w: Mod in the graph makes rows of its ids, which is not read; ids=\{'w': ...\} says which row"),
    ("twice", r"table w: Add in the graph makes rows of its ids"),
])
def test_lookups_of_an_onnx_graph_that_are_not_read(tmp_path, name, sentence):
    pytest.importorskip("onnx")
    graph_of(tmp_path / "m.onnx", name)
    with pytest.raises(ValueError, match=sentence):
        placed(read(tmp_path / "m.onnx")[0], np.arange(3).astype(np.uint64))


def test_ids_of_an_onnx_graph_that_are_parts_of_an_input(tmp_path):
    """Which the log's column of the input's name need not be: the table's own column is asked for."""
    pytest.importorskip("onnx")
    graph_of(tmp_path / "m.onnx", "sliced")
    table, = read(tmp_path / "m.onnx")
    assert table.columns == () and table.ids is None


def test_onnx_with_its_weights_in_a_file_beside_it(tmp_path, monkeypatch):
    """As exporters write it; rows of bfloat16 are widened."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    half = helper.make_tensor("item.weight", TensorProto.BFLOAT16, ITEM.shape, ITEM.reshape(-1))
    nodes = [helper.make_node("Gather", [f"{name}.weight", name], [name[0]]) for name in ("user", "item")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in ("user", "item")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ui"],
        [numpy_helper.from_array(USER, "user.weight"), half])
    folder = tmp_path / "out"
    folder.mkdir()
    onnx.save(helper.make_model(graph), str(folder / "m.onnx"), save_as_external_data=True, location="m.onnx.data",
              size_threshold=0)
    monkeypatch.chdir(tmp_path)
    user, item = read("out/m.onnx")
    assert np.array_equal(user.array, USER) and item.array.dtype == np.float32
    np.testing.assert_allclose(item.array, ITEM, rtol=1 / 128)
    (folder / "m.onnx.data").unlink()
    sentence = r"m\.onnx: tensor 'user\.weight' cannot be read: its bytes lie in .*m\.onnx\.data"
    with pytest.raises(ValueError, match=sentence):
        read("out/m.onnx")


@pytest.mark.parametrize("location", ["", "/etc/hostname", "../m.data", "missing", "a folder", "a link"])
def test_onnx_whose_weights_lie_elsewhere(tmp_path, location):
    """Places that onnx refuses are refused before it is asked."""
    pytest.importorskip("onnx")
    from gen.model.onnx import _check_beside

    (tmp_path / "a folder").mkdir()
    (tmp_path / "there").write_bytes(b"1234")
    (tmp_path / "a link").symlink_to(tmp_path / "there")
    _check_beside(tmp_path, "there")
    with pytest.raises(ValueError, match="^its bytes lie in .*which is no file"):
        _check_beside(tmp_path, location)
