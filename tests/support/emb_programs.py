"""Programs of the EMB core that nobody compiles: drawn from what hw.isa says, allowed or with one mistake."""

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from gen.compiler.emb import encode
from gen.compiler.tables import TT, CardImages, Table
from golden.emb import packer, row_decoder
from golden.emb.signature import signature
from golden.emb.stripes import Stripes
from hw.isa import EMB
from hw.isa.emb import FORMAT, MODE, ROW_FORMAT
from tests.support import emb_tables as make
from tests.support.differential import Draw

PAGE = 4096
SPECIAL = (0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
           0xFFFFFFFF, 0x00000400, 0x7C00FC00, 0x7E000001)
POSITIONS = 1 << 30
KINDS = ("BAGS",) * 6 + ("FILL",) * 2 + ("LOAD",)
# Row modes, column modes and ranks of tensor trains whose chunks may have from 1 to 8 rows in the preset `tiny`.
TRAINS = (((5, 5, 4), (2, 2, 4), 4), ((6, 6), (4, 4), 16), ((8, 8), (4, 4), 8), ((3, 5, 4, 5), (2, 2, 2, 4), 6),
          ((8, 12), (4, 4), 2))


def numbers(random, *shape):
    """Words of float32, now and then one of every other kind or, as binary16, two."""
    words = random.standard_normal(shape).astype(np.float32).view(np.uint32)
    special = random.random(shape) < random.choice((0, 0.01, 0.1))
    words[special] = random.choice(np.array(SPECIAL, np.uint32), special.sum())
    return words


def images(random, config):
    """A tensor train of each shape that the unit takes, ready to be loaded; where it takes block16, every other one or
    all."""
    tables = []
    for number, (modes, columns, rank) in enumerate(TRAINS):
        block16 = config.tt.block16_only or config.tt.grouped and number % 2
        rows = int(np.prod(modes))
        values = np.zeros((rows, int(np.prod(columns))), np.float32)
        cores = make.cores(random, modes, columns, rank)
        table = Table.place(f"t{number}", values, np.full(rows, TT), cores=cores,
                            tt_format="block16" if block16 else "float32")
        with suppress(ValueError):      # vectors with holes, where the array is larger
            CardImages([table], config, PAGE)
            tables.append(table)
    return CardImages(tables, config, PAGE)


@dataclass
class Drawn:
    """A program with its buffers. mistake: what is wrong with it, in words; pages: that the drive brings, `first` the
    ring position of the first."""

    words: np.ndarray
    inputs: np.ndarray
    outputs_beats: int
    first: int
    pages: int
    mistake: str = ""
    items: list = field(default_factory=list)


