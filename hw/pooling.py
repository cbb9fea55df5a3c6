"""Pools rows beat by beat: FP32 sums with a weight a row, or maxima, of many vectors at a time."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PoolingUnit", "pooled_layout", "pooling_layout"]


def pooling_layout(words: int, contexts_log2: int, tag_bits: int) -> data.StructLayout:
    """A beat of a row. weight: of the whole row; context: which running vector it goes into; first: the context
    starts anew with it; last: the context's value leaves after it; maximum: pools by maximum, not by sum (for the
    whole of a context, whose weights are then 1.0); tag: goes with what leaves."""
    return data.StructLayout({
        "words": data.ArrayLayout(32, words), "weight": 32, "context": contexts_log2, "first": 1, "last": 1,
        "maximum": 1, "tag": tag_bits})


def pooled_layout(words: int, tag_bits: int) -> data.StructLayout:
    """A beat of a pooled vector, with the tag of the beat that was its last."""
    return data.StructLayout({"words": data.ArrayLayout(32, words), "tag": tag_bits})


class PoolingUnit(wiring.Component):
    def __init__(self, *, words: int, contexts_log2: int, tag_bits: int, terms_log2: int = 16, lut_products: int = 0):
        self.words = words
        self.contexts_log2 = contexts_log2
        self.tag_bits = tag_bits
        self.terms_log2 = terms_log2
        self.lut_products = lut_products
        super().__init__({
            "i_valid": In(1),
            "i": In(pooling_layout(words, contexts_log2, tag_bits)),
            "o_valid": Out(1),
            "o": Out(pooled_layout(words, tag_bits)),
        })

    def key(self) -> str:
        return (f"PoolingUnit_words{self.words}_contexts{self.contexts_log2}_tag{self.tag_bits}"
                f"_terms{self.terms_log2}_lut{self.lut_products}")

    def elaborate(self, platform):
        return Module()
