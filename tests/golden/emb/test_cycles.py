"""The EMB core's cycles on ideal memories: golden.emb.cycles equal to the counter of the Verilated core."""

from dataclasses import fields, replace

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags
from gen.compiler.emb import Bags
from gen.compiler.tables import DRAM, TT, Table
from gen.model.device import Device
from gen.model.recommender import RESULTS, ROW_FORMATS
from gen.rtl.config import load
from golden.emb import pooling
from golden.emb.cycles import Sizes, cycles
from golden.emb.front import Arguments, Front
from golden.emb.tokens import deal
from golden.tt.cycles import Steps
from golden.tt.load import Limits, Loader
from hw.isa import EMB
from tests.support import emb_tables as make

COUNTERS = ("cycles", "beats_fetched", "coalesced_rows")


def lookups(program, images, config):
    """(table, row) of every lookup of the tensor-train unit, and where each chunk begins."""
    found, starts = [], []
    inputs = program.inputs.reshape(-1)
    for number, words in enumerate(program.words):
        item = {field.name: int(words[field.word]) >> field.low & (1 << field.bits) - 1 for field in EMB.fields}
        for lookup in deal(item, inputs, words=images.words, stripe_beats=config.stripe_beats, number=number,
                           index_bits=config.tt.index_bits, loaded=range(len(images.cores))).lookups:
            if lookup.begin:
                starts.append(len(found))
            found.append((lookup.table, lookup.index))
    return found, [*starts, len(found)]


def modelled(bags, config, *, filled=0):
    """What the golden model says of the program that was carried out last."""
    program, images = bags.program, bags.images
    at = {name: buffer.address // config.beat_bytes for name, buffer in bags._runs.buffers.items()}
    memory = {}
    for name, image in (("program", program.words), ("inputs", program.inputs)):
        for number, words in enumerate(image.reshape(-1, config.words).tolist()):
            memory[at[name] + number] = tuple(words)
    chosen = {name: getattr(config, name) for name in Sizes._fields if hasattr(config, name)}
    sizes = Sizes(**chosen, counters=1 << (len(EMB.counters) - 1).bit_length(),
                  pool_latency=pooling.latency(config.lut_products > 0))
    front = Front(Arguments(at["program"], program.count, at["inputs"]), words=config.words,
                  stripe_beats=config.stripe_beats,
                  queues={"dram": config.dram_queue, "ssd": config.ssd_queue, "tt": config.tt_queue,
                          "steps": config.bag_queue})
    found, starts = lookups(program, images, config)
    tt = None
    if found:
        unit = config.tt
        loader = Loader(Limits(**{item.name: getattr(unit, item.name) for item in fields(Limits)}))
        layouts = [loader.add(cores)[1] for cores in images.cores]
        table, index = zip(*found)
        tt = Steps(layouts, table, index, starts, **unit.timing)
    return cycles(front, sizes, inputs=lambda beat: memory.get(beat, (0,) * config.words), rows=at["rows"],
                  ring=at["ring"], outputs=at["outputs"], result=at["result"],
                  ring_beats=bags.compiler.ring_beats, filled=filled, tt=tt,
                  latency=Device.load("smartssd").port.ideal_latency)


def batch(random, tables, instructions, longest, modes=("sum", "mean", "max", "weights")):
    requests = []
    for _ in range(instructions):
        table = tables[int(random.integers(len(tables)))]
        indices, offsets = make.bags(random, table.rows, int(random.integers(1, 30)), longest, zipf=0.6)
        mode = modes[int(random.integers(len(modes)))]
        weights = random.standard_normal(len(indices)).astype(np.float32) if mode == "weights" else None
        requests.append(Bags(table.name, indices, offsets, weights, "sum" if mode == "weights" else mode))
    return requests


def compare(bags, config, requests):
    bags.batch(requests)
    said = modelled(bags, config)
    assert said == {name: bags.last[name] for name in COUNTERS}
    return said["cycles"]


@pytest.fixture(scope="module")
def config():
    return load("tiny").cores["emb"]


def placed(random, name, devices, rows=300, columns=(2, 2, 4), modes=(5, 5, 12), rank=4):
    """A table in some of the memories."""
    dim = int(np.prod(columns))
    return Table.place(name, random.standard_normal((rows, dim)).astype(np.float32),
                       random.choice(devices, rows), cores=make.cores(random, modes, columns, rank),
                       rank=random.permutation(rows))


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="emb/core")
def test_rows_of_card_memory(config):
    """The cycles of whole runs behind ideal memory are the cycle model's: one bag, many bags, bags longer than the
    queues, rows of one beat to the longest; all modes."""
    random = np.random.default_rng(1)
    tables = [make.only(random, f"t{dim}", DRAM, 300, dim) for dim in (3, 16, 4 * config.row_beats_max)]
    with EmbeddingBags(tables, card="sim", preset=config, memory="ideal") as bags:
        compare(bags, config, [Bags("t16", np.zeros(0, np.int64), np.array([0, 0]))])
        for instructions, longest in ((1, 1), (2, 8), (6, 20), (20, 3), (2, 60)):
            compare(bags, config, batch(random, tables, instructions, longest))


def test_results_in_half_precision(config):
    """Vectors of one beat to the longest in each format, in runs of one and of all, one after the other."""
    random = np.random.default_rng(4)
    tables = [replace(make.only(random, f"{form}{dim}", DRAM, 300, dim), results=form)
              for form in RESULTS for dim in (3, 20, 4 * config.row_beats_max)]
    with EmbeddingBags(tables, card="sim", preset=config, memory="ideal") as bags:
        for chosen, instructions, longest in ((tables[3:6], 4, 6), (tables, 20, 2), (tables[6:], 6, 8), (tables, 9, 5)):
            compare(bags, config, batch(random, chosen, instructions, longest))


def test_rows_in_every_format(config):
    """Rows of one beat of values to the longest, in runs of one format and of all, one after the other: FP32 waits for
    what is in the decoder."""
    random = np.random.default_rng(8)
    tables = [replace(make.only(random, f"{form}{dim}", DRAM, 300, dim), row_format=form)
              for form in ROW_FORMATS for dim in (4, 20, 4 * config.row_beats_max)]
    with EmbeddingBags(tables, card="sim", preset=config, memory="ideal") as bags:
        for chosen, instructions, longest in ((tables[9:12], 4, 6), (tables[12:], 4, 6), (tables, 24, 2),
                                              (tables[3:6], 6, 8), (tables, 12, 9)):
            compare(bags, config, batch(random, chosen, instructions, longest))


@pytest.mark.regress
def test_rows_of_tensor_trains(config):
    """Vectors of chunks, with and without reuse, alone and mixed with rows of card memory."""
    random = np.random.default_rng(2)
    tables = [placed(random, "trains", [TT]), placed(random, "both", [DRAM, TT]),
              placed(random, "wide", [TT], columns=(4, 4, 4), rank=8), make.only(random, "rows", DRAM, 200, 24)]
    with EmbeddingBags(tables, card="sim", preset=config, memory="ideal") as bags:
        for chosen, instructions, longest in (
                (tables[:1], 1, 1), (tables[:1], 2, 12), (tables[2:3], 3, 40), (tables[1:2], 4, 30), (tables, 12, 25)):
            compare(bags, config, batch(random, chosen, instructions, longest))
