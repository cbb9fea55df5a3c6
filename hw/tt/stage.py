"""The loop machine that walks one product of the chain, an issue slot at a time, and what its steps mean."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.place import Part

TILE_BITS, BLOCK_BITS, GROUP_BITS, LINE_BITS = 12, 10, 8, 7


def job_layout(*, held_bits: int, running_bits: int) -> data.StructLayout:
    """One product of one lookup. All counts are less one.

    tiles: result tiles. blocks, groups: tiles of one group of lines, groups of one row turn. lines: lines of a
    group. row_turns, rank_turns: 0, 1 or 3. held, running: where the two address pointers begin.
    """
    return data.StructLayout({
        "tiles": TILE_BITS, "blocks": BLOCK_BITS, "groups": GROUP_BITS, "lines": LINE_BITS,
        "row_turns": 2, "rank_turns": 2, "held": held_bits, "running": running_bits,
    })


class _Counter:
    """Counts down from a limit; `last` is a register that says zero, and `reload` starts over."""

    def __init__(self, m: Module, name: str, bits: int):
        self.value = Signal(bits, name=f"{name}_left")
        self.last = Signal(name=f"{name}_last")
        self.m = m

    def load(self, limit):
        self.m.d.sync += self.value.eq(limit)
        self.m.d.sync += self.last.eq(limit == 0)

    def step(self):
        self.m.d.sync += self.value.eq(self.value - 1)
        self.m.d.sync += self.last.eq(self.value == 1)


class LoopMachine(Part):
    """Runs a product's loops: rank turns, lines, blocks, groups, row turns, until all tiles are done.

    The held pointer walks the lines of a group over and over, once a block, and goes on to the next group; the
    running pointer walks all operands of a group's blocks and starts over at the next.

    Parameters  held_bits, running_bits: widths of the pointers
    Members     load, job      In  begins a job, also in the cycle in which the last slot is granted
                busy           Out  a slot is wanted
                go             In  the slot is granted
                held, running  Out  this slot's addresses
                row_turn, rank_turn  Out
                first, last    Out  of a tile's slots
                begin, ends    Out  first and last slot of the job
    Timing      one slot per cycle, also from job to job; no output depends on an input of the same cycle
    Reset       drops the job
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py
    """

    def __init__(self, *, held_bits: int, running_bits: int):
        self.held_bits = held_bits
        self.running_bits = running_bits
        super().__init__({
            "load": In(1),
            "job": In(job_layout(held_bits=held_bits, running_bits=running_bits)),
            "busy": Out(1),
            "go": In(1),
            "held": Out(held_bits),
            "running": Out(running_bits),
            "row_turn": Out(2),
            "rank_turn": Out(2),
            "first": Out(1),
            "last": Out(1),
            "begin": Out(1),
            "ends": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        limits = Signal(self.job.shape())
        tiles = _Counter(m, "tiles", TILE_BITS)
        blocks = _Counter(m, "blocks", BLOCK_BITS)
        groups = _Counter(m, "groups", GROUP_BITS)
        lines = _Counter(m, "lines", LINE_BITS)
        turn_last = Signal()
        row_last = Signal()
        group_start = Signal(self.held_bits)    # where the group's lines begin
        row_start = Signal(self.held_bits)      # where the row turn's groups begin

        line_end = turn_last
        tile_end = Signal()
        block_end = Signal()
        group_end = Signal()
        all_end = Signal()
        m.d.comb += [
            tile_end.eq(line_end & lines.last),
            block_end.eq(tile_end & blocks.last),
            group_end.eq(block_end & groups.last),
            all_end.eq(group_end & row_last),
            self.last.eq(tile_end),
            self.ends.eq(tile_end & tiles.last),
        ]

        onward = Signal(self.held_bits)
        m.d.comb += onward.eq(self.held + 1)

        with m.If(self.go):
            m.d.sync += self.begin.eq(0)
            m.d.sync += self.first.eq(tile_end)
            m.d.sync += self.running.eq(Mux(block_end, limits.running, self.running + 1))
            # Rank turns are the fastest loop.
            with m.If(line_end):
                m.d.sync += self.rank_turn.eq(0)
                m.d.sync += turn_last.eq(limits.rank_turns == 0)
            with m.Else():
                m.d.sync += self.rank_turn.eq(self.rank_turn + 1)
                m.d.sync += turn_last.eq(self.rank_turn + 1 == limits.rank_turns)
            with m.If(tile_end):
                lines.load(limits.lines)
                tiles.step()
            with m.Elif(line_end):
                lines.step()
            with m.If(block_end):
                blocks.load(limits.blocks)
            with m.Elif(tile_end):
                blocks.step()
            with m.If(group_end):
                groups.load(limits.groups)
            with m.Elif(block_end):
                groups.step()
            with m.If(all_end):
                m.d.sync += self.row_turn.eq(0)
                m.d.sync += row_last.eq(limits.row_turns == 0)
            with m.Elif(group_end):
                m.d.sync += self.row_turn.eq(self.row_turn + 1)
                m.d.sync += row_last.eq(self.row_turn + 1 == limits.row_turns)
            # The held pointer: on, back to the group, on to the next group, back to the row turn's first.
            with m.If(all_end):
                m.d.sync += self.held.eq(onward)
                m.d.sync += group_start.eq(onward)
                m.d.sync += row_start.eq(onward)
            with m.Elif(group_end):
                m.d.sync += self.held.eq(row_start)
                m.d.sync += group_start.eq(row_start)
            with m.Elif(block_end):
                m.d.sync += self.held.eq(onward)
                m.d.sync += group_start.eq(onward)
            with m.Elif(tile_end):
                m.d.sync += self.held.eq(group_start)
            with m.Elif(line_end):
                m.d.sync += self.held.eq(onward)
            with m.If(self.ends):
                m.d.sync += self.busy.eq(0)

        with m.If(self.load):
            tiles.load(self.job.tiles)
            blocks.load(self.job.blocks)
            groups.load(self.job.groups)
            lines.load(self.job.lines)
            m.d.sync += [
                limits.eq(self.job),
                self.busy.eq(1),
                self.begin.eq(1),
                self.first.eq(1),
                self.row_turn.eq(0),
                self.rank_turn.eq(0),
                turn_last.eq(self.job.rank_turns == 0),
                row_last.eq(self.job.row_turns == 0),
                Cat(self.held, group_start, row_start).eq(Cat(*[self.job.held] * 3)),
                self.running.eq(self.job.running),
            ]
        return m


def _columns(columns_log2, bits: int) -> list:
    """Which sub-dot bits stand for columns, low to high; the low one is the first to."""
    return [columns_log2 != 0, columns_log2 == 2][:bits]


def job_of(job, plan) -> list:
    """Assigns to a job what a descriptor has for a middle or last product."""
    columns = _columns(plan.columns_log2, len(plan.ranks))

    def turns(mine):
        """Less one: column bits, of those that are rows or ranks, whose place in the line time has to take."""
        return Cat(Cat(mine).any(), Cat(mine).all() if len(mine) == 2 else Const(0, 1))

    return [
        job.tiles.eq(plan.tiles),
        job.blocks.eq(plan.blocks),
        job.groups.eq(plan.groups),
        job.lines.eq(plan.lines),
        job.row_turns.eq(turns([is_column & ~rank for is_column, rank in zip(columns, plan.ranks, strict=True)])),
        job.rank_turns.eq(turns([is_column & rank for is_column, rank in zip(columns, plan.ranks, strict=True)])),
    ]


def roles(slot, columns_log2, ranks, machine: LoopMachine) -> list:
    """Assigns to a slot what the bits of a sub-dot number stand for: rows, columns, ranks."""
    columns = _columns(columns_log2, len(ranks))
    rows = Cat(~is_column & ~rank for is_column, rank in zip(columns, ranks, strict=True))
    if len(ranks) == 1:
        turn = Mux(ranks, machine.rank_turn, machine.row_turn)
    else:
        # Of two turning bits of one kind the high one turns faster.
        low, high = (Mux(rank, machine.rank_turn, machine.row_turn) for rank in ranks)
        both = columns[1] & (ranks[0] == ranks[1])
        turn = Cat(Mux(both, low[1], low[0]), high[0])
    return [
        slot.columns.eq(Cat(columns)),
        slot.rows.eq(rows),
        slot.turn.eq(turn),
    ]
