"""Asks a read port for a long run of beats, or for rows at a distance, in requests as long as a request may be."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

REQUEST_LOG2 = 15   # beats of a request, at most: what a request can say, and a power of two


def request_beats(m: Module, o, *, start: ValueLike, address: ValueLike, span: Value, beat_bytes: int,
                  rows: tuple[Value, Value] | None = None, hold: ValueLike = 0, name: str = "requests") -> Signal:
    """Asks for `span` beats from `address` on when `start` is high: a stream of hw.axi.bus.request_layout in registers.

    Parameters  m: the module that it is added to; o: the stream; start: a pulse, nothing is being asked for then, or
                what is left of it is given up; span: beats, may be 0: then nothing is asked for; beat_bytes: of the
                port; rows: (less_one, stride), for less_one more requests of less than 2**REQUEST_LOG2 beats each, the
                next one `stride` beats behind the one before, or (0, any) for one run; hold: nothing more is asked for;
                name: of the registers
    Returns     asking: not all is in the stream's register yet
    Timing      the first request two cycles after `start`, then one per cycle
    Golden      verif.bench.parts.Requester
    """
    rest = Signal(REQUEST_LOG2, name=f"{name}_rest", reset_less=True)
    pieces = Signal(max(1, len(span) - REQUEST_LOG2), name=f"{name}_pieces", reset_less=True)
    following, asking = Signal(64, name=f"{name}_address", reset_less=True), Signal(name=f"{name}_asking")
    whole, more, distance = pieces != 0, Const(0, 1), Const(1 << REQUEST_LOG2)
    go = asking & (~o.valid | o.ready) & ~Value.cast(hold)
    if rows is not None:
        left, stride = (Signal(len(value), name=f"{name}_{what}", reset_less=True)
                        for what, value in zip(("left", "stride"), rows, strict=True))
        with m.If(start):
            m.d.sync += left.eq(rows[0])
            m.d.sync += stride.eq(rows[1])
        with m.Elif(go & ~whole):
            m.d.sync += left.eq(left - 1)
        more, distance = left != 0, Mux(whole, 1 << REQUEST_LOG2, stride)
    with m.If(o.ready):
        m.d.sync += o.valid.eq(0)
    with m.If(start):
        m.d.sync += Cat(rest, pieces).eq(span)
        m.d.sync += following.eq(address)
        m.d.sync += asking.eq(1)
    with m.Elif(go):
        m.d.sync += [
            o.valid.eq(whole | (rest != 0)),
            o.payload.address.eq(following),
            o.payload.beats.eq(Mux(whole, Const(1 << REQUEST_LOG2, 16), rest)),
            following.eq(following + Cat(Const(0, (beat_bytes - 1).bit_length()), distance)),
            pieces.eq(pieces - whole),
            asking.eq(whole | more),
        ]
    return asking
