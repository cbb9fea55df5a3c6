"""Puts the vectors of a bag's tiers together and hands the bag's vector to the writer."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, request_layout
from hw.emb.config import EmbConfig

__all__ = ["Finish", "fault_layout", "partial_layout", "step_layout", "vector_layout"]

SUM, MEAN, MAXIMUM = range(3)


def step_layout(config: EmbConfig) -> data.StructLayout:
    """What a bag takes next, in order.

    tt: one vector of the TT unit; end: the bag ends with this step; dram, ssd (only with end): then the partial
    vector of that tier; first: the bag begins with this step; mode: SUM, MEAN or MAXIMUM; weighted: `factor` is the
    weight of the TT vector; factor: with MEAN the bag's indices as an integer of at least 1, below 2^24;
    beats: of a vector, less 1; out: beats from the outputs' base to the bag's vector; last: the instruction ends
    with this step; instruction: its number, for faults.
    """
    return data.StructLayout({
        "tt": 1, "dram": 1, "ssd": 1, "first": 1, "end": 1, "mode": 2, "weighted": 1, "factor": 32,
        "beats": max(config.context_log2, 1), "out": 32, "last": 1, "instruction": 32})


def partial_layout(config: EmbConfig) -> data.StructLayout:
    """A beat of a tier's partial vector. error: a row of it could not be read."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "error": 1})


def vector_layout(config: EmbConfig) -> data.StructLayout:
    """A beat of a vector of the TT unit. error: valid with last, the vector cannot be trusted."""
    return data.StructLayout({"words": data.ArrayLayout(32, config.words), "last": 1, "error": 1})


def fault_layout() -> data.StructLayout:
    """code: as in the result block; bag: its number within the instruction."""
    return data.StructLayout({"code": 8, "instruction": 32, "bag": 32})


class Finish(wiring.Component):
    def __init__(self, config: EmbConfig):
        self.config = config
        super().__init__({
            "i_steps": In(stream.Signature(step_layout(config))),
            "i_dram": In(stream.Signature(partial_layout(config))),
            "i_ssd": In(stream.Signature(partial_layout(config))),
            "i_tt": In(stream.Signature(vector_layout(config))),
            "outputs": In(64),  # the outputs' address in bytes
            "o_requests": Out(stream.Signature(request_layout())),
            "o_data": Out(stream.Signature(data_layout(config.beat_bytes))),
            "written": In(1),  # WritePort's `done` of this client
            "done": Out(1),  # a pulse a bag, whose vector is then in memory
            "instruction_done": Out(1),  # with `done` of an instruction's last bag
            "fault_valid": Out(1),  # a pulse, at most one a cycle
            "fault": Out(fault_layout()),
        })

    def key(self) -> str:
        return f"Finish({self.config.key()})"

    def elaborate(self, platform):
        return Module()
