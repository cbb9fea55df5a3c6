"""One read master for several clients, each with a data queue of its own."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.axi.burst import BurstTracker, burst_layout
from hw.axi.bus import AXI4, address_constants, block_beats, check_beat_bytes, read_layout, request_layout
from hw.axi.reader import check_outstanding
from hw.place import Part
from hw.stream.fifo import Fifo, mask_of
from hw.stream.round_robin import round_robin


def check_clients(clients: tuple[int, ...], *, least: int = 1) -> None:
    """Raises ValueError unless it is a tuple of queue depths."""
    if not 1 <= len(clients) <= 8:
        raise ValueError(f"clients must be 1 to 8 queue depths, not {len(clients)}")
    for depth in clients:
        if type(depth) is not int or not least <= depth <= 4096 or depth & (depth - 1):
            raise ValueError(
                f"a client's queue must be a power of two from {least} to 4096 beats deep, not {depth!r}")


class ReadPort(Part):
    """Several clients' requests over one read master, in turns of a burst; each client's beats in its own queue.

    o[k] = memory[address, address + beats * beat_bytes) of client k's requests, in their order

    Parameters  beat_bytes: 4 to 64; clients: depth of each client's queue in beats, powers of two (1 is a register,
                for who asks now and then); outstanding: bursts in flight, a power of two from 2 to 1024; quick: of each
                client a mask of the data bits that decide how it takes them, see Fifo; urgent: numbers of clients for
                whom the others wait
    Members     i_requests[k]  In(stream)  {address, beats}
                o[k]           Out(stream)  {data, error, last}
                bus            Out(AXI4 without the write channels)
                stop           In
                idle           Out  nothing is under way on the bus or inside
                moved          Out  a beat came on the bus
                owes           Out  the bus owes an answer
    Shapes      a request of n beats is n beats of o[k], the last one marked
    Timing      3 cycles from a request to its address, 3 from the bus to o[k], 2 to a register; a burst in 4 cycles,
                so that bursts of 4 beats keep the port busy (a burst of a client whose queue has no room for two
                takes 5). A burst of client k has at most a quarter of its queue's beats and ends at their multiples.
                A client in want of full rate has a queue of twice the memory's latency. `idle`, `moved` and `owes` are
                a cycle late
    Handshake   a burst is asked for only when its client's queue has room for all of it: rready is always high and
                no client waits for another, but for the urgent ones, until all that those asked for is on its way:
                who takes an urgent client's beats must not wait for others. Turns go round among those who have
                something to ask and room for it.
                All outputs of the bus, i_requests[k].ready and o[k].valid come from registers
    Numerics    error: as Reader
    Reset       forgets everything: only for a bus that is reset with it. `stop` ends in a quiet bus: no more
                bursts, requests are taken and dropped, beats under way and in the queues are dropped; hold it
                until `idle`, after its first cycle. o[k].valid may fall under `stop`
    Raises      ValueError: beat_bytes, a depth or outstanding out of range, an urgent client that there is not
    Golden      the memory itself          Tests  verif/axi/test_port.py
    """

    def __init__(self, *, beat_bytes: int, clients: tuple[int, ...], outstanding: int, quick: tuple[int, ...] = (),
                 urgent: tuple[int, ...] = ()):
        check_beat_bytes(beat_bytes)
        check_clients(clients)
        check_outstanding(outstanding)
        if not set(urgent) <= set(range(len(clients))):
            raise ValueError(f"urgent must be numbers of the {len(clients)} clients, not {urgent!r}")
        self.beat_bytes = beat_bytes
        self.clients = tuple(clients)
        self.outstanding = outstanding
        self.quick = quick or (0,) * len(self.clients)
        self.urgent = urgent
        super().__init__({
            "i_requests": In(stream.Signature(request_layout())).array(len(clients)),
            "o": Out(stream.Signature(read_layout(beat_bytes))).array(len(clients)),
            "bus": Out(AXI4(8 * beat_bytes, writes=False)),
            "stop": In(1),
            "idle": Out(1),
            "moved": Out(1),
            "owes": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, count = self.bus, len(self.clients)
        beat_log2 = (self.beat_bytes - 1).bit_length()
        inside = (block_beats(self.beat_bytes) - 1).bit_length()
        # Beats less one of each client's largest burst: a quarter of its queue, so that several are under way.
        largest = [min(block_beats(self.beat_bytes), max(1, depth // 4)) - 1 for depth in self.clients]
        m.submodules.tracker = tracker = BurstTracker(outstanding=self.outstanding, tag_bits=count)

        # -- Turns. What is left of a client's request waits in a memory.
        run = data.StructLayout({"at": 64 - beat_log2, "less_one": 16})
        store = memory.Memory(shape=run, depth=max(2, count), init=[], attrs={"ram_style": "distributed"})
        m.submodules.store = store
        write, read = store.write_port(), store.read_port(domain="comb")
        active = Signal(count)  # the client's request is in the memory
        # whose turn it is, and whose it was, one-hot
        turn = Signal(count)
        last = Signal(count)
        number = Signal(range(max(2, count)))
        # where the turn's request is: at its client, in the memory
        fresh = Signal(count)
        stored = Signal()
        now = Signal(run, reset_less=True)
        cut = Signal(burst_layout(count), reset_less=True)
        rest = Signal(run, reset_less=True)
        issue = Signal()
        # Who has something to ask and room for it, from registers. Of the client whose burst is issued right now it
        # is known only whether something is left and whether its queue has room for two.
        room = Signal(count)
        ample = Signal(count)
        asking = Signal(count)
        granted = Signal(count)
        issuing = Mux(issue, turn, 0)
        valid = Cat(requests.valid for requests in self.i_requests)
        rivals = asking
        if self.urgent:
            presses = Signal()      # one of them has something to ask, though perhaps no room for it
            m.d.sync += presses.eq(Cat(active[k] | valid[k] for k in self.urgent).any())
            rivals = Signal(count)
            m.d.comb += rivals.eq(asking & Mux(presses, sum(1 << k for k in self.urgent), -1))
        m.d.comb += granted.eq(Cat(round_robin(list(rivals), last)))
        m.d.sync += asking.eq(
            (Mux(cut.final, active & ~issuing, active | issuing) | valid) & ((room & ~issuing) | ample))

        picked = Signal(run)
        first_at, first_beats = Value.cast(0), Value.cast(0)
        for k in range(count):
            request = self.i_requests[k].payload
            first_at = first_at | Mux(fresh[k], request.address[beat_log2:], 0)
            first_beats = first_beats | Mux(fresh[k], request.beats, 0)
        mask = Signal(inside)
        reach = Signal(inside)  # beats less one that the burst may have
        below = Signal(17)  # of the request's beats less one when the burst has taken its own; negative: none left
        m.d.comb += [
            picked.at.eq(first_at | Mux(stored, read.data.at, 0)),
            picked.less_one.eq(first_beats | Mux(stored, read.data.less_one, 0)),
            reach.eq(~now.at[:inside] & mask),
            below.eq(now.less_one - reach - 1),
            stored.eq(~fresh.any()),
            number.eq(Cat(Cat(turn[k] for k in range(count) if k >> bit & 1).any() for bit in range(len(number)))),
            read.addr.eq(number),
            write.addr.eq(number),
            write.data.eq(rest),
        ]
        with m.FSM() as steps:
            with m.State("PICK"):
                m.d.sync += turn.eq(granted)
                m.d.sync += fresh.eq(granted & ~active)
                with m.If(rivals.any() & ~self.stop):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += now.at.eq(picked.at)
                m.d.sync += now.less_one.eq(picked.less_one - ~stored)
                m.d.sync += last.eq(turn)
                m.d.sync += mask.eq(Cat(
                    Cat(turn[k] for k, most in enumerate(largest) if most >> bit & 1).any() for bit in range(inside)))
                m.d.comb += [self.i_requests[k].ready.eq(fresh[k]) for k in range(count)]
                m.next = "CUT"
            with m.State("CUT"):
                m.d.sync += [
                    cut.final.eq(below[16]),
                    cut.tag.eq(turn),
                    cut.len.eq(Mux(below[16], now.less_one, reach)),
                    rest.at.eq((now.at | mask) + 1),
                    rest.less_one.eq(below),
                ]
                m.next = "ISSUE"
            with m.State("ISSUE"):
                with m.If(self.stop):
                    m.next = "PICK"
                with m.Elif(~bus.arvalid & tracker.i.ready):
                    m.d.comb += issue.eq(1)
                    m.d.comb += write.en.eq(1)
                    m.d.sync += active.eq(Mux(cut.final, active & ~turn, active | turn))
                    m.next = "PICK"
        with m.If(self.stop):
            m.d.sync += active.eq(0)
            m.d.comb += [self.i_requests[k].ready.eq(1) for k in range(count)]

        self._address(m, tracker, issue, now.at, cut)
        arrived, beat = self._beats(m, tracker)
        for k in range(count):
            self._queue(m, k, arrived[k], beat)
            self._room(m, k, largest, issue & turn[k], cut.len, room, ample)
        m.d.sync += self.moved.eq(bus.rvalid)
        m.d.sync += self.owes.eq(bus.arvalid | tracker.held)
        m.d.sync += self.idle.eq(
            steps.ongoing("PICK") & ~(active.any() | bus.arvalid | tracker.held | arrived.any()))
        return m

    def _address(self, m: Module, tracker, issue, at, cut) -> None:
        """The burst's address to the bus, and what its beats are to the tracker."""
        bus, beat_log2 = self.bus, (self.beat_bytes - 1).bit_length()
        address = Signal(64 - beat_log2, reset_less=True)
        length = Signal(8, reset_less=True)
        with m.If(issue):
            m.d.sync += address.eq(at)
            m.d.sync += length.eq(cut.len)
        m.d.sync += bus.arvalid.eq(issue | (bus.arvalid & ~bus.arready))
        m.d.comb += [
            bus.araddr.eq(address << beat_log2),
            bus.arlen.eq(length),
            *address_constants("ar", bus, self.beat_bytes),
            tracker.i.valid.eq(issue),
            tracker.i.payload.eq(cut),
        ]

    def _beats(self, m: Module, tracker) -> tuple[Signal, Signal]:
        """Beats from the bus: which client's one has arrived, and the beat."""
        bus, count = self.bus, len(self.clients)
        arrived = Signal(count)
        beat = Signal(read_layout(self.beat_bytes), reset_less=True)
        m.d.comb += bus.rready.eq(1)
        m.d.comb += tracker.beat.eq(bus.rvalid)
        m.d.comb += tracker.rlast.eq(bus.rlast)
        m.d.sync += [
            arrived.eq(tracker.tag & (bus.rvalid & tracker.known).replicate(count)),
            beat.data.eq(bus.rdata),
            beat.error.eq(bus.rresp[1] | tracker.wrong),
            beat.last.eq(tracker.last),
        ]
        return arrived, beat

    def _queue(self, m: Module, k: int, arrived, beat) -> None:
        """The queue of client k, or its only register."""
        o, depth = self.o[k], self.clients[k]
        if depth == 1:
            only = Signal(read_layout(self.beat_bytes), reset_less=True, name=f"only_{k}")
            m.d.comb += o.payload.eq(only)
            m.d.sync += o.valid.eq((arrived | (o.valid & ~o.ready)) & ~self.stop)
            with m.If(arrived):
                m.d.sync += only.eq(beat)
        else:
            layout = read_layout(self.beat_bytes)
            queue = Fifo(layout, depth=depth, quick=mask_of(layout, "error", "last") | self.quick[k])
            m.submodules[f"queue_{k}"] = ResetInserter(self.stop)(queue)
            m.d.comb += [
                queue.i.valid.eq(arrived),
                queue.i.payload.eq(beat),
                o.valid.eq(queue.o.valid),
                o.payload.eq(queue.o.payload),
                queue.o.ready.eq(o.ready),
            ]

    def _room(self, m: Module, k: int, largest, issues, length, room, ample) -> None:
        """Whether client k's queue has room for its largest burst, and for two.

        `free` are the beats that may still be asked for. A burst takes length + 1 of them: adding the complement does
        that, and the beat that leaves is the carry.
        """
        o, depth = self.o[k], self.clients[k]
        bits = depth.bit_length()
        free = Signal(bits, init=depth)
        length_here = Signal(bits)
        taken = Signal(bits)
        m.d.comb += [
            length_here.eq(length),
            taken.eq(Mux(issues, ~length_here, 0)),
            room[k].eq(free[(largest[k] + 1).bit_length() - 1:].any()),
            ample[k].eq(free[(largest[k] + 1).bit_length():].any()),
        ]
        with m.If(self.stop):
            m.d.sync += free.eq(depth)
        with m.Else():
            m.d.sync += free.eq((Cat(1, free) + Cat(o.valid & o.ready, taken))[1:])
