"""Malformed bundles, plans, profiles, parameters, ONNX files, and TOML of every kind that hotrail reads.

Files with a seal come in two ways: with damaged bytes, which the seal notices, and with another content under a seal
that is right, as an author who errs would write them.
"""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fpga.synth.board import EcpBoard
from gen.base.sealed import KEYS, seal
from gen.bundle import Bundle, write
from gen.data.profile import DIGEST, HEADER, Profile, _sha256
from gen.model.device import Device
from gen.model.network import Model
from gen.model.onnx import read_onnx
from gen.model.recommender import Recommender
from gen.model.weights import FileWeights
from gen.planner.plan import Plan
from gen.rtl import config
from tests.fuzz.campaign import Format, Trial, damaged
from tests.support import bundles

ROOT = Path(__file__).parents[2]
COLUMN = "[/red]\x1b[31m"
# Values that a file may carry and no code hopes for.
ODD = (None, True, False, 0, -1, 1, 2, 3, 64, 1 << 31, 1 << 32, -(1 << 63), 1 << 63, 1 << 64, 10**23, 10**400,
       1e23, 1e308, 0.5, -0.0, -1.5, 1e-300, float("inf"), float("-inf"), float("nan"),
       "", "a", "0", "../x", "/dev/zero", "nowhere.toml", COLUMN, "a\nb", "\0", "ü" * 300,
       [], [0], [1, 2], [[]], [-1, 10**30], ["D"], ["a", 1], {}, {"a": 1}, {"rows": 1}, [{}], [None])
LITERALS = ("1e23", "-1", "0", "inf", "-inf", "nan", "1e400", "9" * 30, "9" * 5000, "0x1F", "1_0", "[" * 3000,
            "{a=" * 3000, "''", '"[/red]\\u001b"', "true", "[]", "{}", "[[]]", "[1, 2, 3]", '["D"]', "1979-05-27",
            "07:32:00", "-0.0", "1e-300", "0.5", "65536", "4294967296", "18446744073709551616", '"nowhere.toml"',
            '"/dev/zero"', '"none"')
KEYWORDS = (f'"{COLUMN}"', "name", "a.b", "about", "x")


def _toml(random: Random, text: str) -> bytes:
    """A TOML file with other values, keys or bytes."""
    if not random.randrange(8):
        return damaged(random, text.encode())
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(lines))
        key, equals, value = lines[at].partition(" = ")
        match random.randrange(10):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at] = f"{random.choice(KEYWORDS)}{equals}{value}"
            case 3:
                lines[at] = f"{key} = {{ {key.strip() or 'x'} = {random.choice(LITERALS)} }}"
            case 4:
                lines[at] = f"[{'a.' * random.choice((1, 2, 400))}b]"
            case 5:
                lines[at] = f"{'.'.join([key.strip() or 'x'] * random.choice((2, 300)))} = 1"
            case _:
                lines[at] = f"{key} = {random.choice(LITERALS)}"
        lines = lines or [""]
    return "\n".join(lines).encode()


def _toml_format(name: str, folder: Path, read: Callable[[Path], object]) -> Format:
    texts = tuple(path.read_text("utf-8") for path in sorted(folder.glob("*.toml")))

    def make(random: Random, to: Path) -> Trial:
        path = to / "mine.toml"
        path.write_bytes(_toml(random, random.choice(texts)))
        return Trial("mine.toml", partial(read, path))

    return Format(name, make)


def _device(path: Path) -> object:
    return Device.load(path).options()


def _model(path: Path) -> object:
    return Model.load(path, dim=16 if '"D"' in path.read_text("utf-8", errors="replace") else None)


def changed(random: Random, content: Any, depth: int = 0) -> Any:
    """JSON's values with one of them another, a key gone or a key too many."""
    if isinstance(content, dict) and content and (depth == 0 or random.random() < 0.9):
        found, key = dict(content), random.choice(list(content))
        match random.randrange(12):
            case 0:
                del found[key]
            case 1:
                found[random.choice(("", "a", COLUMN, key + "_"))] = found[key]
            case 2:
                found[key] = found[random.choice(list(content))]
            case _:
                found[key] = changed(random, found[key], depth + 1)
        return found
    if isinstance(content, list) and content and random.random() < 0.7:
        found, at = list(content), random.randrange(len(content))
        match random.randrange(6):
            case 0:
                del found[at]
            case 1:
                found.insert(at, found[at])
            case _:
                found[at] = changed(random, found[at], depth + 1)
        return found
    if type(content) in (int, float) and random.random() < 0.4:
        number = content if abs(content) < 1 << 64 else 1
        return random.choice((-content, content + 1, content - 1, number * 2, float(number), number * 2**20))
    value = random.choice(ODD)
    return "" if isinstance(value, float) and not np.isfinite(value) else value


