// The cold rows of the Hotline core's mini-batches: gatherer and row table.
#pragma once

#include "hotline_frames.h"

namespace twin {

// A cold word on its way to the row table and back.
struct ColdWord {
    uint32_t beat;
    int lane;
    bool last;      // of its beat
};

struct Query {
    int64_t batch, ordinal;
};
struct Queried {
    int64_t slot;
    uint32_t address;
};

// hw.hotline.row_table.RowTable
class RowTable {
  public:
    static constexpr int CLIENTS = 3;
    bool found = false, fresh = false, freed = false, idle = false;
    ColdWord answer{};
    int64_t slot = 0, ordinal = 0, rows = 0;        // of the answer; different ones of the mini-batch so far
    uint32_t address = 0;
    std::vector<Fifo<Queried>> queried;

    RowTable(const HotlineShape& s, const SampleBeats& beats)
        : queried(CLIENTS, Fifo<Queried>(QUERIES)), s(s), beats(beats),
          bits(32 - __builtin_clz(uint32_t(s.row_slots - 1)) + 1), known_cycles(registers(2 * s.row_slots) + 1),
          held(size_t(s.row_slots)), heads(size_t(1) << bits, -1), lists(size_t(s.batches * s.row_slots)),
          reading(size_t(registers(s.row_slots) + 1)),
          turns(size_t(3 + registers(s.batches * s.row_slots) + registers(s.row_slots))) {
        const int tag_bits = int(s.domain_bits) - bits;
        for (int k = 0; k < bits; k++) {
            uint64_t marks = 1ull << k % tag_bits, lowest = 0;
            for (int step = 0; step < TAPS; step++)
                marks |= 1ull << (k * 7 + step * (k % 3 + 2) * 3 + step) % tag_bits;
            for (int step = 0; step < TAPS; step++) lowest |= marks & (~marks + 1), marks &= marks - 1;
            taps.push_back(lowest);
        }
    }
    bool ready(bool releases, bool room) const { return !next || starts(releases, room); }
    bool release_ready() const { return rests; }
    // The client whose query goes on in this cycle, -1: none does.
    int granted() const {
        for (int step = 1; step <= CLIENTS; step++)
            if (const int k = (last + step) % CLIENTS; asks[k] && places[k]) return k;
        return -1;
    }
    bool query_ready(int client) const { return !asks[client] || granted() == client; }
    // word: that stands there, or null; release: a slot that is given up, or null; queries: that stand there.
    void step(const ColdWord* word, bool room, bool opens, int64_t batch, const int64_t* release,
              const Query* const* queries, const bool* queried_taken) {
        const bool lookup = starts(release, room), released = rests && release, accepts = !next || lookup;
        idle = rests && !next && !word && !release && !in_use;
        query(queries, queried_taken);
        bool goes_on = false, comes = false, shares = false, moves = false;
        found = freed = false;
        if (act) {
            goes_on = !op.releases && passes;
            found = !op.releases && !passes;
            comes = found && !match, shares = found && match && !here;
            if (op.releases && held[size_t(op.slot)].life-- == 1) freed = true, moves = leave();
            ordinal = match && here ? held[size_t(op.slot)].ordinal : rows;
            if (comes) moves = true, enter();
            if (shares) held[size_t(op.slot)].life++;
            if (comes || shares) {
                held[size_t(op.slot)].batch = batch, held[size_t(op.slot)].ordinal = rows;
                lists[size_t(batch * s.row_slots + rows)] = op.slot;
            }
            if (found) fresh = !match, slot = op.slot, address = op.address, answer = op.word;
        }
        if (moves && op.bucket == ahead.bucket) known = -1;
        rows = opens ? 0 : rows + (comes || shares);
        if (goes_on) op.slot = held[size_t(op.slot)].next, op.first = false;
        if (act) rests = !goes_on;
        act = compare;
        if (compare) look(batch);
        compare = reading.step(lookup || released || goes_on);
        if (lookup || released) {
            rests = false;
            op = ahead;
            op.releases = released, op.first = true;
            op.slot = released ? *release : heads[ahead.bucket];
        }
        known = next ? std::min(known + 1, known_cycles) : 0;
        if (accepts) {
            next = word, known = 0;
            if (next) load(*word);
        }
    }

