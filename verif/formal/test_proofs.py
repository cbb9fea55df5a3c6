"""Every property of a unit holds, every cover is reached, and mutants of the unit's netlist break the claims."""

import contextlib

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles

from gen.rtl import verilog
from hw.stream.skid_buffer import SkidBuffer
from verif.bench import reset, start
from verif.bench.runner import simulate
from verif.formal import ALL
from verif.formal.mutate import mutate
from verif.formal.properties import DECLARED, Properties, checks, past, version
from verif.formal.prove import Proof, prove

UNIT = None
MUTATED = ("skid_buffer", "fifo_bare", "turns_3", "marks")      # by netlists small enough to draw many


class Counter(wiring.Component):
    """Counts to 5 and begins anew."""

    def __init__(self):
        super().__init__({"step": In(1), "count": Out(3)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.step):
            m.d.sync += self.count.eq(self.count + 1)
            with m.If(self.count == 5):
                m.d.sync += self.count.eq(0)
        return m


def _counting(p: Properties, unit: Counter) -> None:
    p.claim("it stays below 6", unit.count < 6)
    p.claim("it stays below 5", unit.count < 5)
    steps = Signal(8)
    p.assume(unit.step)
    p.m.d.sync += steps.eq(steps + 1)
    p.claim("a step is a count", past(p, unit.count) != unit.count)
    p.cover("it begins anew", (steps == 6) & (unit.count == 0))
    p.cover("it is 7", unit.count == 7)


@pytest.mark.parametrize("proof", [pytest.param(proof, id=proof.name, marks=(
    pytest.mark.turns(1) if proof.quick else pytest.mark.regress)) for proof in ALL])
def test_proofs_hold(proof):
    outcome, = prove([proof])
    assert outcome.claims or outcome.covers
    assert not outcome.faults(), "\n".join(outcome.faults())


@pytest.mark.regress
@pytest.mark.parametrize("proof", [proof for proof in ALL if proof.name in MUTATED], ids=lambda proof: proof.name)
def test_mutants_break_the_claims(proof):
    """Four of five mutants that change an output, at least."""
    told = mutate(proof, 16)
    assert len(told.survivors) <= told.different // 5, "\n".join(told.survivors)


def test_what_does_not_hold_is_said():
    """With the cycle in which it is broken; a cover that is out of reach, too."""
    outcome, = prove([Proof("counter", Counter, declare=_counting)])
    assert outcome.claims["it stays below 6"] == "proven"
    assert outcome.claims["it stays below 5"] == "broken at cycle 5"
    assert outcome.claims["a step is a count"] == "broken at cycle 0"
    assert outcome.covers == {"it begins anew": 6, "it is 7": None}
    assert outcome.faults() == [
        "counter: it stays below 5: broken at cycle 5",
        "counter: a step is a count: broken at cycle 0",
        "counter: it is 7: never happens within 60 cycles"]


@cocotb.test()
async def steps(dut):
    """Ten steps behind a reset."""
    start(dut)
    dut.step.value = 0
    await reset(dut)
    dut.step.value = 1
    await ClockCycles(dut.clk, 10)


@pytest.mark.regress
@pytest.mark.parametrize("most", [5, 6])
def test_a_broken_claim_ends_a_simulation(monkeypatch, most):
    """With the unit and the claim; one that holds does not."""
    def declared(p: Properties, unit: Counter) -> None:
        p.claim(f"it stays below {most}", unit.count < most)

    monkeypatch.setitem(DECLARED, Counter, declared)
    held = contextlib.nullcontext() if most == 6 else pytest.raises(AssertionError, match=(
        "Counter: it does not hold that it stays below 5"))
    with held:
        simulate(Counter(), "verif.formal.test_proofs", name="formal_counter", tests=1)


def test_only_tests_have_assertions():
    """Verilog has them where it is converted with them, and not afterwards."""
    plain, _ = verilog.convert(SkidBuffer(3))
    with checks():
        checked, _ = verilog.convert(SkidBuffer(3), added=version())
    assert "assert" not in "".join(plain.values()) and "assert" in "".join(checked.values())
    assert verilog.convert(SkidBuffer(3))[0] == plain


def test_declarations_have_one_name_each():
    p = Properties(Module(), proof=True)
    p.claim("it is so", 1)
    p.cover("it happens", 1)
    for declare, kind in ((p.claim, "claim"), (p.cover, "cover")):
        with pytest.raises(ValueError, match=f"the {kind} 'it .*' is declared twice"):
            declare("it is so" if kind == "claim" else "it happens", 1)
