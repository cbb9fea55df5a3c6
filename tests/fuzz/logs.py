"""Malformed click logs of every format: small valid ones that are cut, flipped, spliced and lied about.

Of a valid log it is known what it holds, so one in eight is left as it is and read back; of all that are read, chunks
must be what gen.data.logs.Chunk promises.
"""

import bz2
import gzip
import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gen.data.logs import FORMATS as KINDS
from gen.data.logs import Trace, open_log
from tests.fuzz.campaign import Format, Trial, damaged

NAMES = ("user_id", "[/red]_id", "a b_id", "ü_id", "x.y_id", "\x1b[31m_id", "", "label", "hour", "price", "ids:token",
         "score:float", "_id", "C1", "tags:token_seq")
NUMBERS = ("0", "1", "-1", "18446744073709551615", "-9223372036854775808", "18446744073709551616", "1e23", "nan", "inf",
           "", " ", "-", "+4", "007", "0" * 300, "9" * 5000, "abc", '"a"', '"', "'", "1.5", "é", "\0", "1_0", "٣",
           "deadbeef", "FFFFFFFFFFFFFFFFF", "[/red]")
SIZES = (0, 1, -1, 7, 8, 255, 1 << 16, 1 << 31, 1 << 32, 10**12, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**30)


# Writers: of files that the libraries would not write.

def npy(shape: Sequence[int], descr: str = "<i8", data: bytes = b"", *, version: int = 1, order: bool = False,
        header: bytes | None = None) -> bytes:
    """An array's file with any header."""
    text = header if header is not None else repr(
        {"descr": descr, "fortran_order": order, "shape": tuple(shape)}).encode() + b"\n"
    length = struct.pack("<H", len(text) & 0xFFFF) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + data


def zipped(members: Mapping[str, bytes], packed: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)
    return file.getvalue()


def _whole(number: int) -> bytes:
    """A whole number of any size for a pickle."""
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes((len(data),)) + data


