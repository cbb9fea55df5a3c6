"""Which bits of ports and counters all benches together have seen change, up and down.

    HOTRAIL_COVERAGE=build/coverage .venv/bin/pytest verif
    python -m verif.coverage build/coverage             a table by module, and the bits that no run has seen change

Verilator counts the changes of every bit of every signal (`--coverage-toggle`), up and down by themselves; these runs
begin with the Verilog's initial values, since what is drawn for a power-up changes too. Those of a unit's ports and of
its registers that count are looked at, of a part only in the benches that its docstring names. What Yosys finds
constant is left out, and what WAIVED lists with its reasons.
"""

import argparse
import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gen.base.tools import yosys
from gen.rtl.toggles import Bit, counted
from verif import units

ALL = range(64)
# Module, signal, bits, and why these are constant.
WAIVED = tuple((re.compile(module), re.compile(signal), bits, why) for module, signal, bits, why in (
    ("", ".*(a[rw](id|size|burst|lock|cache|prot|qos|region)|[br]id|wstrb)$", ALL,
     "every burst of every master has these (hw.axi.bus.address_constants), and answers come with ID 0"),
    ("", r"counters\.", range(12, 64), "events that begin at 0: a higher bit takes more of them than a bench has"),
    ("", r"(.*[._])?(instruction|number(_now)?|ahead_\d+)$", range(6, 64),
     "instructions of a program, their bags, indices and mini-batches are numbered from 0 up: a bit takes as many"),
    ("", r".*addr(ess)?$", range(4), "buffers and requests begin with a beat of 16 bytes or more"),
    ("mlp_(program|loader)|Requests_beat_bytes32|hotline_(dispatch|program|update)", r".*addr(ess)?$", range(5),
     "here of 32 bytes"),
    ("mlp_parameters|(emb_)?row_port", r".*addr(ess)?$", range(6), "here of 64 bytes"),
    ("mlp_program", r".*wait_(rows|weights|layers)$", range(6, 64), "as many instructions stand before"),
    ("mlp_program|hotline_program", r"o_requests__payload\.beats$", range(1), "an instruction has two beats here"),
    ("mlp_result_writer", r"o__payload\$\d+(\.word)?$", range(31, 32), "a sigmoid is not negative"),
    ("mlp_result_writer", r"beat\.counts$", range(1), "a beat has a first column group"),
    (r"mlp_result_writer\w*\.tiles", "i__ready|level$", range(1, 3), "three of four places are behind the queue"),
    ("mlp_results|Destinations", r".*lanes$", range(1), "a tile has a first lane"),
    ("mlp_results|Destinations", r".*payload(\$\d+)?\.last_pieces$", range(2), "a column group has four pieces here"),
    ("hotline_(frames|gather)", r".*samples$", range(6, 16), "a frame here has 32 beats"),
    ("hotline_frames", r".*(__payload(\$\d+)?|read__data|store_head)$", range(8, 18), "samples, as above"),
    ("hotline_gather", r".*start$", range(5, 16), "a frame here has 32 beats"),
    ("hotline_gather", r".*(__payload(\$\d+)?(\.gathered)?|read__data|store_head)$", [*range(8, 18), *range(23, 34)],
     "samples and start, as above"),
    ("hotline_(update|dispatch)", r".*beats$", range(7, 16), "64 beats of rows here"),
    ("hotline_lookup", r"read__data(\$\d+)?\.rows$", range(24, 32), "2^23 rows here"),
    ("hotline_lookup", r"read__data(\$\d+)?$", range(47, 55), "rows, as above"),
    ("hotline_dispatch", "left$", range(7, 29), "64 beats of rows, samples here"),
    ("hotline_logger", r"o_image__payload\.ways\[\d\]$", range(17, 32), "an entry has 17 bits here"),
    ("hotline_scheduler|RunSplitter|ReleaseStage", r".*(heavy|first|last)$", range(1),
     "waves of as many lanes as a queue has columns are not cut"),
    ("hotline_sched|RunSplitter|ReleaseStage", r".*runs\[0\](\.start)?$", range(4), "the first bank's run begins at 0"),
    ("tt_", r"counters\.(lookups|reused)$", range(11, 12), "events, as above"),
    ("tt_", r"counters\.(computed|corrected)$", range(9, 12), "events, as above"),
    ("tt_", r"counters\.(uncorrectable|outside)$", range(6, 12), "events, as above"),
    ("tt_unit|CoreMemory", r"\w+__0\.(un)?correct(ed|able)$", (1, 3), "a load flips bits of a beat's first codeword"),
    ("tt_unit|CoreMemory", r"slot__0\.beats$", range(4, 10), "a vector of this shape has at most 16 beats"),
    ("tt_unit|CoreMemory", r"slot__0\.(columns_log2|combine)$", range(1, 2), "of a cube of 4"),
    ("tt_unit|CoreMemory", r"slot__0\.(block|swap)$", ALL, "of block16, and of a cube of 4"),
    ("Sequencer", r".*blocks_left$", range(5, 10), "at most 32 blocks, 8 groups of 8 lines in this shape"),
    ("Sequencer", r".*(groups|lines)_left$", range(3, 8), "as above"),
    (r"Sequencer\S*\.first_product", r".*groups_left$", ALL, "a first product has one group"),
    (r"Sequencer\S*\.last_product", r".*tail$", range(1), "vectors of this shape are of even length"),
    (r"Sequencer\S*\.last_product", "blocks_left$", range(1, 10), "a last product has at most two blocks here"),
    (r"Sequencer\S*\.last_product\.plan", "read__data$",
     [*range(4, 10), *range(16, 25), *range(26, 35), *range(38, 43), *range(46, 50), 52, 54, 56, 58],
     "its beats, tiles, blocks, groups, lines, columns, tail and format: as above"),
    (r"Sequencer\S*\.last_product", "held$", range(5, 9), "within a row's 16 lines of two operands"),
    (r"Sequencer\S*\.middle_product", r".*held$", range(7, 9), "64 lines of two operands"),
    ("Sequencer", r"freed_lines(\$\d+)?$", range(5, 7), "of a row's 16"),
    ("SumStream", r".*(level|count)$", range(6, 7), "there is room for four vectors less than places"),
    ("(emb_)?row_port", r"(.*\.)?lap$", ALL, "laps of 4,096 beats; RowFetch goes through all of them"),
    ("emb_front|Program_beat|Regions", r".*o_requests\S*\.beats$", range(6, 16),
     "the queues behind a request hold 64 beats"),
    ("emb_front", r"o_copies\S*\.beats$", range(5, 16), "a row of this shape has at most 16 beats"),
    ("emb_front|Program_beat|IndexDecoder", r".*\.tt_rows$", range(21, 32),
     "a table of this shape has at most 2^20 rows"),
    ("(emb_)?row|RowRequests", r".*\.beats$", range(6, 16), "a row has at most 32 beats"),
    ("emb_front|TierRouter", r".*__payload(\$\d+)?\.(copy|ring|tier)$", ALL, "a queue has rows of one tier"),
    ("custom_logic", "m0._axi__|interrupt", ALL, "a stand-in for a core, at whose masters nothing happens"),
    ("custom_logic", r"ocl__a[rw]addr$", range(26, 64), "the shell's BAR0 has 64 MB"),
    ("custom_logic", r"ocl__a[rw]addr$", range(2), "the shell asks for words"),
    ("f2_interconnect|(emb_)?row_port", r".*len$", range(6, 8), "a burst of 64 bytes a beat ends within 4 KB"),
    ("custom_logic", r".*len$", range(3, 8), "the shell asks for 512 bytes at most, the stand-in for nothing"),
    ("cl_hotrail", "sh_cl_glcount", ALL, "the shell's counters, which the logic does not read"),
    ("Interconnect|custom_logic", r".*addr$", range(36, 64), "F2's memory has 64 GB"),
    ("f2_interconnect", r".*addr$", range(20, 64), "the bench's memory has 1 MB"),
))
COUNTERS = re.compile(r"count|total|level|left|position|free|young|held|waits|owed|lap|head|tail|number")
OFF = "/* verilator coverage_off */\n"
# What is the same in every cycle, whatever comes in: constants spread through gates and registers, in the whole model,
# while every wire keeps its name.
SPREAD = ("proc", "write_json parts.json", "flatten", "memory_collect", "setundef -undriven -init -zero",
          *3 * ("opt_expr", "opt_merge -keepdc", "opt_clean", "opt_dff", "opt_clean", "opt_mem"), "opt_expr",
         "write_json whole.json")


