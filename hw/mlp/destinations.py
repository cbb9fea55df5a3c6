"""Where rows of results go: contexts of the tiles, masks, lines and banks, and the packing of triangles."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import APART
from hw.mlp.config import MlpConfig
from hw.mlp.records import store_layout
from hw.place import Part
from hw.stream.fifo import Fifo

STORED = ("out", "stride", "half", "fills", "sigmoid", "latency", "unit", "outs", "lanes", "columns", "idle_units",
          "number")


def _bits(values: int) -> int:
    return max(1, (values - 1).bit_length())


def destination_layout(config: MlpConfig) -> data.StructLayout:
    """What the destination of a tile's rows is made of, besides the members of `tile_layout` under their names.

    end: number of the last live row; last_beat: of a row that takes several, one per cycle;
    last_pieces: of that beat; step: lines from a row to the next, with triangle from a beat to the next; near: with
    triangle, the tile's first feature as a row less its first as a column is 0 or `rows`, and far: is more; take: the
    first row begins at `line`, else where the tile before ended.
    """
    line = max(_bits(config.row_lines), _bits(config.addend_lines))
    store = store_layout(config)
    return data.StructLayout({
        "end": _bits(config.rows), "relu": 1, "rows": 1, "partial": 1, "memory": 1,
        "last_beat": _bits(config.units // config.groups_per_beat), "last_pieces": range(config.pieces + 1),
        "line": line, "step": line, "beat_lines": line, "start": _bits(config.pieces), "fixed": 1,
        "bank": _bits(config.rows), "triangle": 1, "near": 1, "far": 1, "take": 1,
        **{name: store[name].shape for name in STORED},
    })


def choose(select: Value, values: Sequence[Value]) -> Value:
    """values[select]; their number is a power of two."""
    if len(values) == 1:
        return values[0]
    half, top = len(values) // 2, (len(values) - 1).bit_length() - 1
    return Mux(select[top], choose(select[:top], values[half:]), choose(select[:top], values[:half]))


def _sum(a: Value, b: Value) -> Value:
    """a + b of few bits, without a carry chain: one follows."""
    total, carry = [], Const(0, 1)
    for k in range(max(len(a), len(b))):
        x, y = (value[k] if k < len(value) else Const(0, 1) for value in (a, b))
        total.append(x ^ y ^ carry)
        carry = (x & y) | (carry & (x ^ y))
    return Cat(*total, carry)


def delayed(m: Module, name: str, valid: Value, cycles: int) -> Value:
    """A mark as it was `cycles` ago; none after a reset."""
    line = Signal(cycles, name=name)
    m.d.sync += line.eq(Cat(valid, line[:-1]))
    return line[-1]


def _like(layout: data.StructLayout, names: tuple[str, ...], **more) -> data.StructLayout:
    return data.StructLayout({**{name: layout[name].shape for name in names}, **more})


class Destinations(Part):
    """Says of each row of results which words count and where it goes.

    Parameters  config: MlpConfig
    Members     i           In(stream of destination_layout)  the tiles in the order of their rows
                go          In  a row comes, of a row of `last_beat` beats as many cycles before the next; GO is its
                    cycle
                load        Out  GO + 2, per unit: the row's words are there
                relu, zero  Out  GO + 2: which of them become +0
                store_valid, store, addends_valid, addends_units, addends_line  Out  GO + 3, a write of a whole row
                shared      Out  GO + 3, per unit: its words are beat `beat` of all units' words, else its own, turned
                    by `turn`
                beat        Out  GO + 3
                turn        Out  GO + 3, in pieces, said to each unit and once more
                rows_valid, lanes, banks, lines  Out  GO + 4, a write to the rows' memory
                written     Out  GO + 5, a tile is done
    Timing      as above; a row per cycle. A triangle's piece begins where the row before ended, also in the
                cycle before
    Handshake   none: a row's tile has to be in the queue when it comes; `depth` of them fit
    Reset       drops the tiles
    Golden      golden.mlp.results      Tests  verif/mlp/test_results.py
    """

    def __init__(self, config: MlpConfig, *, depth: int):
        self.config = config
        self.depth = depth
        self._layout = destination_layout(config)
        line = _bits(config.row_lines)
        super().__init__({
            "i": In(stream.Signature(self._layout)),
            "go": In(1),
            "load": Out(config.units), "relu": Out(config.units),
            "zero": Out(data.ArrayLayout(config.columns, config.units)),
            "store_valid": Out(1), "store": Out(_like(self._layout, STORED, row=_bits(config.rows), last=1)),
            "addends_valid": Out(1), "addends_units": Out(config.units),
            "addends_line": Out(_bits(config.addend_lines)),
            "beat": Out(_bits(config.units // config.groups_per_beat)), "shared": Out(config.units),
            "turn": Out(data.ArrayLayout(_bits(config.pieces), config.units + 1)),
            "rows_valid": Out(1), "lanes": Out(config.samples), "banks": Out(config.pieces),
            "lines": Out(data.ArrayLayout(line, config.pieces)),
            "written": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        a = self._count(m)
        b = self._follow(m, *a)
        self._whole(m, *b)
        self._beats(m, *b)
        return m

    def _count(self, m: Module):
        """The row's number in its tile, and how many columns of it count."""
        config, rows, units = self.config, self.config.rows, self.config.units
        m.submodules.tiles = tiles = Fifo(self._layout, depth=self.depth)
        wiring.connect(m, wiring.flipped(self.i), tiles.i)
        tile = tiles.o.payload
        row = Signal(_bits(rows))
        first = Signal(init=1)
        last = Signal()
        m.d.comb += last.eq(row == tile.end)
        m.d.comb += tiles.o.ready.eq(self.go & last)
        with m.If(self.go):
            m.d.sync += row.eq(Mux(last, 0, row + 1))
            m.d.sync += first.eq(last)

        layout = _like(self._layout, tuple(name for name, _ in self._layout if name not in ("end", "near", "far")),
                       row=_bits(rows), last=1, exist=units)
        o, valid = Signal(layout, name="counted", reset_less=True), Signal(name="counted_valid")
        # Columns are two groups of rows: of a tile on the diagonal as many count as rows lie above.
        above = Cat(row, tile.near)
        columns = Signal(range(config.columns + 1))
        pieces = Signal(range(config.pieces + 1))
        m.d.comb += columns.eq(config.columns)
        m.d.comb += pieces.eq(config.columns // config.piece)
        with m.If(~tile.far):
            m.d.comb += columns.eq(above)
            with m.Switch(above):
                for number in range(config.columns):
                    with m.Case(number):
                        m.d.comb += pieces.eq(-(-number // config.piece))
        exist = Cat(tile.lanes.word_select(u, rows).bit_select(row, 1) & (~tile.latency | (tile.unit == u))
                    for u in range(units))
        m.d.sync += [
            valid.eq(self.go),
            *(o[name].eq(tile[name]) for name, _ in layout
              if name not in ("row", "last", "exist", "columns", "last_pieces", "take")),
            o.columns.eq(Mux(tile.triangle, columns, tile.columns)),
            o.last_pieces.eq(Mux(tile.triangle, pieces, tile.last_pieces)),
            o.take.eq(first & tile.take),
            o.row.eq(row),
            o.last.eq(last),
            o.exist.eq(exist),
        ]
        return valid, o

    def _follow(self, m: Module, valid, a):
        """Line and first bank of the row, from where the row before left them; which words count."""
        config, units, pieces = self.config, self.config.units, self.config.pieces
        line_bits = len(a.line)
        kept = a.last_pieces
        next_line = Signal(line_bits, reset_less=True)
        next_bank = Signal(_bits(pieces), reset_less=True)
        line = Signal(line_bits)
        bank = Signal(_bits(pieces))
        m.d.comb += line.eq(Mux(a.take, a.line, next_line))
        m.d.comb += bank.eq(Mux(a.triangle & ~a.take, next_bank, a.start))
        beyond = _sum(bank, kept)   # below 2 * pieces
        with m.If(valid):
            # A triangle's row goes to another line only as it ends a beat.
            m.d.sync += next_line.eq(line + Mux(~a.triangle | beyond[len(bank)], a.step, 0))
            m.d.sync += next_bank.eq(beyond[:len(bank)])

        layout = _like(self._layout, (
            "rows", "partial", "memory", "last_beat", "line", "beat_lines", "bank", "fixed", "triangle",
            "start", *STORED), row=len(a.row), last=1, exist=units, kept=pieces,
            zero=data.ArrayLayout(config.columns, units))
        o, late = Signal(layout, name="followed", reset_less=True), Signal(name="followed_valid")
        passed = [name for name, _ in layout if name not in ("line", "start", "kept", "zero")]
        m.d.sync += [
            late.eq(valid),
            *(o[name].eq(a[name]) for name in passed),
            o.line.eq(line),
            o.start.eq(bank),
            o.kept.eq(Cat(kept.matches(*range(k + 1, pieces + 1)) for k in range(pieces))),
        ]
        for u in range(units):
            # One behind the other, all units but the last have all their columns, and those behind it none.
            before, after = Signal(name=f"before_{u}"), Signal(name=f"after_{u}")
            m.d.comb += before.eq(a.latency & a.idle_units.matches(*range(units - 1 - u)))
            m.d.comb += after.eq(a.latency & a.idle_units.matches(*range(units - u, units)))
            m.d.sync += o.zero[u].eq(Cat(after | (~before & a.columns.matches(*range(c + 1)))
                                         for c in range(config.columns)))
            load, relu = (Signal(name=f"{name}_{u}", attrs=APART) for name in ("load", "relu"))
            m.d.sync += load.eq(valid)
            m.d.sync += relu.eq(a.relu)
            m.d.comb += self.load[u].eq(load)
            m.d.comb += self.relu[u].eq(relu)
        m.d.comb += self.zero.eq(o.zero)
        return late, o

    def _whole(self, m: Module, valid, b) -> None:
        """What takes the row as it is: memory, partials."""
        units = self.config.units
        m.d.sync += [
            self.store_valid.eq(valid & b.memory),
            self.addends_valid.eq(valid & b.partial),
            *(self.store[name].eq(b[name]) for name in (*STORED, "row", "last")),
            self.addends_line.eq(b.line),
            self.addends_units.eq(Mux(
                b.latency, Cat(b.idle_units.matches(*range(units - u)) for u in range(units)), b.exist)),
        ]

    def _beats(self, m: Module, valid, b) -> None:
        """The row's beats, one per cycle: lines, banks and rows of the memory."""
        config, rows, pieces = self.config, self.config.rows, self.config.pieces
        # done: with the beat, the tile is; other targets take one cycle as well
        busy = Signal()
        done = Signal()
        beat = Signal(_bits(config.units // config.groups_per_beat), reset_less=True)
        end = Signal.like(beat, reset_less=True)
        ends, last, wraps = (Signal(name=name, reset_less=True) for name in ("ends", "last", "wraps"))
        shared = [Signal(name=f"shared_{u}", reset_less=True, attrs=APART) for u in range(config.units)]
        turns = [Signal(_bits(pieces), name=f"turn_{u}", reset_less=True, attrs=APART) for u in range(config.units + 1)]
        turn = turns[-1]
        line, after, line_stride = (Signal(len(b.line), name=name, reset_less=True) for name in ("line", "after",
                                                                                                 "line_stride"))
        lanes = Signal(config.samples, reset_less=True)
        banks = Signal(pieces, reset_less=True)
        is_rows = Signal(reset_less=True)
        row = Mux(b.fixed, b.bank, b.row)
        with m.If(valid):
            m.d.sync += [
                beat.eq(0),
                end.eq(b.last_beat),
                ends.eq(b.last_beat == 0),
                last.eq(b.last),
                is_rows.eq(b.rows),
                wraps.eq(b.triangle),
                *(one.eq(b.latency) for one in shared),
                *(one.eq(b.start) for one in turns),
                line.eq(b.line),
                after.eq(b.line + b.beat_lines),
                line_stride.eq(b.beat_lines),
                lanes.eq(Cat(b.exist[lane // rows] & (row == lane % rows) for lane in range(config.samples))),
                # Banks of the last beat.
                banks.eq(Cat(choose(b.start, [b.kept[(k - first) % pieces] for first in range(pieces)])
                             for k in range(pieces))),
            ]
        with m.Else():
            m.d.sync += [
                beat.eq(beat + 1),
                ends.eq((beat + 1)[:len(beat)] == end),
                line.eq(after),
                after.eq(after + line_stride),
            ]
        m.d.sync += busy.eq(valid | (busy & ~ends))
        m.d.comb += [
            self.beat.eq(beat),
            self.turn.eq(Cat(turns)),
            self.shared.eq(Cat(shared)),
            done.eq(busy & ends & last),
        ]
        m.d.sync += [
            self.rows_valid.eq(busy & is_rows & (~ends | banks.any())),
            self.lanes.eq(lanes),
            self.banks.eq(Mux(ends, banks, ~0)),
            *(self.lines[k].eq(Mux(wraps & turn.matches(*range(k + 1, pieces)), after, line)) for k in range(pieces)),
        ]
        m.d.comb += self.written.eq(delayed(m, "done", done, 2))
