"""Text logs: what a plain reading in Python says, in every cut; broken lines counted and named."""

import bz2
import csv
import gzip
import io
import lzma
import pickle
import re

import numpy as np
import pytest

from gen.data.logs import FORMATS, PIECE, cells, lines, open_log, stream

HEX = "0123456789abcdef"


def read(log, samples=1000):
    """(ids, values) as lists by name."""
    ids, values = {name: [] for name in log.tables}, {}
    end = -1
    for chunk in log.chunks(samples):
        assert chunk.first == end or chunk.first > end and chunk.first % PIECE == 0
        end = chunk.first + chunk.samples
        for name in log.tables:
            ids[name] += chunk.ids[name].tolist()
        for name, array in chunk.values.items():
            assert len(array) == chunk.samples
            values.setdefault(name, []).extend(array.tolist())
    return ids, values


def hashed(text):
    """The hash of gen.data.logs.cells in whole numbers of Python."""
    value, mask = 0xCBF29CE484222325, (1 << 64) - 1
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & mask
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & mask
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return value ^ value >> 33


def as_id(text):
    whole = re.fullmatch(r" *([+-]?[0-9]+)(\.0*)? *", text)
    return int(whole[1]) % (1 << 64) if whole and -1 << 63 <= int(whole[1]) < 1 << 64 else hashed(text)


def criteo_lines(random, count):
    """(lines, cells) with empty cells among them."""
    rows = []
    for _ in range(count):
        dense = ["" if random.random() < 0.3 else str(int(random.integers(-3, 9999))) for _ in range(13)]
        lengths = random.choice([0, 1, 8, 8, 8, 16], 26)
        sparse = ["".join(random.choice(list(HEX), length)) for length in lengths]
        rows.append([str(int(random.integers(2))), *dense, *sparse])
    return ["\t".join(row) for row in rows], rows


def test_criteo_as_plain_python_reads_it(tmp_path, monkeypatch):
    random = np.random.default_rng(5)
    text, rows = criteo_lines(random, 700)
    path = tmp_path / "train.txt"
    path.write_text("\n".join(text), "utf-8")                    # the last line has no end
    ids, values = read(open_log(path), 64)
    assert list(ids) == [f"C{n:02}" for n in range(1, 27)]
    assert list(values) == ["label", *(f"I{n:02}" for n in range(1, 14))]
    for place, name in enumerate(ids, start=14):
        assert ids[name] == [int(row[place] or "0", 16) for row in rows], name
    for place, name in enumerate(values):
        expected = [float(row[place] or "nan") for row in rows]
        assert np.array_equal(values[name], expected, equal_nan=True), name
    # However it is cut, packed and ended, it is the same.
    whole = {}
    for block, piece in ((97, 1 << 26), (1 << 22, 5000), (300, 20000)):
        monkeypatch.setattr(stream, "BLOCK", block)
        monkeypatch.setattr(lines, "PIECE_BYTES", piece)
        log = open_log(path)
        assert read(log, 100)[0] == ids
        parts = pickle.loads(pickle.dumps(log.parts()))
        assert len(parts) == max(1, round(path.stat().st_size / piece))
        assert sum((read(part, 33)[0]["C07"] for part in parts), []) == ids["C07"]
        whole[len(parts)] = sum(part.bytes for part in parts)
    assert set(whole.values()) == {path.stat().st_size} and len(whole) == 3
    for name, pack, end in (("a.tsv.gz", gzip.compress, "\n"), ("day_0.bz2", bz2.compress, "\r\n"),
                            ("b.csv.xz", lzma.compress, "\n"), ("day_1", bytes, "\n")):
        (tmp_path / name).write_bytes(pack((end.join(text) + end).encode()))
        assert read(open_log(tmp_path / name))[0] == ids, name
    gz = (tmp_path / "a.tsv.gz").read_bytes()
    (tmp_path / "two.gz").write_bytes(gz + gz)          # members one behind the other, as pigz and cat write them
    assert read(open_log(tmp_path / "two.gz"))[0]["C01"] == 2 * ids["C01"]


NUMBER = re.compile(rb" *[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *|")


