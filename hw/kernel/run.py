"""A run of a kernel from start to done, however it ends."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.isa import Kernel
from hw.place import Part

__all__ = ["RunControl", "told_layout"]

IDLE, RUNNING, DRAINING, REPORTING = range(4)


def told_layout(kernel: Kernel) -> data.StructLayout:
    """The words of the result block that say how a run ended, but for the last, which is the core's state."""
    names = [value.name for value in kernel.result if value.kind == "status"]
    return data.StructLayout(dict.fromkeys(names[:-1], 32))


class RunControl(Part):
    """Takes a core through a run: counters cleared, parts at work, the ports quiet, the report written.

    Source: hw.isa (states, status words); Vitis ap_ctrl_hs

    Parameters  kernel: states idle, running, draining, reporting; its status words end with the state; period: of
                the counter file; finishes: parts finish something before the flush: there are `holds` and `ending`
    Members     start, abort  In  pulses of the control slave
                over          In  the core's work is done, until the flush
                fault         In  {valid, told}: the first of a run is kept
                at            In(32)  the instruction that an abort names
                telling       In  the report has something to tell
                holds         In  parts have something to finish, from the cycle after `ending`; only with `finishes`
                ending        Out  a fault or an abort ends the run; only with `finishes`
                quiet         In  all ports are idle
                reported      In  a pulse: the report is written
                flush         Out  resets the core's parts; from a register, high in and after a reset
                stop          Out  of the ports
                clean         Out  resets the ports; from a register, high in a reset and a cycle longer
                clear         Out  of the counters
                begin         Out  a pulse for the parts
                report        Out  a pulse for the reporter
                ends          Out  a pulse for the slave
                running       Out  cycles that count
                status        Out  state of the run
                header        Out  the told words and the state
    Timing      twice `period` cycles from start to begin, and from the last transfer to the report
    Reset       idle
    Golden      the order of its states          Tests  tests/fpga/card/test_card_emb.py
    """

    def __init__(self, *, kernel: Kernel, period: int, finishes: bool = False):
        self.kernel, self.period, self.finishes = kernel, period, finishes
        told = told_layout(kernel)
        super().__init__({
            "start": In(1), "abort": In(1), "over": In(1),
            "fault": In(data.StructLayout({"valid": 1, "told": told})), "at": In(32),
            "telling": In(1), "quiet": In(1), "reported": In(1),
            "flush": Out(1, init=1), "stop": Out(1), "clean": Out(1, init=1), "clear": Out(1), "begin": Out(1),
            "report": Out(1), "ends": Out(1), "running": Out(1), "status": Out(32),
            "header": Out(data.StructLayout({**dict(told.members), "state": 32})),
            **({"holds": In(1), "ending": Out(1)} if finishes else {}),
        })

    def elaborate(self, platform):
        m = Module()
        header, told = self.header, self.fault.told
        wait = Signal(range(2 * self.period + 1))
        aborted = Signal()
        with m.If(self.abort):
            m.d.sync += aborted.eq(1)
        # Registers, set by the state before: they reach everything.
        flush, stop, clean = self.flush, self.stop, self.clean
        m.d.sync += flush.eq(1)
        m.d.sync += stop.eq(0)
        m.d.sync += clean.eq(0)
        # What happened, a cycle before it is acted upon: the flush must not take it away.
        noted = Signal()
        waits = self.telling
        if self.finishes:
            waits = waits | self.holds
            m.d.comb += self.ending.eq(noted)
        with m.If(self.running & ~noted & (self.fault.valid | aborted)):
            m.d.sync += noted.eq(1)
            m.d.sync += header.state.eq(RUNNING)
            for name in told_layout(self.kernel).members:
                aborts = {"code": self.kernel.code("ABORTED"), "instruction": self.at}.get(name, 0)
                m.d.sync += header[name].eq(Mux(self.fault.valid, told[name], aborts))

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.status.eq(IDLE)
                m.d.sync += wait.eq(2 * self.period)
                m.d.sync += aborted.eq(0)
                m.d.sync += noted.eq(0)
                with m.If(self.start):
                    m.d.sync += header.as_value().eq(0)
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += self.status.eq(RUNNING)
                m.d.comb += self.clear.eq(1)
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
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
                m.d.sync += flush.eq(0)
                with m.If(noted | self.over):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Progress that was begun to be told is told, what parts have to finish is finished.
                m.d.comb += self.status.eq(DRAINING)
                m.d.comb += self.running.eq(1)
                m.d.sync += wait.eq(8)
                m.d.sync += flush.eq(0)
                with m.If(~waits):
                    m.d.sync += flush.eq(1)
                    m.d.sync += stop.eq(1)
                    m.next = "STOP"
            with m.State("STOP"):
                m.d.comb += self.status.eq(DRAINING)
                m.d.sync += stop.eq(1)
                # The ports say that they are idle some cycles late.
                with m.If(wait != 0):
                    m.d.sync += wait.eq(wait - 1)
                with m.Elif(self.quiet):
                    m.next = "CLEAN"
            with m.State("CLEAN"):
                m.d.comb += self.status.eq(DRAINING)
                m.d.sync += stop.eq(1)
                m.d.sync += clean.eq(1)
                m.d.sync += wait.eq(2 * self.period)
                m.next = "TOTAL"
            with m.State("TOTAL"):
                # The last events reach their totals.
                m.d.comb += self.status.eq(REPORTING)
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.comb += self.report.eq(1)
                    m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += self.status.eq(REPORTING)
                with m.If(self.reported):
                    m.d.comb += self.ends.eq(1)
                    m.next = "IDLE"
        return m
