"""Properties of units, declared once: claims about ports, assumptions about neighbours, events that must be reachable.

    @properties(SkidBuffer)
    def _skid_buffer(p: Properties, unit: SkidBuffer) -> None:
        p.claim("a payload waits unchanged", stable(p, unit.o))

A declaration reads a unit's ports, and keeps what it needs of their history in registers of its own.
`verif.formal.prove` proves the claims for every sequence of inputs; `checks` adds them as assertions to each unit of
that class wherever one is converted to Verilog, so that every simulation of a core checks them too. The Verilog of a
product has none.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amaranth.hdl import Assert, Cat, Module, Mux, ResetSignal, Signal, Value, ValueLike
from amaranth.lib import wiring

from gen.rtl.powerup import BEGUN

DECLARED: dict[type, Callable[["Properties", Any], None]] = {}


class Properties:
    """What is declared of a unit: `m` is the module that the declaration's own registers go to.

    Parameters  m: the module; proof: claims, covers and the free inputs are collected for a proof, else claims become
                assertions from the first reset on
    """

    def __init__(self, m: Module, *, proof: bool):
        self.m, self.proof = m, proof
        self.claims: dict[str, Value] = {}
        self.covers: dict[str, Value] = {}
        self.inputs: list[Signal] = []
        self._assumed: list[Value] = []

    def assume(self, holds: ValueLike) -> None:
        """What neighbours keep to. Once it was broken nothing is claimed until the next reset."""
        self._assumed.append(Value.cast(holds))

    def claim(self, name: str, holds: ValueLike) -> None:
        """Holds in every cycle."""
        if name in self.claims:
            raise ValueError(f"the claim {name!r} is declared twice")
        self.claims[name] = Value.cast(holds)

    def cover(self, name: str, event: ValueLike) -> None:
        """Can happen, or the claims about it say nothing."""
        if name in self.covers:
            raise ValueError(f"the cover {name!r} is declared twice")
        self.covers[name] = Value.cast(event)

    def free(self, name: str, bits: int = 1, *, simulated: ValueLike = -1) -> Signal:
        """An input that the proof chooses in every cycle; a simulation takes `simulated`."""
        signal = Signal(bits, name=f"free_{name}")
        if self.proof:
            self.inputs.append(signal)
        else:
            self.m.d.comb += signal.eq(simulated)
        return signal

    def chosen(self, name: str, bits: int, *, simulated: ValueLike = 0) -> Signal:
        """A value that the proof chooses once, before the first cycle; a simulation takes `simulated` at each reset."""
        free, kept, begun = self.free(name, bits, simulated=simulated), Signal(bits), Signal()
        value = Signal(bits, name=f"chosen_{name}")
        self.m.d.sync += [kept.eq(value), begun.eq(1)]
        self.m.d.comb += value.eq(Mux(begun, kept, free))
        return value

    def _sound(self) -> Signal:
        """No assumption has been broken since the last reset."""
        before = Signal(init=1, name="properties_sound")
        now = Signal()
        self.m.d.comb += now.eq(before & Cat(*self._assumed, 1).all())
        self.m.d.sync += before.eq(now)
        return now

    def outputs(self) -> tuple[Signal, Signal]:
        """For a proof, a bit for each claim and each cover: the claim is broken, the event happens."""
        broken = Signal(max(1, len(self.claims)), name="broken")
        covered = Signal(max(1, len(self.covers)), name="covered")
        sound = self._sound()
        self.m.d.comb += broken.eq(Cat(sound & ~holds.any() for holds in self.claims.values()))
        self.m.d.comb += covered.eq(Cat(sound & event.any() for event in self.covers.values()))
        return broken, covered

    def asserted(self, unit: str) -> None:
        """For a simulation, assertions at every clock edge after the first reset."""
        begun = Signal(reset_less=True, name=BEGUN)
        reset = ResetSignal(allow_reset_less=True)
        self.m.d.sync += begun.eq(begun | reset)
        with self.m.If(begun & ~reset & self._sound()):
            for name, holds in self.claims.items():
                self.m.d.sync += Assert(holds.any(), f"{unit}: it does not hold that {name}\n")


def properties(kind: type) -> Callable[..., Any]:
    """Declares the properties of a class of units."""
    def declared(declaration: Callable[[Properties, Any], None]) -> Callable[[Properties, Any], None]:
        if kind in DECLARED:
            raise ValueError(f"the properties of {kind.__name__} are declared twice")
        DECLARED[kind] = declaration
        return declaration

    return declared


def version() -> str:
    """Stands for all declarations, where Verilog with assertions is kept."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def checks() -> Iterator[None]:
    """Units that are elaborated within have their claims as assertions."""
    own = {kind: vars(kind)["elaborate"] for kind in DECLARED}

    def checked(kind: type) -> Callable[..., Any]:
        def elaborate(unit: Any, platform: Any) -> Any:
            m = own[kind](unit, platform)
            if type(unit) is kind:
                p = Properties(m, proof=False)
                DECLARED[kind](p, unit)
                p.asserted(kind.__name__)
            return m

        return elaborate

    try:
        for kind in DECLARED:
            kind.elaborate = checked(kind)  # type: ignore[attr-defined]
        yield
    finally:
        for kind, elaborate in own.items():
            kind.elaborate = elaborate  # type: ignore[attr-defined]