@pytest.mark.parametrize("seed", range(3))
def test_spoilt_bytes(tmp_path, seed):
    """Whatever bytes there are, a line is read as Python reads it or counted as broken, and its neighbours are well."""
    random = np.random.default_rng(seed)
    text, _ = criteo_lines(random, 300)
    data = bytearray("\n".join(text).encode())
    letters = np.frombuffer(b"\t\t\n\r\0\"x.-+e90a ", np.uint8)
    for _ in range(400):
        at = int(random.integers(len(data)))
        data[at:at + int(random.integers(2))] = bytes(random.choice(letters, int(random.integers(3))))
    (tmp_path / "a.txt").write_bytes(data)
    kept, broken = [], 0
    for line in bytes(data).split(b"\n"):
        cells = (line[:-1] if line.endswith(b"\r") else line).split(b"\t")
        if cells == [b""]:
            continue
        if len(cells) == 40 and all(map(NUMBER.fullmatch, cells[:14])) and all(
                re.fullmatch(rb"[0-9a-fA-F]{0,16}", cell) for cell in cells[14:]):
            kept.append(cells)
        else:
            broken += 1
    log = open_log(tmp_path / "a.txt", "criteo", broken=1)
    ids, values = read(log, 50)
    assert set(log.problems.counts) - {"lines whose fields do not end where they should"} == {
        "lines of too few or too many fields", "lines with an id that is not hexadecimal",
        "lines with a value that is no number"}
    assert sum(log.problems.counts.values()) == broken and 50 < broken < 250
    for place, name in enumerate(ids, start=14):
        assert ids[name] == [int(cells[place] or b"0", 16) for cells in kept], name
    for place, name in enumerate(values):
        assert np.allclose(values[name], [float(cells[place] or b"nan") for cells in kept], equal_nan=True, rtol=1e-14)


def test_criteo_without_labels_and_several_files(tmp_path):
    text, rows = criteo_lines(np.random.default_rng(6), 20)
    (tmp_path / "b.txt").write_text("\n".join(line.partition("\t")[2] for line in text) + "\n", "utf-8")
    assert "label" not in read(open_log(tmp_path / "b.txt"))[1]
    assert read(open_log(tmp_path / "b.txt", "criteo", ["C26", "C02"]))[0] == {
        "C02": [int(row[15] or "0", 16) for row in rows], "C26": [int(row[39] or "0", 16) for row in rows]}
    (tmp_path / "a.txt").write_text("\n".join(text) + "\n", "utf-8")
    both = open_log([tmp_path / "b.txt", tmp_path / "a.txt"], tables=["C01"])
    assert len(both.parts()) == 2 and len(read(both)[0]["C01"]) == 40
    assert read(open_log(tmp_path, tables=["C01"]))[0] == read(both)[0]


def test_avazu(tmp_path):
    names = ["id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id",
             "app_domain", "app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
             *(f"C{n}" for n in range(14, 22))]
    random = np.random.default_rng(3)
    rows = [["1000009418151094273", "0", "14102100", "1005", "0",
             *(f"{word:08x}" for word in random.integers(1 << 32, size=9)),
             "1", "2", *map(str, random.integers(-1, 900, 8))] for _ in range(30)]
    path = tmp_path / "train.csv"
    path.write_text("\n".join(map(",".join, [names, *rows])) + "\n", "utf-8")
    log = open_log(path)
    ids, values = read(log)
    assert len(ids) == 21 and list(values) == ["click", "hour"] and log.unread == ("id",)
    for name in ids:
        column = [row[names.index(name)] for row in rows]
        base = 16 if name.split("_")[0] in ("site", "app") or name in ("device_id", "device_ip", "device_model") else 10
        assert ids[name] == [int(cell, base) % (1 << 64) for cell in column], name
    path.write_text(",".join(names).replace("device_ip", "ip") + "\n", "utf-8")
    with pytest.raises(ValueError) as caught:
        open_log(path, "avazu")
    assert str(caught.value) == f"{path} has no field 'device_ip'; it has {', '.join(names)}".replace(
        "device_id, device_ip,", "device_id, ip,").replace("id, ip, device_ip", "id, ip")


