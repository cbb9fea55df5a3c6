"""Turns layers and interactions into slots for the arrays and tiles for what comes behind them."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.isa.mlp import TARGET
from hw.mlp.config import MlpConfig
from hw.mlp.interact_order import InteractOrder
from hw.mlp.layer_order import LayerOrder, order_layout
from hw.mlp.plan import SHORT_BITS, Planner, plan_layout, shared_layout
from hw.mlp.records import LayerJob, slot_layout, tile_layout
from hw.place import Part

TILE_BITS = 8       # of tiles under way: more than the core ever has
STALLS = ("rows", "weights", "in_flight", "write", "program")


class _State(NamedTuple):
    """What `Sequencer.elaborate` hands to other methods."""

    begin: Signal
    end: Signal
    under_way: Signal
    empty: Signal
    current: Signal
    shared: Signal


class _Orders(NamedTuple):
    """What `Sequencer._orders` hands on."""

    plan: Signal
    cutting: Signal
    unbegun: Signal
    emit: Signal
    new: Signal
    order: Signal
    first_free: Signal


class _Coming(NamedTuple):
    """What `Sequencer._queue` hands to other methods."""

    order: Any
    shared: Signal


class _Queue(NamedTuple):
    """What `Sequencer._queue` hands on."""

    valid_now: Signal
    take: Signal
    coming: _Coming
    padded: Signal


class _Verdict(NamedTuple):
    """What `Sequencer._may` hands on."""

    inside: Signal
    go: Signal


class Sequencer(Part):
    """Issues the slots of layers and interactions, one per cycle, and tells what becomes of each tile's results.

    Instruction by instruction: prepared while the one before is cut into tiles, cut into tiles while those of the one
    before are issued. Two tiles wait for the one that is issued, so that it can follow at once.
    Source: SCRec §III.A (the MLP core's instructions)

    Parameters  config: MlpConfig
    Members     i                 In(stream of LayerJob)
                rows_done, weights_done, layers_done  In  how many of each are done
                written           In  a pulse, a tile's results can be read by the slot of the next cycle
                room              In  for another tile on its way to memory
                valid, slot       Out  of slot_layout
                tile_valid, tile  Out  of tile_layout, with a tile's last slot
                reserve           Out  with the first slot of a tile for memory
                done              Out  with the last slot of an instruction
                number            Out  of the instruction that is issued
                stall             Out  why no slot went: at most one
                idle              Out  nothing is inside and all tiles are written
    Timing      a slot per cycle. The first slot comes 9 cycles after i. Before a tile lie as many cycles without
                a slot as its last slot needs to be behind the last one before it: rows; in latency mode the writes of
                its live rows; what the array needs after a tile of more live rows. From `layers_done` to the slot
                that waited for it 2 cycles
    Handshake   all outputs but `idle` come from registers; i.ready does; room has to count a `reserve` in the cycle
                after it, and does not count in its own
    Reset       drops everything
    Golden      golden.mlp.order, verif.mlp.cycles          Tests  verif/mlp/test_sequencer.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(LayerJob)),
            "rows_done": In(32), "weights_done": In(32), "layers_done": In(32), "written": In(1), "room": In(1),
            "reserve": Out(1),
            "valid": Out(1), "slot": Out(slot_layout(config)),
            "tile_valid": Out(1), "tile": Out(tile_layout(config)),
            "done": Out(1), "number": Out(32),
            "stall": Out(data.StructLayout(dict.fromkeys(STALLS, 1))), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        begin = Signal()       # a tile's first slot goes
        end = Signal()         # a tile's last slot does
        under_way = Signal(TILE_BITS)
        empty = Signal()       # no tile waits or is issued
        m.d.sync += under_way.eq(under_way + begin - self.written)

        current = Signal(data.StructLayout({"order": order_layout(config), "new": 1}), reset_less=True)
        shared = Signal(shared_layout(config), reset_less=True)
        state = _State(
            begin=begin, end=end, under_way=under_way, empty=empty, current=current, shared=shared)
        orders = self._orders(m, state)
        queue = self._queue(m, state, orders)
        issue = self._may(m, state, orders, queue)
        self._slots(m, state, queue, issue)
        return m

    def _orders(self, m: Module, state: _State) -> _Orders:
        """Cuts instructions into tiles, one every other cycle at most."""
        config = self.config
        m.submodules.planner = planner = Planner(config)
        m.submodules.layer = layer = LayerOrder(config)
        m.submodules.interact = interact = InteractOrder(config)
        plan = Signal(plan_layout(config), reset_less=True)
        # tiles are left; its first has not begun
        cutting = Signal()
        unbegun = Signal()
        settled = Signal()
        fresh = Signal(reset_less=True)
        emit = Signal()
        new = Signal()
        order = Signal(order_layout(config))
        load = Signal()
        first_free = Signal()
        wiring.connect(m, wiring.flipped(self.i), planner.i)
        m.d.comb += [
            order.eq(Mux(plan.interact, interact.o, layer.o)),
            emit.eq(cutting & settled & first_free),
            new.eq(fresh),
            load.eq(planner.valid & ~unbegun & (~cutting | (emit & order.final))),
            planner.taken.eq(load),
            self.idle.eq(planner.empty & ~cutting & ~unbegun & state.empty & (state.under_way == 0)),
        ]
        for part in (layer, interact):
            m.d.comb += [
                part.load.eq(load),
                part.next.eq(planner.plan),
                part.plan.eq(plan),
                part.step.eq(emit),
            ]
        m.d.sync += [
            settled.eq(cutting & ~emit & ~load),
            cutting.eq(load | (cutting & ~(emit & order.final))),
            unbegun.eq(load | (unbegun & ~(state.begin & state.current.new))),
            fresh.eq(load | (fresh & ~emit)),
        ]
        with m.If(load):
            m.d.sync += plan.eq(planner.plan)
        return _Orders(
            plan=plan, cutting=cutting, unbegun=unbegun, emit=emit, new=new, order=order,
            first_free=first_free)

    def _queue(self, m: Module, state: _State, orders: _Orders) -> _Queue:
        """Two tiles behind the one that is issued. Each place fills when it is empty: no path through all of them."""
        first, second = (Signal(state.current.shape(), name=name, reset_less=True) for name in ("first", "second"))
        first_valid = Signal()
        second_valid = Signal()
        valid_now = Signal()
        move = Signal()
        take = Signal()
        m.d.comb += [
            orders.first_free.eq(~first_valid),
            move.eq(first_valid & ~second_valid),
            take.eq(second_valid & (~valid_now | state.end)),
            state.empty.eq(~(first_valid | second_valid | valid_now)),
        ]
        m.d.sync += first_valid.eq(orders.emit | (first_valid & ~move))
        m.d.sync += second_valid.eq(move | (second_valid & ~take))
        m.d.sync += valid_now.eq(take | (valid_now & ~state.end))
        with m.If(move):
            m.d.sync += second.eq(first)
        with m.If(take):
            m.d.sync += state.current.eq(second)
            with m.If(second.new):
                m.d.sync += state.shared.eq(orders.plan.shared)
        # The tile that is taken, and what its instruction's have in common.
        coming = _Coming(order=second.order, shared=Signal(state.shared.shape(), name="coming_shared"))
        m.d.comb += coming.shared.eq(Mux(second.new, orders.plan.shared, state.shared))

        # Cycles from the last slot before to the last one of the tile, a step in each place; those that are then
        # without a slot. The tile before is the one that `first` held last, unless all of them have been written.
        live, spacing = first.order.live, first.order.spacing
        after = Signal(signed(len(live) + 2), reset_less=True)      # what the array needs
        least = Signal(max(len(spacing), len(after)), reset_less=True)
        missing = Signal(signed(max(len(least), SHORT_BITS + 1) + 1))
        pads = Signal(len(least), reset_less=True)
        padded = Signal(reset_less=True)
        m.d.comb += missing.eq(least - second.order.short)
        with m.If(orders.emit):
            m.d.sync += first.order.eq(orders.order)
            m.d.sync += first.new.eq(orders.new)
            m.d.sync += after.eq((live << 1) - orders.order.live)
        with m.Elif(self.idle):
            m.d.sync += live.eq(0)
        with m.If(move):
            m.d.sync += least.eq(Mux(after > spacing, after, spacing))
        with m.If(take):
            m.d.sync += pads.eq(missing)
            m.d.sync += padded.eq(missing[-1] | ~missing.any())
        with m.Elif(~padded):
            m.d.sync += pads.eq(pads - 1)
            m.d.sync += padded.eq(pads == 1)
        return _Queue(
            valid_now=valid_now, take=take, coming=coming, padded=padded)

    def _may(self, m: Module, state: _State, orders: _Orders, queue: _Queue) -> _Verdict:
        """Whether the tile that is next may begin, from registers and `room`."""
        plan, current, shared = orders.plan, state.current, state.shared
        missing = []
        for name in ("rows", "weights", "layers"):
            there, done = Signal(name=f"{name}_there", reset_less=True), getattr(self, f"{name}_done")
            m.d.sync += there.eq(done >= plan[f"wait_{name}"])
            missing.append(current.new & ~there)
        inside = Signal()
        go = Signal()
        may = Signal()
        memory = shared.target == TARGET.MEMORY
        # A tile of one slot may begin in the cycle before.
        full = memory & (~self.room | self.reserve)
        # In the order in which they are told.
        waits = [*missing, full]
        m.d.comb += may.eq(queue.padded & ~Cat(waits).any())
        m.d.comb += go.eq(queue.valid_now & (inside | may))
        m.d.comb += state.begin.eq(go & ~inside)
        with m.If(go):
            m.d.sync += inside.eq(~state.end)
        stopped = queue.valid_now & ~inside & queue.padded
        m.d.sync += [
            self.stall.program.eq(~queue.valid_now),
            *(self.stall[name].eq(stopped & wait & ~Cat(waits[:at]).any())
              for at, (name, wait) in enumerate(zip(STALLS, waits, strict=False))),
            self.reserve.eq(state.begin & memory),
        ]
        return _Verdict(inside=inside, go=go)

    def _slots(self, m: Module, state: _State, queue: _Queue, issue: _Verdict) -> None:
        """The slots of a tile, and its record."""
        config, order, shared = self.config, state.current.order, state.shared
        coming, coming_shared = queue.coming.order, queue.coming.shared
        slot, tile = self.slot, self.tile
        triangle = shared.triangle

        # -- Where the tile is: steps, banks of a beat, parts of a piece; with two slots a step which of them.
        left = Signal(16, reset_less=True)
        last = Signal(reset_less=True)
        part = Signal(len(slot.part), reset_less=True)
        bank, x_bank, y_bank = (Signal(len(slot.x_bank), name=name, reset_less=True)
                                for name in ("bank", "x_bank", "y_bank"))
        again = Signal()
        step = Signal()
        next_bank = Signal()
        next_beat = Signal()
        x_line = Signal(len(coming.x_line), reset_less=True)
        weight = Signal(len(coming.weight_line), reset_less=True)
        y_lines = [Signal(len(x_line), name=f"y_line_{k}", reset_less=True) for k in range(2)]
        m.d.comb += [
            step.eq(issue.go & (again | ~order.twice)),
            state.end.eq(step & last),
            next_bank.eq(step & (part == config.parts - 1)),
            next_beat.eq(next_bank & (bank == config.pieces - 1)),
        ]
        with m.If(issue.go):
            m.d.sync += again.eq(order.twice & ~again)
        with m.If(queue.take):
            m.d.sync += [
                left.eq(coming_shared.steps_less_one),
                last.eq(coming_shared.once),
                part.eq(0),
                bank.eq(0),
                x_bank.eq(coming.x_bank),
                y_bank.eq(coming.y_bank),
                x_line.eq(coming.x_line),
                weight.eq(coming.weight_line),
                *(line.eq(first) for line, first in zip(y_lines, coming.y_lines)),
            ]
        with m.Elif(step):
            m.d.sync += left.eq(left - 1)
            m.d.sync += last.eq(left == 1)
            m.d.sync += weight.eq(weight + 1)
            m.d.sync += part.eq(Mux(part == config.parts - 1, 0, part + 1))
            with m.If(next_bank):
                m.d.sync += bank.eq(bank + 1)
                m.d.sync += x_bank.eq(x_bank + 1)
                m.d.sync += y_bank.eq(y_bank + 1)
            with m.If(next_beat):
                m.d.sync += [line.eq(line + shared.hop) for line in (x_line, *y_lines)]

        # -- The slot. Columns' banks go before the rows', but for the slot that reads the rows alone.
        blank, keep = order.twice & ~again, order.twice & again
        y_next = (y_bank + 1)[:len(y_bank)]
        m.d.sync += [
            self.valid.eq(issue.go),
            slot.x_bank.eq(x_bank),
            slot.part.eq(part),
            slot.y_banks[0].eq(y_bank),
            slot.y_banks[1].eq(y_next),
            slot.weight_line.eq(weight),
            slot.source.eq(shared.source),
            slot.unit.eq(order.unit),
            slot.keep.eq(keep),
            slot.blank.eq(blank),
            slot.lanes.eq(order.lanes),
            slot.y_groups.eq(Mux(blank, 0, order.y_groups)),
            slot.y_own.eq(order.y_own),
            slot.idle_units.eq(order.idle_units),
            slot.first.eq(state.begin),
            slot.last.eq(state.end),
            slot.live.eq(order.live),
        ]
        for k in range(config.pieces):
            picks = [triangle & ~blank & (number == k) for number in (y_bank, y_next)]
            m.d.sync += slot.lines[k].eq(Mux(picks[0], y_lines[0], Mux(picks[1], y_lines[1], x_line)))

        # -- The tile.
        halves_log2 = (config.groups_per_beat - 1).bit_length()
        names = tile.shape().members
        m.d.sync += [
            self.tile_valid.eq(state.end),
            self.done.eq(state.end & order.final),
            self.number.eq(shared.number),
            *(tile[name].eq(source[name]) for source in (order, shared) for name in source.shape().members
              if name in names),
            tile.outs.eq(((~order.idle_units)[:len(order.idle_units)] >> halves_log2) + 1),
        ]
