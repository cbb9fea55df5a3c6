"""Looks at a word of the result block that the host writes while a core runs."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import check_beat_bytes, read_layout, request_layout
from hw.place import Part

POLL_CYCLES = 64        # between two looks while somebody waits for the host
GLANCE_CYCLES = 4096    # and while nobody does: a look opens a page of memory and takes one of its bursts under way


class Doorbell(Part):
    """Reads a word now and then, and often while somebody waits for it to change.

    Source: hw.isa, the result block's words of kind doorbell

    Parameters  beat_bytes: of the port; bits: of the word that are told, also of words behind it
    Members     enable      In  a look may begin
                waiting     In  the word is waited for
                address     In(64)  of the word, a multiple of a beat
                o_requests  Out(stream)  to and from a client of a ReadPort, whose queue may be a register
                i           In(stream)  to and from a client of a ReadPort, whose queue may be a register
                value       Out  the word as it was read last, 0 before the first time
                polled      Out  a pulse with each new value
                failed      Out  a pulse: the word could not be read, `value` is not to be trusted until the next pulse
                    of `polled`
    Timing      GLANCE_CYCLES + 1 cycles from an answer to the next request, POLL_CYCLES + 2 if `waiting` is high;
                value, polled and failed the cycle after the answer; the first request the cycle after `enable`
    Handshake   o_requests from registers; i.ready is always high
    Reset       value is 0; an answer that is still to come has to be dropped by the port
    Raises      ValueError: beat_bytes that no port has; bits not from 1 to those of a beat
    Golden      a counter          Tests  verif/kernel/test_doorbell.py
    """

    def __init__(self, *, beat_bytes: int, bits: int = 32):
        check_beat_bytes(beat_bytes)
        if type(bits) is not int or not 1 <= bits <= 8 * beat_bytes:
            raise ValueError(f"bits must be from 1 to {8 * beat_bytes}, not {bits!r}")
        self.beat_bytes, self.bits = beat_bytes, bits
        super().__init__({
            "enable": In(1), "waiting": In(1), "address": In(64),
            "o_requests": Out(stream.Signature(request_layout())),
            "i": In(stream.Signature(read_layout(beat_bytes))),
            "value": Out(bits), "polled": Out(1), "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        request, answer = self.o_requests, self.i
        asked = Signal()
        pause = Signal(range(GLANCE_CYCLES))
        m.d.comb += request.payload.address.eq(self.address)
        m.d.comb += request.payload.beats.eq(1)
        m.d.comb += answer.ready.eq(1)
        m.d.sync += self.polled.eq(0)
        m.d.sync += self.failed.eq(0)
        with m.If(asked):
            with m.If(request.ready):
                m.d.sync += request.valid.eq(0)
            with m.If(answer.valid):
                m.d.sync += [
                    asked.eq(0),
                    self.polled.eq(~answer.payload.error),
                    self.failed.eq(answer.payload.error),
                    self.value.eq(answer.payload.data),
                    pause.eq(GLANCE_CYCLES - 1),
                ]
        with m.Elif((pause != 0) & ~(self.waiting & (pause < GLANCE_CYCLES - POLL_CYCLES))):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(self.enable):
            m.d.sync += asked.eq(1)
            m.d.sync += request.valid.eq(1)
        return m
