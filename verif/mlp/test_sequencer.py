"""The MLP core's sequencer against golden.mlp.order and the cycle model: every slot, tile and cycle."""

from itertools import pairwise

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from golden.mlp.order import LATENCY, slot, tiles
from hw.isa.mlp import TARGET
from hw.mlp.config import MlpConfig
from hw.mlp.records import slot_layout
from hw.mlp.sequencer import Sequencer
from verif.bench import report, reset, rng, start
from verif.bench.pack import layout_of, metadata
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.mlp.cycles import STALLS
from verif.mlp.cycles import Sequencer as Model

SIZES = {
    "tiny": {"units": 2, "rows": 2, "width": 2, "words": 8, "row_lines": 256, "weight_lines": 512,
             "addend_lines": 256},
    "smartssd": {"units": 4, "rows": 4, "width": 4, "words": 16, "row_lines": 1024, "weight_lines": 4096,
                 "addend_lines": 2048},
    "screc": {"units": 4, "rows": 8, "width": 1, "words": 16, "row_lines": 1024, "weight_lines": 4096,
              "addend_lines": 2048},
    # As many halves of a beat as units; banks of pieces that hold a beat of the array each.
    "groups_per_beat": {"units": 4, "rows": 2, "width": 4, "words": 16, "row_lines": 64, "weight_lines": 64,
               "addend_lines": 32},
}
REST = {"lut_products": 0, "reads_in_flight": 8, "writes_in_flight": 8, "program_beats": 16, "load_beats": 32,
        "output_beats": 32, "staged_tiles": 8}


def layer(r, shape, number, **fields):
    """A LAYER of a few tiles; fields not given are drawn."""
    mode = fields.get("mode", r.randrange(2))
    width = shape.units if mode == LATENCY else shape.groups_per_beat
    return {
        "interact": 0, "mode": mode, "addend": r.randrange(3), "target": r.randrange(4),
        "activation": r.randrange(3),
        "count": r.choice([1, r.randint(1, shape.samples), r.randint(1, 3 * shape.samples), shape.samples]),
        "row_beats": r.randrange(1 << 12), "features": r.randrange(256), "feature": r.randrange(256),
        "line": r.randrange(1 << 16), "line_stride": r.randrange(1 << 16),
        "steps": r.choice([1, 2, 3, r.randint(1, 40), 2 * shape.pieces * shape.parts]),
        "groups": r.choice([1, width, width + 1, r.randint(1, 3 * width + 2)]),
        "weight_line": r.randrange(1 << 16), "last_columns": r.randint(1, shape.columns),
        "addend_line": r.randrange(1 << 16), "to_line": r.randrange(1 << 16), "to_line_stride": r.randrange(1 << 16),
        "out": r.randrange(1 << 32), "out_stride": r.randrange(1 << 32),
        "wait_rows": 0, "wait_weights": 0, "wait_layers": 0, "number": number, **fields,
    }


def interact(r, shape, number, **fields):
    rows = shape.rows
    return layer(r, shape, number, **{
        "interact": 1, "features": r.choice([2, rows, rows + 1, 2 * rows + 1, r.randint(2, 5 * rows)]),
        "row_beats": r.choice([1, 1, 2, 3]), "count": r.randint(1, shape.samples + 2), **fields})


def doubled(r, shape, number):
    """An interaction some of whose tiles have two slots a step."""
    return interact(r, shape, number, features=(shape.pieces + 1) * shape.rows + 1, row_beats=1, count=1)


def draw(r, shape, number, **fields):
    return (interact if r.random() < 0.2 else layer)(r, shape, number, **fields)


