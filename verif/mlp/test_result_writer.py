"""The MLP core's result writer against its cycle model, and against what should be in memory."""

import os
from collections import deque
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.fp import fp32
from hw.mlp.result_writer import ResultWriter
from verif.bench import reset, rng, seed, start
from verif.bench.memory import base
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.mlp.bench import TINY
from verif.mlp.cycles import ResultWriter as Model
from verif.mlp.cycles import Row

CONFIGS = {
    "tiny": replace(TINY, units=4, rows=4, width=2, words=16, output_beats=32, staged_tiles=8),
    # A beat from every unit's row; staged in block memory.
    "whole": replace(TINY, units=4, rows=4, width=2, words=8, output_beats=16, staged_tiles=32),
    # A beat of four units' rows, no runs of several samples; as many places as there can be too few.
    "wide": replace(TINY, units=4, rows=2, width=4, words=16, output_beats=16, staged_tiles=4),
}
CONFIG = CONFIGS[os.environ.get("OUTLET", "tiny")]
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SPECIAL = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x33800000, 0x3F800000, 0x42AEAC4F, 0x42AEAC50, 0x42B00000, 0x43000000, 0x7F7FFFFF,
    0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)


def draw(random, shape):
    """Words that a sigmoid tells apart, and some that are special."""
    usual = fp32.bits((random.standard_normal(shape) * 8).astype(np.float32))
    return np.where(random.random(shape) < 0.1, random.choice(SPECIAL, shape), usual)


