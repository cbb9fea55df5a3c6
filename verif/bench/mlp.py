"""Configurations that the MLP core's parts are tried with."""

from dataclasses import asdict
from typing import Any

from hw.mlp.config import MlpConfig

__all__ = ["NARROW", "TINY", "words_of"]

TINY = MlpConfig(
    units=2, rows=2, width=2, words=8, lut_products=0, row_lines=256, weight_lines=512, addend_lines=256,
    reads_in_flight=8, writes_in_flight=8, program_beats=16, load_beats=32, output_beats=32, staged_tiles=8)
# A beat of the array is half a piece, a column group a whole beat.
NARROW = MlpConfig(**{**asdict(TINY), "rows": 4, "width": 1, "row_lines": 64, "weight_lines": 64, "addend_lines": 32})


def words_of(value: Any, count: int) -> list[int]:
    """The 32-bit words of a port's value."""
    number = int(value)
    return [number >> 32 * at & 0xFFFFFFFF for at in range(count)]
