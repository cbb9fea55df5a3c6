"""Layers that begin before all that they read is written: no slot comes too early, and none waits a cycle longer."""

import numpy as np
import pytest

from gen.compiler.mlp import Compiler
from gen.compiler.mlp_operations import Tiles
from gen.compiler.mlp_schedule import FREELY
from hw.isa import MLP
from tests.support import mlp_sizes as make
from tests.support.mlp_replay import Race, Replay
from tests.support.mlp_timed import EXACT, LAG, Timed, freed, two_layers


@pytest.mark.turns(2)
@pytest.mark.parametrize(("shape", "mode"), EXACT)
def test_nobody_waits_from_the_very_cycle_on(shape, mode):
    """The second layer's step that reads the first one's last results comes in the cycle in which they are there; with
    a step less it would come a cycle before, and waits."""
    core, (passes, last, _) = make.core(make.SHAPES[shape]), EXACT[shape, mode]
    compiler, program = two_layers(shape, mode)
    held = [compiler.load.words]
    timed = Timed(core, held)
    timed.run(program.words)
    assert program.words[-1, LAG] == FREELY
    of_first, step = 2 * passes, last * core.columns // core.width
    assert timed.begins[of_first] + step == timed.written_at[of_first - 2]
    assert timed.begins[of_first] == timed.ends_at[of_first - 1] + 1    # without a gap

    compiler, program = two_layers(shape, mode, steps_less=1)
    held = [compiler.load.words]
    assert program.words[-1, LAG] == 1
    for replay in Replay, Timed:
        replay(core, held).run(program.words)
        with pytest.raises(Race, match="reads what may not have been written"):
            replay(core, held).run(freed(program.words))


@pytest.mark.parametrize(("shape", "mode"), EXACT)
def test_a_bound_a_cycle_too_small_is_noticed(shape, mode, monkeypatch):
    """Were results thought to be there a cycle sooner than they are, the layers with a step less would race."""
    true = Tiles.drain.fget
    monkeypatch.setattr(Tiles, "drain", property(lambda tiles: true(tiles) - 1))
    compiler, program = two_layers(shape, mode, steps_less=1)
    held = [compiler.load.words]
    assert program.words[-1, LAG] == FREELY
    for replay in Replay, Timed:
        with pytest.raises(Race, match="reads what may not have been written"):
            replay(make.core(make.SHAPES[shape]), held).run(program.words)


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(12))
def test_whatever_holds_tiles_up(seed):
    """Networks by chance in runs of the cycle model in which everything that a tile may wait for stalls it, or nothing
    does: no slot comes before what it reads is written."""
    random = np.random.default_rng([seed, 3])
    config = list(make.SHAPES.values())[seed % 3]
    widths = random.integers(1, 120, random.integers(2, 5)).tolist()
    kind = ("none", "concat", "dot")[seed // 3 % 3]
    if kind == "none":
        network = make.plain(700 if config is make.TINY else 30, *widths)
    else:
        network = make.joined(kind, int(random.integers(1, 12)), int(random.integers(1, 30)), widths, (30, 4), "none")
    count = int(random.integers(1, 2 * config.samples))
    mode = (None, *MLP.modes)[random.integers(3)]
    compiler = Compiler(network, config, batch=count)
    words = compiler.compile(count, mode=mode).words
    for stalls in None, random, random:
        Timed(make.core(config), [compiler.load.words], stalls).run(words)


def test_a_row_that_waits_for_its_turn():
    """In latency mode four of a unit's rows take eight turns, so that the last unit's one row waits for them."""
    config = make.SMARTSSD
    network = make.plain(64, 300, 64)
    for count in (1, 4, 5, 13, 15):
        compiler = Compiler(network, config, batch=count)
        words = compiler.compile(count, mode="latency").words
        for replay in Replay, Timed:
            replay(make.core(config), [compiler.load.words]).run(words)
