"""The Verilog and the kernel.xml of the packages, run as XRT runs them; and tops with a mistake, none of which passes.

The benches are verif/kernel/test_top.py, started here because a package is fpga's.
"""

import re
from dataclasses import dataclass
from functools import cache

import pytest

from fpga.vitis.description import describe
from fpga.vitis.kernel_xml import kernel_xml
from gen.rtl import verilog
from gen.rtl.config import load
from gen.rtl.cores import CORES
from verif.bench import runner

UNIT = "kernel/top"

MODULE = "verif.kernel.test_top"
KERNELS = [name for name in load("tiny").cores if CORES[name].is_kernel]
TESTS = 6
BROKEN = "mlp"      # the core whose model is built fastest


@cache
def packaged(core):
    """Description, Verilog and metadata of a tiny core's package."""
    texts, metadata = verilog.convert(CORES[core].kernel(load("tiny").cores[core]), f"hotrail_{core}")
    return describe(core, "tiny", metadata), texts, metadata


def simulate(core, folder, *, texts=None, xml=None, **options):
    kernel, packed, metadata = packaged(core)
    path = folder / "kernel.xml"
    path.write_bytes(xml or kernel_xml(kernel))
    # Runs are short: what counts is how long the compiler takes.
    model = runner.build_texts(texts or packed, metadata, f"packaged_{core}", opt="-O0")
    return runner.run(model, MODULE, env={"HOTRAIL_KERNEL_XML": path}, **options)


@pytest.mark.regress
@pytest.mark.parametrize("number", runner.seeds())
@pytest.mark.parametrize("core", KERNELS)
@pytest.mark.testpoint("smoke", "random_match_golden")
@pytest.mark.testpoint("second_opinion", unit=("emb/core", "hotline/core"))
def test_packaged_top(core, number, tmp_path):
    """Programs of every core, over all its buffers and memories, bit for bit with the oracle, in each bench; the
    memories' ports are by another hand, cocotbext-axi."""
    sound(core, tmp_path, number)


def sound(core, folder, number, **options):
    values = simulate(core, folder, tests=TESTS, seed=number, **options).values
    assert all(values["bursts"][port]["ar"] for port in ("m00_axi", "m01_axi")), "both ports are read from"
    assert values["written_beats"]["m00_axi"]


# Tops with a mistake: all mistakes are in one model, the plusarg `mistake` says which one it makes.

@dataclass(frozen=True)
class Mistake:
    """By pin, what stands there instead of `@`, which is right. test: of the benches, the one that is asked; says: a
    regular expression, what it answers."""

    pins: dict[str, str]
    test: str
    says: str


RESET = r"\$1"      # the wire behind the top's inverter
MISTAKES = {
    "swapped ports": Mistake({"m00_axi_araddr": "m01_axi_araddr_sound", "m01_axi_araddr": "m00_axi_araddr_sound"},
                             "smoke", "in no readable buffer|which is not m0._axi's"),
    "32-bit address": Mistake({"m01_axi_araddr": "{32'd0, @[31:0]}"}, "smoke", "in no readable buffer"),
    "reset not inverted": Mistake({RESET: "ap_rst_n"}, "smoke", "is high although ap_rst_n is low"),
    "strobe off": Mistake({"m00_axi_wstrb": "@ & ~1"}, "smoke", "a strobe is low"),
}
MORE = {
    "no interrupt": Mistake({"interrupt": "1'b0"}, "interrupts", "no interrupt after"),
    "never reset": Mistake({RESET: "1'b0"}, "reset_midstream", "is high although ap_rst_n is low"),
    "48-bit address": Mistake({"m00_axi_awaddr": "{16'd0, @[47:0]}"}, "high_addresses", "in no writable buffer"),
    "no last": Mistake({"m00_axi_wlast": "1'b0"}, "smoke", "wlast is 0"),
    "valid falls": Mistake({"m00_axi_arvalid": "@ & ~odd"}, "backpressure_both_sides", "valid fell"),
    "address moves": Mistake({"m01_axi_araddr": "@ ^ {odd, 12'd0}"}, "backpressure_both_sides",
                             "address changed before it was taken"),
    "fixed burst": Mistake({"m00_axi_arburst": "2'd0"}, "smoke", "arburst is 0, not 1"),
    "narrow burst": Mistake({"m01_axi_arsize": "@ - 3'd1"}, "smoke", "arsize is"),
    "another thread": Mistake({"m00_axi_awid": "1'b1"}, "smoke", "awid is 1, not 0"),
    "stuck interrupt": Mistake({"interrupt": "1'b1"}, "smoke", "interrupt is high although ap_rst_n is low"),
    "strobes ignored": Mistake({"s_axi_control_wstrb": "4'hF"}, "backpressure_both_sides", "AssertionError"),
    "control address": Mistake({"s_axi_control_awaddr": "@ & ~4"}, "smoke", "AssertionError"),
    "control data": Mistake({"s_axi_control_rdata": "@ ^ 32'd4"}, "smoke", "the access at the first edge"),
    "swapped data": Mistake({"m00_axi_rdata": "m01_axi_rdata"}, "smoke", "ended with code|not over|differ"),
    "lost byte": Mistake({"m01_axi_rdata": "@ & ~255"}, "smoke", "words differ"),
}

