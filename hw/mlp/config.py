"""Sizes of an MLP core."""

from dataclasses import dataclass

from hw.config import Config, choice, family, grouped, whole
from hw.isa.mlp import Geometry


@dataclass(frozen=True, kw_only=True)
class MlpConfig(Config, Geometry):
    """One MLP core; see hw.mlp.core. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    units: int = choice(2, 4, about="compute units")
    rows: int = choice(2, 4, 8, about="rows of a unit's array; it has twice as many columns")
    width: int = choice(1, 2, 4, about="terms that a cell takes a beat")
    words: int = choice(8, 16, about="FP32 words of a beat of the ports")
    lut_products: int = whole(0, 4, "multipliers made of LUTs in each cell of a row's first column")
    row_lines: int = whole(64, 4096, "lines of the rows' memory", power_of_two=True)
    weight_lines: int = whole(64, 4096, "lines of a unit's part of the weights' memory", power_of_two=True)
    addend_lines: int = whole(32, 4096, "lines of the addends' memory", power_of_two=True)
    reads_in_flight: int = whole(2, 256, "bursts that a read port has outstanding", power_of_two=True)
    writes_in_flight: int = whole(2, 256, "bursts that wait for their write response", power_of_two=True)
    program_beats: int = whole(4, 512, "beats of instructions fetched ahead", power_of_two=True)
    load_beats: int = whole(16, 1024, "beats of rows and of weights fetched ahead", power_of_two=True)
    output_beats: int = whole(16, 1024, "beats of results that wait for the port", power_of_two=True)
    staged_tiles: int = whole(4, 128, "tiles of results on their way to memory", power_of_two=True)
    grouped: bool = grouped()
    family: str = family()

    def check(self) -> None:
        if self.columns > self.words:
            raise ValueError(f"rows must be at most {self.words // 2}, half the words of a beat, not {self.rows}")
        if self.columns * self.width < self.words:
            raise ValueError(f"width must be at least {self.words // self.columns}, so that a line of weights is a "
                             f"beat or more, not {self.width}")
        if self.grouped and (self.width != 4 or self.lut_products):
            raise ValueError(f"grouped must be false for width = {self.width} and lut_products = {self.lut_products}: "
                             f"groups have four products, all in DSP slices")
        if self.lut_products > (self.width if self.width > 1 else 0):
            raise ValueError(f"lut_products must be at most {self.width if self.width > 1 else 0} at width "
                             f"{self.width}, not {self.lut_products}")
        if self.units < self.groups_per_beat:
            raise ValueError(f"units must be at least {self.groups_per_beat}, the column groups of a beat, "
                             f"not {self.units}")

    @property
    def macs(self) -> int:
        return self.units * self.rows * self.columns * self.width

    @property
    def beat_bytes(self) -> int:
        return 4 * self.words

    @property
    def terms_log2(self) -> int:
        """log2 of the terms of the longest dot product: 2**12 steps."""
        return 12 + (self.width - 1).bit_length()
