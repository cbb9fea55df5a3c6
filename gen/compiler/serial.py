"""Tables for the serial TT unit: images that fit its memories, and the beats that load them."""

from math import prod
from typing import Any

import numpy as np

from gen.rtl.pack import Layout
from gen.rtl.verilog import describe
from golden.tt import serial
from golden.tt.rows import shape_of
from hw.tt.descriptor import STRIDE_BITS, descriptor_parts
from hw.tt.serial_config import Splitting, Target, shape_layout


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
            beats += [{"target": target.value, "address": base + at, "data": _word(line)}
                      for at, line in enumerate(lines)]
    return beats


def _word(words) -> int:
    """An array of uint32, the first word lowest, as the number that a port takes."""
    return int.from_bytes(np.ascontiguousarray(words, dtype="<u4").tobytes(), "little")
