// The row path: the arbiter of the tiers, the coalescing window, requests bank by bank, copies. hw.emb.landing,
// hw.emb.rows, hw.emb.row_requests.
#pragma once

#include "emb_front.h"

namespace twin {

// A row on its way; its numbers as the hardware has them, less one.
struct Fetched {
    uint32_t offset;
    uint16_t beats, piece, vector;
    uint8_t form;
    bool last, copy, ring;
};

inline Fetched fetched(const Row& row, bool ring) {
    const Job& job = *row.job;
    const bool copy = job.opcode == FILL;
    const int64_t piece = ring ? job.stored : job.piece;
    return {row.offset, uint16_t(job.stored - 1), uint16_t(piece - 1), uint16_t(job.vector() - 1), uint8_t(job.form()),
            row.last, copy, ring};
}

// Which row is fetched next: rows of DRAM and rows that landed in the ring take turns.
class Arbiter {
  public:
    Fetched o{};
    bool has = false, waiting = false, dram_taken = false, ssd_taken = false;

    Arbiter(uint32_t longest, uint32_t partial_beats, uint32_t copy_beats, uint32_t ring_beats)
        : longest(int(longest)), ring(ring_beats), free{int(partial_beats), int(partial_beats), int(copy_beats)} {}
    // Before the edge: which row goes.
    void decide(const Fifo<Row>& dram, bool ready) {
        move = ready || !has;
        const bool dram_can = dram.has && (!dram.o.last || room[0]);
        const bool ssd_can = landed && (row.copy ? room[2] : !row.last || room[1]);
        ssd_goes = move && ssd_can && (ssd_turn || !dram_can);
        dram_taken = move && dram_can && !ssd_goes;
        ssd_taken = !held || ssd_goes;
    }
    // returned: a beat has left the queue of the tier's vectors, or a copied row the card.
    void step(const Fifo<Row>& dram, const Fifo<Row>& ssd, uint32_t filled, bool dram_returned, bool ssd_returned,
              bool copy_written) {
        const bool there = held && (filled - row.offset - row.beats - 1) % POSITIONS < ring;
        const bool stays = held && !ssd_goes;
        waiting = stays && !landed && !there;
        landed = stays && there;
        for (int k = 0; k < 3; k++) room[k] = free[k] >= 2 * longest;
        free[0] += dram_returned;
        free[1] += ssd_returned;
        if (copy_written) free[2] += copied;
        if (move) has = ssd_goes || dram_taken;
        if (ssd_goes) {
            if (row.copy)
                free[2] -= copied = row.beats + 1;
            else if (row.last)
                free[1] -= row.vector + 1;
            o = row;
            o.offset %= ring;
            ssd_turn = false;
        } else if (dram_taken) {
            o = fetched(dram.o, false);
            if (o.last) free[0] -= o.vector + 1;
            ssd_turn = true;
        }
        if (ssd_taken) {
            held = ssd.has;
            if (held) row = fetched(ssd.o, true);
        }
    }

  private:
    int longest;
    uint32_t ring;
    int free[3], copied = 0;        // of DRAM, of the SSD, of copies
    bool room[3] = {};
    Fetched row{};                  // of the SSD, until it has landed
    bool held = false, landed = false, ssd_turn = false, move = false, ssd_goes = false;
};

// Rows to request: a queue per bank, which take turns.
class RowRequests {
  public:
    Request o{};
    bool has = false, ring = false;

