"""How many accesses the Hotline core's scheduler issues to the logger's banks a cycle."""

from collections.abc import Iterator

import numpy as np

from bench.framework import Row, at_least, bench, figure
from gen.rtl.play import Phase, Player, build
from golden.hotline.scheduler import pool
from hw.hotline.scheduler import BankScheduler

QUEUES = (64, 128, 256, 512, 1024)
TARGETS = dict(zip(QUEUES, (37.5, 49, 56, 60, 62), strict=True))
CYCLES, WARM = 12_000, 1_000
SKEWS = (0.9, 1.05, 1.2)
ROWS = 2_000_000
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


def _measure(player: Player, lanes: int, skew: float) -> dict[str, float]:
    """Rows drawn from a Zipf distribution (0: each bank as likely) whose banks are random, waves always on offer.
    issued: accesses a cycle; busiest: share of the cycles in which the bank that is asked most gets one."""
    random = np.random.default_rng(1)
    count = WARM + CYCLES
    if skew:
        sums = np.cumsum(1 / np.arange(1, ROWS + 1) ** skew)
        drawn = np.searchsorted(sums, random.random((count, lanes)) * sums[-1])
        names = random.integers(lanes, size=ROWS)[np.minimum(drawn, ROWS - 1)]
    else:
        names = random.integers(lanes, size=(count, lanes))
    # A wave of one lane is 0 but for its lane, so waves are put together by shifts.
    each = player.packed("i", ({"lanes": [{"valid": 1, "bank": bank}] + [0] * (lanes - 1), "tag": 0}
                               for bank in range(lanes)))
    place = player.packed("i", [{"lanes": [0, {"valid": 1}] + [0] * (lanes - 2), "tag": 0}])[0].bit_length() - 1
    waves = [sum(each[bank] << lane * place for lane, bank in enumerate(wave)) for wave in names.tolist()]
    done = player.play([Phase({"i": waves})], cycles=lanes * count, samples=["o"])
    port = player.metadata["ports"]["o"]
    bits = np.unpackbits(done.samples["o"][WARM:count], axis=1, bitorder="little")
    first = next(item["offset"] for item in port["element"]["fields"] if item["name"] == "valid")
    valid = bits[:, first:lanes * port["element"]["width"]:port["element"]["width"]]
    taken = np.count_nonzero(done.taken["i"] <= count)
    hot = int(np.bincount(names[:taken].ravel()).argmax())
    return {"issued": float(valid.sum() / CYCLES), "busiest": float(valid[:, hot].mean())}
