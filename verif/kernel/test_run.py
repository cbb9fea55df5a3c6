"""A run from start to done: how it ends, and that it ends."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from hw.isa import EMB
from hw.isa.kernel import CHANNELS_BIT
from hw.kernel.run import DRAINING, IDLE, REPORTING, RUNNING, RunControl
from verif.bench import reset, rng, start
from verif.bench.directed import pass_cycles
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate

WAIVED = {
    "random_match_golden": "There is no golden model of it: every state is looked at here.",
    "backpressure_both_sides": "It has no streams: its inputs are levels and pulses that nobody holds back.",
    "latency_and_rate_as_documented": "The tests `smoke` and `watchdog` count the cycles of both.",
    "illegal_config_wrong": "What it is made with is checked where it is made.",
}

PERIOD, TIMEOUT = 4, 20
CODES = {code.name: code.code for code in EMB.codes}
PULSES = ("start", "abort", "drop", "reported")
LEVELS = {"over": 0, "work": 0, "report_pending": 0, "quiet": 1, "writable": 1, "moved": 0, "owes": 0, "stalls": 0,
          "at": 0}


class Bench:
    """A core that works, and a bus that answers, as long as it is said to."""

    def __init__(self, dut):
        self.dut, self.seen = dut, []

    @classmethod
    async def begin(cls, dut, timeout=TIMEOUT):
        start(dut)
        for name, value in LEVELS.items():
            getattr(dut, name).value = value
        for name in (*PULSES, "fault", "host"):
            getattr(dut, name).value = 0
        dut.timeout.value = timeout
        await reset(dut)
        bench = cls(dut)
        await bench.cycles(4)
        bench.seen.clear()
        return bench

    def get(self, name):
        return int(getattr(self.dut, name).value)

    async def cycles(self, count):
        for _ in range(count):
            await RisingEdge(self.dut.clk)
            self.seen.append({name: self.get(name) for name in ("begin", "report", "ends", "clean", "clean_report")})

    async def pulse(self, name):
        getattr(self.dut, name).value = 1
        await self.cycles(1)
        getattr(self.dut, name).value = 0

    async def until(self, name, value=1, most=200):
        for cycle in range(most):
            if self.get(name) == value:
                return cycle
            await self.cycles(1)
        raise AssertionError(f"{name} does not become {value} in {most} cycles")

    async def run(self):
        await self.pulse("start")
        await self.until("begin")
        await self.cycles(2)

    async def report(self):
        await self.end(True)
        assert self.get("status") == IDLE and self.get("flush") == 1

    async def end(self, reports):
        """The end of a run, which is reported or not."""
        if reports:
            await self.until("report")
            await self.cycles(3)
            await self.pulse("reported")
            assert self.seen[-1]["ends"] == 1
        else:
            await self.until("ends")
            await self.cycles(1)
        await self.cycles(1)

    def header(self):
        return layout_of("header").unpack(self.get("header"))

    def count(self, name):
        return sum(cycle[name] for cycle in self.seen)


@cocotb.test()
async def smoke(dut):
    """Counters are cleared, parts begin, the ports are stopped and reset, the report is asked for, the slave hears."""
    bench = await Bench.begin(dut)
    for run in (1, 2):
        await bench.pulse("start")
        assert await bench.until("begin") == 2 * PERIOD + 2
        assert bench.get("flush") == 0 and bench.get("status") == RUNNING
        for _ in range(3 * TIMEOUT):
            dut.work.value = 1
            await bench.cycles(1)
        dut.work.value, dut.over.value = 0, 1
        await bench.until("stop")
        assert bench.get("flush") == bench.get("stop_report") == 1 and bench.get("status") == DRAINING
        dut.over.value = 0
        await bench.until("clean")
        assert bench.get("clean_report") == 1
        await bench.report()
        assert bench.get("code") == CODES["OK"] and not any(bench.header().values())
        assert [bench.count(name) for name in ("begin", "report", "ends", "clean", "clean_report")] == [run] * 5


@cocotb.test()
@pytest.mark.testpoint("ends", "first_error_wins", "top_values")
async def ends(dut):
    """Faults and aborts, and which of them counts, with words up to the highest: of two faults the first; a drop, after
    which nothing is reported."""
    bench, draw = await Bench.begin(dut), rng("faults")
    fault, words = layout_of("fault"), ("instruction", "bag", "index", "detail")
    for case in ("fault", "abort", "both", "drop", "abort with start", "drop with start"):
        bench.seen.clear()
        at = draw.getrandbits(32)
        dut.at.value = at
        first = {"code": 0xFF, **dict.fromkeys(words, 0xFFFF_FFFF)} if case == "fault" else {
            "code": draw.randint(1, 0xFF), **{word: draw.getrandbits(32) for word in words}}
        if "start" in case:
            getattr(dut, case.split()[0]).value = 1
            await bench.pulse("start")
            dut.abort.value = dut.drop.value = 0
        else:
            await bench.run()
            if case != "fault":
                await bench.pulse("drop" if case == "drop" else "abort")
            if case in ("fault", "both"):
                dut.fault.value = fault.pack({"valid": 1, "status": first})
                await bench.cycles(1)
                dut.fault.value = fault.pack({"valid": 1, "status": dict.fromkeys(first, 4)})
        await bench.until("flush", 0)
        await bench.until("flush")
        dut.fault.value = 0
        if "drop" in case:
            await bench.until("status", IDLE)
            assert bench.count("report") == 0 and bench.count("ends") == bench.count("clean") == 1
        else:
            await bench.report()
        header = bench.header()
        assert header["state"] == RUNNING and bench.get("code") == header["code"]
        if case in ("fault", "both"):
            assert header == first | {"state": RUNNING}
        else:
            assert (header["code"], header["instruction"], header["detail"]) == (CODES["ABORTED"], at, 0), case


@cocotb.test()
@pytest.mark.testpoint("watchdog")
async def watchdog(dut):
    """`timeout` cycles without progress end a run; progress of each kind puts it off, the first channel's transfers do
    not; the host is blamed only where no channel owes an answer. With 0 a run may last."""
    bench = await Bench.begin(dut)
    host = layout_of("host")
    never, half = range(0), TIMEOUT // 2
    for stalls, owes, waits, answers, code, detail in (
            (0b10, 0, 0, never, "STALLED", 0b10),
            (0, 0b100, 0, never, "STALLED", 0b100 << CHANNELS_BIT),
            (0b1, 0, 1, never, "TIMEOUT", 4711),
            (0b1, 0b010, 1, never, "STALLED", 1 | 0b010 << CHANNELS_BIT),
            (0b1, 0b001, 1, range(0, TIMEOUT, 5), "TIMEOUT", 4711),         # the doorbell is answered
            (0b1, 0b001, 1, range(0, half - 1, 3), "STALLED", 1 | 0b001 << CHANNELS_BIT),   # and then no more
            (0b1, 0b001, 1, range(half + 4, half + 5), "TIMEOUT", 4711),
            (0b1, 0b001, 1, never, "STALLED", 1 | 0b001 << CHANNELS_BIT)):
        await bench.run()
        dut.at.value, dut.stalls.value, dut.owes.value = 9, stalls, owes
        dut.host.value = host.pack({"waits": waits, "detail": 4711})
        for name, value in (("work", 1), ("moved", 0b010), ("moved", 0b100)):
            for _ in range(3):
                await bench.cycles(TIMEOUT - 2)
                getattr(dut, name).value = value
                await bench.cycles(1)
                getattr(dut, name).value = 0
        assert bench.get("stop") == 0
        for cycle in range(TIMEOUT + 3):
            assert bench.get("stop") == 0, cycle
            dut.moved.value = int(cycle in answers)
            await bench.cycles(1)
        dut.owes.value = dut.moved.value = 0
        await bench.until("stop", most=4)
        await bench.report()
        header = bench.header()
        assert (header["code"], header["instruction"], header["detail"]) == (CODES[code], 9, detail)
    bench = await Bench.begin(dut, timeout=0)
    await bench.run()
    await bench.cycles(10 * TIMEOUT)
    assert bench.get("stop") == 0
    dut.over.value = 1
    await bench.report()


@cocotb.test()
@pytest.mark.testpoint("mute_bus")
async def mute_bus(dut):
    """Ports that get no answer: the run is reported if there is a way for that, and ends in any case. They stay
    stopped until they are quiet, and are reset then; a run that comes before ends with STALLED too, or with an abort;
    one that waits for them begins when they are."""
    for quiet, writable in ((0, 1), (1, 0), (0, 0)):
        for then in ("answers", "stalls", "aborts", "waits"):
            bench = await Bench.begin(dut)
            assert bench.get("owing") == 0
            await bench.run()
            dut.over.value, dut.quiet.value, dut.writable.value, dut.owes.value = 1, quiet, writable, 0b100
            await bench.until("status", DRAINING)
            dut.over.value = 0
            await bench.until("status", REPORTING)
            await bench.end(writable)
            assert bench.get("status") == DRAINING and bench.get("owing") == 1
            await bench.cycles(3)
            assert bench.get("code") == CODES["STALLED"] and bench.count("report") == writable
            assert [bench.get("stop"), bench.get("stop_report")] == [1 - quiet, 1 - writable]
            assert [bench.count("clean"), bench.count("clean_report")] == [quiet, writable]
            if then in ("stalls", "aborts"):
                await bench.pulse("start")
                if then == "aborts":
                    await bench.cycles(2 * PERIOD + 4)
                    await bench.pulse("abort")
                await bench.end(writable)
                code = CODES["STALLED" if then == "stalls" else "ABORTED"]
                assert bench.get("code") == code and bench.count("begin") == 1
            if then == "waits":
                await bench.pulse("start")
                await bench.cycles(2 * PERIOD + TIMEOUT // 2)
                assert bench.count("begin") == 1
            dut.quiet.value = dut.writable.value = 1
            dut.owes.value = 0
            if then != "waits":
                await bench.cycles(4)
                assert bench.get("status") == IDLE
                await bench.pulse("start")
            await bench.until("begin")
            assert [bench.count("clean"), bench.count("clean_report")] == [1, 1]
            assert bench.get("stop") == bench.get("stop_report") == bench.get("clean") == bench.get("flush") == 0
            dut.over.value = 1
            await bench.until("stop")
            dut.over.value = 0
            await bench.report()
            assert bench.get("code") == CODES["OK"]


@cocotb.test()
@pytest.mark.testpoint("drop_on_a_mute_bus")
async def drop_on_a_mute_bus(dut):
    """A run that is dropped ends when its bus has answered, and not before: its memory is then somebody else's."""
    for quiet, writable in ((0, 1), (1, 0), (0, 0)):
        bench = await Bench.begin(dut)
        await bench.run()
        dut.quiet.value, dut.writable.value, dut.owes.value = quiet, writable, 0b100
        await bench.pulse("drop")
        await bench.until("status", DRAINING)
        await bench.cycles(4 * TIMEOUT)
        assert bench.get("status") == DRAINING and bench.count("ends") == 0
        dut.quiet.value = dut.writable.value = 1
        await bench.until("ends")
        await bench.cycles(2)
        assert bench.get("status") == IDLE and bench.get("owing") == 0 and bench.count("report") == 0
        assert [bench.count("clean"), bench.count("clean_report")] == [1, 1]


