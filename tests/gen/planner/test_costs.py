"""What the planner reckons with, against the compiler, the oracles and draws."""

import os

import numpy as np
import pytest

from fpga.api.network import MlpNetwork
from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import SSD, CardImages, Table
from gen.compress import search
from gen.data.profile import Heat
from gen.model.network import Model
from gen.planner.costs import CORE_SHARE, Costs, drive_reads, network_seconds, tt_seconds
from gen.rtl import config
from golden import tt
from golden.tt.layout import plan
from tests.support import mlp_sizes as make

PAGE = 4096


def costs(preset="smartssd", **values):
    given = dict(device="smartssd", preset=preset, clock_hz=300e6, row_s={1: 8e-9, 4: 14.4e-9}, read_s=5.6e-11,
                 write_s=7e-11, page_s=2.2e-6, drive_s=6e-5, landing_s=2.9e-7, link_s=3.2e-10, packet_s=1.2e-10,
                 page_bytes=PAGE, ring_bytes=1 << 26, dram_bytes=4 << 30, ssd_bytes=3_840_000_000_000)
    return Costs(**{**given, **values})


@pytest.mark.parametrize("ring_pages, lookups", [(1024, 600), (1024, 4000), (64, 4000), (256, 40), (8, 500)])
@pytest.mark.parametrize("cut", [0, 50, 900])
def test_drive_reads_are_the_compilers(ring_pages, lookups, cut):
    """Pages that a program brings, on average of batches that are drawn from a log with such heat."""
    random = np.random.default_rng(lookups + cut)
    rows, batches = 6000, 12
    chance = 1 / np.arange(1, rows + 1) ** 0.9
    counts = np.maximum(random.multinomial(400_000, chance / chance.sum()), 1)
    counts[::-1].sort()
    dim = 16
    cold = Table.place("t", np.zeros((rows - cut, dim), np.float32), SSD)
    images = CardImages([cold], config.load("tiny").cores["emb"], PAGE)
    brought = []
    for _ in range(batches):
        drawn = random.choice(rows, lookups, p=counts / counts.sum())
        drawn = drawn[drawn >= cut] - cut
        compiler = Compiler(images, ring_beats=ring_pages * images.page_beats)
        ends = np.append(np.arange(0, len(drawn), 4), len(drawn))
        brought.append(len(compiler.compile([Bags("t", drawn, ends)]).pages))
    said = drive_reads(Heat.of(counts), np.array([cut]), lookups, PAGE // (4 * dim), ring_pages)[0]
    # A small ring drops pages that are accessed again and again; they are taken to stay.
    assert said == pytest.approx(np.mean(brought), rel=0.1 if ring_pages >= 256 else 0.12, abs=2.5)
    assert said < 0.95 * (counts[cut:].sum() / counts.sum()) * lookups      # the coalescing is what is measured


def test_drive_reads_fall_and_keep_their_bounds():
    heat = Heat.of([900, 50, 30, 9, 5, 3, 1, 1, 1, 0])
    reads = drive_reads(heat, np.arange(10), 2000.0, 4, 64)
    assert (np.diff(reads) <= 0).all() and reads[9] == 0 and reads[0] >= 1
    rest = 2000 * (1 - heat.cdf(np.arange(10)))
    assert (reads <= rest + 1e-9).all()
    assert reads[0] < 4    # 9 rows lie on 3 pages, brought once
    assert drive_reads(heat, np.arange(10), 0.0, 4, 64).max() == 0
    # A ring of one page keeps next to nothing of 100 pages, and two still little.
    spread = Heat.of([7] * 400)
    for ring_pages in (1, 2, 3):
        assert 190 < drive_reads(spread, np.array([0]), 200.0, 4, ring_pages)[0] <= 200
    # A single access is a page of its own.
    assert drive_reads(heat, np.array([0]), 1.0, 4, 64) == pytest.approx(1)


# Cycles a row of the unit with pooling, over bags of 1, 2, 3, 4, 6, 8, 12 and 24 rows, in steady state.
MEASURED = {(16, 4): (3.38, 1.65, 1.0, 0.99, 1.0, 0.99, 1.0, 1.0), (64, 4): (4.0, 2.05, 1.33, 1.0, 1.0, 0.99, 1.0, 1.0),
            (64, 16): (4.25, 3.86, 3.69, 3.37, 3.56, 3.37, 3.38, 3.35),
            (128, 4): (8.0, 4.0, 2.67, 2.0, 1.42, 1.34, 1.39, 1.33),
            (128, 8): (8.0, 4.0, 3.35, 2.69, 2.68, 2.69, 2.69, 2.69)}
POOLING = (1, 2, 3, 4, 6, 8, 12, 24)


@pytest.mark.parametrize("dim, rank", MEASURED)
def test_tt_seconds_are_the_units(dim, rank):
    said = [tt_seconds(costs(), dim, rank, pooling) * 300e6 for pooling in POOLING]
    # No first product that is found again is in the prediction: it is up to a fifth above the unit, a ninth below.
    ratio = said / np.array(MEASURED[dim, rank])
    assert 0.89 < ratio.min() and ratio.max() < 1.2


@pytest.mark.regress
@pytest.mark.skipif(not os.environ.get("HOTRAIL_REGRESS"), reason="compiling the cycle model takes a minute")
@pytest.mark.parametrize("dim, rank", MEASURED)
def test_the_measured_cycles_are_the_golden_models(dim, rank):
    unit = costs().unit
    shape = search.best(4096, dim, rank=rank, config=unit)
    layout = plan(shape.modes, shape.columns, (1, *shape.ranks, 1), grid_log2=unit.grid_log2)
    chunk = tt.chunk_rows(layout, rank_max=unit.rank_max, t_lines=unit.t_lines, t_middle_lines=unit.t_middle_lines)
    for pooling, measured in zip(POOLING, MEASURED[dim, rank]):
        bags = 1600 // pooling
        ends = np.unique(np.concatenate([np.arange(0, pooling, chunk) + pooling * bag for bag in range(bags)]
                                        + [[bags * pooling]]))
        count = bags * pooling
        rows = np.random.default_rng(3).integers(0, layout.rows, count)
        timing = tt.cycles([layout], np.zeros(count, int), rows, offsets=ends, **unit.timing)
        half = len(timing.last_at) // 2
        steady = (timing.last_at[-1] - timing.last_at[half]) / (ends[-1] - ends[half + 1])
        assert steady == pytest.approx(measured, rel=0.02, abs=0.02)


@pytest.mark.turns(1, of="flows")
def test_network_seconds_are_the_cores():
    """The compiler's prediction, against the core's twin on an ideal memory."""
    found, model, batch = costs("tiny"), Model("m", "", (13, 24, 8), "concat", 3, 8, (16, 1), "relu", "sigmoid"), 48
    core, network = config.load("tiny").cores["mlp"], model.network()
    with MlpNetwork(network, card="twin", preset="tiny", batch=batch, memory="ideal") as on_card:
        on_card(*make.batch(network, batch))
        cycles = on_card.last["cycles"]
    bottom, top = network_seconds(found, model, batch)
    assert (bottom + top) * 300e6 == pytest.approx(cycles, rel=0.15)
    assert 0 < bottom < bottom + top
    # Sum of both takes at least the multiplications that there are.
    assert (bottom + top) * 300e6 * core.macs >= network.macs * batch


def test_rows_take_whole_beats_and_their_time():
    found = costs()
    assert [found.row_bytes(dim) for dim in (1, 16, 17, 64)] == [64, 64, 128, 256]
    assert found.dram_s(64) == pytest.approx(14.4e-9 / CORE_SHARE)
    # No faster than a beat a cycle.
    assert costs(row_s={4: 1e-9}).dram_s(64) == pytest.approx(4 / 300e6)
    with pytest.raises(ValueError, match=r"^rows of 1024 words take 64 beats of 64 bytes; the EMB core of the preset "
                                         r"smartssd takes 32, a dim of 512 at most$"):
        found.row_bytes(1024)
    with pytest.raises(ValueError, match="the preset hotline has no .emb., which the plan needs; it has hotline"):
        costs("hotline").row_bytes(64)


def test_packets_take_longer_beside_rows_that_are_longer():
    given = costs(turn_s=0.7e-10)
    assert given.beside_s(64) == given.beside_s(16) == pytest.approx(1.2e-10)
    assert given.beside_s(128) == pytest.approx(1.9e-10)
    assert given.beside_s(128, "float16") == pytest.approx(1.2e-10)
