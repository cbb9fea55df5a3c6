"""How much the benches of the hardware would find: mutants of it, and the bits that they have seen change."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.framework import ROOT, Row, at_least, bench, figure
from gen.base.tools import build_folder

COUNT, SEED = 600, 1
SHARE, TOGGLES = 95.0, 98.0


@bench("proof_mutants")
def mutants() -> Iterator[Row]:
    """Mutants by operator, drawn from all files of hw that have state, against the benches of `make test`."""
    from tests.mutants.__main__ import equivalents
    from tests.mutants.campaign import Campaign, share
    from tests.mutants.operators import files

    campaign = Campaign(build_folder() / "mutants", files(), COUNT, SEED)
    campaign.run(print)
    told, tried = equivalents(campaign), campaign.tried()
    equal = frozenset(number for number, word in told.items() if word == "equivalent")
    got, verdicts = share(tried, equal), Counter(one.verdict for one in tried)
    yield at_least("proof.mutants.found", "mutants of the hardware, no equivalents, that its benches find: estimate",
                   round(got.estimate, 1), "%", SHARE)
    yield figure("proof.mutants.low", "the same: lower end of the interval of 95 %", round(got.low, 1), "%")
    yield figure("proof.mutants.high", "the same: upper end", round(got.high, 1), "%")
    yield figure("proof.mutants.count", "mutants in that sample, no equivalents", got.count, "")
    yield figure("proof.mutants.untried", "mutants of benches that fail with mutants written in, not in the estimate",
                 len(campaign.mutants) - len(tried), "")
    yield figure("proof.mutants.files", "files of hw that they are of", len({one.change.file for one in tried}), "")
    yield figure("proof.mutants.equivalent", "equivalents among the survivors, proven", len(equal), "")
    yield figure("proof.mutants.hang", "mutants in that sample whose simulation hangs", verdicts["hangs"], "")
    yield figure("proof.mutants.survivors", "survivors", "; ".join(
        one.change.why for one in tried
        if one.verdict in ("survives", "hangs", "unreached") and one.number not in equal) or "none", "")


@bench("proof_toggle")
def toggles() -> Iterator[Row]:
    """Bits of ports and counters that the benches of `make test` have seen change, up and down."""
    from verif.coverage import merged, missing

    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "verif"], cwd=ROOT, check=True,
                       env=os.environ | {"HOTRAIL_COVERAGE": folder})
        never, count = missing(merged(Path(folder).rglob("*.dat")))
    yield at_least("proof.toggle", "bits of ports and counters that the benches have seen change",
                   round(100 * (count - len(never)) / count, 2), "%", TOGGLES)
    yield figure("proof.toggle.bits", "bits of ports and counters", count, "")
    yield figure("proof.toggle.modules", "modules with a bit that never changes", len({bit[0] for bit in never}), "")