@cocotb.test()
@pytest.mark.testpoint("report_without_answer")
async def report_without_answer(dut):
    """A report that is never written, during a run and at its end, does not hold the core."""
    bench = await Bench.begin(dut)
    await bench.run()
    dut.over.value = dut.report_pending.value = 1
    await bench.until("forget")
    dut.over.value = dut.report_pending.value = 0
    await bench.until("report")
    dut.writable.value = 0
    await bench.until("ends")
    await bench.cycles(5)
    assert bench.get("code") == CODES["STALLED"] and bench.count("ends") == 1 and bench.get("status") == DRAINING
    assert bench.get("stop_report") == 1 and bench.get("stop") == 0


@cocotb.test()
async def corner_values(dut):
    """A timeout of 1, which the report does not keep either, and the largest."""
    bench = await Bench.begin(dut, timeout=1)
    await bench.pulse("start")
    await bench.until("ends")
    assert bench.get("code") == CODES["STALLED"] and bench.count("report") == 1
    bench = await Bench.begin(dut, timeout=(1 << 32) - 1)
    await bench.run()
    await bench.cycles(300)
    assert bench.get("status") == RUNNING and bench.get("stop") == 0


@cocotb.test()
@pytest.mark.testpoint("top_values")
async def long_timeout(dut):
    """A timeout of more than 16 bits whose low ones are few: its halves are told apart, and it is not over early."""
    timeout = 1 << 16 | 8
    for moment, code in ((100, "STALLED"), (timeout // 2 + 100, "TIMEOUT")):
        bench = await Bench.begin(dut, timeout=timeout)
        await bench.run()
        dut.host.value, dut.owes.value = layout_of("host").pack({"waits": 1, "detail": 0}), 1
        await pass_cycles(dut.clk, moment)
        dut.moved.value = 1
        await bench.cycles(1)
        dut.moved.value = 0
        await pass_cycles(dut.clk, timeout - moment - 40)
        assert bench.get("status") == RUNNING
        await bench.until("stop")
        dut.owes.value = 0
        await bench.report()
        assert bench.get("code") == CODES[code], f"an answer after {moment} of {timeout} cycles"


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any time: idle, and the next run is as any."""
    draw = rng("resets")
    for _ in range(20):
        bench = await Bench.begin(dut)
        await bench.pulse("start")
        await bench.cycles(draw.randrange(40))
        dut.over.value = draw.getrandbits(1)
        await bench.cycles(draw.randrange(40))
    bench = await Bench.begin(dut)
    assert bench.get("status") == IDLE and bench.get("stop") == 0
    await bench.run()
    dut.over.value = 1
    await bench.report()
    assert bench.get("code") == CODES["OK"]


@pytest.mark.parametrize("number", seeds())
def test_run(number):
    simulate(RunControl(kernel=EMB, period=PERIOD), "verif.kernel.test_run", name="kernel_run", tests=9, seed=number)
