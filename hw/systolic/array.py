"""The systolic array: rows x columns of dot-product cells, tile after tile without a gap."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.fp.group import Aligner, operands, skewed
from hw.fp.operand import unpack
from hw.place import Part, place

from .pe import ProcessingElement


def _delay(m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> Value:
    """`value` as it was `cycles` ago. One packed register, which a simulator shifts in one operation; unlike
    the delays inside an arithmetic pipeline it may become shift-register LUTs: these are the array's corners.
    """
    if cycles == 0:
        return value
    width = len(value)
    line = Signal(width * cycles, name=name, reset_less=reset_less)
    m.d.sync += line.eq(Cat(value, line[:width * (cycles - 1)]))
    return line[width * (cycles - 1):]


class _Row(Part):
    """A row of cells: one part, so that an array of any height is written and simulated as a few rows.

    Members     x_i, first_i, done_i  In  from the left
                y_i    In  from above
                y_o    Out  `y_i`, a cycle later
                load   In  a bit per column, see ProcessingElement
                below  In  what comes up the columns
                o      Out  what goes up the columns
    """

    def __init__(self, *, columns: int, reach: int, width: int, terms_log2: int, grouped: bool, lut_products: int,
                 family: str):
        self.columns, self.reach = columns, reach
        self._cell: dict[str, Any] = {"width": width, "terms_log2": terms_log2, "grouped": grouped, "family": family}
        self._corner = ProcessingElement(**self._cell, lut_products=lut_products)
        self._bits = Shape.cast(operands(width, 1, grouped)).width
        row = operands(width, columns, grouped)
        words = data.ArrayLayout(32, columns)
        super().__init__({
            "x_i": In(operands(width, 1, grouped)), "first_i": In(1), "done_i": In(1),
            "y_i": In(row), "y_o": Out(row),
            "load": In(columns), "below": In(words), "o": Out(words),
        })

    @property
    def latency(self) -> int:
        return self._corner.latency

    def elaborate(self, platform):
        m = Module()
        bits = self._bits
        left = Cat(self.x_i.as_value(), self.first_i, self.done_i)
        y_i, y_o = self.y_i.as_value(), self.y_o.as_value()
        for c in range(self.columns):
            cell = self._corner if c == 0 else ProcessingElement(**self._cell)
            place(m, platform, f"pe_{c}", cell)
            if c and c % self.reach == 0:
                handed = Signal(len(left), name=f"handed_{c}", reset_less=True)
                m.d.sync += handed.eq(left)
                left = handed
            m.d.comb += [
                Cat(cell.x_i, cell.first_i, cell.done_i).eq(left),
                cell.y_i.eq(y_i[c * bits:(c + 1) * bits]),
                y_o[c * bits:(c + 1) * bits].eq(cell.y_o),
                cell.load.eq(self.load[c]),
                cell.below.eq(self.below[c]),
                self.o[c].eq(cell.o),
            ]
        return m


class SystolicArray(Part):
    """Products of matrices, a tile of rows x columns results at a time, results held in the cells.

    o[r, c] = sum_k x[r, k] * y[k, c]                    Source: SCRec §III.E, Fig. 7

    Parameters  rows, columns: of cells, at least 1; width: terms a cell takes a beat (1, 2, 4 or 8);
                terms_log2: a tile has at most 2^terms_log2 terms;
                grouped: the operands of a beat share an exponent, for a width of 4;
                reach: columns that a row's operands enter in the same cycle; more are sooner done, with longer wires;
                aligned: delay the columns' results so that a row of results comes out whole;
                lut_products: multipliers with one DSP and LUTs instead of two DSPs in each cell of the first
                column, 0..width, none for a width of 1;
                family: see FusedDot
    Members     x                In  width words for each row, index r * width + w
                y                In  width words for each column, index c * width + w
                blank            In(1)  the beat counts as terms of +0, whatever the words are
                first, last      In(1)  around a tile's beats
                live_rows        In  with `last`: how many rows to drain, 1..rows
                o                Out  one word a column
                o_valid, o_last  Out(1)
    Shapes      a tile is K / width beats, k-major; K padded with zeros on both sides
    Timing      a beat per cycle; result row r comes `latency + live_rows + r` cycles after the beat with
                `last`, column c of it c // reach cycles later still unless `aligned`, when all come with the last.
                Tiles follow each other without a gap when each has at least as many beats as the tile before
                it has live rows and, where it has fewer itself, as many more: 2 * live before - live
    Handshake   none: whoever feeds it takes the results when they come; beats outside first..last are ignored
    Numerics    golden.fp.fp32.dot with beat = width, grouped or not; against golden: bit-exact
    Reset       tiles under way are dropped: none of their results is marked valid
    Raises      ValueError: rows, columns or reach below 1; from FusedDot for width, terms_log2, lut_products
    Golden      golden.systolic.array.tiles, .cycles        Tests  verif/systolic/test_array.py
    """

    def __init__(self, *, rows: int, columns: int, width: int, terms_log2: int, grouped: bool = False,
                 reach: int = 1, aligned: bool = False, lut_products: int = 0, family: str = "any"):
        for name, value in (("rows", rows), ("columns", columns), ("reach", reach)):
            if value < 1:
                raise ValueError(f"{name} is {value}, must be at least 1")
        self.rows, self.columns, self.width, self.terms_log2 = rows, columns, width, terms_log2
        self.reach, self.skew = reach, (columns - 1) // reach
        self.grouped, self.aligned, self.lut_products, self.family = grouped, aligned, lut_products, family
        self._top = self._row()
        # Operands that share an exponent are brought to it before they enter.
        self._entry = Aligner.latency if grouped else 0
        self._dot_latency = self._entry + self._top.latency
        super().__init__({
            "x": In(data.ArrayLayout(32, rows * width)),
            "y": In(data.ArrayLayout(32, columns * width)),
            "blank": In(1), "first": In(1), "last": In(1), "live_rows": In(range(rows + 1)),
            "o": Out(data.ArrayLayout(32, columns)), "o_valid": Out(1), "o_last": Out(1),
        })

    def _row(self) -> _Row:
        return _Row(columns=self.columns, reach=self.reach, width=self.width, terms_log2=self.terms_log2,
                    grouped=self.grouped, lut_products=self.lut_products, family=self.family)

    @property
    def latency(self) -> int:
        """Cycles from a tile's last beat to result row 0, less its live rows."""
        return self._dot_latency + 1 + (self.skew if self.aligned else 0)

    def elaborate(self, platform):
        m = Module()
        rows, columns, width = self.rows, self.columns, self.width

        cells = []
        for r in range(rows):
            row = self._top if r == 0 else self._row()
            place(m, platform, f"row_{r}", row)
            cells.append(row)

        # A tile's end, when the first cell has its sum; with it the number of rows to drain.
        ended = _delay(m, "ended", self.last, self._dot_latency, reset_less=False)
        live_rows = _delay(m, "ended_rows", self.live_rows, self._dot_latency)
        load = self._drain(m, ended, live_rows)

        for r, row in enumerate(cells):
            entering = self._entering(m, platform, f"x_{r}", self.x.as_value().word_select(r, 32 * width), self.blank)
            m.d.comb += row.x_i.eq(_delay(m, f"x_skew_{r}", entering, r))
            m.d.comb += row.first_i.eq(_delay(m, f"first_skew_{r}", self.first, self._entry + r))
            m.d.comb += row.done_i.eq(_delay(m, f"done_skew_{r}", ended, r))
            m.d.comb += row.load.eq(Cat(load))
        entering = []
        for c in range(columns):
            words = self._entering(m, platform, f"y_{c}", self.y.as_value().word_select(c, 32 * width))
            entering.append(_delay(m, f"y_skew_{c}", words, c // self.reach))
        m.d.comb += cells[0].y_i.eq(Cat(entering))
        for above, row in zip(cells, cells[1:]):
            m.d.comb += row.y_i.eq(above.y_o)
            m.d.comb += above.below.eq(row.o)

        for c in range(columns):
            late = self.skew - c // self.reach if self.aligned else 0
            m.d.comb += self.o[c].eq(_delay(m, f"o_skew_{c}", cells[0].o[c], late))
        return m

    def _entering(self, m: Module, platform, name: str, words: Value, blank: Value = Const(0, 1)) -> Value:
        """A beat's operands of a row or a column, `_entry` cycles later; blank: padding in their place."""
        if not self.grouped:
            taken = [unpack(words.word_select(w, 32)) for w in range(self.width)]
            return Cat(Cat(x.mant, x.exp, x.sign, x.zero | blank, x.special | blank) for x in taken)
        aligner = Aligner()
        place(m, platform, f"aligner_{name}", aligner)
        m.d.comb += aligner.i.eq(words)
        m.d.comb += aligner.padding.eq(blank.replicate(len(aligner.padding)))
        return skewed(m, name, aligner.o)

    def _drain(self, m: Module, ended: Value, live_rows: Value) -> list[Value]:
        """The columns' `load` tokens, and the marks of the rows that leave.

        A column is loaded all at once, when its lowest live row has its sum: rows then leave at the top, the
        first one first, one per cycle. Draining upwards keeps a tile with few live rows from passing through
        the dead ones.
        """
        waiting = Signal(range(self.rows))
        load = Signal()
        with m.If(ended):
            m.d.sync += waiting.eq(live_rows - 1)
        with m.Elif(waiting != 0):
            m.d.sync += waiting.eq(waiting - 1)
        m.d.comb += load.eq((ended & (live_rows == 1)) | (~ended & (waiting == 1)))

        # The next tile may have another number of rows: what is read at the load stays with the drain.
        latest = Signal(range(self.rows + 1))
        rows = Signal(range(self.rows + 1))
        leaving = Signal(range(self.rows + 1))
        started = Signal()
        with m.If(ended):
            m.d.sync += latest.eq(live_rows)
        m.d.sync += started.eq(load)
        m.d.sync += rows.eq(Mux(ended, live_rows, latest))
        # The marks are registers of their own: whoever stores the words has logic behind them.
        valid = Signal()
        last = Signal()
        with m.If(started):
            m.d.sync += leaving.eq(rows)
            m.d.sync += valid.eq(1)
            m.d.sync += last.eq(rows == 1)
        with m.Elif(valid):
            m.d.sync += leaving.eq(leaving - 1)
            m.d.sync += valid.eq(~last)
            m.d.sync += last.eq(leaving == 2)
        late = self.skew if self.aligned else 0
        marks = _delay(m, "marks", Cat(valid, last), late, reset_less=False)
        m.d.comb += Cat(self.o_valid, self.o_last).eq(marks)
        return [_delay(m, f"load_{c}", load, c // self.reach) for c in range(self.columns)]