def merged(files: Iterable[Path]) -> dict[Bit, int]:
    """How often each bit was seen to change in all runs, the rarer of up and down; a part that is placed many times
    counts as one."""
    return {bit: min(ways) for bit, ways in counted(files).items()}


def in_benches(texts: Mapping[str, str], modules: Mapping[str, Mapping[str, Any]], bench: str) -> dict[str, str]:
    """The model's Verilog by file, without coverage of the parts that this bench does not test.

    modules: of the model's metadata; bench: the test's file
    """
    known = units.collect()
    of_file: dict[str, set[str]] = defaultdict(set)
    for unit in known:
        of_file[unit.file].update(unit.tests)
    benches: dict[str, set[str]] = defaultdict(set)
    for unit in known:
        benches[unit.name] |= set(unit.tests) or of_file[unit.file]
    others = {f"{name}.v" for name, module in modules.items()
              if module["key"] and bench not in benches[module["key"].partition("(")[0]]}
    return {file: (OFF if file in others else "") + text for file, text in texts.items()}


def constants(texts: Mapping[str, str], top: str) -> tuple[list[Bit], list[Bit]]:
    """The bits of a model's modules that change in a place that these have in it, and those that never do: what Yosys
    finds constant, and of a queue whose `ready` nobody reads, since all that comes has reserved its place, that and the
    highest bit of its level."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).write_text(text, "utf-8")
        yosys([*(f"read_verilog -sv {file}" for file in texts), f"hierarchy -top {top}", *SPREAD], cwd=folder)
        parts, whole = (json.loads((folder / f"{file}.json").read_text("utf-8"))["modules"]
                        for file in ("parts", "whole"))
    wires = whole[top]["netnames"]
    changing: dict[Bit, bool] = {}

    def walk(module: str, place: str, reserved: bool) -> None:
        part = parts[module]
        read = Counter(bit for owner in (*(cell["connections"] for cell in part["cells"].values()),
                                         {name: port["bits"] for name, port in part["ports"].items()})
                       for bits in owner.values() for bit in bits)
        unread = {bit for cell in part["cells"].values() if cell["type"] in parts
                  for bit in cell["connections"].get("i__ready", ()) if read[bit] == 1}
        for signal, wire in part["netnames"].items():
            kept, width = wires.get(place + signal), len(wire["bits"])
            for number in range(width if kept and signal[0] != "$" else 0):
                bit = module, signal, str(number) if width > 1 else ""
                same = isinstance(kept["bits"][number], str) or wire["bits"][number] in unread or reserved and (
                    signal == "i__ready" or signal == "level" and number == width - 1)
                changing[bit] = changing.get(bit, False) or not same
        for cell, what in part["cells"].items():
            if what["type"] in parts:
                walk(what["type"], f"{place}{cell}.", unread.issuperset(what["connections"].get("i__ready", ())))

    walk(top, "", False)
    return sorted(bit for bit in changing if changing[bit]), sorted(bit for bit in changing if not changing[bit])


def never(files: Iterable[Path]) -> set[Bit]:
    """The bits that are constant in all models that have them, of what was written of each."""
    found = [[{tuple(bit) for bit in bits} for bits in json.loads(file.read_text("utf-8"))] for file in files]
    return set().union(*(same for _, same in found)).difference(*(changing for changing, _ in found))


def _is_waived(module: str, signal: str, bit: str) -> bool:
    return any(modules.match(module) and signals.match(signal) and int(bit or 0) in bits
               for modules, signals, bits, _ in WAIVED)


def looked_at(changes: Mapping[Bit, int]) -> list[Bit]:
    """The bits of ports and counters, without those that are waived."""
    return [bit for bit in changes if not bit[1].startswith("$") and bit[2] != "-1"
            and ("__" in bit[1] or COUNTERS.search(bit[1])) and not _is_waived(*bit)]


def missing(changes: Mapping[Bit, int]) -> tuple[list[Bit], int]:
    """The bits of ports and counters that never changed, and how many bits of them there are."""
    looked = looked_at(changes)
    return sorted(bit for bit in looked if not changes[bit]), len(looked)


def table(changes: Mapping[Bit, int]) -> Iterator[str]:
    """A Markdown table: of each module how many bits of ports and counters there are and how many have changed; those
    with most holes come first, and those without any in one line."""
    bits = Counter(bit[0] for bit in looked_at(changes))
    holes = Counter(bit[0] for bit in missing(changes)[0])
    yield "| module | bits | changed | share |"
    yield "|---|---|---|---|"
    for module in sorted(holes, key=lambda module: (-holes[module], module)):
        changed = bits[module] - holes[module]
        yield f"| {module} | {bits[module]} | {changed} | {changed / bits[module]:.1%} |"
    whole = bits.keys() - holes.keys()
    count = sum(bits[module] for module in whole)
    yield f"| {len(whole)} others | {count} | {count} | 100.0% |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m verif.coverage", description="Bits that no bench has seen change.")
    parser.add_argument("folders", nargs="+", help="that HOTRAIL_COVERAGE named while benches ran")
    folders = parser.parse_args(arguments).folders
    files = [file for folder in folders for file in Path(folder).rglob("*.dat")]
    if not files:
        parser.error(f"no .dat file lies in {' '.join(folders)}; HOTRAIL_COVERAGE names the folder that benches write "
                     "them to")
    same = never(file for folder in folders for file in Path(folder).rglob("*.constants"))
    changes = {bit: count for bit, count in merged(files).items() if bit not in same}
    holes, count = missing(changes)
    print("\n".join(table(changes)), end="\n\n")
    for module, name, bit in holes:
        print(f"{module}: {name}" + (f"[{bit}]" if bit else ""))
    print(f"{len(files)} runs: {count - len(holes)} of {count} bits of ports and counters change "
          f"({(count - len(holes)) / max(1, count):.2%})")


if __name__ == "__main__":
    main()
