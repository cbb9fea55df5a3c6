"""Writes runs of beats for several clients over one AXI4 master."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.burst import Splitter, burst_layout
from hw.axi.bus import AXI4, address_constants, check_beat_bytes, data_layout, request_layout
from hw.axi.port import check_clients
from hw.axi.reader import check_outstanding
from hw.place import Part
from hw.stream.fifo import Fifo
from hw.stream.round_robin import round_robin


def connect_client(m: Module, port: "WritePort", number: int, requests, beats) -> None:
    """Wires a client's streams to a write port; the beats' payload may have any layout of as many bits."""
    to = port.i_data[number]
    wiring.connect(m, requests, port.i_requests[number])
    m.d.comb += to.valid.eq(beats.valid)
    m.d.comb += to.payload.eq(Cat(beats.payload))
    m.d.comb += beats.ready.eq(to.ready)


class WritePort(Part):
    """Writes clients' requests once all their data is there, and says when each has been written.

    memory[address, address + beats * beat_bytes) = the client's next `beats` beats       Source: AXI4 (ARM IHI 0022)

    Parameters  beat_bytes: 4 to 64; clients: depth of each client's data queue in beats, powers of two; outstanding:
                bursts that wait for their response, a power of two from 2 to 1024
    Members     i_requests[k]  In(stream)  {address, beats}, beats at most the queue's depth
                i_data[k]      In(stream)  {data}, before or after its request
                done[k]        Out  a pulse for each request, in order, when the slave has answered all its bursts
                error[k]       Out  with `done`: one of its bursts was answered SLVERR or DECERR
                bus            Out(AXI4 without the read channels)
                stop           In
                idle           Out  nothing is under way on the bus or granted
                moved          Out  a beat or a response was taken on the bus
                owes           Out  the bus owes an answer
    Timing      4 cycles from the last beat of a request to its address, 2 more to its first beat on the bus; one
                request and one beat per cycle, whatever the requests' lengths. `idle`, `moved` and `owes` are a cycle
                late
    Handshake   a request is granted when its client's queue holds all its beats, in turns among those for whom that
                is so: no client waits for another's data, and no burst begins that cannot be finished. A burst's
                data never goes before its address. All outputs of the bus come from registers, bready is always
                high; i_requests[k].ready and i_data[k].ready come from registers. Bursts as Reader, all strobes set
    Reset       forgets everything: only for a bus that is reset with it. `stop` ends in a quiet bus: what was
                granted is written to its end, everything else is taken and dropped; hold it until `idle`,
                which in its first cycle still tells of the time before
    Raises      ValueError: beat_bytes, a depth or outstanding out of range
    Golden      the memory itself          Tests  verif/axi/test_writer.py
    """

    def __init__(self, *, beat_bytes: int, clients: tuple[int, ...], outstanding: int = 32):
        check_beat_bytes(beat_bytes)
        check_clients(clients, least=2)
        check_outstanding(outstanding)
        self.beat_bytes = beat_bytes
        self.clients = tuple(clients)
        self.outstanding = outstanding
        count = len(clients)
        super().__init__({
            "i_requests": In(stream.Signature(request_layout())).array(count),
            "i_data": In(stream.Signature(data_layout(beat_bytes))).array(count),
            "done": Out(1).array(count),
            "error": Out(1).array(count),
            "bus": Out(AXI4(8 * beat_bytes, reads=False)),
            "stop": In(1),
            "idle": Out(1),
            "moved": Out(1),
            "owes": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, count = self.bus, len(self.clients)
        m.submodules.splitter = splitter = Splitter(beat_bytes=self.beat_bytes, tag_bits=count)
        # Bursts that have data to send, and bursts that wait for their response: the latter bound the former.
        m.submodules.sending = sending = Fifo(burst_layout(count), depth=self.outstanding)
        m.submodules.waiting = waiting = Fifo(
            data.StructLayout({"final": 1, "tag": count}), depth=self.outstanding)

        busy = Signal()
        quiet = Signal()
        empty = Signal()
        m.d.comb += busy.eq(splitter.held | sending.held | waiting.held | bus.wvalid)
        m.d.comb += empty.eq(self.stop & quiet)  # nothing granted is left: what the queues hold may go
        m.d.sync += quiet.eq(self.stop & ~busy)
        queues, held = self._clients(m, splitter, empty)
        owing, sent = self._addresses(m, splitter, sending, waiting)
        self._data(m, sending, queues, owing, sent)
        self._responses(m, waiting)
        m.d.sync += self.moved.eq(bus.bvalid | (bus.wvalid & bus.wready))
        m.d.sync += self.owes.eq(bus.awvalid | bus.wvalid | waiting.held)
        reported = Cat(self.done[k] for k in range(count)).any()
        m.d.sync += self.idle.eq(
            ~(busy | reported | Cat(valid for _, _, valid in held).any()) & (empty | ~self.stop))
        return m

    def _clients(self, m: Module, splitter, empty) -> tuple[list, list]:
        """Grants: a request whose beats are all in its client's queue. Returns the queues, and the requests held."""
        queues, held, whole = [], [], []
        granted = Signal(len(self.clients))
        last = Signal(len(self.clients))
        for k, depth in enumerate(self.clients):
            queue = Fifo(data_layout(self.beat_bytes), depth=depth)
            m.submodules[f"queue_{k}"] = ResetInserter(empty)(queue)
            bits = (depth + 1).bit_length()
            request = Signal(data.StructLayout({"address": 64, "beats": bits}), reset_less=True, name=f"request_{k}")
            valid = Signal(name=f"valid_{k}")
            # Beats in the queue that neither a granted request nor the one in `request` needs; negative: what the
            # latter lacks. All the arithmetic is done as a request comes in, so that a grant has none.
            spare = Signal(bits + 1, name=f"spare_{k}")
            taken = Signal(bits + 1, name=f"taken_{k}")
            following = Signal(bits + 1, name=f"following_{k}")
            complete = Signal(name=f"complete_{k}")  # valid and spare >= 0, from a register
            grant, push, load = Signal(name=f"grant_{k}"), Signal(name=f"push_{k}"), Signal(name=f"load_{k}")
            incoming, i = self.i_requests[k], self.i_data[k]
            beats = Cat(incoming.payload.beats[:bits], 0)
            m.d.comb += [
                incoming.ready.eq(~valid | grant | self.stop),
                load.eq(incoming.valid & (~valid | grant) & ~self.stop),
                i.ready.eq(queue.i.ready | self.stop),
                push.eq(i.valid & queue.i.ready & ~self.stop),
                queue.i.valid.eq(push),
                queue.i.payload.eq(i.payload),
                grant.eq(granted[k] & splitter.i.ready & ~self.stop),
                # Minus beats without a carry chain: every bit above the lowest that is set, turned round.
                taken.eq(Mux(load, Cat(beats[at] ^ beats[:at].any() for at in range(bits + 1)), 0)),
                following.eq((Cat(1, spare) + Cat(push, taken))[1:]),
            ]
            m.d.sync += spare.eq(following)
            m.d.sync += complete.eq((load | (valid & ~grant)) & ~following[bits])
            with m.If(~valid | grant):
                m.d.sync += valid.eq(incoming.valid)
                m.d.sync += request.address.eq(incoming.payload.address)
                m.d.sync += request.beats.eq(incoming.payload.beats)
            with m.If(self.stop):
                m.d.sync += valid.eq(0)
                m.d.sync += complete.eq(0)
            with m.If(empty):
                m.d.sync += spare.eq(0)
            whole.append(complete)
            queues.append(queue)
            held.append((request, grant, valid))
        m.d.comb += granted.eq(Cat(round_robin(whole, last)))
        m.d.comb += splitter.i.valid.eq(granted.any() & ~self.stop)
        m.d.comb += splitter.i.payload.tag.eq(granted)
        for k, (request, grant, _) in enumerate(held):
            with m.If(granted[k]):
                m.d.comb += splitter.i.payload.address.eq(request.address)
                m.d.comb += splitter.i.payload.beats.eq(request.beats)
            with m.If(grant):
                m.d.sync += last.eq(1 << k)
        return queues, held

    def _addresses(self, m: Module, splitter, sending, waiting) -> tuple[Signal, Signal]:
        """Addresses. Returns whether data is owed, and what is to tell that a burst's data has all been sent.

        `owed` counts the bursts whose address has been shown and whose data has not all been sent.
        """
        bus = self.bus
        m.d.comb += [
            splitter.room.eq(sending.i.ready & waiting.i.ready),
            sending.i.valid.eq(splitter.emit),
            sending.i.payload.eq(splitter.burst),
            waiting.i.valid.eq(splitter.emit),
            *(waiting.i.payload[name].eq(splitter.burst[name]) for name in ("final", "tag")),
            bus.awvalid.eq(splitter.o.valid),
            splitter.o.ready.eq(bus.awready),
            bus.awaddr.eq(splitter.o.payload.addr),
            bus.awlen.eq(splitter.o.payload.len),
            *address_constants("aw", bus, self.beat_bytes),
        ]
        shown = Signal()
        sent = Signal()
        seen = Signal()
        owed = Signal(range(2 * self.outstanding))
        owing = Signal()  # owed != 0, from a register
        m.d.comb += shown.eq(bus.awvalid & ~seen)
        m.d.sync += seen.eq(bus.awvalid & ~bus.awready)
        m.d.sync += owed.eq(owed + shown - sent)
        m.d.sync += owing.eq(shown | (owed[1:] != 0) | (owed[0] & ~sent))
        return owing, sent

    def _data(self, m: Module, sending, queues, owing, sent) -> None:
        """Data, burst by burst from the queue of its client."""
        bus, count = self.bus, len(self.clients)
        burst = sending.o.payload
        there = Signal()
        move = Signal()
        ends = Signal()
        position = Signal(8)
        picked = Signal(data_layout(self.beat_bytes))
        m.d.comb += [
            there.eq(Cat(burst.tag[k] & queues[k].o.valid for k in range(count)).any() & sending.o.valid & owing),
            move.eq(there & (~bus.wvalid | bus.wready)),
            ends.eq(position == burst.len),
            sent.eq(move & ends),
            sending.o.ready.eq(sent),
        ]
        with m.If(move):
            m.d.sync += position.eq(Mux(ends, 0, position + 1))
        for k, queue in enumerate(queues):
            # As `move`, which the queue's valid has part in, but for this client alone: it goes on to the enables of
            # the queue's memories.
            m.d.comb += queue.o.ready.eq(
                burst.tag[k] & queue.o.valid & sending.o.valid & owing & (~bus.wvalid | bus.wready))
            with m.If(burst.tag[k]):
                m.d.comb += picked.eq(queue.o.payload)
        beat = Signal(data_layout(self.beat_bytes), reset_less=True)
        wlast = Signal(reset_less=True)
        m.d.sync += bus.wvalid.eq(there | (bus.wvalid & ~bus.wready))
        with m.If(~bus.wvalid | bus.wready):
            m.d.sync += beat.eq(picked)
            m.d.sync += wlast.eq(ends)
        m.d.comb += bus.wdata.eq(beat.data)
        m.d.comb += bus.wlast.eq(wlast)
        m.d.comb += bus.wstrb.eq((1 << self.beat_bytes) - 1)

    def _responses(self, m: Module, waiting) -> None:
        """Responses, in the order of the addresses."""
        bus = self.bus
        bad = Signal()
        failed = Signal()
        answer = Signal()
        m.d.comb += [
            bus.bready.eq(1),
            answer.eq(bus.bvalid & waiting.o.valid),
            waiting.o.ready.eq(bus.bvalid),
            failed.eq(bad | bus.bresp[1]),
        ]
        with m.If(answer):
            m.d.sync += bad.eq(failed & ~waiting.o.payload.final)
        for k in range(len(self.clients)):
            told = answer & waiting.o.payload.final & waiting.o.payload.tag[k]
            m.d.sync += self.done[k].eq(told)
            m.d.sync += self.error[k].eq(told & failed)
