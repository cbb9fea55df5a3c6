"""MovieLens-100K, a real log under a fixed version, in order of time.

RecBole's wheel carries it among its example data. RecBole is never installed or imported (it asks for torch): its
wheel is fetched by pip once (2 MB) and read as an archive; what is taken from it is checked against known digests.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from gen.base.tools import build_folder
from gen.data.logs import lines, text
from gen.data.logs.arrays import of_arrays
from gen.data.logs.bounds import readable
from gen.data.logs.dialect import dialect
from gen.data.logs.log import Pieces
from gen.data.logs.reading import Form
from gen.data.logs.trace import Trace

NAME = "MovieLens-100K"
WHEEL = "recbole==1.2.1"
FOLDER = "recbole/dataset_example/ml-100k/"
LOG = "ml-100k.inter"
SHA256 = {LOG: "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"}


def movielens(tables: Iterable[str] | None = None, *, cache: str | Path | None = None) -> Pieces:
    """The log: tables user_id (943 rows) and item_id (1,682), whose ids are numbered, values rating and timestamp.

    Parameters  tables: those wanted; cache: folder for the wheel, by default data/ of the build folder
    Raises      ValueError: it cannot be fetched, has another digest, lacks a table
    """
    trace = _trace(cache)
    # Stable: samples of the same second keep the order of the file.
    order = np.argsort(trace.values["timestamp"], kind="stable")
    found = of_arrays({name: trace.table(name)[order] for name in tables or trace.indices},
                      values={name: value[order] for name, value in trace.values.items()}, source=NAME)
    unread = tuple(name for name in trace.indices if name not in found.tables)
    form = Form("text with a header line, put in the order of timestamp", dict.fromkeys(found.tables, "numbered"),
                dict.fromkeys(unread, "not asked for"))
    return Pieces(NAME, [replace(piece, unread=unread, form=form) for piece in found.pieces])


def _trace(cache: str | Path | None) -> Trace:
    """In the order of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LOG
        path.write_bytes(_member(LOG, cache))
        pieces = lines.pieces(path, text.with_header(path, dialect(path)), broken=0)
        return Trace.of(Pieces(NAME, pieces), numbered=True)


def _member(name: str, cache: str | Path | None) -> bytes:
    folder = build_folder() / "data" if cache is None else Path(cache)
    path = folder / f"{WHEEL.replace('==', '-')}-py3-none-any.whl"
    if not path.exists():
        _fetch(path)
    with readable(path), zipfile.ZipFile(path) as wheel:
        data = wheel.read(FOLDER + name)
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256[name]:
        raise ValueError(f"{name} in {path} has SHA-256 {digest}, not {SHA256[name]}")
    return data


def _fetch(wheel: Path) -> None:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place when it is whole: two processes may want it at once.
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--only-binary=:all:", "--dest", folder, WHEEL]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode or not (Path(folder) / wheel.name).exists():
            reason = (run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1]
            raise ValueError(f"{NAME} could not be fetched: pip download {WHEEL} said: {reason}; name another log, "
                             "`hotrail example` writes one")
        (Path(folder) / wheel.name).replace(wheel)
