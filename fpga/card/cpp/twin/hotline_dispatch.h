// The Hotline core's dispatcher with its narrower, and the bell that it is told by.
#pragma once

#include "hotline_rows.h"

namespace twin {

enum HotlineOpcode { S_WR = 1, CLEAR, LEARN, TRAIN, SAVE, LOAD };

// An instruction as fpga.card.twin hands it over: fields of hw.isa.HOTLINE in this order, then the vectors of a pooled
// sample and the number of the first of its samples' beats in SampleBeats.
struct HotlineJob {
    int64_t opcode, position, join, pinned, pooled, half, count, source, sample_beats, indices, row_beats_log2, batch,
        mailbox_slots, mailbox_pitch, gradients_pitch, out, vectors, first_beat;

    int64_t row_beats() const { return int64_t(1) << row_beats_log2; }
};

// hw.hotline.narrower.Narrower
class Narrower {
  public:
    bool ready(bool half, bool o_ready) const { return half ? queue.room : o_ready; }
    bool has(bool half, bool i) const { return half ? queue.has : i; }
    void begin(int64_t beats) { left = beats, odd = false; }
    void step(bool half, bool i, bool o_taken) {
        const bool takes = half && i && queue.room, gives = packing.step(takes && (odd || left == 1));
        queue.step(gives, 0, half && o_taken);
        if (takes) left--, odd = !odd;
    }

  private:
    static constexpr size_t PACKER = 3;
    Fifo<uint8_t> queue{16, PACKER + 3};
    Delay<bool> packing{PACKER};
    int64_t left = 0;
    bool odd = false;
};

// hw.hotline.dispatch.Dispatcher
class Dispatcher {
  public:
    Place place{};
    Query query{};
    Request request{};
    Update update{};
    Gathered now;
    // What stands at its outputs.
    bool reads = false, data = false, requests = false, updates = false, bags = false;
    int64_t frees = -1;         // the frame that is free, if one is
    uint32_t dealt = 0;
    bool tell = false, waiting = false, hungry = false, stalls = false, idle = true;
    int told = 0;               // the kind that was dealt
    bool late = false;          // the GPU has taken too long, or claims too much

    Dispatcher(uint32_t output_beats, uint32_t writes_in_flight)
        : chunk(int(output_beats / 2)), ends(writes_in_flight) {}
    bool queries() const { return asks && !reads; }
    bool gathered_ready(bool start) const { return state == PICK && room && !pending && !start; }
    bool popular_ready(bool gathered, bool start) const {
        return state == PICK && room && !(gathered && !pending) && !start;
    }
    bool pools() const { return pooled; }
    // What goes in and out in a cycle; *_taken: of what stands at its outputs.
    struct Ports {
        const FramePart* popular;
        const Gathered* gathered;
        bool start, place_taken, beats, query_taken, rest, request_taken, data_taken, written, update_taken, updated,
            bags_taken, polled;
        uint32_t finished, timeout;
    };
    // Before the edge: which of the beats that stand there go on.
    void decide(const Ports& p) {
        const bool out = part >= ROWS && narrower.has(half, p.rest);
        const bool there = sending && (part == HEADER || (part == SAMPLES ? p.beats : out));
        closes = final && (part >= ROWS || (part == SAMPLES && !more));
        cuts = full || closes;
        able = (!data || p.data_taken) && (!cuts || ((!requests || p.request_taken) && ends.ready()));
        go = there && able;
        beats_taken = sending && able && part == SAMPLES;
        rest_ready = narrower.ready(half, sending && able && part >= ROWS);
    }
    bool beats_taken = false, rest_ready = false;
    // mailbox, gradients: where they lie, in beats.
    void step(const Ports& p, const HotlineJob& job, uint64_t mailbox, uint64_t gradients) {
        const bool some = p.popular || p.gathered, may_gather = p.gathered && !pending;
        const bool able_to = may_gather || p.popular, picking = state == PICK;
        const bool takes = picking && room && able_to && !p.start;
        waiting = picking && outstanding;
        hungry = picking && !some;
        stalls = picking && !room && able_to;
        idle = picking && !some && !p.start && empty && !pending;
        const int64_t ahead = this->ahead;
        this->ahead = number - seen;
        room = ahead < job.mailbox_slots;
        empty = ahead == 0;
        const bool launched = launch;
        hand_over(p, gradients);
        finish(p);
        read(p, launched);
        narrower.step(half, p.rest, go && part >= ROWS);
        if (launched) narrower.begin(rest_beats);
        const bool done = go && closes;
        out(p);
        sequence(p, job, may_gather, takes, done, mailbox);
    }

  private:
    enum State { PICK, DIVIDE, PLACE, MULTIPLY, SHIFT, SEND, END };
    enum Part { HEADER, SAMPLES, ROWS, VECTORS };
    struct End {
        bool last;
        int kind;
    };
    const int chunk;
    Fifo<End> ends;
    Narrower narrower;
    State state = PICK;
    Part part = HEADER;
    int64_t number = 0, seen = 0, claim = 0, ahead = 0, slot = 0, gradient_at = 0, pending_number = 0;
    int64_t sample_beats = 0, beats_left = 0, rows_left = 0, left = 0, rest_beats = 0;
    uint32_t patience = 0;      // cycles that the GPU has left
    int kind = 0, wait = 0, count = 0;
    uint64_t address = 0;
    bool pending = false, reached = false, sent = false, launch = false, room = false, empty = false;
    bool polled = false, judged = false, newer = false, outstanding = false, advanced = false;
    bool asks = false, sending = false, final = true, full = false, more = false, half = false, pooled = false;
    bool closes = false, cuts = false, able = false, go = false;

