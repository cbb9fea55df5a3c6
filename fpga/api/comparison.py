"""What one card, CPU core, socket and GPU give of the same lookups, by published figures (machines.toml).

Rows are read at random from memory, no cache helps, and pooled vectors go to the host over a card's link; on CPU and
GPU they stay where they are. Networks, the host's work and latency are not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log

from fpga.api.servers import facts, recorded_seconds
from fpga.api.verdict import HOURS, Prices
from fpga.card.costs import measure
from gen.data.profile import Profile
from gen.model.device import Device
from gen.model.recommender import Recommender

VALUE_BYTES = 4
PRESET = "smartssd"


@dataclass(frozen=True)
class Lookups:
    """Of a sample. rows: of row_bytes bytes on average; vectors: pooled, of vector_bytes bytes."""

    rows: float
    row_bytes: float
    vectors: float
    vector_bytes: float

    @classmethod
    def of(cls, model: Recommender, profile: Profile) -> "Lookups":
        """Of a model's tables as float32, one bag of each in a sample."""
        pooling = {name: profile.tables[name].pooling for name in model.tables}
        read = {name: VALUE_BYTES * spec.dim for name, spec in model.tables.items()}
        rows = sum(pooling.values())
        found = sum(pooling[name] * read[name] for name in read) / rows if rows else 0.0
        return cls(rows, found, len(read), sum(read.values()) / max(len(read), 1))


@dataclass(frozen=True)
class Compared:
    """One machine. rows_s: rows per second from its memory; samples_s: of lookups, with the results back; limit: "rows"
    or "results"; watts: least and most; usd: over the years with its energy, or its rent, None: not known."""

    key: str
    name: str
    rows_s: float
    samples_s: float
    limit: str
    watts: tuple[float, float]
    usd: float | None
    source: str

    @property
    def rows_j(self) -> float:
        """Rows per joule at the most power."""
        return self.rows_s / self.watts[1]

    @property
    def samples_j(self) -> float:
        """Samples per joule at the most power."""
        return self.samples_s / self.watts[1]


def compare(load: Lookups, prices: Prices) -> tuple[Compared, ...]:
    """In the order of machines.toml. Raises ValueError: rows that the EMB core does not take"""
    return tuple(_one(entry, load, prices) for entry in facts()["compared"]) if load.rows else ()


def sentence(found: Sequence[Compared], load: Lookups) -> str:
    """Whether HBM is worth a card: the U55C's memory and the cores that fit beside the socket, and what binds them."""
    by = {each.key: each for each in found}
    memory, cores, socket = by["u55c"], by["u55c_cores"], by["socket"]
    rows, joules = cores.rows_s / socket.rows_s, cores.rows_j / socket.rows_j
    bag = cores.rows_s * load.vector_bytes * Device.load("u55c").link.byte_s
    worth = "worth a card" if rows >= 1 or joules >= 2 else "too little for a card"
    return (f"a U55C's memory reads {memory.rows_s / socket.rows_s:.2f} times the rows of a socket by published "
            f"bandwidths ({memory.rows_j / socket.rows_j:.1f} times per joule), the EMB cores that fit it {rows:.2f} "
            f"times ({joules:.1f}): {worth}; results bind these cores where bags have fewer than {bag:.0f} rows, "
            f"here {load.rows / load.vectors:.3g}")


def _one(entry: dict, load: Lookups, prices: Prices) -> Compared:
    device = Device.load(entry["device"]) if "device" in entry else None
    if "part_of" in entry:
        whole = facts()[entry["part_of"]]
        entry = entry | {key: whole[key] / whole["cores"] * entry["cores"] for key in ("watts", "usd") if key in whole}
    rows_s = min(_bounds(entry, load))
    results_s = inf if device is None else 1 / (device.link.byte_s * load.vector_bytes * load.vectors)
    of_rows = rows_s / load.rows
    watts = (entry["watts"],) * 2 if device is None else (
        device.power.fpga_idle_w + device.power.drive_idle_w, device.power.slot_w)
    return Compared(entry["key"], entry["name"], rows_s, min(of_rows, results_s),
                    "rows" if of_rows <= results_s else "results", watts, _usd(entry, watts[1], prices),
                    entry["source"])


def _bounds(entry: dict, load: Lookups) -> Iterator[float]:
    """Rows per second, each from what limits them."""
    if "gb_s" in entry:
        yield entry["channels"] * 1e9 * _between({int(size): rate for size, rate in entry["gb_s"].items()},
                                                  load.row_bytes) / load.row_bytes
    if "bytes_s" in entry:
        yield entry["bytes_s"] * entry["random_share"] / load.row_bytes
    if "cores" in entry:
        yield entry["cores"] * load.rows / recorded_seconds(load.rows, load.vectors, load.row_bytes / VALUE_BYTES)
    if entry.get("modelled"):
        # Whole beats of the core: the next multiple of 64 bytes.
        dim = -(-int(load.row_bytes) // 64) * 16
        yield entry.get("channels", 1) / measure(entry["device"], PRESET, dims=[dim]).row_s[dim // 16]


def _between(known: dict[int, float], size: float) -> float:
    """GB/s at a size, on a straight line over its logarithm; outside, below in proportion and above as at the end."""
    sizes = sorted(known)
    if size <= sizes[0]:
        return known[sizes[0]] * size / sizes[0]
    for low, high in zip(sizes, sizes[1:]):
        if size <= high:
            part = log(size / low) / log(high / low)
            return known[low] + part * (known[high] - known[low])
    return known[sizes[-1]]


def _usd(entry: dict, watts: float, prices: Prices) -> float | None:
    if "usd_per_hour" in entry:
        return entry["usd_per_hour"] * HOURS * prices.years
    usd = entry.get("usd", facts()["cards"].get(entry.get("device"), {}).get("usd"))
    return None if usd is None else usd + watts / 1000 * HOURS * prices.years * prices.kwh