def layer(random, *, latency=None, count=None, groups=None, sigmoid=None, stride=None, out=None, last_columns=None):
    """The tiles of a layer that writes to memory, each a list of rows, and the beats that it leaves there, by their
    place in the outputs. None: drawn."""
    units, rows, columns, groups_per_beat = CONFIG.units, CONFIG.rows, CONFIG.columns, CONFIG.groups_per_beat
    latency = bool(random.integers(2)) if latency is None else latency
    sigmoid = random.random() < 0.25 if sigmoid is None else sigmoid
    count = int(random.integers(1, 3 * CONFIG.samples)) if count is None else count
    groups = int(random.integers(1, 2 * max(groups_per_beat, units) + 1)) if groups is None else groups
    last_columns = int(random.integers(1, columns + 1)) if last_columns is None else last_columns
    beats = -(-groups // groups_per_beat)
    stride = beats + int(random.integers(3)) * int(random.integers(1 << 16)) if stride is None else stride
    out = int(random.integers(1 << 24)) if out is None else out
    words = draw(random, (count, groups, columns))
    words[:, -1, last_columns:] = 0
    done = fp32.bits(fp32.sigmoid(words)) if sigmoid else words.copy()
    done[:, -1, last_columns:] = 0
    image = np.zeros((count, beats * groups_per_beat, columns), np.uint32)
    image[:, :groups] = done
    image = image.reshape(count, beats, groups_per_beat * columns)
    memory = {out + i * stride + q: image[i, q].tolist() for i in range(count) for q in range(beats)}

    tiles = []
    sample_groups = -(-count // (rows * units))
    if not latency:
        for q in range(beats):
            for s in range(sample_groups):
                here = min(rows * units, count - s * rows * units)
                for half in range(min(groups_per_beat, groups - q * groups_per_beat)):
                    group = q * groups_per_beat + half
                    fills = half == min(groups_per_beat, groups - q * groups_per_beat) - 1
                    tile = []
                    for row in range(min(rows, here)):
                        lanes = draw(random, (units, columns))
                        for unit in range(units):
                            lane = unit * rows + row
                            if lane < here:
                                lanes[unit] = words[s * rows * units + lane, group]
                        tile.append(Row(
                            row=row, last=row == min(rows, here) - 1, out=out + s * rows * units * stride + q,
                            stride=stride, count=here, words=lanes.tolist(), half=half, fills=fills, sigmoid=sigmoid,
                            columns=last_columns if group == groups - 1 else columns, unit=int(random.integers(units)),
                            outs=int(random.integers(units // groups_per_beat + 1)),
                            idle_units=int(random.integers(units))))
                    tiles.append(tile)
        return tiles, memory
    for turn in range(-(-groups // units)):
        live_units = min(units, groups - turn * units)
        for s in range(sample_groups):
            for unit in range(units):
                first = (s * units + unit) * rows
                live = min(rows, count - first)
                for row in range(max(live, 0)):
                    # Units without a group bring what they like.
                    lanes = draw(random, (units, columns))
                    lanes[:live_units] = words[first + row, turn * units:turn * units + live_units]
                    if row == 0:
                        tiles.append([])
                    tiles[-1].append(Row(
                        row=row, last=row == live - 1,
                        out=out + s * rows * units * stride + turn * units // groups_per_beat,
                        stride=stride, count=int(random.integers(CONFIG.samples + 1)), words=lanes.tolist(),
                        half=0, fills=True, sigmoid=sigmoid, latency=True, unit=unit,
                        outs=-(-live_units // groups_per_beat), idle_units=units - live_units,
                        columns=last_columns if turn * units + live_units == groups else columns))
    return tiles, memory


class Bench:
    """The writer between tiles that keep to their reservations and a port; everything it shows is judged in every
    cycle."""

    def __init__(self, dut, *, flow=always, requests=always, data=always, distance=20):
        self.dut = dut
        self.model = Model(CONFIG)
        dut.outputs.value = self.base = base("outputs")
        self.layout = layout_of("i")
        self.flow, self.patterns, self.distance = flow(), (requests(), data()), distance
        self.requests, self.beats, self.rows_at, self.data_at = [], [], [], []
        self.cycle = 0
        self.most = 0       # tiles reserved and not yet in

    @classmethod
    async def begin(cls, dut, **arguments):
        start(dut)
        dut.i_valid.value = dut.reserve.value = 0
        await reset(dut)
        return cls(dut, **arguments)

    def _pack(self, row):
        mode = {name: int(getattr(row, name)) for name in ("row", "last", "out", "stride", "half", "fills", "sigmoid",
                                                           "latency", "unit", "outs", "columns", "idle_units")}
        if row.latency:
            lanes = ((1 << row.row + 1) - 1) << row.unit * CONFIG.rows
        else:
            lanes = (1 << row.count) - 1
        return self.layout.pack({**mode, "words": row.words, "lanes": lanes, "number": self.cycle & 0xFFFF})

    async def run(self, tiles, *, until=None, cycles=100_000):
        """Sends the tiles and waits until all is quiet, or for `until` cycles."""
        dut, model = self.dut, self.model
        edge = RisingEdge(dut.clk)
        to_reserve, coming = deque(tiles), deque()
        stop = self.cycle + (cycles if until is None else until)
        quiet = 0
        while quiet < 3:
            if self.cycle >= stop:
                assert until is not None, f"not done after {cycles} cycles"
                return
            # A tile is reserved while there is room, and comes row by row some time later.
            reserve = bool(to_reserve) and model.room and next(self.flow)
            if reserve:
                tile = to_reserve.popleft()
                coming.extend((self.cycle + self.distance, row) for row in tile)
            self.most = max(self.most, sum(row.last for _, row in coming))
            row = None
            if coming and coming[0][0] <= self.cycle and next(self.flow):
                row = coming.popleft()[1]
                self.rows_at.append(self.cycle)
            dut.reserve.value = reserve
            dut.i_valid.value = row is not None
            dut.i.value = rng(f"{self.cycle}").getrandbits(self.layout.width) if row is None else self._pack(row)
            ready = [next(pattern) for pattern in self.patterns]
            dut.o_requests__ready.value, dut.o_data__ready.value = ready
            await edge
            shown = [int(dut.room.value), int(dut.idle.value), int(dut.o_requests__valid.value),
                     int(dut.o_data__valid.value)]
            want = [model.room, model.idle, model.request is not None, model.data]
            assert shown == [int(value) for value in want], (
                f"cycle {self.cycle}: room, idle, request, data are {shown}, expected {want}")
            if model.request is not None:
                address, beats = model.request
                got = layout_of("o_requests__payload").unpack(int(dut.o_requests__payload.value))
                assert got == {"address": self.base + address * CONFIG.beat_bytes, "beats": beats}, (
                    f"cycle {self.cycle}: request {got}, expected {address:#x}, {beats}")
            taken = [model.request is not None and ready[0], model.data and ready[1]]
            if taken[0]:
                self.requests.append(model.request)
            if taken[1]:
                value = int(dut.o_data__payload.value)
                self.beats.append([value >> 32 * k & 0xFFFFFFFF for k in range(CONFIG.words)])
                self.data_at.append(self.cycle)
            model.step(row, reserve, request_taken=taken[0], data_taken=taken[1])
            self.cycle += 1
            quiet = quiet + 1 if not to_reserve and not coming and shown[1] else 0

    def judge(self, memory):
        """Requests and beats leave exactly this in memory, each place written once."""
        places = [address + k for address, beats in self.requests for k in range(beats)]
        assert len(places) == len(self.beats) == len(set(places)) == len(memory), (
            len(places), len(self.beats), len(set(places)), len(memory))
        got = dict(zip(places, self.beats, strict=True))
        for place, want in memory.items():
            assert got.get(place) == want, f"beat {place:#x}: {got.get(place)}, expected {want}"


def several(random, total, **fixed):
    """Layers one behind the other, some with their second sample in the upper half of all places."""
    tiles, memory = [], {}
    at, far = int(random.integers(1 << 29)), (1 << 31) + int(random.integers(1 << 30))
    while len(memory) < total:
        apart = {"count": 2, "stride": far} if random.random() < 0.25 else {}
        more, image = layer(random, out=at, **apart, **fixed)
        tiles += more
        memory |= image
        at = max(place for place in image if place < far) + 1 + int(random.integers(100))
    return tiles, memory


@cocotb.test()
async def smoke(dut):
    """One layer of each mode, plain and with the sigmoid."""
    random = np.random.default_rng(1)
    for latency in (False, True):
        for sigmoid in (False, True):
            bench = await Bench.begin(dut)
            tiles, memory = layer(random, latency=latency, count=5, groups=3, sigmoid=sigmoid, stride=7)
            await bench.run(tiles)
            bench.judge(memory)


@cocotb.test()
async def random_match_golden(dut):
    """Layers of any size, mode, stride and tail: every output in every cycle as the model's, and every beat once in
    its place."""
    random = np.random.default_rng(seed("layers"))
    bench = await Bench.begin(dut)
    tiles, memory = several(random, 1500 if REGRESS else 300)
    await bench.run(tiles)
    bench.judge(memory)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Rows and reservations that pause, a port slow to take requests, beats or both; a port that takes nothing: as
    many tiles as there is room for, none more."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    rare, common = (lambda: sometimes(0.15, pauses)), (lambda: bursty(pauses))
    for flow, requests, data, distance in ((common, common, common, 5), (always, rare, always, 40),
                                           (always, always, rare, 1), (always, common, rare, 13)):
        bench = await Bench.begin(dut, flow=flow, requests=requests, data=data, distance=distance)
        tiles, memory = several(random, 250 if REGRESS else 100)
        await bench.run(tiles)
        bench.judge(memory)
    # A port that takes nothing for long: as many tiles are reserved as there is room for, then none.
    bench = await Bench.begin(dut, data=lambda: never(400), requests=lambda: never(300), distance=1000)
    tiles, memory = layer(random, latency=True, count=40 * CONFIG.rows, groups=1, sigmoid=False)
    await bench.run(tiles, until=600)
    assert bench.most == max(2, CONFIG.staged_tiles // CONFIG.groups_per_beat), bench.most


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Seven cycles from a tile's last row to its first beat, six at most from that of the tile which it waits for; a
    beat a cycle across all tiles that are staged, in runs and sample by sample; a word through the sigmoid in nine
    cycles."""
    random = np.random.default_rng(seed("rate"))
    samples, groups_per_beat = CONFIG.samples, CONFIG.groups_per_beat
    # A tile that shares its place with the one before still has to find one free.
    staged = max(2, CONFIG.staged_tiles // groups_per_beat) - (groups_per_beat > 1)
    for latency, groups, tiles_each in ((False, groups_per_beat, 1), (True, CONFIG.units, 1), (False,
                                                                                               2 * groups_per_beat, 2)):
        if staged < tiles_each:
            continue
        for stride in (groups // groups_per_beat, 10 * groups):
            per_sample = CONFIG.units // groups_per_beat if latency else 1
            each = CONFIG.rows if latency else samples      # samples of what fills one place
            run = stride == per_sample and samples <= CONFIG.output_beats
            # All places are filled before the port takes anything, so that the beats are at hand.
            count = each * (staged // tiles_each)
            for data in (always, lambda: never(40 + 30 * staged)):
                bench = await Bench.begin(dut, distance=3, data=data)
                tiles, memory = layer(random, latency=latency, count=count, groups=groups, sigmoid=False,
                                      stride=stride)
                await bench.run(tiles)
                bench.judge(memory)
                # Runs: the tiles' whole contents where they lie one behind the other, else samples.
                beats = each * per_sample if run else per_sample
                assert {request for _, request in bench.requests} == {beats}
                if data is not always:
                    assert np.ptp(bench.data_at) == len(memory) - 1, "a gap between beats"
    for latency, groups in ((False, groups_per_beat), (True, 1)):
        for pair in (False, True):
            bench = await Bench.begin(dut, distance=40)
            tiles, memory = layer(random, latency=latency, count=(1 + pair) * (CONFIG.rows if latency else samples),
                                  groups=groups, sigmoid=False, stride=7)
            await bench.run(tiles)
            bench.judge(memory)
            rows = CONFIG.rows * (1 if latency else groups_per_beat)
            if not pair:
                assert bench.data_at[0] - bench.rows_at[-1] == 7
            elif staged >= 8 * groups_per_beat:     # half of the places are free with both tiles on their way
                assert bench.rows_at[rows - 1] + 7 < bench.data_at[0] <= bench.rows_at[-1] + 6
                assert np.ptp(bench.data_at) == len(memory) - 1, "a gap between beats of a pair"
    bench = await Bench.begin(dut)
    tiles, memory = layer(random, latency=False, count=3 * samples, groups=1, last_columns=1, sigmoid=True, stride=1)
    await bench.run(tiles)
    bench.judge(memory)
    assert set(np.diff(bench.data_at)) == {9}


@cocotb.test()
async def reset_midstream(dut):
    """A reset with tiles half in, beats waiting and words in the sigmoid: nothing is left and all room is back."""
    random, pauses = np.random.default_rng(seed("reset")), rng("reset")
    for sigmoid in (False, True):
        bench = await Bench.begin(dut, data=lambda: sometimes(0.2, pauses))
        tiles, _ = several(random, 300 if REGRESS else 120, sigmoid=sigmoid)
        await bench.run(tiles, until=int(random.integers(60, 200)))
        bench = await Bench.begin(dut)
        tiles, memory = several(random, 100 if REGRESS else 40)
        await bench.run(tiles)
        bench.judge(memory)


@cocotb.test()
async def corner_values(dut):
    """Counts of samples and groups at and beside whole tiles and beats, one column and all; the last places that 32
    bits name; special words with and without the sigmoid, and plain beats right behind it."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut)
    tiles, memory = [], {}
    at = 0
    for latency in (False, True):
        for count in (1, CONFIG.rows, CONFIG.rows + 1, CONFIG.samples - 1, CONFIG.samples, CONFIG.samples + 1):
            for groups in (1, CONFIG.groups_per_beat, CONFIG.groups_per_beat + 1, CONFIG.units + 1):
                more, image = layer(random, latency=latency, count=count, groups=groups, out=at,
                                    sigmoid=random.random() < 0.2, last_columns=int(random.choice([1, CONFIG.columns])))
                tiles, memory, at = tiles + more, memory | image, max(image) + 1
    for latency in (False, True):
        beats = 1
        more, image = layer(random, latency=latency, count=3, groups=beats, stride=1 << 30, sigmoid=False,
                            out=(1 << 30) - 2 + latency)
        tiles, memory = tiles + more, memory | image
    await bench.run(tiles)
    bench.judge(memory)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", shapes(CONFIGS, 1))
def test_outlet(name, number):
    simulate(ResultWriter(CONFIGS[name]), "verif.mlp.test_result_writer", name=f"mlp_outlet_{name}", tests=6,
             seed=number,
             env={"OUTLET": name})
