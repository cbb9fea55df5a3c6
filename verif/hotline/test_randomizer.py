"""The Hotline randomizer against its model, a proof that it is a bijection, and how evenly it spreads."""
import os
from pathlib import Path

import cocotb
import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat
from cocotb.triggers import RisingEdge

from gen.base.tools import yosys
from golden.hotline.randomizer import invert, permute
from hw.hotline import randomizer
from hw.hotline.randomizer import Randomizer
from verif.bench import reset, seed, start
from verif.bench.runner import one_of, seeds, simulate

WAIVED = {"backpressure_both_sides": "There is no handshake: a number goes in and one comes out in every cycle."}

BITS = int(os.environ.get("DOMAIN_BITS", "31"))
# Tiny, hotline_fpga and hotline; an odd width, the least and the most.
WIDTHS = (20, 23, 31, 34, 40)


async def through(dut, numbers):
    """A number each cycle; every one has to come out as the model's two cycles later."""
    edge = RisingEdge(dut.clk)
    await edge
    want = permute(numbers, BITS).tolist()
    for cycle in range(len(want) + Randomizer.LATENCY + 1):
        if cycle < len(want):
            dut.i.value = int(numbers[cycle])
        await edge
        # A read right after an edge shows what stood before it.
        at = cycle - Randomizer.LATENCY
        if 0 <= at < len(want):
            assert int(dut.o.value) == want[at], f"{numbers[at]:#x}: {int(dut.o.value):#x}, expected {want[at]:#x}"


@cocotb.test()
async def smoke(dut):
    """A few numbers."""
    start(dut)
    await through(dut, np.arange(4))


@cocotb.test()
async def random_match_golden(dut):
    """Numbers of all widths that presets have, an odd one, the least and the most, a number each cycle."""
    start(dut)
    await through(dut, np.random.default_rng(seed()).integers(0, 1 << BITS, 2000))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Numbers that alternate with their complements: each comes out after two cycles, none lingers."""
    start(dut)
    top = (1 << BITS) - 1
    numbers = np.random.default_rng(seed("rate")).integers(0, 1 << BITS, 200)
    await through(dut, np.stack([numbers, top - numbers], 1).ravel())


@cocotb.test()
async def reset_midstream(dut):
    """There is nothing to reset: what came before a reset does not show in what comes after."""
    start(dut)
    numbers = np.random.default_rng(seed("reset")).integers(0, 1 << BITS, 50)
    await through(dut, numbers)
    await reset(dut)
    await through(dut, numbers[::-1])


@cocotb.test()
async def corner_values(dut):
    """Each bit alone, each bit alone missing, all and none."""
    start(dut)
    one = 1 << np.arange(BITS)
    top = (1 << BITS) - 1
    await through(dut, np.concatenate([[0, top], one, top - one]))


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("bits", one_of(WIDTHS))
def test_randomizer(bits, number):
    simulate(Randomizer(bits), "verif.hotline.test_randomizer", name=f"hotline_randomizer_{bits}", tests=5,
             seed=number, env={"DOMAIN_BITS": bits})


def prove(folder: Path, bits: int) -> list[bool]:
    """For the logic before each of the unit's two registers: whether a SAT solver proves that no two inputs have
    one output. Both proved, the unit is one to one, and so a bijection of the numbers of `bits` bits."""
    (folder / "unit.il").write_text(rtlil.convert(Randomizer(bits), name="unit"), "utf-8")
    cuts = (("i", "stage_4.d"), ("stage_4.q", "stage_9.d"))
    wires, parts, ports = [], [], []
    for k, (before, after) in enumerate(cuts):
        ports += [f"input [{bits - 1}:0] a{k}, b{k}", f"output bad{k}"]
        wires += [f"wire [{bits - 1}:0] fa{k}, fb{k};", f"assign bad{k} = a{k} != b{k} && fa{k} == fb{k};"]
        for copy in "ab":
            parts.append(f"unit {copy}_{k} (.\\{before} ({copy}{k}), .\\{after} (f{copy}{k}));")
    text = "\n".join([f"module twice({', '.join(ports)});", *wires, *parts, "endmodule"])
    (folder / "twice.v").write_text(text, "utf-8")
    found = []
    for k in range(len(cuts)):
        yosys(["read_rtlil unit.il", "hierarchy -top unit", "proc", "opt", "expose -evert-dff unit",
               "setattr -mod -unset top unit", "read_verilog twice.v", "hierarchy -top twice", "flatten", "opt_clean",
               f"tee -o proof_{k}.txt sat -prove bad{k} 0 twice"], cwd=folder)
        told = (folder / f"proof_{k}.txt").read_text("utf-8")
        assert ("SUCCESS!" in told) != ("FAIL!" in told), told
        found.append("SUCCESS!" in told)
    return found


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.testpoint("random_match_golden")
def test_bijection_proved(bits, tmp_path):
    """A SAT proof for each width that no two numbers become one."""
    assert prove(tmp_path, bits) == [True, True]


@pytest.mark.testpoint("random_match_golden")
def test_proof_can_fail(tmp_path, monkeypatch):
    """Registers whose top bit is bit 0 again: the proof finds two numbers that become one."""
    monkeypatch.setattr(randomizer, "Cat", lambda *parts: Cat(Cat(*parts)[:-1], Cat(*parts)[0]))
    assert prove(tmp_path, 20) == [False, False]


@pytest.mark.parametrize("bits", range(20, 41))
@pytest.mark.testpoint("random_match_golden")
def test_model_one_to_one(bits):
    """The model's inverse undoes it at every width, also for a whole range of neighbours."""
    random = np.random.default_rng(bits)
    numbers = np.concatenate([random.integers(0, 1 << bits, 20_000), np.arange(20_000)])
    assert (invert(permute(numbers, bits), bits) == numbers).all()
    assert (permute(invert(numbers, bits), bits) == numbers).all()