    // What the GPU has finished.
    void finish(const Ports& p) {
        const int64_t were = seen, claimed = claim;
        const bool moves = judged && newer && claimed <= dealt;
        late |= (judged && claimed > dealt) || (outstanding && !advanced && !patience);
        if (!outstanding || advanced)
            patience = p.timeout;
        else if (patience)
            patience--;
        advanced = moves;
        if (moves) seen = claimed;
        outstanding = were != dealt;
        newer = claimed > were;
        judged = polled, polled = p.polled, claim = p.finished;
        const bool ended = p.written && ends.has && ends.o.last;
        if (ended) told = ends.o.kind;
        dealt += ended;
        tell = ended;
    }
    // The gathered mini-batch that is with the GPU, until its updates are made.
    void hand_over(const Ports& p, uint64_t gradients) {
        const bool goes = pending && reached && !sent;
        reached = pending && seen > pending_number;
        if (p.update_taken) updates = false;
        if (goes) updates = sent = true;
        if (p.updated) pending = sent = false;
        if (launch && kind == GATHERED) {
            pending = true;
            pending_number = number - 1;
            update = {now.batch, now.rows, gradients + uint64_t(gradient_at)};
        }
    }
    void read(const Ports& p, bool launched) {
        const bool gone = queries() && p.query_taken;
        if (launched) {
            reads = true;
            place = {now.frame, now.start * per_sample};
            beats_left = sample_beats;
            asks = kind == GATHERED && !pooled && now.rows;
            query = {now.batch, 0};
            rows_left = now.rows;
        } else if (reads && p.place_taken) {
            place.beat++;
            reads = --beats_left;
        } else if (gone) {
            query.ordinal++;
            asks = --rows_left;
        }
    }
    void out(const Ports& p) {
        const bool was_final = final;
        ends.step(go && cuts, {closes, kind}, p.written && ends.has);
        if (!data || p.data_taken) data = go;
        if (p.request_taken) requests = false;
        if (p.bags_taken) bags = false;
        frees = -1;
        if (!sending) part = HEADER, final = true;
        if (!go) return;
        if (cuts) {
            requests = true;
            request = {address, uint32_t(count + 1), 0};
            address += uint64_t(chunk);
        }
        full = !cuts && count == chunk - 2;
        count = cuts ? 0 : count + 1;
        final = left == 2;
        left--;
        if (!was_final) return;
        if (part == HEADER) {
            part = SAMPLES;
            left = sample_beats;
        } else if (part == SAMPLES) {
            part = pooled ? VECTORS : ROWS;
            left = half ? (rest_beats + 1) / 2 : rest_beats;
            if (now.last && !pooled) frees = now.frame;
            bags = pooled;
        } else {
            if (part == VECTORS && now.last) frees = now.frame;
            return;
        }
        final = left == 1;
    }
    void sequence(const Ports& p, const HotlineJob& job, bool may_gather, bool takes, bool done, uint64_t mailbox) {
        launch = false;
        switch (state) {
        case PICK:
            wait = 0;
            address = mailbox + uint64_t(slot * job.mailbox_pitch);
            if (p.start) {
                slot = number % job.mailbox_slots;
                gradient_at = slot * job.gradients_pitch;
                state = DIVIDE;
            } else if (takes) {
                kind = may_gather ? GATHERED : POPULAR;
                now = may_gather ? *p.gathered : Gathered{p.popular->frame, 0, p.popular->samples, 0, 0, 0, true};
                number++;
                state = MULTIPLY;
            }
            break;
        case DIVIDE:        // the slot of the next mini-batch
            if (wait++ == NUMBER_BITS) wait = 0, state = PLACE;
            break;
        case PLACE:         // and where it is
            if (wait++ == FACTOR_BITS) state = PICK;
            break;
        case MULTIPLY:
            if (wait++ == FACTOR_BITS - 1) state = SHIFT;
            break;
        case SHIFT:
            half = job.half;
            pooled = job.pooled && kind == GATHERED;
            per_sample = job.sample_beats;
            rest_beats = (job.pooled ? job.vectors * now.samples : now.rows) << job.row_beats_log2;
            sample_beats = now.samples * job.sample_beats;
            launch = sending = true;
            more = now.rows;
            state = SEND;
            break;
        case SEND:
            if (done) sending = false, state = END;
            break;
        case END:
            slot = slot + 1 == job.mailbox_slots ? 0 : slot + 1;
            gradient_at = slot * job.gradients_pitch;
            state = PICK;
            break;
        }
    }

  public:
    enum Kind { POPULAR, GATHERED };

  private:
    static constexpr int NUMBER_BITS = 32, FACTOR_BITS = 7;
    int64_t per_sample = 1;
};

}  // namespace twin
