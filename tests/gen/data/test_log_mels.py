"""Tensors of torch.save: read without torch, and nothing in them is run."""

import collections
import gzip
import io
import os
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest

from gen.data.logs import mels, open_log, torch_file


class Storage:
    """What torch's pickle calls a storage."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array).reshape(-1)


class Tensor:
    def __init__(self, array, offset=0, stride=None, size=None):
        self.array, self.storage, self.offset = array, Storage(array), offset
        self.size = tuple(array.shape) if size is None else size
        self.stride = stride or tuple(step // array.itemsize for step in np.ascontiguousarray(array).strides)

    def __reduce__(self):
        utils = sys.modules["torch._utils"]
        return utils._rebuild_tensor_v2, (self.storage, self.offset, self.size, self.stride, False,
                                          collections.OrderedDict())


@pytest.fixture
def save(monkeypatch):
    """Writes as torch.save does: stand-ins for the names that its pickle has."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    utils._rebuild_tensor_v2 = lambda *_: None
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    names = {"i8": "LongStorage", "i4": "IntStorage", "f4": "FloatStorage"}
    for name in names.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(path, content, *, order="<", compression=zipfile.ZIP_STORED, short=0):
        storages, buffer = [], io.BytesIO()

        class Pickler(pickle.Pickler):
            def persistent_id(self, each):
                if not isinstance(each, Storage):
                    return None
                storages.append(each.array)
                kind = getattr(torch, names[each.array.dtype.str[1:]])
                return "storage", kind, str(len(storages) - 1), "cpu", len(each.array)

        Pickler(buffer, 2).dump(content)
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("log/data.pkl", buffer.getvalue())
            if order == ">":
                archive.writestr("log/byteorder", "big")
            for number, array in enumerate(storages):
                data = array.astype(array.dtype.newbyteorder(order)).tobytes()
                archive.writestr(f"log/data/{number}", data[:len(data) - short])
        return path

    return write


def a_batch(tables=11, samples=40, seed=1, kind=np.int64):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 5, (tables, samples)).astype(kind)
    offsets = np.append(0, np.cumsum(lengths)).astype(kind)
    return random.integers(0, 1000, offsets[-1]).astype(kind), offsets, lengths


def check(log, batch, samples):
    indices, offsets, lengths = batch
    chunks = list(log.chunks(samples))
    bags = [{name: [] for name in log.tables} for _ in range(lengths.shape[1])]
    sample = 0
    for chunk in chunks:
        for _ in range(chunk.samples):
            for name in log.tables:
                at = sample - sum(c.samples for c in chunks[:chunks.index(chunk)])
                edge = chunk.offsets[name]
                bags[sample][name] = chunk.ids[name][edge[at]:edge[at + 1]].tolist()
            sample += 1
    assert sample == lengths.shape[1]
    for number, name in enumerate(log.tables):
        for b in range(sample):
            place = number * sample + b
            assert bags[b][name] == indices[offsets[place]:offsets[place + 1]].tolist(), (name, b)


