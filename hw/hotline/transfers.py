"""Samples and logger images on their way between memory and the Hotline core's parts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from hw.axi.requester import request_beats
from hw.hotline.config import WAYS, HotlineConfig


def image_beats(config: HotlineConfig) -> int:
    """Beats of the logger's image."""
    return config.banks * config.sets * WAYS // config.words


def chunk_beats(config: HotlineConfig) -> int:
    """Beats of a request to write: two of them fit the port's queue, one is written while the next comes."""
    return config.output_beats // 2


class InputReader:
    """Samples, with marks on their first and last beats, or an image, from the inputs' client of a read port.

    Adds itself to `m`, as a part of the program.

    Parameters  m: the module; config: HotlineConfig; o_requests, i: to and from the client; o_beats: samples;
                o_image: an image; base: address of the inputs; source, sample_beats: of the instruction; image: it is
                an image that is read
    Members     begin: reads `span` beats from `source` on, in beats; passed: all of them were taken; failed: a beat
                had an error. It is not passed on, and nothing is any more
    """

    def __init__(self, m: Module, config: HotlineConfig, *, o_requests, i, o_beats, o_image, base: Value,
                 source: Value, sample_beats: Value, image: Value):
        shift = (config.beat_bytes - 1).bit_length()
        self.begin, self.span = Signal(name="read_begin"), Signal(32, name="span", reset_less=True)
        self.failed = Signal(name="read_failed")
        address = Signal(64, name="input_address", reset_less=True)
        m.d.sync += address.eq(base + Cat(Const(0, shift), source))
        request_beats(m, o_requests, start=self.begin, address=address, span=self.span, beat_bytes=config.beat_bytes)

        left = Signal(32, reset_less=True)
        final = Signal(reset_less=True)
        moving = Signal()
        take = Signal()
        beat = Signal(32 * config.words, reset_less=True)
        part = Signal(range(config.sample_beats_max))
        ends = Signal()
        first = Signal(reset_less=True)
        last = Signal(reset_less=True)
        full, bad = o_beats.valid | o_image.valid, i.payload.error
        m.d.comb += [
            i.ready.eq(moving & (~full | (o_beats.valid & o_beats.ready) | (o_image.valid & o_image.ready))),
            take.eq(i.valid & i.ready),
            ends.eq(part == (sample_beats - 1)[:len(part)]),
            o_beats.payload.words.as_value().eq(beat),
            o_beats.payload.first.eq(first),
            o_beats.payload.last.eq(last),
            o_image.payload.eq(beat),
        ]
        with m.If(o_beats.ready):
            m.d.sync += o_beats.valid.eq(0)
        with m.If(o_image.ready):
            m.d.sync += o_image.valid.eq(0)
        with m.If(take):
            m.d.sync += [
                beat.eq(i.payload.data),
                o_beats.valid.eq(~image & ~bad),
                o_image.valid.eq(image & ~bad),
                self.failed.eq(bad),
                first.eq(part == 0),
                last.eq(ends),
                part.eq(Mux(ends, 0, part + 1)),
                left.eq(left - 1),
                final.eq(left == 2),
                moving.eq(~final & ~bad),
            ]
        with m.If(self.begin):
            m.d.sync += [
                left.eq(self.span),
                final.eq(self.span == 1),
                part.eq(0),
                moving.eq(1),
            ]
        self.passed = ~moving & ~full


class ImageWriter:
    """An image of the logger to memory, in requests of a chunk.

    Adds itself to `m`, as a part of the program.

    Parameters  m: the module; config: HotlineConfig; i: the image's beats; o_requests, o_data, written: of a client of
                a write port; base: address of the mailbox; out: offset in it, in beats
    Members     begin: an image is to be written; done: nothing is left to be written
    """

    def __init__(self, m: Module, config: HotlineConfig, *, i, o_requests, o_data, written: Value, base: Value,
                 out: Value):
        chunk = min(chunk_beats(config), image_beats(config))
        chunks = image_beats(config) // chunk
        shift = (config.beat_bytes - 1).bit_length()
        self.begin = Signal(name="write_begin")
        address = Signal(64, name="image_address", reset_less=True)
        to_ask = Signal(range(chunks + 1))
        to_come = Signal(range(chunks + 1))
        m.d.comb += [
            o_requests.valid.eq(to_ask != 0),
            o_requests.payload.address.eq(address),
            o_requests.payload.beats.eq(chunk),
            o_data.valid.eq(i.valid),
            o_data.payload.data.eq(i.payload),
            i.ready.eq(o_data.ready),
        ]
        with m.If(self.begin):
            m.d.sync += address.eq(base + Cat(Const(0, shift), out))
            m.d.sync += to_ask.eq(chunks)
            m.d.sync += to_come.eq(chunks)
        with m.Else():
            with m.If(o_requests.valid & o_requests.ready):
                m.d.sync += address.eq(address + (chunk << shift))
                m.d.sync += to_ask.eq(to_ask - 1)
            with m.If(written):
                m.d.sync += to_come.eq(to_come - 1)
        self.done = to_come == 0
