"""Of what every kernel has: its run, doorbell, counters and report."""

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring

from hw.axi.reader import Reader
from hw.axi.writer import WritePort
from hw.isa import EMB
from hw.isa.kernel import OK
from hw.kernel.counters import CounterFile
from hw.kernel.doorbell import POLL_CYCLES, Doorbell
from hw.kernel.report import Reporter
from hw.kernel.run import DRAINING, IDLE, REPORTING, RUNNING, STOP_CYCLES, RunControl
from verif.formal.properties import Properties, counter, past, properties, since, stable
from verif.formal.prove import Proof


@properties(RunControl)
def _run(p: Properties, unit: RunControl) -> None:
    status, before = unit.status, past(p, unit.status)
    begun = since(p, 1)
    # A run is open from its start to its end; the slave starts none while one is open.
    is_open, has_begun, dropped, reporting = Signal(), Signal(), Signal(), Signal()
    p.assume(~unit.start | ~is_open)
    p.assume(~unit.reported | reporting)
    with p.m.If(unit.start):
        p.m.d.sync += [is_open.eq(1), has_begun.eq(0), dropped.eq(unit.drop)]
    with p.m.Elif(unit.ends):
        p.m.d.sync += is_open.eq(0)
    with p.m.If(unit.begin):
        p.m.d.sync += has_begun.eq(1)
    with p.m.If(unit.drop & is_open):
        p.m.d.sync += dropped.eq(1)
    with p.m.If(unit.report):
        p.m.d.sync += reporting.eq(1)
    with p.m.Elif(unit.reported | unit.ends):
        p.m.d.sync += reporting.eq(0)

    def follows(state: int, *others: int) -> object:
        return ~begun | (before != state) | Cat(status == other for other in others).any()

    p.claim("there are four states", status <= REPORTING)
    p.claim("idle is followed by running, or by draining while a bus owes",
            follows(IDLE, IDLE, RUNNING) | (unit.owing & (status == DRAINING)))
    p.claim("running is followed by draining, or by reporting", follows(RUNNING, RUNNING, DRAINING, REPORTING))
    p.claim("reporting is followed by idle", follows(REPORTING, REPORTING, IDLE) | (unit.owing & (status == DRAINING)))
    p.claim("draining is followed by reporting, or by idle once nothing is owed", follows(DRAINING, DRAINING, REPORTING)
            | (~past(p, is_open) & ((status == IDLE) | (status == RUNNING))))
    p.claim("idle means that no run is open", (status != IDLE) | ~is_open)
    p.claim("parts begin once in a run, and only in one", ~unit.begin | (is_open & ~has_begun))
    p.claim("a run ends only while it is open", ~unit.ends | is_open)
    p.claim("parts are reset exactly while no run is at work", unit.flush == ~unit.running)
    p.claim("parts work only while a run is open", ~unit.running | is_open)
    p.claim("counters are not cleared while they count", ~(unit.clear & unit.running))
    p.claim("a report is asked for behind the end of the work", ~unit.report | (unit.flush & is_open & ~reporting))
    p.claim("nothing is reported of a run that was dropped", ~unit.report | ~dropped)
    # Ports are reset when they are quiet; `clean` is a cycle late, and behind the state before it.
    recent = Signal(2, init=3)
    p.m.d.sync += recent.eq(Cat(0, recent[0]))
    for clean, quiet, name in ((unit.clean, unit.quiet, "ports"),
                               (unit.clean_report, unit.writable, "the report's port")):
        one = past(p, quiet)
        two = past(p, one)
        p.claim(f"{name} are reset only where they were quiet", ~clean | recent.any() | one | two)
        p.claim(f"{name} are reset only while no run is at work", ~clean | ~unit.running)
    # A stop ends with a reset of its ports, so that of how long it was nothing depends but whether they were quiet.
    for clean, stop, name in ((unit.clean, unit.stop, "ports"),
                              (unit.clean_report, unit.stop_report, "the report's port")):
        p.claim(f"a stop of {name} ends with a reset", stop | ~past(p, stop) | past(p, clean))
    held = Signal(range(STOP_CYCLES + 1))
    p.m.d.sync += held.eq(Mux(unit.stop, held + (held != STOP_CYCLES), 0))
    p.claim("ports are stopped for as long as they need to say that they are busy", unit.stop | (held == 0)
            | (held == STOP_CYCLES))
    p.claim("ports are stopped as they are reset", ~unit.clean | recent.any() | unit.stop)
    p.claim("ports are not stopped while a run is at work", ~unit.running | ~(unit.stop & past(p, unit.running)))
    p.claim("a run that has ended in a good state says so from its start", ~past(p, unit.start) | (unit.code == OK))
    p.cover("a run ends", unit.ends & has_begun)
    p.cover("a run is reported", unit.reported)
    p.cover("a run that was dropped ends", unit.ends & dropped)
    p.cover("a run begins behind another", unit.begin & since(p, unit.ends))
    p.cover("a bus owes answers", unit.owing & ~is_open)
    p.cover("a run ends with an error", unit.ends & (unit.code != OK))


