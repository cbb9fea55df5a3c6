"""Sorts the accesses of a wave by their banks and says where each bank's lie."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.place import Part


def wave_layout(*, lanes: int, banks: int, payload: int, tag: int) -> data.StructLayout:
    """An access of each lane that has one. tag: bits that all of the wave's accesses have in common."""
    lane = data.StructLayout({"valid": 1, "bank": (banks - 1).bit_length(), "payload": payload})
    return data.StructLayout({"lanes": data.ArrayLayout(lane, lanes), "tag": tag})


def sorted_layout(*, lanes: int, payload: int) -> data.ArrayLayout:
    """The accesses of a wave in the order of (bank, lane); behind the last one anything."""
    return data.ArrayLayout(data.StructLayout({"lane": (lanes - 1).bit_length(), "payload": payload}), lanes)


def network(lanes: int) -> list[list[tuple[int, int]]]:
    """Batcher's odd-even merge sort: the pairs of places that each stage compares, for a power of two."""
    stages = []
    run = 1
    while run < lanes:
        reach = run
        while reach:
            stages.append([
                (low, low + reach) for j in range(reach % run, lanes - reach, 2 * reach) for low in range(j, j + reach)
                if low + reach < lanes and low // (2 * run) == (low + reach) // (2 * run)])
            reach //= 2
        run *= 2
    return stages


def _among(value: Value, allowed: range) -> Value:
    """Whether a value of few bits is among constants: one LUT, where a comparison would be a carry chain."""
    return Const(sum(1 << k for k in allowed), 1 << len(value)).bit_select(value, 1)


class BankSorter(Part):
    """Sorts the accesses of waves by bank, equal banks by lane, and counts them.

    o[p] = the p-th access by (bank, lane), runs.ends[b] = accesses with a bank <= b
                                                       Source: Batcher, odd-even merge sort, AFIPS 1968
    Parameters  lanes: a power of two; banks: a power of two; payload, tag: bits; columns: a bank with more accesses
                than this makes a wave heavy
    Members     i_valid, i        In  a wave
                o_valid, o        Out  its accesses in order
                runs_valid, runs  Out  {ends, heavy, tag} of the wave
    Timing      a wave per cycle; o is `latency` cycles behind i, runs `runs_latency` cycles
    Handshake   none; outputs come from registers, ends by one LUT
    Numerics    none
    Reset       drops what is inside
    Golden      golden.hotline.scheduler.order                          Tests  verif/hotline/test_sorter.py
    """

    def __init__(self, *, lanes: int, banks: int, payload: int, tag: int, columns: int):
        self.lanes, self.banks, self.payload, self.tag, self.columns = lanes, banks, payload, tag, columns
        self.lane_bits, self.bank_bits = (lanes - 1).bit_length(), (banks - 1).bit_length()
        self.stages = network(lanes)
        # Halving steps of the search for a run's end, and how many of them lie between registers.
        self.searches = -(-self.lane_bits // 4)
        super().__init__({
            "i_valid": In(1),
            "i": In(wave_layout(lanes=lanes, banks=banks, payload=payload, tag=tag)),
            "o_valid": Out(1),
            "o": Out(sorted_layout(lanes=lanes, payload=payload)),
            "runs_valid": Out(1),
            "runs": Out(data.StructLayout({
                "ends": data.ArrayLayout(range(lanes + 1), banks), "heavy": 1, "tag": tag})),
        })

    @property
    def latency(self) -> int:
        return 1 + len(self.stages)

    @property
    def runs_latency(self) -> int:
        return self.latency + 1 + self.searches

    def elaborate(self, platform):
        m = Module()
        lane_bits, bank_bits = self.lane_bits, self.bank_bits
        bits = lane_bits + bank_bits + 1    # of a key: lane, bank, not valid

        def register(name: str, width: int) -> Signal:
            return Signal(width, name=name, reset_less=True)

        # -- Keys and payloads through the network; the key is in the low bits.
        places = [register(f"enter_{p}", bits + self.payload) for p in range(self.lanes)]
        for p, place in enumerate(places):
            lane = self.i.lanes[p]
            m.d.sync += place.eq(Cat(Const(p, lane_bits), lane.bank, ~lane.valid, lane.payload))
        for number, stage in enumerate(self.stages):
            after = [register(f"stage{number}_{p}", bits + self.payload) for p in range(self.lanes)]
            idle = set(range(self.lanes))
            for low, high in stage:
                swap = Signal(name=f"swap{number}_{low}")
                m.d.comb += swap.eq(places[high][:bits] < places[low][:bits])
                m.d.sync += after[low].eq(Mux(swap, places[high], places[low]))
                m.d.sync += after[high].eq(Mux(swap, places[low], places[high]))
                idle -= {low, high}
            for p in idle:
                m.d.sync += after[p].eq(places[p])
            places = after
        going = Signal(self.runs_latency)   # bit k: a wave came k + 1 cycles ago
        m.d.sync += going.eq(Cat(self.i_valid, going))
        m.d.comb += self.o_valid.eq(going[self.latency - 1])
        m.d.comb += self.runs_valid.eq(going[-1])
        for p, place in enumerate(places):
            m.d.comb += self.o[p].lane.eq(place[:lane_bits])
            m.d.comb += self.o[p].payload.eq(place[bits:])

        # -- The end of each bank's run: where the sorted places stop having a bank up to this one.
        upto = []
        half = bank_bits // 2
        for b in range(self.banks):
            here = register(f"upto_{b}", self.lanes)
            for p, place in enumerate(places):
                bank, none = place[lane_bits:lane_bits + bank_bits], place[bits - 1]
                low, high = bank[:half], bank[half:]
                lowest = _among(low, range(b % (1 << half) + 1)) if half else Const(1, 1)
                m.d.sync += here[p].eq(~none & (_among(high, range(b >> half))
                                                | (_among(high, range(b >> half, (b >> half) + 1)) & lowest)))
            upto.append(here)
        # A run that is longer than the columns has equal banks that far apart.
        pairs = [(places[p][lane_bits:bits - 1], places[p + self.columns][lane_bits:bits])
                 for p in range(self.lanes - self.columns)]
        heavy = Signal(self.searches + 1)
        m.d.sync += heavy.eq(Cat(Cat(Cat(low, Const(0, 1)) == high for low, high in pairs).any() if pairs
                                 else Const(0, 1), heavy))
        m.d.comb += self.runs.heavy.eq(heavy[-1])
        per = -(-lane_bits // self.searches)
        for b, here in enumerate(upto):
            found: list[Value] = []     # bits of the end, highest first
            full, rest = here[-1], here[:-1]
            for step in range(lane_bits):
                middle = len(rest) // 2
                found.append(rest[middle])
                rest = Mux(rest[middle], rest[middle + 1:], rest[:middle]) if middle else Const(0, 0)
                if (step + 1) % per == 0 or step + 1 == lane_bits:
                    kept = register(f"found{step}_{b}", len(found) + 1 + len(rest))
                    m.d.sync += kept.eq(Cat(*found, full, rest))
                    found, full, rest = ([kept[k] for k in range(len(found))], kept[len(found)],
                                         kept[len(found) + 1:])
            m.d.comb += self.runs.ends[b].eq(Mux(full, self.lanes, Cat(*reversed(found))))
        tags = Array([register(f"tag_{k}", self.tag) for k in range(self.runs_latency)])
        m.d.sync += [
            tags[0].eq(self.i.tag),
            *(tags[k].eq(tags[k - 1]) for k in range(1, self.runs_latency)),
        ]
        m.d.comb += self.runs.tag.eq(tags[self.runs_latency - 1])
        return m
