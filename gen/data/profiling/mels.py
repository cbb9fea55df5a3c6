"""Profiles of Meta's embedding lookup synthetic sets, from the statistics published with them.

Published, and met: how many indices and how many different rows a set has, which share of the rows and of the
accesses falls on rows of 1, 2, 3 to 4, 5 to 8, ... accesses over all tables (locality_stats_*.txt of
facebookresearch/dlrm_datasets), and the tables' average rows and largest average pooling factor (SCRec table III,
Fig. 6). Drawn from a seed: which table has how much of it. Pooling factors are lognormal with the published mean and
largest value; a table's accesses lean to hot or to cold rows by a normal factor, fitted to both sums; rows that
were never accessed are lognormal. A sample's bag is the average pooling factor, rounded down or up.

Source: SCRec §III.B, Fig. 6, table III; github.com/facebookresearch/dlrm_datasets.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gen.data.logs.bounds import COLUMNS
from gen.data.profile import Heat, Profile, TableProfile


@dataclass(frozen=True)
class Published:
    """Of one set, SCRec table III and Fig. 6. average_rows: of a table; largest: average pooling factor."""

    average_rows: int
    largest: float


PUBLISHED = {2021: Published(2_720_716, 118.0), 2022: Published(4_841_017, 175.0)}
LEAN = 0.5          # deviation of how much a table leans to hot rows, in powers of e a bin
COLD = 1.0          # deviation of ln(rows never accessed a row accessed)
SWEEPS = 500        # of the proportional fit; it has settled long before


@dataclass(frozen=True, eq=False)
class Locality:
    """One section of a file of statistics. Rows of lower[k] + 1 to lower[k + 1] accesses, the last without an upper
    end: rows[k] of all that are accessed, accesses[k] of all accesses."""

    tables: int
    samples: int
    indices: int
    touched: int
    lower: NDArray[np.int64]
    rows: NDArray[np.float64]
    accesses: NDArray[np.float64]


def read_locality(path: str | Path) -> list[Locality]:
    """All sections of a locality_stats file.

    Raises      ValueError: a file that is none
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    sections = re.split(r"^(?=fbgemm_t\d+_bs\d+)", text, flags=re.MULTILINE)[1:]
    try:
        found = [_section(section) for section in sections]
    except (AttributeError, ValueError):
        found = []
    if not found:
        raise ValueError(f"{path} has no locality statistics; each section begins with fbgemm_t<tables>_bs<samples>")
    return found


def _section(text: str) -> Locality:
    def number(pattern: str) -> int:
        return int(re.search(pattern, text).group(1))       # type: ignore[union-attr]

    bins = [(int(low), float(share)) for low, share in re.findall(r"^\((\d+)(?:, \d+\]|\+): ([\d.]+)$", text, re.M)]
    half = len(bins) // 2
    if not half or [low for low, _ in bins[:half]] != [low for low, _ in bins[half:]]:
        raise ValueError
    shares = np.array([share for _, share in bins])
    tables, samples, indices, touched = (number(r"fbgemm_t(\d+)_"), number(r"_bs(\d+)"),
                                         number(r"Avg # of indices: (\d+)"), number(r"Avg # of unique cols: (\d+)"))
    if not (1 <= tables <= COLUMNS and 1 <= samples < 1 << 40 and 1 <= touched <= indices < 1 << 40):
        raise ValueError
    return Locality(tables, samples, indices, touched, np.array([low for low, _ in bins[:half]], np.int64),
                    shares[:half], shares[half:])


