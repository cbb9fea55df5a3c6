"""The place of the next word, or of the next pair of words, in a stream's beats."""

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, ValueLike


class Cursor:
    """Where in a stream's beat its next word is. The beat goes when its last word, or a region's, is taken.

    word: the next one; partner: the one behind it in the pair of words that both lie in, or itself; even: it is the
    first of a pair.
    """

    def __init__(self, m: Module, name: str, port, *, take: Value, last: Value, skip: ValueLike = 0,
                 pair: ValueLike = 0):
        """`take`: a word is taken, or with `pair`, only where `even`, two; the region's last if `last`; `skip`: the
        region ends without one.

        `take` and `pair` come late and go on to the queue behind the stream, so all else is in registers.
        """
        pair = Value.cast(pair)
        words = len(port.payload.data) // 32
        self.place = place = Signal(range(words), name=f"{name}_place")
        # The word is its beat's last one, or the last but one; it is not its first one.
        at_end, near_end = Signal(name=f"{name}_at_end"), Signal(name=f"{name}_near_end", init=words == 2)
        begun = Signal(name=f"{name}_begun")
        leaves = Signal(name=f"{name}_leaves")
        m.d.comb += leaves.eq(at_end | (pair & near_end))
        m.d.comb += port.ready.eq((take & (leaves | last)) | (skip & begun))
        with m.If((take & last) | skip):
            m.d.sync += place.eq(0)
            m.d.sync += at_end.eq(0)
            m.d.sync += near_end.eq(words == 2)
            m.d.sync += begun.eq(0)
        with m.Elif(take):
            m.d.sync += place.eq(place + 1 + pair)
            m.d.sync += at_end.eq(near_end & ~pair)
            m.d.sync += near_end.eq(Mux(leaves, Const(words == 2, 1), place == Mux(pair, words - 4, words - 3)))
            m.d.sync += begun.eq(~leaves)
        beat = [port.payload.data[32 * at:32 * at + 32] for at in range(words)]
        self.word = Array(beat)[place]
        self.partner = Array(beat[1::2])[place[1:]]
        self.even = ~place[0]
