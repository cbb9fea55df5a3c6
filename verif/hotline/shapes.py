"""What the benches of the Hotline core's front share: sizes of cores, golden's view of them, ports by name."""

from typing import Any

from gen.rtl.config import load
from golden.hotline.program import Sizes
from hw.hotline.config import HotlineConfig
from verif.bench.pack import layout_of

__all__ = ["CONFIGS", "TINY", "Ports", "sizes_of"]

TINY: HotlineConfig = load("tiny").cores["hotline"]
# An instruction of one beat; all positions that an instruction can name; chunks of another size.
WIDE = HotlineConfig(
    lanes=16, words=16, positions=64, banks=4, sets=16, queue=32, waves=8, policy="steady",
    insert_log2=2, frames=2, frame_beats=64,
    row_slots=64, embedding_beats=256, batches=4, reads_in_flight=8, writes_in_flight=4, program_beats=16,
    input_beats=16, row_read_beats=16, output_beats=16)
CONFIGS = {"tiny": TINY, "wide": WIDE}


def sizes_of(config: HotlineConfig) -> Sizes:
    return Sizes(words=config.words, positions=config.positions, banks=config.banks, sets=config.sets,
                 frame_beats=config.frame_beats, row_slots=config.row_slots, embedding_beats=config.embedding_beats)


class Ports:
    """Ports of the unit by name, as plain values; written only where they change."""

    def __init__(self, dut: Any):
        self._dut = dut
        self._last: dict[str, int] = {}
        self._layouts: dict[str, Any] = {}

    def set(self, name: str, value: Any) -> None:
        if not isinstance(value, int):
            value = self._layout(name).pack(value)
        if self._last.get(name) != value:
            self._last[name] = value
            getattr(self._dut, name).value = value

    def get(self, name: str) -> int:
        return int(getattr(self._dut, name).value)

    def fields(self, name: str) -> Any:
        return self._layout(name).unpack(self.get(name))

    def clear(self, *names: str) -> None:
        for name in names:
            self.set(name, 0)

    def _layout(self, name: str) -> Any:
        if name not in self._layouts:
            self._layouts[name] = layout_of(name)
        return self._layouts[name]
