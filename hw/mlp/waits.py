"""Whether an instruction waits for all that it has to wait for."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory

from hw.fp.logic import named
from hw.isa import MLP, WORD_BITS
from hw.isa.mlp import WINDOW
from hw.mlp.config import MlpConfig
from hw.mlp.stretches import Stretches, depths, stretch_layout, used_layout

FIELDS = ("wait_rows", "wait_weights", "wait_layers")     # by engine, and by detail of BAD_ORDER and EARLY
ROWS, PARAMETERS, LAYERS = range(len(FIELDS))
FAR = WINDOW + 1        # a number of instructions: more than WINDOW


class Waits:
    """Compares the lines that an instruction uses with those of the instructions before it that it does not wait for.

    Engines carry instructions out in their order, so what one of them waits for need not be waited for again: of each
    pair of engines that share a memory it is known how many instructions of the one the next of the other may not find
    done, FAR at most. The lines of the last WINDOW instructions of each engine are in block memory, whose LUTs cost
    more here than blocks do; it is read an instruction per cycle, and a stretch of a load is compared with one or two
    of a LAYER or an INTERACT; one that the latter reads with the one that another LAYER or INTERACT writes. An engine's
    queue holds as many instructions as WINDOW, so that waiting for what lies further back, as has to be, costs next to
    nothing.

    The comparison is off the way of the instruction, which has been handed on meanwhile: the next one is decoded, but
    neither handed on nor refused before the comparison ends. An engine may have begun what is refused then; the run
    ends all the same.

    Adds itself to `m`, as a part of a program's checks: nothing of it is wide enough to be placed by itself.
    Source: golden.mlp.program.Waits

    Parameters  m: the module; config: MlpConfig; item: the instruction; stretches: its lines; number: its own; start:
                of a run; engines: a bit for each engine, whose it is; sent: it is handed on
    Members     early: a bit for each of FIELDS, it waits for more than stands before it: a cycle after it is there, and
                while it stands; blocked: none may be handed on; settling: one that was is still looked at; found: it is
                refused, for a cycle; code, detail, instruction: why
    Timing      an instruction is compared from the cycle behind `sent` on, or 7 cycles after it came if that is later;
                with n others that takes n + 4 cycles, none without any, and ends with `found`. In the last one the next
                can be handed on
    Reset       forgets everything
    """

    def __init__(self, m: Module, config: MlpConfig, item, stretches: Stretches, *, number: Value, start: Value,
                 engines: Value, sent: Value):
        self.blocked, self.settling, self.found = (
            Signal(name=f"waits_{name}") for name in ("blocked", "settling", "found"))
        self.early = Signal(len(FIELDS))
        before = [Signal(32, name=f"before_{name}", reset_less=True) for name in FIELDS]
        pending = self._pending(m, item, before, start=start, engines=engines, sent=sent)

        # The one that is compared, from when it has been handed on.
        of = Signal(data.StructLayout({"number": 32, "word": WORD_BITS, "engines": len(FIELDS)}), name="compared",
                    reset_less=True)
        handed, recorded, begin, shares = (
            Signal(name=f"waits_{name}") for name in ("handed", "recorded", "begin", "shares"))
        with m.If(sent):
            m.d.sync += of.number.eq(number)
            m.d.sync += of.word.eq(item.as_value()[:WORD_BITS])
            m.d.sync += of.engines.eq(engines)
        m.d.comb += begin.eq(handed & (stretches.known | recorded))
        overlapping = Signal(name="waits_overlapping")
        m.d.comb += shares.eq(stretches.found | overlapping)
        m.d.sync += handed.eq(sent | (handed & ~begin))
        m.d.sync += recorded.eq((stretches.known | recorded) & ~begin)
        m.d.sync += overlapping.eq(shares & ~begin)

        # -- One instruction per cycle, the latest first; LAYERS: of rows, of parameters, then of its own.
        walking = Signal(name="waits_walking")
        against = Signal(range(len(FIELDS)), name="waits_against", reset_less=True)
        left = Signal(range(FAR + 1), name="waits_left", reset_less=True)
        at = Signal(range(WINDOW), name="waits_at", reset_less=True)
        is_layer = of.engines[LAYERS]
        # How many of each engine there are to compare with, and where the last of them is; of its own not itself.
        some, counts, places = Signal(len(FIELDS), name="waits_some"), [], []
        for engine in range(len(FIELDS)):
            count = pending[LAYERS, engine]
            if engine == LAYERS:
                count = Mux(is_layer, count, Mux(of.engines[ROWS], pending[ROWS, LAYERS], pending[PARAMETERS, LAYERS]))
            counts.append(count)
            places.append(before[engine] - (is_layer if engine == LAYERS else 0))
            m.d.comb += some[engine].eq((count != 0) & (is_layer | (engine == LAYERS)))
        ahead = Signal(len(FIELDS), name="waits_ahead")         # of these, those that come next
        m.d.comb += ahead.eq(Mux(begin, some, Mux(walking, some & Cat(0, against == ROWS, against != LAYERS), 0)))
        with m.If(begin | (walking & (left == 1))):
            m.d.sync += walking.eq(ahead.any())
            for engine in reversed(range(len(FIELDS))):
                with m.If(ahead[engine]):
                    m.d.sync += against.eq(engine)
                    m.d.sync += left.eq(counts[engine])
                    m.d.sync += at.eq(places[engine])
        with m.Elif(walking):
            m.d.sync += left.eq(left - 1)
            m.d.sync += at.eq(at - 1)
        last = Signal(name="waits_last")
        m.d.comb += last.eq(walking & (left == 1) & ~ahead.any())
        clash = self._compare(m, config, stretches.used, before, of=of, write=begin, against=against, at=at)

        # -- What is found out comes 4 cycles later; of one that shares lines with itself as well.
        alone = begin & shares
        asked = Signal(data.StructLayout(
            {"valid": 1, "far": 1, "against": range(len(FIELDS)), "last": 1, "shares": 1}), name="asked")
        stages = [asked, *(Signal.like(asked, name=f"asked_{at}") for at in range(1, 4))]
        asked_now = stages[-1]
        m.d.sync += [
            asked.valid.eq(walking),
            asked.far.eq(left == FAR),
            asked.against.eq(against),
            asked.last.eq(last | (alone & ~some.any())),
            asked.shares.eq(alone),
            *(after.eq(stage) for stage, after in pairwise(stages)),
        ]
        hits = Signal(data.StructLayout({"engines": len(FIELDS), "shares": 1}), name="hits")
        at_work = [Cat(stage.valid, stage.last, stage.shares).any() for stage in stages]
        hit = asked_now.valid & (clash | asked_now.far)
        now = Signal.like(hits, name="hits_now")
        m.d.comb += [
            now.engines.eq(hits.engines | (hit << asked_now.against)),
            now.shares.eq(hits.shares | asked_now.shares),
            self.found.eq(asked_now.last & now.as_value().any()),
            self.blocked.eq(handed | walking | Cat(at_work[:-1]).any()),
            self.settling.eq(self.blocked | at_work[-1]),
        ]
        m.d.sync += hits.eq(Mux(asked_now.last, 0, now))
        self.code = Mux(now.shares, MLP.code("BAD_INSTRUCTION"), MLP.code("EARLY"))
        self.detail = Mux(now.shares, of.word, Mux(now.engines[ROWS], ROWS, Mux(
            now.engines[PARAMETERS], PARAMETERS, LAYERS)))
        self.instruction = of.number

    def _pending(self, m: Module, item, before: list[Signal], *, start: Value, engines: Value,
                 sent: Value) -> dict[tuple[int, int], Signal]:
        """By engine and engine that it waits for: how many instructions of the latter the one of the former that is
        handed on may not find done."""
        gaps = []
        for engine, (name, count) in enumerate(zip(FIELDS, before, strict=True)):
            gap = Signal(33, name=f"gap_{name}", reset_less=True)
            wide = Signal(name=f"gap_{name}_wide", reset_less=True)
            low = gap[:FAR.bit_length()]
            m.d.sync += gap.eq(count - item[name])
            m.d.sync += wide.eq(gap[len(low):].any())
            m.d.comb += self.early[engine].eq(gap[-1])
            gaps.append((low, wide))
            with m.If(start):
                m.d.sync += count.eq(0)
            with m.Elif(sent & engines[engine]):
                m.d.sync += count.eq(count + 1)
        pending = {}
        for engine, other in ((ROWS, LAYERS), (PARAMETERS, LAYERS), *((LAYERS, other) for other in range(len(FIELDS)))):
            gap, wide = gaps[other]
            count = pending[engine, other] = Signal(range(FAR + 1), name=f"pending_{engine}_{other}", reset_less=True)
            # Of its own engine, the one before comes to those that were not found done there.
            fewer = gap <= count if engine == other else gap < count
            with m.If(start):
                m.d.sync += count.eq(0)
            with m.Elif(sent & engines[engine] & ~wide & fewer):
                m.d.sync += count.eq(gap)
            with m.Elif(sent & engines[other] & (count != FAR)):
                m.d.sync += count.eq(count + 1)
        return pending

    def _compare(self, m: Module, config: MlpConfig, used, before: list[Signal], *, of, write: Value, against: Value,
                 at: Value) -> Value:
        """Whether the instruction shares lines with the one of the engine `against` that is read: 4 cycles later."""
        kept, is_layer = used_layout(config), of.engines[LAYERS]
        names = {ROWS: ("rows", "loaded"), PARAMETERS: ("weights", "addends"),
                 LAYERS: ("rows", "weights", "addends", "written", "to_addends", "made")}
        read = {}
        for engine, own in names.items():
            layout = data.StructLayout({name: kept[name].shape for name in own})
            store = memory.Memory(shape=layout, depth=2 * WINDOW, init=[], attrs={"ram_style": "block"})
            m.submodules[f"used_{FIELDS[engine][5:]}"] = store
            port, out = store.write_port(), store.read_port()
            place = before[engine][:len(at)]
            # What a LAYER reads lies beside the loads as well: for when it is compared with others of its engine.
            beside = is_layer if engine != LAYERS else Const(0)
            m.d.comb += [
                port.en.eq(write & (of.engines[engine] | beside)),
                port.addr.eq(Cat(place, beside)),
                *(port.data[name].eq(used[name]) for name in own),
                out.addr.eq(Cat(Mux(against == engine, at, place), beside & (against == LAYERS))),
            ]
            read[engine] = out.data
        loaded, layer = read[PARAMETERS], read[LAYERS]
        # The load that is compared, or in its place what a LAYER reads.
        of_loaded, of_own = (Signal(name=name, reset_less=True) for name in ("of_loaded_rows", "of_own"))
        m.d.sync += of_loaded.eq((against == ROWS) | of.engines[ROWS])
        m.d.sync += of_own.eq(is_layer & (against == LAYERS))
        is_rows = named(m, "of_rows", Mux(of_own, ~layer.to_addends, of_loaded))
        bits = depths(config)
        stretch = stretch_layout(config, max(bits))
        load, reads, writes = (Signal(stretch, name=f"{name}_stretch", reset_less=True)
                               for name in ("load", "read", "written"))
        for to, of_rows, of_addends, of_weights in (
                (load, read[ROWS].rows, loaded.addends, loaded.weights), (reads, layer.rows, layer.addends,
                                                                         layer.weights)):
            for field in ("first", "lines", "there"):
                m.d.sync += to[field].eq(Mux(is_rows, of_rows[field], Mux(
                    loaded.addends.there, of_addends[field], of_weights[field])))
        with m.If(of_own):
            m.d.sync += reads.there.eq(0)
        m.d.sync += writes.first.eq(layer.written.first)
        m.d.sync += writes.lines.eq(layer.written.lines)
        m.d.sync += writes.there.eq(layer.written.there & Mux(
            is_rows, ~layer.to_addends, layer.to_addends & loaded.addends.there))
        mask = Signal(max(bits), name="lines_mask", reset_less=True)
        masks = [(1 << depth) - 1 for depth in bits]
        m.d.sync += mask.eq(Mux(is_rows, masks[0], Mux(loaded.addends.there, masks[2], masks[1])))
        # A layer's feature among others that are loaded, where they begin at the same line.
        rows, made = read[ROWS].loaded, layer.made
        others = Signal(name="among_others", reset_less=True)
        m.d.sync += others.eq(of_loaded & made.there & rows.others.bit_select(made.feature, 1)
                              & (made.stride == rows.stride) & (made.beats <= rows.beats))
        clashes = []
        for other in (reads, writes):
            name = "reads" if other is reads else "writes"
            there = Signal(name=f"{name}_there", reset_less=True)
            far: list[Value] = []
            for begin, end in ((other, load), (load, other)):
                way = Signal(max(bits), name=f"{name}_way_{len(far)}", reset_less=True)
                lines = Signal.like(begin.lines, name=f"{name}_lines_{len(far)}", reset_less=True)
                m.d.sync += way.eq((end.first - begin.first)[:len(way)] & mask)
                m.d.sync += lines.eq(begin.lines)
                far.append(way < lines)
            among = others & (((writes.first ^ load.first) & mask) == 0)
            m.d.sync += there.eq(other.there & ~among if other is writes else other.there)
            clashes.append(there & (far[0] | far[1]))
        clash = Signal(name="waits_clash", reset_less=True)
        m.d.sync += clash.eq(clashes[0] | clashes[1])
        return clash
