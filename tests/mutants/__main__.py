"""Draws mutants and tries them on their units' benches: `make mutants`.

    python -m tests.mutants                          300 mutants among all files of hw that have state
    python -m tests.mutants hw/axi/control.py --count 40 --seed 3
    python -m tests.mutants --list                   the files, their mutants and benches; tries nothing

What was tried lies in build/mutants: the same command goes on where it was ended, and several at once share the benches
among them. Exit code 1 where one survives, hangs or is never elaborated; each is named with its place and its change.
"""

import argparse
import json
import sys
from pathlib import Path

from gen.base.tools import build_folder
from tests.mutants.argued import argument
from tests.mutants.campaign import Campaign, share
from tests.mutants.equivalence import compare
from tests.mutants.operators import benches, changes, files

MISSED = ("survives", "hangs", "unreached")


def equivalents(campaign: Campaign) -> dict[int, str]:
    """What an argument or the comparison with the sound unit says of each survivor; kept in the campaign's folder."""
    note = campaign.folder / "equivalence.json"
    known = {int(number): told for number, told in json.loads(note.read_text("utf-8")).items()} if note.exists() else {}
    for one in campaign.tried():
        if one.verdict == "survives" and one.number not in known:
            known[one.number] = ("equivalent" if argument(one.change)
                                 else compare(campaign.models(one.number), one.number))
            note.write_text(json.dumps(known), "utf-8")
    return known


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Tries mutants of hw on its benches.")
    parser.add_argument("files", nargs="*", help="of hw (default: all with state and a bench)")
    parser.add_argument("--count", type=int, default=300, help="mutants to try, about (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn (default: 1)")
    parser.add_argument("--folder", type=Path, help="for what was tried (default: build/mutants)")
    parser.add_argument("--benches", nargs="*", default=[], help="of the sample the mutants of these benches alone")
    parser.add_argument("--all-shapes", action="store_true", help="of the benches, not those of `make test` alone")
    parser.add_argument("--list", action="store_true", help="names files, mutants and benches, and tries nothing")
    asked = parser.parse_args()
    known = files()
    if unknown := [file for file in asked.files if file not in known]:
        parser.error(f"{unknown[0]} has no state, no bench or is not there; --list names the files that have mutants")
    names = asked.files or known
    if asked.list:
        for name in names:
            print(f"{name}: {len(changes(name))} mutants; {' '.join(benches()[name])}")
        return
    campaign = Campaign(asked.folder or build_folder() / "mutants", names, asked.count, asked.seed,
                        all_shapes=asked.all_shapes)
    campaign.run(lambda line: print(line, flush=True), asked.benches)
    told, tried = equivalents(campaign), campaign.tried()
    equivalent = frozenset(number for number, word in told.items() if word == "equivalent")
    missed = [one for one in tried if one.verdict in MISSED and one.number not in equivalent]
    for one in missed:
        print(f"{one.verdict}: {one.change.why}" + (f" ({told[one.number]})" if one.number in told else ""))
    got = share(tried, equivalent)
    print(f"{len(tried)} of {len(campaign.mutants)} mutants tried, {len(equivalent)} are equivalents; of {got.count} "
          f"others {got.found} are found: {got.estimate:.1f} % of all, {got.low:.1f} to {got.high:.1f} %")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
