"""Drives the fuzz of programs: drawn from what hw.isa says, carried out on a core, its twin and its oracle.

    python -m tests.fuzz.programs --count 100000                       all cores, both memories, the preset `tiny`
    python -m tests.fuzz.programs --core emb --preset smartssd --seconds 600
    python -m tests.fuzz.programs --core mlp --memory ddr4 --seed 17   the programs of one seed again

A seed is a card of its own and as many programs, one behind the other: every other one with a mistake, every other
pair with stalls on all channels. A difference is a finding; it ends its seed.
"""

import argparse
import itertools
import math
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gen.rtl import config
from gen.rtl.headers import KERNELS
from tests.support import emb_trials, hotline_programs, mlp_bench

CORES = {"emb": emb_trials.Trials, "mlp": mlp_bench.Trials, "hotline": hotline_programs.Trials}
MEMORIES = ("ideal", "ddr4")
PROGRAMS = 40       # of a seed


def trials_of(core: str, preset: str, memory: str, seed: int) -> Any:
    """Cards with the core and its twin, the oracle, and what draws programs for them."""
    return CORES[core](config.load(preset).cores[core], memory, seed)


@dataclass
class Tally:
    """What came of a campaign: programs by core and how they ended, and the findings."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def programs(self) -> int:
        return sum(sum(ends.values()) for ends in self.ends.values())

    def seed(self, core: str, preset: str, memory: str, seed: int, until: float = math.inf) -> None:
        """The programs of a seed, until the clock is there."""
        names = {code.code: code.name for code in KERNELS[core].codes}
        ends = self.ends.setdefault(core, Counter())
        trials, number = trials_of(core, preset, memory, seed), 0
        try:
            for number in range(PROGRAMS):
                if time.monotonic() >= until:
                    return
                ends[names[trials.trial(bool(number & 1), stalls=bool(number & 2))]] += 1
        except Exception as error:      # whatever it is: the campaign goes on
            notes = "; ".join(getattr(error, "__notes__", ()))
            self.findings.append(
                f"program {number}: {type(error).__name__}: {error}\n  {notes}\n  again: python -m tests.fuzz.programs "
                f"--core {core} --preset {preset} --memory {memory} --seed {seed}")
        finally:
            trials.close()


def campaign(places: Sequence[tuple[str, str, str]], *, first: int = 1, seeds: int | None = None,
             count: int | None = None, seconds: float | None = None) -> Iterator[Tally]:
    """The tally after each seed. places: (core, preset, memory), in turn; seeds: from `first` on [for ever]; it ends
    behind `count` programs or `seconds` of the clock as well."""
    tally, until = Tally(), math.inf if seconds is None else time.monotonic() + seconds
    for seed in itertools.count(first) if seeds is None else range(first, first + seeds):
        for place in places:
            tally.seed(*place, seed, until)
            yield tally
            if count is not None and tally.programs >= count or time.monotonic() >= until:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=tuple(CORES), help="default: all that the preset has")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--memory", choices=MEMORIES, help="default: both")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed")
    parser.add_argument("--count", type=int, help="ends behind so many programs")
    parser.add_argument("--seconds", type=float, help="ends behind so many seconds")
    given = parser.parse_args()
    there = config.load(given.preset).cores
    if given.core and given.core not in there:
        parser.error(f"preset {given.preset} has no core {given.core}; it has {', '.join(there)}")
    places = [(core, given.preset, memory) for core in CORES if core in there and given.core in (None, core)
              for memory in MEMORIES if given.memory in (None, memory)]
    tally, said = Tally(), 0
    first, seeds = (given.first, None) if given.seed is None else (given.seed, 1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):       # what was tried so far is said
        for tally in campaign(places, first=first, seeds=seeds, count=given.count, seconds=given.seconds):
            for finding in tally.findings[said:]:
                print(finding, flush=True)
            said = len(tally.findings)
    for core, ends in tally.ends.items():
        print(f"{core}: {sum(ends.values())} programs: "
              + ", ".join(f"{number} {name}" for name, number in ends.most_common()))
    print(f"{tally.programs} programs, {said} findings")
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
