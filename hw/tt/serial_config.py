"""Sizes of the serial TT unit."""

from dataclasses import dataclass

from hw.config import Config, whole

__all__ = ["SerialConfig"]


@dataclass(frozen=True, kw_only=True)
class SerialConfig(Config):
    """One serial TT unit; see hw.tt.serial. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    rows: int = whole(2, 64, "rows of processing elements", power_of_two=True)
    columns: int = whole(2, 64, "columns of processing elements, and words of a beat", power_of_two=True)
    a_lines: int = whole(2, 1 << 16, "lines of `rows` words for first cores", power_of_two=True)
    b_lines: int = whole(2, 1 << 12, "lines of `columns` words for one intermediate", power_of_two=True)
    c_lines: int = whole(2, 1 << 16, "lines of `columns` words for the other cores", power_of_two=True)
    tables: int = whole(2, 1 << 12, "tables that are resident at once", power_of_two=True)
    index_bits: int = whole(4, 30, "bits of a row number")
    mode_bits: int = whole(2, 16, "bits of a mode size I_k")
    rank_max: int = whole(1, 64, "largest rank of a table")
    dim_max: int = whole(4, 4096, "largest embedding dimension of a table", power_of_two=True)
    in_flight: int = whole(2, 64, "lookups that are split ahead of their turn", power_of_two=True)

    def check(self) -> None:
        if self.rows > self.columns:
            raise ValueError(f"rows must be at most columns = {self.columns}, not {self.rows}: a beat of the "
                             f"intermediate takes one word from each of as many banks as there are rows")
        if self.rank_max > self.columns:
            raise ValueError(f"rank_max must be at most columns = {self.columns}, not {self.rank_max}")
        if self.dim_max < self.columns:
            raise ValueError(f"dim_max must be at least columns = {self.columns}, not {self.dim_max}")
        if self.index_bits < self.mode_bits:
            raise ValueError(f"index_bits must be at least mode_bits = {self.mode_bits}, "
                             f"not {self.index_bits}")

    @property
    def terms_log2(self) -> int:
        """Growth bits of the accumulators."""
        return (self.rank_max - 1).bit_length()

    @property
    def a_bits(self) -> int:
        return (self.a_lines - 1).bit_length()

    @property
    def c_bits(self) -> int:
        return (self.c_lines - 1).bit_length()

    @property
    def table_bits(self) -> int:
        return (self.tables - 1).bit_length()
