"""What happens at a unit's ports, cycle by cycle, in Amaranth's simulator: for a look at a unit without a bench."""

import struct
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from amaranth.hdl import Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator

from hw.emb.pooling import PoolingUnit
from hw.stream.skid_buffer import SkidBuffer

#: Of each port, by its path, its value in every cycle.
Waves = dict[str, list[int]]


def record(unit: Component, inputs: Sequence[Mapping[str, int | bool]], watched: Sequence[str]) -> Waves:
    """Values of the ports `watched` at the end of every cycle.

    inputs: of each cycle the ports that get another value, by their path in the unit ("i.payload.words"); before that
    all are zero. Values are unsigned integers, those of structures and arrays their bits.
    Raises AttributeError: the unit has no such port
    """
    waves: Waves = {path: [] for path in watched}

    def port(path: str) -> Any:
        return Value.cast(reduce(getattr, path.split("."), unit))

    async def bench(ctx: Any) -> None:
        for changes in inputs:
            for path, value in changes.items():
                ctx.set(port(path), value)
            for path, values in waves.items():
                values.append(ctx.get(port(path)))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return waves


def skid_buffer() -> Waves:
    """Four beats, A0 to A3, through a SkidBuffer whose reader is away in the cycles 2 and 3."""
    offered = [0xA0, 0xA1, 0xA2, 0xA3, 0xA3, 0xA3, None, None]      # a beat stays on offer until i.ready
    inputs = [{"i.valid": beat is not None, "i.payload": beat or 0, "o.ready": cycle not in (2, 3)}
              for cycle, beat in enumerate(offered)]
    return record(SkidBuffer(8), inputs, ("i.valid", "i.ready", "i.payload", "o.valid", "o.ready", "o.payload"))


def pooling() -> Waves:
    """Two bags by turns through a PoolingUnit of one word: 1 + 2 + 3.5 in context 0, 10 + 20 in context 1."""
    rows = [(0, 1.0), (1, 10.0), (0, 2.0), (1, 20.0), (0, 3.5)]
    unit = PoolingUnit(words=1, contexts_log2=1, tag_bits=4)
    inputs = [{"i_valid": 1, "i.words": bits(value), "i.weight": bits(1.0), "i.context": context, "i.tag": 1 + context,
               "i.first": number < 2, "i.last": number >= 3} for number, (context, value) in enumerate(rows)]
    inputs += [{"i_valid": 0}, *({} for _ in range(unit.latency))]
    return record(unit, inputs, ("i_valid", "i.words", "i.context", "i.first", "i.last", "o_valid", "o.words", "o.tag"))


def bits(value: float) -> int:
    """Of binary32."""
    return int.from_bytes(struct.pack("<f", value), "little")


def number(word: int) -> float:
    """Of binary32 bits."""
    return float(struct.unpack("<f", word.to_bytes(4, "little"))[0])
