// The MLP core's array: tiles and slots in their order, and when results are where they go. hw.mlp.sequencer,
// hw.mlp.results.
#pragma once

#include "mlp_front.h"

namespace twin {

// Of golden.mlp.order.Tile what decides the time. writes: of a row to the rows' memory; count: samples; address: of
// sample 0, in beats; wait: units that its rows come behind; each: beats of a sample; words: of a sample's last beat.
struct MlpTile {
    const MlpJob* job;
    int64_t slots, need, live, writes, group, block, count, address, wait, each, words;
    bool first, final, triangle, half, fills;

    int64_t target() const { return triangle ? int64_t(TO_ROWS) : job->target; }
};

// The tiles of an instruction, one after the other.
class MlpTiles {
  public:
    bool more = false;

    explicit MlpTiles(const MlpShape& shape) : shape(shape) {}
    void begin(const MlpJob* item) {
        job = item;
        outer = middle = inner = block = 0;
        first = more = true;
    }
    MlpTile next() {
        MlpTile tile = job->opcode == INTERACT ? interact() : layer();
        tile.first = first;
        first = false;
        advance();
        tile.final = !more;
        return tile;
    }

  private:
    const MlpShape shape;
    const MlpJob* job = nullptr;
    // LAYER: pass over the samples, sample group, unit or part of the beat. INTERACT: sample group, row, group; block.
    int64_t outer = 0, middle = 0, inner = 0, block = 0;
    bool first = false;

    bool latency() const { return job->mode == Mode::LATENCY; }
    int64_t sample_groups() const { return ceil_div(job->count, shape.samples()); }
    int64_t wide() const { return latency() ? shape.units : shape.groups_per_beat(); }
    bool there() const {
        if (latency()) return (middle * shape.units + inner) * shape.rows < job->count;
        return outer * wide() + inner < job->groups;
    }
    void advance() {
        if (job->opcode == INTERACT) {
            if (++block * shape.columns() < std::min(job->features, (inner + 1) * shape.rows) - 1) return;
            block = 0;
            if (++inner * shape.rows < job->features) return;
            inner = 0;
            if (++middle < shape.rows && outer * shape.samples() + middle < job->count) return;
            middle = 0;
            more = ++outer < sample_groups();
            return;
        }
        do {
            if (++inner < wide()) continue;
            inner = 0;
            if (++middle < sample_groups()) continue;
            middle = 0;
            more = ++outer < ceil_div(job->groups, wide());
        } while (more && !there());
    }
    MlpTile layer() const {
        const int64_t group = outer * wide() + (latency() ? 0 : inner), halves = shape.groups_per_beat();
        const int64_t in_use = latency() ? std::min(shape.units, job->groups - group) : shape.units;
        const bool last = latency() ? in_use == job->groups - group : group == job->groups - 1;
        const int64_t before = middle * shape.samples(), rest = job->count - before;
        const int64_t live = std::min(shape.rows, latency() ? rest - inner * shape.rows : rest);
        const int64_t beat = latency() ? outer * (shape.units / halves) : outer, half = latency() ? 0 : inner;
        const bool on_chip = job->target == TO_ROWS || job->target == TO_FEATURE;
        MlpTile tile{};
        tile.job = job;
        tile.slots = job->steps;
        tile.need = latency() ? std::max(shape.rows, live * (shape.units / halves)) : shape.rows;
        tile.live = live;
        tile.writes = latency() && on_chip ? ceil_div(in_use, halves) : 1;
        tile.count = latency() ? live : std::min(shape.samples(), rest);
        tile.address = job->out + before * job->out_stride + beat;
        tile.wait = latency() ? inner : 0;
        tile.each = latency() ? ceil_div(in_use, halves) : 1;
        tile.words = (latency() ? (in_use - 1) % halves : half) * shape.columns()
                     + (last ? job->last_columns : shape.columns());
        tile.half = half != 0;
        tile.fills = latency() || half == halves - 1 || last;
        return tile;
    }
    MlpTile interact() const {
        bool twice = false;
        for (int64_t group = 2 * block; group < 2 * block + 2; group++)
            twice |= group < inner && (inner - group) % shape.pieces() == 0;
        MlpTile tile{};
        tile.job = job;
        tile.slots = job->row_beats * shape.pieces() * shape.parts() << twice;
        tile.need = shape.rows;
        tile.live = std::min(shape.rows, job->features - inner * shape.rows);
        tile.writes = 1;
        tile.group = inner, tile.block = block;
        tile.triangle = true;
        return tile;
    }
};

// One instruction arrives, one is prepared, one is cut into tiles; three tiles wait or are under way.
class MlpSequencer {
  public:
    enum Stall { NONE, FOR_ROWS, FOR_WEIGHTS, IN_FLIGHT, FOR_WRITE, FOR_PROGRAM, PADS };
    bool slot = false, ends = false, reserve = false, done = false;     // ends: the tile's last slot goes
    const MlpJob* slot_of = nullptr;                                    // with `slot`
    MlpTile tile{};                                                     // with its last slot
    Stall stall = NONE;

