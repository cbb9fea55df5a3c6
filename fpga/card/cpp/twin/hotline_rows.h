// Cold rows in the Hotline core: the embedding buffer and the updater.
#pragma once

#include "hotline_gather.h"

namespace twin {

// hw.hotline.embeddings.EmbeddingBuffer
class EmbeddingBuffer {
  public:
    static constexpr int CLIENTS = 2;
    bool landed = false, idle = false;
    Fifo<uint8_t> read[CLIENTS];        // beats
    Fifo<uint8_t> landing, slots[CLIENTS]{Fifo<uint8_t>(SLOTS), Fifo<uint8_t>(SLOTS)};

    EmbeddingBuffer(const HotlineShape& s, uint32_t row_read_beats)
        : read{Fifo<uint8_t>(depth(s)), Fifo<uint8_t>(depth(s))}, landing(row_read_beats), deep(int(depth(s))),
          arriving(size_t(2 + registers(s))) {
        room[0] = room[1] = deep;
    }
    bool data_ready(bool writes) const { return landing.has && !writes; }
    // lands: a row's slot comes; comes: a beat of it; writes: one is written over; asks: slots that come.
    void step(int64_t row_beats, bool lands, bool comes, bool writes, const bool* asks, const bool* beats_taken) {
        const bool take = comes && data_ready(writes), ends = take && beat == row_beats - 1;
        bool want[CLIENTS], some = false;
        for (int k = 0; k < CLIENTS; k++) {
            want[k] = held[k] && room[k];
            some |= slots[k].held() || held[k] || room[k] != deep;
        }
        idle = !(some || landing.held() || wrote || writes);
        wrote = take || writes;
        if (take) beat = ends ? 0 : beat + 1;
        landed = ends;
        landing.step(lands, 0, ends);
        const int turn = want[0] && (!want[1] || last == 1) ? 0 : want[1] ? 1 : -1;
        const int arrives = arriving.step(turn + 1) - 1;
        for (int k = 0; k < CLIENTS; k++) {
            const bool final = turn == k && at[k] == row_beats - 1, next = !held[k] || final;
            room[k] += int(beats_taken[k]) - int(turn == k);
            if (turn == k) at[k] = final ? 0 : at[k] + 1;
            if (next) held[k] = slots[k].has;
            slots[k].step(asks[k], 0, next && slots[k].has);
            read[k].step(arrives == k, 0, beats_taken[k]);
        }
        if (turn >= 0) last = turn;
    }

  private:
    static constexpr uint32_t SLOTS = 16;
    const int deep;
    int64_t beat = 0, at[CLIENTS] = {0, 0};
    int room[CLIENTS], last = 0;
    bool held[CLIENTS] = {false, false}, wrote = false;
    Delay<int> arriving;        // the client of a beat and one, 0: none comes

    static int64_t registers(const HotlineShape& s) { return std::max<int64_t>(1, s.embedding_beats / 32768); }
    static uint32_t depth(const HotlineShape& s) { return 2 + registers(s) + 3 < 16 ? 16 : 32; }
};

// A gathered mini-batch whose gradients are there; where they lie, in beats.
struct Update {
    int64_t batch, rows;
    uint64_t at;
};

// hw.hotline.update.Updater
class Updater {
  public:
    Requester requests;         // gradients
    Request write{};            // of a row
    Query query{};
    bool asks = false;          // `write` stands there
    bool updated = false, done = false, idle = false, multiplied = false, added = false, wrote = false;

    bool ready() const { return state == IDLE; }
    bool queries() const { return more && room; }
    bool reads() const { return answers.has && !releasing() && under_way.ready(); }
    const int64_t* releases() const { return answers.has && releasing() ? &answers.o.slot : nullptr; }
    bool takes(bool gradients, bool rows) const { return state == UPDATE && gradients && rows; }
    bool writes_row(bool rows) const { return writing() && rows; }
    bool result() const { return reduced; }
    // What goes in and out in a cycle; *_taken: of what stands at its outputs.
    struct Ports {
        const Update* comes;
        bool query_taken, queried;
        Queried answer;
        bool request_taken, gradients, rows, read_taken, release_taken, write_taken, write_room, written;
    };
    void step(const Ports& p, int64_t row_beats, uint64_t rows_at) {
        const bool updating = !writing() && !releasing(), take = takes(p.gradients, p.rows);
        const bool ends = reduced && beat == row_beats - 1, forward = reads() && p.read_taken;
        const bool released = releases() && p.release_taken, free = !asks || p.write_taken;
        const bool ended = updating ? ends : writing() ? p.written : released, final = !left;
        const bool begin = state == BEGIN, again = state == TURN || (state == WRITE && final);
        // Counts come a cycle late.
        multiplied = added = take;
        wrote = p.written;
        // The queue of rows, updated or written.
        const bool row = under_way.has;
        const Queried first = under_way.o;
        if (free) {
            asks = writing() && row;
            write = {rows_at + first.address, uint32_t(row_beats), 0};
        }
        under_way.step(forward, answers.o, row && (writing() ? free : ends));
        if (reduced) beat = ends ? 0 : beat + 1;
        reduced = reducing.step(take);
        // The list.
        const bool asked = queries() && p.query_taken, leaves = forward || released;
        room += int(leaves) - int(asked);
        answers.step(p.queried, p.answer, leaves);
        if (begin || again)
            to_ask = batch.rows, more = to_ask, query = {batch.batch, 0};
        else if (asked)
            to_ask--, more = to_ask, query.ordinal++;
        const int64_t were_left = left;
        if (begin || again)
            left = batch.rows;
        else if (ended)
            left--;
        requests.step(p.request_taken, begin);
        if (begin) requests.begin(batch.at, uint64_t(batch.rows * row_beats));
        sequence(p.comes, ends && were_left == 1, final);
    }

  private:
    enum State { IDLE, BEGIN, UPDATE, TURN, WRITE, RELEASE };
    static constexpr uint32_t ANSWERS = 16, ROWS = 64;
    static constexpr size_t REDUCER = 18;
    State state = IDLE;
    Update batch{};
    Fifo<Queried> answers{ANSWERS}, under_way{ROWS};
    Delay<bool> reducing{REDUCER - 1};
    int64_t to_ask = 0, left = 0, beat = 0;
    int room = ANSWERS;
    bool more = false, reduced = false;

    bool writing() const { return state == TURN || state == WRITE; }
    bool releasing() const { return state == RELEASE; }
    void sequence(const Update* comes, bool all_updated, bool final) {
        updated = done = idle = false;
        switch (state) {
        case IDLE:
            idle = !comes;
            if (comes) batch = *comes, state = BEGIN;
            break;
        case BEGIN:
            updated = done = !batch.rows;
            state = batch.rows ? UPDATE : IDLE;
            break;
        case UPDATE:
            if (all_updated) updated = true, state = TURN;
            break;
        case TURN:
            state = WRITE;
            break;
        case WRITE:
            if (final) state = RELEASE;
            break;
        case RELEASE:
            if (final) done = true, state = IDLE;
            break;
        }
    }
};

}  // namespace twin
