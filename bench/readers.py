"""Click logs read in a stream, beside polars reading the same file whole. One thread each."""

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.framework import Row, at_least, bench, figure
from gen.data.logs import open_log

LINES = 400_000
TURNS = 3
TARGET = 1e6        # lines of Criteo's a second

POLARS = """
import sys, time, polars
best = 9e9
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    rows = len(polars.read_csv(sys.argv[1], separator="\\t", has_header=False, infer_schema_length=10000))
    best = min(best, time.process_time() - start)
print(rows, best)
"""


def written(path: Path, lines: int) -> Path:
    """Lines as Criteo's: label, 13 whole numbers, 26 ids, some of them empty."""
    random = np.random.default_rng(1)
    with path.open("w", encoding="ascii") as file:
        for _ in range(lines // 40_000):
            ids, numbers = random.integers(0, 1 << 32, (40_000, 26)), random.geometric(0.02, (40_000, 13))
            ids[random.random(ids.shape) < 0.03], numbers[random.random(numbers.shape) < 0.2] = -1, -1
            for label, some, others in zip(random.integers(0, 2, 40_000), numbers.tolist(), ids.tolist()):
                cells = [str(number) if number >= 0 else "" for number in some]
                cells += [f"{word:08x}" if word >= 0 else "" for word in others]
                file.write(f"{label}\t" + "\t".join(cells) + "\n")
    return path


def seconds(path: Path) -> float:
    """Of the processor, to read the log: the least of several."""
    best = float("inf")
    for _ in range(TURNS + 1):      # the first compiles
        start = time.process_time()
        read = sum(chunk.samples for chunk in open_log(path).chunks())
        best = min(best, time.process_time() - start)
        if read != LINES:
            raise AssertionError(f"{path} has {LINES} lines, {read} were read")
    return best


@bench("readers")
def rows() -> Iterator[Row]:
    """Lines of Criteo's log per second, streamed, compressed or not, on one core; polars' on the same file."""
    with TemporaryDirectory() as folder:
        path = written(Path(folder) / "train.txt", LINES)
        packed = path.with_name("train.txt.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 6))
        plain = LINES / seconds(path)
        yield at_least("readers.criteo", "Criteo TSV in a stream", round(plain), "lines/s", TARGET)
        yield figure("readers.criteo_bytes", "the same", round(plain * path.stat().st_size / LINES / 1e6), "MB/s")
        yield figure("readers.criteo_gz", "packed by gzip", round(LINES / seconds(packed)), "lines/s")
        run = subprocess.run([sys.executable, "-c", POLARS, path, str(TURNS)], capture_output=True, text=True,
                             check=True, env={**os.environ, "POLARS_MAX_THREADS": "1"})
        read, spent = run.stdout.split()
        if int(read) != LINES:
            raise AssertionError(f"polars read {read} of {LINES} lines")
        yield figure("readers.polars", "polars.read_csv, into memory", round(LINES / float(spent)), "lines/s")
        yield at_least("readers.ratio", "the reader beside polars", round(plain * float(spent) / LINES, 2), "times", 1)
