"""A run of a kernel from start to done, however it ends."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.isa import Kernel
from hw.isa.kernel import CHANNELS_BIT
from hw.place import Part

IDLE, RUNNING, DRAINING, REPORTING = range(4)
STOP_CYCLES = 8     # that ports are given to say that they are busy


def status_layout(kernel: Kernel) -> data.StructLayout:
    """The words of the result block that say how a run ended, but for the last, which is the core's state."""
    names = [value.name for value in kernel.result if value.kind == "status"]
    return data.StructLayout(dict.fromkeys(names[:-1], 32))


class RunControl(Part):
    """Takes a core through a run: counters cleared, parts at work, the ports quiet, the report written.

    A watchdog counts the cycles without progress. In a run that is at work progress is `work`, and a transfer on any
    channel but the first, which the doorbell has a part in; afterwards it is a transfer on any channel. `timeout`
    such cycles end the run with TIMEOUT where nothing but the host was waited for, and with STALLED otherwise, also
    where the doorbell had no answer in the later half of them; after that they end the wait for the bus, so that every
    run comes to its end. Ports whose bus still owes an answer stay stopped until it has come: the next run begins only
    then, or ends with STALLED too.

    Source: hw.isa (states, status words); Vitis ap_ctrl_hs; XRT, cu_hls.c (the reset of a kernel)

    Parameters  kernel: states idle, running, draining, reporting; its status words end with the state; period: of
                the counter file; finishes: parts finish something before the flush: there are `holds` and `ending`
    Members     start, abort  In  pulses of the control slave
                drop          In  a pulse of the control slave: the run ends as with an abort, and nothing is reported
                timeout       In(32)  cycles without progress that end a run; 0: none do
                over          In  the core's work is done, until the flush
                fault         In  {valid, status}: the first of a run is kept
                at            In(32)  the instruction that an abort, TIMEOUT and STALLED name
                work          In  the core's work goes on
                stalls        In  what waits, as kernel.stalls
                host          In  {waits, detail}  the core waits for the host; only if the kernel has TIMEOUT
                report_pending  In  the reporter has something to write
                holds         In  parts have something to finish, from the cycle after `ending`; only with `finishes`
                ending        Out  a fault or an abort ends the run; only with `finishes`
                moved, owes   In  a transfer on a channel, and whether it owes an answer, as kernel.channels
                quiet         In  all ports are idle but the one that reports are written by
                writable      In  that one is idle
                reported      In  a pulse: the report is written
                flush         Out  resets the core's parts; from a register, high in and after a reset
                stop, stop_report    Out  of those ports, and of that one
                clean, clean_report  Out  reset those ports, and that one; from registers, high in a reset and a cycle
                    longer
                clear         Out  of the counters
                begin         Out  a pulse for the parts
                report        Out  a pulse for the reporter
                forget        Out  resets the reporter; from a register
                ends          Out  a pulse for the slave
                running       Out  cycles that count
                owing         Out  a bus owes answers of a run before
                status        Out  state of the run; draining after it, while a bus owes answers
                code          Out  of the run that ended last; OK from a start on
                header        Out  the status words and the state
    Timing      twice `period` cycles from start to begin, and from the last transfer to the report; `timeout` + 3 from
                the last progress to the end of the work
    Reset       idle
    Golden      the order of its states          Tests  verif/kernel/test_run.py, tests/fpga/card/test_card_emb.py
    """

    def __init__(self, *, kernel: Kernel, period: int, finishes: bool = False):
        self.kernel, self.period, self.finishes = kernel, period, finishes
        self.has_host = any(code.name == "TIMEOUT" for code in kernel.codes)
        status = status_layout(kernel)
        channels = len(kernel.channels)
        super().__init__({
            "start": In(1), "abort": In(1), "drop": In(1), "timeout": In(32), "over": In(1),
            "fault": In(data.StructLayout({"valid": 1, "status": status})), "at": In(32),
            "work": In(1), "stalls": In(len(kernel.stalls)), "moved": In(channels), "owes": In(channels),
            "report_pending": In(1), "quiet": In(1), "writable": In(1), "reported": In(1),
            "flush": Out(1, init=1), "stop": Out(1), "stop_report": Out(1), "clean": Out(1, init=1),
            "clean_report": Out(1, init=1), "clear": Out(1), "begin": Out(1),
            "report": Out(1), "forget": Out(1), "ends": Out(1), "running": Out(1), "owing": Out(1),
            "status": Out(32), "code": Out(8),
            "header": Out(data.StructLayout({**dict(status.members), "state": 32})),
            **({"host": In(data.StructLayout({"waits": 1, "detail": 32}))} if self.has_host else {}),
            **({"holds": In(1), "ending": Out(1)} if finishes else {}),
        })

    def elaborate(self, platform):
        m = Module()
        header, status = self.header, self.fault.status
        wait = Signal(range(max(2 * self.period, STOP_CYCLES) + 1))
        aborted = Signal()
        dropped = Signal()
        with m.If(self.abort | self.drop):
            m.d.sync += aborted.eq(1)
        with m.If(self.drop):
            m.d.sync += dropped.eq(1)
        # Registers, set by the state before: they reach everything.
        flush = self.flush
        owed = Signal()             # ports whose bus did not answer stay stopped
        owed_report = Signal()
        halt = Signal()
        m.d.sync += [
            flush.eq(1),
            self.stop.eq(halt | owed),
            self.stop_report.eq(halt | owed_report),
            self.clean.eq(0),
            self.clean_report.eq(0),
            self.forget.eq(0),
        ]
        watched = Signal()
        blocked = Signal()          # a run has not begun: ports owe
        expired, mute = self._watch(m, watched)
        # What happened, a cycle before it is acted upon: the flush must not take it away.
        noted = Signal()
        waits = self.report_pending
        if self.finishes:
            waits = waits | self.holds
            m.d.comb += self.ending.eq(noted)
        stalls = {"code": self.kernel.code("STALLED"), "instruction": self.at,
                  "detail": Cat(self.stalls, Const(0, CHANNELS_BIT - len(self.stalls)), mute)}
        if self.has_host:
            blames = Signal()
            m.d.comb += blames.eq(self.host.waits & ~mute.any())
            stalls["code"] = Mux(blames, self.kernel.code("TIMEOUT"), stalls["code"])
            stalls["detail"] = Mux(blames, self.host.detail, stalls["detail"])
        aborts = {"code": self.kernel.code("ABORTED"), "instruction": self.at}
        with m.If(~noted & (self.running & self.fault.valid | (self.running | blocked) & aborted | expired)):
            m.d.sync += noted.eq(1)
            m.d.sync += header.state.eq(RUNNING)
            for name in status_layout(self.kernel).members:
                m.d.sync += header[name].eq(Mux(
                    self.fault.valid & self.running, status[name],
                    Mux(aborted & (self.running | blocked), aborts.get(name, 0), stalls.get(name, 0))))
        m.d.comb += self.code.eq(header.code)
        m.d.comb += self.owing.eq(owed | owed_report)

        with m.FSM():
            with m.State("IDLE"):
                # A bus that owes answers may still write.
                m.d.comb += self.status.eq(Mux(self.owing, DRAINING, IDLE))
                self._recover(m, owed, owed_report)
                m.d.sync += wait.eq(2 * self.period)
                m.d.sync += aborted.eq(self.start & (self.abort | self.drop))
                m.d.sync += dropped.eq(self.start & self.drop)
                m.d.sync += noted.eq(0)
                with m.If(self.start):
                    m.d.sync += header.as_value().eq(0)
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += self.status.eq(RUNNING)
                m.d.comb += self.clear.eq(1)
                m.d.comb += blocked.eq(self.owing)
                m.d.comb += watched.eq(blocked)
                self._recover(m, owed, owed_report)
                with m.If(wait != 0):
                    m.d.sync += wait.eq(wait - 1)
                with m.Elif(noted):
                    m.d.sync += wait.eq(2 * self.period)
                    m.next = "TOTAL"
                with m.Elif(~(blocked | self.clean | self.clean_report)):
                    m.d.sync += flush.eq(0)
                    m.next = "START"
            with m.State("START"):
                m.d.comb += self.status.eq(RUNNING)
                m.d.comb += self.begin.eq(1)
                m.d.comb += self.running.eq(1)
                m.d.sync += flush.eq(0)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.status.eq(RUNNING)
                m.d.comb += self.running.eq(1)
                m.d.comb += watched.eq(1)
                m.d.sync += flush.eq(0)
                with m.If(noted | self.over):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Progress whose report has begun is written, what parts have to finish is finished.
                m.d.comb += self.status.eq(DRAINING)
                m.d.comb += self.running.eq(1)
                m.d.comb += watched.eq(1)
                m.d.sync += wait.eq(STOP_CYCLES)
                m.d.sync += flush.eq(0)
                with m.If(~waits | expired):
                    m.d.sync += flush.eq(1)
                    m.d.comb += halt.eq(1)
                    m.next = "STOP"
            with m.State("STOP"):
                m.d.comb += self.status.eq(DRAINING)
                m.d.comb += halt.eq(1)
                m.d.comb += watched.eq(1)
                # The ports say that they are idle some cycles late.
                with m.If(wait != 0):
                    m.d.sync += wait.eq(wait - 1)
                # Who dropped the run gives its memory to others: for that every answer is waited for.
                with m.Elif(self.quiet & self.writable | expired & ~dropped):
                    m.d.sync += owed.eq(~self.quiet)
                    m.d.sync += owed_report.eq(~self.writable)
                    m.next = "CLEAN"
            with m.State("CLEAN"):
                m.d.comb += self.status.eq(DRAINING)
                m.d.comb += halt.eq(1)
                m.d.sync += [
                    self.clean.eq(~owed),
                    self.clean_report.eq(~owed_report),
                    self.forget.eq(1),
                    wait.eq(2 * self.period),
                ]
                m.next = "TOTAL"
            with m.State("TOTAL"):
                # The last events reach their totals.
                m.d.comb += self.status.eq(REPORTING)
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(dropped | owed_report):
                        m.next = "END"
                    with m.Else():
                        m.d.comb += self.report.eq(1)
                        m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += self.status.eq(REPORTING)
                m.d.comb += watched.eq(1)
                with m.If(self.reported):
                    m.d.comb += self.ends.eq(1)
                    m.next = "IDLE"
                with m.Elif(expired):
                    m.d.sync += owed_report.eq(1)
                    m.d.sync += self.forget.eq(1)
                    m.next = "END"
            with m.State("END"):
                # Nothing is reported: nobody is there to read it, or there is no way to where it should be.
                m.d.comb += self.status.eq(REPORTING)
                m.d.comb += self.ends.eq(1)
                m.next = "IDLE"
        return m

    def _watch(self, m: Module, watched: Signal) -> tuple[Signal, Signal]:
        """Counts the cycles without progress. Returns a pulse when there were `timeout` of them, and the channels that
        owe an answer and have given none meanwhile."""
        left = Signal(32, reset_less=True)
        enabled = Signal(reset_less=True)
        progress = Signal()
        expired = Signal()
        # The first channel, on which the doorbell's answers are no progress, in the later half of that time: a bus that
        # falls silent in the earlier half is to blame, and not the host.
        answered = Signal()
        first, others = self.moved[0], self.moved[1:]
        m.d.comb += progress.eq(self.work | others.any() | (first & ~self.running))
        m.d.sync += enabled.eq(self.timeout != 0)
        m.d.sync += expired.eq(watched & enabled & ~progress & ~expired & (left == 0))
        half = Signal()
        m.d.sync += half.eq(left == self.timeout >> 1)
        m.d.sync += answered.eq(watched & ~progress & ~expired & (answered & ~half | first))
        with m.If(~watched | progress | expired):
            m.d.sync += left.eq(self.timeout)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        mute = Signal(len(self.owes))
        m.d.comb += mute.eq(Cat(self.owes[0] & ~answered, self.owes[1:]))
        return expired, mute

    def _recover(self, m: Module, owed: Signal, owed_report: Signal) -> None:
        """In a state without a run: ports whose bus has answered at last are reset."""
        for owes, quiet, clean in ((owed, self.quiet, self.clean), (owed_report, self.writable, self.clean_report)):
            with m.If(owes & quiet):
                m.d.sync += owes.eq(0)
                m.d.sync += clean.eq(1)
