"""Jobs for the gathering of cold rows: what the core trains on, and the mini-batches that should come of it."""

import os
from dataclasses import dataclass, replace

import numpy as np

from golden.hotline.gather import gather
from verif.hotline.bench import TINY, WIDE

CONFIGS = {
    "tiny": TINY,
    # Sixteen words a beat, four mini-batches; positions that end within a sample.
    "wide": replace(WIDE, positions=32),
}
CONFIG = CONFIGS[os.environ.get("GATHER", "tiny")]
WORDS, POSITIONS = CONFIG.words, CONFIG.positions
NONE = 0xFFFFFFFF
PARTS = 15      # mini-batches of a job, about: each waits for the one before


@dataclass
class Job:
    """A TRAIN: its registers by position, its frames, and the mini-batches that should come of them."""

    first: list
    base: list
    pinned: list
    indices: int
    sample_beats: int
    row_beats_log2: int
    rows_beats: int
    frames: list            # (n, words) uint32
    table_rows: list

    def __post_init__(self):
        self.wanted, self.translated = [], []
        slots = min(CONFIG.row_slots, CONFIG.embedding_beats >> self.row_beats_log2)
        for number, frame in enumerate(self.frames):
            words = frame.copy()
            parts = gather(words, first=self.first, base=self.base, pinned=self.pinned, indices=self.indices,
                           row_beats=1 << self.row_beats_log2, slots=slots)
            self.translated.append(words)
            self.wanted += [(number, part, part is parts[-1]) for part in parts]


def job(random, frames, *, log2=None, indices=None, beats=None, pool=40, cold=0.4, tables=None, samples=None,
        pinned=0.15):
    """A job over tables that lie one behind the other; several positions may name the same one."""
    beats = int(random.integers(1, 5)) if beats is None else beats
    most = min(beats * WORDS, POSITIONS, CONFIG.row_slots)
    indices = int(random.integers(1, most + 1)) if indices is None else min(indices, most)
    if log2 is None:
        log2 = int(random.choice([0, 0, 0, 0, 1, 1, 2, 3, 4, 6]))
    while CONFIG.embedding_beats >> log2 < indices:
        log2 -= 1
    tables = int(random.integers(1, 6)) if tables is None else tables
    # Rows of a table that come: few, among many.
    rows, first, base = [], [int(random.integers(1 << 20))], [int(random.integers(1 << 20))]
    for _ in range(tables):
        rows.append(int(random.integers(pool, 1 << 12)))
        first.append(first[-1] + rows[-1])
        base.append(base[-1] + (rows[-1] << log2))
    known = [random.integers(0, rows[t], pool) for t in range(tables)]
    table = random.integers(0, tables, POSITIONS)
    is_pinned = [bool(value) for value in random.random(POSITIONS) < pinned]
    made, parts = [], 0
    for _ in range(frames):
        if parts > PARTS:
            break
        most_samples = CONFIG.frame_beats // beats
        count = int(random.integers(1, most_samples + 1)) if samples is None else min(samples, most_samples)
        words = random.integers(0, 1 << 32, (count, beats * WORDS), dtype=np.uint32)
        for position in range(indices):
            column = random.choice(known[table[position]], count).astype(np.uint32)
            kind = random.random(count)
            column[kind > cold] = (1 << 31) | random.integers(0, 1 << 20)
            column[kind > 1 - (1 - cold) / 3] = NONE
            if is_pinned[position]:
                column[:] = random.integers(0, 1 << 31, count, dtype=np.uint32)
            words[:, position] = column
        made.append(words)
        parts += 1 + count * indices // (CONFIG.embedding_beats >> log2)
    return Job([first[t] for t in table], [base[t] for t in table], is_pinned, indices, beats, log2, base[-1], made,
               [rows[t] for t in table])
