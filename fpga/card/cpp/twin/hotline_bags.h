// Pooled samples in the Hotline core: rows of each sample's bags, joined to vectors.
#pragma once

#include "hotline_dispatch.h"

namespace twin {

// What is known of a position: its row's join, whether it is pinned; the next position is joined to it; a vector begins
// behind it, first at `next`.
struct Joined {
    int join = 0, next = 0;
    bool pinned = false, follows = false, more = false;
};

// hw.hotline.joined.InOrder: contexts are marked in any order and gone on from in their own.
class InOrder {
  public:
    bool there = false;
    int context = 0;

    void step(int row_beats, bool rewind, int mark, bool steps) {
        const uint64_t before = marked;
        there = steps ? before >> behind & 1 && row_beats < 64 : before >> context & 1;
        if (steps) marked &= ~(1ull << context);
        if (mark >= 0) marked |= 1ull << mark;
        const int from = steps ? behind : context;
        if (steps) context = behind;
        behind = (from + row_beats) % 64;
        if (rewind) context = 0, behind = row_beats % 64;
    }

  private:
    uint64_t marked = 0;
    int behind = 0;
};

// hw.hotline.bags.BagReader
class BagReader {
  public:
    bool busy = false, has = false;         // has: a vector's beat stands there
    bool read_hot = false, multiplied = false, added = false;
    Place place{};
    Fifo<int64_t> cold{REQUESTS};           // ordinals of cold rows to ask for
    uint64_t hot_request = 0;               // of a hot row, its number
    bool asks_hot = false;
    std::vector<uint32_t> hot_words;        // hot rows as they were read, by sample, position and word

    BagReader(const HotlineShape& s, const SampleBeats& beats, const std::vector<uint32_t>& ordinals)
        : s(s), beats(beats), ordinals(ordinals) {}
    bool ready() const { return state == IDLE; }
    bool reads() const { return more && room; }
    int64_t batch() const { return now.batch; }
    bool takes_hot(bool comes) const { return there && row.kind == HOT && comes; }
    bool takes_cold(bool comes) const { return there && row.kind == COLD && comes; }
    // A beat of a hot row comes from the bus.
    void arrives(const uint32_t* words) {
        Target& to = targets[0];
        memcpy(&hot_words[size_t((to.at * row_beats + to.beat) * s.words)], words, size_t(4 * s.words));
        if (++to.beat == row_beats) targets.pop();
    }
    // What goes in and out in a cycle; *_taken: of what stands at its outputs.
    struct Ports {
        const Gathered* comes;
        bool place_taken, beat_comes;
        uint32_t beat;
        bool query_taken, hot_taken, hot_comes, cold_comes, o_taken;
    };
    void step(const Ports& p, const HotlineJob& job, const std::vector<HotlineJob>& jobs) {
        const bool loads = state == IDLE && p.comes, begin = looking == 1, free = !has || p.o_taken;
        const bool ends = out_beat == row_beats - 1, go = whole.there && free, leaves = go && ends;
        const bool goes = held && rows.ready() && hot.ready() && cold.ready(), advance = !held || goes;
        const Joined mine = joined[position];
        const bool fresh = waiting && span < CONTEXTS && advance, started = fresh && !mine.more;
        const bool over = asked.there && closes >> asked.context & 1, asked_there = asked.there;
        if (state == RUN && all_started && !inside && !has) state = IDLE, busy = false;
        if (state == WAIT) state = RUN;
        all_started = !samples_left;
        // From the reducer out.
        const Result result = reduced;
        whole.step(row_beats, begin, result.there ? result.context : -1, leaves);
        if (go) out_beat = ends ? 0 : out_beat + 1;
        reduce(p, leaves);
        if (free) has = go;
        inside += int(fresh) - int(leaves);
        ask(p, goes, advance);
        const int ended = start(advance, fresh, mine);
        asked.step(row_beats, begin, ended, asked_there);
        span += row_beats * (int(fresh) - int(asked_there));
        read(p, over, started);
        if (begin) {
            samples_left = some ? now.samples : 0;
            position = first_position, tail = 0, sample = 0;
            beats_left = some ? now.samples * sample_beats : 0;
            more = beats_left;
            place = {now.frame, now.start * sample_beats};
            hot_words.resize(size_t(now.samples * indices * row_beats * s.words));
            state = WAIT;
        } else if (started) {
            samples_left--, sample++;
            at = (at + sample_beats) % SAMPLES;
        }
        if (looking) looking--;
        if (loads) {
            now = *p.comes;
            look(job, jobs);
            state = LOOK, busy = true, looking = int(s.positions) + 1;
        }
    }

