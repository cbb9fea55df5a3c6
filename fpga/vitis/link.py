"""The link configuration: which instances of a kernel there are and which memory each of their masters reaches.

All masters of an instance are at one channel of the card's memory, since a core reaches a buffer by either of them;
instances take the channels in turn. A master whose buffers no other one reaches may be at the host's memory instead.
Source: UG1393 ([connectivity] nk, sp and slr, HOST[0], [vivado] prop, [debug] chipscope and protocol, [profile] data
and exec)
"""

from collections.abc import Sequence

from fpga.vitis.description import RtlKernel
from gen.model.platform import DEFAULT, Platform
from gen.rtl.headers import KERNELS

HOST = "HOST[0]"        # sptag of the host's memory, where a platform has it

# Placement and routing try harder: a kernel fills half of the region and crosses it.
_PROPERTIES = (
    "run.impl_1.STEPS.OPT_DESIGN.ARGS.DIRECTIVE=Explore",
    "run.impl_1.STEPS.PHYS_OPT_DESIGN.IS_ENABLED=true",
    "run.impl_1.STEPS.PHYS_OPT_DESIGN.ARGS.DIRECTIVE=AggressiveExplore",
    "run.impl_1.STEPS.ROUTE_DESIGN.ARGS.DIRECTIVE=AggressiveExplore",
)


def instance_names(kernel: RtlKernel, instances: int = 1) -> tuple[str, ...]:
    """What v++ calls the instances of a kernel."""
    return tuple(f"{kernel.name}_{number}" for number in range(1, instances + 1))


def check_instances(kernel: str, masters: int, instances: int, platform: "str | Platform" = DEFAULT) -> None:
    """Raises ValueError: more masters than the shell has ports for"""
    ports = Platform.load(platform).masters_max
    most = ports // masters
    if type(instances) is not int or not 1 <= instances <= most:
        raise ValueError(f"instances must be 1 to {most} for {kernel}, which has {masters} masters of at most "
                         f"{ports}, not {instances!r}")


def check_host(core: str, host: Sequence[str], platform: "str | Platform" = DEFAULT) -> None:
    """Raises ValueError: masters that cannot be linked to the host's memory, or a platform that has none"""
    board, able = Platform.load(platform), [f"{port}_axi" for port in KERNELS[core].apart]
    for name in host:
        if name not in able:
            raise ValueError(f"host must be masters of {core} whose buffers no other one reaches, "
                             f"{', '.join(able) or 'of which it has none'}, not {name!r}")
    if host and HOST not in board.other_tags:
        raise ValueError(f"platform {board.name} ({board.about}) does not let kernels reach the host's memory "
                         f"({HOST}): without --host {host[0]} its buffers lie in the card's own")


def link_cfg(kernel: RtlKernel, instances: int = 1, *, platform: "str | Platform" = DEFAULT,
             host: Sequence[str] = (), monitors: bool = False) -> str:
    """The configuration for `v++ --link --config`. On a card of several super logic regions they share the instances
    evenly, in their order. host: masters of every instance that are linked to the host's memory; monitors: at every AXI
    port of every instance a logic analyzer and a protocol checker, at every master counters of its traffic for XRT's
    profile.

    Raises ValueError: as check_instances and check_host"""
    board = Platform.load(platform)
    check_instances(kernel.name, len(kernel.masters), instances, board)
    check_host(kernel.core, host, board)
    names = instance_names(kernel, instances)
    lines = [f"# Links {kernel.name} ({kernel.vlnv}, preset {kernel.preset}). Generated: do not edit.",
             "[connectivity]", f"nk={kernel.name}:{instances}:{'.'.join(names)}"]
    lines += [f"sp={name}.{bus.name}:{HOST if bus.name in host else board.tag(number)}"
              for number, name in enumerate(names) for bus in kernel.masters]
    if board.slrs > 1:
        lines += [f"slr={name}:SLR{number * board.slrs // instances}" for number, name in enumerate(names)]
    lines += ["", "[vivado]", *(f"prop={text}" for text in _PROPERTIES)]
    if monitors:
        ports = [f"{name}:{bus.name}" for name in names for bus in kernel.buses]
        lines += ["", "[debug]", *(f"{core}={port}" for core in ("chipscope", "protocol") for port in ports)]
        masters = [f"{name}:{bus.name}" for name in names for bus in kernel.masters]
        lines += ["", "[profile]", *(f"data={kernel.name}:{port}:counters" for port in masters),
                  *(f"exec={kernel.name}:{name}" for name in names)]
    return "\n".join(lines) + "\n"
