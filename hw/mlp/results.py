"""What becomes of the rows of results: addends, activation, and their way to the memories."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.fp.add import Add
from hw.isa.mlp import ADDEND, TARGET
from hw.mlp.config import MlpConfig
from hw.mlp.destinations import STORED, Destinations, choose, delayed, destination_layout
from hw.mlp.records import result_layout, store_layout, tile_layout
from hw.mlp.store import addends_layout, rows_layout
from hw.mlp.units import ComputeUnits
from hw.place import Part, place
from hw.stream.fifo import Fifo

ADDEND_LATENCY = 4      # cycles from a line of addends to its words
READ = ADDEND_LATENCY   # cycles from a row's turn to its words' way out of the queue; one more to the adder
ADDED = READ + 1 + len(Add.CUTS)
NOTHING = 1 << 31       # -0, which leaves every sum as it is


def _bits(values: int) -> int:
    return max(1, (values - 1).bit_length())


class ResultLane(Part):
    """One word of a row: waits, takes its addend, is activated.

    Parameters  depth: words that wait
    Members     i       In
                write   In  `i` is written in the next cycle
                to      In  its place
                at      In  the place that leaves
                addend  In  a cycle behind `at`
                plain   In  with `addend`: there is none
                load    In  ADDED - READ cycles behind `at`: the sum goes to `o`
                zero    In  with `load`: as +0
                relu    In  with `load`: as +0 if it is negative
                o       Out
    Reset       nothing to reset
    """

    def __init__(self, *, depth: int):
        self.depth = depth
        bits = _bits(depth)
        super().__init__({
            "i": In(32), "write": In(1), "to": In(bits), "at": In(bits), "addend": In(32), "plain": In(1),
            "load": In(1), "zero": In(1), "relu": In(1), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        waiting = memory.Memory(shape=32, depth=self.depth, init=[], attrs={"ram_style": "distributed"})
        m.submodules.waiting = waiting
        write, read = waiting.write_port(), waiting.read_port(domain="comb")
        add = Add()
        place(m, platform, "add", add)
        came, x, o = (Signal(32, name=name, reset_less=True) for name in ("came", "x", "held"))
        nothing = Signal()
        m.d.comb += [
            write.addr.eq(self.to),
            write.data.eq(came),
            write.en.eq(self.write),
            read.addr.eq(self.at),
            add.x.eq(x),
            add.y.eq(Mux(self.plain, NOTHING, self.addend)),
            nothing.eq(self.zero | (self.relu & add.o[31])),
            self.o.eq(o),
        ]
        m.d.sync += came.eq(self.i)
        m.d.sync += x.eq(read.data)
        with m.If(self.load):
            m.d.sync += o.eq(Mux(nothing, 0, add.o))
        return m


class ResultUnit(Part):
    """The lanes of one unit, with the places of the words that wait: equal registers of four units would become one.

    Parameters  columns: lanes; depth: words that wait
    Members     i        In  a row's words
                came     In  with `i`: there is a row
                leave    In  a row's turn to leave
                plain    In  a cycle behind `leave`: there is no addend
                addends, load, zero, relu  In  as of ResultLane, in every lane
                o        Out
    Timing      a row enters a cycle behind `came`; its words are at the adders two cycles behind `leave`
    Reset       drops what waits
    """

    def __init__(self, *, columns: int, depth: int):
        self.columns, self.depth = columns, depth
        words = data.ArrayLayout(32, columns)
        super().__init__({
            "i": In(words), "came": In(1), "leave": In(1), "plain": In(1), "addends": In(words), "load": In(1),
            "zero": In(columns), "relu": In(1), "o": Out(words)})

    def elaborate(self, platform):
        m = Module()
        came, leave, plain = (Signal(name=f"{name}_now") for name in ("came", "leave", "plain"))
        to = Signal(_bits(self.depth))
        at = Signal(_bits(self.depth))
        m.d.sync += [
            came.eq(self.came),
            leave.eq(self.leave),
            plain.eq(self.plain),
            to.eq(to + came),
            at.eq(at + leave),
        ]
        for c in range(self.columns):
            lane = ResultLane(depth=self.depth)
            place(m, platform, f"lane_{c}", lane)
            m.d.comb += [
                lane.i.eq(self.i[c]),
                lane.write.eq(came),
                lane.to.eq(to),
                lane.at.eq(at),
                lane.addend.eq(self.addends[c]),
                lane.plain.eq(plain),
                lane.load.eq(self.load),
                lane.zero.eq(self.zero[c]),
                lane.relu.eq(self.relu),
                self.o[c].eq(lane.o),
            ]
        return m


class Results(Part):
    """Takes rows of dot products to where their tile says, with an addend and an activation.

    y[n] = f(dot[n] + addend[n]), f: identity or ReLU; of an interaction the pairs below the diagonal, one behind the
    other.                                              Source: SCRec §III.E; Meta's DLRM (the interaction)

    Parameters  config: MlpConfig
    Members     i_tile_valid, i_tile  In  a tile, before its rows come, see `tile_layout`
                i_valid, i         In  a row of all units, see `result_layout`
                addend_read, addend_lines  Out  a line of addends of each unit; whose are needed
                addends            In  its words, ADDEND_LATENCY cycles later
                o_rows, o_addends  Out  writes, see hw.mlp.store
                o_store_valid, o_store  Out  a row for memory, see `store_layout`
                written            Out  a pulse per tile: all its writes are over, so that a slot in the next cycle
                    finds them
                idle               Out  no tile is inside
    Shapes      rows (units, columns) -> as many writes; in latency mode to the rows' memory, a write for every
    `groups_per_beat`
                units that have results, one per cycle
    Timing      with r the cycle of a row's turn: addend_lines r + 1, o_addends and o_store r + STORE, o_rows r + ROWS
                and on, `written` one cycle behind the last of those, for every target. A row's turn is as it comes, or
                when the one before has had a cycle for each of its writes
    Handshake   none: all is taken. Of rows with several writes (at most B = units / halves) some wait: a tile takes B
                slots a live row then and the next one's rows come as many cycles later, less the difference of live
                rows; so fewer than (B + 1) * rows wait, whatever follows, and for those there is room
    Numerics    golden.fp.fp32.add(dot, addend), golden.fp.fp32.maximum(sum, +0); bit-exact
    Reset       drops the tiles inside
    Golden      golden.mlp.results, verif.mlp.cycles      Tests  verif/mlp/test_results.py
    """

    STORE = ADDED + 1
    ROWS = STORE + 1

    def __init__(self, config: MlpConfig):
        self.config = config
        self.beats = config.units // config.groups_per_beat
        waiting = (self.beats + 1) * config.rows
        # A row leaves the queue READ cycles behind its turn, and enters it one behind its coming.
        self.depth = 1 << (waiting + READ).bit_length()
        # A tile takes `rows` slots or more; it is here from its last slot until its last row is on its way.
        inside = ComputeUnits(config).latency + 2 * config.rows + waiting + self.ROWS
        self.tiles = 1 << (inside // config.rows + 1).bit_length()
        words = data.ArrayLayout(data.ArrayLayout(32, config.columns), config.units)
        super().__init__({
            "i_tile_valid": In(1), "i_tile": In(tile_layout(config)),
            "i_valid": In(1), "i": In(result_layout(config)),
            "addend_read": Out(config.units),
            "addend_lines": Out(data.ArrayLayout(_bits(config.addend_lines), config.units)),
            "addends": In(words),
            "o_rows": Out(rows_layout(config)), "o_addends": Out(addends_layout(config)),
            "o_store_valid": Out(1), "o_store": Out(store_layout(config)),
            "written": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        there = Destinations(self.config, depth=self.tiles)
        place(m, platform, "destinations", there)
        turns = Fifo(data.StructLayout({
            "end": _bits(self.config.rows), "last_beat": _bits(self.beats), "plain": 1, "line_stride": 1, "partial": 1,
            "line": _bits(self.config.addend_lines), "lanes": self.config.samples}), depth=self.tiles)
        m.submodules.turns = turns
        self._take(m, there.i, turns.i)
        turn, plain = self._turn(m, turns.o)
        words = self._finish(m, platform, there, turn, plain)
        self._hand_out(m, there, words)

        inside = Signal(range(self.tiles + 1))
        busy = Signal()
        following = (inside + self.i_tile_valid - self.written)[:len(inside)]
        m.d.sync += inside.eq(following)
        m.d.sync += busy.eq((inside[1:] != 0) | self.i_tile_valid | (inside[0] & ~self.written))
        m.d.comb += self.idle.eq(~busy)
        return m

    def _take(self, m: Module, destination, turns) -> None:
        """A tile: what its rows ask for as their turn comes, and what as they leave, into a queue each."""
        config, tile = self.config, self.i_tile
        valid = Signal()
        there = Signal(destination_layout(config), reset_less=True)
        turn = Signal(turns.payload.shape(), reset_less=True)
        to_rows = Signal()
        last_unit = Signal(_bits(config.units))
        last_beat = Signal(_bits(self.beats))
        group_pieces = config.pieces // config.groups_per_beat
        distance = Signal(9)    # groups of rows from the tile's columns to its rows
        halves_log2 = (config.groups_per_beat - 1).bit_length()
        several = tile.latency & to_rows
        m.d.comb += [
            to_rows.eq((tile.target == TARGET.ROWS) | (tile.target == TARGET.FEATURE)),
            last_unit.eq(config.units - 1 - tile.idle_units),
            last_beat.eq(Mux(several, last_unit >> halves_log2, 0)),
            distance.eq(tile.group - (tile.block << 1)),
        ]
        shared = [name for name, _ in there.shape() if name in dict(tile.shape())]
        used = [Const(1), *(last_unit >= unit for unit in range(1, config.units))]
        m.d.sync += [
            valid.eq(self.i_tile_valid),
            *(there[name].eq(tile[name]) for name in shared),
            there.end.eq(tile.live - 1),
            there.rows.eq(to_rows),
            there.partial.eq(tile.target == TARGET.PARTIAL),
            there.memory.eq(tile.target == TARGET.MEMORY),
            there.last_beat.eq(last_beat),
            there.last_pieces.eq(Mux(
                tile.latency, group_pieces * ((last_unit & (config.groups_per_beat - 1)) + 1), group_pieces)),
            there.step.eq(Mux(tile.target == TARGET.PARTIAL, 1,
                              Mux(tile.triangle, tile.beat_lines, tile.row_lines))),
            there.near.eq(distance[0]),
            there.far.eq(distance[1:].any()),
            there.take.eq(tile.begin | ~tile.triangle),
            turn.end.eq(tile.live - 1),
            turn.last_beat.eq(last_beat),
            turn.plain.eq(tile.addend == ADDEND.NONE),
            turn.partial.eq(tile.addend == ADDEND.PARTIAL),
            turn.line_stride.eq((tile.addend == ADDEND.BIAS) & tile.latency),
            turn.line.eq(tile.addend_line),
            turn.lanes.eq(Mux(tile.latency, Cat(unit.replicate(config.rows) for unit in used), tile.lanes)),
        ]
        m.d.comb += [
            destination.valid.eq(valid),
            destination.payload.eq(there),
            turns.valid.eq(valid),
            turns.payload.eq(turn),
        ]

    def _turn(self, m: Module, turns):
        """Rows' turns: as many cycles each as it has writes to the rows' memory; with it goes the line of addends."""
        config = self.config
        tile = turns.payload
        # rows that wait for their turn
        level = Signal(range(self.depth + 1))
        some = Signal()
        # cycles that are the row's before
        left = Signal(_bits(self.beats))
        closed = Signal()
        turn = Signal()
        m.d.comb += turn.eq((some | self.i_valid) & ~closed)
        m.d.sync += [
            level.eq(level + self.i_valid - turn),
            some.eq((level[1:] != 0) | (level[0] & (self.i_valid | ~turn)) | (self.i_valid & ~turn)),
            left.eq(Mux(turn, tile.last_beat, left - 1)),
            closed.eq(Mux(turn, tile.last_beat != 0, closed & (left != 1))),
        ]
        row = Signal(_bits(config.rows))
        first = Signal(init=1)
        last = Signal()
        line = Signal(len(tile.line))
        following = Signal(len(tile.line), reset_less=True)
        m.d.comb += last.eq(row == tile.end)
        m.d.comb += turns.ready.eq(turn & last)
        m.d.comb += line.eq(Mux(first, tile.line, following))
        with m.If(turn):
            m.d.sync += row.eq(Mux(last, 0, row + 1))
            m.d.sync += first.eq(last)
            m.d.sync += following.eq(line + tile.partial)
        m.d.sync += [
            *(self.addend_read[u].eq(turn & ~tile.plain & tile.lanes.word_select(u, config.rows).bit_select(row, 1))
              for u in range(config.units)),
            *(self.addend_lines[u].eq(line + (Mux(tile.line_stride, u, 0) if u else 0)) for u in range(config.units)),
        ]
        return turn, tile.plain

    def _finish(self, m: Module, platform, there: Destinations, turn: Value, plain: Value):
        """The units' words, finished; held until the next row's are."""
        config = self.config
        leaves = delayed(m, "leaves", turn, READ - 1)
        m.d.comb += there.go.eq(delayed(m, "go", leaves, ADDED - 1 - READ))
        nothing = delayed(m, "plain", plain, READ)
        words = []
        for u in range(config.units):
            unit = ResultUnit(columns=config.columns, depth=self.depth)
            place(m, platform, f"unit_{u}", unit)
            m.d.comb += [
                unit.i.eq(self.i.words[u]),
                unit.came.eq(self.i_valid),
                unit.leave.eq(leaves),
                unit.plain.eq(nothing),
                unit.addends.eq(self.addends[u]),
                unit.load.eq(there.load[u]),
                unit.zero.eq(there.zero[u]),
                unit.relu.eq(there.relu[u]),
            ]
            words.append(list(unit.o))
        return words

    def _hand_out(self, m: Module, there: Destinations, words) -> None:
        config = self.config
        rows, addends, store = self.o_rows, self.o_addends, self.o_store
        m.d.comb += [
            addends.valid.eq(there.addends_valid),
            addends.units.eq(there.addends_units),
            addends.line.eq(there.addends_line),
            self.o_store_valid.eq(there.store_valid),
            *(store[name].eq(there.store[name]) for name in (*STORED, "row", "last")),
            rows.valid.eq(there.rows_valid),
            rows.lanes.eq(there.lanes),
            rows.banks.eq(there.banks),
            rows.lines.eq(there.lines),
            self.written.eq(there.written),
        ]
        for u in range(config.units):
            for c in range(config.columns):
                m.d.comb += addends.words[u][c].eq(words[u][c])
                m.d.comb += store.words[u][c].eq(words[u][c])

        # A bank's piece: of the beat that all units' words make together, or of the unit's own, as often as they fit.
        pieces, piece, groups_per_beat = config.pieces, config.piece, config.groups_per_beat
        row = [word for unit in words for word in unit]
        for k in range(config.words):
            bank, word = divmod(k, piece)
            source = [(bank - turn) % pieces * piece + word for turn in range(pieces)]
            beats = Signal(32, name=f"beats_{k}")
            m.d.comb += beats.eq(choose(Cat(there.turn[config.units], there.beat), [
                row[beat * config.words + at] for beat in range(self.beats) for at in source]))
            for u in range(config.units):
                own = source[:pieces // groups_per_beat]
                m.d.sync += rows.words[u][k].eq(Mux(there.shared[u], beats, choose(there.turn[u], [
                    words[u][at % config.columns] for at in own])))