@pytest.mark.parametrize("seed", range(4))
def test_ids_and_numbers_as_python_has_them(tmp_path, seed):
    """Whole numbers, negative ones, texts of any characters, in quotes where there must be."""
    random = np.random.default_rng(seed)
    odd = ["0", "-0", "007", "-1", "9999999999999999999", "18446744073709551615", "18446744073709551616",
           "-999999999999999999", "-9223372036854775808", "-9223372036854775809", "0" * 30 + "12", "1e5", "+4",
           "-", "a,b", 'say "no"', "é", " 5", "-7 ", "x" * 300, "--3", "1_0", "12a", "5.0", "-3.", "5.01", "1.", ".0",
           "two\nlines", "\n", "nano"]
    numbers = ["1", "-2.5", "+3", "1e-3", ".5", "5.", "123456789012345", "1E22", "-0", "0.1", "", "1.7e300", "4e-310",
               "123456789012345678901234567890", "0.000000000000000000000012345", "nan"]
    rows = [[odd[random.integers(len(odd))], numbers[random.integers(len(numbers))], str(random.integers(1 << 40))]
            for _ in range(300)]
    text = io.StringIO()
    writer = csv.writer(text, quoting=(csv.QUOTE_MINIMAL, csv.QUOTE_ALL)[seed % 2])
    writer.writerows([["shop_id", "price", "user_id"], *rows])
    path = tmp_path / "a.csv"
    path.write_text(text.getvalue(), "utf-8", newline="")
    log = open_log(path)
    ids, values = read(log, 77)
    assert ids["shop_id"] == [as_id(row[0]) for row in rows]
    assert ids["user_id"] == [int(row[2]) for row in rows]
    exact = [float(row[1] or "nan") for row in rows]
    assert np.allclose(values["price"], exact, rtol=1e-14, atol=0, equal_nan=True)
    short = [n for n, row in enumerate(rows) if len(row[1]) <= 15 and "300" not in row[1] and "310" not in row[1]]
    assert np.array_equal(np.array(values["price"])[short], np.array(exact)[short], equal_nan=True)


def test_fields_of_a_text(tmp_path):
    path = tmp_path / "a.inter"
    path.write_text("user:token\titem:token\tscore:float\tnote:token_seq\tpast:float_seq\n"
                    "9\tb\t1.5\tx 7\t1 2\n10\ta\t2\t\t\n\n9\tb\t-3e1\tz\t3\n", "utf-8")
    log = open_log(path)
    ids, values = read(log)
    assert ids == {"user": [9, 10, 9], "item": [hashed("b"), hashed("a"), hashed("b")],
                   "note": [hashed("x"), 7, hashed("z")]}
    assert next(log.chunks()).offsets["note"].tolist() == [0, 2, 2, 3]
    assert values == {"score": [1.5, 2, -30]} and log.unread == ("past",)
    path = tmp_path / "b.csv"
    path.write_text("\ufeffwhen,shop_id,price,kind\r\n1,7,0.5,x\r\n2,3,,y\r\n", "utf-8")
    ids, values = read(open_log(path))
    assert ids == {"shop_id": [7, 3]} and values["when"] == [1, 2] and np.isnan(values["price"][1])
    assert list(values) == ["when", "price"]
    assert read(open_log(path, tables=["kind", "when"]))[0] == {"kind": [hashed("x"), hashed("y")], "when": [1, 2]}


def test_broken_lines_are_counted_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE_BYTES", 3000)
    text, rows = criteo_lines(np.random.default_rng(8), 100)
    spoilt = list(text)
    spoilt[3] = spoilt[3] + "\t9"
    spoilt[40] = ""
    spoilt[70] = "\t".join([*rows[70][:30], "xyz", *rows[70][31:]])
    spoilt[80] = "\t".join(rows[80][:12])
    spoilt[90] = "\t".join(["clicked", *rows[90][1:]])
    path = tmp_path / "a.txt"
    path.write_text("\n".join(spoilt) + "\n", "utf-8")
    log = open_log(path)
    assert len(log.parts()) > 3
    kept = [row for number, row in enumerate(rows) if number not in (3, 40, 70, 80, 90)]
    for _ in range(2):                                  # of the last reading, not of all
        assert read(log, 16)[0]["C26"] == [int(row[39] or "0", 16) for row in kept]
        assert log.problems.counts == {"lines of too few or too many fields": 2,
                                       "lines with an id that is not hexadecimal": 1,
                                       "lines with a value that is no number": 1}
    assert log.problems.first == {
        "lines of too few or too many fields": f"{path}:4: 41 fields, not 40",
        "lines with an id that is not hexadecimal": f"{path}:71: the field 'C17' is 'xyz'",
        "lines with a value that is no number": f"{path}:91: the field 'label' is 'clicked'"}
    with pytest.raises(ValueError) as caught:
        read(open_log(path, broken=0))
    assert "lines are broken: 1 x lines of too few or too many fields; first" in str(caught.value)
    assert str(caught.value).endswith(f"{path}:4: 41 fields, not 40")


