"""Rows in narrow formats on the card as it is: rows per second beside float32, and what a format costs in accuracy."""

from collections.abc import Iterator

import numpy as np

from bench.card import bound
from bench.emb import BAG, DEVICE, LINE, PRESET, TABLE_BYTES, Rig, rows_of
from bench.framework import Row, at_least, bench, figure
from fpga.api.embedding import DRAM, Table
from gen.compiler.tables import stripes
from gen.model.device import Device
from gen.model.recommender import ROW_FORMATS
from gen.model.row_formats import store
from gen.rtl import config
from golden.emb import row_decoder

DIMS = (64, 128, 256)
SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "int4": "int4"}
MEASURED = ("float32", "float16", "int8", "int4")       # bfloat16 is float16 to memory
TARGETS = {"float16": 1.9, "int8": 2.5, "int4": 2.5}
SAMPLE = 4096


@bench("narrow")
def narrow() -> Iterator[Row]:
    """Random rows of DRAM in bags of 32, all different, in each format."""
    device, core = Device.load(DEVICE), config.load(PRESET).cores["emb"]
    for dim in DIMS:
        some = np.random.default_rng(dim).standard_normal((SAMPLE, dim), dtype=np.float32)
        first = 0.0
        for form in MEASURED:
            beats = row_decoder.beats(dim // core.words, ROW_FORMATS.index(form))
            values = np.resize(some, (TABLE_BYTES // (LINE * beats), dim))
            rig = Rig("ddr4", tables=[Table.place("rows", values, DRAM, row_format=form)])
            indices = rig.distinct("rows", rows_of(dim))
            rate = len(indices) // 2 / rig.steady("rows", indices, BAG) * device.kernel_mhz
            rig.bags.close()
            first = first or rate
            lies = stripes(beats, core.stripe_beats, row_in_page=device.row_in_page)
            memory = bound(device, LINE * beats, LINE * lies.piece_beats) / 1e6
            limit = min(memory, device.kernel_mhz * core.words / dim)
            name, what = f"d{dim}.{SHORT[form]}", f"{form} rows of D = {dim}, {beats} lines"
            yield figure(f"narrow.rate.{name}", f"{what}: at {device.kernel_mhz} MHz", round(rate, 1), "M rows/s")
            yield figure(f"narrow.share.{name}", f"{what}: of what memory ({memory:.1f} M rows/s) and {core.words} "
                         "lanes of the pooling unit leave", round(100 * rate / limit, 1), "%")
            if form in TARGETS:
                yield at_least(f"narrow.rows.{name}", f"{what}: rows per second against float32",
                               round(rate / first, 2), "times", TARGETS[form])


@bench("narrow_error")
def error() -> Iterator[Row]:
    """Normal rows of D = 64 in each format against themselves in float32."""
    rows = np.random.default_rng(1).standard_normal((SAMPLE, 64), dtype=np.float32)
    for form in ROW_FORMATS[1:]:
        got = row_decoder.decode(store(rows, form, 16), ROW_FORMATS.index(form), 64, 16)
        far = np.sqrt(((got.astype(np.float64) - rows) ** 2).sum() / (rows.astype(np.float64) ** 2).sum())
        yield figure(f"narrow.error.{SHORT[form]}", f"{form}: root mean square error of normal rows of D = 64 over "
                     "their size", float(f"{100 * far:.3g}"), "%")