@pytest.mark.parametrize("bits,bank_bits,set_bits", [(23, 3, 6), (31, 4, 13), (34, 6, 14)])
@pytest.mark.testpoint("random_match_golden")
def test_neighbours_spread(bits, bank_bits, set_bits):
    """Rows that lie side by side or a constant distance apart fill banks, sets, and both together, as if they were
    drawn: the chi-square of the counts stays within what 1 of 10**6 draws passes, and does not fall short either."""
    for count in (1 << 8, 1 << 12, 1 << 16):
        for stride in (1, 2, 3, 26, 64, 100, 1024, 1 << 14):
            for first in (0, 12_345, (1 << bits) // 3):
                if first + count * stride > 1 << bits:
                    continue
                places = permute(first + stride * np.arange(count), bits)
                for low, high in ((0, bank_bits), (bank_bits, bank_bits + set_bits), (0, bank_bits + set_bits)):
                    kinds = 1 << high - low
                    counts = np.bincount(places >> low & kinds - 1, minlength=kinds)
                    mean = count / kinds
                    chi = ((counts - mean) ** 2).sum() / mean
                    # Wilson and Hilferty: the cube root is close to normal; so few a kind make it coarser.
                    normal = ((chi / (kinds - 1)) ** (1 / 3) - 1 + 2 / (9 * (kinds - 1))) * np.sqrt(
                        4.5 * (kinds - 1))
                    assert normal < 6, (count, stride, first, kinds, normal)


@pytest.mark.parametrize("bits", (20, 23, 31))
@pytest.mark.testpoint("random_match_golden")
def test_a_piece_fills_every_set_once(bits):
    """Rows that share their identifier lie in different sets, and keep it; pieces are scattered differently."""
    sets = 1 << bits - 14
    found = [permute(id * sets + np.arange(sets), bits) for id in (0, 1, 77, (1 << 14) - 1)]
    for id, places in zip((0, 1, 77, (1 << 14) - 1), found):
        assert (places >> bits - 14 == id).all() and (np.sort(places & sets - 1) == np.arange(sets)).all()
    assert (found[0] & sets - 1 == found[1] & sets - 1).mean() < 0.1


@pytest.mark.parametrize("bits", [19, 41, 31.0])
def test_illegal_config_wrong(bits):
    """Widths out of range are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        Randomizer(bits)
    assert str(caught.value) == f"domain_bits must be a whole number from 20 to 40, not {bits}"


@pytest.mark.testpoint("illegal_config_wrong")
def test_model_refuses():
    """The model refuses widths and numbers out of range."""
    with pytest.raises(ValueError, match="domain_bits must be a whole number from 20 to 40, not 19"):
        permute([1], 19)
    with pytest.raises(ValueError, match="numbers of rows must be from 0 to 1048575, not 3 to 1048576"):
        permute([3, 1 << 20], 20)