def _resealed(random: Random, data: bytes) -> bytes:
    """A sealed file with another content, or other bytes."""
    try:
        content = json.loads(data) if random.randrange(6) else None
    except ValueError:      # spoilt by the round before
        content = None
    if not isinstance(content, dict) or not set(KEYS) <= set(content):
        return damaged(random, data)
    kind, version, _ = (content.pop(key) for key in KEYS)
    for _ in range(random.choice((1, 1, 2))):
        content = changed(random, content)
    if not random.randrange(30):
        kind, version = random.choice(((kind, version + 1), ("profile", version), (kind, None)))
    return seal(kind, version, {key: value for key, value in content.items() if key not in KEYS})


@cache
def _plan_bytes() -> bytes:
    found: bytes = bundles.plan().data()
    return found


def _a_plan(random: Random, to: Path) -> Trial:
    path = to / "plan.json"
    path.write_bytes(_resealed(random, _plan_bytes()))

    def read() -> object:
        found = Plan.load(path)
        _ = found.gap, found.samples_per_s, found.approximated, [card.seconds for card in found.cards]
        return found

    return Trial("plan.json", read, lambda found: Plan.load(path).data() == found.data())


def _array(random: Random, array: np.ndarray) -> np.ndarray:
    """Another dtype, shape or content of an array."""
    match random.randrange(9):
        case 0:
            return array.astype(random.choice(("u1", "i1", ">i8", "f4", "f8", "?", "S3", "U2", "c8", "M8[s]")))
        case 1:
            return array[:random.randint(0, max(0, len(array) - 1))]
        case 2:
            return np.concatenate([array, array])
        case 3:
            return array.reshape(1, *array.shape)
        case 4:
            return array.reshape(-1)[0] if array.size else np.zeros(())
        case 5:
            return array[::-1].copy()
        case 6:
            return np.zeros((0,), array.dtype)
        case _:
            found = array.copy()
            if found.size:
                at = random.randrange(found.size)
                limit = np.iinfo(found.dtype) if found.dtype.kind in "iu" else np.finfo(np.float32)
                found.reshape(-1)[at] = random.choice((limit.min, limit.max, 0, 1, 2))
            return found


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _member(random: Random, data: bytes) -> bytes:
    """An .npy member with another array, header or other bytes; sometimes with a header that asks for all memory."""
    match random.randrange(4):
        case 0:
            return damaged(random, data)
        case 1:
            file = io.BytesIO()
            shape = random.choice(((1 << 40,), (1 << 62, 4), (-1,), (0, 1 << 60), (3, 3), (), (1 << 31,)))
            np.lib.format.write_array_header_1_0(file, {"descr": random.choice(("<i8", "<u4", "|V8", "<f4", "|u1")),
                                                        "fortran_order": bool(random.randrange(2)), "shape": shape})
            return file.getvalue() + data[128:]
        case _:
            return _npy(_array(random, np.load(io.BytesIO(data))))


@cache
def _profile_members() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.npz"
        bundles.profile(bundles.log()).save(path)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def _archive(path: Path, members: Mapping[str, bytes], method: int, comment: bytes = b"") -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
        archive.comment = comment


def _a_profile(random: Random, to: Path) -> Trial:
    path, members = to / "profile.npz", dict(_profile_members())
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(members))
        match random.randrange(8):
            case 0:
                del members[name]
            case 1:
                members[random.choice((COLUMN, "extra_x.npy", "ids", "heat_rows.npy"))] = members[name]
            case _ if name == HEADER:
                members[name] = _resealed(random, members[name])
            case _ if name.endswith(".npy"):
                try:
                    members[name] = _member(random, members[name])
                except Exception:   # spoilt by the round before, whatever NumPy says of it
                    members[name] = b""
    _archive(path, members, random.choice((0, 0, 0, zipfile.ZIP_DEFLATED)), bytes(DIGEST))
    data = bytearray(path.read_bytes())
    if not random.randrange(8):
        path.write_bytes(damaged(random, data))
    if random.randrange(6):
        path.write_bytes(path.read_bytes()[:-DIGEST] + _sha256(path))

    def read() -> object:
        found = Profile.load(path)
        for table in found.tables.values():
            table.heat.icdf((0.5, 0.99)), table.heat.cdf(3), table.pooling
        found.sampling()
        return found

    return Trial("profile.npz", read)