def _short(p: Properties, unit: RunControl) -> None:
    """The watchdog's time is two cycles, and parts tell at once: how long an end takes is then bounded."""
    p.assume(unit.timeout == 2)


def _watchdog(p: Properties, unit: RunControl) -> None:
    """Every run ends, whatever its bus and its host do."""
    is_open = Signal()
    p.assume(~unit.start | ~is_open)
    p.assume(~unit.reported)
    with p.m.If(unit.start):
        p.m.d.sync += is_open.eq(1)
    with p.m.Elif(unit.ends):
        p.m.d.sync += is_open.eq(0)
    progress = unit.work | unit.moved.any()
    silent, dropped = Signal(6), since(p, unit.drop)
    p.m.d.sync += silent.eq(Mux(is_open & ~progress & ~dropped, silent + ~silent.all(), 0))
    p.claim("a run without progress ends in time", silent < 60)
    p.cover("the watchdog ends a run", unit.ends & (silent > 20))


class _Stopped(Elaboratable):
    """The run control with a port that it stops and resets, both with their other members as they are: the write
    master that reports are written by, or the only read master."""

    def __init__(self, port: Any, *, reports: bool):
        self.run, self.port, self.reports = RunControl(kernel=EMB, period=2), port, reports
        wired = {"stop", "stop_report", "idle", "moved", "owes", "writable" if reports else "quiet"}
        members = {}
        for part in (self.run, port):
            for name, member in part.signature.members.items():
                if name not in wired:
                    members[name] = member
                    setattr(self, name, getattr(part, name))
        self.signature = wiring.Signature(members)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        run, port = self.run, self.port
        m.submodules.run = run
        m.submodules.port = ResetInserter(run.clean_report if self.reports else run.clean)(port)
        m.d.comb += [
            port.stop.eq(run.stop_report if self.reports else run.stop),
            (run.writable if self.reports else run.quiet).eq(port.idle),
            run.moved.eq(port.moved.replicate(len(run.moved))),
            run.owes.eq(port.owes.replicate(len(run.owes))),
        ]
        return m


def _stopped(p: Properties, unit: _Stopped) -> None:
    """A port is reset only while its bus owes it nothing and is owed nothing by it. Bursts of reads are of one beat."""
    run, bus = unit.run, unit.port.bus
    is_open, reporting = Signal(), Signal()
    p.assume(~run.start | ~is_open)
    p.assume(~run.reported | reporting)
    p.assume(run.timeout == 2)
    with p.m.If(run.start):
        p.m.d.sync += is_open.eq(1)
    with p.m.Elif(run.ends):
        p.m.d.sync += is_open.eq(0)
    with p.m.If(run.report):
        p.m.d.sync += reporting.eq(1)
    with p.m.Elif(run.reported | run.ends):
        p.m.d.sync += reporting.eq(0)
    if unit.reports:
        taken = counter(p, "addresses_taken", bus.awvalid & bus.awready, bus.bvalid & bus.bready, most=6)
        whole = counter(p, "bursts_with_all_data", bus.wvalid & bus.wready & bus.wlast, bus.bvalid & bus.bready, most=6)
        p.assume(~bus.bvalid | ((taken != 0) & (whole != 0)))
        due = (taken != 0) | (whole != 0) | bus.awvalid | bus.wvalid
        clean, stop = run.clean_report, run.stop_report
    else:
        request = unit.port.i_requests.payload
        p.assume((request.beats == 1) & (request.address[:2] == 0) & (request.address[8:] == 0))
        asked = counter(p, "bursts_asked_for", bus.arvalid & bus.arready, bus.rvalid & bus.rready, most=6)
        p.assume(~bus.rvalid | (asked != 0))
        due = (asked != 0) | bus.arvalid
        clean, stop = run.clean, run.stop
    p.claim("a port is reset only while nothing is under way on its bus", ~clean | ~due)
    p.cover("a port is reset behind a burst", clean & since(p, due))
    p.cover("a port is stopped while its bus owes it", stop & due & (run.status == IDLE) | run.owing & due)


@properties(Doorbell)
def _doorbell(p: Properties, unit: Doorbell) -> None:
    request, answer = unit.o_requests, unit.i
    p.assume(~past(p, request.valid) | (unit.address == past(p, unit.address)))
    asked = Signal()
    p.assume(~answer.valid | asked)
    with p.m.If(request.valid & request.ready):
        p.m.d.sync += asked.eq(1)
    with p.m.Elif(answer.valid):
        p.m.d.sync += asked.eq(0)
    heard = past(p, answer.valid)
    error = past(p, answer.payload.error)
    value = past(p, unit.value)
    p.claim("a request waits unchanged", stable(p, request))
    p.claim("one look at a time", ~request.valid | ~asked)
    p.claim("a value is told of with its answer", unit.polled == (heard & ~error))
    p.claim("a failure is told of with its answer", unit.failed == (heard & error))
    p.claim("the value changes only with an answer", (unit.value == value) | heard)
    p.claim("the value is what was read", ~unit.polled | (unit.value == past(p, answer.payload.data)[:unit.bits]))
    rests = Signal(range(POLL_CYCLES + 8))
    free = unit.enable & unit.waiting & ~request.valid & ~asked
    p.m.d.sync += rests.eq(Mux(free, rests + (rests != POLL_CYCLES + 7), 0))
    p.claim("whoever waits is never kept longer than between two looks", rests <= POLL_CYCLES + 2)
    p.cover("a look fails", unit.failed)
    p.cover("a second look", request.valid & since(p, unit.polled))