  private:
    static constexpr int TAPS = 5, QUERIES = 16;
    static constexpr int64_t ARRAY_ROWS = 32768, NONE = -1;
    struct Row {
        int64_t life = 0, batch = 0, ordinal = 0, next = NONE, before = NONE;
        uint32_t bucket = 0, address = 0;
        int64_t name = 0;
    };
    struct Operation {
        bool releases = false, first = false;
        int64_t slot = NONE, head = NONE, row = 0;      // looked at; the bucket's first, if it lives
        uint32_t bucket = 0, address = 0;
        ColdWord word{};
    };
    const HotlineShape s;
    const SampleBeats beats;
    const int bits, known_cycles;
    std::vector<uint64_t> taps;
    std::vector<Row> held;
    std::vector<int64_t> heads, lists, returned;
    int64_t given = 0, in_use = 0;
    Operation ahead, op;
    bool next = false, rests = true, compare = false, act = false, match = false, here = false, passes = false;
    int known = 0;
    Delay<bool> reading;
    // Queries: that ask, and places for their answers.
    bool asks[CLIENTS] = {};
    Query asked[CLIENTS]{};
    int places[CLIENTS] = {QUERIES, QUERIES, QUERIES}, last = CLIENTS - 1;
    struct Turn {
        int client = -1;
        Queried of{};
    };
    Delay<Turn> turns;

    static int registers(int64_t depth) { return int(std::max<int64_t>(1, depth / ARRAY_ROWS)); }
    bool starts(bool releases, bool room) const { return rests && !releases && known >= known_cycles && next && room; }
    void load(const ColdWord& word) {
        const int64_t at = int64_t(word.beat) * s.words + word.lane;
        ahead.word = word, ahead.row = beats.rows[at], ahead.address = beats.places[at];
        const uint64_t row = uint64_t(ahead.row), tag = row >> bits;
        ahead.bucket = 0;
        for (int k = 0; k < bits; k++)
            ahead.bucket |= uint32_t((row >> k ^ uint64_t(__builtin_parityll(tag & taps[size_t(k)]))) & 1) << k;
    }
    void look(int64_t batch) {
        const bool lives = op.slot != NONE && held[size_t(op.slot)].life;
        if (op.releases) {
            op.bucket = held[size_t(op.slot)].bucket;
            return;
        }
        const bool matches = lives && held[size_t(op.slot)].bucket == op.bucket;
        match = matches && held[size_t(op.slot)].name == op.row;
        here = matches && held[size_t(op.slot)].batch == batch;
        passes = matches && !match && held[size_t(op.slot)].next != NONE;
        if (op.first) op.head = matches ? op.slot : NONE;
    }
    // The row comes, before its bucket's first.
    void enter() {
        if (returned.empty())
            op.slot = given++;
        else
            op.slot = returned.back(), returned.pop_back();
        held[size_t(op.slot)] = {1, 0, 0, op.head, NONE, op.bucket, op.address, op.row};
        if (op.head != NONE) held[size_t(op.head)].before = op.slot;
        heads[op.bucket] = op.slot;
        in_use++;
    }
    // The row goes; whether its bucket has another first.
    bool leave() {
        const Row& row = held[size_t(op.slot)];
        if (row.before != NONE) held[size_t(row.before)].next = row.next;
        if (row.next != NONE) held[size_t(row.next)].before = row.before;
        const bool moves = row.before == NONE && row.next != NONE;
        if (moves) heads[op.bucket] = row.next;
        returned.push_back(op.slot);
        if (!--in_use) returned.clear(), given = 0;
        return moves;
    }
    void query(const Query* const* queries, const bool* taken) {
        const int client = granted();
        Turn turn;
        if (client >= 0) {
            const int64_t at = lists[size_t(asked[client].batch * s.row_slots + asked[client].ordinal)];
            turn = {client, {at, held[size_t(at)].address}};
            last = client;
        }
        const Turn done = turns.step(turn);
        for (int k = 0; k < CLIENTS; k++) {
            queried[size_t(k)].step(done.client == k, done.of, taken[k]);
            places[k] += int(taken[k]) - int(client == k);
            if (asks[k] && client != k) continue;
            asks[k] = queries[k];
            if (queries[k]) asked[k] = *queries[k];
        }
    }
};

// hw.hotline.gather.Gather
class Gather {
  public:
    static constexpr uint32_t WORDS = 16, REQUESTS = 16;
    RowTable table;
    Fifo<uint32_t> requests{REQUESTS};
    Fifo<int64_t> landing{REQUESTS};
    std::vector<uint32_t> ordinals;     // of the cold words, by beat and lane
    Gathered o;
    Place place{};
    bool has = false, asks = false, whole = false, idle = false;       // whole: a beat is written over