@pytest.mark.parametrize("kind, order", [(np.int64, "<"), (np.int32, ">")])
def test_bags_of_all_tables(tmp_path, monkeypatch, save, kind, order):
    batch = a_batch(kind=kind)
    path = save(tmp_path / "fbgemm.pt", tuple(map(Tensor, batch)), order=order)
    assert open_log(path).tables == tuple(f"t{n:02}" for n in range(11))
    check(open_log(path), batch, 7)
    monkeypatch.setattr(mels, "PIECE_BYTES", path.stat().st_size // 3)
    assert len(open_log(path).parts()) == 3
    check(open_log(path), batch, 1000)
    packed = tmp_path / "fbgemm.pt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    check(open_log(packed), batch, 7)
    one = next(open_log(path, tables=["t05"]).chunks(1000))
    assert list(one.ids) == ["t05"]


def test_tensors_are_what_torch_has(tmp_path):
    torch = pytest.importorskip("torch")
    whole = torch.arange(60).reshape(3, 20)
    content = {"a": (whole, whole[1:, 2:9:3], whole.T, torch.zeros(0, 4)), "b": [torch.tensor([1.5, -2.0])], "c": 3}
    torch.save(content, tmp_path / "a.pt")
    read = torch_file.read(tmp_path / "a.pt")
    for ours, theirs in zip((*read["a"], *read["b"]), (*content["a"], *content["b"])):
        assert np.array_equal(ours, theirs.numpy()) and ours.dtype == theirs.numpy().dtype
    assert read["c"] == 3
    indices, offsets, lengths = a_batch()
    torch.save((torch.tensor(indices), torch.tensor(offsets), torch.tensor(lengths)), tmp_path / "b.pt")
    check(open_log(tmp_path / "b.pt"), (indices, offsets, lengths), 16)


class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("protocol", range(5))
def test_nothing_is_run(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.pt", "w") as archive:
        archive.writestr("log/data.pkl", pickle.dumps((Evil(),), protocol))
    with pytest.raises(ValueError, match=r"a\.pt names (posix|nt)\.system; only tensors of numbers are read"):
        torch_file.read("a.pt")
    assert os.listdir() == ["a.pt"]


@pytest.mark.parametrize("name", ["builtins.eval", "builtins.getattr", "torch.load", "torch._utils._import_dotted_name",
                                  "collections.OrderedDict.fromkeys", "os.path.join", "torch.storage._load_from_bytes"])
def test_names_that_are_refused(tmp_path, name):
    module, _, attribute = name.rpartition(".")
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        text = f"\x8c{chr(len(module))}{module}\x8c{chr(len(attribute))}{attribute}\x93.".encode("latin1")
        archive.writestr("log/data.pkl", b"\x80\x04" + text)
    with pytest.raises(ValueError, match=rf"a\.pt names {name}; only tensors"):
        torch_file.read(tmp_path / "a.pt")


def test_tensors_that_leave_their_bytes(tmp_path, save):
    array = np.arange(10)
    for wrong in (Tensor(array, 1), Tensor(array, stride=(2,)), Tensor(array, size=(11,)), Tensor(array, -1),
                  Tensor(array, stride=(-1,)), Tensor(array, stride=(1, 1))):
        save(tmp_path / "a.pt", (wrong,))
        with pytest.raises(ValueError, match=r"a\.pt: a tensor (of .* leaves its 10 numbers|has a shape, strides)"):
            torch_file.read(tmp_path / "a.pt")
    for how in (dict(short=1), dict(compression=zipfile.ZIP_DEFLATED)):
        save(tmp_path / "a.pt", (Tensor(array),), **how)
        with pytest.raises(ValueError, match="is packed, or too short for 10 numbers of 8 bytes"):
            torch_file.read(tmp_path / "a.pt")
    save(tmp_path / "a.pt", (Tensor(array),))
    content = (tmp_path / "a.pt").read_bytes()
    random = np.random.default_rng(2)
    for _ in range(300):                                # a spoilt file is an array or a sentence, never more
        spoilt = bytearray(content)
        spoilt[int(random.integers(len(spoilt)))] ^= 1 << int(random.integers(8))
        (tmp_path / "b.pt").write_bytes(spoilt)
        try:
            torch_file.read(tmp_path / "b.pt")
        except ValueError as error:
            assert "b.pt" in str(error)


@pytest.mark.parametrize(("change", "message"), [
    (lambda i, o, n: (i, o), "{} must hold three tensors of whole numbers: indices, offsets, lengths"),
    (lambda i, o, n: (i.astype(np.float32), o, n),
     "{} must hold three tensors of whole numbers: indices, offsets, lengths"),
    (lambda i, o, n: (i, o[:-1], n), "{}: indices (6,), offsets (6,) and lengths (2, 3) do not go together; there must "
                                     "be one offset more than there are lengths of tables x samples"),
    (lambda i, o, n: (i[:-1], o, n), "{}: offsets run from 0 to 6; they must rise from 0 to 5, the length of indices"),
    (lambda i, o, n: (i, o, n + 1), "{}: the offsets of table t0, samples 0 to 2, do not rise by the lengths"),
])
def test_mels_wrong(tmp_path, save, change, message):
    arrays = np.arange(6), np.arange(7), np.ones((2, 3), np.int64)
    path = save(tmp_path / "a.pt", tuple(Tensor(array) for array in change(*arrays)))
    with pytest.raises(ValueError) as caught:
        list(open_log(path).chunks())
    assert str(caught.value) == message.format(path)


def test_mels_files_wrong(tmp_path, save):
    (tmp_path / "a.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")      # torch of before 1.6
    with pytest.raises(ValueError, match=r"a\.pt is no file of torch\.save since 1\.6: "):
        open_log(tmp_path / "a.pt")
    (tmp_path / "b.pt.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(ValueError, match=r"/b\.pt\.gz is no file of torch\.save since 1\.6: "):
        open_log(tmp_path / "b.pt.gz")
    path = save(tmp_path / "c.pt", tuple(map(Tensor, a_batch())))
    with pytest.raises(ValueError, match=r"c\.pt has no table 't3'; it has t00 to t10"):
        open_log(path, tables=["t3"])
