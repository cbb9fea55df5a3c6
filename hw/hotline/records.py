"""What the parts of the Hotline core hand to one another."""

from amaranth.lib import data

from hw.hotline.config import HotlineConfig

NONE = 0xFFFFFFFF   # an index word that stands for no index
HOT = 31            # the bit of a translated word that says: a hot row, its number in the bits below


class DispatchError(data.Struct):
    """What the GPU did wrong; valid stays until reset."""

    valid: 1
    detail: 32


def numbers_layout(config: HotlineConfig) -> data.StructLayout:
    """How many mini-batches, of each GPU."""
    return data.StructLayout({f"gpu_{number}": 32 for number in range(config.gpus)})


def register_layout(config: HotlineConfig) -> data.StructLayout:
    """A write of an address register (s_wr). position: of the index in a sample; first: the number of its table's
    row 0 among the rows of all tables; rows: of the table; base: of its row 0 in the rows' buffer, in beats; pinned:
    all its rows are hot, and its indices are not looked up; join: what its row does in a pooled sample, hw.isa."""
    return data.StructLayout({"valid": 1, "position": config.position_bits, "first": config.domain_bits, "rows": 32,
                              "base": 32, "pinned": 1, "join": 2})


def access_layout(config: HotlineConfig) -> data.StructLayout:
    """A wave: an access of each lane. valid: the lane has one; row: its number among the rows of all tables;
    learn: the logger learns from it, else it only looks."""
    lane = data.StructLayout({"valid": 1, "row": config.domain_bits})
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes), "learn": 1})


def answer_layout(config: HotlineConfig) -> data.StructLayout:
    """The answers to a wave. hit: the row is in the logger (before the access, where it learns); number: bank lowest,
    then set, then way, of the entry that was hit; any, without a hit."""
    lane = data.StructLayout({"hit": 1, "number": config.hot_bits})
    return data.StructLayout({"lanes": data.ArrayLayout(lane, config.lanes)})


def image_layout(config: HotlineConfig) -> data.StructLayout:
    """A set as the host sees it: 4 ways, each {id: 14, rrpv: 2, valid: 1} from bit 0 of 32 bits on."""
    return data.StructLayout({
        "bank": config.bank_bits, "set": config.set_bits, "ways": data.ArrayLayout(32, 4)})


def beat_layout(config: HotlineConfig) -> data.StructLayout:
    """A beat of a sample as it was read."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "first": 1, "last": 1})


def sample_layout(config: HotlineConfig) -> data.StructLayout:
    """A beat of a sample with hot indices replaced by (1 << HOT | number). cold: an index of the beat is neither hot
    nor pinned nor NONE; behind the classifier: of the sample."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "first": 1, "last": 1, "cold": 1})


def frame_layout(config: HotlineConfig) -> data.StructLayout:
    """A mini-batch in the input buffer: its samples lie in the frame's first samples * sample_beats beats."""
    return data.StructLayout({"frame": config.frame_bits, "samples": 16})


def place_layout(config: HotlineConfig) -> data.StructLayout:
    """A beat in the input buffer."""
    return data.StructLayout({"frame": config.frame_bits, "beat": (config.frame_beats - 1).bit_length()})


def gathered_layout(config: HotlineConfig) -> data.StructLayout:
    """Samples whose cold rows are all in the embedding buffer. start: the first sample's number in the frame; rows:
    different cold rows, 0..row_slots; batch: their list; frees: the frame's last samples."""
    return data.StructLayout({"frame": config.frame_bits, "start": 16, "samples": 16, "batch": config.batch_bits,
                              "rows": range(config.row_slots + 1), "frees": 1})


def update_layout(config: HotlineConfig) -> data.StructLayout:
    """A gathered mini-batch whose gradients are there. address: of the first gradient, in bytes."""
    return data.StructLayout({"batch": config.batch_bits, "rows": range(config.row_slots + 1), "address": 64})