    Gather(const HotlineShape& s, const SampleBeats& beats, size_t words)
        : table(s, beats), ordinals(words), s(s), beats(beats), closed(uint32_t(s.batches)) {}
    void job(int64_t indices, int64_t per_sample, int64_t row_beats) {
        sample_beats = per_sample;
        most = std::min(s.row_slots, s.embedding_beats / row_beats) - indices;
    }
    bool rests() const { return state == REST; }
    bool beat_ready() const { return loads && (!held || finishes()); }
    bool fresh() const { return table.found && table.fresh; }
    bool shared() const { return table.found && !table.fresh; }
    // What goes in and out in a cycle.
    struct Ports {
        const FramePart* frame;         // that stands there
        bool place_taken, beat_there;
        uint32_t beat;
        bool request_taken, landing_taken, landed, o_taken, released;
        const int64_t* release;
        const Query* queries[RowTable::CLIENTS];
        bool queried_taken[RowTable::CLIENTS];
    };
    void step(const Ports& p) {
        const bool opens = state == OPEN && in_flight != s.batches, closes = state == CLOSE && drained;
        const bool takes = take(), ends = finishes(), load = p.beat_there && beat_ready();
        const bool hands_out = enough && !has, both = room[0] && room[1];
        const bool new_row = fresh(), shares = shared(), patches = answers.has && patching && !whole;
        const ColdWord word = lookups.o, answer = table.answer;
        const ColdWord* asked = lookups.has ? &word : nullptr;
        const bool word_taken = asked && table.ready(p.release, both);
        idle = state == REST && !p.frame && !in_flight && table.idle && !requests.held() && !landing.held();
        // Out: rows land in the order of the requests.
        enough = closed.has && !hands_out && arrived >= closed.o.news;
        if (hands_out)
            has = true, o = closed.o, arrived -= closed.o.news;
        else if (p.o_taken)
            has = false;
        arrived += p.landed;
        closed.step(closes, {frame.frame, start, samples, number, table.rows, news, !frame.samples}, hands_out);
        // The mini-batch, then the room that the next cycle sees.
        read(p);
        const int64_t batch = number;
        const bool sample_begins = sequence(p.frame, opens, closes);
        fits = claims <= most, full = table.rows > most;
        drained = !pending && !takes && !patching;
        claims += int(takes) - int(shares) - int(table.freed);
        pending += int(takes) - int(patches);
        news = opens ? 0 : news + new_row;
        in_flight += int(opens) - int(p.released);
        // Words, from the scan to the patch.
        const Found found = addressed.step(going);
        lookups.step(found.there, found.word, word_taken);
        const bool next = !patching || whole, has_beat = scanned.has;
        scanned.step(takes && !begun, 0, next && has_beat);
        scan(takes, ends, load, p.beat, sample_begins);
        if (next)
            patching = has_beat, whole = false;
        else if (patches && answers.o.last)
            whole = true;
        if (table.found) ordinals[size_t(int64_t(answer.beat) * s.words + answer.lane)] = uint32_t(table.ordinal);
        answers.step(table.found, answer, patches);
        requests.step(new_row, table.address, p.request_taken);
        landing.step(new_row, table.slot, p.landing_taken);
        const bool left[2] = {p.request_taken, p.landing_taken};
        for (int k = 0; k < 2; k++) {
            room[k] = waits[k] < int(REQUESTS) - 1;
            waits[k] += int(new_row) - int(left[k]);
        }
        table.step(asked, both, opens, batch, p.release, p.queries, p.queried_taken);
    }