class Bench:
    """Unit and model side by side, with what stands around them: loads, results, room."""

    def __init__(self, dut, *, random, offer=None, room=None, loads=0.0, done=(0, 0, 0),
                 delay=lambda: 30):
        self.dut = dut
        self.shape = shape_of_unit()
        self.model = Model(self.shape)
        self.random, self.offer, self.room, self.loads, self.delay = random, offer, room, loads, delay
        self.layouts = {name: layout_of(name) for name in ("slot", "tile", "i__payload")}
        self.cycle, (self.rows, self.weights, self.layers) = 0, done
        self.due = []           # cycles in which results are written, and whether they are their instruction's last
        self.slots, self.tiles, self.at = 0, 0, []      # at: (cycle, tile) of each tile's last slot
        self.begins, self.taken_at = [], []
        self.stalls = dict.fromkeys((*STALLS, ""), 0)

    async def begin(self):
        start(self.dut)
        self.drive(None, False, True)
        await reset(self.dut)

    def drive(self, item, written, room):
        dut = self.dut
        dut.i__valid.value = item is not None
        if item is not None:
            dut.i__payload.value = self.layouts["i__payload"].pack(item)
        dut.written.value, dut.room.value = written, room
        dut.rows_done.value, dut.weights_done.value, dut.layers_done.value = self.rows, self.weights, self.layers

    async def run(self, items, cycles=None, limit=200_000):
        """Until all is done, or for some cycles."""
        waiting = list(items)
        edge = RisingEdge(self.dut.clk)
        most = max((item[name] for item in items for name in ("wait_rows", "wait_weights")), default=0)
        offered = None
        for _ in range(limit if cycles is None else cycles):
            if offered is None and waiting and (self.offer is None or next(self.offer)):
                offered = waiting[0]
            written = bool(self.due) and self.due[0][0] <= self.cycle
            final = written and self.due.pop(0)[1]
            room = self.room is None or next(self.room)
            self.drive(offered, written, room)
            await edge
            self.compare()
            ready = self.model.ready
            self.model.step(item=offered, rows_done=self.rows, weights_done=self.weights, layers_done=self.layers,
                            written=written, room=room)
            self.cycle += 1
            self.layers += final
            if offered is not None and ready:
                waiting.pop(0)
                offered = None
                self.taken_at.append(self.cycle)
            # A third of the loads may come unasked; the others are waited for, so that either wait comes about.
            stall, draw = self.model.stall, self.random.random()
            for kind in ("rows", "weights"):
                done = getattr(self, kind)
                chance = 1 if stall == kind else 0.01 if done < most // 3 else 0
                setattr(self, kind, done + (done < most and draw < self.loads * chance))
            if cycles is None and not waiting and offered is None and self.model.idle and self.model.slot is None:
                return
        assert cycles is not None, f"{len(waiting)} instructions left after {limit} cycles"

    def compare(self):
        """What the unit shows in this cycle."""
        dut, model = self.dut, self.model
        self.same("i.ready", dut.i__ready, model.ready)
        self.same("valid", dut.valid, model.slot is not None)
        self.same("tile_valid", dut.tile_valid, model.tile is not None)
        self.same("reserve", dut.reserve, model.reserve)
        self.same("done", dut.done, model.done)
        self.same("idle", dut.idle, model.idle)
        if self.cycle:
            self.same("stall", dut.stall, 1 << STALLS.index(model.stall) if model.stall else 0)
            self.stalls[model.stall] += 1
        if model.number >= 0:
            self.same("number", dut.number, model.number)
        if model.slot is not None:
            self.record("slot", dut.slot, slot(self.shape, *model.slot))
            self.slots += 1
            if model.slot[1] == 0:
                self.begins.append(self.cycle)
        if model.tile is not None:
            self.record("tile", dut.tile, model.tile.fields)
            self.at.append((self.cycle, model.tile))
            self.tiles += 1
            self.due.append((max(self.cycle + self.delay(), self.due[-1][0] + 1 if self.due else 0),
                             model.tile.final))

    def same(self, name, signal, want):
        got = int(signal.value)
        assert got == want, f"cycle {self.cycle}: {name} is {got}, not {int(want)}"

    def record(self, name, signal, want):
        layout, got = self.layouts[name], int(signal.value)
        if got != layout.pack(want):
            got = layout.unpack(got)
            wrong = {field: (got[field], value) for field, value in want.items() if got[field] != value}
            raise AssertionError(f"cycle {self.cycle}: {name} differs: {wrong}; {want}")

    def distances(self):
        """The arrays' rule: rows of a tile leave before those of the next come. And how many rows of latency mode
        tiles wait, at most, until the writes before are through."""
        before = None
        free, most = 0, 0
        writes = self.shape.units // self.shape.groups_per_beat
        for cycle, tile in self.at:
            if before is not None:
                spacing = cycle - before[0]
                assert spacing >= max(before[1].live, 2 * before[1].live - tile.live), (spacing, before, tile)
            before = cycle, tile
            came = cycle + tile.live
            free = max(free, came) + tile.live * (writes if tile.fields["latency"] else 1)
            most = max(most, free - came)
        assert most <= 2 * self.shape.rows * writes, most


def config(name):
    return MlpConfig(**SIZES[name], **REST)


def shape_of_unit():
    """The sizes that the unit was built with, told by its records' widths."""
    ports = metadata()["ports"]
    return next(size for size in map(config, SIZES) if slot_layout(size).size == ports["slot"]["width"])


