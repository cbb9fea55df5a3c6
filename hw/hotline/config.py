"""Sizes of a Hotline core."""

from dataclasses import dataclass

from hw.config import Config, choice, whole
from hw.isa import HOTLINE

WAYS = 4        # of a set of the access logger
ID_BITS = 14    # of an entry's identifier
ROW_BEATS_LOG2_MAX = HOTLINE.field("row_beats_log2").highest
POLICIES = SRRIP, SAMPLED, STEADY = "srrip", "sampled", "steady"


@dataclass(frozen=True, kw_only=True)
class HotlineConfig(Config):
    """One Hotline core; see hw.hotline.core. Every key is set by a preset.

    Raises      ValueError: names the key, its value and what is allowed
    """

    lanes: int = whole(4, 64, "lookup engines: indices that are looked up a cycle", power_of_two=True)
    words: int = choice(8, 16, about="32-bit words of a beat of the ports")
    positions: int = whole(8, 64, "address registers: indices of a sample", power_of_two=True)
    banks: int = whole(4, 64, "banks of the access logger", power_of_two=True)
    sets: int = whole(16, 65536, "sets of a bank, four ways each", power_of_two=True)
    queue: int = whole(8, 1024, "accesses that wait before the banks, in all", power_of_two=True)
    waves: int = whole(4, 64, "beats of lanes on their way through the logger", power_of_two=True)
    policy: str = choice(
        *POLICIES, about="what the logger does with a row that is new to a full set: srrip, as in the Hotline thesis, "
        "puts it in place of the one least expected; sampled does so for one of many such rows; steady lets it have "
        "the place of the last one that came, and rows met often keep theirs until they have aged")
    insert_log2: int = whole(
        0, 8, "log2 of the new rows of a bank of which the last is taken up (sampled), or ages its set, where no place "
        "in it was to be had (steady); srrip counts none: 0")
    gpus: int = choice(1, 2, 4, default=1, about="GPUs that mini-batches are dispatched to, each with a mailbox")
    frames: int = whole(2, 16, "mini-batches that the input buffer holds")
    frame_beats: int = whole(16, 65536, "beats of a mini-batch's samples", power_of_two=True)
    row_slots: int = whole(16, 262144, "rows that the embedding buffer holds, if they are short", power_of_two=True)
    embedding_beats: int = whole(16, 262144, "beats of the embedding buffer", power_of_two=True)
    batches: int = choice(2, 4, about="gathered mini-batches in flight")
    reads_in_flight: int = whole(2, 256, "bursts that a read port has outstanding", power_of_two=True)
    writes_in_flight: int = whole(2, 256, "bursts that wait for their write response", power_of_two=True)
    program_beats: int = whole(4, 512, "beats of instructions fetched ahead", power_of_two=True)
    input_beats: int = whole(16, 1024, "beats of samples fetched ahead", power_of_two=True)
    row_read_beats: int = whole(16, 1024, "beats of cold rows, and of gradients, fetched ahead", power_of_two=True)
    output_beats: int = whole(16, 1024, "beats that wait for each client of a write port", power_of_two=True)

    def check(self) -> None:
        if self.lanes < self.words:
            raise ValueError(f"lanes must be at least {self.words}, the words of a beat, not {self.lanes}")
        if self.positions < self.words:
            raise ValueError(f"positions must be at least {self.words}, the words of a beat, not {self.positions}")
        if not 20 <= self.domain_bits <= 40:
            raise ValueError(f"sets must be such that banks, sets and the {ID_BITS}-bit identifier cover 20 to 40 "
                             f"bits, not {self.domain_bits} bits with {self.banks} banks of {self.sets} sets")
        if self.policy == SRRIP and self.insert_log2:
            raise ValueError(f"insert_log2 must be 0 with the policy {SRRIP}, by which every miss comes in, not "
                             f"{self.insert_log2}")
        if self.embedding_beats < self.row_slots:
            raise ValueError(f"embedding_beats must be at least {self.row_slots}, the row slots, not "
                             f"{self.embedding_beats}")

    @property
    def bank_bits(self) -> int:
        return (self.banks - 1).bit_length()

    @property
    def set_bits(self) -> int:
        return (self.sets - 1).bit_length()

    @property
    def domain_bits(self) -> int:
        """Bits of a row's number among the rows of all tables: the bank's, the set's and the identifier's."""
        return self.bank_bits + self.set_bits + ID_BITS

    @property
    def hot_bits(self) -> int:
        """Bits of a hot row's number: the bank's, the set's and the way's."""
        return self.bank_bits + self.set_bits + 2

    @property
    def slot_bits(self) -> int:
        return (self.row_slots - 1).bit_length()

    @property
    def frame_bits(self) -> int:
        return (self.frames - 1).bit_length()

    @property
    def batch_bits(self) -> int:
        return (self.batches - 1).bit_length()

    @property
    def position_bits(self) -> int:
        return (self.positions - 1).bit_length()

    @property
    def beats_of_wave(self) -> int:
        """Beats of samples that the lanes look up at once."""
        return self.lanes // self.words

    @property
    def sample_beats_max(self) -> int:
        """Beats of a sample at the most."""
        return 8

    @property
    def beat_bytes(self) -> int:
        return 4 * self.words
