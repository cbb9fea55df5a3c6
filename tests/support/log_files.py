"""The same small log in files of every format."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gen.data.logs import text
from tests.fuzz.logs import torch_file

NAMES = ("a.csv", "a.tsv", "a.inter", "a.csv.gz", "a.tsv.bz2", "a.inter.zst", "train.txt", "train.txt.gz", "train.csv",
         "train.csv.zst", "a.npz", "a.parquet", "a.pt")
COUNT = 60
RANDOM = np.random.default_rng(6)
USER, ITEM = RANDOM.integers(0, 9, COUNT), RANDOM.integers(0, 40, COUNT)
LABEL = RANDOM.integers(0, 2, COUNT)
OFFSETS = np.concatenate([[0], np.cumsum(RANDOM.integers(0, 4, COUNT))])
TAG = RANDOM.integers(0, 7, OFFSETS[-1])


def table(separator, *columns, head=None):
    lines = [] if head is None else [separator.join(head)]
    return "".join(f"{line}\n" for line in (*lines, *(separator.join(map(str, row)) for row in zip(*columns))))


def criteo():
    counts = [""] * COUNT
    return table("\t", LABEL, *[range(COUNT)] * 13, *(map("{:08x}".format, each) for each in [USER, ITEM] * 2),
                 *[counts] * 22)


def avazu():
    names = (*text.AVAZU_TABLES, "click", "hour")
    columns = {"site_id": map("{:08x}".format, USER), "C14": ITEM, "click": LABEL}
    return table(",", *(columns.get(name, [7] * COUNT) for name in names), head=names)


def written(folder, name):
    """A file of each format with the tables above."""
    path, head = folder / name, ("user_id:token", "item_id:token", "label:float")
    plain = {"a.csv": lambda: table(",", USER, ITEM, LABEL, head=[each.partition(":")[0] for each in head]),
             "a.tsv": lambda: table("\t", USER, ITEM, LABEL, head=head),
             "a.inter": lambda: table("\t", USER, ITEM, LABEL, head=head),
             "train.txt": criteo, "train.csv": avazu}
    packed = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    if path.suffix in packed:
        path.write_bytes(packed[path.suffix](plain[path.stem]().encode()))
    elif name in plain:
        path.write_text(plain[name](), "utf-8")
    elif name == "a.npz":
        np.savez(path, idx_user_id=USER, idx_item_id=ITEM, ind_tag=TAG, off_tag=OFFSETS, label=LABEL)
    elif name == "a.parquet":
        tags = [TAG[begin:end] for begin, end in zip(OFFSETS, OFFSETS[1:])]
        pq.write_table(pa.table({"user_id": USER, "item_id": ITEM, "tag": tags, "label": LABEL}), path)
    else:
        path.write_bytes(torch_file([TAG, OFFSETS, np.diff(OFFSETS)[None]]))
    return path