def mels(path: str | Path, *, seed: int = 1) -> Profile:
    """The profile of the set of 2021 or 2022, of the first section with one batch of the set.

    Parameters  path: locality_stats_2021.txt or locality_stats_2022.txt; seed: of all that is drawn
    Raises      ValueError: a file that is none, or of another year
    """
    year = next((year for year in PUBLISHED if str(year) in Path(path).name), None)
    if year is None:
        raise ValueError(f"{path}: the file's name must have the year, one of "
                         f"{', '.join(map(str, PUBLISHED))}, for the tables' rows are published by year")
    # The set of 2021 has one section of another, longer batch before those of SCRec's.
    local = min(read_locality(path), key=lambda section: section.indices // 10**6)
    random = np.random.default_rng(seed)
    rows, accesses = _totals(local)
    pooling = random.permutation(_pooling(local.tables, local.indices / local.samples, PUBLISHED[year].largest))
    each = _deal(pooling * local.samples, rows, accesses, random)
    # Within a bin all rows of all tables have the mean, rounded down or up.
    low = accesses // rows
    edges = np.concatenate([np.zeros((1, len(rows)), np.int64), np.cumsum(each, axis=0)])
    more = np.diff(edges * (accesses - low * rows) // rows, axis=0)
    touched = each.sum(axis=1)
    total = touched + _shared(touched * np.exp(COLD * random.standard_normal(local.tables)),
                              PUBLISHED[year].average_rows * local.tables - local.touched)
    digits = len(str(local.tables - 1))
    tables = {}
    for number in range(local.tables):
        name = f"t{number:0{digits}d}"
        heat = Heat.joined(np.concatenate([low, low + 1]), np.concatenate([each[number] - more[number], more[number]]))
        short, longer = divmod(heat.total, local.samples)
        tables[name] = TableProfile(name, int(total[number]), local.samples, heat, np.array([short, short + 1]),
                                    np.array([local.samples - longer, longer]))
    return Profile(f"MELS {year}, {local.tables} tables drawn from its statistics", local.samples, tables)


def _totals(local: Locality) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and accesses of each bin over all tables, whole numbers with the published sums."""
    first = local.lower + 1
    last = np.append(local.lower[1:], local.samples)
    # A share of three digits says little of the few hottest rows: there a row has the middle of its bin.
    middle = np.sqrt(first * last)
    accesses = local.accesses / local.accesses.sum() * local.indices
    many = local.rows / local.rows.sum() * local.touched
    mean = np.where(local.rows >= 0.01, accesses / np.maximum(many, 1), middle)
    mean = np.clip(mean, first + 0.02 * (last - first), last - 0.02 * (last - first))
    # Three digits do not add up exactly. Bins of one number of accesses are as their rows say, the others' rows and
    # accesses give way a little.
    one = first == last
    many = _shared(np.where(one, many, accesses / mean), local.touched)
    exact = np.where(one, first * many, 0)
    return many, exact + _shared(np.where(one, 0, many * mean), local.indices - int(exact.sum()))


def _pooling(tables: int, total: float, largest: float) -> NDArray[np.float64]:
    """Quantiles of the lognormal distribution, ascending, with this sum and this largest value."""
    deviate = np.array([NormalDist().inv_cdf((number + 0.5) / tables) for number in range(tables)])
    low, high = 0.0, 10.0
    for _ in range(60):
        sigma = (low + high) / 2
        found = largest * np.exp(sigma * (deviate - deviate[-1]))
        low, high = (sigma, high) if found.sum() > total else (low, sigma)
    return found


def _deal(wanted: NDArray[np.float64], rows: NDArray[np.int64], accesses: NDArray[np.int64],
          random: np.random.Generator) -> NDArray[np.int64]:
    """(tables, bins) rows: each bin's sum exact, each table's accesses as wanted but for whole rows."""
    bins = np.arange(len(rows)) - len(rows) // 2
    lean = np.exp(LEAN * random.standard_normal((len(wanted), 1)) * bins)
    share = wanted[:, None] * accesses * lean
    share[wanted[:, None] < 2 * accesses / rows] = 0        # a table has no row with most of its accesses
    for _ in range(SWEEPS):
        share *= (wanted / share.sum(axis=1))[:, None]
        share *= accesses / share.sum(axis=0)
    return np.stack([_shared(share[:, number], int(count)) for number, count in enumerate(rows)], axis=1)


def _shared(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers in proportion to the weights, with this sum: those with the largest remainders are rounded up."""
    exact = weights / weights.sum() * total
    whole = np.floor(exact).astype(np.int64)
    up = np.argsort(whole - exact, kind="stable")[:total - int(whole.sum())]
    whole[up] += 1
    return whole
