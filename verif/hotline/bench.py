"""What the benches of the Hotline core's parts share: configurations."""

from dataclasses import replace

from hw.hotline.config import HotlineConfig

TINY = HotlineConfig(
    lanes=8, words=8, positions=16, banks=8, sets=64, queue=32, waves=8, policy="steady",
    insert_log2=2, frames=4, frame_beats=32,
    row_slots=32, embedding_beats=64, batches=2, reads_in_flight=8, writes_in_flight=8, program_beats=16,
    input_beats=32, row_read_beats=32, output_beats=32)
# Beats of 16 words, several beats a wave, room for long rows.
WIDE = replace(TINY, lanes=32, words=16, embedding_beats=256, row_slots=64, batches=4, output_beats=16)
