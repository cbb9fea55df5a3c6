"""What the Verilog's control slave does at every address, found by simulating its gates, held against hw.isa."""

import random
from collections.abc import Iterator, Mapping

from fpga.vitis.checks.expected import Expected
from fpga.vitis.checks.gates import Run, gates
from fpga.vitis.checks.source import Module, read

__all__ = ["control_slave", "registers"]

WORDS = 0x1000 // 4         # of the slave's range: all are tried, each in a run of its own
PATIENCE = 16               # cycles that an access may take
AFTER = 3                   # cycles after a write's answer in which its pulses come
CTRL, GIER, IER, ISR = 0x00, 0x04, 0x08, 0x0C


def control_slave(texts: Mapping[str, str]) -> tuple[str, Module] | None:
    """File and module of the control slave: what has an AXI4-Lite slave, all arguments as an output, an interrupt."""
    for name, text in texts.items():
        for module in read(text):
            ways = {port.name: port.direction for port in module.ports}
            if ways.get("arguments") == "out" and ways.get("interrupt") == "out" and ways.get("bus__awaddr") == "in":
                return name, module
    return None


def registers(texts: Mapping[str, str], expected: Expected) -> Iterator[str]:
    """Where the decoder of the Verilog differs from the register map."""
    found = control_slave(texts)
    if found is None:
        yield f"src/{expected.kernel}.v: no module is a control slave (arguments, interrupt, an AXI4-Lite slave)"
        return
    file, module = found
    try:
        slave = gates(texts[file], module.name)
        yield from (f"{file}: {sentence}" for sentence in _map(slave.run(WORDS), expected))
        yield from (f"{file}: {sentence}" for sentence in _handshake(slave.run(1)))
    except (ValueError, RuntimeError, KeyError) as error:
        yield f"{file}: the control slave cannot be simulated: {str(error).splitlines()[-1]}"


def _map(run: Run, expected: Expected) -> Iterator[str]:
    """Writes and reads each word of the slave in a run of its own."""
    dice = random.Random(1)
    offsets = [4 * word for word in range(WORDS)]
    data = [dice.getrandbits(32) | 1 for _ in offsets]
    data[0] = 0x81                                  # start, once and again
    status = dice.getrandbits(32)
    second, strobe = [dice.getrandbits(32) & ~1 for _ in offsets], [dice.randrange(1, 15) for _ in offsets]
    held: dict[int, tuple[str, int]] = {}           # offset of a word -> argument, its lowest bit in `arguments`
    at = 0
    for argument in expected.arguments:
        for part in range(0, argument.bytes, 4):
            held[argument.offset + part] = (argument.name, at)
            at += 32
    _reset(run)
    run.set("status", status)
    pulses = _write(run, offsets, data, [15] * WORDS)
    whole = run.get("arguments")
    if len(run.gates.ports["arguments"][1]) != at:
        yield f"port arguments has {len(run.gates.ports['arguments'][1])} bits, the arguments have {at}"
    for offset, word, now in zip(offsets, data, whole):
        name, low = held.get(offset, ("", 0))
        want = word << low if name else 0
        if now != want:
            yield (f"a write to {offset:#05x} changes {_bits(now)} of the arguments; " +
                   (f"word {low // 32} of them is {name}'s" if name else "no argument lies there"))
    for name, offset in (("start", CTRL), ("abort", expected.abort)):
        hits = [4 * word for word in range(WORDS) if name in pulses and pulses[name] >> word & 1]
        if hits != [offset]:
            yield f"{name} answers writes to {[hex(hit) for hit in hits]}, not to {offset:#05x} alone"
    read_back = _read(run, offsets)
    _write(run, offsets, second, strobe)
    again = _read(run, offsets)
    for offset, word, next_, enabled, got, later in zip(offsets, data, second, strobe, read_back, again):
        merged = sum((next_ if enabled >> byte & 1 else word) & 0xFF << 8 * byte for byte in range(4))
        fixed = {CTRL: (0x81, None), GIER: (word & 1, None), IER: (word & 3, None), ISR: (word & 3, None),
                 expected.status: (status, status)}
        want, then = fixed.get(offset, (word, merged) if offset in held else (0, 0))
        if got != want:
            yield f"a read of {offset:#05x} gives {got:#010x} after {word:#010x} was written, not {want:#010x}"
        elif then is not None and later != then:
            yield f"a write of {next_:#010x} to {offset:#05x} with strobe {enabled:04b} gives {later:#010x}, " \
                  f"not {then:#010x}"


def _handshake(run: Run) -> Iterator[str]:
    """ap_ctrl_hs from start to the interrupt's end, once."""
    _reset(run)

    def told(what: str, offset: int, want: int) -> Iterator[str]:
        got = _read(run, [offset])[0]
        if got != want:
            yield f"{what}: {offset:#05x} reads {got:#x}, not {want:#x}"

    yield from told("after reset", CTRL, 0x4)
    for offset in (GIER, IER):
        _write(run, [offset], [1], [15])
    if "start" not in _write(run, [CTRL], [1], [15]):
        yield "ap_start does not start the kernel"
    yield from told("while it runs", CTRL, 0x1)
    run.set("done", 1)
    run.clock()
    run.set("done", 0)
    run.clock()
    if run.get("interrupt") != [1]:
        yield "interrupt stays low at ap_done though it is enabled"
    yield from told("when it is done", CTRL, 0xE)
    yield from told("once ap_done has been read", CTRL, 0x4)
    yield from told("when it is done", ISR, 0x1)
    _write(run, [ISR], [1], [15])
    run.clock()
    yield from told("once it has been toggled", ISR, 0x0)
    if run.get("interrupt") != [0]:
        yield "interrupt stays high though its cause was toggled"


def _reset(run: Run) -> None:
    run.set("rst", 1)
    run.clock()
    run.clock()
    run.set("rst", 0)


def _write(run: Run, offsets: list[int], data: list[int], strobe: list[int]) -> dict[str, int]:
    """Writes a word in every run. Returns the outputs `start` and `abort` that were seen high: the runs, as bits."""
    run.set("bus__awaddr", offsets)
    run.set("bus__wdata", data)
    run.set("bus__wstrb", strobe)
    run.set("bus__bready", 1)
    waits, answered = {"aw", "w"}, False
    seen: dict[str, int] = {}
    left = PATIENCE
    while left:
        left -= 1
        for channel in ("aw", "w"):
            run.set(f"bus__{channel}valid", int(channel in waits))
        waits -= {channel for channel in waits if run.all(f"bus__{channel}ready")}
        if run.all("bus__bvalid"):
            left = min(left, AFTER)
            answered = True
        run.clock()
        for name in ("start", "abort"):
            if now := run.high(name):
                seen[name] = seen.get(name, 0) | now
    if waits or not answered:
        raise ValueError("a write is not answered")
    return seen


def _read(run: Run, offsets: list[int]) -> list[int]:
    run.set("bus__araddr", offsets)
    run.set("bus__rready", 1)
    taken = False
    for _ in range(PATIENCE):
        run.set("bus__arvalid", int(not taken))
        if run.all("bus__rvalid"):
            data = run.get("bus__rdata")
            run.clock()
            return data
        taken |= run.all("bus__arready")
        run.clock()
    raise ValueError("a read is not answered")


def _bits(value: int) -> str:
    if not value:
        return "nothing"
    words = [word for word in range(value.bit_length() // 32 + 1) if value >> 32 * word & 0xFFFFFFFF]
    return "word " + ", ".join(map(str, words))
