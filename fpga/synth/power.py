"""What a core in standard cells draws, by the library's energies and by how often its nets change.

A pin's energy per change is half of C V^2, with what wires add, and what the library says of the inside of the cell, a
range over its states, slews and loads. A net's is that of its pins. How often nets change is counted in a run of the
simulated card where they have a name in the Verilog: registers, ports, what their inputs are. The others are taken to
change as often as those of their module do: least and most are the mean of its signals and that of its counted nets by
energy, the most with hazards, GLITCHES times. Clock pins change twice in every cycle: there is no gated clock. Two
modules of Hotline were simulated as cells without delays under drawn inputs: such nets drew 0.92 and 1.04 times what is
the least here. Not modelled: clock tree, memories.

Source: Liberty User Guide (internal_power, per change of a pin, in units of capacitance times volts squared); what
wires and hazards add: own assumptions
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gen.rtl.toggles import Bit
from gen.rtl.verilog import TOP

#: Least and most: changes of a net per cycle where there was no run; what wires add to the inputs' capacitance, times.
ACTIVITY, WIRES = (0.05, 0.2), (0.5, 2.0)
GLITCHES = 2.0      # changes with hazards for one without
UNITS = {"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
NUMBER = r"[-\d.eE+]+"
Bounds = tuple[float, float]


def add(*of: Bounds) -> Bounds:
    """Sums of least and most."""
    return sum(least for least, _ in of), sum(most for _, most in of)


def times(of: Bounds, least: float, most: float | None = None) -> Bounds:
    """most: where it is another than for the least."""
    return least * of[0], (least if most is None else most) * of[1]


@dataclass(frozen=True)
class Pin:
    """change_j: joules per change, least and most."""

    clock: bool
    change_j: Bounds


@dataclass(frozen=True)
class Cell:
    """Of a library; watts of leakage."""

    pins: Mapping[str, Pin]
    leakage_w: float


@dataclass(frozen=True)
class Nets:
    """Of a module or of a core, in joules, least and most: of a cycle of the clock, of a change of each net that has a
    name in the Verilog (signal, bit), and of one change of all others; watts of leakage."""

    clock_j: Bounds = (0.0, 0.0)
    named: Mapping[tuple[str, str], Bounds] = field(default_factory=dict)
    others_j: Bounds = (0.0, 0.0)
    leakage_w: float = 0.0

    @property
    def cycle_j(self) -> Bounds:
        """Of a cycle, by assumed activity."""
        changes = add(self.others_j, *self.named.values())
        return add(self.clock_j, times(changes, *ACTIVITY))


@dataclass(frozen=True)
class Power:
    """Joules per cycle, least and most: of the clock, of nets whose changes were counted, of the others; watts of
    leakage. cycles: that were counted; rate: mean changes per cycle of all signals."""

    clock_j: Bounds
    counted_j: Bounds
    others_j: Bounds
    leakage_w: float
    cycles: int
    rate: float

    def watts(self, mhz: float, busy: float = 1.0) -> Bounds:
        """busy: share of the cycles that are as in the run; in the others clocks alone change."""
        cycle = add(self.clock_j, times(add(self.counted_j, self.others_j), busy))
        return add(times(cycle, mhz * 1e6), (self.leakage_w, self.leakage_w))


def library_cells(liberty: str) -> dict[str, Cell]:
    """The cells of a Liberty file by name."""
    def number(pattern: str, text: str, default: float = 0.0) -> float:
        match = re.search(rf"{pattern}\s*:?\s*\"?\(?\s*({NUMBER})", text)
        return float(match[1]) if match else default

    def unit(pattern: str) -> float:
        match = re.search(pattern + r"\W*([\d.]+)\W*([fpnum]?)[WwFf]", liberty)
        return float(match[1]) * UNITS[match[2].lower()] if match else 1.0

    farad, volts = unit("capacitive_load_unit"), number("nom_voltage", liberty)

    def pin(text: str) -> Pin:
        is_input = re.search(r"direction\s*:\s*\"?input", text)
        charge = 0.5 * farad * volts ** 2 * number(r"\bcapacitance", text) if is_input else 0.0
        inside = [_inside(group) for group in re.split(r"\binternal_power\s*\(", text)[1:]] or [(0.0, 0.0)]
        return Pin(bool(re.search(r"\bclock\s*:\s*\"?true", text)),
                   (charge * (1 + WIRES[0]) + farad * min(least for least, _ in inside),
                    charge * (1 + WIRES[1]) + farad * max(most for _, most in inside)))

    return {re.split(r"\W", cell, maxsplit=1)[0]: Cell(
        {re.split(r"\W", text.lstrip(' "'), maxsplit=1)[0]: pin(text) for text in re.split(r"\bpin\s*\(", cell)[1:]},
        number("cell_leakage_power", cell) * unit("leakage_power_unit"))
        for cell in re.split(r"\bcell\s*\(\s*\"?(?=\w)", liberty)[1:]}


def _inside(group: str) -> Bounds:
    """Of a change, the mean of rise and fall, over the tables of an internal_power group, in the library's unit."""
    tables: dict[str, list[float]] = defaultdict(list)
    for way, values in re.findall(r"\b(rise|fall|)_?power\s*\([^)]*\)\s*\{[^}]*?\bvalues\s*\(([^)]*)\)", group):
        tables[way] += map(float, re.findall(NUMBER, values))
    return times(add(*((min(each), max(each)) for each in tables.values())), 1 / max(1, len(tables)))