def _tuple(parts: Sequence[bytes]) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def _unicode(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def tensor(key: str, kind: str, count: int, offset: int, size: Sequence[int], stride: Sequence[int],
           storage: bytes | None = None) -> bytes:
    """What a pickle says of a tensor. storage: what it is said to be of, in place of the member `key`."""
    named = storage or _tuple([_unicode("storage"), f"ctorch\n{kind}\n".encode(), _unicode(key), _unicode("cpu"),
                               _whole(count)]) + b"Q"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + _tuple([
        named, _whole(offset), _tuple([_whole(n) for n in size]), _tuple([_whole(n) for n in stride]), b"\x89",
        b"ccollections\nOrderedDict\n)R"]) + b"R"


def torch_file(arrays: Sequence[np.ndarray], pickled: bytes | None = None, order: str | None = None) -> bytes:
    """As torch.save writes a tuple of tensors. pickled: in place of what it says of them."""
    kinds = {"i8": "LongStorage", "i4": "IntStorage", "i2": "ShortStorage", "i1": "CharStorage", "u1": "ByteStorage",
             "f4": "FloatStorage"}
    made = [tensor(str(n), kinds[each.dtype.str[1:]], each.size, 0, each.shape,
                   [step // each.itemsize for step in each.strides]) for n, each in enumerate(arrays)]
    members = {"log/data.pkl": b"\x80\x02" + (pickled if pickled is not None else _tuple(made)) + b"."}
    members |= {} if order is None else {"log/byteorder": order.encode()}
    return zipped(members | {f"log/data/{n}": each.tobytes() for n, each in enumerate(arrays)})


# Valid logs: (bytes, ids by table).

def _ids(random: Random, count: int, kind: str = "<u8") -> np.ndarray:
    bits = random.choice((3, 16, 31, 64))
    return np.array([random.getrandbits(bits) for _ in range(count)], "<u8").astype(kind)


def _npz(random: Random) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    samples = random.choice((1, 5, 30))
    arrays, ids = {}, {}
    for number in range(random.randint(1, 3)):
        kind = random.choice(("<u8", "<i8", "<i4", ">u2", "|u1", "|i1"))
        if random.randrange(2):
            lengths = [random.randrange(4) for _ in range(samples)]
            found = _ids(random, sum(lengths), kind)
            arrays |= {f"off_t{number}": np.cumsum([0, *lengths]), f"ind_t{number}": found}
        else:
            found = _ids(random, samples, kind)
            arrays[f"idx_t{number}"] = found
        ids[f"t{number}"] = [int(each) % (1 << 64) for each in found]
    if random.randrange(2):
        arrays["dense"] = np.asfortranarray(np.ones((samples, 3))) if random.randrange(2) else np.ones((samples, 3))
    return arrays, ids


def _npz_bytes(arrays: Mapping[str, np.ndarray], packed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    return file.getvalue()


def _mels(random: Random) -> tuple[list[np.ndarray], dict[str, list[int]]]:
    tables, samples = random.randint(1, 4), random.choice((1, 9))
    kind = random.choice(("<i8", "<i4", "|u1"))
    lengths = np.array([[random.randrange(4) for _ in range(samples)] for _ in range(tables)], kind).reshape(
        tables, samples)
    edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    indices = _ids(random, int(edges[-1]), random.choice(("<i8", "<i4", "|u1")))
    return [indices, edges.astype(kind), lengths], {
        f"t{t}": [int(each) % (1 << 64) for each in indices[edges[t * samples]:edges[(t + 1) * samples]]]
        for t in range(tables)}


def _parquet(random: Random) -> tuple[bytes, dict[str, list[int]]]:
    rows, columns, ids = random.choice((1, 40)), {}, {}
    for number in range(random.randint(1, 3)):
        name, kind = f"t{number}", random.choice((pa.uint64(), pa.int64(), pa.int32(), pa.uint8()))
        wide = f"<{'u' if kind in (pa.uint64(), pa.uint8()) else 'i'}{kind.bit_width // 8}"
        if random.randrange(2):
            bags = [_ids(random, random.randrange(4), wide).tolist() for _ in range(rows)]
            columns[name] = pa.array(bags, pa.list_(kind))
        else:
            bags = [[each] for each in _ids(random, rows, wide).tolist()]
            columns[name] = pa.array([each[0] for each in bags], kind)
        ids[name] = [each % (1 << 64) for bag in bags for each in bag]
    if random.randrange(2):
        columns["kind"] = pa.array([random.choice(("a", "b", None)) for _ in range(rows)], pa.string())
        columns["yes"] = pa.array([random.choice((True, False, None)) for _ in range(rows)], pa.bool_())
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=random.choice((7, 100)),
                   compression=random.choice(("none", "snappy", "zstd", "gzip")),
                   use_dictionary=bool(random.randrange(2)), write_page_checksum=bool(random.randrange(2)))
    return file.getvalue(), ids


def _text_log(random: Random, kind: str) -> tuple[list[list[str]], str, dict[str, list[int]]]:
    """(lines of fields, separator, ids)."""
    count = random.choice((1, 2, 12))
    if kind == "movielens":
        rows = [[str(random.getrandbits(20)), str(random.getrandbits(12)), random.choice(("1", "5", "3.5")),
                 "881250949"] for _ in range(count)]
        return rows, random.choice(("\t", "::")), {name: [int(row[place]) for row in rows]
                                                    for place, name in enumerate(("user_id", "item_id"))}
    if kind == "criteo":
        rows = [["1", *(str(random.randrange(99)) for _ in range(13)),
                 *(f"{random.getrandbits(random.choice((4, 32, 64))):x}" for _ in range(26))] for _ in range(count + 1)]
        return rows, "\t", {f"C{n:02}": [int(row[13 + n], 16) for row in rows] for n in range(1, 27)}
    if kind == "avazu":
        from gen.data.logs.text import AVAZU_HEX, AVAZU_TABLES
        names = ["id", "click", "hour", *AVAZU_TABLES]
        rows = [[f"{random.getrandbits(32):x}" if name in AVAZU_HEX else str(random.getrandbits(60))
                 for name in names] for _ in range(count)]
        return [names, *rows], ",", {name: [int(row[names.index(name)], 16 if name in AVAZU_HEX else 10)
                                            for row in rows] for name in AVAZU_TABLES}
    names = ["user_id", "[/red]_id", "price"]
    rows = [[str(random.choice((-1, 1)) * random.getrandbits(63)), str(random.getrandbits(64)), "0.5"]
            for _ in range(count)]
    return [names, *rows], random.choice(",\t;|"), {name: [int(row[k]) % (1 << 64) for row in rows]
                                                   for k, name in enumerate(names[:2])}


# Inputs.

def _text(random: Random, kind: str) -> tuple[str, bytes, dict[str, list[int]] | None]:
    lines, separator, ids = _text_log(random, kind)
    valid = not random.randrange(8)
    if not valid:
        for _ in range(random.randrange(4)):
            row = random.choice(lines)
            at = random.randrange(len(row))
            match random.randrange(4):
                case 0:
                    row[at] = random.choice(NUMBERS + NAMES)
                case 1:
                    row[at:at] = [random.choice(NUMBERS)] * random.choice((1, 5, 6000))
                case 2:
                    del row[at]
                    row.append("")
                case 3:
                    row[at] = '"' + row[at] + random.choice(('"', '""', ""))
    data = random.choice(("\n", "\r\n")).join(map(separator.join, lines)).encode("utf-8", "replace") + b"\n"
    ids = ids if valid else None
    if not valid and random.randrange(2):
        data = damaged(random, data)
    suffix = {"criteo": random.choice((".txt", "")), "avazu": ".csv", "movielens": ".data"}.get(
        kind, ".csv" if separator == "," else ".tsv")
    match random.randrange(6):
        case 0:
            data, suffix = gzip.compress(data, mtime=0), suffix + ".gz"
        case 1:
            data, suffix = bz2.compress(data), suffix + ".bz2"
        case 2:
            data, suffix = pa.compress(data, "zstd", asbytes=True), suffix + ".zst"
        case _:
            return suffix, data, ids
    return suffix, data if valid or random.randrange(2) else damaged(random, data), ids


def _npz_input(random: Random) -> tuple[str, bytes, dict[str, list[int]] | None]:
    arrays, ids = _npz(random)
    packed = bool(random.randrange(2))
    if not random.randrange(8):
        return ".npz", _npz_bytes(arrays, packed), ids
    match random.randrange(5):
        case 0 | 1:
            return ".npz", damaged(random, _npz_bytes(arrays, packed)), None
        case 2:     # headers that lie
            shape = [random.choice(SIZES) for _ in range(random.randrange(4))]
            descr = random.choice(("<i8", "<i8", "|u1", "<U0", "<U900000000", "|V9", "|O", "<f2", "(3,)i4", "i4,i4"))
            header = random.choice((None, None, b"(" * 5000, b"-" * 9000 + b"1", b"{" * 900, b"[1,", b"\xff" * 50,
                                    b"{'descr':'<i8','fortran_order':False,'shape':(-1,)}\n", b" " * 60000))
            one = npy(shape, descr, random.randbytes(random.choice((0, 8, 64))), version=random.choice((1, 1, 2, 3, 9)),
                      order=bool(random.randrange(2)), header=header)
            name = random.choice(("idx_a", "ind_a", "off_a", "dense", "idx_t0", "x/y", "[/red]"))
            others = {"idx_t9": npy([3], data=bytes(24)), "off_a": npy([4], data=bytes(32))}
            return ".npz", zipped(others | {f"{name}.npy": one}, packed), None
        case 3:     # zeros without end, packed
            bomb = npy([random.choice((1, 3)), 1 << random.choice((16, 22))], data=bytes(8 << 18),
                       order=bool(random.randrange(2)))
            return ".npz", zipped({"idx_a.npy": npy([3], data=bytes(24)), "dense.npy": bomb}, True), None
        case _:     # right arrays under damaged bytes: every checksum is right again
            members = {f"{name}.npy": npy(array.shape, array.dtype.str, array.tobytes()) for name, array
                       in arrays.items()}
            name = random.choice(list(members))
            members[name] = damaged(random, members[name])
            return ".npz", zipped(members, packed), None


def _mels_input(random: Random) -> tuple[str, bytes, dict[str, list[int]] | None]:
    arrays, ids = _mels(random)
    suffix = random.choice((".pt", ".pt", ".pt", ".pt.gz"))
    data = torch_file(arrays, order=random.choice((None, "little")))
    valid = not random.randrange(8)
    if not valid:
        match random.randrange(5):
            case 0 | 1:
                data = damaged(random, data)
            case 2:     # tensors that lie
                made = []
                for _ in range(3):
                    axes = random.randrange(4)
                    size, stride = ([random.choice(SIZES) for _ in range(axes)] for _ in range(2))
                    made.append(tensor(random.choice("0129"), "LongStorage", random.choice(SIZES), random.choice(SIZES),
                                       size, stride))
                data = torch_file(arrays, _tuple(made))
            case 3:     # a tensor as storage of another, a list in itself, deep and wide nests
                inner = tensor("0", "LongStorage", arrays[0].size // 2, 0, [random.choice(SIZES)], [0])
                nest = random.choice((
                    tensor("0", "LongStorage", 1, 0, [4096], [4096], inner), b"]q\0h\0a", b"(" * 9000, b"]" * 9000,
                    b")" + b"q\1h\1\x86" * 2000, b"}" + b")" + b"q\1h\1\x86" * 64 + b"Ns", b"r\xff\xff\xff\x7f",
                    b"\x8e" + struct.pack("<Q", 1 << 40), b"I" + b"9" * 5000 + b"\n", b"cos\nsystem\n)R",
                    b"\x8b" + struct.pack("<i", 1 << 30) + b"\1", b"0", b"00", b"h\7", b"Q"))
                data = torch_file(arrays, _tuple([nest]))
            case _:     # other operations
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    members = {name: archive.read(name) for name in archive.namelist()}
                members["log/data.pkl"] = damaged(random, members["log/data.pkl"])
                data = zipped(members, bool(random.randrange(4) == 0))
    return suffix, gzip.compress(data, 1, mtime=0) if suffix == ".pt.gz" else data, ids if valid else None


def _parquet_input(random: Random) -> tuple[str, bytes, dict[str, list[int]] | None]:
    data, ids = _parquet(random)
    if not random.randrange(8):
        return ".parquet", data, ids
    if random.randrange(2):
        return ".parquet", damaged(random, data), None
    # The footer alone: what the file says of itself.
    length = struct.unpack("<I", data[-8:-4])[0]
    body, footer = data[:-8 - length], damaged(random, data[-8 - length:-8])
    length = random.choice(SIZES) & 0xFFFFFFFF if not random.randrange(6) else len(footer)
    return ".pq", body + footer + struct.pack("<I", length) + b"PAR1", None


def _jsonl_input(random: Random) -> tuple[str, bytes, dict[str, list[int]] | None]:
    rows: list[dict[str, object]] = [{} for _ in range(random.choice((1, 40, 1200)))]
    ids: dict[str, list[int]] = {}
    for number in range(random.randint(1, 3)):
        name, is_bag = f"t{number}_id", random.randrange(2)
        bags = [_ids(random, random.randint(1, 3) if is_bag else 1, "<i8").tolist() for _ in rows]
        for row, bag in zip(rows, bags, strict=True):
            row[name] = bag if is_bag else bag[0]
        ids[name] = [each % (1 << 64) for bag in bags for each in bag]
    for row in rows:
        row |= {"text": random.choice(NAMES), "label": random.choice((0, 1, None, 0.5)), "in": {"a": [1]}}
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    suffix = random.choice((".jsonl", ".json.gz"))
    valid = not random.randrange(8)
    data = data if valid else damaged(random, data)
    return suffix, gzip.compress(data, 1, mtime=0) if suffix.endswith(".gz") else data, ids if valid else None


def _read(path: Path, tables: Sequence[str] | None, kind: str | None, samples: int) -> dict[str, list[int]]:
    """All ids of a log, whose chunks are what they promise."""
    log = open_log(path, kind, tables)
    found: dict[str, list[int]] = {name: [] for name in log.tables}
    last = -1
    for chunk in log.chunks(samples):
        assert 0 < chunk.samples <= samples and chunk.first > last and set(chunk.ids) == set(log.tables)
        last = chunk.first + chunk.samples - 1
        for name, ids in chunk.ids.items():
            assert ids.dtype == np.uint64 and ids.ndim == 1
            edges = chunk.offsets.get(name)
            if edges is None:
                assert len(ids) == chunk.samples
            else:
                assert edges[0] == 0 and edges[-1] == len(ids) and len(edges) == chunk.samples + 1
                assert (np.diff(edges) >= 0).all()
            if len(found[name]) < 1 << 16:
                found[name] += ids.tolist()
        assert all(len(each) == chunk.samples for each in chunk.values.values())
    assert all("\n" not in line for line in log.report())
    return found


def _whole_log(path: Path, kind: str | None, samples: int) -> dict[str, list[int]]:
    """Of a log without a fault."""
    try:
        return _read(path, None, kind, samples)
    except ValueError as error:
        raise AssertionError("a log without a fault is refused") from error


def _maker(kind: str) -> Format:
    make_input = {"npz": _npz_input, "mels": _mels_input, "parquet": _parquet_input, "jsonl": _jsonl_input}.get(
        kind, lambda random: _text(random, kind))

    def make(random: Random, folder: Path) -> Trial:
        suffix, data, ids = make_input(random)
        if ids is None and not random.randrange(40):        # another's bytes under this name
            data = _maker_inputs(random)
        path = folder / f"log{suffix}"
        path.write_bytes(data)
        own = suffix in ("", ".gz", ".bz2", ".zst") or kind in ("criteo", "avazu", "movielens")
        said = kind if own else random.choice((None, kind))
        tables = ["kind"] if kind == "parquet" and ids is None and not random.randrange(4) else None
        samples = random.choice((3, 65536))
        if ids is None and not random.randrange(6):
            return Trial(str(path), lambda: Trace.of(open_log(path, said)))
        if ids is None:
            return Trial(str(path), lambda: _read(path, tables, said, samples))
        return Trial(str(path), lambda: _whole_log(path, said, samples), lambda found: found == ids)

    return Format(f"log-{kind}", make)


def _maker_inputs(random: Random) -> bytes:
    return random.choice((_npz_input, _mels_input, _parquet_input))(random)[1]


FORMATS = tuple(_maker(kind) for kind in KINDS)