# -- What many declarations have in common.

def stable(p: Properties, *what: Any, unless: ValueLike = 0) -> Value:
    """A stream, or (valid, ready, values...): what waits stays, and stays valid. unless: what the unit's documentation
    excepts, in the cycle in which it is excepted."""
    valid, ready, *values = (what[0].valid, what[0].ready, what[0].payload) if len(what) == 1 else what
    now = Cat(*(Value.cast(value) for value in values))
    was, kept = Signal(name="was_waiting"), Signal(len(now), name="was_shown")
    p.m.d.sync += was.eq(valid & ~ready)
    p.m.d.sync += kept.eq(now)
    return ~was | unless | (valid & (kept == now))


def past(p: Properties, value: ValueLike) -> Signal:
    """In the cycle before."""
    before = Signal(len(Value.cast(value)), name="before")
    p.m.d.sync += before.eq(value)
    return before


def since(p: Properties, event: ValueLike) -> Signal:
    """Has happened since the reset, before this cycle."""
    happened = Signal(name="happened")
    p.m.d.sync += happened.eq(happened | event)
    return happened


def counter(p: Properties, name: str, more: ValueLike, less: ValueLike, *, most: int) -> Signal:
    """How many came less how many went; the range has room for one beyond `most` and for -1, which is the highest."""
    count = Signal(range(most + 3), name=name)
    p.m.d.sync += count.eq(count + Value.cast(more) - Value.cast(less))
    return count


class Followed:
    """One payload on its way through a unit that keeps order: chosen as it enters, met again as it leaves.

    Members     inside: payloads inside; here: the one that leaves next is the followed one; payload: as it entered
    """

    def __init__(self, p: Properties, name: str, enters: ValueLike, leaves: ValueLike, payload: ValueLike, *,
                 most: int):
        enters, leaves = Value.cast(enters), Value.cast(leaves)
        self.inside = counter(p, f"{name}_inside", enters, leaves, most=most)
        ahead = Signal(range(most + 3), name=f"{name}_ahead")
        seen = Signal(name=f"{name}_seen")
        self.payload = Signal(len(Value.cast(payload)), name=f"{name}_payload")
        self.here = Signal(name=f"{name}_here")
        p.m.d.comb += self.here.eq(seen & (ahead == 0))
        follow = p.free(f"follow_{name}")
        with p.m.If(seen):
            with p.m.If(leaves):
                p.m.d.sync += ahead.eq(ahead - 1)
                p.m.d.sync += seen.eq(ahead != 0)
        with p.m.Elif(enters & follow):
            p.m.d.sync += seen.eq(1)
            p.m.d.sync += self.payload.eq(payload)
            p.m.d.sync += ahead.eq(self.inside - leaves)
        p.claim(f"{name}: the one that is followed is inside", ~seen | (self.inside > ahead))


def streams(p: Properties, unit: Any) -> None:
    """All streams of a unit: those that enter are assumed to keep the rules of streams, those that leave do so."""
    for path, member, _ in unit.signature.flatten(unit):
        if path[-1] != "payload":
            continue
        port = unit
        for step in path[:-1]:
            port = port[step] if isinstance(step, int) else getattr(port, step)
        holds = stable(p, port)
        name = ".".join(map(str, path[:-1]))
        if member.flow == wiring.In:
            p.assume(holds)
        else:
            p.claim(f"{name} waits unchanged", holds)
            p.cover(f"{name} waits", port.valid & ~port.ready)
            p.cover(f"{name} goes", port.valid & port.ready)
