"""Stages results on their way to memory and writes them as whole beats."""

from typing import NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import data_layout, request_layout
from hw.fp.sigmoid import Sigmoid
from hw.mlp.config import MlpConfig
from hw.mlp.records import store_layout
from hw.place import Part, place
from hw.stream.fifo import Fifo

LUT_DEPTH = 64      # as deep as one LUT memory; what is deeper goes to block memory
REQUESTS = 16       # that run ahead of their beats


def groups_of(config: MlpConfig) -> int:
    """Tiles that are staged whose beats are whole: `groups_per_beat` tiles of throughput mode share a place."""
    return max(2, config.staged_tiles // config.groups_per_beat)


def staged_tile_layout(config: MlpConfig) -> data.StructLayout:
    """A tile that is staged: where its beats go and what of it counts."""
    return data.StructLayout({
        "address": 32, "stride": 32, "latency": 1, "sigmoid": 1, "unit": range(config.units),
        "outs": range(config.units // config.groups_per_beat + 1), "half": range(config.groups_per_beat),
        "columns": range(config.columns),       # less one
        "count": range(config.samples + 1),     # of samples
    })


class _Rows(NamedTuple):
    """What `ResultWriter._rows` hands on."""

    tiles: Fifo
    incoming: Signal
    opened: Signal
    shares: Signal
    closing: Signal


class _Following(NamedTuple):
    """What `ResultWriter._following` hands on."""

    tile: Signal
    run: Signal
    total: Signal
    waiting: Signal
    ready: Signal
    load: Signal


class _Beats(NamedTuple):
    """What `ResultWriter._beats` hands on."""

    beat: Signal
    there: Signal
    move: Signal
    held: Signal
    requests: Fifo
    fetch: Signal
    address: Value


class ResultWriter(Part):
    """Stages rows of results of all units and writes whole beats, a tile at a time.

    memory[outputs + (out + lane * stride + b) * beat_bytes] = beat b of the tile's sample in `lane`

    Parameters  config: MlpConfig
    Members     i_valid, i          In  a row of results of every unit, see `store_layout`, no ready
                reserve             In  a pulse for each tile that will come, half by half
                room                Out  for a further tile besides those
                outputs             In  the outputs' address in bytes
                o_requests, o_data  Out(stream)  to a client of a WritePort
                idle                Out  nothing is inside
    Shapes      throughput mode: `half` + 1 tiles make one beat of `words` words for each lane (unit * rows + row)
                that exists, halves behind the last one +0. Latency mode: a tile makes `outs` beats for each of its
                rows, the lanes of `unit`; units behind the last one that counts are +0
    Timing      a beat per cycle, without a gap between tiles; 7 cycles from a tile's last row to its first beat, in
                latency mode `unit` more. Tiles leave in pairs, as a write to DRAM turns the bus round whatever its
                length: while another tile is on its way and half of the places are free, the first of a pair waits for
                it, and leaves at most 6 cycles after its last row. With the sigmoid INTERVAL cycles for each word that
                counts. `room` tells of a reservation in the next cycle, `idle` is a cycle late
    Handshake   a row is always taken: only tiles that were reserved while there was room come. A reserved tile counts
                as one that needs a place of its own until it is in. o_requests runs ahead of o_data by up to 17
                requests. A tile whose samples lie one behind the other is one request, else each sample is. o_data,
                both valids and room come from registers
    Numerics    golden.fp.fp32.sigmoid of the words that count, if the tile says so; what does not count is +0.
                Bit-exact
    Reset       drops everything
    Golden      golden.mlp.core; cycles: fpga/card/cpp/twin/mlp_writer.h          Tests  verif/mlp/test_result_writer.py
    """

    def __init__(self, config: MlpConfig):
        self.config = config
        super().__init__({
            "i_valid": In(1),
            "i": In(store_layout(config)),
            "reserve": In(1),
            "room": Out(1, init=1),
            "outputs": In(64),
            "o_requests": Out(stream.Signature(request_layout())),
            "o_data": Out(stream.Signature(data_layout(config.beat_bytes))),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        rows = self._rows(m)
        alone = Signal(init=1)      # no tile is on its way, or places are few
        following = self._following(m, rows.tiles, alone)
        beats = self._beats(m, following)
        words = self._stores(m, rows.incoming, beats.address, beats.fetch, beats.beat)
        sigmoid = self._write(m, platform, words, beats.beat, beats.there, beats.move)
        self._request(m, beats.requests)

        # -- Places: one for each tile that is reserved, then one for each beat that is or becomes whole.
        groups = groups_of(self.config)
        places = Signal(range(groups + 1), init=groups)
        after = Signal(range(groups + 1))
        left_place = Signal()
        shared = Signal()
        # tiles reserved and not in
        coming = Signal(range(groups + 1))
        still_coming = Signal(range(groups + 1))
        m.d.comb += still_coming.eq(coming + self.reserve - (self.i_valid & self.i.last))
        m.d.comb += after.eq(places + left_place + shared - self.reserve)
        m.d.sync += [
            left_place.eq(beats.move & beats.beat.final),
            shared.eq(rows.shares),
            places.eq(after),
            self.room.eq(after != 0),
            coming.eq(still_coming),
            alone.eq((still_coming == 0) | (after < groups // 2)),
            self.idle.eq(~(self.i_valid | rows.opened | rows.closing | rows.tiles.held | following.waiting | beats.held
                           | beats.there | sigmoid.busy | self.o_data.valid | beats.requests.held)),
        ]
        return m

    def _rows(self, m: Module) -> _Rows:
        """Rows come in; a tile that makes its beats whole is told of."""
        groups, samples = groups_of(self.config), self.config.samples
        i = self.i
        incoming = Signal(range(groups))
        opened = Signal()
        closes = Signal()
        shares = Signal()
        closed = Signal(staged_tile_layout(self.config), reset_less=True)
        closing = Signal()
        m.submodules.tiles = tiles = Fifo(staged_tile_layout(self.config), depth=groups)
        # Lanes that exist are the first ones; in latency mode all rows that come exist.
        ends = i.lanes & ~(i.lanes >> 1)
        number = Cat(Cat(ends[lane] for lane in range(samples) if (lane + 1) >> bit & 1).any()
                     for bit in range(len(closed.count)))
        idle_units = i.idle_units
        m.d.comb += [
            closes.eq(self.i_valid & i.last & (i.fills | i.latency)),
            shares.eq(self.i_valid & i.last & (i.half != 0) & ~i.latency),
            tiles.i.valid.eq(closing),
            tiles.i.payload.eq(closed),
        ]
        m.d.sync += [
            closing.eq(closes),
            closed.address.eq(i.out),
            *(closed[name].eq(i[name]) for name in ("stride", "latency", "sigmoid")),
            closed.unit.eq(Mux(i.latency, i.unit, 0)),
            closed.outs.eq(i.outs),
            # Units are a multiple of the halves: the last unit's half is what idle units leave of the last one.
            closed.half.eq(Mux(i.latency, ~idle_units, i.half)),
            closed.columns.eq(i.columns - 1),
            closed.count.eq(Mux(i.latency, i.row + 1, number)),
        ]
        with m.If(closes):
            m.d.sync += incoming.eq(incoming + 1)
        with m.If(self.i_valid):
            m.d.sync += opened.eq(~closes)
        return _Rows(tiles=tiles, incoming=incoming, opened=opened, shares=shares, closing=closing)

    def _following(self, m: Module, tiles, alone: Signal) -> _Following:
        """The next tile: where it begins, and whether it is one run of beats. alone: it waits for no other."""
        config, samples = self.config, self.config.samples
        following = Signal(staged_tile_layout(config), reset_less=True)
        run = Signal(reset_less=True)
        total = Signal(range(samples + 1), reset_less=True)
        waiting = Signal()
        ready = Signal()
        load = Signal()
        second = Signal()       # the one before was the first of a pair
        first = tiles.o.payload
        each = Mux(first.latency, first.outs, 1)
        m.d.comb += ready.eq(waiting & (following.unit == 0) & (second | tiles.o.valid | alone))
        with m.If(load):
            m.d.sync += second.eq(~second & tiles.o.valid)
        m.d.comb += tiles.o.ready.eq(~waiting | load)
        with m.If(~waiting | load):
            m.d.sync += [
                waiting.eq(tiles.o.valid),
                following.eq(first),
                following.outs.eq(each),
                # Runs have to fit into the port's queue.
                run.eq((first.stride == each) & (samples <= config.output_beats)),
                total.eq(Mux(first.latency, first.count[:(config.rows).bit_length()] * first.outs, first.count)),
            ]
        with m.Elif(following.unit != 0):
            m.d.sync += following.unit.eq(following.unit - 1)
            m.d.sync += following.address.eq(
                following.address + Cat(Const(0, config.rows.bit_length() - 1), following.stride))
        return _Following(tile=following, run=run, total=total, waiting=waiting, ready=ready, load=load)

    def _beats(self, m: Module, following: _Following) -> _Beats:
        """The tile under way, beat by beat: all of a sample's, sample by sample."""
        config, samples, bits = self.config, self.config.samples, (groups_of(self.config) - 1).bit_length()
        tile = Signal(staged_tile_layout(config), reset_less=True)
        held = Signal()
        whole = Signal(reset_less=True)
        left = Signal(range(samples + 1), reset_less=True)
        outgoing = Signal(bits)
        row = Signal(range(config.rows))
        unit = Signal(range(config.units))
        part = Signal(range(max(2, config.units // config.groups_per_beat)))
        # a request with this beat; the tile's last
        asks = Signal(reset_less=True)
        final = Signal(reset_less=True)
        sample_ends = Signal()
        go = Signal()
        move = Signal()
        m.submodules.requests = requests = Fifo(
            data.StructLayout({"address": 32, "beats": range(samples + 1)}), depth=REQUESTS)
        there = Signal()
        m.d.comb += [
            sample_ends.eq(~tile.latency | (part + 1 == tile.outs)),
            go.eq(held & (~there | move) & (requests.i.ready | ~asks)),
            following.load.eq(following.ready & (~held | (go & final))),
            requests.i.valid.eq(go & asks),
            requests.i.payload.address.eq(tile.address),
            requests.i.payload.beats.eq(Mux(whole, left, tile.outs)),
        ]
        with m.If(go):
            m.d.sync += [
                left.eq(left - 1),
                final.eq(left == 2),
                asks.eq(sample_ends & ~whole),
                part.eq(Mux(sample_ends, 0, part + 1)),
            ]
            with m.If(sample_ends):
                m.d.sync += tile.address.eq(tile.address + tile.stride)
                m.d.sync += row.eq(row + 1)
                with m.If(row == config.rows - 1):
                    m.d.sync += unit.eq(unit + 1)
            with m.If(final):
                m.d.sync += held.eq(0)
                m.d.sync += outgoing.eq(outgoing + 1)
        with m.If(following.load):
            m.d.sync += [
                held.eq(1),
                tile.eq(following.tile),
                whole.eq(following.run),
                left.eq(following.total),
                final.eq(following.total == 1),
                asks.eq(1),
                row.eq(0),
                unit.eq(0),
                part.eq(0),
            ]

        # -- Its beat out of the stores: half h from the unit that has it.
        beat_layout = data.StructLayout({
            "group": bits, "row": range(config.rows), "units": data.ArrayLayout(range(config.units),
                                                                                config.groups_per_beat),
            "counts": config.groups_per_beat, "last": range(config.words), "sigmoid": 1, "final": 1})
        beat = Signal(beat_layout, reset_less=True)
        # With one half per beat there is nothing to choose, and no signal of no bits in the Verilog.
        top = Mux(sample_ends, tile.half, config.groups_per_beat - 1) if config.groups_per_beat > 1 else Const(0, 0)
        with m.If(~there | move):
            m.d.sync += there.eq(go)
        with m.If(go):
            m.d.sync += [
                beat.group.eq(outgoing),
                beat.row.eq(row),
                beat.sigmoid.eq(tile.sigmoid),
                beat.final.eq(final),
                beat.counts.eq(Cat(Const(1, 1), *(top >= half for half in range(1, config.groups_per_beat)))),
                beat.last.eq(Cat(Mux(sample_ends, tile.columns, config.columns - 1)[:len(tile.columns)], top)),
                *(beat.units[half].eq(Mux(tile.latency, part * config.groups_per_beat + half, unit))
                  for half in range(config.groups_per_beat)),
            ]
        return _Beats(
            beat=beat, there=there, move=move, held=held, requests=requests, fetch=go, address=Cat(row, outgoing))

    def _stores(self, m: Module, incoming: Signal, address, fetch: Signal, beat) -> list:
        """The words of the beat in `beat`, which was asked for with `address` and `fetch` one cycle before."""
        config = self.config
        i = self.i
        depth = groups_of(config) * config.rows
        small = depth <= LUT_DEPTH
        groups_per_beat: list[list] = [[] for _ in range(config.groups_per_beat)]
        for unit in range(config.units):
            for half in range(config.groups_per_beat):
                store = memory.Memory(shape=32 * config.columns, depth=depth, init=[],
                                      attrs={"ram_style": "distributed" if small else "block"})
                m.submodules[f"store_{unit}_{half}"] = store
                write = store.write_port()
                m.d.comb += write.addr.eq(Cat(i.row, incoming))
                m.d.comb += write.data.eq(i.words[unit].as_value())
                # In latency mode beats lie across units.
                m.d.comb += write.en.eq(self.i_valid & Mux(i.latency, unit % config.groups_per_beat == half,
                                                           i.half == half))
                if small:
                    read = store.read_port(domain="comb")
                    m.d.comb += read.addr.eq(Cat(beat.row, beat.group))
                else:
                    read = store.read_port()
                    m.d.comb += read.addr.eq(address)
                    m.d.comb += read.en.eq(fetch)
                groups_per_beat[half].append(read.data)
        words = []
        for half, units in enumerate(groups_per_beat):
            picked = Signal(32 * config.columns, name=f"picked_{half}")
            m.d.comb += picked.eq(Array(units)[beat.units[half]])
            words += [picked[32 * k:32 * k + 32] for k in range(config.columns)]
        return words

    def _write(self, m: Module, platform, words, beat, there, move) -> Sigmoid:
        """A beat to the port, or word by word through the sigmoid, whose results gather in the same register."""
        config = self.config
        index_bits = (config.words - 1).bit_length()
        sigmoid = Sigmoid(tag_bits=index_bits + 1)
        place(m, platform, "sigmoid", sigmoid)
        at = Signal(index_bits)
        ends_here = Signal()
        steady = Signal()
        take = Signal()
        put = Signal()
        free = Signal()
        enters = Signal()
        result = sigmoid.o.payload
        m.d.comb += [
            free.eq(~self.o_data.valid | self.o_data.ready),
            # A beat's first word waits a cycle, and no two enter in a row: whether it is the last is then known.
            sigmoid.i.valid.eq(steady & beat.sigmoid),
            sigmoid.i.payload.word.eq(Array(words)[at]),
            sigmoid.i.payload.tag.eq(Cat(at, ends_here)),
            enters.eq(sigmoid.i.valid & sigmoid.i.ready),
            take.eq(there & ~beat.sigmoid & free & ~sigmoid.busy),
            move.eq(take | (enters & ends_here)),
            sigmoid.o.ready.eq(free),
            put.eq(sigmoid.o.valid & free),
        ]
        m.d.sync += steady.eq(there & ~move)
        m.d.sync += ends_here.eq(at == beat.last)
        with m.If(enters):
            m.d.sync += at.eq(Mux(ends_here, 0, at + 1))
        index = result.tag[:index_bits]
        m.d.sync += self.o_data.valid.eq(take | (put & result.tag[-1]) | (self.o_data.valid & ~self.o_data.ready))
        for k, word in enumerate(words):
            out = Signal(32, name=f"out_{k}", reset_less=True)
            with m.If(take | (put & (index == k))):
                m.d.sync += out.eq(Mux(take, word, result.word))
            # The first result clears the words that no other will fill.
            with m.If((take & ~beat.counts[k // config.columns]) | (put & (index == 0) if k else Const(0, 1))):
                m.d.sync += out.eq(0)
            m.d.comb += self.o_data.payload.data.word_select(k, 32).eq(out)
        return sigmoid

    def _request(self, m: Module, requests) -> None:
        """Requests to the port, by addresses in bytes."""
        shift = (self.config.beat_bytes - 1).bit_length()
        m.d.comb += [
            self.o_requests.valid.eq(requests.o.valid),
            requests.o.ready.eq(self.o_requests.ready),
            self.o_requests.payload.address.eq(self.outputs + Cat(Const(0, shift), requests.o.payload.address)),
            self.o_requests.payload.beats.eq(requests.o.payload.beats),
        ]