  private:
    enum State { IDLE, LOOK, WAIT, RUN };
    enum Kind { HOT, COLD, NO };
    enum Join { BEGIN, ADD, MULTIPLY };
    static constexpr int CONTEXTS = 64, SAMPLES = 64, TURNAROUND = 18;
    static constexpr uint32_t AHEAD = 256, REQUESTS = 16;
    struct Step {
        int position, at, context;
        int64_t sample;
    };
    struct Row {
        int kind, join, context;
        bool last;
        int64_t word, target;
    };
    struct Target {
        int64_t at, beat;
    };
    struct Result {
        bool there = false;     // a vector's last row is through
        int context = 0;
    };
    const HotlineShape s;
    const SampleBeats beats;
    const std::vector<uint32_t>& ordinals;
    State state = IDLE;
    Gathered now;
    int looking = 0;
    Joined joined[65];
    int64_t indices = 0, sample_beats = 1;
    int row_beats = 1, first_position = 0;
    bool some = false, all_started = false;
    // Samples at hand.
    uint32_t held_beats[SAMPLES] = {};
    int64_t beats_left = 0, samples_left = 0, waiting = 0, room = SAMPLES, part = 0, sample = 0;
    int write_at = 0;
    bool more = false, was_over = false;
    // Vectors that start.
    int position = 0, at = 0, tail = 0, span = 0;
    uint64_t closes = 0;
    Step next{};
    bool valid = false;
    Fifo<Step> active{CONTEXTS};
    InOrder asked, whole;
    // Rows that are asked for.
    Row reading{}, known{};
    bool read_there = false, held = false, shifted = false;
    Fifo<Row> rows{AHEAD};
    Fifo<Row> hot{REQUESTS};
    int64_t offset = 0;
    Ring<Target> targets{256};
    // Into the reducer.
    Row waits{}, row{};
    bool waits_there = false, blocked = false, there = false, left = false;
    int beat = 0, under_way = 0, out_beat = 0;
    uint64_t pending = 0;
    int64_t inside = 0;
    Delay<int> passing{TURNAROUND - 3 - 1};
    int passed = 0;         // the context of a row that is through, and one
    Delay<Result> reducing{TURNAROUND - 1};
    Result reduced;