@cache
def broken():
    """The Verilog of a core's package with every mistake in its top, as text: the rest stays as it is."""
    _, texts, metadata = packaged(BROKEN)
    file = f"hotrail_{BROKEN}.v"
    values: dict[str, list[str]] = {}
    for number, mistake in enumerate((MISTAKES | MORE).values(), 1):
        for pin, value in mistake.pins.items():
            values.setdefault(pin, []).append(f"mistake == {number} ? {value} : ")
    text = texts[file]
    added = ["integer mistake;", 'initial if (!$value$plusargs("mistake=%d", mistake)) mistake = 0;', "reg odd = 0;",
             "always @(posedge ap_clk) odd <= ~odd;"]
    for pin, choices in values.items():
        wrong, place = "".join(choices), f"({pin})"
        if pin == RESET:
            place, new = f"assign {RESET}  = ~ ap_rst_n;", f"assign {RESET}  = {wrong}~ap_rst_n;"
        elif metadata["ports"][pin]["direction"] == "in":
            new = f"({wrong}@)".replace("@", pin)
        else:
            sound = f"{pin}_sound"
            new = f"({sound})"
            added += [f"wire [{metadata['ports'][pin]['width'] - 1}:0] {sound};",
                      f"assign {pin} = {wrong}@;".replace("@", sound)]
        assert text.count(place) == 1, f"{place} is {text.count(place)} times in {file}"
        text = text.replace(place, new)
    return texts | {file: text.replace("\nendmodule", "\n  " + "\n  ".join(added) + "\nendmodule")}


def refused(folder, says, **options):
    with pytest.raises(AssertionError) as error:
        simulate(BROKEN, folder, tests=1, **options)
    assert re.search(says, str(error.value)), str(error.value)[-2000:]


@pytest.mark.turns(1, of="tops")
@pytest.mark.parametrize("name", [*MISTAKES, *(pytest.param(name, marks=pytest.mark.regress) for name in MORE)])
@pytest.mark.testpoint("mistakes_are_seen")
def test_mistakes_are_seen(name, tmp_path):
    """Tops with swapped, truncated, stuck or open pins are refused with their cause."""
    number, mistake = list(MISTAKES | MORE).index(name) + 1, (MISTAKES | MORE)[name]
    refused(tmp_path, mistake.says, texts=broken(), plusargs=[f"+mistake={number}"], only=rf"\.{mistake.test}\b.*")


@pytest.mark.turns(1, of="tops")
@pytest.mark.parametrize("number", runner.seeds())
@pytest.mark.testpoint("mistakes_are_seen", "smoke", "random_match_golden")
@pytest.mark.testpoint("second_opinion", unit="mlp/core")
def test_without_a_mistake(number, tmp_path):
    """The model that the mistakes are in is otherwise sound: it carries out the MLP core's programs."""
    sound(BROKEN, tmp_path, number, texts=broken())


@pytest.mark.turns(1, of="tops")
@pytest.mark.parametrize("wrong", ["an offset", "two names"])
@pytest.mark.testpoint("mistakes_are_seen")
def test_a_wrong_kernel_xml_is_seen(wrong, tmp_path):
    """A wrong kernel.xml is refused with its cause: the benches know the arguments from it alone."""
    kernel, _, _ = packaged(BROKEN)
    xml = kernel_xml(kernel)
    first, second = [argument for argument in kernel.arguments if argument.pointer][:2]
    if wrong == "an offset":
        old = f'offset="0x{first.offset:X}"'.encode()
        assert xml.count(old) == 1
        xml = xml.replace(old, f'offset="0x{first.offset + 4:X}"'.encode())
    else:
        one, two = (f'name="{argument.name}"'.encode() for argument in (first, second))
        assert xml.count(one) == xml.count(two) == 1
        xml = xml.replace(one, b"!").replace(two, one).replace(b"!", two)
    refused(tmp_path, "AssertionError", texts=broken(), xml=xml, only=r"\.smoke$")