def test_too_many_broken_lines(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a_id\tb\n" + "1\t2\n" * 100 + "\t4\n" * 12, "utf-8")
    with pytest.raises(ValueError) as caught:
        read(open_log(path))
    assert str(caught.value) == (f"{path}: 12 of 112 lines are broken, more than 1%: 12 x lines with an empty id "
                                 f"(--missing is an id for it); first {path}:102: the field 'a_id' is empty")
    assert read(open_log(path, broken=0.2))[0]["a_id"] == [1] * 100
    assert read(open_log(path, missing=77))[0]["a_id"] == [1] * 100 + [77] * 12
    packed = tmp_path / "b.tsv.gz"
    packed.write_bytes(gzip.compress(b"a_id\tb\r\n1\t2\r\n\r\n\t4\r\n"))
    log = open_log(packed)
    assert read(log)[0]["a_id"] == [1]
    assert log.problems.first == {
        "lines with an empty id (--missing is an id for it)": f"{packed}:4: the field 'a_id' is empty"}
    path.write_text("a_id\tb\n1\n2\n", "utf-8")
    with pytest.raises(ValueError, match="a.tsv: 2 of 2 lines are broken: 2 x lines of too few or too many fields"):
        read(open_log(path))


def test_quotes_that_do_not_close(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a_id,b\n1,2\n"3,4\n5,"x\ny\n5,"x\ry"z\n"6","7"\n8,9\r5\n', "utf-8", newline="")
    log = open_log(path, tables=["a_id", "b"])
    assert read(log)[0] == {"a_id": [1, 6], "b": [2, 7]}
    assert log.problems.counts == {"lines of too few or too many fields": 2,
                                   "lines whose fields do not end where they should": 2}
    path.write_text('a_id,b\n1,2\n3,"4\n5,6\n', "utf-8")
    with pytest.raises(ValueError) as caught:
        read(open_log(path, tables=["a_id", "b"]))
    assert str(caught.value) == (f"{path}:3: a quoted field that begins here or further on is not closed; --no-quotes "
                                 "takes quotes for text")
    assert read(open_log(path, tables=["a_id", "b"], quotes=False))[0] == {"a_id": [1, 3, 5], "b": [2, hashed('"4'), 6]}


def test_texts_among_values_are_counted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a_id\tb\n" + "1\t2\n" * 40000 + "2\tmany\n3\t\n", "utf-8")
    log = open_log(path)
    ids, values = read(log)
    assert ids["a_id"][-2:] == [2, 3] and np.isnan(values["b"][-2:]).all() and values["b"][:40000] == [2] * 40000
    assert log.problems.counts == {"values that are no number, read as NaN": 1}
    assert log.problems.first == {"values that are no number, read as NaN": f"{path}:40002: the field 'b'"}


@pytest.mark.parametrize(("content", "tables", "message"), [
    (b"", None, "{} is empty; its first line must name the fields"),
    (b"a\tb\n1\t2\n", None, "{}: no field has an id's name, as user_id, so name the fields that are indices (--table); "
     "there are a, b; without a header line --fields names them"),
    (b"a\tb\n1\t2\n", ["c"], "{} has no field 'c'; it has a, b"),
    (b"a\tb\n1\t2\n", ["a,b"], "{} has no field 'a,b'; it has a, b; --table is given once for each"),
    (b"a\ta\n1\t2\n", ["a"], "{}: line 1 names the field 'a' twice; --fields names all 2 fields"),
    (b"a_id\x01b\n1\x012\n", None, "{}: nothing separates fields in line 1, 'a_id\\x01b'; comma, tab, semicolon and "
     "pipe were looked for, --separator $'\\x01' reads these"),
    (b"a_id\tb\nint\tbool\n1\t2\n3\t4\n5\t6\n", None, "{0}: line 2 has no number where those behind it have: int, "
     "bool; if it belongs to the header, leave it out; if it is a sample, --fields a_id,b reads it"),
    (b"a\xff\ta\n1\t2\n", ["a"], "{}:1: the byte 0xff is no UTF-8; `iconv -f WINDOWS-1252 -t UTF-8` "
     "converts a text of Windows, -f names another encoding"),
    (b"a\tb\n1\t2\n", [], "tables must name one table at least"),
])
def test_text_wrong(tmp_path, content, tables, message):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        open_log(path, tables=tables)
    assert str(caught.value) == message.format(path)


@pytest.mark.parametrize(("fields", "ids"), [(["a_id", "b_id"], 4), (None, 3)])
def test_a_second_line_of_texts_is_a_sample_by_fields_or_left_out(tmp_path, fields, ids):
    path, line = tmp_path / "a.csv", b"" if fields is None else b"unknown,unknown\n"
    path.write_bytes(b"a_id,b_id\n" + line + b"1,2\n3,4\n5,6\n")
    found = read(open_log(path, fields=fields))[0]
    assert [len(each) for each in found.values()] == [ids, ids] and list(found["a_id"])[-3:] == [1, 3, 5]


def test_a_few_hashed_ids_may_be_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"name_id,h1_id\n0a1b2c3d,0a1b2c3d\n12345678,12345678\n")
    assert len(read(open_log(path))[0]["h1_id"]) == 2


def test_files_wrong(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"none\.tsv is not a file"):
        open_log(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match=f"the format 'xml' is unknown; there are {', '.join(FORMATS)}"):
        open_log(tmp_path, "xml")
    with pytest.raises(ValueError, match="broken must be a share from 0 to 1, not 2"):
        open_log(tmp_path, broken=2)
    with pytest.raises(ValueError, match="is a log of no files"):
        open_log(tmp_path)
    with pytest.raises(ValueError, match=r"^https:/a\.b/u\.data is an address; download the file first, or write it"):
        open_log("https://a.b/u.data")
    (tmp_path / "a.log").write_text("\n", "utf-8")
    with pytest.raises(ValueError, match=r"a\.log is empty$"):
        open_log(tmp_path / "a.log")
    (tmp_path / "a.log").write_text("x", "utf-8")
    with pytest.raises(ValueError, match=r"a\.log ends in '\.log' and is not Criteo's; the endings read are \.npz"):
        open_log(tmp_path / "a.log")
    text = gzip.compress(b"a_id\n" + bytes(range(48, 58)) * 5000 + b"\n")
    (tmp_path / "cut.tsv.gz").write_bytes(text[:len(text) // 2])
    with pytest.raises(ValueError, match=r"cut\.tsv\.gz is no whole gzip file: "):
        read(open_log(tmp_path / "cut.tsv.gz"))
    (tmp_path / "bad.tsv.gz").write_bytes(b"no gzip at all")
    with pytest.raises(ValueError, match=r"bad\.tsv\.gz is no whole gzip file: "):
        open_log(tmp_path / "bad.tsv.gz")
    for name, head in (("b.tsv", "b_id"), ("c.tsv", "c_id")):
        (tmp_path / name).write_text(f"{head}\n1\n", "utf-8")
    with pytest.raises(ValueError) as caught:
        open_log([tmp_path / "b.tsv", tmp_path / "c.tsv"])
    assert str(caught.value) == f"{tmp_path / 'c.tsv'} has the tables c_id; {tmp_path / 'b.tsv'} has b_id"
    monkeypatch.setattr(stream, "BLOCK", 100), monkeypatch.setattr(stream, "LINE", 1000)
    (tmp_path / "long.tsv").write_text("a_id\n" + "7" * 3000, "utf-8")
    with pytest.raises(ValueError, match=r"long\.tsv has a line of more than 1,000 bytes; is it text\?"):
        read(open_log(tmp_path / "long.tsv"))


def test_memory_stays_bounded(tmp_path):
    """A log many times the size of what is held of it: a block of lines and a chunk."""
    import tracemalloc
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a_id\tb_id\n" + b"123456789\tabcdefghijk\n" * 2_000_000, 1))
    log, seen = open_log(path), []
    log.progress = lambda done, total: seen.append((done, total))
    tracemalloc.start()
    assert sum(chunk.samples for chunk in log.chunks()) == 2_000_000
    assert tracemalloc.get_traced_memory()[1] < 20e6 < 44e6
    tracemalloc.stop()
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1] == path.stat().st_size


def test_ids_of_many_texts():
    texts = ["7", "", "x", "-9"]
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    ids = np.zeros(4, np.uint64)
    cells.ids_of(data, np.array([0, 1, 1, 2, 4]), ids)
    assert ids.tolist() == [7, hashed(""), hashed("x"), 2**64 - 9]
