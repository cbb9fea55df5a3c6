"""Of the AXI masters, what they are made of, and the control slave."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value, ValueLike

import hw.axi.bus
from hw.axi.burst import BurstTracker, Splitter
from hw.axi.bus import block_beats
from hw.axi.control import CTRL, DONE, IDLE, START, ControlSlave
from hw.axi.port import ReadPort
from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa.kernel import Argument, Code, Kernel, Register
from verif.formal.properties import Properties, counter, past, properties, since, stable
from verif.formal.prove import Proof


def _page(address: Value, length: Value, beat_bytes: int) -> Value:
    """A burst is of whole beats, no longer than a block, and inside its 4 KB."""
    log2 = (beat_bytes - 1).bit_length()
    page = hw.axi.bus.PAGE_BYTES
    end = address[:(page - 1).bit_length()] + ((length + 1) << log2)
    return (end <= page) & (address[:log2] == 0) & (length < block_beats(beat_bytes))


class _Bursts:
    """Follows one request, from the cycle in which it is taken to its last burst, among those before it. Bursts are
    counted where they are handed to the address channel.

    taken, beats: of the request; burst, length, final: of the burst
    """

    def __init__(self, p: Properties, *, taken: ValueLike, beats: Value, burst: ValueLike,
                 length: Value, final: Value, most: int):
        taken, burst = Value.cast(taken), Value.cast(burst)
        ends = burst & final
        self.inside = counter(p, "requests_inside", taken, ends, most=most)
        before = Signal(range(most + 3))
        self.seen, self.left = Signal(name="followed"), Signal(17, name="beats_left")
        self.first = Signal(name="no_burst_yet")
        now = self.seen & (before == 0)
        with p.m.If(self.seen & (before != 0)):
            p.m.d.sync += before.eq(before - ends)
        with p.m.Elif(self.seen & burst):
            p.m.d.sync += self.left.eq(self.left - length - 1)
            p.m.d.sync += self.first.eq(0)
            p.m.d.sync += self.seen.eq(~final)
        with p.m.If(taken & p.free("follow") & ~self.seen):
            p.m.d.sync += self.seen.eq(1)
            p.m.d.sync += self.first.eq(1)
            p.m.d.sync += before.eq(self.inside - ends)
            p.m.d.sync += self.left.eq(beats)
        p.claim("a burst is of a request", ~burst | (self.inside != 0))
        p.claim("bursts are inside their request, and the last ends it",
                ~(now & burst) | ((length + 1 <= self.left) & (final == (length + 1 == self.left))))
        p.cover("a request's second burst", now & burst & ~self.first)


@properties(Splitter)
def _splitter(p: Properties, unit: Splitter) -> None:
    request, log2 = unit.i.payload, (unit.beat_bytes - 1).bit_length()
    p.assume((request.address[:log2] == 0) & (request.beats != 0))
    bursts = _Bursts(p, taken=unit.i.valid & unit.i.ready & ~unit.drop, beats=request.beats, burst=unit.emit,
                     length=unit.burst.len, final=unit.burst.final, most=2)
    with p.m.If(unit.drop):
        p.m.d.sync += bursts.inside.eq(0)
        p.m.d.sync += bursts.seen.eq(0)
    p.claim("no more than two requests are inside", bursts.inside <= 2)
    shows = unit.o.payload
    p.claim("a burst keeps to its 4 KB", ~unit.o.valid | _page(shows.addr, shows.len, unit.beat_bytes))
    p.claim("a burst is only handed out with room for it", ~unit.emit | unit.room)
    p.claim("an address waits unchanged", stable(p, unit.o))
    p.claim("held says whether something is inside", unit.held | ((bursts.inside == 0) & ~unit.o.valid))
    shown = counter(p, "addresses", unit.emit, unit.o.valid & unit.o.ready, most=2)
    p.claim("an address for each burst", (shown <= 2) & (unit.o.valid == (shown != 0)))
    p.cover("two requests are inside", bursts.inside == 2)


@properties(BurstTracker)
def _tracker(p: Properties, unit: BurstTracker) -> None:
    enters, leaves = unit.i.valid & unit.i.ready, Signal()
    step = unit.beat & unit.known
    inside = counter(p, "bursts", enters, leaves, most=unit.outstanding + 1)
    # One burst is followed, from the cycle in which it is known to be the next.
    before, seen, length, final, tag = Signal.like(inside), Signal(), Signal(8), Signal(), Signal.like(unit.tag)
    beat, here = Signal(8), Signal()
    ends = Signal()
    p.m.d.comb += here.eq(seen & (before == 0))
    # Where a burst ends is only known of the one that is followed; of the others the unit's own word is taken: the
    # slave's rlast and `wrong` say whether it is there.
    p.m.d.comb += ends.eq(unit.rlast ^ unit.wrong)
    p.m.d.comb += leaves.eq(step & ends)
    with p.m.If(here & step):
        p.m.d.sync += beat.eq(beat + 1)
        with p.m.If(beat == length):
            p.m.d.sync += seen.eq(0)
    with p.m.If(seen & (before != 0)):
        p.m.d.sync += before.eq(before - leaves)
    with p.m.If(enters & ~seen & p.free("follow")):
        p.m.d.sync += [
            seen.eq(1),
            before.eq(inside - leaves),
            length.eq(unit.i.payload.len),
            final.eq(unit.i.payload.final),
            tag.eq(unit.i.payload.tag),
            beat.eq(0),
        ]
    now = here & step
    p.claim("a burst ends at its last beat", ~now | (ends == (beat == length)))
    p.claim("a request ends with the last beat of its last burst", ~now | (unit.last == ((beat == length) & final)))
    p.claim("a beat has its burst's tag", ~now | (unit.tag == tag))
    p.claim("it remembers no more bursts than it has places", inside <= unit.outstanding + 1)
    p.claim("a beat is known only while a burst is under way", ~unit.known | (inside != 0))
    p.claim("held says whether beats are missing", unit.held == (inside != 0))
    p.cover("as many bursts as it has places", inside == unit.outstanding)
    p.cover("the third beat of a burst", now & (beat == 2))
    p.cover("rlast comes early", now & unit.wrong)


def _held(p: Properties, unit: Any) -> Signal:
    """A stop is held for eight cycles at least and until the port is idle, or ends with a reset, which is free here.
    `idle` is late: in a stop's first cycle it tells of the time before, and a write port whose stop ends by that breaks
    its claims. The run control ends every stop with a reset, and none while something is under way on the bus
    (verif.formal.kernel). Returns whether it was high in the cycle before."""
    held = Signal(range(9))
    p.m.d.sync += held.eq(Mux(unit.stop, held + (held != 8), 0))
    p.assume((held == 0) | unit.stop | ((held == 8) & past(p, unit.idle)))
    return past(p, unit.stop)


def _reads(p: Properties, unit: Any, requests: Sequence[Any], outputs: Sequence[Any]) -> None:
    """What both read masters keep to. What is under way is counted in beats, since rlast may be wrong."""
    bus, log2 = unit.bus, (unit.beat_bytes - 1).bit_length()
    for request in requests:
        p.assume((request.payload.address[:log2] == 0) & (request.payload.beats != 0))
        p.assume(stable(p, request))
    stopping = _held(p, unit)
    shown, waits = Signal(), Signal()
    p.m.d.sync += waits.eq(bus.arvalid & ~bus.arready)
    p.m.d.comb += shown.eq(bus.arvalid & ~waits)
    beats, beat = bus.arlen + 1, bus.rvalid & bus.rready
    most = (unit.outstanding + 2) * block_beats(unit.beat_bytes)
    due = counter(p, "beats_due", Mux(shown, beats, 0), beat, most=most)
    asked = counter(p, "beats_asked_for", Mux(bus.arvalid & bus.arready, beats, 0), beat, most=most)
    p.assume(~bus.rvalid | (asked != 0))    # the slave answers what it was asked
    p.assume(stable(p, bus.rvalid, bus.rready, bus.rdata, bus.rresp, bus.rlast))
    p.claim("an address waits unchanged", stable(p, bus.arvalid, bus.arready, bus.araddr, bus.arlen))
    p.claim("a burst keeps to its 4 KB", ~bus.arvalid | _page(bus.araddr, bus.arlen, unit.beat_bytes))
    late = Signal(3)
    p.m.d.sync += late.eq(Mux(stopping, late + (shown & (late != 7)), 0))
    p.claim("no more than the addresses that were on their way follow a stop", late <= 3)
    p.claim("owes is high while an answer is due", unit.owes | ~past(p, due != 0))
    p.claim("idle means that nothing is under way", ~unit.idle | ~past(p, due != 0))
    p.claim("moved is a beat of the cycle before", unit.moved == past(p, beat))
    for k, o in enumerate(outputs):
        p.claim(f"beat of client {k} waits unchanged", stable(p, o, unless=unit.stop | stopping))
        p.cover(f"client {k} has a beat that waits", o.valid & ~o.ready)
    p.cover("several bursts are under way", shown & (asked > 1))
    p.cover("idle after a burst", unit.idle & since(p, shown))


@properties(Reader)
def _reader(p: Properties, unit: Reader) -> None:
    _reads(p, unit, [unit.i_requests], [unit.o])


@properties(ReadPort)
def _read_port(p: Properties, unit: ReadPort) -> None:
    count = len(unit.clients)
    _reads(p, unit, [unit.i_requests[k] for k in range(count)], [unit.o[k] for k in range(count)])
    p.claim("rready is always high", unit.bus.rready)
    p.claim("a request is taken from one client at a time", unit.stop | (
        Cat(unit.i_requests[k].ready & unit.i_requests[k].valid for k in range(count)) & (
            Cat(unit.i_requests[k].ready & unit.i_requests[k].valid for k in range(count)) - 1) == 0))


@properties(WritePort)
def _write_port(p: Properties, unit: WritePort) -> None:
    bus, count, n = unit.bus, len(unit.clients), unit.outstanding
    log2 = (unit.beat_bytes - 1).bit_length()
    for k, depth in enumerate(unit.clients):
        request = unit.i_requests[k]
        p.assume(~request.valid | ((request.payload.beats >= 1) & (request.payload.beats <= depth)))
        p.assume(request.payload.address[:log2] == 0)
        p.assume(stable(p, request))
        p.assume(stable(p, unit.i_data[k]))
    stopping = _held(p, unit)
    w, b = Signal(), Signal()
    last = Signal()
    waits = past(p, bus.awvalid & ~bus.awready)
    shown = Signal()
    p.m.d.comb += [
        w.eq(bus.wvalid & bus.wready),
        b.eq(bus.bvalid & bus.bready),
        last.eq(w & bus.wlast),
        shown.eq(bus.awvalid & ~waits),
    ]
    limit = n + 4
    flight = counter(p, "bursts_unanswered", shown, b, most=limit)
    owed = counter(p, "bursts_without_all_data", shown, last, most=limit)
    taken = counter(p, "addresses_taken", bus.awvalid & bus.awready, b, most=limit)
    whole = counter(p, "bursts_with_all_data", last, b, most=limit)
    p.assume(~bus.bvalid | ((taken != 0) & (whole != 0)))
    p.claim("an address waits unchanged", stable(p, bus.awvalid, bus.awready, bus.awaddr, bus.awlen))
    p.claim("a beat waits unchanged", stable(p, bus.wvalid, bus.wready, bus.wdata, bus.wlast))
    p.claim("a burst keeps to its 4 KB", ~bus.awvalid | _page(bus.awaddr, bus.awlen, unit.beat_bytes))
    p.claim("no more bursts are unanswered than are remembered", flight <= n + 1)
    p.claim("no beat goes before its address", ~bus.wvalid | (owed != 0))
    p.claim("owes is high while an answer is due", unit.owes | ~past(p, flight != 0))
    p.claim("idle means that nothing is under way", ~unit.idle | ~past(p, flight != 0))
    p.claim("moved is a beat or an answer of the cycle before", unit.moved == past(p, w | bus.bvalid))
    silent = Signal(3)
    p.m.d.sync += silent.eq(Mux((owed != 0) & ~bus.wvalid, silent + (silent != 7), 0))
    p.claim("a burst that has begun is never kept waiting for data", silent < 4)
    # A burst, from its address to its last beat.
    seen, before, length, beat = Signal(), Signal.like(owed), Signal(8), Signal(8)
    with p.m.If(seen & (before != 0)):
        p.m.d.sync += before.eq(before - last)
    with p.m.Elif(seen & w):
        p.m.d.sync += beat.eq(beat + 1)
        p.m.d.sync += seen.eq(beat != length)
    with p.m.If(shown & p.free("follow") & ~seen):
        p.m.d.sync += [seen.eq(1), before.eq(owed - last), length.eq(bus.awlen), beat.eq(0)]
    p.claim("wlast is at the last beat of its burst", ~(seen & (before == 0) & w) | (bus.wlast == (beat == length)))
    answered = past(p, b)
    done = Cat(unit.done[k] for k in range(count))
    p.claim("done comes behind an answer", ~done.any() | answered)
    p.claim("at most one is done at a time", (done & (done - 1)) == 0)
    for k in range(count):
        request = unit.i_requests[k]
        is_open = Signal(4, name=f"open_{k}")
        p.m.d.sync += is_open.eq(is_open + (request.valid & request.ready & ~unit.stop) - unit.done[k])
        p.assume(~is_open.all() | ~request.valid)
        p.claim(f"client {k} hears of no more requests than it made", ~unit.done[k] | (is_open != 0) | stopping)
        p.claim(f"client {k} hears of an error only with its request", ~unit.error[k] | unit.done[k])
        p.cover(f"client {k} hears of an error", unit.error[k])
    p.cover("as many bursts are unanswered as are remembered", flight == n)
    p.cover("a beat waits", bus.wvalid & ~bus.wready)
    p.cover("idle after a burst", unit.idle & since(p, shown))


@properties(ControlSlave)
def _control(p: Properties, unit: ControlSlave) -> None:
    bus = unit.bus
    p.assume(stable(p, bus.awvalid, bus.awready, bus.awaddr))
    p.assume(stable(p, bus.wvalid, bus.wready, bus.wdata, bus.wstrb))
    p.assume(stable(p, bus.arvalid, bus.arready, bus.araddr))
    aw, w, b = bus.awvalid & bus.awready, bus.wvalid & bus.wready, bus.bvalid & bus.bready
    ar, r = bus.arvalid & bus.arready, bus.rvalid & bus.rready
    addresses, beats = counter(p, "addresses", aw, b, most=3), counter(p, "beats", w, b, most=3)
    reads = counter(p, "reads", ar, r, most=2)
    p.claim("the answer to a write waits", stable(p, bus.bvalid, bus.bready, bus.bresp))
    p.claim("the word that was read waits unchanged", stable(p, bus.rvalid, bus.rready, bus.rdata, bus.rresp))
    p.claim("a write is answered once, behind its address and its data",
            ~bus.bvalid | ((addresses != 0) & (beats != 0) & (addresses <= 2) & (beats <= 2)))
    p.claim("a read is answered once", (~bus.rvalid | (reads == 1)) & (reads <= 1))
    p.claim("every answer is OKAY", (bus.bresp == 0) & (bus.rresp == 0))
    silent = Signal(3)
    p.m.d.sync += silent.eq(Mux((reads != 0) & ~bus.rvalid, silent + (silent != 7), 0))
    p.claim("a read is answered within two cycles", silent <= 2)
    written = Signal(3)
    p.m.d.sync += written.eq(Mux((addresses != 0) & (beats != 0) & ~bus.bvalid, written + (written != 7), 0))
    p.claim("a write is answered in the next cycle", written <= 1)
    # The run as the core sees it: from `start` to `done`, which it gives once for each.
    running = Signal()
    with p.m.If(unit.start):
        p.m.d.sync += running.eq(1)
    with p.m.Elif(unit.done):
        p.m.d.sync += running.eq(0)
    p.assume(~unit.done | running)
    was_owing = past(p, unit.owing)
    p.claim("no run starts while one is on", ~(unit.start & running))
    write = past(p, ~bus.bvalid & (addresses != 0) & (beats != 0))
    p.claim("a run is aborted only by a write", ~unit.abort | write)
    p.claim("a run is dropped only by a write", ~unit.drop | write)
    pending = Signal()
    with p.m.If(unit.drop):
        p.m.d.sync += pending.eq(running & ~unit.done)
    with p.m.Elif(unit.done):
        p.m.d.sync += pending.eq(0)
    p.claim("no run starts before the one that was dropped has ended", ~(unit.start & pending))
    # What the host reads of CTRL follows from what has happened: done is set only when a run has ended.
    ended = since(p, unit.done)
    address = Signal(12)
    with p.m.If(ar):
        p.m.d.sync += address.eq(bus.araddr)
    is_control = bus.rvalid & (address[2:] == CTRL // 4)
    p.claim("CTRL says done only after a run's end", ~(is_control & bus.rdata[DONE]) | ended)
    p.claim("CTRL says neither idle and started", ~(is_control & bus.rdata[IDLE] & bus.rdata[START]))
    p.claim("CTRL has no bits but its own", ~is_control | ((bus.rdata & ~Value.cast(0x18F)) == 0))
    p.claim("there is an interrupt only after a run's end", ~unit.interrupt | since(p, b))
    p.cover("a run starts", unit.start)
    p.cover("a run starts again", unit.start & ended)
    p.cover("a run is dropped", unit.drop & running)
    p.cover("a run is dropped while the bus owes", pending & was_owing)
    p.cover("a run is aborted", unit.abort & running)
    p.cover("an interrupt", unit.interrupt)
    p.cover("CTRL says done", is_control & bus.rdata[DONE])
    p.cover("a second write waits for the first answer", (addresses == 2) & bus.bvalid & ~bus.bready)


def _near(p: Properties, unit: Any) -> None:
    """Requests of few beats, in the lowest 256 bytes: what addresses have above takes no part in how one is cut."""
    requests = [unit.i] if isinstance(unit, Splitter) else unit.i_requests
    for request in requests if isinstance(requests, list | tuple) else [requests]:
        p.assume((request.payload.address[8:] == 0) & (request.payload.beats < 16))


def _single(p: Properties, unit: Reader) -> None:
    """Bursts of one beat: what is under way is then the number of bursts."""
    _near(p, unit)
    p.assume(unit.i_requests.payload.beats == 1)


def _short(p: Properties, unit: BurstTracker) -> None:
    """Bursts of up to four beats: more only take longer."""
    p.assume(unit.i.payload.len < 4)


def _kernel() -> Kernel:
    """What the control slave looks at of one, and little of that."""
    return Kernel(name="k", about="", arguments=(Argument("size", "scalar", "", ""),),
                  registers=tuple(Register(name, access, "") for name, access in (
                      ("abort", "write"), ("status", "read"), ("code", "read"))),
                  words=1, fields=(), instructions=(), modes=(), devices=(), states=(), codes=(Code(0, "OK", ""),),
                  result_words=1, final_words=0, result=())


_LENGTHS = "bursts are inside their request, and the last ends it"
_DUE = ("owes is high while an answer is due", "idle means that nothing is under way")
_PAGES = ((hw.axi.bus, "PAGE_BYTES", 16),)      # four beats: how requests are cut does not depend on it

PROOFS = (
    Proof("splitter", lambda: Splitter(beat_bytes=4, tag_bits=1), narrowed=_near, constants=_PAGES),
    Proof("splitter_64", lambda: Splitter(beat_bytes=64, tag_bits=1), without=(_LENGTHS,)),
    Proof("splitter_4", lambda: Splitter(beat_bytes=4, tag_bits=1), without=(_LENGTHS,)),
    Proof("tracker", lambda: BurstTracker(outstanding=2, tag_bits=1), narrowed=_short),
    Proof("reader", lambda: Reader(beat_bytes=4, outstanding=2), narrowed=_near, constants=_PAGES, without=_DUE),
    Proof("reader_single", lambda: Reader(beat_bytes=4, outstanding=2), narrowed=_single, constants=_PAGES,
          bounded={"owes is high while an answer is due": 14}),
    Proof("read_port", lambda: ReadPort(beat_bytes=4, clients=(4, 1), outstanding=2), narrowed=_near,
          constants=_PAGES),
    Proof("write_port", lambda: WritePort(beat_bytes=4, clients=(2, 2), outstanding=2), narrowed=_near,
          constants=_PAGES, bounded={
              "a burst that has begun is never kept waiting for data": 16, "wlast is at the last beat of its burst": 14,
              "client 0 hears of no more requests than it made": 15,
              "client 1 hears of no more requests than it made": 15}),
    Proof("control", lambda: ControlSlave(kernel=_kernel())),
)
