"""The dispatcher among models of all that stands around it: what is in the mailbox, and when."""

import os

import cocotb
import numpy as np
import pytest

from golden.hotline.dispatch import GATHERED, POPULAR
from hw.hotline.dispatch import Dispatcher
from hw.hotline.narrower import Narrower
from hw.hotline.transfers import chunk_beats
from verif.bench import report, rng, start
from verif.bench.runner import one_of, seeds, shapes, simulate
from verif.hotline.dispatch import BETWEEN, STREAMS_IN, STREAMS_OUT, TO_HEADER, Bench, Pace
from verif.hotline.shapes import CONFIGS

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


@cocotb.test()
async def smoke(dut):
    """A popular and a gathered mini-batch, and a pooled one."""
    start(dut)
    bench = await Bench.fresh(dut, rng("smoke"), sample_beats=2)
    bench.put(bench.portion(POPULAR, samples=3))
    await bench.run()
    bench.put(bench.portion(GATHERED, samples=2, rows=5))
    await bench.run()
    assert bench.gpu_kinds == [POPULAR, GATHERED] and len(bench.updates) == 1
    bench = await Bench.fresh(dut, rng("pooled"), pooled=1, vectors=3, row_beats_log2=1)
    bench.put(bench.portion(GATHERED, samples=4, rows=7))
    await bench.run()


@cocotb.test()
async def random_match_golden(dut):
    """Any job, several in a run, mini-batches of both kinds, parts of frames: every beat of the mailbox, each update
    and each freed frame as golden; none is dispatched before it is written or overwritten before it is finished, and no
    row is requested before the updates of the gathered one before are made."""
    start(dut)
    kinds = [0, 0]
    for number in range(6 if REGRESS else 3):
        r = rng(f"random {number}")
        bench = await Bench.fresh(dut, r, pace=Pace(arrive=r.choice([1.0, 0.05]), gpu=r.choice([1, 40, 200])))
        for _ in range(3 if REGRESS else 2):
            await bench.run()
            before = len(bench.taken)
            await bench.begin(**bench.any_job())
            bench.fill(12, share=r.choice([0.3, 0.7]))
            await bench.run()
            assert len(bench.taken) - before >= 12
        kinds = [at + more for at, more in zip(kinds, bench.events, strict=True)]
    assert min(kinds) > (40 if REGRESS else 10), kinds


