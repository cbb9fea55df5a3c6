"""How well the delays predict routed paths, and the fit of the nets' delays to them.

    python -m fpga.synth.timing.calibrate       prints the fit and every path's error

A path is predicted from its cells, the places of its cells and its nets' fan-outs, which the routed report tells;
what is tested is the delays, not the placement. Each design's paths are predicted with nets fitted to the other
designs and with the mean delay of their LUTs. Free paths, of one to three nets that meet their clock, are predicted
likewise, but neither fitted to nor counted.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from fpga.synth.timing.delays import Family, Sink, delay, local, net

_FILE = Path(__file__).parent / "calibration.toml"
TERMS = ("base", "column", "near", "fanout", "control", "memory", "dsp", "carry", "from_carry", "from_memory")
ROWS = 4        # A column is as long as four rows.
# Where the search starts, and stays for a term that no net tells of: a carry chain's S is reached through a LUT.
_START = np.array([60, 36, 100, 30, 100, 200, 200, 125, 50, 50])

# Of a cell or captured pin in calibration.toml: where its delay is in delays.toml.
_CELLS = {
    "ff": ("ff", "clk_q"), "muxf": ("muxf", "through"), "lutram": ("lutram", "through"), "srl": ("srl", "clk_q"),
    "bram": ("bram", "clk_do"), "bram_reg": ("bram", "clk_do_reg"), "uram": ("uram", "clk_do"), "dsp": ("dsp", "p_out"),
    "ff.d": ("ff", "setup", "d"), "ff.ce": ("ff", "setup", "ce"), "ff.r": ("ff", "setup", "r"),
    "bram.en": ("bram", "setup", "en"), "bram.addr": ("bram", "setup", "addr"), "bram.we": ("bram", "setup", "we"),
    "uram.en": ("uram", "setup", "en"), "uram.addr": ("uram", "setup_reg", "addr"),
    "uram.d": ("uram", "setup_reg", "d"), "dsp.a": ("dsp", "setup_reg"), "dsp.control": ("dsp", "setup_control"),
    "lutram.we": ("lutram", "setup", "we"),
}
_SINKS = {"ff.d": Sink.DATA, "ff.ce": Sink.CONTROL, "ff.r": Sink.CONTROL, "muxf": Sink.MUX, "bram": Sink.MEMORY,
          "uram": Sink.MEMORY, "dsp": Sink.DSP, "carry.s_o": Sink.CARRY, "carry.s_co": Sink.CARRY,
          "carry.di_o": Sink.CARRY, "carry.di_co": Sink.CARRY, "carry.ci_o": Sink.CHAIN, "carry.ci_co": Sink.CHAIN}
_FAMILIES = {"ff": Family.FF, "muxf": Family.MUXF, "lutram": Family.LUTRAM, "srl": Family.SRL, "carry": Family.CARRY,
             "bram": Family.BRAM, "bram_reg": Family.BRAM, "uram": Family.URAM, "dsp": Family.DSP,
             **{f"lut{size}": Family.LUT for size in range(1, 7)}}


@dataclass(frozen=True)
class Net:
    """A net of a path: routed delay in ps, fan-out, slice columns and rows from driver to sink, `Family` of its driver,
    `Sink`; `inside`: its delay where it stays in the slice, else nan."""

    ps: int
    fanout: int
    dx: float
    dy: float
    driver: Family
    sink: Sink
    inside: float


@dataclass(frozen=True)
class Path_:
    """A routed path: delay in ps with the set-up of its end, that of its cells but LUTs by the table, its nets, and its
    LUTs: inputs and routed delay in ps."""

    ps: int
    cells_ps: float
    nets: tuple[Net, ...]
    luts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Design:
    name: str
    part: str
    clock: str
    source: str
    violated: tuple[Path_, ...]
    met: tuple[Path_, ...]
    free: tuple[Path_, ...]

    @property
    def paths(self) -> tuple[Path_, ...]:
        """Those that count."""
        return self.violated + self.met

    @property
    def repository(self) -> str:
        return self.source.split(",")[0]


@dataclass(frozen=True)
class Calibration:
    """Relative errors of paths and of free paths, predicted with the LUTs of all designs but the path's own and with
    nets fitted to these; `terms`: fitted to all; `cells`: errors of paths with their nets as routed, of all designs."""

    errors: dict[str, tuple[float, ...]]
    free: dict[str, tuple[float, ...]]
    terms: dict[str, float]
    cells: tuple[float, ...]

    @property
    def every(self) -> list[float]:
        return [error for errors in self.errors.values() for error in errors]

    @property
    def median(self) -> float:
        return median(map(abs, self.every))

    @property
    def worst(self) -> float:
        return max(map(abs, self.every))

    @property
    def bias(self) -> float:
        """Median with its sign: above 0 where paths are predicted slower than they are."""
        return median(self.every)

    @property
    def violated(self) -> list[float]:
        """Of paths in which the router did what it could."""
        return [error for design in designs() for error in self.errors[design.name][:len(design.violated)]]

    def __str__(self) -> str:
        off, worst = f"{100 * self.median:.1f} % off on the median", f"{100 * self.worst:.1f} % at worst"
        bias = median(self.violated)
        return (f"{len(self.every)} routed paths of {len(self.errors)} designs are predicted {off}, {worst}; violated "
                f"ones, with the sign, {100 * abs(bias):.1f} % too {'slow' if bias > 0 else 'fast'} on the median")


def _cell_ps(cell: str) -> float:
    """A cell's delay by the table; 0 for a LUT, whose delay is a mean of designs."""
    if _FAMILIES.get(cell) == Family.LUT:
        return 0.0
    if cell.startswith("carry."):
        one = delay("carry4", cell.removeprefix("carry."))
        return 2 * one if cell == "carry.ci_co" else one
    if cell == "dsp.d_ad":
        return delay("dsp", "setup_d")
    return delay(_CELLS[cell][0], *_CELLS[cell][1:])


