"""SCRec's own unit, the baseline: cycles of a row for every D and R, measured on its RTL."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from bench.framework import Row, at_least, bench, figure
from gen.compiler import serial as compiler
from gen.data.shapes import column_modes
from gen.rtl.config import load
from gen.rtl.play import Phase, build
from golden.fp import fp32
from golden.tt import serial as golden
from hw.tt.serial import SerialTTUnit

DIMS = (16, 32, 64, 128, 256, 512)
RANKS = (4, 8, 16, 32)
# Enough for a steady difference of ends; every row takes the same number of cycles.
LOOKUPS = 6


def _looked_up(config: Any, tables: Sequence[Sequence[np.ndarray]], ids: Sequence[int],
               indices: np.ndarray) -> tuple[list[np.ndarray], list[Any], np.ndarray]:
    """Rows indices[n] of tables ids[n], n ascending, by the RTL; each one's plan; and the cycle in which its last beat
    came, from the one in which the first lookup went in. Raises ValueError where a table does not fit."""
    images = compiler.place(tables, config)
    player = build(SerialTTUnit(config), "tt_serial_paper", opt="-O0")
    plans = [images[table].plan for table in ids]
    ends = np.cumsum([plan.beats for plan in plans])
    lookups = [{"table": int(table), "index": int(index)} for table, index in zip(ids, indices, strict=True)]
    done = player.play([Phase({"i_load": player.packed("i_load", compiler.load(images, config))}),
                        Phase({"i_lookups": player.packed("i_lookups", lookups)}, until={"o_vectors": int(ends[-1])})],
                       cycles=1_000_000 + 2 * sum(plan.cycles for plan in plans))
    beats, width = done.beats["o_vectors"], 4 * config.columns
    vectors = [part.reshape(-1).view("<f4")[:plan.dim] for part, plan in zip(
        np.split(np.ascontiguousarray(beats[:, :width]), ends[:-1]), plans, strict=True)]
    return vectors, plans, done.at["o_vectors"][ends - 1] - done.taken["i_lookups"][0]


def cycles_per_row(shapes: Iterable[tuple[tuple[int, ...], int]]) -> dict[tuple[tuple[int, ...], int], int]:
    """Cycles of a row in steady state for each (J, R), from the RTL; J powers of two, all inner ranks R.

    Tables of as many shapes as fit are resident at once; each vector is compared with the golden model.
    Raises ValueError for a shape that the unit cannot hold, AssertionError where RTL and model differ.
    """
    config = load("screc").cores["serial"]
    random = np.random.default_rng(17)
    waiting = list(dict.fromkeys(shapes))
    found: dict[tuple[tuple[int, ...], int], int] = {}
    while waiting:
        tables: list[list[np.ndarray]] = []
        chosen: list[tuple[tuple[int, ...], int]] = []
        for columns, rank in waiting:
            modes = (3,) + (2,) * (len(columns) - 1)
            ranks = (1, *[rank] * (len(columns) - 1), 1)
            cores = [random.standard_normal(shape).astype(np.float32)
                     for shape in zip(ranks[:-1], modes, columns, ranks[1:], strict=True)]
            try:
                compiler.place([*tables, cores], config)
            except ValueError:
                if not tables:
                    raise
                break
            tables.append(cores)
            chosen.append((columns, rank))
            if len(tables) == config.tables:
                break
        waiting = waiting[len(tables):]
        found |= _measure(config, tables, chosen)
    return found


def _measure(config: Any, tables: Sequence[Sequence[np.ndarray]], shapes: Sequence[Any]) -> dict:
    ids = np.repeat(np.arange(len(tables)), LOOKUPS)
    rows = np.array([prod(core.shape[1] for core in cores) for cores in tables])
    indices = np.random.default_rng(18).integers(0, rows[ids])
    vectors, plans, last_at = _looked_up(config, tables, ids.tolist(), indices)
    wanted = golden.finish(plans, index_bits=config.index_bits, in_flight=config.in_flight)
    assert last_at.tolist() == wanted, "the serial unit's RTL and its cycle model differ"
    found = {}
    for t, shape in enumerate(shapes):
        mine = np.flatnonzero(ids == t)
        for n, row in zip(mine, golden.rows(tables[t], indices[mine]), strict=True):
            assert (fp32.bits(vectors[n]) == fp32.bits(row)).all(), f"vector {n} of {shape} is wrong"
        found[shape] = int(np.diff(last_at[mine])[-1])
    return found


@bench("serial")
def rows() -> Iterable[Row]:
    """Cycles of a row on SCRec's own array, tile after tile, from its RTL."""
    shapes = {(dim, rank): (column_modes(dim), rank) for dim in DIMS for rank in RANKS}
    measured = cycles_per_row(shapes.values())
    for (dim, rank), (columns, _) in shapes.items():
        plan = golden.plan((1,) * 3, columns, (1, rank, rank, 1))
        cycles = measured[columns, rank]
        yield figure(f"tt.serial_cycles.d{dim}r{rank}",
                     f"serial unit, D {dim} as {columns}, rank {rank}: a row "
                     f"({plan.ideal_cycles} if cells and memories answered at once)", cycles, "cycles")
        yield figure(f"tt.serial_util.d{dim}r{rank}", "MAC slots it uses",
                     round(100 * plan.macs / (cycles * plan.height * plan.width), 2), "%")
    equal = sum(measured[shape] == golden.plan((1,) * 3, shape[0], (1, shape[1], shape[1], 1)).cycles
                for shape in shapes.values())
    yield at_least("tt.serial_model", "shapes for which the cycle model equals the RTL", equal, "shapes",
                   len(shapes))
