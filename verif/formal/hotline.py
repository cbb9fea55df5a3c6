"""Of the Hotline core's scheduler."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Mux, Signal, Value

from hw.hotline.release import ReleaseStage
from hw.hotline.scheduler import BankScheduler
from hw.hotline.sorter import BankSorter
from verif.formal.properties import Properties, counter, past, properties, since
from verif.formal.prove import Proof


def _count(bits: Sequence[Value]) -> Value:
    """How many are set."""
    return sum(bits[1:], bits[0])


@properties(BankSorter)
def _sorter(p: Properties, unit: BankSorter) -> None:
    lanes = unit.lanes
    history = [Cat(unit.i_valid, unit.i)]
    for _ in range(max(unit.latency, unit.runs_latency)):
        history.append(past(p, history[-1]))
    for name, latency, valid in (("accesses", unit.latency, unit.o_valid),
                                 ("runs", unit.runs_latency, unit.runs_valid)):
        p.claim(f"{name} come with their wave", valid == history[latency][0])
    wave = unit.i.shape()(history[unit.latency][1:])
    key = p.chosen("lane", (lanes - 1).bit_length())
    mine = Signal(unit.i.shape()["lanes"].shape.elem_shape)
    p.m.d.comb += mine.eq(wave.lanes[key])
    # Its place is how many go before it: of lower banks, and of lower lanes of its own.
    before = [other.valid & ((other.bank < mine.bank) | ((other.bank == mine.bank) & (number < key)))
              for number, other in enumerate(wave.lanes[k] for k in range(lanes))]
    place = Signal(range(lanes))
    p.m.d.comb += place.eq(_count(before))
    p.claim("an access is in its place", ~unit.o_valid | ~mine.valid | (
        (unit.o[place].lane == key) & (unit.o[place].payload == mine.payload)))
    early = unit.i.shape()(history[unit.runs_latency][1:])
    for bank in range(unit.banks):
        ends = _count([early.lanes[k].valid & (early.lanes[k].bank <= bank) for k in range(lanes)])
        p.claim(f"the run of bank {bank} ends behind its last access",
                ~unit.runs_valid | (unit.runs.ends[bank] == ends))
    p.cover("the last access is that of the lowest lane", unit.o_valid & mine.valid & (key == 0) & (place == lanes - 1))


@properties(ReleaseStage)
def _release(p: Properties, unit: ReleaseStage) -> None:
    banks, part = unit.banks, unit.i.payload
    width = unit.cost_bits
    # The costs that come are those of the runs: each one more than the one before by its accesses less one.
    total = Signal(width)
    sums: list[Value] = []
    for bank in range(banks):
        run = part.runs[bank]
        sums.append(((sums[-1] if sums else total) + Mux(run.some, run.more, 0))[:width])
        p.assume(~unit.i.valid | ~run.some | (run.cost == sums[-1]))
    with p.m.If(unit.i.valid & unit.i.ready):
        p.m.d.sync += total.eq(sums[-1])
    # What waits at each bank, by its commands: one access is taken in every cycle.
    waits = [Signal(range(2 * unit.queue + 2 * unit.lanes), name=f"waits_{bank}") for bank in range(banks)]
    for bank, wait in enumerate(waits):
        o = unit.o[bank]
        p.m.d.sync += wait.eq(Mux(o.valid, wait + o.more, wait - (wait != 0)))
    all_waiting = Signal(range(banks * (2 * unit.queue + 2 * unit.lanes)))
    p.m.d.comb += all_waiting.eq(_count(waits))
    p.claim("no more accesses wait than there are places", all_waiting <= unit.queue)
    taken = counter(p, "waves", unit.i.valid & unit.i.ready & part.last, unit.ended, most=4)
    p.claim("a wave ends once", (taken <= 4) & (~unit.ended | (taken != 0)))
    p.claim("a command without a run is none", ~unit.hold | ~past(p, unit.hold) | ~Cat(
        unit.o[bank].valid for bank in range(banks)).any())
    p.cover("all places are taken", all_waiting == unit.queue)
    p.cover("a wave ends", unit.ended)


@properties(BankScheduler)
def _scheduler(p: Properties, unit: BankScheduler) -> None:
    lanes, most = unit.lanes, 4096 * unit.lanes
    bank = p.chosen("bank", (unit.banks - 1).bit_length())
    lane = p.chosen("lane", (lanes - 1).bit_length())
    wave = unit.i.payload
    mine = [wave.lanes[k].valid & (wave.lanes[k].bank == bank) for k in range(lanes)]
    takes, o = unit.i.valid & unit.i.ready, Signal(unit.o.shape().elem_shape)
    p.m.d.comb += o.eq(unit.o[bank])
    inside, ahead, seen = Signal(range(most)), Signal(range(most)), Signal()
    kept = Signal(len(Cat(o.tag, o.lane, o.payload)))
    access = wave.lanes[lane]
    p.m.d.sync += inside.eq(inside + Mux(takes, _count(mine), 0) - o.valid)
    here = seen & (ahead == 0) & o.valid
    follow = p.free("follow")
    with p.m.If(seen & o.valid):
        p.m.d.sync += ahead.eq(ahead - 1)
        p.m.d.sync += seen.eq(ahead != 0)
    with p.m.Elif(~seen & takes & follow & access.valid & (access.bank == bank)):
        p.m.d.sync += seen.eq(1)
        p.m.d.sync += ahead.eq(inside - o.valid + _count([one & (k < lane) for k, one in enumerate(mine)]))
        p.m.d.sync += kept.eq(Cat(wave.tag, lane, access.payload))
    p.claim("a bank's accesses leave in the order of wave and lane", ~here | (Cat(o.tag, o.lane, o.payload) == kept))
    p.claim("nothing leaves that did not enter", ~o.valid | (inside != 0))
    p.cover("an access leaves behind another", here & since(p, o.valid))


PROOFS = (
    Proof("sorter", lambda: BankSorter(lanes=4, banks=2, payload=1, tag=1, columns=4)),
    Proof("release", lambda: ReleaseStage(lanes=4, banks=2, queue=8, tag=1, columns=4, cost_bits=6),
          bounded={"no more accesses wait than there are places": 7}),
)