def _parsed(text: str) -> Path_:
    steps = [step.split() for step in text.split(" > ")]
    cells, routed = steps[::2], [tuple(map(int, step[0].split(":"))) for step in steps[1::2]]
    at = [tuple(map(float, place.split(","))) for _, _, place in cells]
    nets = []
    for (fanout, ps), (a, *_), (b, *_), (xa, ya), (xb, yb) in zip(routed, cells, cells[1:], at, at[1:]):
        sink = _SINKS.get(b, _SINKS.get(b.split(".")[0], Sink.LOGIC))
        driver, inside = _FAMILIES[a.split(".")[0]], np.nan
        if (xa, ya) == (xb, yb) and fanout == 1:
            inside = float(local(driver, sink))
        if sink == Sink.CHAIN:
            inside = 2 * delay("local", "carry_carry")
        nets.append(Net(ps, fanout, abs(xb - xa), abs(yb - ya), driver, sink, inside))
    luts = tuple((int(cell.removeprefix("lut")), int(ps)) for cell, ps, _ in cells if _FAMILIES.get(cell) == Family.LUT)
    return Path_(sum(int(ps) for _, ps, _ in cells) + sum(ps for _, ps in routed),
                 sum(_cell_ps(cell) for cell, _, _ in cells), tuple(nets), luts)


@cache
def designs() -> tuple[Design, ...]:
    """The routed paths, by design."""
    return tuple(Design(one["name"], one["part"], one["clock"], one["source"],
                        *(tuple(map(_parsed, one.get(kind, ()))) for kind in ("violated", "met", "free")))
                 for one in tomllib.loads(_FILE.read_text("utf-8"))["design"])


def _net_ps(nets: Iterable[Net], terms: dict[str, float] | None) -> npt.NDArray:
    """Delays of nets, by the terms where they leave their slice."""
    rows = list(nets)
    dx, dy, fanout, driver, sink, inside = (np.array([getattr(one, name) for one in rows])
                                            for name in ("dx", "dy", "fanout", "driver", "sink", "inside"))
    return np.where(np.isnan(inside), net(dx, dy, fanout, driver, sink, terms), inside)


def through(known: Iterable[Design]) -> int:
    """Mean delay of the LUTs on the paths of designs, in ps."""
    return round(float(np.mean([ps for design in known for path in design.paths for _, ps in path.luts])))


def _terms(values: npt.NDArray) -> dict[str, float]:
    """By name, and a row as part of a column."""
    terms = {name: round(float(value), 1) for name, value in zip(TERMS, values)}
    return terms | {"row": round(terms["column"] / ROWS, 2)}


