"""What a core's package must say, worked out anew from hw.isa and the rules of RTL kernels (UG1393)."""

from dataclasses import dataclass

from gen.rtl.headers import KERNELS

__all__ = ["CONTROL", "CONTROL_BYTES", "Argument", "Expected", "Register", "expected"]

CONTROL = "s_axi_control"
CONTROL_BYTES = 0x1000
FIRST = 0x10        # CTRL, GIER, IP_IER and IP_ISR come before the arguments


@dataclass(frozen=True)
class Argument:
    """An argument: where it must lie and how large it is. `bus`: a pointer's master, the control slave's name else."""

    id: int
    name: str
    pointer: bool
    bus: str
    offset: int
    bytes: int
    about: str


@dataclass(frozen=True)
class Register:
    """A register behind the arguments. `access`: "read" or "write"."""

    name: str
    access: str
    offset: int
    about: str


@dataclass(frozen=True)
class Expected:
    """A core's arguments and registers. `kernel`: its name, the top module's too."""

    core: str
    kernel: str
    about: str
    arguments: tuple[Argument, ...]
    registers: tuple[Register, ...]

    @property
    def abort(self) -> int:
        return next(register.offset for register in self.registers if register.name == "abort")

    @property
    def status(self) -> int:
        return next(register.offset for register in self.registers if register.name == "status")

    @property
    def masters(self) -> tuple[str, ...]:
        return tuple(sorted({argument.bus for argument in self.arguments if argument.pointer}))


def expected(core: str) -> Expected:
    """What the package of a core must say. Offsets: from 0x10, each argument its size and four bytes more."""
    kernel, at = KERNELS[core], FIRST
    arguments, registers = [], []
    for number, item in enumerate(kernel.arguments):
        size = 8 if item.kind == "pointer" else 4
        arguments.append(Argument(number, item.name, item.kind == "pointer",
                                  f"{item.port}_axi" if item.port else CONTROL, at, size, item.about))
        at += size + 4
    for register in kernel.registers:
        registers.append(Register(register.name, register.access, at, register.about))
        at += 8
    return Expected(core, f"hotrail_{core}", kernel.about, tuple(arguments), tuple(registers))
