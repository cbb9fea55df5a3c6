"""Places a component either in line or as an instance of a module shared by all its equals.

Amaranth writes every submodule out again for every place it is used in. An array of 32 equal cells is then
32 modules, which costs minutes in Verilator and Yosys. A parent that says `place(m, platform, name, part)`
instead of `m.submodules[name] = part` lets the Verilog generator write each distinct part once.
"""

import inspect
from typing import Any, Self

from amaranth.hdl import Elaboratable, Module, ResetInserter
from amaranth.lib import wiring

# What a part is by default goes without saying in its module's name.
UNSAID = (("family", "any"), ("narrow", False))


class Part(wiring.Component):
    """A component whose instances of equal arguments share one Verilog module.

    Everything that changes the component's logic must be an argument of its constructor.

    Golden      none, it has no logic          Tests  tests/gen/rtl/test_verilog.py
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        part = super().__new__(cls, src_loc_at=1)
        part._made_with = {}
        if cls.__init__ is not wiring.Component.__init__:
            given = inspect.signature(cls.__init__).bind(part, *args, **kwargs)
            given.apply_defaults()
            part._made_with = dict(item for item in list(given.arguments.items())[1:] if item not in UNSAID)
        return part

    def key(self) -> str:
        """The class and the arguments: equal keys mean equal modules."""
        values = {name: value.key() if hasattr(value, "key") else repr(value)
                  for name, value in self._made_with.items()}
        given = values["config"] if list(values) == ["config"] else ",".join(f"{n}={v}" for n, v in values.items())
        return f"{type(self).__name__}({given})"


def place(m: Module, platform: Any, name: str, component: Any, *, reset: Any = None, alone: bool = False) -> None:
    """Adds `component` to `m` under `name`; the caller wires its members as with any submodule.

    Parameters  m: the parent; platform: what the parent's `elaborate` was given; name: the submodule's name;
                component: a `Part`, or another `wiring.Component` with a method `key()` that names its class and
                every parameter, so that equal keys mean equal modules; reset: a signal that resets the component
                besides the parent's own reset; alone: instead of it, from a register that the parent's reset sets, so
                that no LUT drives all the component's registers
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
        part: Elaboratable = platform.instance(component, reset, alone=alone)
    else:
        part = component if reset is None else ResetInserter(reset)(component)
    m.submodules[name] = part
