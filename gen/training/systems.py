"""Seven training systems as stages of a step, and the constants of the machines that they run on.

Constants of constants.toml are either from data sheets or fitted on one half of the step times that Hotline, EL-Rec and
SCARS publish (`bench/train_time.py`, which predicts the other half).

    hybrid      CPU-GPU DLRM: rows in host memory, gathered and updated by the CPU, copied table by table
    server      a parameter server (XDL): the same, and the networks on the CPU too
    sharded     rows divided among GPUs (HugeCTR, TorchRec, DLRM on several GPUs): all-to-all of pooled vectors
    hotline     popular mini-batches with frequently accessed rows, which the first GPU copies to the others each step;
                the others gathered while those are trained
    scars       the same popular mini-batches; hybrid for the others
    elrec       large tables as tensor trains on each GPU, the rest in host memory behind prefetch and gradient queues
    cache       a cache of rows on the GPU; rows that miss are copied before the step, evicted ones after it
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gen.data.profile import Profile
from gen.training.step import Stage, Step, simulate
from gen.training.workload import DENSE, Workload, workload

CONSTANTS = Path(__file__).with_name("constants.toml")
IN_FLIGHT = 4           # mini-batches of Hotline and of EL-Rec's queue      Source: Hotline §5.2, EL-Rec §V
CYCLE = 20              # mini-batches of which a whole number is gathered
CPU, PCIE, GPU, LINK = "CPU", "PCIe", "GPU", "GPU link"
TRAINING = (GPU, LINK)  # a mini-batch trains with the parameters that the one before it has left


@dataclass(frozen=True)
class Machine:
    """Constants, in seconds, bytes and FLOP per second.

    systems: those whose constants are known. memory_bytes: of a GPU. flops_s, link_bytes_s: of its networks, and to
    other GPUs. row_s: the CPU's for a lookup, gathered and updated; host_s: the CPU's for the operators of a table.
    copy_s, copy_bytes_s: of a copy between host and GPU. launch_s: of the kernels of a table or a layer, all of a
    step. rows_bytes_s: of rows looked up and updated on the GPU. server_flops_s: of networks on the CPU.
    gather_ratio: transfers of Hotline's gathered mini-batch over DLRM's of the same.
    tt_s: a tensor train of D 128 for 4,096 samples. shard_s: of a step with sharded tables. sync_s: of the GPUs'
    synchronisation in a step, times (gpus - 1) / gpus. cache_row_s: a lookup in a cache of rows."""

    name: str
    systems: tuple[str, ...]
    memory_bytes: float
    flops_s: float
    link_bytes_s: float
    row_s: float
    host_s: float
    copy_s: float
    copy_bytes_s: float
    launch_s: float
    rows_bytes_s: float
    server_flops_s: float
    gather_ratio: float
    tt_s: float
    shard_s: float
    sync_s: float
    cache_row_s: float

    def __post_init__(self) -> None:
        for each in fields(self)[2:]:
            if not getattr(self, each.name) > 0:
                raise ValueError(f"{self.name}: {each.name} {getattr(self, each.name)} must be above 0")

    def replace(self, **values: float) -> "Machine":
        return replace(self, **values)      # type: ignore[arg-type]


def _constants() -> dict[str, Machine]:
    return {name: Machine(name, tuple(values.pop("systems")), **values)
            for name, values in tomllib.loads(CONSTANTS.read_text("utf-8")).items()}


GPUS = tuple(_constants())


def machine(name: str) -> Machine:
    """Raises      ValueError: a GPU without constants"""
    if name not in GPUS:
        raise ValueError(f"there are no constants of the GPU {name!r}; --gpu is one of {', '.join(GPUS)}")
    return _constants()[name]


def transfer_s(of: Workload, on: Machine) -> float:
    """Seconds of PCIe per step where pooled vectors go to the GPUs, and their gradients back, table by table. The
    GPUs' copies follow each other.                                                         Source: Hotline table 7.6"""
    return 2 * (of.tables * of.gpus * on.copy_s + of.vector_bytes / on.copy_bytes_s)


def _networks(of: Workload, on: Machine) -> list[Stage]:
    """Forward 2 FLOP a parameter and sample, backward twice as many, and the kernels' launches."""
    forward, launch = 2 * of.batch / of.gpus * of.dense / on.flops_s, _launch(of, on)
    return [Stage("forward", GPU, launch + forward), Stage("backward", GPU, launch + 2 * forward)]


