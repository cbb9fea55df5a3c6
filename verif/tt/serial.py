"""Drives the serial TT unit: fills its memories, knows what its vectors look like, runs sessions."""

import json
import os
from math import prod
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from gen.rtl.verilog import describe
from golden.fp import fp32
from golden.tt import serial
from golden.tt.rows import shape_of
from hw.tt.descriptor import STRIDE_BITS, descriptor_parts
from hw.tt.serial_config import SerialConfig, Splitting, Target, shape_layout
from verif.bench import reset, start
from verif.bench.pack import Layout
from verif.bench.stream import Sink, Source

__all__ = ["cores", "expected", "load", "place", "session", "word"]


def word(words) -> int:
    """An array of uint32, the first word lowest, as the number that a port takes."""
    return int.from_bytes(np.ascontiguousarray(words, dtype="<u4").tobytes(), "little")


def cores(random, modes, columns, ranks, draw=None):
    """Random cores of a shape; `draw(size)` gives their bit patterns (default: normal numbers)."""
    shapes = zip(ranks[:-1], modes, columns, ranks[1:], strict=True)
    if draw is None:
        return [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [fp32.value(draw(shape)) for shape in shapes]


def place(tables, config):
    """Images of tables (lists of cores), one behind the other. Raises ValueError for a table that does not
    fit `config`, naming what is too small for it.
    """
    images, a_base, c_base = [], 0, 0
    for number, table in enumerate(tables):
        modes, columns, _ = shape_of(table)
        rows, dim = prod(modes), prod(columns)
        if dim > config.dim_max:
            raise ValueError(f"table {number}: D = {dim} is above dim_max = {config.dim_max}")
        if rows > 1 << config.index_bits:
            raise ValueError(f"table {number} has {rows} rows, index_bits = {config.index_bits} ends at "
                             f"{1 << config.index_bits}")
        for k, mode in enumerate(modes, start=1):
            if mode > 1 << config.mode_bits:
                raise ValueError(f"table {number}: I{k} is {mode}, mode_bits = {config.mode_bits} ends at "
                                 f"{1 << config.mode_bits}")
        image = serial.image(table, a_base=a_base, c_base=c_base, height=config.rows, width=config.columns)
        a_base, c_base = a_base + len(image.a), c_base + len(image.c)
        for name, used, there in (("a_lines", a_base, config.a_lines), ("c_lines", c_base, config.c_lines)):
            if used > there:
                raise ValueError(f"table {number} ends at line {used} of {there} ({name})")
        for name in ("first", "second", "middle", "last"):
            stride = image.where.get(f"{name}_stride", 0)
            if stride >> STRIDE_BITS:
                raise ValueError(f"table {number}: a slice of the {name} core takes {stride} lines, "
                                 f"the most is {(1 << STRIDE_BITS) - 1}")
        for step in image.plan.products[:-1]:
            used = -(-step.m * step.n // config.columns)
            if used > config.b_lines:
                raise ValueError(f"table {number}: an intermediate takes {used} lines of {config.b_lines} "
                                 f"(b_lines)")
        images.append(image)
    return images


def load(images, config) -> list[dict]:
    """The beats of the load stream that write tables 0, 1, .. with their descriptors."""
    sizes: Any = Splitting(config)
    targets: Any = Target
    split, where = descriptor_parts(sizes)[:2]
    parts = [Layout(describe(layout)) for layout in (split, where, shape_layout(config))]
    beats = []
    for number, image in enumerate(images):
        for part, values in enumerate((image.split, image.where, image.shape)):
            beats.append({"target": targets.TABLE.value, "part": part, "address": number,
                          "data": parts[part].pack(values)})
        for target, base, lines in ((targets.A, image.a_base, image.a), (targets.C, image.c_base, image.c)):
            beats += [{"target": target.value, "address": base + at, "data": word(line)}
                      for at, line in enumerate(lines)]
    return beats


def expected(image, table, values, outside) -> list[dict]:
    """The beats of one vector."""
    width = image.plan.width
    words = np.zeros(image.plan.beats * width, np.uint32)
    words[:len(values)] = fp32.bits(values)
    return [{"data": words[at:at + width].tolist(), "last": int(at + width >= len(words)),
             "outside": int(outside), "table": table} for at in range(0, len(words), width)]


@cocotb.test(skip="HOTRAIL_SERIAL_SESSION" not in os.environ)
async def session(dut):
    """Runs the lookups of a file through the unit and writes down the vectors and their cycles."""
    path = Path(os.environ["HOTRAIL_SERIAL_SESSION"])
    with np.load(path, allow_pickle=False) as asked:
        about = json.loads(str(asked["about"]))
        tables = [[asked[f"core_{t}_{k}"] for k in range(count)] for t, count in enumerate(about["cores"])]
        ids, indices = asked["table"].tolist(), asked["index"].tolist()
    config = SerialConfig(**about["config"])
    images = place(tables, config)
    start(dut)
    source, sink = Source(dut, "i_lookups"), Sink(dut, "o_vectors", raw=True)
    await reset(dut)
    loader = Source(dut, "i_load")
    loader.put(*load(images, config))
    await loader.drained()
    loader.stop()

    source.put(*({"table": t, "index": i} for t, i in zip(ids, indices, strict=True)))
    beats = [images[t].plan.beats for t in ids]
    await sink.wait(sum(beats), cycles=1000 + 2 * sum(images[t].plan.cycles for t in ids))
    ends = np.cumsum(beats) - 1
    size = config.columns * 4
    words = b"".join((beat & (1 << 8 * size) - 1).to_bytes(size, "little") for beat in sink.beats)
    lines = np.frombuffer(words, "<u4").reshape(-1, config.columns)
    vectors = [lines[end - count + 1:end + 1].ravel()[:images[t].plan.dim]
               for t, count, end in zip(ids, beats, ends, strict=True)]
    outside = [sink.beats[end] >> 8 * size + 1 & 1 for end in ends]
    at = np.array(sink.at)[ends] - source.taken_at[0]
    np.savez(path.with_suffix(".out.npz"), words=np.concatenate(vectors), last_at=at, outside=outside,
             sizes=[len(v) for v in vectors])