@cache
def _parameters() -> dict[str, bytes]:
    return {f"{name}.npy": _npy(array) for name, array in bundles.arrays(trained=True).items()}


def _an_npz(random: Random, to: Path) -> Trial:
    path, members = to / "mine.npz", dict(_parameters())
    for _ in range(random.choice((1, 1, 3))):
        name = random.choice(list(members))
        match random.randrange(8):
            case 0:
                del members[name]
            case 1:
                members[random.choice((COLUMN, "ids_user/id.npy", "tt_row_user/id.npy"))] = _npy(np.arange(300))
            case _:
                members[name] = _member(random, _parameters().get(name, _npy(np.arange(300))))
    _archive(path, members, random.choice((0, 0, zipfile.ZIP_DEFLATED)))
    if not random.randrange(8):
        path.write_bytes(damaged(random, path.read_bytes()))

    def read() -> object:
        found = FileWeights(path)
        for spec in bundles.model().tables.values():
            found.vocabulary(spec), found.rows(spec, np.arange(3)), found.cores(spec), found.tt_row(spec)
        return found.network(bundles.MODEL)

    return Trial("mine.npz", read)


@cache
def _bundle_members() -> tuple[dict[str, bytes], dict[str, Any]]:
    with TemporaryDirectory() as folder:
        made_of = Path(folder) / "w.npz"
        np.savez(made_of, **bundles.arrays(trained=True))
        made = write(Path(folder) / "b", bundles.plan(), bundles.profile(bundles.log()), FileWeights(made_of))
        return ({path.relative_to(made.folder).as_posix(): path.read_bytes() for path in made.folder.rglob("*")
                 if path.is_file() and path.name != "manifest.json"}, dict(made.content))


def _a_bundle(random: Random, to: Path) -> Trial:
    """One member, or the manifest, is another; its digest and form in the manifest are made to fit most times."""
    import hashlib

    members, content = _bundle_members()
    members, folder = dict(members), to / "bundle"
    content = {key: value for key, value in content.items() if key not in KEYS}
    if random.randrange(4):
        name = random.choice(list(members))
        if name.endswith(".npy"):
            members[name] = _member(random, members[name])
        elif name.endswith(".toml"):
            members[name] = _toml(random, members[name].decode())
        else:
            members[name] = _resealed(random, members[name])
        if random.randrange(4):
            told = {"sha256": hashlib.sha256(members[name]).hexdigest()}
            if name.endswith(".npy"):
                try:
                    array = np.load(io.BytesIO(members[name]))
                    told |= {"dtype": array.dtype.str, "shape": list(array.shape)}
                except Exception:   # whatever NumPy says of it: it keeps the form that it had
                    told = {**content["members"][name], **told}
            content["members"] = {**content["members"], name: told}
        if not random.randrange(10):
            del members[name]
    manifest = seal("bundle", 1, content)
    if random.random() < 0.3:
        manifest = _resealed(random, manifest)
    for name, data in {**members, "manifest.json": manifest}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Trial("bundle", partial(_open, folder))


def _open(folder: Path) -> object:
    """All that `hotrail run` takes out of a bundle before it opens cards."""
    found = Bundle(folder)
    _ = found.notes, found.parameters(), found.network(), config.load(found.preset), Device.load(found.device)
    for name in found.plan.tables:
        found.remap(name)(np.arange(4, dtype=np.uint64))
    for card in found.emb_cards:
        found.images(card)
    return found