@cocotb.test()
async def smoke(dut):
    """A layer to each target in each mode and an interaction: every slot, every tile record, every cycle."""
    bench = Bench(dut, random=rng("smoke"))
    await bench.begin()
    r = rng("smoke items")
    items = [layer(r, bench.shape, number, mode=number % 2, target=number // 2) for number in range(8)]
    items.append(interact(r, bench.shape, 8))
    await bench.run(items)
    assert bench.tiles == sum(len(list(tiles(bench.shape, item))) for item in items)


@cocotb.test()
async def random_match_golden(dut):
    """Layers and interactions of any mode, addend, target and size back to back, their waits mostly over in
    time, on four shapes of core: every output in every cycle against golden, and the arrays' own rule for the
    distance of tiles."""
    r = rng("random")
    bench = Bench(dut, random=r, loads=0.3, delay=lambda: r.randint(20, 40))
    await bench.begin()
    loads = 0
    items = []
    for number in range(120):
        loads += r.randrange(2)
        items.append(draw(r, bench.shape, number, wait_rows=r.choice([0, loads]), wait_weights=r.choice([0, loads]),
                          wait_layers=r.choice([0, number, r.randint(0, number)])))
    await bench.run(items)
    bench.distances()
    report(tiles=bench.tiles, slots=bench.slots, cycles=bench.cycle, stalls=bench.stalls)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Instructions, loads and results that are late and room that is rare: every kind of wait comes about, is told and
    ends in its cycle."""
    r = rng("waits")
    bench = Bench(dut, random=r, offer=bursty(r, 100), room=sometimes(0.15, r), loads=0.05,
                  delay=lambda: r.choice([3, 20, 80]))
    await bench.begin()
    items = [draw(r, bench.shape, number, wait_rows=number // 3, wait_weights=number // 4,
                  wait_layers=max(0, number - r.choice([0, 0, 1, 2, 5]))) for number in range(60)]
    await bench.run(items)
    bench.distances()
    assert all(bench.stalls[name] > 0 for name in STALLS), bench.stalls


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The first slot after 9 cycles, then a slot every cycle across tiles and instructions; tiles of one step at their
    least distance; two cycles from `layers_done` to the instruction that waits for it."""
    r = rng("rate")
    bench = Bench(dut, random=r)
    await bench.begin()
    shape = bench.shape
    writes = shape.units // shape.groups_per_beat
    long = max(shape.rows * writes, 2 * shape.rows)
    items = [layer(r, shape, number, steps=long, count=2 * shape.samples, groups=shape.units)
             for number in range(6)]
    items += [interact(r, shape, 6, features=3 * shape.rows, row_beats=2, count=shape.samples)]
    items += [layer(r, shape, 7, mode=0, steps=max(shape.rows, 2), count=8 * shape.samples, groups=1)]
    await bench.run(items)
    assert bench.begins[0] - bench.taken_at[0] == 8     # shown in the ninth cycle
    span = bench.at[-1][0] - bench.begins[0] + 1
    assert span == bench.slots, f"{span} cycles for {bench.slots} slots"
    # Tiles of a single step: the least distance, which is not made longer by what lies between instructions.
    short = Bench(dut, random=r)
    await reset(dut)
    items = [layer(r, shape, number, steps=1, count=8 * shape.samples, groups=2 * shape.units, mode=number % 2)
             for number in range(4)]
    await short.run(items)
    for (last, _), (cycle, tile) in pairwise(short.at):
        assert cycle - last == max(shape.rows, shape.rows * writes if tile.fields["latency"] else 0)
    # Every instruction waits for the one before: a cycle after the last of its results is written that one is done.
    await reset(dut)
    alone = Bench(dut, random=r, delay=lambda: 40)
    await alone.run([layer(r, shape, number, groups=1, count=1, steps=9, wait_layers=number) for number in range(4)])
    assert [after - before[0] for before, after in zip(alone.at, alone.begins[1:], strict=False)] == [43] * 3


@cocotb.test()
async def reset_midstream(dut):
    """A reset in any phase drops instructions and tiles; what comes behind it is whole and counts from the
    beginning."""
    r = rng("reset")
    bench = Bench(dut, random=r, loads=0.2)
    await bench.begin()
    for number in range(12):
        await bench.run([draw(r, bench.shape, k, wait_layers=r.choice([0, k])) for k in range(8)],
                        cycles=r.randint(1, 90))
        dut.i__valid.value = 0
        await reset(dut, 1 + number % 2)
        bench = Bench(dut, random=r, loads=0.2)
        await bench.run([draw(r, bench.shape, k, wait_layers=r.choice([0, k])) for k in range(3)])


@cocotb.test()
@pytest.mark.testpoint("reset_between_the_slots_of_a_step")
async def reset_between_the_slots_of_a_step(dut):
    """A reset after the first and after the second slot of a step of two: what comes behind, interactions included,
    begins anew and is whole."""
    r = rng("groups_per_beat")
    bench = Bench(dut, random=r)
    await bench.begin()
    for number in range(12):
        await bench.run([doubled(r, bench.shape, number)], cycles=1)
        left = r.randint(1, 3)
        for _ in range(4000):
            await bench.run([], cycles=1)
            tile, at = bench.model.slot or (None, 0)
            left -= tile is not None and tile.twice and at % 2 == number % 2
            if not left:
                break
        assert not left, "no step of two slots was reached"
        dut.i__valid.value = 0
        await reset(dut, 1 + number // 2 % 2)
        bench = Bench(dut, random=r)
        await bench.run([doubled(r, bench.shape, 0), draw(r, bench.shape, 1)])
        bench = Bench(dut, random=r)
        await reset(dut)


@cocotb.test()
async def corner_values(dut):
    """One step, one sample, one group, longest dot product, counts and groups around whole groups and beats, features
    around whole groups, banks that clash, fields at their greatest."""
    r = rng("corners")
    bench = Bench(dut, random=r, delay=lambda: 25)
    await bench.begin()
    shape = bench.shape
    items = []
    for mode in (0, 1):
        for count in {1, shape.rows, shape.rows + 1, shape.samples - 1, shape.samples, shape.samples + 1}:
            for groups in {1, shape.groups_per_beat, shape.groups_per_beat + 1, shape.units - 1 or 1, shape.units,
                           shape.units + 1}:
                items.append(layer(r, shape, len(items), mode=mode, count=count, groups=groups, steps=1))
        items.append(layer(r, shape, len(items), mode=mode, steps=63, groups=1, count=shape.samples,
                           wait_layers=len(items)))
        items.append(layer(r, shape, len(items), mode=mode, steps=64, groups=1, count=1))
        items.append(layer(r, shape, len(items), mode=mode, steps=1, groups=70, count=1))
        items.append(layer(r, shape, len(items), mode=mode, steps=1, groups=1, count=40 * shape.samples + 1))
        everything = (1 << 16) - 1
        items.append(layer(r, shape, len(items), mode=mode, target=TARGET.ROWS, count=1, line=everything,
                           line_stride=everything,
                           to_line=everything, to_line_stride=everything, weight_line=everything,
                           addend_line=everything,
                           wait_rows=0, out=(1 << 32) - 1, out_stride=(1 << 32) - 1, feature=255))
    # Tiles of one slot to memory, and one that begins behind the last as soon as room for it can be told.
    items += [layer(r, shape, len(items) + at, mode=0, steps=steps, groups=1, count=8 * shape.samples,
                    target=TARGET.MEMORY) for at, steps in enumerate((1, 64))]
    items.append(layer(r, shape, len(items), steps=(1 << 12) - 1, groups=1, count=1, last_columns=1))
    rows = shape.rows
    for features in {2, rows, rows + 1, 2 * rows, 2 * rows + 1, 2 * rows + 2, 3 * rows + 1, 4 * rows + 1, 5 * rows}:
        for count in (1, shape.samples + 1):
            items.append(interact(r, shape, len(items), features=features, count=count, row_beats=1))
    items.append(interact(r, shape, len(items), features=255 if rows == 8 else 17 * rows, count=1, row_beats=1))
    items.append(interact(r, shape, len(items), features=2, count=1, row_beats=500))
    await bench.run(items)
    bench.distances()
    # Counts of what is done, and numbers of instructions, in all of their 32 bits.
    most = 1 << 32
    for rows, weights, layers in (((1 << 16) - 3, (1 << 31) - 3, (1 << 16) - 3),
                                  ((1 << 31) - 2, (1 << 16) - 2, (1 << 31) - 3), (most - 8, most - 9, most - 8)):
        await reset(dut)
        bench = Bench(dut, random=r, loads=0.3, done=(rows, weights, layers))
        await bench.run([layer(r, shape, (1 << 32) - 1 - number, count=1, groups=1, steps=1, wait_rows=rows + number,
                               wait_weights=weights + (number + 1) // 2, wait_layers=layers + number)
                         for number in range(7)])


@pytest.mark.parametrize("size", one_of(["tiny", "smartssd", "screc", "groups_per_beat"]))
@pytest.mark.parametrize("number", seeds())
def test_mlp_sequencer(number, size):
    simulate(Sequencer(config(size)), "verif.mlp.test_sequencer", name=f"mlp_sequencer_{size}", tests=7, seed=number)