def _launch(of: Workload, on: Machine) -> float:
    """Of the forward pass, of the backward pass, or of the optimizer."""
    return (of.tables + of.layers) * on.launch_s / 3


def _optimizer(of: Workload, on: Machine, rows: float = 0.0) -> list[Stage]:
    """All-reduce of the networks' gradients by a ring; those of so many rows go to the first GPU; the optimizer."""
    part = (of.gpus - 1) / of.gpus
    return [Stage("all-reduce", LINK, part * (on.sync_s + (8 * of.dense + rows * of.row_bytes) / on.link_bytes_s)),
            Stage("optimizer", GPU, _launch(of, on))]


def _dense_rows(of: Workload, on: Machine) -> Stage:
    return Stage("rows on the GPU", GPU, of.batch / of.gpus * of.lookups * of.row_bytes / on.rows_bytes_s)


def _host(of: Workload, on: Machine, operators: float, share: float = 1.0) -> float:
    """Seconds of the CPU's gather, or of its update, of a share of the lookups."""
    return (operators * on.host_s + share * of.batch * of.lookups * on.row_s) / 2


def _hybrid(of: Workload, on: Machine) -> Step:
    return simulate([_hybrid_stages(of, on)])


def _hybrid_stages(of: Workload, on: Machine) -> list[Stage]:
    host, moved, networks = _host(of, on, of.tables), transfer_s(of, on) / 2, replace(of, tables=0)
    return [Stage("CPU gather", CPU, host), Stage("copy to GPU", PCIE, moved), *_networks(networks, on),
            *_optimizer(networks, on), Stage("copy to host", PCIE, moved), Stage("CPU update", CPU, host)]


def _server(of: Workload, on: Machine) -> Step:
    host = _host(of, on, of.tables)
    return simulate([[Stage("CPU gather", CPU, host), Stage("CPU update", CPU, host),
                      Stage("networks", CPU, 6 * of.batch * of.dense / on.server_flops_s)]])


def _sharded(of: Workload, on: Machine) -> Step:
    part = of.vector_bytes / of.gpus * (of.gpus - 1) / of.gpus / on.link_bytes_s
    forward, backward = _networks(of, on)
    return simulate([[_dense_rows(of, on), Stage("sharding", GPU, on.shard_s), Stage("all-to-all", LINK, 2 * part),
                      forward, backward, *_optimizer(of, on)]])


def _training(of: Workload, on: Machine) -> list[Stage]:
    """With frequently accessed rows on each GPU. The first one applies the gradients of all."""
    return [_dense_rows(replace(of, gpus=1), on), *_networks(of, on),
            *_optimizer(of, on, max(of.unique - of.cold, 0.0))]


def _popular(of: Workload, on: Machine) -> list[Stage]:
    """The first GPU has copied all its frequently accessed rows to each other one.        Source: SCARS §IV, table 2"""
    return [Stage("cached rows to GPUs", LINK, (of.gpus - 1) * of.cached_rows * of.row_bytes / on.link_bytes_s),
            *_training(of, on)]


def _hotline(of: Workload, on: Machine) -> Step:
    moved = transfer_s(of, on) * on.gather_ratio / 2
    gather = [Stage("gather", PCIE, moved), *_training(of, on), Stage("write back", PCIE, moved)]
    return simulate(_mixed(gather, _popular(of, on), 1 - of.popular), IN_FLIGHT, TRAINING)


def _mixed(one: list[Stage], other: list[Stage], share: float) -> list[list[Stage]]:
    """Mini-batches of which a share is `one`, evenly spread."""
    return [one if int((number + 1) * share + 1e-9) > int(number * share + 1e-9) else other for number in range(CYCLE)]


def _scars(of: Workload, on: Machine) -> Step:
    return simulate(_mixed(_hybrid_stages(of, on), _popular(of, on), 1 - of.popular))