class Programs(Draw):
    """Draws programs for a core with tables loaded, `rows_beats` of rows and a ring. images: of the tables."""

    def __init__(self, random, images, *, rows_beats, ring_beats):
        super().__init__(EMB, random)
        self.images, self.config = images, images.config
        self.rows_beats, self.ring_beats = rows_beats, ring_beats
        self.words = self.config.words
        self.page_beats = PAGE // (4 * self.words)
        self.placed = list(images.placed.values())

    def draw(self, wrong=False):
        """A program; wrong: with one mistake."""
        self.inputs, self.size, self.outputs, self.overlap = [], 0, 0, not wrong
        pages = self.upto(self.ring_beats // self.page_beats)
        first = self.one((0, 4096, POSITIONS - 2 * self.page_beats, self.page_beats * int(self.r.integers(1 << 20))))
        self.released, self.landed = first, pages * self.page_beats
        kinds = [self.one(KINDS) for _ in range(int(self.r.integers(1, 5)))]
        items = [(kind, item) for kind in [*kinds, "BAGS"] if (item := getattr(self, kind.lower())())]
        if self.r.random() < 0.2:       # nothing is read behind it
            items[-1][1]["release"] = (self.released + self.landed + int(self.r.integers(1 << 20))) % POSITIONS
        words = np.stack([self.mutator.garble(self.r, encode(kind, item)) for kind, item in items])
        inputs = np.concatenate(self.inputs) if self.inputs else np.zeros(self.words, np.uint32)
        drawn = Drawn(words, inputs.astype(np.uint32), self.outputs, first, pages, "", items)
        if wrong:
            self.spoil(drawn, self.edge, self.edge, self.unlike, self.index, self.index, self.length, self.reserved,
                       self.order, self.order, self.free, self.word, self.shorter, self.header, self.image)
        return drawn

    def region(self, values):
        """Where in the inputs the values lie, in beats."""
        values = np.asarray(values, np.uint32).reshape(-1)
        at = self.size
        self.inputs.append(np.concatenate([values, self.r.integers(1 << 32, size=-len(values) % self.words)]))
        self.size += -(-len(values) // self.words)
        return at

    def layout(self, beats=None):
        """Fields of a table in DRAM, its rows in any format and in pieces; beats: of a row's values."""
        value_beats = beats or self.upto(self.config.row_beats_max, 1)
        form = self.one((0, 0, *ROW_FORMAT))
        b = row_decoder.beats(value_beats, form)
        lies = self.one([each for each in (Stripes(b, piece, self.config.stripe_beats) for piece in (0, 1, 2, 4))
                         if each.allowed])
        rows = self.upto(min(40, self.rows_beats // lies.beats(1)), 1)
        # Many tables at one place: what is remembered of one must not be taken for another's.
        base = min(self.one((0, 0, self.upto(self.rows_beats))), self.rows_beats - lies.beats(rows))
        return {"row_beats": value_beats, "row_format": int(form), "piece_beats": lies.piece_beats, "dram_rows": rows,
                "dram_base": base}, b

    def ring(self, b):
        """Fields of a stretch of the ring, and a function that draws a position in it, None if nothing has landed
        there; what it releases are whole pages."""
        begin, room = self.released, self.landed
        done = self.upto(room // self.page_beats) * self.page_beats if self.r.random() < 0.3 else 0
        self.released, self.landed = (begin + done) % POSITIONS, room - done
        behind = int(self.r.integers(1 << 20)) if self.r.random() < 0.2 else 0      # what is released stays so
        fields = {"ring_first": begin, "ring_count": min(self.ring_beats, room),
                  "release": (self.released - behind) % POSITIONS}
        if behind:
            self.released, self.landed = begin, room

        def position():
            while True:
                at = (begin + self.upto(room - b)) % POSITIONS
                if at % self.ring_beats + b <= self.ring_beats:
                    return at
        return fields, position if room >= b else None

    def bags(self):
        r, mode = self.r, int(self.one((*MODE,)))
        weighted = int(mode == MODE.SUM and r.random() < 0.4)
        table = int(r.integers(len(self.placed))) if r.random() < 0.7 else None
        placed = self.placed[table] if table is not None else None
        fields, b = self.layout(placed.value_beats if placed else None)
        ring, position = self.ring(b)
        chunk = 1 if weighted or mode == MODE.MAX else self.upto(placed.chunk_rows if placed else 8, 1)
        tt_rows = self.upto(placed.table.tt_rows, 1) if placed else 0
        if placed and r.random() < 0.1:     # more than the table has
            tt_rows = 1 << self.config.tt.index_bits
        top = min(tt_rows, placed.table.tt_rows) if placed else 0
        sources = [lambda: int(r.integers(fields["dram_rows"]))]
        if placed:
            sources.append(lambda: 1 << 30 | self.upto(top - 1))
        if position:
            sources.append(lambda: 2 << 30 | position())
        lengths = [self.one((0, 1, int(r.integers(12)))) for _ in range(int(r.integers(1, 7)))]
        few = [self.one(sources)() for _ in range(4)]
        indices = [self.one(few) if r.random() < 0.4 else self.one(sources)() for _ in range(sum(lengths))]
        item = {"mode": mode, "weighted": weighted, "format": int(self.one((*FORMAT,))), "count": len(lengths),
                "lengths": self.region(lengths), "indices": self.region(indices), "indices_count": len(indices),
                "chunk_rows": chunk, "tt_rows": tt_rows,
                "tt_table": table if table is not None else int(r.integers(1 << 16)), **fields, **ring}
        if weighted:
            item["weights"] = self.region(numbers(r, len(indices)))
        v = packer.beats(fields["row_beats"], item["format"])
        # Vectors may lie where others do: the last one stays, if the run gets there.
        item["out_stride"] = int(self.one((v, v, v + r.integers(3), r.integers(v + 1) if self.overlap else v)))
        item["out"] = self.outputs + int(r.integers(2))
        self.outputs = item["out"] + (len(lengths) - 1) * item["out_stride"] + v
        return item

    def fill(self):
        fields, b = self.layout()
        ring, position = self.ring(b)
        if position is None:    # no row that could be copied
            return None
        count = int(self.r.integers(1, 6))
        pairs = [(position(), int(self.r.integers(fields["dram_rows"]))) for _ in range(count)]
        return {"count": count, "indices": self.region(np.array(pairs)), **fields, **ring}

    def load(self):
        # As much of it as there is, or what it begins with.
        count = self.upto(self.images.load_beats, 1)
        beats = count + -(-count // 16) * -(-16 // self.words)
        return {"count": count, "indices": self.region(self.images.load),
                "signature": signature(self.images.load[:beats]),
                "release": int(self.one((self.released, 0 if self.released < POSITIONS // 2 else self.released)))}

    # Mistakes.

    def unlike(self, drawn, number):
        """An instruction that is not as its tensor-train table."""
        item = drawn.items[number][1]
        if not item.get("tt_rows"):
            return "none"
        placed = self.placed[item["tt_table"]]
        return self.put(drawn, number, *self.one((
            ("chunk_rows", placed.chunk_rows + 1), ("row_beats", placed.value_beats + 1),
            ("row_beats", max(placed.value_beats - 1, 1)), ("tt_rows", 1 << self.config.tt.index_bits),
            ("tt_table", len(self.placed) + int(self.r.integers(100))))))

    def free(self, drawn, number):
        """What is released, or where the stretch of the ring begins, is some pages further or before."""
        name = self.one(("release", "ring_first"))
        before = self.mutator.value_of(drawn.words[number], name)
        by = self.page_beats * self.one((1, 2, -1, -2, self.ring_beats // self.page_beats)) + self.one((0, 0, 1, -1))
        return self.put(drawn, number, name, (before + by) % POSITIONS)

    def word(self, drawn, number):
        """Anything in a word."""
        word = self.upto(15)
        drawn.words[number, word] = self.r.integers(1 << 32)
        return f"word {word} = {drawn.words[number, word]:#x}"

    def input(self, drawn, at, value):
        before = int(drawn.inputs[at])
        drawn.inputs[at] = value & 0xFFFFFFFF
        return f"word {at} of the inputs = {value & 0xFFFFFFFF:#x} instead of {before:#x}"

    def index(self, drawn, number):
        kind, item = drawn.items[number]
        count = {"BAGS": item.get("indices_count", 0), "FILL": 2 * item["count"]}.get(kind, 0)
        if not count:
            return "none"
        at = item["indices"] * self.words + int(self.r.integers(count))
        rows, placed = item["dram_rows"], self.placed[item["tt_table"]] if item.get("tt_rows") else None
        end = item["ring_first"] + item["ring_count"]
        return self.input(drawn, at, int(self.one((
            rows, 3 << 30, 3 << 30 | 5, 1 << 30 | min(item.get("tt_rows", 0), POSITIONS - 1),
            1 << 30 | (placed.table.tt_rows if placed else 0), 2 << 30 | end % POSITIONS,
            2 << 30 | (item["ring_first"] - 1) % POSITIONS, self.r.integers(1 << 32)))))

    def length(self, drawn, number):
        kind, item = drawn.items[number]
        if kind != "BAGS":
            return "none"
        at = item["lengths"] * self.words + int(self.r.integers(item["count"]))
        return self.input(drawn, at, self.one((int(drawn.inputs[at]) + 1, int(drawn.inputs[at]) - 1, 65537, -1)))

    def shorter(self, drawn, number):
        if self.r.random() < 0.5 and drawn.outputs_beats:
            drawn.outputs_beats -= 1
            return "outputs a beat shorter"
        drawn.inputs = drawn.inputs[:-self.words].copy()
        return "inputs a beat shorter"

    def image(self, drawn, number):
        """Another word of a load image."""
        kind, item = drawn.items[number]
        if kind != "LOAD":
            return "none"
        at = item["indices"] * self.words + int(self.r.integers(self.words * (item["count"] + 1)))
        return self.input(drawn, at, int(drawn.inputs[at]) ^ 1 << int(self.r.integers(32)))

    def header(self, drawn, number):
        kind, item = drawn.items[number]
        if kind != "LOAD":
            return "none"
        at = item["indices"] * self.words + int(self.r.integers(16))
        return self.input(drawn, at, int(drawn.inputs[at]) | self.one((1 << 22, 1 << 31, 3 << 16, 0xFFFF)))
