"""The runner must not be fooled: a failing test fails, and so does a run that tests nothing."""

import pytest
from amaranth import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from gen.rtl import conversions, verilog
from hw.axi.control import ControlSlave
from hw.isa import EMB
from hw.kernel.top import VitisKernel
from hw.place import Part, place
from hw.uram import ProtectedUram
from verif.bench import runner

pytestmark = pytest.mark.turns(4, of="the runner")


class Unit(wiring.Component):
    """Hands a word on and, when `broken`, drops valid before the beat was taken."""

    def __init__(self, broken=False):
        from amaranth.lib import stream

        self.broken = broken
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.o.payload.eq(self.i.payload), self.i.ready.eq(self.o.ready)]
        if self.broken:
            gate = self.o.valid.like(self.o.valid, name="gate")
            m.d.sync += gate.eq(~gate)
            m.d.comb += self.o.valid.eq(self.i.valid & gate)
        else:
            m.d.comb += self.o.valid.eq(self.i.valid)
        return m


def write(tmp_path, monkeypatch, body, name):
    (tmp_path / f"{name}.py").write_text(
        "import cocotb\n"
        "from cocotb.triggers import ClockCycles, RisingEdge\n"
        "from verif.bench import report, reset, rng, start\n"
        "from verif.bench.stream import Sink, Source, never\n" + body, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


PASSES = """
@cocotb.test()
async def one(dut):
    start(dut)
    await reset(dut)
    source, sink = Source(dut, "i"), Sink(dut, "o")
    source.put(1, 2, 3)
    assert await sink.wait(3, cycles=20) == [1, 2, 3]
    report(drawn=rng("x").random())
"""


def test_values_and_seed(tmp_path, monkeypatch):
    module = write(tmp_path, monkeypatch, PASSES, "bench_values")
    drawn = [runner.simulate(Unit(), module, name="runner_unit", tests=1, seed=seed).values["drawn"]
             for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_model_is_built_once_whatever_it_is_called():
    first, again = runner.build(Unit(), "runner_unit"), runner.build(Unit(), "runner_by_another_name")
    assert again.cached and again.folder == first.folder and again.binary == first.binary


def test_wrong_number_of_tests(tmp_path, monkeypatch):
    module = write(tmp_path, monkeypatch, PASSES, "bench_count")
    with pytest.raises(AssertionError, match="bench_count ran 1 tests, 2 were expected: one"):
        runner.simulate(Unit(), module, name="runner_unit", tests=2)


def test_no_test_at_all(tmp_path, monkeypatch):
    module = write(tmp_path, monkeypatch, "", "bench_empty")
    with pytest.raises((AssertionError, RuntimeError)):
        runner.simulate(Unit(), module, name="runner_unit", tests=0 + 1)


def test_failure_names_seed_and_command(tmp_path, monkeypatch):
    module = write(tmp_path, monkeypatch, "@cocotb.test()\nasync def bad(dut):\n    assert False, 'as meant'\n",
                   "bench_bad")
    with pytest.raises(AssertionError) as error:
        runner.simulate(Unit(), module, name="runner_unit", tests=1, seed=7)
    text = str(error.value)
    assert text.startswith("bad failed (seed 7") and "as meant" in text
    assert "HOTRAIL_SEED=7 .venv/bin/pytest '" in text and "test_failure_names_seed_and_command" in text


def test_an_assertion_without_a_message_says_what_it_compared(tmp_path, monkeypatch):
    """By a second run, with pytest's assertions."""
    body = """
@cocotb.test()
async def bad(dut):
    with pytest.raises(ValueError) as told:
        int("no number")
    words = str(told.value).split()
    assert words[0] == "valid"
"""
    module = write(tmp_path, monkeypatch, "import pytest\n" + body, "bench_no_message")
    with pytest.raises(AssertionError, match="assert 'invalid' == 'valid'"):
        runner.simulate(Unit(), module, name="runner_unit", tests=1)


def test_stream_rule_is_held(tmp_path, monkeypatch):
    body = """
@cocotb.test()
async def watched(dut):
    start(dut)
    await reset(dut)
    source, sink = Source(dut, "i"), Sink(dut, "o", pattern=never(6))
    source.put(9)
    await ClockCycles(dut.clk, 20)
"""
    module = write(tmp_path, monkeypatch, body, "bench_rule")
    runner.simulate(Unit(), module, name="runner_unit", tests=1)
    with pytest.raises(AssertionError, match="stream o: valid fell before the beat was taken"):
        runner.simulate(Unit(broken=True), module, name="runner_broken", tests=1)


def test_a_second_start_adds_no_edges(tmp_path, monkeypatch):
    """Clocks out of step on one signal would make a unit faster than its bench believes. Each test has its own."""
    body = """
from cocotb.triggers import Timer

async def counted(dut):
    for _ in range(3):
        start(dut)
        await Timer(23, "ns")
    edges = 0
    for _ in range(200):
        before = dut.clk.value
        await Timer(1, "ns")
        edges += before == 0 and dut.clk.value == 1
    return edges

@cocotb.test()
async def one(dut):
    assert await counted(dut) == 20

@cocotb.test()
async def two(dut):
    assert await counted(dut) == 20
"""
    runner.simulate(Unit(), write(tmp_path, monkeypatch, body, "bench_clocks"), name="runner_unit", tests=2)


class Pair(Part):
    """A register of 70 bits with a reset and one without; what writes them is 0 in a reset, as it is AXI's."""

    def __init__(self):
        super().__init__({"i": In(70), "awvalid": In(1), "cleared": Out(70), "bare": Out(70)})

    def elaborate(self, platform):
        m = Module()
        bare = Signal(70, reset_less=True)
        m.d.comb += self.bare.eq(bare)
        with m.If(self.awvalid):
            m.d.sync += [self.cleared.eq(self.i), bare.eq(self.i)]
        return m


class Pairs(wiring.Component):
    """Such registers in a module of its own and in a shared one, a memory, and an UltraRAM behind registers."""

    def __init__(self):
        super().__init__({"i": In(70), "awvalid": In(1), "cleared": Out(70).array(2), "bare": Out(70).array(2),
                          "word": Out(70), "ultra": Out(64)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.own = own = Pair()
        shared = Pair()
        place(m, platform, "shared", shared)
        m.submodules.store = store = memory.Memory(shape=70, depth=2, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [write.en.eq(self.awvalid), write.data.eq(self.i), self.word.eq(read.data)]
        for number, pair in enumerate((own, shared)):
            m.d.comb += [pair.i.eq(self.i), pair.awvalid.eq(self.awvalid), self.cleared[number].eq(pair.cleared),
                         self.bare[number].eq(pair.bare)]
        m.submodules.uram = uram = ProtectedUram()
        m.d.sync += [uram.write.eq(self.awvalid), uram.word.eq(self.i)]
        m.d.comb += self.ultra.eq(uram.a.data)
        return m


def test_a_reset_finds_registers_in_any_state(tmp_path, monkeypatch):
    """Those without a reset hold anything behind it, but where the bench says that they outlive it; memories stay."""
    body = """
@cocotb.test()
async def one(dut):
    start(dut)
    await reset(dut)
    seen, word = set(), 5 << 64 | 7
    for keeps in (True, *[False] * 8):
        dut.i.value, dut.awvalid.value = word, 1
        await ClockCycles(dut.clk, 2)
        dut.awvalid.value = 0
        await ClockCycles(dut.clk, 8)
        assert dut.cleared__0.value == dut.bare__1.value == dut.word.value == word and dut.ultra.value == 7
        await reset(dut, keeps=keeps)
        await ClockCycles(dut.clk, 1)
        assert dut.cleared__0.value == dut.cleared__1.value == 0 and dut.word.value == word
        drawn = {int(dut.bare__0.value), int(dut.bare__1.value)}
        assert drawn == {word} if keeps else len(drawn - seen) == 2 and word not in drawn, drawn
        seen |= drawn
        await ClockCycles(dut.clk, 8)
        assert dut.ultra.value == 7
"""
    module = write(tmp_path, monkeypatch, body, "bench_redrawn")
    runner.simulate(Pairs(), module, name="runner_pairs", tests=1)


@pytest.mark.turns(1, of="processes")
def test_hang_ends(tmp_path, monkeypatch):
    body = "@cocotb.test()\nasync def hangs(dut):\n    start(dut)\n    await ClockCycles(dut.clk, 10**9)\n"
    module = write(tmp_path, monkeypatch, body, "bench_hang")
    with pytest.raises(AssertionError, match=r"bench_hang did not end within 3 s of processor time \(seed 1\)"):
        runner.simulate(Unit(), module, name="runner_unit", tests=1, seed=1, timeout_s=3)


def test_cache_is_by_content():
    first = runner.build(Unit(), "runner_unit")
    assert runner.build(Unit(), "runner_unit").folder == first.folder
    assert runner.build(Unit(broken=True), "runner_unit").folder != first.folder


def test_seeds(monkeypatch):
    for name in ("HOTRAIL_SEED", "HOTRAIL_FIRST_SEED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOTRAIL_SEEDS", "3")
    assert runner.seeds(2) == [1, 2, 3, 4, 5, 6]
    monkeypatch.setenv("HOTRAIL_FIRST_SEED", "900")
    assert runner.seeds(2) == [900, 901, 902, 903, 904, 905]
    monkeypatch.setenv("HOTRAIL_SEED", "42")
    assert runner.seeds(2) == [42]


def test_shapes_take_turns(monkeypatch):
    """By the first seed; a failure is repeated, and a regression runs, with all of them."""
    for name in ("HOTRAIL_SEED", "HOTRAIL_FIRST_SEED", "HOTRAIL_REGRESS"):
        monkeypatch.delenv(name, raising=False)
    assert runner.one_of("abc") == ["a"] and runner.shapes("abc", 2) == ["a", "b"]
    monkeypatch.setenv("HOTRAIL_FIRST_SEED", "902")
    assert runner.one_of("abc") == ["b"]
    for name in ("HOTRAIL_SEED", "HOTRAIL_REGRESS"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "7")
            assert runner.one_of("abc") == ["a", "b", "c"]


KERNEL = """
@cocotb.test()
async def asked(dut):
    from verif.bench.axi import LiteMaster

    start(dut)
    dut.ap_rst_n.value = 0
    control = LiteMaster(dut, "bus")
    await ClockCycles(dut.ap_clk, 4)
    dut.ap_rst_n.value = 1
    await ClockCycles(dut.ap_clk, 4)
    await control.write(0x10, 7)
    assert await control.read(0x10) == 7
"""


@pytest.mark.turns(1, of="processes")
def test_clock_and_reset_have_the_names_of_the_metadata(tmp_path, monkeypatch):
    """A core and its kernel are two models, one with `clk` and `rst`, one with `ap_clk` and `ap_rst_n`."""
    with monkeypatch.context() as patched:
        patched.setattr(conversions, "FOLDER", tmp_path)
        for _ in range(2):      # the second time from the cache of conversions
            core, kernel = (verilog.convert(unit)[1] for unit in (
                ControlSlave(kernel=EMB), VitisKernel(ControlSlave(kernel=EMB))))
            assert (core["clock"], core["reset"], kernel["clock"], kernel["reset"]) == ("clk", "rst", "ap_clk", "")
            assert verilog.convert(ControlSlave(kernel=EMB), "other")[1]["top"] == "other"
    module = write(tmp_path, monkeypatch, KERNEL, "bench_kernel")
    runner.simulate(VitisKernel(ControlSlave(kernel=EMB)), module, name="runner_kernel", tests=1, opt="-O0")


class Holder(wiring.Component):
    """Words that no reset sets: in a register and in a memory."""

    def __init__(self):
        super().__init__({"at": In(2), "write": In(1), "register": Out(32), "word": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(shape=32, depth=4, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        held = Signal(32, init=5, reset_less=True)
        with m.If(self.write):
            m.d.sync += held.eq(held + 1)
        m.d.comb += [write.en.eq(self.write), write.addr.eq(self.at), write.data.eq(held), read.addr.eq(self.at),
                     self.register.eq(held), self.word.eq(read.data)]
        return m


@pytest.mark.turns(1, of="processes")
def test_registers_and_memories_begin_at_random(tmp_path, monkeypatch):
    """From the run's seed, whatever the Verilog's initial value; every word of a memory by itself."""
    body = """
from cocotb.triggers import Timer


@cocotb.test()
async def first(dut):
    dut.write.value = 0
    seen = []
    for at in range(4):
        dut.at.value = at
        await Timer(1)
        seen.append(int(dut.word.value))
    report(seen=[int(dut.register.value), *seen])
"""
    module = write(tmp_path, monkeypatch, body, "bench_state")
    one, again, other = (runner.simulate(Holder(), module, name="runner_holder", tests=1, seed=seed).values["seen"]
                         for seed in (1, 1, 2))
    assert one == again
    assert len({*one, *other}) == 10 and not {0, 5} & {*one, *other}
