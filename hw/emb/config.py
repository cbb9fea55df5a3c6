"""Sizes of an EMB core."""

from dataclasses import dataclass

from hw.config import Config, part, whole
from hw.emb.row_requests import check_stripe
from hw.tt.config import TTConfig


@dataclass(frozen=True, kw_only=True)
class EmbConfig(Config):
    """One EMB core; see hw.emb.core. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    tt: TTConfig = part("the tensor-train unit, whose side squared is the words of a beat")
    row_beats_max: int = whole(1, 64, "longest row, in beats", power_of_two=True)
    window_beats: int = whole(16, 4096, "beats of rows that the coalescing window keeps", power_of_two=True)
    window_sets: int = whole(4, 4096, "sets of two rows in the window's tag table", power_of_two=True)
    delivery_rows: int = whole(8, 1024, "rows that wait for their beats", power_of_two=True)
    stripe_beats: int = whole(2, 64, "beats that lie over all banks of card memory, an equal part in each",
                              power_of_two=True)
    banks: int = whole(1, 16, "banks of card memory, each with a queue of rows to request", power_of_two=True)
    rows_in_flight: int = whole(4, 256, "bursts that the row port has outstanding", power_of_two=True)
    reads_in_flight: int = whole(2, 256, "bursts that the program port has outstanding", power_of_two=True)
    writes_in_flight: int = whole(2, 256, "bursts that wait for their write response", power_of_two=True)
    dram_queue: int = whole(2, 1024, "rows of card memory that wait for the port", power_of_two=True)
    ssd_queue: int = whole(2, 4096, "rows from the SSD that wait to land", power_of_two=True)
    tt_queue: int = whole(2, 1024, "rows of tensor trains that wait for the TT unit", power_of_two=True)
    bag_queue: int = whole(2, 1024, "bags under way", power_of_two=True)
    partial_beats: int = whole(4, 4096, "beats of pooled rows that a tier keeps ahead", power_of_two=True)
    lut_products: int = whole(0, 16, "words of a beat that the row decoder multiplies in LUTs and a pooling unit "
                              "with one DSP and LUTs instead of two DSPs")
    program_beats: int = whole(4, 512, "beats of instructions fetched ahead", power_of_two=True)
    input_beats: int = whole(2, 512, "beats of lengths, indices or weights fetched ahead", power_of_two=True)
    output_beats: int = whole(4, 512, "beats of results that wait for the port", power_of_two=True)

    def check(self) -> None:
        # Two rows at least, or the row that arrives would wait for itself to leave; the window hands its place on
        # by quarters.
        for name, rows in (("window_beats", 16), ("partial_beats", 2), ("output_beats", 2)):
            if getattr(self, name) < rows * self.row_beats_max:
                raise ValueError(f"{name} must be at least {rows} times row_beats_max = {self.row_beats_max}, "
                                 f"not {getattr(self, name)}")
        check_stripe(stripe_beats=self.stripe_beats, banks=self.banks)
        if self.lut_products > self.words:
            raise ValueError(f"lut_products must be at most the {self.words} words of a beat, not {self.lut_products}")
        for name in ("dram_queue", "ssd_queue", "tt_queue", "bag_queue"):
            if getattr(self, name) < 32:
                raise ValueError(f"{name} must be at least 32, what is on its way when a queue closes, "
                                 f"not {getattr(self, name)}")

    @property
    def words(self) -> int:
        """FP32 words of a beat: what the ports carry a cycle."""
        return self.tt.side**2

    @property
    def beat_bytes(self) -> int:
        return 4 * self.words

    @property
    def beat_log2(self) -> int:
        """log2 of a beat's bytes."""
        return (self.beat_bytes - 1).bit_length()

    @property
    def context_log2(self) -> int:
        """log2 of the beats of a row: the pooling unit's contexts of one tier."""
        return (self.row_beats_max - 1).bit_length()

    @property
    def write_block_beats(self) -> int:
        """Beats of a block of the outputs that is written at once: 4 KB if four of them fit the queue."""
        return max(self.row_beats_max, min(4096 // self.beat_bytes, self.output_beats // 4))
