"""The link configuration: which instances of a kernel there are and which memory each of their masters reaches.

Source: UG1393 ([connectivity] nk and sp, [vivado] prop); the SmartSSD's one bank has the sptag `bank0`
"""

from dataclasses import dataclass, field

from fpga.vitis.description import RtlKernel
from fpga.vitis.shells import card

__all__ = ["Links", "check_cfg", "instance_names", "link_cfg", "read_cfg"]

# Placement and routing try harder: the kernel's clock is the shell's full one.
_PROPERTIES = (
    "run.impl_1.STEPS.OPT_DESIGN.ARGS.DIRECTIVE=Explore",
    "run.impl_1.STEPS.PHYS_OPT_DESIGN.IS_ENABLED=true",
    "run.impl_1.STEPS.PHYS_OPT_DESIGN.ARGS.DIRECTIVE=AggressiveExplore",
    "run.impl_1.STEPS.ROUTE_DESIGN.ARGS.DIRECTIVE=AggressiveExplore",
)
_SECTIONS = {"connectivity": ("nk", "sp"), "vivado": ("prop",)}


@dataclass(frozen=True)
class Links:
    """What a configuration says. `instances`: (kernel, names); `ports`: (instance, bus, memory); `properties`:
    of Vivado's runs."""

    instances: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ports: tuple[tuple[str, str, str], ...] = ()
    properties: tuple[str, ...] = field(default=())


def instance_names(kernel: RtlKernel, instances: int = 1) -> tuple[str, ...]:
    """What v++ calls the instances of a kernel."""
    return tuple(f"{kernel.name}_{number}" for number in range(1, instances + 1))


def link_cfg(kernel: RtlKernel, instances: int = 1) -> str:
    """The configuration for `v++ --link --config`, every master at the card's memory.

    Raises ValueError: more masters than the shell has ports for"""
    most = card().masters_max // len(kernel.masters)
    if type(instances) is not int or not 1 <= instances <= most:
        raise ValueError(f"instances must be 1 to {most} for {kernel.name}, which has {len(kernel.masters)} masters of "
                         f"at most {card().masters_max}, not {instances!r}")
    names = instance_names(kernel, instances)
    lines = [f"# Links {kernel.name} ({kernel.vlnv}, preset {kernel.preset}). Generated: do not edit.",
             "[connectivity]", f"nk={kernel.name}:{instances}:{'.'.join(names)}"]
    lines += [f"sp={name}.{bus.name}:{card().memories[0]}" for name in names for bus in kernel.masters]
    lines += ["", "[vivado]", *(f"prop={text}" for text in _PROPERTIES)]
    return "\n".join(lines) + "\n"


def read_cfg(text: str) -> Links:
    """Reads a configuration. Raises ValueError: a line that is none of `nk`, `sp` and `prop` in its section"""
    section = ""
    instances, ports, properties = [], [], []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            section = line.strip("[]")
            if section not in _SECTIONS or line != f"[{section}]":
                raise ValueError(f"link.cfg, line {number}: {line}: unknown section; there are "
                                 + ", ".join(f"[{name}]" for name in _SECTIONS))
            continue
        key, _, value = (part.strip() for part in line.partition("="))
        if key not in _SECTIONS.get(section, ()):
            raise ValueError(f"link.cfg, line {number}: {line}: {key!r} is no key of [{section}]")
        if key == "prop":
            properties.append(value)
        elif key == "nk":
            kernel, _, rest = value.partition(":")
            count, _, listed = rest.partition(":")
            names = tuple(listed.split(".")) if listed else tuple(f"{kernel}_{i + 1}" for i in range(int(count or 0)))
            if not count.isdigit() or int(count) != len(names):
                raise ValueError(f"link.cfg, line {number}: {line}: {count} instances, but {len(names)} names")
            instances.append((kernel, names))
        else:
            port, _, memory = value.partition(":")
            instance, _, bus = port.partition(".")
            if not memory or not bus:
                raise ValueError(f"link.cfg, line {number}: {line}: must be sp=<instance>.<bus>:<memory>")
            ports.append((instance, bus, memory))
    return Links(tuple(instances), tuple(ports), tuple(properties))


def check_cfg(text: str, kernel: RtlKernel) -> list[str]:
    """What in a configuration contradicts the kernel or the card; empty when nothing does."""
    try:
        links = read_cfg(text)
    except ValueError as error:
        return [str(error)]
    out = [f"the kernel {name} is not {kernel.name}" for name, _ in links.instances if name != kernel.name]
    names = [name for _, listed in links.instances for name in listed]
    if not names:
        out.append(f"no instance of {kernel.name}: there is no nk")
    out += [f"the instance {name} is named twice" for name in sorted(set(names)) if names.count(name) > 1]
    buses = {bus.name for bus in kernel.masters}
    for instance, bus, memory in links.ports:
        where = f"sp={instance}.{bus}:{memory}"
        if instance not in names:
            out.append(f"{where}: there is no instance {instance}")
        if bus not in buses:
            out.append(f"{where}: {kernel.name} has no master {bus}")
        if memory not in card().memories:
            out.append(f"{where}: the card has no memory {memory}; it has {', '.join(card().memories)}")
    placed = [(instance, bus) for instance, bus, _ in links.ports]
    out += [f"{name}.{bus} has no memory: its sp is missing" for name in names for bus in sorted(buses)
            if (name, bus) not in placed]
    out += [f"{name}.{bus} has {placed.count((name, bus))} memories" for name, bus in sorted(set(placed))
            if placed.count((name, bus)) > 1]
    # A core may reach the same buffer by either of its masters.
    for name in names:
        used = sorted({memory for instance, _, memory in links.ports if instance == name})
        if len(used) > 1:
            out.append(f"the masters of {name} are in {' and '.join(used)}; its buffers must be in one memory")
    if len(names) * len(buses) > card().masters_max:
        out.append(f"{len(names)} instances have {len(names) * len(buses)} masters; the shell has ports for "
                   f"{card().masters_max}")
    return [text if text.startswith("link.cfg") else f"link.cfg: {text}" for text in out]