def fitted(known: Iterable[Design]) -> dict[str, float]:
    """Terms of `delays.net` by robust least squares over the paths of designs, none below 0: logarithms of predicted by
    routed, of every net that leaves its slice and of every path, which weighs as much as its nets together.

    Long routes of nets that meet their slack anyway are outliers; a soft loss keeps them from deciding."""
    known = tuple(known)
    paths = [path for design in known for path in design.paths]
    nets = [one for path in paths for one in path.nets]
    first = np.cumsum([0, *(len(path.nets) for path in paths)])[:-1]
    outside = np.array([np.isnan(one.inside) for one in nets])
    routed, weights = np.array([one.ps for one in nets]), np.sqrt([len(path.nets) for path in paths])
    cells = np.array([path.cells_ps + through(known) * len(path.luts) for path in paths])
    whole = np.array([path.ps for path in paths])

    def off(values: npt.NDArray) -> npt.NDArray:
        ps = _net_ps(nets, dict(zip(TERMS, values)) | {"row": values[TERMS.index("column")] / ROWS})
        by_net = np.log((ps[outside] + 50) / (routed[outside] + 50))
        by_path = weights * np.log((cells + np.add.reduceat(ps, first)) / whole)
        return np.concatenate((by_net, by_path, 0.01 * (values / _START - 1)))

    fit = least_squares(off, _START, bounds=(0, np.inf), loss="soft_l1", f_scale=0.2)
    return _terms(fit.x)


def predicted(path: Path_, terms: dict[str, float] | None = None, lut: float | None = None) -> float:
    """Delay of a path in ps: cells by the table, nets by `terms` and LUTs by `lut` ps [the table's own]."""
    lut = delay("lut", "through") if lut is None else lut
    return path.cells_ps + lut * len(path.luts) + float(_net_ps(path.nets, terms).sum())


def errors(of: Callable[[Design], str]) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]]]:
    """Relative errors of every design's paths and free paths; those that are alike by `of` are left out together."""
    counted, free = {}, {}
    for group in dict.fromkeys(map(of, designs())):
        others = [one for one in designs() if of(one) != group]
        terms, lut = fitted(others), through(others)
        for design in designs():
            if of(design) == group:
                counted[design.name], free[design.name] = (
                    tuple(predicted(path, terms, lut) / path.ps - 1 for path in paths)
                    for paths in (design.paths, design.free))
    return counted, free


def _cell_errors() -> Iterator[float]:
    """Relative errors of the paths with their nets as routed, and the LUTs of all designs but the path's own."""
    for design in designs():
        lut = through(one for one in designs() if one is not design)
        for path in design.paths:
            yield (path.cells_ps + lut * len(path.luts) + sum(one.ps for one in path.nets)) / path.ps - 1


@cache
def calibration() -> Calibration:
    """Errors with every design left out of its own fit."""
    return Calibration(*errors(lambda design: design.name), fitted(designs()), tuple(_cell_errors()))


def _line(name: str, errors: Iterable[float]) -> str:
    known = list(errors)
    sizes = [abs(error) for error in known]
    return (f"{name:10s} {len(known):3d} paths, median {100 * median(sizes):.1f} %, worst {100 * max(sizes):.1f} %, "
            f"bias {100 * median(known):+.1f} %")


if __name__ == "__main__":
    result = calibration()
    print("terms", result.terms, "LUT", through(designs()))
    for design in designs():
        for path, error in zip(design.paths, result.errors[design.name]):
            kind = "violated" if path in design.violated else "met"
            routed = f"{len(path.nets):2d} nets, {path.ps:5d} ps routed"
            print(f"{design.name:10s} {kind:8s} {routed}, {100 * error:+6.1f} %")
    for design in designs():
        print(_line(design.name, result.errors[design.name]))
    print(_line("violated", result.violated))
    print(_line("all", result.every))
    print(_line("none out", (predicted(path, result.terms, through(designs())) / path.ps - 1
                             for design in designs() for path in design.paths)))
    print(_line("cells", result.cells))
    together, _ = errors(lambda design: design.repository)
    print(_line("repository", (error for one in together.values() for error in one)))
    free = [error for one in result.free.values() for error in one]
    print(_line("free", free))
    print(_line("with free", [*result.every, *free]))
    for what, some in (("detector", True), ("others", False)):
        for sizes in ((1, 2, 3), (4, 5), (6,)):
            luts = [ps for design in designs() if (design.name == "detector") == some
                    for path in design.paths for size, ps in path.luts if size in sizes]
            print(f"LUTs of {sizes} inputs, {what}: {len(luts)}, mean {np.mean(luts):.0f} ps")