@cache
def _graphs() -> tuple[bytes, ...]:
    from onnx import TensorProto, helper, numpy_helper

    def of(width: int, features: int) -> bytes:
        random = np.random.default_rng(width)
        shapes = [(3, 8), (8, width)], [(width * (1 + features), 4), (4, 1)]
        nodes, fixed, inputs, value = [], [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])], "x"
        for part, widths in enumerate(shapes[:1 + bool(features)]):
            for k, shape in enumerate(widths):
                name = f"{part}{k}"
                fixed += [numpy_helper.from_array(random.standard_normal(shape, np.float32), f"w{name}"),
                          numpy_helper.from_array(random.standard_normal(shape[1], np.float32), f"b{name}")]
                if k:
                    nodes += [helper.make_node("MatMul", [value, f"w{name}"], [f"p{name}"], f"mul{name}"),
                              helper.make_node("Add", [f"p{name}", f"b{name}"], [f"y{name}"], f"add{name}")]
                else:
                    nodes.append(helper.make_node("Gemm", [value, f"w{name}", f"b{name}"], [f"y{name}"], f"g{name}",
                                                  alpha=1.0, transB=0))
                nodes.append(helper.make_node("Relu", [f"y{name}"], [f"r{name}"], f"act{name}"))
                value = f"r{name}"
            if features and not part:
                names = [f"f{k}" for k in range(features)]
                inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in names]
                nodes.append(helper.make_node("Concat", [value, *names], ["joined"], "join", axis=1))
                value = "joined"
        out = helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", 1])
        found: bytes = helper.make_model(helper.make_graph(nodes, "g", inputs, [out], fixed)).SerializeToString()
        return found

    return of(4, 0), of(4, 2)


def _an_onnx(random: Random, to: Path) -> Trial:
    import onnx

    path, data = to / "mine.onnx", random.choice(_graphs())
    if random.randrange(4):
        model = onnx.load_from_string(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            _spoil(random, model.graph)
        data = model.SerializeToString()
    else:
        data = damaged(random, data)
    path.write_bytes(data)
    return Trial("mine.onnx", partial(read_onnx, path))


def _spoil(random: Random, graph: Any) -> None:
    """One change of a graph that protobuf can still write."""
    names = [name for node in graph.node for name in (*node.input, *node.output)] or ["x"]
    part = random.choice([each for each in (graph.node, graph.node, graph.initializer, graph.input, graph.output)
                          if len(each)] or [graph.node])
    if not len(part):
        return
    one = part[random.randrange(len(part))]
    if not random.randrange(8):
        part.remove(one)
    elif not random.randrange(8):
        part.append(one)
    elif part is graph.initializer:
        match random.randrange(5):
            case 0:
                one.data_type = random.choice((0, 8, 9, 10, 14, 16, 17, 22, 23, 99, -1))
            case 1:
                del one.dims[:]
                one.dims.extend(random.choice(((), (0,), (-1, 3), (1 << 40, 1 << 40), (3,), (1, 2, 3), (1 << 62,))))
            case 2:
                one.raw_data = damaged(random, one.raw_data)
            case 3:
                one.ClearField("raw_data")
                one.float_data.extend([random.choice((float("inf"), float("nan"), 1e38))] * random.choice((0, 3, 24)))
            case 4:
                one.data_location = 1
                entry = one.external_data.add()
                entry.key, entry.value = "location", random.choice(("mine.onnx", "../x", "/dev/zero", "nowhere", ""))
    elif part is graph.input or part is graph.output:
        match random.randrange(3):
            case 0:
                one.name = random.choice(names)
            case 1:
                one.ClearField("type")
            case 2:
                del one.type.tensor_type.shape.dim[:]
    else:
        match random.randrange(6):
            case 0:
                one.op_type = random.choice(("Gemm", "MatMul", "Add", "Relu", "Sigmoid", "Concat", "Conv", "", COLUMN))
            case 1:
                del one.input[:random.randint(0, 2)]
            case 2:
                del one.output[:]
            case 3:
                one.input.extend(random.choices(names, k=random.choice((1, 2))))
            case 4 if len(one.input):
                one.input[random.randrange(len(one.input))] = random.choice(names)
            case _:
                added = one.attribute.add()
                added.name = random.choice(("axis", "alpha", "transA", "transB", "x"))
                added.type = random.choice((0, 1, 2, 3, 4, 5, 7, 11))
                added.i, added.f = random.choice((0, 1, -1, 1 << 62)), random.choice((0.0, 1.0, float("nan")))


_GEN: Sequence[tuple[str, Path, Callable[[Path], object]]] = (
    ("preset", ROOT / "gen/rtl/presets", config.load), ("device", ROOT / "gen/model/devices", _device),
    ("model", ROOT / "gen/model/networks", _model), ("recommender", ROOT / "gen/model/recommenders", Recommender.load),
    ("board", ROOT / "fpga/synth/boards", EcpBoard.load))
FORMATS = (*(_toml_format(*each) for each in _GEN), Format("plan", _a_plan), Format("profile", _a_profile),
           Format("parameters", _an_npz), Format("bundle", _a_bundle), Format("onnx", _an_onnx))
