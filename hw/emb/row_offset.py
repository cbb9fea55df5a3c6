"""Where a row begins in card memory: a product, and the place in its block where rows lie in pieces."""

from amaranth.hdl import Cat, Module, Mux, Signal

# A DSP multiplies 26 unsigned bits; what a row's number has above them is put right by hand.
FACTOR_BITS = 26


def kept_bits(cut) -> list:
    """Which of the lowest bits of a row's number say the block that it lies in, from the lowest on; the others say
    which row of the block it is. cut: of hw.emb.tokens.job_layout. All are the block's where rows are one piece."""
    return [~cut[:len(cut) - at].any() for at in range(len(cut))]


def row_offset(m: Module, row, beats, cut):
    """block * beats + (row in the block) * piece, modulo 2**32, from `row` = block + row in the block: (what a DSP with
    registers before, inside and behind has of it three cycles later, and a cycle before what its upper bits lack, by
    hand).

    A block takes whole stripes, so below a stripe the product has only zeros where rows lie in pieces: the place in the
    block needs no adder.
    """
    stripe_log2 = len(cut)
    low = Signal(FACTOR_BITS, name="row_low", reset_less=True)
    times = Signal(len(beats), name="row_times", reset_less=True)
    product = Signal(FACTOR_BITS + len(beats), reset_less=True)
    result = Signal(FACTOR_BITS + len(beats), name="row_product", reset_less=True)
    inside = [Signal(stripe_log2, name=f"row_in_block_{at}", reset_less=True) for at in range(3)]
    top = 32 - FACTOR_BITS
    high = row[FACTOR_BITS:]
    shifted = [Mux(high[at], beats << at, 0)[:top] for at in range(len(high))]
    pairs = [Signal(top, name=f"upper_{at}", reset_less=True) for at in range(2)]
    upper = Signal(top, reset_less=True)
    m.d.sync += [
        low.eq(Cat(Cat(row[at] & kept for at, kept in enumerate(kept_bits(cut))), row[stripe_log2:])),
        times.eq(beats),
        product.eq(low * times),
        result.eq(product),
        inside[0].eq(Cat(Cat(cut[k] & row[at - k] for k in range(at + 1)).any() for at in range(stripe_log2))),
        inside[1].eq(inside[0]),
        inside[2].eq(inside[1]),
        pairs[0].eq(shifted[0] + shifted[1]),
        pairs[1].eq(shifted[2] + shifted[3]),
        upper.eq(pairs[0] + pairs[1]),
    ]
    lows = Signal(32, reset_less=True)
    m.d.comb += lows.eq(result | inside[2])
    return lows, upper