@properties(CounterFile)
def _counters(p: Properties, unit: CounterFile) -> None:
    warm = since(p, since(p, since(p, 1)))
    p.claim("totals come in their order", ~warm | (
        unit.number == (past(p, unit.number) + 1)[:len(unit.number)]))
    # The first counter, modulo 16: what has happened less what is shown is on its way.
    happened, shown = Signal(4), Signal(4)
    clearing = Signal(range(2 * unit.period + 4))
    p.m.d.sync += clearing.eq(Mux(unit.clear, clearing + (clearing != 2 * unit.period + 3), 0))
    known = Signal()
    p.assume(~unit.clear | (unit.events[unit.names[0]] == 0))
    with p.m.If(unit.clear):
        p.m.d.sync += happened.eq(0)
        p.m.d.sync += shown.eq(0)
        p.m.d.sync += known.eq(clearing == 2 * unit.period + 3)
    with p.m.Else():
        p.m.d.sync += happened.eq(happened + unit.events[unit.names[0]])
        with p.m.If(unit.number == 0):
            p.m.d.sync += shown.eq(unit.total[:4])
    history = [happened]
    for _ in range(unit.period + 4):
        history.append(past(p, history[-1]))
    since_clear = Signal(range(unit.period + 8))
    p.m.d.sync += since_clear.eq(Mux(unit.clear, 0, since_clear + (since_clear != unit.period + 7)))
    settled = known & (unit.number == 0) & (since_clear == unit.period + 7)
    p.claim("a total is what had happened three cycles before, and a round at most", ~settled | Cat(
        unit.total[:4] == total for total in history[2:]).any())
    p.cover("a total shows an event", settled & (unit.total[:4] != 0))


@properties(Reporter)
def _reporter(p: Properties, unit: Reporter) -> None:
    begun = since(p, 1)
    number = past(p, unit.number)
    p.assume(~begun | (unit.number == (number + 1)[:len(number)]))
    p.assume(~(unit.finish & unit.busy))
    p.assume(unit.o_data.ready)
    requested = Signal()
    p.assume(~unit.done | requested)
    with p.m.If(unit.o_requests.valid & unit.o_requests.ready):
        p.m.d.sync += requested.eq(1)
    with p.m.Elif(unit.done):
        p.m.d.sync += requested.eq(0)
    # Beats and requests since the one before was done.
    beats = Signal(range(unit.beats + 3))
    with p.m.If(unit.done):
        p.m.d.sync += beats.eq(unit.o_data.valid)
    with p.m.Elif(unit.o_data.valid):
        p.m.d.sync += beats.eq(beats + (beats != unit.beats + 2))
    asked = counter(p, "finishes", unit.finish, unit.finished, most=1)
    kept = past(p, unit.o_requests.payload.beats)
    waits = past(p, unit.o_requests.valid & ~unit.o_requests.ready)
    p.claim("a request waits unchanged but for its address", ~waits | (
        unit.o_requests.valid & (unit.o_requests.payload.beats == kept)))
    p.claim("a block is finished once for each time it is asked for", (asked <= 1) & (~unit.finished | (asked == 1)))
    p.claim("it asks for the beats that it sends", ~(unit.done & requested) | (beats == 1) | (beats == unit.beats))
    p.claim("it asks for no more than the block", ~unit.o_requests.valid | (unit.o_requests.payload.beats == 1)
            | (unit.o_requests.payload.beats == unit.beats))
    p.claim("it is busy until the block is written", (asked == 0) | unit.busy)
    p.cover("the block is written", unit.finished)
    p.cover("progress is told before the block", unit.done & (beats == 1) & (asked == 1))


_RUN = "hw/kernel/run.py"
PROOFS = (
    Proof("run_control", lambda: RunControl(kernel=EMB, period=2)),
    Proof("run_control_finishes", lambda: RunControl(kernel=EMB, period=2, finishes=True)),
    Proof("run_with_writes", lambda: _Stopped(WritePort(beat_bytes=4, clients=(2,), outstanding=2), reports=True),
          _RUN, _stopped),
    Proof("run_with_reads", lambda: _Stopped(Reader(beat_bytes=4, outstanding=2), reports=False), _RUN, _stopped),
    Proof("watchdog", lambda: RunControl(kernel=EMB, period=2), declare=_watchdog, narrowed=_short),
    Proof("doorbell", lambda: Doorbell(beat_bytes=4, bits=4), frames=150),
    Proof("counters", lambda: CounterFile({"first": 1, "second": 2}),
          bounded={"a total is what had happened three cycles before, and a round at most": 30}),
    Proof("reporter", lambda: Reporter(words=4, counters=2, kernel=EMB)),
)
