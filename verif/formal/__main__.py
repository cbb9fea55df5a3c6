"""The command: see verif.formal.prove."""

import argparse
import sys

from verif.formal import ALL
from verif.formal.mutate import lines, mutate
from verif.formal.prove import prove


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m verif.formal", description="Proves the properties of the units.")
    parser.add_argument("names", nargs="*", help="proofs whose names contain one of these (default: all)")
    parser.add_argument("--mutants", type=int, metavar="N", help="N mutants of each unit against its claims, no proofs")
    parser.add_argument("--seed", type=int, default=1, help="by which mutants are drawn (default: 1)")
    asked = parser.parse_args()
    chosen = [proof for proof in ALL if not asked.names or any(name in proof.name for name in asked.names)]
    if not chosen:
        parser.error(f"no proof has {' or '.join(asked.names)} in its name; there are "
                     f"{', '.join(proof.name for proof in ALL)}")
    if asked.mutants:
        print("\n".join(lines([mutate(proof, asked.mutants, asked.seed) for proof in chosen])))
        return
    faults, verdicts, covers = [], [], 0
    for proof in chosen:
        outcome, = prove([proof])
        faults += outcome.faults()
        verdicts += outcome.claims.values()
        covers += len(outcome.covers)
        if asked.names:
            for name, told in [*outcome.claims.items(), *outcome.covers.items()]:
                print(f"  {name}: {told}")
        print(f"{proof.name}: {len(outcome.claims)} claims, {len(outcome.covers)} covers, {outcome.latches} registers, "
              f"{outcome.seconds:.1f} s", flush=True)
    print("\n".join([*faults, f"{len(chosen)} proofs, {len(verdicts)} claims: {verdicts.count('proven')} without "
                     f"bound, {sum(told.startswith('bounded') for told in verdicts)} bounded; {covers} covers, "
                     f"{len(faults)} faults"]))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
