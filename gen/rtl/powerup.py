"""What a core holds before its first reset: nothing that anybody may rely on.

An FPGA loads every register with its initial value at configuration, and the Verilog says so. A reset in mid-run
gives back reset values alone, neither registers without a reset nor memories. So a simulation begins without initial
values: unknown where it has four states (`undefined`), random where it has two (`random`). What a core needs has to
come from its reset; gen.rtl.redraw does the same at a later one.
"""

import re
from collections.abc import Mapping
from itertools import count

RANDOM = "$urandom"
NAME = r"(?:\\\S+ |\w+)"
# `_start_` is no register: Yosys sets off combinational blocks with it.
REGISTER = re.compile(rf"(?m)^(  reg (?:signed )?(?:\[\d+:\d+\] )?(?!_start_ )({NAME})) ?= [^;]*;")
_CONTENTS = re.compile(rf"(?m)^  initial begin\n    ({NAME})\[.*\n(?:    .*\n)*  end\n")
_MEMORY = re.compile(rf"(?m)^  reg (?:signed )?(?:\[(\d+):0\] )?({NAME}) ?\[(\d+):0\];\n")


# Says that a unit has been reset, to the assertions that a test adds: 0 before in every kind of simulation.
BEGUN = "properties_begun"
# What only configuration sets, by module and name, keeps what configuration gives. Loaded tables outlive resets, so
# none can set which they are.
_CONFIGURED = {"Loader_": r"\\?tables|\\?broken"}
# From here a simulator's unknowns spread further than values can, so these memories begin at random everywhere. Of
# positions without a register: the sorter's keys have the bit that puts what is found there behind all valid accesses
# above the bank, and comparing them with an unknown bank is unknown. Of marks and counts of first products: cleared,
# both memories of a place hold the same, whatever it is, and unknowns are not equal.
_SPREADING = {"LookupArray_": r"\\?register_\d+", "Sequencer_": r"\\?(marking|clearing|came|gone)"}


def undefined(texts: Mapping[str, str]) -> dict[str, str]:
    """The Verilog of `gen.rtl.verilog` without initial values of registers and of memories that have a write port.

    A memory that nothing writes is a table and keeps its contents; so does what only configuration sets."""
    return {file: _filled(file, _undefined(file, text), None) for file, text in texts.items()}


def random(texts: Mapping[str, str]) -> dict[str, str]:
    """As `undefined`, for Verilator: what begins undefined is drawn from the run's seed, every word by itself.

    Verilator draws registers when a run has a seed, but only one word a memory, which it repeats; so memories that
    have a write port draw theirs in Verilog, in loops that stay loops: unrolled they were a third of a small model."""
    return {file: _filled(file, _undefined(file, text), RANDOM) for file, text in texts.items()}


def _written(text: str, memory: str) -> bool:
    return re.search(rf"(?m)^ +{re.escape(memory)}\[.*\] <= ", text) is not None


def _among(names: Mapping[str, str], file: str, name: str) -> bool:
    return any(file.startswith(module) and re.fullmatch(known, name.strip()) for module, known in names.items())


def _undefined(file: str, text: str) -> str:
    def kept(name: str) -> bool:
        return name.strip() == BEGUN or _among(_CONFIGURED, file, name)

    text = REGISTER.sub(lambda found: found.group() if kept(found.group(2)) else f"{found.group(1)};", text)
    return _CONTENTS.sub(lambda block: "" if _written(text, block.group(1)) else block.group(), text)


def _filled(file: str, text: str, word: str | None) -> str:
    """With statements that give memories their first contents: `word` for each 32 bits, or what configuration gives."""
    numbers = count()

    def filled(found: re.Match[str]) -> str:
        top, memory, last = found.groups()
        value = ("32'd0" if _among(_CONFIGURED, file, memory) else
                 RANDOM if _among(_SPREADING, file, memory) else word)
        if value is None or not _written(text, memory):
            return found.group()
        index, words = f"_index_{next(numbers)}", ", ".join([value] * (int(top or 0) // 32 + 1))
        return (f"{found.group()}  integer {index};\n"
                "  initial begin /* verilator unroll_disable */\n"
                f"    for ({index} = 0; {index} <= {last}; {index} = {index} + 1)\n"
                f"      {memory}[{index}] = {{{words}}};\n  end\n")

    return _kept(file, _MEMORY.sub(filled, text))


def _kept(file: str, text: str) -> str:
    """What only configuration sets is not written before a reset has been seen: until then nothing else is known."""
    for module, known in _CONFIGURED.items():
        if file.startswith(module):
            text = re.sub(rf"(?m)^( +)((?:{known}) ?(?:\[.*\] )?<= )", r"\1if (_begun) \2", text)
            text = text.replace("endmodule", "  reg _begun = 1'b0;\n  always @(posedge clk) if (rst) _begun <= 1'b1;\n"
                                             "endmodule")
    return text
