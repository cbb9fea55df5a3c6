"""What the interconnect is told of a kernel's AXI interfaces, in component.xml and in package.tcl alike."""

from collections.abc import Mapping
from typing import Any

from fpga.vitis.description import Bus

PAGE_BYTES = 4096           # no burst crosses a border of this
BURST_BEATS_MAX = 256       # AXI4
OUTSTANDING_MAX = 32        # what the interconnect tells apart of one master
# The parameter, and the core's configuration that it comes from.
_DEPTHS = (("NUM_READ_OUTSTANDING", "reads_in_flight"), ("NUM_WRITE_OUTSTANDING", "writes_in_flight"))


def bus_parameters(bus: Bus, config: Any) -> dict[str, int]:
    """How a master uses its bus, so that the interconnect is built as deep as the core's ports; nothing for the
    control slave. `config`: of the kernel."""
    if bus.mode != "master":
        return {}
    known = config if isinstance(config, Mapping) else {}
    depths = {name: min(OUTSTANDING_MAX, known[key]) for name, key in _DEPTHS if key in known}
    return {"MAX_BURST_LENGTH": min(BURST_BEATS_MAX, PAGE_BYTES * 8 // bus.data_bits), "SUPPORTS_NARROW_BURST": 0,
            **depths}