    // What the address registers say, as the program has written them so far.
    void look(const HotlineJob& job, const std::vector<HotlineJob>& jobs) {
        indices = job.indices, sample_beats = job.sample_beats, row_beats = int(job.row_beats());
        for (Joined& each : joined) each = Joined();
        for (const HotlineJob* each = jobs.data(); each != &job; each++)
            if (each->opcode == S_WR)
                joined[each->position].join = int(each->join), joined[each->position].pinned = each->pinned;
        some = false;
        for (int k = int(indices) - 1; k >= 0; k--) {
            joined[k].follows = k + 1 < indices && joined[k + 1].join != BEGIN;
            joined[k].more = some, joined[k].next = first_position;
            if (joined[k].join == BEGIN) some = true, first_position = k;
        }
    }
    void read(const Ports& p, bool over, bool started) {
        const bool asks = reads() && p.place_taken, ends = p.beat_comes && part == sample_beats - 1;
        room += (was_over ? sample_beats : 0) - int(asks);
        was_over = over;
        waiting += int(ends) - int(started);
        if (asks) more = --beats_left, place.beat++;
        if (!p.beat_comes) return;
        held_beats[write_at] = p.beat;
        write_at = (write_at + 1) % SAMPLES;
        part = ends ? 0 : part + 1;
    }
    // The position that comes next; the context of a vector whose last position has been asked for, -1: of none.
    int start(bool advance, bool fresh, const Joined& mine) {
        if (!advance) {
            active.step(false, Step{}, false);
            return -1;
        }
        const bool follows = valid && joined[next.position].follows;
        const int ended = valid && !follows ? next.context : -1;
        const Step after{next.position + 1, next.at, next.context, next.sample}, oldest = active.o;
        valid = fresh || active.has;
        active.step(follows, after, !fresh && active.has);
        next = oldest;
        if (!fresh) return ended;
        next = {position, at, tail, sample};
        closes = (closes & ~(1ull << tail)) | uint64_t(!mine.more) << tail;
        tail = (tail + row_beats) % CONTEXTS;
        position = mine.more ? mine.next : first_position;
        return ended;
    }
    void ask(const Ports& p, bool goes, bool advance) {
        rows.step(goes, known, rows_taken);
        const bool move = !asks_hot || p.hot_taken, shift = !shifted || move;
        read_hot = asks_hot && p.hot_taken;
        if (read_hot) targets.push({asked_target, 0});
        if (move) asks_hot = shifted, hot_request = uint64_t(shifting.word), asked_target = shifting.target;
        if (shift) shifted = hot.has, shifting = hot.o;
        hot.step(goes && known.kind == HOT, known, shift && hot.has);
        cold.step(goes && known.kind == COLD, known.word, cold.has && p.query_taken);
        if (!advance) return;
        held = read_there;
        known = reading;
        read_there = valid;
        if (!valid) return;
        const Joined& about = joined[next.position];
        const uint32_t number = held_beats[(next.at + next.position / s.words) % SAMPLES];
        const size_t word_at = size_t(int64_t(number) * s.words + next.position % s.words);
        const uint32_t word = beats.words[word_at];
        const int kind = about.pinned || word == ~0u ? NO : word >> 31 ? HOT : COLD;
        reading = {kind, about.join, next.context, !about.follows,
                   kind == COLD ? int64_t(ordinals[word_at]) : int64_t(word & 0x7fffffff),
                   next.sample * indices + next.position};
    }
    int64_t asked_target = 0;
    Row shifting{};
    bool rows_taken = false;

    // The rows that have come, into the reducer.
    void reduce(const Ports& p, bool leaves) {
        const bool begins = waits.join == BEGIN;
        const bool come = row.kind == HOT ? p.hot_comes : row.kind == NO || p.cold_comes, take = there && come;
        const bool ends = beat == row_beats - 1, next_row = !there || (take && ends);
        const bool is_short = row_beats - 1 < TURNAROUND;
        const bool moves = waits_there && !blocked && next_row && !(begins && under_way >= CONTEXTS);
        const bool left_out = row.kind == NO && row.join != BEGIN;
        added = take && !left_out && row.join == ADD;
        multiplied = take && !left_out && row.join == MULTIPLY;
        reduced = reducing.step({take && ends && row.last, row.context});
        under_way += row_beats * (int(moves && begins) - int(left));
        left = leaves;
        const int through = passed;
        passed = passing.step(take && ends ? row.context + 1 : 0);
        const Row moved = waits;
        const uint64_t were = pending;
        if (through) pending &= ~(1ull << (through - 1));
        if (moves) pending |= 1ull << moved.context;
        rows_taken = rows.has && (!waits_there || moves);
        if (!waits_there || moves) {
            const Row coming = rows.o;
            blocked = is_short && rows.has &&
                      (were >> coming.context & 1 || (waits_there && coming.context == waits.context));
            waits_there = rows.has;
            waits = coming;
        } else {
            blocked = is_short && were >> waits.context & 1;
        }
        if (next_row) there = moves, row = moved;
        if (take) beat = ends ? 0 : beat + 1;
    }
};

}  // namespace twin