  private:
    enum State { REST, OPEN, SAMPLE, SCAN, CLOSE };
    struct Found {
        bool there = false;
        ColdWord word{};
    };
    const HotlineShape s;
    const SampleBeats beats;
    int64_t sample_beats = 1, most = 0;
    Fifo<Gathered> closed;
    Fifo<uint8_t> scanned{WORDS};       // beats with cold words, until they are rewritten
    Fifo<ColdWord> lookups{WORDS}, answers{WORDS};
    // The mini-batch.
    State state = REST;
    FramePart frame{};                  // and the samples of it that are left
    int64_t start = 0, samples = 0, number = 0, in_flight = 0, news = 0, claims = 0, arrived = 0;
    bool more = false, enough = false, fits = true, full = false, drained = true;
    int64_t asked_beat = 0, asked_left = 0;
    // The beat that is scanned: its words that are left, the one that is picked.
    bool held = false, picked = false, begun = false, patching = false;
    uint32_t beat = 0;
    uint64_t rest = 0, pick = 0;
    int64_t loads = 0;
    int pending = 0, waits[2] = {0, 0};
    bool room[2] = {false, false};
    Found going;
    Delay<Found> addressed{4};

    bool take() const { return picked && pending < int(WORDS) && (begun || scanned.ready()); }
    bool finishes() const { return held && !rest && (!picked || take()); }
    // Asks for all beats of a frame.
    void read(const Ports& p) {
        if (state == REST && p.frame) {
            asks = true;
            place = {p.frame->frame, 0};
            asked_beat = 1, asked_left = p.frame->samples;
        } else if (asks && p.place_taken) {
            place.beat++;
            if (asked_beat++ == sample_beats) asked_beat = 1, asks = --asked_left;
        }
    }
    // Whether a sample begins.
    bool sequence(const FramePart* comes, bool opens, bool closes) {
        switch (state) {
        case REST:
            if (!comes) break;
            frame = *comes;
            start = 0;
            state = OPEN;
            break;
        case OPEN:
            if (!opens) break;
            samples = 0, more = false;
            state = SAMPLE;
            break;
        case SAMPLE:
            if (fits) {
                state = SCAN;
                return true;
            }
            if (more && drained && full) state = CLOSE;
            break;
        case SCAN:
            if (loads || held) break;
            samples++, more = true;
            state = --frame.samples ? SAMPLE : CLOSE;
            break;
        case CLOSE:
            if (!closes) break;
            number = (number + 1) % s.batches;
            start += samples;
            state = frame.samples ? OPEN : REST;
            break;
        }
        return false;
    }
    void scan(bool takes, bool ends, bool load, uint32_t next, bool sample_begins) {
        const bool none_left = !rest;
        going.there = takes;
        going.word = {beat, takes ? __builtin_ctzll(pick) : 0, none_left};
        if (!picked || takes) {
            picked = held && !none_left;
            pick = rest & (~rest + 1);
            rest &= ~pick;
        }
        begun = (begun || takes) && !ends;
        if (ends) held = false;
        if (load) held = true, loads--, rest = beats.cold[next], beat = next;
        if (sample_begins) loads = sample_beats;
    }
};

}  // namespace twin
