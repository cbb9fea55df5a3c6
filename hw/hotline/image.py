"""Moves the access logger's image between the logger and beats of memory."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.hotline.config import WAYS, HotlineConfig
from hw.hotline.records import image_layout
from hw.place import Part


class ImageMover(Part):
    """Saves or loads all sets of the logger, in the order of the image.

    beat[4k .. 4k + 4] = set s of bank b + k for b = 0, words / 4, .., banks - words / 4, for s = 0 .. sets - 1
                                                       Source: the image that hw.isa.hotline's SAVE and LOAD move

    Parameters  config: HotlineConfig
    Members     start_save, start_load  In  pulses, while nothing is under way
                i_beats  In(stream)
                o_beats  Out(stream)  beats of `words` words
                o_image  Out(stream image)  sets to write
                o_ask    Out(stream {bank, set})  sets to read
                i_image  In(stream image)  the sets asked for, in order
                done     Out  a pulse: the last set was taken, or the last beat
    Shapes      words / 4 sets per beat, banks * sets * 4 / words beats
    Timing      a set per cycle: a beat in words / 4 cycles, without a gap; done is a cycle late
    Handshake   i_beats is taken while a load is under way and the beat before is leaving; all valids come from
                registers, i_beats.ready and i_image.ready also depend on the ready of the other side
    Numerics    words are moved as they are; the logger drops bits that no entry has
    Reset       drops what is under way
    Golden      golden.hotline.image                   Tests  verif/hotline/test_image.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        place_of_set = data.StructLayout({"bank": config.bank_bits, "set": config.set_bits})
        super().__init__({
            "start_save": In(1),
            "start_load": In(1),
            "i_beats": In(stream.Signature(32 * config.words)),
            "o_beats": Out(stream.Signature(32 * config.words)),
            "o_image": Out(stream.Signature(image_layout(config))),
            "o_ask": Out(stream.Signature(place_of_set)),
            "i_image": In(stream.Signature(image_layout(config))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        parts = config.words // WAYS        # sets of a beat
        bits = config.bank_bits + config.set_bits
        saving = Signal()
        loading = Signal()
        # The set that goes to the logger, written or asked for, bank in the low bits; how many sets came.
        number = Signal(bits)
        came = Signal(bits)
        moves = Signal()
        ends = Signal()

        # -- Load: a beat's sets leave one after the other.
        beat = [Signal(32 * WAYS, name=f"beat_{k}", reset_less=True) for k in range(parts)]
        left = Signal(range(parts + 1))
        written = Signal()
        fills = Signal()
        more = Signal()         # beats are still to come
        image = self.o_image.payload
        m.d.comb += [
            self.o_image.valid.eq(left != 0),
            written.eq(self.o_image.valid & self.o_image.ready),
            self.i_beats.ready.eq(loading & more & ((left == 0) | ((left == 1) & self.o_image.ready))),
            fills.eq(self.i_beats.valid & self.i_beats.ready),
            Cat(image.bank, image.set).eq(number),
            image.ways.eq(beat[0]),
        ]
        with m.If(fills):
            m.d.sync += left.eq(parts)
            m.d.sync += came.eq(came + parts)
            m.d.sync += more.eq(came != (1 << bits) - parts)
            m.d.sync += [part.eq(self.i_beats.payload[32 * WAYS * k:][:32 * WAYS]) for k, part in enumerate(beat)]
        with m.Elif(written):
            m.d.sync += left.eq(left - 1)
            m.d.sync += [part.eq(behind) for part, behind in zip(beat, beat[1:])]

        # -- Save: sets are asked for ahead and gather, the newest behind the others.
        gathered = [Signal(32 * WAYS, name=f"gathered_{k}", reset_less=True) for k in range(parts)]
        asks = Signal()
        whole = Signal()
        asked = Signal()
        put = Signal()
        sent = Signal()
        ask = self.o_ask.payload
        m.d.comb += [
            self.o_ask.valid.eq(asks),
            asked.eq(asks & self.o_ask.ready),
            Cat(ask.bank, ask.set).eq(number),
            self.o_beats.valid.eq(whole),
            self.o_beats.payload.eq(Cat(gathered)),
            sent.eq(whole & self.o_beats.ready),
            self.i_image.ready.eq(~whole | self.o_beats.ready),
            put.eq(self.i_image.valid & self.i_image.ready),
        ]
        with m.If(put):
            m.d.sync += [part.eq(behind) for part, behind in zip(gathered, [*gathered[1:], self.i_image.payload.ways])]
            m.d.sync += came.eq(came + 1)
        m.d.sync += whole.eq((put & came[:(parts - 1).bit_length()].all()) | (whole & ~self.o_beats.ready))
        with m.If(asked & number.all()):
            m.d.sync += asks.eq(0)

        # -- From start to done. All sets came: the count is 0 again.
        m.d.comb += moves.eq(written | asked)
        m.d.comb += ends.eq((loading & written & number.all()) | (saving & sent & ~asks & (came == 0)))
        m.d.sync += self.done.eq(ends)
        with m.If(moves):
            m.d.sync += number.eq(number + 1)
        with m.If(ends):
            m.d.sync += saving.eq(0)
            m.d.sync += loading.eq(0)
        with m.If(self.start_save):
            m.d.sync += saving.eq(1)
            m.d.sync += asks.eq(1)
        with m.If(self.start_load):
            m.d.sync += loading.eq(1)
            m.d.sync += more.eq(1)
        return m