@cocotb.test()
async def backpressure_both_sides(dut):
    """Every stream slow by itself and all together, with a late GPU, late updates and late write responses."""
    start(dut)
    names = (*STREAMS_IN[2:], *STREAMS_OUT)
    for number, slow in enumerate([(name,) for name in names] + [names, ()]):
        r = rng(f"slow {number}")
        bench = await Bench.fresh(dut, r, pace=Pace(
            slow=slow, flow=r.choice([1.0, 0.5]), latency=r.choice([1, 20]), write=r.choice([6, 60]), arrive=0.3,
            poll=r.choice([1, 7, 64]), update=r.choice([1, 100])))
        await bench.run()
        await bench.begin(**bench.any_job())
        bench.fill(8 if REGRESS else 4)
        await bench.run()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle from header to last row but for the first reads, rows in half precision every other cycle; the
    cycles to the header and between mini-batches."""
    start(dut)
    for kind, pooled, half in ((POPULAR, 0, 0), (GATHERED, 0, 0), (GATHERED, 1, 0), (GATHERED, 0, 1), (GATHERED, 1, 1)):
        bench = await Bench.fresh(dut, rng("rate"), pace=Pace(gpu=1, poll=1, update=1), sample_beats=4, batch=8,
                                  pooled=pooled, half=half, vectors=3 * pooled, mailbox_slots=7, mailbox_pitch=200)
        for _ in range(4 if kind == POPULAR else 1):
            bench.put(bench.portion(kind, samples=8, **({"rows": 30} if kind else {})))
        await bench.run()
        at = np.array(bench.data_at)
        beats = len(at) // len(bench.taken)
        rest = 0 if not kind else 8 * 3 if pooled else 30
        narrow = rest // 2 * half
        assert beats == 1 + 32 + rest - narrow
        whole = at.reshape(-1, beats)
        assert (whole[:, 0] - bench.take_at == TO_HEADER).all(), whole[:, 0] - bench.take_at
        if len(whole) > 1:
            assert (whole[1:, 0] - whole[:-1, -1] == BETWEEN).all(), whole[1:, 0] - whole[:-1, -1]
        # Reads take three cycles; rows are found on the way of two.
        wait = bench.pace.latency
        gaps = np.diff(whole[0]) - 1
        if half:        # every other cycle, the first behind two beats and the Narrower
            assert (gaps[-(narrow - 1):] == 1).all(), gaps
            gaps = gaps[:-(narrow - 1)]
        late = half * (1 + Narrower.latency)
        assert gaps.sum() <= 3 * wait + 6 + late and (gaps > 0).sum() <= 2, gaps
        report(**{f"gaps_{kind}_{pooled}_{half}": int(gaps.sum())})


@cocotb.test()
@pytest.mark.testpoint("gathered_goes_first")
async def gathered_goes_first(dut):
    """With both there the gathered one goes; popular ones pass it only until updates have begun; mailboxes that
    are full hold up both, and say so."""
    start(dut)
    bench = await Bench.fresh(dut, rng("first"), mailbox_slots=3)
    bench.held = True
    room = 3 * bench.config.gpus
    for _ in range(room + 2):
        bench.put(bench.portion(POPULAR), bench.portion(GATHERED, batch=1))
    for _ in range(600):
        await bench.step()
    assert [portion.kind for portion in bench.taken] == [GATHERED, *[POPULAR] * (room - 1)] and bench.stalls > 100
    bench.held = False
    await bench.run()
    assert bench.gpu_kinds.count(GATHERED) == room + 2


@cocotb.test()
@pytest.mark.testpoint("spread_over_gpus")
async def spread_over_gpus(dut):
    """GPUs that finish nothing get mini-batches in turn; one that is faster gets more; each fills its own mailbox."""
    start(dut)
    bench = await Bench.fresh(dut, rng("spread"), mailbox_slots=2)
    gpus = bench.config.gpus
    bench.held = True
    bench.put(*(bench.portion(POPULAR) for _ in range(8 * gpus)))
    for _ in range(600):
        await bench.step()
    assert [portion.gpu for portion in bench.taken] == [*range(gpus)] * 2
    # The last one alone goes on.
    for _ in range(5):
        bench.finished[-1] += 1
        for _ in range(200):
            await bench.step()
        assert bench.taken[-1].gpu == gpus - 1
    bench.held = False
    await bench.run()


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle: nothing is left, mini-batches count from 0."""
    start(dut)
    for number in range(12 if REGRESS else 5):
        r = rng(f"reset {number}")
        bench = await Bench.fresh(dut, r, pace=Pace(slow=("o_data",) if number % 3 == 0 else ()))
        bench.fill(6)
        for _ in range(r.randrange(40, 250)):
            await bench.step()
        bench = await Bench.fresh(dut, r, **bench.any_job())
        bench.fill(3)
        await bench.run()