    RowRequests(uint32_t stripe, uint32_t banks, uint32_t rows)
        : stripe(stripe), banks(banks), turn(banks - 1), order(rows + 64) {
        for (uint32_t k = 0; k < banks; k++) queues.emplace_back(2 * CLOSE_AT);
    }
    bool full() const { return closed; }
    uint32_t bank_of(uint32_t offset) const { return offset % stripe * banks / stripe; }
    // A beat comes back: of which bank.
    uint32_t lands() {
        Landing& first = order.front();
        uint32_t bank = first.bank;
        if (!--first.left) order.pop();
        return bank;
    }
    void step(bool comes, const Fetched& item, bool taken) {
        const bool go = working && (!has || taken);
        bool last = false;
        if (taken) has = false;
        if (go) {
            uint32_t beats = row.piece + 1u;
            o = {row.offset + uint64_t(piece) * stripe, beats, 0};
            ring = row.ring;
            has = true;
            if (!piece) order.push({bank_of(row.offset), row.beats + 1u});
            last = ++piece * beats == row.beats + 1u;
        }
        const bool loads = !working || last, free = !some || loads;
        if (loads) {
            working = some;
            if (some) row = chosen, piece = 0;
        }
        if (free) {
            some = filled != 0;
            if (some) choose();
        }
        if (comes) {
            uint32_t bank = bank_of(item.offset);
            queues[bank].push(item);
            filled |= 1u << bank;
            if (queues[bank].size() == CLOSE_AT) closed++;
        }
    }

  private:
    static constexpr uint32_t CLOSE_AT = 12;
    struct Landing {
        uint32_t bank, left;
    };
    uint32_t stripe, banks, turn, piece = 0, filled = 0, closed = 0;
    std::vector<Ring<Fetched>> queues;
    Fetched chosen{}, row{};
    bool some = false, working = false;
    Ring<Landing> order;

    void choose() {
        uint32_t later = filled & ~((2u << turn) - 1);
        turn = uint32_t(__builtin_ctz(later ? later : filled));
        if (queues[turn].size() == CLOSE_AT) closed--;
        chosen = queues[turn].pop();
        if (queues[turn].empty()) filled &= ~(1u << turn);
    }
};

// Rows that are found in the window or requested, and leave in their order, a beat a cycle. LAP_BITS: of the turns of the
// ring after which all is forgotten.
template <uint32_t LAP_BITS = 8>
class RowFetch {
  public:
    static constexpr int DECODER = 14;
    RowRequests requests;
    bool ready = false;
    bool out = false;               // a beat leaves: of `row`, to the decoder or to the copies
    Fetched row{};
    uint64_t found_rows = 0, fetched_rows = 0;

    RowFetch(uint32_t window_beats, uint32_t sets, uint32_t longest, uint32_t rows, uint32_t stripe, uint32_t banks)
        : requests(stripe, banks, rows), size(window_beats / 4), size_bits(uint32_t(__builtin_ctz(size))), sets(sets), set_bits(uint32_t(__builtin_ctz(sets))),
          longest(longest), rows(rows), queue(rows), table(sets), arrived(banks), clear_until(sets) {}

    // comes: a row is taken, only if `ready`; data: a beat comes back; taken: the request is.
    void step(bool comes, const Fetched& item, bool data, bool taken, bool flush) {
        const bool near = gate && (ahead & (size - 1)) >= size - 2 * longest;
        const bool under_way = comes || stage[0].has || stage[1].has;
        ready = cycle >= clear_until && !near && !(slow && under_way) && waiting < rows && !requests.full() && !flush;
        const bool served = serve(data);
        slow = turns() % TURNS == TURNS - 1;
        const bool placed = stage[1].has;
        bool request = false, mark = false, found = false;
        uint32_t refund_now = 0;
        const Fetched place = stage[1].row;
        if (placed) {
            const uint64_t before = lap();
            found = find(place);
            if (found) {
                refund_now = place.beats + 1u;
                found_rows++;
            } else {
                request = true;
                head += place.beats + 1u;
            }
            mark = lap() != before;
            if (mark) {
                gate = true;
                if (turns() % TURNS == 0) clear();
            }
        }
        if (flush) {        // a lap further all that was entered is too old
            life++;
            flushes++;
            if (turns() / 4 % (TURNS / 4) == 0) clear();
        }
        requests.step(request, place, taken);
        queue.step(placed, {place, found, mark, requests.bank_of(place.offset)}, served);
        stage[1] = stage[0];
        stage[0] = {item, comes};
        waiting += uint32_t(comes) - uint32_t(served);
        ahead += (comes ? item.beats + 1u : 0) - refund;
        refund = refund_now;
        cycle++;
    }

