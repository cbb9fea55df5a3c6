"""What stands around the parts of every core: control slave, run, counters and report, wired together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4, AXI4Lite
from hw.axi.control import ControlSlave
from hw.config import Config
from hw.isa import Kernel
from hw.kernel.counters import CounterFile
from hw.kernel.identity import identity
from hw.kernel.report import Reporter
from hw.kernel.run import RunControl, status_layout
from hw.layouts import arguments_layout
from hw.place import Part, place

CYCLES = "cycles"   # the counter of a run's own length
# Of the run control, a bit each.
INPUTS = ("over", "quiet", "writable")
OUTPUTS = ("flush", "stop", "stop_report", "clean", "clean_report", "begin")


def kernel_ports(beat_bytes: int) -> dict[str, wiring.Member]:
    """The members of a core that is a Vitis kernel with two masters of `beat_bytes`."""
    return {
        "s_axi_control": In(AXI4Lite(12)), "m00_axi": Out(AXI4(8 * beat_bytes)), "m01_axi": Out(AXI4(8 * beat_bytes)),
        "interrupt": Out(1),
    }


class KernelShell(Part):
    """Takes a core from a write to its control slave through a run to the result block and `ap_done`.

    Source: hw.isa; Vitis ap_ctrl_hs

    Parameters  kernel: has a counter `cycles`, which is counted here; config: of the core, for its identity; words:
                FP32 words of a beat; increments: bits of a counter's largest increment, 1 where it is not said;
                finishes: there are `holds` and `ending`
    Members     bus                 In(AXI4-Lite)
                interrupt           Out
                arguments           Out  of the control slave
                over, fault, at, moved, owes, quiet, writable, host, holds  In  of the run control
                work                In  the core's work goes on, besides what counters of work count
                flush, stop, stop_report, clean, clean_report, begin, ending  Out  of the run control
                events              In  of the counter file but for the cycles
                progress, report_progress  In  of the reporter
                o_requests, o_data  Out(stream)  of the reporter, to a client of the write port with a queue of
                    `block_beats`
                done                In  that client's pulse
    Timing      see hw.kernel.run; everything else is wires
    Reset       idle; only with the bus
    Golden      that of its parts          Tests  tests/fpga/card/test_card_emb.py,
                tests/fpga/card/test_card_mlp.py
    """

    def __init__(self, *, kernel: Kernel, config: Config, words: int, increments: Mapping[str, int],
                 finishes: bool = False):
        self.kernel, self.config, self.words, self.finishes = kernel, config, words, finishes
        self.increments = {value.name: increments.get(value.name, 1) for value in kernel.counters}
        self._counters = CounterFile(self.increments)
        self._reporter = Reporter(words=words, counters=self._counters.period, kernel=kernel)
        self._run = RunControl(kernel=kernel, period=self._counters.period, finishes=finishes)
        reporter, run = self._reporter.signature.members, self._run.signature.members
        channels = len(kernel.channels)
        super().__init__({
            "bus": In(AXI4Lite(12)), "interrupt": Out(1), "arguments": Out(arguments_layout(kernel)),
            "fault": In(data.StructLayout({"valid": 1, "status": status_layout(kernel)})), "at": In(32),
            **{name: In(channels) for name in ("moved", "owes")},
            **dict.fromkeys(INPUTS, In(1)), **dict.fromkeys(OUTPUTS, Out(1)), "work": In(1),
            "events": In(data.StructLayout({
                name: bits for name, bits in self.increments.items() if name != CYCLES})),
            "progress": reporter["progress"], "report_progress": In(1),
            "o_requests": reporter["o_requests"], "o_data": Out(stream.Signature(32 * words)), "done": In(1),
            **({"host": run["host"]} if "host" in run else {}),
            **({"holds": In(1), "ending": Out(1)} if finishes else {}),
        })

    @property
    def block_beats(self) -> int:
        """Beats that the result block takes in the write port's queue, a power of two."""
        return 1 << (self._reporter.beats - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        counters, reporter, run = self._counters, self._reporter, self._run
        control = ControlSlave(kernel=self.kernel, constants=identity(self.kernel, self.config))
        for name, part, reset in (("control", control, None), ("run", run, None), ("totals", counters, None),
                                  ("reporter", reporter, run.forget)):
            place(m, platform, name, part, reset=reset)
        connect, flipped = wiring.connect, wiring.flipped
        connect(m, flipped(self.bus), control.bus)
        connect(m, reporter.o_requests, flipped(self.o_requests))
        connect(m, reporter.o_data, flipped(self.o_data))
        for name in OUTPUTS:
            m.d.comb += getattr(self, name).eq(getattr(run, name))
        for name in (*INPUTS, "fault", "at", "moved", "owes", *(["host"] if run.has_host else [])):
            m.d.comb += getattr(run, name).eq(getattr(self, name))
        if self.finishes:
            m.d.comb += run.holds.eq(self.holds)
            m.d.comb += self.ending.eq(run.ending)
        for name in self.increments:
            m.d.comb += counters.events[name].eq(run.running if name == CYCLES else self.events[name])
        m.d.comb += [
            self.interrupt.eq(control.interrupt),
            self.arguments.eq(control.arguments),
            control.status.eq(run.status),
            control.done.eq(run.ends),
            control.code.eq(run.code),
            control.owing.eq(run.owing),
            counters.clear.eq(run.clear),
            run.start.eq(control.start),
            run.abort.eq(control.abort),
            run.drop.eq(control.drop),
            run.timeout.eq(control.arguments.timeout),
            run.stalls.eq(Cat(self.events[name] for name in self.kernel.stalls)),
            run.report_pending.eq(reporter.busy | reporter.report_progress),
            run.reported.eq(reporter.finished),
            reporter.base.eq(control.arguments.result),
            reporter.header.eq(run.header.as_value()),
            reporter.number.eq(counters.number),
            reporter.total.eq(counters.total),
            reporter.finish.eq(run.report),
            reporter.progress.eq(self.progress),
            reporter.report_progress.eq(self.report_progress),
            reporter.done.eq(self.done),
        ]
        # A register, for this comes from everywhere.
        m.d.sync += run.work.eq(self.work | Cat(
            self.events[name] for name in self.increments if name not in (CYCLES, *self.kernel.stalls)).any())
        return m


def connect_ports(m: Module, frame: KernelShell, ports: Sequence[Any], writes: Any) -> None:
    """Wires a core's ports, in the order of kernel.channels, to the run control; writes: the one of them that reports
    are written by."""
    m.d.comb += [
        *(port.stop.eq(frame.stop_report if port is writes else frame.stop) for port in ports),
        frame.moved.eq(Cat(port.moved for port in ports)),
        frame.owes.eq(Cat(port.owes for port in ports)),
        frame.quiet.eq(Cat(port.idle for port in ports if port is not writes).all()),
        frame.writable.eq(writes.idle),
    ]


def report_first_fault(m: Module, frame: KernelShell, faults: Iterable[tuple[Any, ...]]) -> None:
    """Passes the first fault in the order given to the run control. faults: (condition, *status words) each."""
    names = status_layout(frame.kernel).members
    for condition, *status in reversed(list(faults)):
        with m.If(condition):
            m.d.comb += frame.fault.valid.eq(1)
            m.d.comb += [frame.fault.status[name].eq(value) for name, value in zip(names, status, strict=True)]