@cocotb.test()
async def corner_values(dut):
    """One sample, a frame full of them, all rows that there are; pitches without a gap; 255 slots; a full chunk, a
    beat more and one less."""
    start(dut)
    r = rng("corners")
    bench = await Bench.fresh(dut, r)
    config, chunk = bench.config, chunk_beats(bench.config)
    for samples in (chunk - 2, chunk - 1, chunk):
        await bench.run()
        await bench.begin(batch=chunk, mailbox_pitch=1 + chunk + config.row_slots, mailbox_slots=3)
        bench.put(bench.portion(POPULAR, samples=samples), bench.portion(GATHERED, samples=samples, rows=1))
    await bench.run()
    await bench.begin(batch=config.frame_beats, mailbox_pitch=1 + config.frame_beats + config.row_slots,
                      gradients_pitch=config.row_slots, mailbox_slots=255)
    bench.put(bench.portion(GATHERED, samples=config.frame_beats, rows=config.row_slots),
              bench.portion(POPULAR, samples=1), bench.portion(GATHERED, samples=1, rows=1),
              bench.portion(POPULAR, samples=config.frame_beats))
    await bench.run()
    bench.memory.clear()
    log2 = 4
    await bench.begin(batch=1, indices=2, row_beats_log2=log2, mailbox_pitch=2 + (2 << log2), mailbox_slots=255)
    for rows in (1, 2):
        bench.put(bench.portion(GATHERED, samples=1, rows=rows))
    await bench.run()


@cocotb.test()
@pytest.mark.testpoint("waiting_and_overrun")
async def waiting_and_overrun(dut):
    """A GPU that finishes nothing, one that stops, which are waited for; one that claims too much; one whose word goes
    back."""
    start(dut)
    for stop_after in (0, 1, 2):
        bench = await Bench.fresh(dut, rng(f"waiting {stop_after}"), pace=Pace(poll=1, gpu=3), mailbox_slots=4)
        bench.put(*(bench.portion(POPULAR) for _ in range(4)))
        advanced = 0
        for _ in range(800):
            await bench.step()
            bench.held = sum(bench.finished) >= stop_after
            advanced += bench.ports.get("advanced")
        assert bench.ports.get("waiting") and not bench.ports.get("error") & 1
        assert bench.counts("completed") == bench.finished and sum(bench.finished) < 4
        assert bool(advanced) == any(bench.finished)
    gpus = bench.config.gpus
    for number, lie in enumerate((1, 3, 1 << 31, (1 << 32) - 1)):
        bench = await Bench.fresh(dut, rng(f"overrun {lie}"), pace=Pace(poll=1, gpu=1))
        bench.held = True
        if lie == 3:
            bench.put(bench.portion(POPULAR), bench.portion(POPULAR))
            while sum(bench.read) < 2:
                await bench.step()
        bench.lie = [lie * (gpu == number % gpus) for gpu in range(gpus)]
        for _ in range(6):
            await bench.step()
        assert bench.ports.fields("error") == {"valid": 1, "detail": lie}
    # What it had finished stays so: there is room for as many as before.
    bench = await Bench.fresh(dut, rng("back"), pace=Pace(poll=1), mailbox_slots=3)
    bench.put(*(bench.portion(POPULAR) for _ in range(3)))
    await bench.run()
    bench.lie, bench.held = [min(1, count) for count in bench.finished], True
    for _ in range(20):
        await bench.step()
        assert bench.ports.get("idle")
    bench.put(*(bench.portion(POPULAR) for _ in range(3)))
    while sum(bench.read) < 6:
        await bench.step()
        assert bench.cycle < 2000
    bench.lie, bench.held = None, False
    await bench.run()


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "gathered_goes_first", "reset_midstream", "corner_values", "waiting_and_overrun")
SEVERAL = (*(name for name in NAMES if name != "latency_and_rate_as_documented"), "spread_over_gpus")


@pytest.mark.parametrize(("name", "tests"), [*one_of([("tiny", NAMES), ("four", SEVERAL)]), *shapes([
    ("wide", ("random_match_golden", "corner_values")), ("two", ("random_match_golden", "spread_over_gpus"))], 0)])
@pytest.mark.parametrize("number", seeds())
def test_hotline_dispatch(number, name, tests):
    simulate(Dispatcher(CONFIGS[name]), "verif.hotline.test_dispatch", name=f"hotline_dispatch_{name}",
             tests=len(tests), seed=number, only="|".join(f"{test}$" for test in tests), env={"HOTLINE": name})
