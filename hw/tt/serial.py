"""SCRec's TT computation unit: one array of plain cells, one product after the other."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.systolic import SystolicArray
from hw.tt.index import lookup_layout
from hw.tt.serial_config import SerialConfig, Splitting, load_layout, vector_layout
from hw.tt.serial_control import Control, Front
from hw.tt.serial_memory import Drain, Intermediate, Operands, Output

__all__ = ["SerialConfig", "SerialTTUnit"]


class SerialTTUnit(wiring.Component):
    """Rows of tensor-train tables, computed as SCRec's EMB core does.

    v = G1[i1] G2[i2] .. Gd[id], products from the left.       Source: SCRec §III.E, eq. 38, Alg. 1, Fig. 7a

    TT_AMem holds the first cores, TT_CMem the others, TT_BMem the reshaped intermediates. Reshaping is done
    by addressing: word l of an intermediate lies in line l / columns of bank (l + line) % columns, so that a
    row of results can be written, and one rank of `rows` rows can be read, in one cycle. Tiles follow each
    other when the one before has been drained, as in the paper; only live rows and columns are waited for.

    Parameters  config: SerialConfig
    Members     i_load     In(stream)  memories and descriptors (load_layout)
                i_lookups  In(stream)  table and row number
                o_vectors  Out(stream)  vectors in order (vector_layout)
    Shapes      cores (R_{k-1}, I_k, J_k, R_k), 2 to 4 of them, J_k powers of two, R_k <= rank_max; a vector
                is ceil(D / columns) beats, d ascending
    Timing      a tile of m x n live cells over k terms takes k + 2 m + n + 13 cycles, a lookup its tiles;
                lookups do not overlap but for index splitting and output (golden.tt.serial.finish)
    Handshake   no combinational path between streams; i_load is always ready, and what it writes must not be
                in use
    Numerics    golden.fp.fp32.dot one term per beat, k ascending, rounded after each product; against golden:
                bit-exact
    Reset       drops lookups and vectors under way; memories and descriptors stay
    Raises      ValueError: from SerialConfig
    Golden      golden.tt.serial.rows, .finish          Tests  verif/tt/test_serial.py
    """

    def __init__(self, config: SerialConfig):
        self.config = config
        splitting = Splitting(config)
        super().__init__({
            "i_load": In(stream.Signature(load_layout(config))),
            "i_lookups": In(stream.Signature(lookup_layout(splitting))),
            "o_vectors": Out(stream.Signature(vector_layout(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.array = array = SystolicArray(
            rows=config.rows, columns=config.columns, width=1, terms_log2=config.terms_log2)
        m.submodules.front = front = Front(config)
        m.submodules.control = control = Control(config)
        m.submodules.operands = operands = Operands(config)
        m.submodules.drain = drain = Drain(config)
        m.submodules.intermediate = intermediate = Intermediate(config)
        m.submodules.output = output = Output(config)
        wiring.connect(m, wiring.flipped(self.i_lookups), front.i_lookups)
        wiring.connect(m, wiring.flipped(self.o_vectors), output.o)

        load = self.i_load.payload
        for part in (front, operands):
            m.d.comb += part.load.eq(load)
            m.d.comb += part.load_valid.eq(self.i_load.valid)
        m.d.comb += [
            self.i_load.ready.eq(1),
            control.job.eq(front.job),
            control.job_valid.eq(front.job_valid & output.free),
            front.take.eq(control.take),
            output.take.eq(control.take),
            output.job.eq(front.job),
            control.tile_done.eq(drain.done),
            operands.a_line.eq(control.a_line),
            operands.c_line.eq(control.c_line),
            operands.issue.eq(control.issue),
            intermediate.read_half.eq(~control.product[0]),
            intermediate.read_line.eq(control.b_line),
            intermediate.turn.eq(control.b_turn),
            intermediate.stride_log2.eq(control.step.stride_log2),
            intermediate.first.eq(operands.a),
            intermediate.from_first.eq(control.product == 0),
            array.x.eq(intermediate.o),
            array.y.eq(operands.c),
            array.first.eq(operands.first),
            array.last.eq(operands.last),
            array.live_rows.eq(control.live_rows),
            drain.words.eq(array.o),
            drain.word_valid.eq(array.o_valid),
            drain.word_last.eq(array.o_last),
            drain.n_log2.eq(control.step.n_log2),
            drain.start.eq(control.start),
            drain.line_word.eq(control.line_word),
            drain.straight.eq(control.last_product),
            intermediate.write.eq(drain.write & ~control.last_product.replicate(config.columns)),
            intermediate.write_half.eq(control.product[0]),
            intermediate.write_line.eq(drain.line),
            intermediate.words.eq(drain.o),
            output.write.eq(drain.write & control.last_product.replicate(config.columns)),
            output.write_line.eq(drain.line),
            output.words.eq(drain.o),
            output.filled.eq(control.finish),
        ]
        return m
