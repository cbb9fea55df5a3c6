"""How many accesses the Hotline core's scheduler issues to the logger's banks a cycle."""

from collections.abc import Iterator

import numpy as np

from bench.framework import Row, at_least, bench, figure
from golden.hotline.scheduler import pool
from hw.hotline.scheduler import BankScheduler
from verif.bench.runner import build, run

QUEUES = (64, 128, 256, 512, 1024)
TARGETS = dict(zip(QUEUES, (37.5, 49, 56, 60, 62), strict=True))
CYCLES, WARM = 12_000, 1_000
SKEWS = (0.9, 1.05, 1.2)
SKEWED = 512    # places with which skewed streams are measured


@bench("hotline_issue")
def issue() -> Iterator[Row]:
    """Accesses issued per cycle, in RTL, over banks and places of the queue; random banks, and skewed rows."""
    random = np.random.default_rng(1)
    for banks in (64, 32, 16):
        for queue in QUEUES:
            name, what = f"hotline.issue.{banks}.{queue}", f"{banks} lanes, {banks} banks, {queue} places; random banks"
            # Payloads have no influence on what is issued when.
            unit = BankScheduler(lanes=banks, banks=banks, queue=queue, payload=1, tag=1)
            model = build(unit, f"bench_hotline_issue_{banks}_{queue}")
            rate = _measure(model, banks, 0)["issued"]
            if banks == 64:
                yield at_least(name, what, round(rate, 2), "accesses/cycle", TARGETS[queue])
            else:
                yield figure(name, what, round(rate, 2), "accesses/cycle")
            ideal = pool(random.integers(banks, size=banks * CYCLES), count=banks, queue=queue)
            yield figure(f"{name}.ideal", "the same, an ideal queue that is filled up every cycle", round(ideal, 2),
                         "accesses/cycle")
            if queue != SKEWED:
                continue
            for skew in SKEWS:
                done = _measure(model, banks, skew)
                rows = f"the same with Zipf {skew:g} rows of 2 M"
                yield figure(f"{name}.zipf{skew}", rows, round(done["issued"], 2), "accesses/cycle")
                yield at_least(f"{name}.zipf{skew}.busiest", f"{rows}: cycles in which the bank that is asked most, "
                               "which bounds them, gets one", round(100 * done["busiest"], 1), "%", 99)


def _measure(model, lanes: int, skew: float) -> dict[str, float]:
    return run(model, "verif.hotline.issue", tests=1, env={
        "ISSUE_CYCLES": CYCLES, "ISSUE_WARM": WARM, "ISSUE_LANES": lanes, "ISSUE_BANKS": lanes,
        "ISSUE_SKEW_PER_MILLE": round(1000 * skew)}).values