def nets(placed: Iterable[tuple[str, Mapping[str, int | str]]], names: Iterable[tuple[int | str, str, str]],
         known: Mapping[str, Cell]) -> Nets:
    """Of a mapped module. placed: of each cell its kind, and the net of each pin, "0" or "1" for a constant; names:
    (net, signal, bit); known: the library's cells."""
    named_as = {net: (signal, bit) for net, signal, bit in names}
    clock, others, leakage = (0.0, 0.0), (0.0, 0.0), 0.0
    named: dict[tuple[str, str], Bounds] = defaultdict(lambda: (0.0, 0.0))
    for kind, pins in placed:
        if kind not in known:
            continue
        leakage += known[kind].leakage_w
        for name, net in pins.items():
            pin = known[kind].pins[name]
            if pin.clock:
                clock = add(clock, times(pin.change_j, 2))
            elif net in named_as:
                named[named_as[net]] = add(named[named_as[net]], pin.change_j)
            elif not isinstance(net, str):
                others = add(others, pin.change_j)
    return Nets(clock, dict(named), others, leakage)


def power(top: str, modules: Mapping[str, tuple[Nets, int]], changes: Mapping[Bit, int]) -> Power:
    """Of a core. modules: (nets of one, instances) by name; changes: of each bit, of all instances together, in a run
    (gen.rtl.toggles), in which the clock's changes are two per cycle and the top may be called TOP, as a card has it.

    Raises      ValueError: the run was of another core
    """
    bits, sums = Counter[str](), Counter[str]()
    counted_in: dict[Bit, int] = {}
    for (part, signal, bit), count in changes.items():
        # Yosys has the parts of a file flattened into its first module, whose name theirs begin with.
        module, _, path = part.partition(".")
        module = top if module == TOP else module
        if module in modules:
            counted_in[module, f"{path}.{signal}" if path else signal, bit] = count
            if signal not in ("clk", "rst"):
                bits[module] += modules[module][1]
                sums[module] += count
    cycles = counted_in.get((top, "clk", ""), 0) // 2
    if not cycles or modules.keys() - {module for module, _, _ in counted_in}:
        raise ValueError(f"the activity is of another core than {top}, or of no run")
    clock, counted, others, leakage = (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0.0
    for name, (of, instances) in modules.items():
        leakage += instances * of.leakage_w
        clock = add(clock, times(of.clock_j, instances))
        rest, each, own = [of.others_j], [(0.0, 0.0)], [(0.0, 0.0)]
        for (signal, bit), energy in of.named.items():
            if (name, signal, bit) in counted_in:
                each.append(times(energy, instances))
                own.append(times(energy, counted_in[name, signal, bit] / cycles))
            else:
                rest.append(energy)
        counted = add(counted, *own)
        mean, weighted = sums[name] / max(1, bits[name]) / cycles, add(*own)[1] / (add(*each)[1] or 1.0)
        others = add(others, times(add(*rest), instances * min(mean, weighted),
                                   instances * GLITCHES * max(mean, weighted)))
    return Power(clock, counted, others, leakage, cycles, sums.total() / max(1, bits.total()) / cycles)


def lines(of: Power, mhz: float) -> Iterable[str]:
    """The power as text."""
    def mw(joules: Bounds) -> str:
        least, most = times(joules, 1e9 * mhz)
        return f"{least:.3g} to {most:.3g} mW"

    least, most = of.watts(mhz)
    yield (f"  at work     {1e3 * least:.3g} to {1e3 * most:.3g} mW at {mhz:g} MHz, without memories and clock tree; "
           f"counted: {of.cycles:,} cycles, in one of which {of.rate:.2%} of the signals change")
    yield f"    clock pins of registers {mw(of.clock_j)}, leakage {1e3 * of.leakage_w:.3g} mW"
    yield f"    nets whose changes were counted {mw(of.counted_j)}"
    yield f"    the others {mw(of.others_j)}, as often as those of their module, with hazards {GLITCHES:g} times that"
