"""Places a component either in line or as an instance of a module shared by all its equals.

Amaranth writes every submodule out again for every place it is used in. An array of 32 equal cells is then
32 modules, which costs minutes in Verilator and Yosys. A parent that says `place(m, platform, name, part)`
instead of `m.submodules[name] = part` lets the Verilog generator write each distinct part once.
"""

from typing import Any

from amaranth.hdl import Elaboratable, Module, ResetInserter

__all__ = ["place"]


def place(m: Module, platform: Any, name: str, component: Any, *, reset: Any = None) -> None:
    """Adds `component` to `m` under `name`; the caller wires its members as with any submodule.

    Parameters  m: the parent; platform: what the parent's `elaborate` was given; name: the submodule's name;
                component: a `wiring.Component` with a method `key()`, a string that names its class and every
                parameter, so that equal keys mean equal modules; reset: a signal that resets the component
                besides the parent's own reset
    Reset       a placed module has its own `clk` and `rst`, taken from the parent's `sync`. `ResetInserter`
                and `EnableInserter` around the parent do not reach into it: that is what `reset` is for
    Raises      TypeError: the component has no `key()`
    """
    if not callable(getattr(component, "key", None)):
        raise TypeError(
            f"place() needs a component with a method key() that names its class and parameters; "
            f"{type(component).__name__} has none"
        )
    if hasattr(platform, "instance"):
        part: Elaboratable = platform.instance(component, reset)
    else:
        part = component if reset is None else ResetInserter(reset)(component)
    m.submodules[name] = part
