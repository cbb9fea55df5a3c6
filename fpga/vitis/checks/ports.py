"""The ports of the top module, as the Verilog declares them, held against the rules of RTL kernels (UG1393)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fpga.vitis.checks.expected import CONTROL, Expected
from fpga.vitis.checks.source import Port, read

__all__ = ["CLOCK", "INTERRUPT", "RESET", "Interface", "Top", "depths", "rules", "top"]

CLOCK, RESET, INTERRUPT = "ap_clk", "ap_rst_n", "interrupt"
MOST_MASTERS = 15
WIDTHS = (32, 64, 128, 256, 512)
OUTSTANDING_MOST = 32   # what an AXI interconnect tells apart
PAGE_BYTES = 4096       # that no burst crosses
_ADDRESS = {"addr": 64, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4, "region": 4}


@dataclass(frozen=True)
class Interface:
    """An AXI interface of the top. `signals`: (signal in upper case, port), in the order of the declarations."""

    name: str
    mode: str
    data_bits: int
    address_bits: int
    signals: tuple[tuple[str, Port], ...]


@dataclass(frozen=True)
class Top:
    """The top's ports: `single` are clock, reset and interrupt, `interfaces` the control slave and the masters."""

    single: tuple[Port, ...]
    interfaces: tuple[Interface, ...]

    @property
    def ports(self) -> tuple[Port, ...]:
        return (*self.single, *(port for interface in self.interfaces for _, port in interface.signals))


def _file(expected: Expected) -> str:
    return f"src/{expected.kernel}.v"


def top(texts: Mapping[str, str], expected: Expected) -> Top | None:
    """The top as the Verilog has it, None where there is no such module."""
    modules = [module for module in read(texts.get(_file(expected), "")) if module.name == expected.kernel]
    if not modules:
        return None
    ports = modules[0].ports
    interfaces = []
    for name in (CONTROL, *expected.masters):
        signals = tuple((port.name[len(name) + 1:].upper(), port) for port in ports
                        if port.name.startswith(f"{name}_"))
        bits = {signal: port.bits for signal, port in signals}
        interfaces.append(Interface(name, "slave" if name == CONTROL else "master", bits.get("WDATA", 0),
                                    bits.get("AWADDR", 0), signals))
    return Top(tuple(port for port in ports if port.name in (CLOCK, RESET, INTERRUPT)), tuple(interfaces))


def rules(texts: Mapping[str, str], expected: Expected) -> Iterator[str]:
    """What breaks the rules: ports that are missing, wrong, or of no interface."""
    found = top(texts, expected)
    file = _file(expected)
    if found is None:
        yield f"{file}: there is no module {expected.kernel}"
        return
    if len(expected.masters) > MOST_MASTERS:
        yield f"{file}: {len(expected.masters)} masters; the platform has {MOST_MASTERS} ports"
    wanted = {CLOCK: ("in", 1), RESET: ("in", 1), INTERRUPT: ("out", 1), **_lite(CONTROL, expected)}
    for interface in found.interfaces[1:]:
        if interface.data_bits not in WIDTHS:
            yield (f"{file}: {interface.name}_wdata has {interface.data_bits} bits; a master has a power of two "
                   f"from {WIDTHS[0]} to {WIDTHS[-1]}")
        wanted |= _full(interface.name, interface.data_bits)
    ports = {port.name: port for port in read(texts[file])[0].ports}
    for name, (direction, bits) in wanted.items():
        port = ports.get(name)
        if port is None:
            yield f"{file}: port {name} is missing"
        elif (port.direction, port.bits) != (direction, bits):
            yield f"{file}: port {name} has {port.bits} bits, {port.direction}; it must have {bits}, {direction}"
    for name in ports:
        if name not in wanted:
            yield f"{file}: port {name} belongs to no interface"


def depths(interface: Interface, config: Mapping[str, int]) -> dict[str, str]:
    """What the interconnect must be told of a master; `config`: the core's numbers."""
    out = {"MAX_BURST_LENGTH": str(min(256, 8 * PAGE_BYTES // max(1, interface.data_bits))),
           "SUPPORTS_NARROW_BURST": "0"}
    for way in ("READ", "WRITE"):
        if f"{way.lower()}s_in_flight" in config:
            out[f"NUM_{way}_OUTSTANDING"] = str(min(OUTSTANDING_MOST, config[f"{way.lower()}s_in_flight"]))
    return out


def _lite(name: str, expected: Expected) -> dict[str, tuple[str, int]]:
    """The control slave: 12 bits of address are its 4 KB."""
    into = {"awvalid": 1, "awaddr": 12, "wvalid": 1, "wdata": 32, "wstrb": 4, "bready": 1, "arvalid": 1, "araddr": 12,
            "rready": 1}
    out = {"awready": 1, "wready": 1, "bvalid": 1, "bresp": 2, "arready": 1, "rvalid": 1, "rdata": 32, "rresp": 2}
    return {f"{name}_{signal}": (way, bits) for way, signals in (("in", into), ("out", out))
            for signal, bits in signals.items()}


def _full(name: str, data: int) -> dict[str, tuple[str, int]]:
    """A master with all signals of AXI4 but the user's; one bit of ID."""
    out = {f"{channel}{signal}": bits for channel in ("aw", "ar")
           for signal, bits in (("valid", 1), ("id", 1), *_ADDRESS.items())}
    out |= {"wvalid": 1, "wdata": data, "wstrb": data // 8, "wlast": 1, "bready": 1, "rready": 1}
    into = {"awready": 1, "arready": 1, "wready": 1, "bvalid": 1, "bid": 1, "bresp": 2, "rvalid": 1, "rid": 1,
            "rdata": data, "rresp": 2, "rlast": 1}
    return {f"{name}_{signal}": (way, bits) for way, signals in (("in", into), ("out", out))
            for signal, bits in signals.items()}
