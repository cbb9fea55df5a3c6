"""Drives the serial TT unit: fills its memories and knows what its vectors look like."""

import numpy as np

from gen.verilog import describe
from golden import fp32
from golden.tt import serial
from hw.tt.descriptor import descriptor_parts
from hw.tt.serial import Splitting, Target, shape_layout
from verif.bench.pack import Layout

__all__ = ["cores", "expected", "load", "place", "word"]


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
    """Images of tables (lists of cores), one behind the other. Raises ValueError if they do not fit."""
    images, a_base, c_base = [], 0, 0
    for number, table in enumerate(tables):
        image = serial.image(table, a_base=a_base, c_base=c_base, height=config.rows, width=config.columns)
        a_base, c_base = a_base + len(image.a), c_base + len(image.c)
        for name, used, there in (("a_lines", a_base, config.a_lines), ("c_lines", c_base, config.c_lines)):
            if used > there:
                raise ValueError(f"table {number} ends at line {used} of {there} ({name})")
        images.append(image)
    return images


def load(images, config) -> list[dict]:
    """The beats of the load stream that write tables 0, 1, .. with their descriptors."""
    split, where = descriptor_parts(Splitting(config))[:2]
    parts = [Layout(describe(layout)) for layout in (split, where, shape_layout(config))]
    beats = []
    for number, image in enumerate(images):
        for part, values in enumerate((image.split, image.where, image.shape)):
            beats.append({"target": Target.TABLE.value, "part": part, "address": number,
                          "data": parts[part].pack(values)})
        for target, base, lines in ((Target.A, image.a_base, image.a), (Target.C, image.c_base, image.c)):
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
