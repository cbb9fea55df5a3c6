"""What crosses the link for bags and networks, and batches whose vectors do while the next one runs."""

import numpy as np
import pytest

from fpga.api.embedding import SSD, EmbeddingBags
from fpga.api.network import MlpNetwork
from fpga.card import LinkUse
from gen.compiler.tables import DEVICE_SHIFT
from gen.model.device import Device
from golden.fp.narrow import narrow, widen
from tests.support import emb_tables, mlp_sizes
from tests.support.emb_bench import QUICK


@pytest.fixture(scope="module")
def bags():
    random = np.random.default_rng(1)
    tables = [emb_tables.mixed(random), emb_tables.only(random, "cold", SSD, 600, 16)]
    with EmbeddingBags(tables, preset=emb_tables.config(), device=QUICK, ring_bytes=1 << 15) as found:
        yield found


def requests(bags, count, seed):
    random = np.random.default_rng(seed)
    return [bags.request(name, random.integers(0, placed.table.rows, (count, 2)))
            for name, placed in bags.images.placed.items()]


def test_what_crosses_for_a_batch(bags):
    """Program, inputs and a cleared result block there, pages beside them; outputs and result block back."""
    bags.batch(requests(bags, 30, 1))
    program, block = bags.program, 4 * bags._runs.kernel.result_words
    pages = len(program.pages) * bags.images.page_bytes
    assert pages and bags.link.in_bytes == program.words.nbytes + program.inputs.nbytes + block + pages
    assert bags.link.out_bytes == program.outputs_beats * 4 * bags.images.words + block
    page = Device.load("smartssd").options()["link.page"]
    for size, cycles in (bags.link[:2], bags.link[2:]):
        assert 0 <= cycles - size * page / 4096 <= 8 + size // 4096


@pytest.mark.turns(1, of="flows")
def test_batches_give_what_each_gives(bags):
    """In order, whatever is asked for in between; an empty batch among them."""
    asked = [requests(bags, count, count) for count in (20, 3, 40)] + [[], requests(bags, 7, 7)]
    found, between = [], []
    for each in bags.batches(asked):
        found.append(each)
        between.append(bags.batch(asked[0]))
    assert len(found) == len(asked) and found[3] == []
    for each, given in zip(asked, found, strict=True):
        for one, two in zip(bags.batch(each), given, strict=True):
            np.testing.assert_array_equal(one, two)
    for each in between[1:]:
        for one, two in zip(between[0], each, strict=True):
            np.testing.assert_array_equal(one, two)


def test_batches_overlap(bags):
    """Less time than one after the other, by about what the shorter of run and transfer takes of each but the last. The
    drive brings nothing, whose own time differs from run to run."""
    table = bags.images.placed["items"].table
    rows = np.flatnonzero(table.placement >> DEVICE_SHIFT != SSD)
    asked = [[bags.request("items", np.random.default_rng(seed).choice(rows, (600, 2)))] for seed in range(4)]

    def taken(work):
        before = bags.card.counters()["cycles"]
        for each in work:
            assert len(each) == len(asked[0])
        return bags.card.counters()["cycles"] - before

    apart = taken(bags.batch(each) for each in asked)
    runs, transfer = bags.last["cycles"], bags.link.out_cycles
    together = taken(bags.batches(asked))
    assert together < apart - 2 * min(runs, transfer) and min(runs, transfer) > 0.15 * apart / len(asked)


def test_results_in_half_precision(bags):
    """The rounded vectors, as float32; half of their bytes cross the link."""
    asked = requests(bags, 30, 5)
    plain, passed = bags.batch(asked), bags.link.out_bytes
    tables = [placed.table for placed in bags.images.placed.values()]
    block = 4 * bags._runs.kernel.result_words
    for results in ("float16", {"cold": "bfloat16"}):
        with EmbeddingBags(tables, preset=emb_tables.config(), device=QUICK, ring_bytes=1 << 15,
                           results=results) as half:
            found = half.batch(asked)
            assert half.link.out_bytes - block == (passed - block) * (0.5 if results == "float16" else 0.75)
        forms = ("float16", "float16") if results == "float16" else ("float32", "bfloat16")
        for form, one, two in zip(forms, plain, found, strict=True):
            np.testing.assert_array_equal(two, one if form == "float32" else widen(narrow(one, form), form))
    with pytest.raises(ValueError, match="^results: there is no table 'hot'; there are items, cold$"):
        EmbeddingBags(tables, preset=emb_tables.config(), results={"hot": "float16"})
    with pytest.raises(ValueError, match="^results = 'float16': images have the formats of their tables$"):
        EmbeddingBags(bags.images, preset=emb_tables.config(), results="float16")


def test_what_crosses_for_a_network():
    network = mlp_sizes.plain(13, 20, 5)
    dense = mlp_sizes.batch(network, 8)[0]
    with MlpNetwork(network, preset=mlp_sizes.TINY, batch=8) as net:
        net(dense)
        block = 4 * net._runs.kernel.result_words
        assert net.link.out_bytes == net.program.outputs_beats * 4 * net._runs.words + block
        assert net.link.in_bytes > dense.nbytes + block and net.link != LinkUse()