  private:
    static constexpr uint32_t TURNS = 4 * ((1u << LAP_BITS) - 1);
    struct Entry {
        uint32_t offset[2], beats[2], piece[2];
        uint64_t began[2], life[2];     // life: of the table in which it was entered
    };
    struct Stage {
        Fetched row;
        bool has = false;
    };
    struct Delivery {
        Fetched row;
        bool found, mark;
        uint32_t bank;
    };
    uint32_t size, size_bits, sets, set_bits, longest, rows;
    Fifo<Delivery> queue;
    std::vector<Entry> table;
    std::vector<uint32_t> arrived;      // beats that have not been delivered yet, by bank
    Stage stage[2];
    uint64_t head = 0, ahead = 0, cycle = 0, clear_until, life = 1, flushes = 0;
    uint32_t refund = 0, waiting = 0, beat = 0;
    int decoding = 0;                   // cycles before FP32 may follow another format
    bool gate = false, slow = false, read = false;
    Fetched read_row{};                 // with `read`: a beat of it is read from the ring

    static bool ends_beat(uint32_t beat, uint8_t form) {
        return (beat + FORM_HEADER[form] + 1) * FORM_BITS[form] % 32 == 0;
    }
    // The first row of the queue gives a beat if it is there, which leaves a cycle later; whether it was the row's last.
    bool serve(bool data) {
        const Delivery& first = queue.o;
        const bool plain = !queue.has || first.row.form == FLOAT32;
        out = read;
        if (out) row = read_row;
        read = queue.has && (first.found || arrived[first.bank]) && !(plain && decoding);
        decoding = read && !plain ? DECODER : decoding ? decoding - 1 : 0;
        const bool served = read && beat == first.row.vector;
        if (data) arrived[requests.lands()]++;
        if (!read) return false;
        read_row = first.row;
        if (!first.found && (served || ends_beat(beat, read_row.form))) arrived[first.bank]--;
        beat = served ? 0 : beat + 1;
        if (served && first.mark) gate = false;
        return served;
    }
    // Quarters of the ring that have been entered, with those that flushes passed over.
    uint64_t turns() const { return lap() + 4 * flushes; }
    uint64_t lap() const { return head >> size_bits; }
    void clear() {
        life++;
        clear_until = cycle + 1 + sets;
    }
    uint32_t set_of(uint32_t offset) const {
        uint32_t value = 0;
        for (; offset; offset >>= set_bits) value ^= offset & (sets - 1);
        return value;
    }
    // Whether the row lies in the ring; if not, it is entered.
    bool find(const Fetched& item) {
        if (item.ring || item.copy) return false;
        const uint64_t now = lap();
        Entry& e = table[set_of(item.offset)];
        for (int way = 0; way < 2; way++)
            if (e.life[way] == life && e.offset[way] == item.offset && e.beats[way] == item.beats &&
                e.piece[way] == item.piece && now - e.began[way] <= 2)
                return true;
        e.offset[1] = e.offset[0], e.beats[1] = e.beats[0], e.piece[1] = e.piece[0];
        e.began[1] = e.began[0], e.life[1] = e.life[0];
        e.offset[0] = item.offset, e.beats[0] = item.beats, e.piece[0] = item.piece, e.began[0] = now, e.life[0] = life;
        return false;
    }
};

// Where rows of a FILL are copied to, piece after piece, and when a row is there.
class Copies {
  public:
    Request o{};
    bool has = false;

    // Whether the row at the queue is taken.
    bool takes(bool fill, const Row& row, bool taken) const {
        return fill && (!has || taken) && (sent + 1) * row.job->piece == row.job->stored;
    }
    // written: a piece is; whether a row is with it.
    bool written(bool piece) {
        if (!piece || ++back * job->piece != job->stored) return false;
        back = 0;
        return true;
    }
    void step(bool fill, const Row& row, bool taken, uint64_t rows, uint32_t stripe_beats) {
        if (has && !taken) return;
        has = fill;
        if (!fill) return;
        job = row.job;
        o = {rows + row.offset + uint64_t(sent) * stripe_beats, uint32_t(job->piece), 0};
        if (++sent * job->piece == job->stored) sent = 0;
    }

  private:
    const Job* job = nullptr;
    int64_t sent = 0, back = 0;
};

}  // namespace twin
