"""What the benches of the Hotline core's front share: sizes of cores, golden's view of them."""

from dataclasses import replace

from gen.rtl.config import load
from golden.hotline.program import Sizes
from hw.hotline.config import HotlineConfig

TINY: HotlineConfig = load("tiny").cores["hotline"]
# An instruction of one beat; all positions that an instruction can name; chunks of another size.
WIDE = HotlineConfig(
    lanes=16, words=16, positions=64, banks=4, sets=16, queue=32, waves=8, policy="steady",
    insert_log2=2, frames=2, frame_beats=64,
    row_slots=64, embedding_beats=256, batches=4, reads_in_flight=8, writes_in_flight=4, program_beats=16,
    input_beats=16, row_read_beats=16, output_beats=16)
# Row numbers of 34 bits, and with rows of 64 beats places of more than 32.
LARGE: HotlineConfig = load("hotline").cores["hotline"]
# Two and four GPUs.
CONFIGS = {"tiny": TINY, "wide": WIDE, "large": LARGE, "two": replace(WIDE, gpus=2), "four": replace(TINY, gpus=4)}


def sizes_of(config: HotlineConfig) -> Sizes:
    return Sizes(words=config.words, positions=config.positions, banks=config.banks, sets=config.sets,
                 frame_beats=config.frame_beats, row_slots=config.row_slots, embedding_beats=config.embedding_beats,
                 gpus=config.gpus)
