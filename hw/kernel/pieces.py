"""Asks a read port for a long run of beats, in requests as long as a request may be."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

__all__ = ["PIECE_LOG2", "ask_in_pieces"]

PIECE_LOG2 = 15     # beats of a request, at most: what a request can say, and a power of two


def ask_in_pieces(m: Module, o, *, start: Value, address: ValueLike, span: Value, beat_bytes: int) -> Signal:
    """Asks for `span` beats from `address` on when `start` is high: a stream of hw.axi.bus.request_layout in registers.

    Parameters  m: the module that it is added to; o: the stream; start: a pulse, nothing is being asked for then, or
                what is left of it is given up; span: beats, may be 0: then nothing is asked for; beat_bytes: of the
                port
    Returns     asking: not all is in the stream's register yet
    Timing      the first request two cycles after `start`, then one a cycle
    """
    rest, pieces = Signal(PIECE_LOG2, reset_less=True), Signal(max(1, len(span) - PIECE_LOG2), reset_less=True)
    following, asking = Signal(64, name="address", reset_less=True), Signal(name="asking")
    whole = pieces != 0
    with m.If(o.ready):
        m.d.sync += o.valid.eq(0)
    with m.If(start):
        m.d.sync += Cat(rest, pieces).eq(span)
        m.d.sync += following.eq(address)
        m.d.sync += asking.eq(1)
    with m.Elif(asking & (~o.valid | o.ready)):
        m.d.sync += [
            o.valid.eq(whole | (rest != 0)),
            o.payload.address.eq(following),
            o.payload.beats.eq(Mux(whole, Const(1 << PIECE_LOG2, 16), rest)),
            following.eq(following + (beat_bytes << PIECE_LOG2)),
            pieces.eq(pieces - 1),
            asking.eq(whole),
        ]
    return asking
