"""A host's words over a serial line: frames that read and write words of a bus."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import enum, memory, stream, wiring
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4Lite
from hw.board.uart import Received

ADDRESS_BITS = 32
WORDS_MAX = 256             # of a frame
READ, WRITE = b"R"[0], b"W"[0]
HEADER_BYTES = 7            # command, address, count
CHECK_BYTES = 2


class Status(enum.Enum, shape=8):
    """The first byte of a reply."""

    OK = 0
    COMMAND = 1     # neither READ nor WRITE
    COUNT = 2       # of words: none, or more than WORDS_MAX
    ADDRESS = 3     # not a multiple of 4
    CHECK = 4       # the frame's check bytes do not fit its bytes
    TIMEOUT = 5     # the frame stopped in its middle
    LINE = 6        # a stop bit was missing, or a byte came before the reply to the frame before it had been sent
    BUS = 7         # a word was answered with SLVERR or DECERR


class Link(wiring.Component):
    """Carries out frames that come over a serial line, one after the other, and answers each.

    request = command, address (4 bytes), count (2), WRITE: count words (4 each), check (2)
    reply   = status, of a READ that is OK: count words, check (2)

    Numbers go lowest byte first, but check, the CRC-16/IBM-3740 of all bytes before it, highest first (so that the
    CRC of a sound frame is 0). `address` is that of the first word, a multiple of 4; the others follow it.
    Source: own; the CRC as Python's binascii.crc_hqx(bytes, 0xFFFF)

    Parameters  gap_cycles: from one byte to the next that end a frame, many times those of a byte
    Members     i        In(stream)  received bytes
                o        Out(stream)  bytes to send
                bus      Out(AXI4-Lite)  a word at a time
                busy     Out  a frame is under way
                refused  Out  the last reply was not OK
    Timing      3 cycles a word beside the bus
    Handshake   the host waits for the reply before it sends the next frame; what comes earlier is dropped and refused
                behind that reply. AXI4-Lite: an address and its data are offered together; only one access is under
                way
    Faults      a frame is carried out when its check fits and it says something possible, else nothing of it is. After
                COMMAND, COUNT, CHECK and LINE everything is dropped until the line was silent for gap_cycles, then
                the reply is sent: host and link are in step again. TIMEOUT comes after the same silence. BUS: all
                words were tried
    Reset       drops the frame; an access under way on the bus is given up, so what is on the bus has to be reset too
    Raises      ValueError: gap_cycles that are not at least 1
    Golden      gen.rtl.frames          Tests  verif/board/test_link.py, test_boundaries.py
    """

    def __init__(self, *, gap_cycles: int):
        if type(gap_cycles) is not int or gap_cycles < 1:
            raise ValueError(f"gap_cycles must be at least 1, not {gap_cycles!r}")
        self.gap_cycles = gap_cycles
        super().__init__({
            "i": In(stream.Signature(Received, always_ready=True)), "o": Out(stream.Signature(8)),
            "bus": Out(AXI4Lite(ADDRESS_BITS)), "busy": Out(1), "refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        m.submodules.crc = crc = catalog.CRC16_IBM_3740(data_width=8).create()
        m.submodules.words = store = memory.Memory(shape=32, depth=WORDS_MAX, init=[], attrs={"ram_style": "block"})
        write, read = store.write_port(), store.read_port()

        header = Signal(8 * HEADER_BYTES, reset_less=True)
        command, address, count = header[:8], header[8:40], header[40:]
        place = Signal(range(WORDS_MAX), reset_less=True)       # the word at hand
        final = Signal()                                        # it is the last
        byte = Signal(3)                                        # of a header, a word or a check
        word = Signal(32, reset_less=True)
        status = Signal(Status)
        silence = Signal(range(self.gap_cycles + 1), reset_less=True)    # behind a byte
        broken = Signal()
        silent = Signal()
        # bytes are due; one came before the reply was sent
        takes = Signal()
        early = Signal()
        taken = self.i.valid
        is_write = Signal()
        m.d.comb += [
            broken.eq(taken & self.i.payload.error),
            silent.eq(silence == self.gap_cycles),
            is_write.eq(command == WRITE),
            final.eq(place == (count - 1)[:8]),
            read.addr.eq(place),
            write.addr.eq(place),
            write.data.eq(word),
            crc.data.eq(self.i.payload.data),
            bus.awaddr.eq(Cat(address[:2], address[2:] + place)),
            bus.araddr.eq(bus.awaddr),
            bus.wdata.eq(read.data),
            bus.wstrb.eq(0xF),
        ]
        with m.If(taken):
            m.d.sync += silence.eq(0)
        with m.Elif(~silent):
            m.d.sync += silence.eq(silence + 1)
        with m.If(taken & ~takes):
            m.d.sync += early.eq(1)

        with m.FSM(name="state") as states:
            self._take(m, crc, write, SimpleNamespace(
                header=header, command=command, count=count, is_write=is_write, place=place, final=final, byte=byte,
                word=word, status=status, takes=takes, broken=broken, silent=silent))
            with m.State("JUDGE"):
                m.d.sync += status.eq(Status.OK)
                with m.If(~crc.match_detected):
                    m.d.sync += status.eq(Status.CHECK)
                    m.next = "DROP"
                with m.Elif(address[:2] != 0):
                    m.d.sync += status.eq(Status.ADDRESS)
                    m.next = "STATUS"
                with m.Elif(is_write):
                    m.next = "PUT"
                with m.Else():
                    m.d.sync += bus.arvalid.eq(1)
                    m.next = "GET"
            self._access(m, bus, status, place, final, word, write)
            with m.State("DROP"):
                m.d.comb += takes.eq(1)
                with m.If(silent & ~taken):
                    m.next = "STATUS"
            self._reply(m, crc, status, is_write, place, final, byte, read, early)
        m.d.comb += self.busy.eq(~states.ongoing("HEADER") | (byte != 0))
        return m

    def _take(self, m: Module, crc, write, frame) -> None:
        """The states that take a frame's bytes: its header, its words, its check."""
        taken = self.i.valid
        with m.State("HEADER"):
            m.d.comb += frame.takes.eq(1)
            m.d.comb += crc.valid.eq(taken)
            m.d.comb += crc.start.eq(frame.byte == 0)
            with m.If(taken):
                m.d.sync += frame.header.eq(Cat(frame.header[8:], self.i.payload.data))
                m.d.sync += frame.byte.eq(frame.byte + 1)
                with m.If(frame.byte == HEADER_BYTES - 1):
                    m.d.sync += frame.byte.eq(0)
                    m.d.sync += frame.place.eq(0)
                    m.next = "SHAPE"
            self._leave(m, frame.status, frame.broken, frame.silent & (frame.byte != 0))
        with m.State("SHAPE"):
            # What decides about the bytes that follow.
            with m.If((frame.command != READ) & ~frame.is_write):
                m.d.sync += frame.status.eq(Status.COMMAND)
                m.next = "DROP"
            with m.Elif((frame.count == 0) | (frame.count > WORDS_MAX)):
                m.d.sync += frame.status.eq(Status.COUNT)
                m.next = "DROP"
            with m.Elif(frame.is_write):
                m.next = "WORDS"
            with m.Else():
                m.next = "CHECK"
        with m.State("WORDS"):
            m.d.comb += frame.takes.eq(1)
            m.d.comb += crc.valid.eq(taken)
            with m.If(taken):
                m.d.sync += frame.word.eq(Cat(frame.word[8:], self.i.payload.data))
                m.d.sync += frame.byte.eq(frame.byte + 1)
                with m.If(frame.byte == 3):
                    m.next = "KEEP"
            self._leave(m, frame.status, frame.broken, frame.silent)
        with m.State("KEEP"):
            m.d.comb += write.en.eq(1)
            m.d.sync += frame.place.eq(frame.place + 1)
            m.d.sync += frame.byte.eq(0)
            m.next = "WORDS"
            with m.If(frame.final):
                m.d.sync += frame.place.eq(0)
                m.next = "CHECK"
        with m.State("CHECK"):
            m.d.comb += frame.takes.eq(1)
            m.d.comb += crc.valid.eq(taken)
            with m.If(taken):
                m.d.sync += frame.byte.eq(frame.byte + 1)
                with m.If(frame.byte == CHECK_BYTES - 1):
                    m.d.sync += frame.byte.eq(0)
                    m.next = "JUDGE"
            self._leave(m, frame.status, frame.broken, frame.silent)

    def _leave(self, m: Module, status, broken, stopped) -> None:
        """Of a state that takes bytes: the ways out of a frame that cannot be continued."""
        with m.If(broken):
            m.d.sync += status.eq(Status.LINE)
            m.next = "DROP"
        with m.Elif(stopped & ~self.i.valid):
            m.d.sync += status.eq(Status.TIMEOUT)
            m.next = "STATUS"

    def _access(self, m: Module, bus, status, place, final, word, write) -> None:
        """The states that go through the words of a frame on the bus."""

        def answered(response) -> None:
            with m.If(response != 0):
                m.d.sync += status.eq(Status.BUS)
            m.d.sync += place.eq(Mux(final, 0, place + 1))

        with m.State("PUT"):        # the word comes out of the memory
            m.d.sync += bus.awvalid.eq(1)
            m.d.sync += bus.wvalid.eq(1)
            m.next = "PUTTING"
        with m.State("PUTTING"):
            m.d.comb += bus.bready.eq(1)
            with m.If(bus.awready):
                m.d.sync += bus.awvalid.eq(0)
            with m.If(bus.wready):
                m.d.sync += bus.wvalid.eq(0)
            with m.If(bus.bvalid):
                answered(bus.bresp)
                m.next = "PUT"
                with m.If(final):
                    m.next = "STATUS"
        with m.State("GET"):
            m.d.comb += bus.rready.eq(1)
            with m.If(bus.arready):
                m.d.sync += bus.arvalid.eq(0)
            with m.If(bus.rvalid):
                m.d.sync += word.eq(bus.rdata)
                with m.If(bus.rresp != 0):
                    m.d.sync += status.eq(Status.BUS)
                m.next = "GOT"
        with m.State("GOT"):
            m.d.comb += write.en.eq(1)
            m.d.sync += place.eq(Mux(final, 0, place + 1))
            m.next = "GET"
            with m.If(final):
                m.next = "STATUS"
            with m.Else():
                m.d.sync += bus.arvalid.eq(1)

    def _reply(self, m: Module, crc, status, is_write, place, final, byte, read, early) -> None:
        """The states that send."""

        def send(value) -> Signal:
            m.d.comb += [
                self.o.valid.eq(1),
                self.o.payload.eq(value),
                crc.data.eq(value),
                crc.valid.eq(self.o.ready),
            ]
            return self.o.ready

        with m.State("STATUS"):
            m.d.comb += crc.start.eq(1)
            m.d.sync += byte.eq(0)
            m.d.sync += place.eq(0)
            m.d.sync += self.refused.eq(status != Status.OK)
            with m.If(send(status.as_value())):
                m.next = "ANSWER"
                with m.If((status != Status.OK) | is_write):
                    m.next = "END"
        with m.State("ANSWER"):
            with m.If(send(read.data.word_select(byte[:2], 8))):
                m.d.sync += byte.eq(byte + 1)
                with m.If(byte == 3):
                    m.d.sync += byte.eq(0)
                    m.d.sync += place.eq(place + 1)
                    m.next = "TURN"
                    with m.If(final):
                        m.next = "END"
        with m.State("TURN"):       # the next word comes out of the memory
            m.next = "ANSWER"
        with m.State("END"):
            m.d.comb += self.o.valid.eq(1)
            m.d.comb += self.o.payload.eq(Mux(byte == 0, crc.crc[8:], crc.crc[:8]))
            with m.If(self.o.ready):
                m.d.sync += byte.eq(byte + 1)
                with m.If(byte == CHECK_BYTES - 1):
                    m.d.sync += byte.eq(0)
                    m.d.sync += early.eq(0)
                    m.next = "HEADER"
                    with m.If(early | self.i.valid):
                        m.d.sync += status.eq(Status.LINE)
                        m.next = "DROP"
