"""Drives the units of EMB that take a beat in every cycle and never wait: the packer and the row decoder."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cocotb.triggers import RisingEdge

from hw.isa.emb import FORMAT
from verif.bench import has_begun, reset, rng, start


async def through(dut: Any, vectors: Sequence[tuple[int, Sequence[Mapping[str, int]]]], latency: int,
                  pauses: Callable[[], int] = lambda: 0, stop_after: int | None = None,
                  ) -> tuple[list[tuple[int, int]], list[int]]:
    """Sends vectors one behind the other, behind a reset. Where one of FP32 follows one of another format the unit is
    left to run dry, as its contract asks. Between beats its inputs change at random.

    Parameters  vectors: format, and of each beat the values of the unit's ports by name; latency: of the unit, in
                cycles; pauses: cycles before the next beat; stop_after: ends at once behind so many beats
    Returns     (cycle, value of the port `o`) of each beat that came out; the cycle of each that went in
    """
    edge, idle = RisingEdge(dut.clk), rng("idle")
    ports = {name: len(getattr(dut, name)) for name in vectors[0][1][0]}
    out: list[tuple[int, int]] = []
    taken: list[int] = []
    clock = 0

    async def cycle(beat: Mapping[str, int] | None = None) -> None:
        nonlocal clock
        dut.i_valid.value = beat is not None
        for name, bits in ports.items():
            getattr(dut, name).value = idle.getrandbits(bits) if beat is None else beat[name]
        await edge
        clock += 1
        if has_begun() and dut.o_valid.value == 1:
            out.append((clock, int(dut.o.value)))

    start(dut)
    for name in ("i_valid", *ports):
        getattr(dut, name).value = 0
    await reset(dut)
    before = int(FORMAT.FLOAT32)
    for form, beats in vectors:
        if form == FORMAT.FLOAT32 != before:
            for _ in range(latency):
                await cycle()
        before = form
        for beat in beats:
            for _ in range(pauses()):
                await cycle()
            taken.append(clock + 1)
            await cycle(beat)
            if len(taken) == stop_after:
                return out, taken
    for _ in range(latency + 2):
        await cycle()
    return out, taken
