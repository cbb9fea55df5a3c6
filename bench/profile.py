"""The profile beside polars: ids of 26 tables counted out of one file, and a thousand million of them in a stream.

The files hold samples drawn from the Criteo calibration, ids as 32-bit hashes: a TSV as Criteo's with 13 integers,
some fields empty, and the ids alone as Parquet. Either way of counting has a process of its own, warmed up on a file of
few samples; times are the best of three, turn by turn.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import CALIBRATION, needed
from bench.framework import Row, at_least, bench, figure
from gen.data.logs import open_log
from gen.data.logs.criteo import ClickLog, drawn
from gen.data.profiling import profile, together
from gen.data.profiling.criteo import criteo
from golden.hotline.randomizer import permute

SAMPLES, FEW = 1 << 20, 2000
TURNS = 3
WHOLE = 45_840_617
JUDGED = 1 << 18
EMPTY = 0.03                # of the fields
POPULAR_BYTES = 256 << 20   # Hotline's memory for hot rows of 64 bytes, with which 75 % of Criteo's samples are popular
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def written(folder: Path, log: ClickLog, samples: int) -> dict[str, Path]:
    """A TSV and a Parquet file of the same ids; nothing where a field is empty, 0 in Parquet."""
    import polars

    random = np.random.default_rng(5)
    paths = {kind: folder / f"{samples}.{kind}" for kind in ("tsv", "parquet")}
    columns: list[np.ndarray] = []
    with paths["tsv"].open("wb") as file:
        for chunk in drawn(log, samples).chunks():
            ids = np.stack([permute(array.astype(np.int64) + (number << 26), 32) * 0x9E3779B1 & 0xFFFFFFFF
                            for number, array in enumerate(chunk.ids.values())], axis=1)
            ids[random.random(ids.shape) < EMPTY] = 0
            columns.append(ids)
            file.write(_lines(ids, random))
    whole = np.concatenate(columns)
    polars.DataFrame({name: whole[:, number].astype(np.uint32) for number, name in enumerate(
        table.name for table in log.tables)}).write_parquet(paths["parquet"], row_group_size=1 << 17)
    return paths


def _lines(ids: np.ndarray, random: np.random.Generator) -> bytes:
    """Label, 13 integers, 26 ids of 8 hexadecimal digits; 0 is left empty."""
    samples = len(ids)
    numbers = np.floor(random.pareto(0.6, (samples, 13))).clip(0, 9999).astype(np.int64)
    digits = numbers[:, :, None] // 10 ** np.arange(3, -1, -1)
    letters = HEX[ids[:, :, None] >> np.arange(28, -1, -4) & 15]
    # (characters, which of them there are), side by side.
    parts = [(np.full((samples, 1), ord("1")), np.ones((samples, 1), bool))]
    for field, there in ((digits % 10 + ord("0"), digits > 0), (letters, np.repeat(ids[:, :, None] > 0, 8, 2))):
        tabs = np.full((*field.shape[:2], 1), ord("\t"))
        parts.append((np.concatenate([tabs, field], 2).reshape(samples, -1),
                      np.concatenate([tabs > 0, there], 2).reshape(samples, -1)))
    parts.append((np.full((samples, 1), ord("\n")), np.ones((samples, 1), bool)))
    text, there = (np.concatenate(each, axis=1) for each in zip(*parts))
    return text[there].astype(np.uint8).tobytes()


def ours(path: Path) -> int:
    return sum(table.heat.touched for table in profile(open_log(path)).tables.values())


def polars_whole(path: Path) -> int:
    """Group-by of every column of the file in memory."""
    import polars

    if path.suffix == ".parquet":
        frame = polars.read_parquet(path)
    else:
        frame = polars.read_csv(path, separator="\t", has_header=False, columns=list(range(14, 40)),
                                schema_overrides=[polars.String] * 26)
    return sum(frame.group_by(name).len().height for name in frame.columns)


def polars_stream(path: Path) -> int:
    """The same without the whole file in memory."""
    import polars

    if path.suffix == ".parquet":
        frame = polars.scan_parquet(path)
        names = frame.collect_schema().names()
    else:
        names = [f"column_{number}" for number in range(1, 41)]
        frame = polars.scan_csv(path, separator="\t", has_header=False, schema=dict.fromkeys(names, polars.String))
        names = names[14:]
    found = polars.collect_all([frame.group_by(name).len() for name in names], engine="streaming")
    return sum(each.height for each in found)


def _serve(ends, work: Callable[[Path], int], few: Path, path: Path) -> None:
    """Does the work when it is asked to; tells (result, seconds, MB at the most)."""
    work(few)
    ends.send(None)
    while ends.recv():
        start = time.perf_counter()
        found = work(path)
        seconds = time.perf_counter() - start
        ends.send((found, seconds, peak_mb()))


def peak_mb() -> float:
    """Memory of this process at the most; not what its parent had, as rusage says."""
    line = next(line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def raced(works: list[Callable[[Path], int]], few: Path, path: Path) -> list[tuple[int, float, float]]:
    """(result, fewest seconds, most MB) of each, turn by turn, each in its own process."""
    spawn, ends, others = multiprocessing.get_context("spawn"), [], []
    for work in works:
        mine, other = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(other, work, few, path), daemon=True)
        process.start()
        other.close()
        mine.recv()
        ends.append(mine)
        others.append(process)
    found: list[list[tuple[int, float, float]]] = [[] for _ in works]
    for _ in range(TURNS):
        for number, end in enumerate(ends):
            end.send(True)
            found[number].append(end.recv())
    for end, process in zip(ends, others):
        end.send(False)
        process.join()
    return [(each[0][0], min(seconds for _, seconds, _ in each), each[-1][2]) for each in found]


@bench("profile")
def rows() -> Iterator[Row]:
    """A log's ids counted: samples a second and memory, beside polars; the calibrated Criteo log; a billion ids."""
    calibration = needed(CALIBRATION)
    log = ClickLog(calibration, seed=1)
    with TemporaryDirectory() as folder:
        few, files = written(Path(folder), log, FEW), written(Path(folder), log, SAMPLES)
        for kind, what in (("tsv", "Criteo TSV"), ("parquet", "Parquet")):
            mine, *peers = raced([ours, polars_whole, polars_stream], few[kind], files[kind])
            # An empty field is an id of ours and a null of polars: both count it once a column.
            if any(peer[0] != mine[0] for peer in peers):
                raise AssertionError(f"{kind}: {mine[0]} different ids, polars says {[peer[0] for peer in peers]}")
            fastest = min(seconds for _, seconds, _ in peers)
            yield figure(f"profile.{kind}.rate", f"{what}, 26 tables: profile", SAMPLES / mine[1] / 1e6,
                         "million samples/s")
            yield figure(f"profile.{kind}.polars", f"{what}: polars, the faster of two ways", SAMPLES / fastest / 1e6,
                         "million samples/s")
            yield at_least(f"profile.{kind}.ratio", f"{what}: profile over polars", fastest / mine[1], "x", 1)
            yield figure(f"profile.{kind}.memory", f"{what}, {files[kind].stat().st_size >> 20} MB: memory",
                         mine[2], "MB")
            yield figure(f"profile.{kind}.memory.polars", f"{what}: memory of polars, whole and streaming",
                         " and ".join(f"{peer[2]:.0f}" for peer in peers), "MB")
    expected = criteo(calibration)
    yield figure("profile.criteo.rows", "Criteo Kaggle out of its calibration: rows",
                 sum(table.rows for table in expected.tables.values()), "rows")
    one = profile(drawn(log, SAMPLES), sample=0.01)
    yield figure("profile.criteo.sampled", f"1 % of {SAMPLES:,} samples: coverage of the hottest rows off by at most, "
                 "mean of tables", 100 * float(one.extras["sampling_error"].mean()), "% of accesses")
    if os.environ.get("HOTRAIL_REGRESS"):
        yield from billion(log)


def billion(log: ClickLog) -> Iterator[Row]:
    """The whole calibrated log, drawn and counted in a stream."""
    start, cpu = time.perf_counter(), time.process_time()
    found = profile(drawn(log, WHOLE))
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    total = sum(table.heat.total for table in found.tables.values())
    yield figure("profile.billion.ids", "ids drawn and counted in a stream", total, "ids")
    yield figure("profile.billion.rate", f"drawn and counted ({busy:.0f} s of processor time)", total / seconds / 1e6,
                 "million ids/s")
    yield figure("profile.billion.rows", "different rows among them",
                 sum(table.heat.touched for table in found.tables.values()), "rows")
    yield figure("profile.billion.memory", "memory", peak_mb(), "MB")
    found = together(drawn(log, JUDGED), found, row_bytes=dict.fromkeys(found.tables, 64))
    share = float(np.interp(POPULAR_BYTES, found.extras["popular_bytes"], found.extras["popular_share"]))
    yield figure("profile.criteo.popular", f"of {JUDGED:,} samples: popular with 256 MB of rows of 64 bytes",
                 100 * share, "% of samples")
