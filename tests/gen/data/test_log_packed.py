"""Logs in archives and pipes: read as the file in them is, named as who gave them named them."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gen.data.logs import Trace, open_log, opening

ROOT = Path(__file__).parents[3]
TEXT = "user_id,item_id,label\n" + "".join(f"{k % 7},{k % 5},{k % 2}\n" for k in range(500))


def zipped(*names):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, TEXT)
    return held.getvalue()


def arrays():
    held = io.BytesIO()
    np.savez(held, idx_user_id=np.arange(500) % 7, idx_item_id=np.arange(500) % 5)
    return held.getvalue()


def tarred():
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT.encode()))
    return held.getvalue()


def counts(log):
    trace = Trace.of(log)
    return {name: np.bincount(trace.table(name)).tolist() for name in ("user_id", "item_id")}


PLAIN = {"user_id": [72, 72, 72, 71, 71, 71, 71], "item_id": [100] * 5}


@pytest.mark.parametrize("name", ["a.csv.zip", "a.zip", "A.ZIP"])
def test_a_zip_archive_of_one_file(name, tmp_path):
    (tmp_path / name).write_bytes(zipped("folder/", "folder/a.csv", "__MACOSX/folder/._a.csv"))
    log = open_log(tmp_path / name)
    assert counts(log) == PLAIN
    reports = []
    counts(open_log(tmp_path / name, progress=lambda done, of: reports.append((done, of))))
    assert reports[-1] == ((tmp_path / name).stat().st_size,) * 2


@pytest.mark.parametrize(("content", "message"), [
    (zipped("a.csv", "b.csv"), "holds 2 files, a.csv, b.csv; a log is one of them: `unzip -p {} NAME` writes it"),
    (zipped(), "holds 0 files"),
    (zipped("a.csv")[:150], "{} cannot be read: File is not a zip file"),
    (zipped("a.csv").replace(zipped("a.csv")[80:90], b"x" * 10, 1), "{} is no whole zip file: "),
])
def test_wrong_archives(content, message, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        counts(open_log(path))
    assert message.format(path) in str(caught.value)


def test_an_archive_by_another_name(tmp_path):
    for name, content, message in (
            ("a.csv", zipped("a.csv"), "is a zip archive, not text in UTF-8; its name must end in .zip"),
            ("a.tar", tarred(), "is a tar archive; `tar -xOf"),
            ("a.tar.gz", gzip.compress(tarred()), "is a tar archive; `tar -xOf")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            open_log(tmp_path / name)


@pytest.mark.parametrize("content", [
    TEXT.encode(), gzip.compress(TEXT.encode()), bz2.compress(TEXT.encode()), lzma.compress(TEXT.encode()),
    zipped("a.csv"), arrays()], ids=["plain", "gzip", "bzip2", "xz", "zip", "npz"])
def test_a_pipe_holds_what_its_first_bytes_say(content, tmp_path):
    assert counts(open_log(through(tmp_path / "log", content))) == PLAIN


@pytest.mark.parametrize(("content", "message"), [
    (gzip.compress(TEXT.encode()), "is no whole gzip file: "),
    (bz2.compress(TEXT.encode()), "is no whole bzip2 file: "),
    (lzma.compress(TEXT.encode()), "is no whole xz file: "), (zipped("a.csv"), "cannot be read as a zip archive: "),
    (arrays(), "cannot be read as a zip archive: ")], ids=["gzip", "bzip2", "xz", "zip", "npz"])
def test_a_pipe_whose_writer_dies_is_a_sentence(content, message, tmp_path):
    for end in (len(content) // 2, 6):
        with pytest.raises(ValueError, match="is empty|" + message):
            counts(open_log(through(tmp_path / f"log {end}", content[:end])))


def through(pipe, content):
    """A pipe into which a thread writes."""
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(content,)).start()
    return pipe


def test_pipes_without_a_sample(tmp_path):
    for name, content in (("nothing", b""), ("packed", gzip.compress(b"")), ("lines", b"\n\n")):
        with pytest.raises(ValueError, match=f"{name}(.gz)? is empty$"):
            open_log(through(tmp_path / name, content))


def test_the_standard_input_is_read_once_and_must_be_there(monkeypatch):
    with pytest.raises(ValueError, match="^- is named twice, and the standard input can be read once$"):
        open_log(["-", "a.csv", "-"])
    monkeypatch.setattr(sys, "stdin", None)
    opening._standard_input.cache_clear()
    with pytest.raises(ValueError, match="^- is the standard input, which is closed"):
        open_log("-")


@pytest.mark.turns(1, of="processes")
def test_the_standard_input_is_named_as_such(tmp_path):
    """Not by its copy."""
    done = subprocess.run([sys.executable, "-m", "hotrail", "profile", "-", "--out", tmp_path / "out"], cwd=ROOT,
                          input=b"a,b\n1,2\n", capture_output=True)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "Error: standard input: no field has an id's name, as user_id, so name the fields that are indices (--table); "
        "there are a, b; without a header line --fields names them\n")