def elrec(of: Workload, on: Machine, in_flight: int = IN_FLIGHT, resident: bool = False) -> Step:
    """A step of EL-Rec, in seconds. in_flight: mini-batches in its queues. resident: all small tables on the GPU too,
    which needs no queues.                                                                   Source: EL-Rec §V, §VI.B"""
    left = 0.0 if resident else of.tables - of.tt_tables
    networks = replace(of, tables=of.tables - left)
    train = [Stage("tensor trains", GPU, of.tt_tables * of.batch / of.gpus / 4096 * (of.dim / 128) ** (2 / 3)
                   * on.tt_s), *_networks(networks, on), *_optimizer(networks, on)]
    if not left:
        return simulate([[_dense_rows(of, on), *train]])
    # One operator and one copy for all tables.
    share = left / of.tables
    host, moved = _host(of, on, 1, share), of.gpus * on.copy_s + share * of.vector_bytes / on.copy_bytes_s
    return simulate([[Stage("CPU gather", CPU, host), Stage("prefetch", PCIE, moved), *train,
                      Stage("gradients", PCIE, moved), Stage("CPU update", CPU, host)]], in_flight, TRAINING)


def _cache(of: Workload, on: Machine) -> Step:
    moved = 2 * (of.gpus * on.copy_s + of.cold * of.row_bytes / on.copy_bytes_s)
    return simulate([[Stage("cache", GPU, of.batch / of.gpus * of.lookups * on.cache_row_s),
                      Stage("rows in and out", PCIE, moved), _dense_rows(of, on), *_networks(of, on),
                      *_optimizer(of, on)]])


SYSTEMS: dict[str, Callable[[Workload, Machine], Step]] = {
    "hybrid": _hybrid, "server": _server, "sharded": _sharded, "hotline": _hotline, "scars": _scars,
    "elrec": elrec, "cache": _cache}


@dataclass(frozen=True)
class Predicted:
    """A system on a log. pcie_bytes, link_bytes: that all GPUs exchange with the host, and with each other, per step.
    step: None where it does not fit, for the reason `lacks`."""

    system: str
    step: Step | None
    pcie_bytes: float
    link_bytes: float
    lacks: str = ""


def predict(system: str, of: Workload, on: Machine) -> Predicted:
    """Raises      ValueError: an unknown system"""
    if system not in SYSTEMS:
        raise ValueError(f"there is no system {system!r}; there are {', '.join(SYSTEMS)}")
    vectors, others = 2 * of.vector_bytes, of.gpus - 1
    left = (of.tables - of.tt_tables) / of.tables if of.tables else 0.0
    pcie = {"hybrid": vectors, "hotline": (1 - of.popular) * vectors, "scars": (1 - of.popular) * vectors,
            "elrec": left * vectors, "cache": 2 * of.cold * of.row_bytes}.get(system, 0.0)
    gradients = others / of.gpus * max(of.unique - of.cold, 0.0) * of.row_bytes
    copies = of.popular * others * of.cached_rows * of.row_bytes
    link = 8 * others * of.dense * (system != "server") + {
        "sharded": vectors * others / of.gpus, "hotline": copies + gradients,
        "scars": copies + of.popular * gradients}.get(system, 0.0)
    needs = {"sharded": of.table_bytes / of.gpus, **dict.fromkeys(("hotline", "scars", "cache"), of.cached_rows *
             of.row_bytes)}.get(system, 0.0)
    if system not in on.systems:
        return Predicted(system, None, pcie, link, f"no published step times on {on.name} to fit its constants to")
    if needs > on.memory_bytes:
        return Predicted(system, None, pcie, link, f"{needs / 1e9:.1f} GB of rows per GPU exceed its "
                         f"{on.memory_bytes / 1e9:.0f} GB")
    return Predicted(system, SYSTEMS[system](of, on), pcie, link)


def train_time(profile: Profile, *, gpus: int = 1, gpu: str = "v100", batch: int = 4096, dim: int = 64,
               hot_mb: int = 512, dense: int = DENSE, popular: float | None = None) -> tuple[Workload, list[Predicted]]:
    """Estimates a training step on a log in each system. docs/train-time.md has the error on published step times.

    Parameters  profile: of the log; gpus, gpu: how many, and one of GPUS; batch: samples per step on all GPUs; dim:
                FP32 values per row; hot_mb: MB of frequently accessed rows on each GPU; dense: parameters of the
                networks; popular: share of samples that need only those rows, None: by the profile
    Returns     what a step moves, and the systems in the order of SYSTEMS; seconds and bytes per step
    Raises      ValueError: a GPU without constants, a number out of range
    """
    on = machine(gpu)
    if hot_mb < 1:
        raise ValueError(f"hot_mb {hot_mb} must be 1 or more")
    of = workload(profile, batch=batch, gpus=gpus, dim=dim, cached_rows=hot_mb * 1_000_000 // (4 * dim), dense=dense,
                  popular=popular)
    return of, [predict(system, of, on) for system in SYSTEMS]
