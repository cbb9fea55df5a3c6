"""A card whose EMB core is the oracle."""

from pathlib import Path

import numpy as np

from fpga.card import SsdStream
from golden.emb.core import Memory
from hw.isa import EMB
from tests.support import oracle_card


class OracleCard(oracle_card.OracleCard):
    kernel = EMB
    ssd: SsdStream | None = None

    def carry_out(self, program, arena, arguments):
        landed = np.zeros(0, np.uint32)
        if self.ssd is not None:
            beat = 4 * self.core.words
            assert self.ssd.ring == arguments["ring"] and self.ssd.ring.bytes == arguments["ring_beats"] * beat
            data = self.ssd.data
            data = np.fromfile(data, np.uint8) if isinstance(data, Path) else data
            pages = np.ascontiguousarray(data).view(np.uint32).reshape(-1, self.ssd.page_bytes // 4)
            landed = pages[self.ssd.transfers[:, 0]].reshape(-1)
            assert self.ssd.transfers[:, 1].tolist() == [k * self.ssd.page_bytes // self.ssd.beat_bytes
                                                         for k in range(len(self.ssd.transfers))]
        return self.core.run(Memory(program, arena["inputs"], arena["outputs"], arena["rows"], landed, 0,
                                    arguments["ring_beats"]))

    def stream(self, stream):
        self.ssd = stream
