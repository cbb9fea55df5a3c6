"""Draws mutants and tries them on their units' benches: `make mutants`.

    python -m tests.mutants                          30 mutants among all files of hw that have state
    python -m tests.mutants hw/axi/control.py --count 10 --seed 3
    python -m tests.mutants --list                   the files, their mutants and benches; tries nothing

Exit code 1 where one survives, hangs or takes too long; each is named with its place and its change.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutant import FOUND, HANGS, Copy
from tests.mutants.operators import Change, benches, changes, draw, files


def _tried(copy: Copy, change: Change, tests: tuple[str, ...]) -> str:
    """found, survives, hangs, or invalid: it cannot be built or its bench not be started."""
    path = copy.folder / change.file
    sound = path.read_text("utf-8")
    path.write_text(change.applied(sound), "utf-8")
    try:
        code, output = copy.run(tests)
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        path.write_text(sound, "utf-8")
    if HANGS.search(output):
        return "hangs"
    return "survives" if code == 0 else "found" if FOUND.search(output) else "invalid"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Tries mutants of hw on its benches.")
    parser.add_argument("files", nargs="*", help="of hw (default: all with state and a bench)")
    parser.add_argument("--count", type=int, default=30, help="mutants to try (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn (default: 1)")
    parser.add_argument("--all-shapes", action="store_true", help="of the benches, not those of `make test` alone")
    parser.add_argument("--list", action="store_true", help="names files, mutants and benches, and tries nothing")
    asked = parser.parse_args()
    known = files()
    if unknown := [file for file in asked.files if file not in known]:
        parser.error(f"{unknown[0]} has no state, no bench or is not there; --list names the files that have mutants")
    names, tests = asked.files or known, benches()
    if asked.list:
        for name in names:
            print(f"{name}: {len(changes(name))} mutants; {' '.join(tests[name])}")
        return
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), all_shapes=asked.all_shapes)
        for change in draw(names, asked.count, asked.seed):
            verdicts.append(_tried(copy, change, tests[change.file]))
            print(f"{verdicts[-1]}: {change.why}", flush=True)
    found, valid = verdicts.count("found"), len(verdicts) - verdicts.count("invalid")
    print(f"{found} of {valid} mutants are found ({found / max(1, valid):.0%}); {verdicts.count('survives')} survive, "
          f"{verdicts.count('hangs')} hang, {verdicts.count('invalid')} cannot be built")
    sys.exit(found != valid)


if __name__ == "__main__":
    main()