    explicit MlpSequencer(const MlpShape& shape) : tiles(shape) {}
    bool ready() const { return !next; }
    bool idle() const { return !next && !at_hand && !waiting && !first && !second && !now && !under_way; }
    void step(const MlpJob* job, const Done& so_far, bool written, bool room) {
        const bool was_idle = idle(), was_ready = ready();
        const Stall held = held_by(room);
        const bool go = held == NONE, begins = go && at == 0, end = go && at == now_tile.slots - 1;
        slot = go;
        slot_of = now_tile.job;
        ends = end;
        if (end) tile = now_tile;
        reserve = begins && now_tile.target() == TO_MEMORY;
        done = end && now_tile.final;
        stall = held;
        under_way += int(begins) - int(written);

        // Each place is filled when it is empty, the front also as it is left.
        const bool take = second && (!now || end), move = first && !second, emit = at_hand && settled && !first;
        const bool load = next && !wait && !waiting && (!at_hand || (emit && hand_tile.final));
        if (item) {
            rows_there = so_far.rows >= item->wait_rows;
            weights_there = so_far.weights >= item->wait_weights;
            layers_there = so_far.layers >= item->wait_layers;
        }
        if (go) at++;
        if (pads) pads--;
        if (begins && now_tile.first) waiting = false;
        if (end) now = false, at = 0;
        if (take) {
            now = true, second = false;
            now_tile = second_tile;
            pads = std::max<int64_t>(0, second_need - now_tile.slots);
        }
        if (was_idle) before = 0;
        if (move) {
            second = true;
            second_tile = first_tile;
            second_need = std::max(first_tile.need, 2 * before - first_tile.live);
            before = first_tile.live;
            first = false;
        }
        settled = at_hand && !emit;
        if (emit) {
            first = true;
            first_tile = hand_tile;
            at_hand = tiles.more;
            if (at_hand) hand_tile = tiles.next();
        }
        if (load) {
            tiles.begin(next);
            item = next;
            next = nullptr;
            hand_tile = tiles.next();
            at_hand = waiting = true;
        }
        if (next && wait) wait--;
        if (was_ready && job) next = job, wait = PREPARE;
    }

  private:
    static constexpr int PREPARE = 2;
    MlpTiles tiles;
    const MlpJob *next = nullptr, *item = nullptr;      // that arrived, that is cut into tiles
    int wait = 0;
    // Tiles on their way: to be emitted, behind, in front of the array, at the array.
    MlpTile hand_tile{}, first_tile{}, second_tile{}, now_tile{};
    bool at_hand = false, first = false, second = false, now = false;
    bool settled = false, waiting = false, rows_there = false, weights_there = false,
         layers_there = false;
    int64_t pads = 0, at = 0, before = 0, second_need = 0, under_way = 0;

    // What the tile at the front waits for before its first slot.
    Stall held_by(bool room) const {
        if (!now) return FOR_PROGRAM;
        if (at || pads) return pads ? PADS : NONE;
        if (now_tile.first && !rows_there) return FOR_ROWS;
        if (now_tile.first && !weights_there) return FOR_WEIGHTS;
        if (now_tile.first && !layers_there) return IN_FLIGHT;
        return now_tile.target() == TO_MEMORY && (!room || reserve) ? FOR_WRITE : NONE;
    }
};

// When the rows of a tile's results are where they go, known as soon as its last slot has gone.
class MlpResults {
  public:
    bool on_chip = false, partial = false, row = false, written = false;    // in this cycle; row: on its way to memory
    bool final = false;                                                     // of the tile that is written: its instruction's last
    MlpTile tile{};                                                         // of the row
    bool last = false;                                                      // the tile's

    MlpResults(const MlpShape& shape, int64_t latency) : shape(shape), latency(latency) {}
    // ended: comes with its last slot in this cycle, null for none.
    void step(const MlpTile* ended) {
        if (ended) follow(*ended);
        cycle++;
        on_chip = now(to_rows);
        partial = now(to_addends);
        written = !ends.empty() && ends.front().cycle == cycle;
        final = written && ends.pop().final;
        row = !stored.empty() && stored.front().cycle == cycle;
        if (row) {
            tile = stored.front().tile;
            last = stored.pop().last;
        }
    }

  private:
    static constexpr int64_t STORE = 16, ROWS = 17, WRITTEN = 18;   // see hw.mlp.results
    static constexpr size_t MOST = 1024;                            // events that are known ahead
    struct Stored {
        int64_t cycle;
        MlpTile tile;
        bool last;
    };
    struct Ended {
        int64_t cycle;
        bool final;
    };
    const MlpShape shape;
    int64_t latency, cycle = 0, free = 0;
    Ring<int64_t> to_rows{MOST}, to_addends{MOST};
    Ring<Ended> ends{MOST};
    Ring<Stored> stored{MOST};

    bool now(Ring<int64_t>& cycles) {
        const bool is = !cycles.empty() && cycles.front() == cycle;
        if (is) cycles.pop();
        return is;
    }
    void follow(const MlpTile& ended) {
        for (int64_t at = 0; at < ended.live; at++) {
            // As it comes, or once those before have had a cycle for each of their writes.
            const int64_t turn = std::max(cycle + latency + ended.live + at, free);
            free = turn + ended.writes;
            if (ended.target() == TO_PARTIAL) {
                to_addends.push(turn + STORE);
            } else if (ended.target() == TO_MEMORY) {
                stored.push({turn + STORE, ended, at == ended.live - 1});
            } else if (!ended.triangle || ended.block * shape.columns() < ended.group * shape.rows + at) {
                for (int64_t write = turn; write < free; write++) to_rows.push(write + ROWS);
            }
        }
        ends.push({free - 1 + WRITTEN, ended.final});
    }
};

}  // namespace twin
