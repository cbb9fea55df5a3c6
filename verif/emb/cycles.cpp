// Parts of the EMB core's cycle model, each by itself, for the benches of the units that they are held to: see
// verif.emb.cycles.
#include "../../fpga/card/cpp/twin/emb_post_pool.h"
#include "../bench/cycle_model.h"

using namespace twin;

namespace {
struct FrontOf : Part {
    std::vector<Job> jobs;
    uint64_t code, inputs;
    Front front;
    uint32_t stood = 0;                 // clients whose beats stood there
    bool quiet = false, calm = false;   // as in the core: nothing moved, nor will before something comes

    FrontOf(const Job* list, uint64_t count, uint64_t code, uint64_t inputs, const uint32_t* sizes)
        : jobs(list, list + count), code(code), inputs(inputs),
          front(jobs, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], false) {}
    void shows(int64_t* shown) const override {
        for (int k = 0; k < 4; k++, shown += 3) {
            const auto& requests = front.requests(k);
            give(shown, {requests.has, int64_t(requests.o.at), requests.o.beats});
        }
        const Tiers& tiers = front.tiers;
        give(shown, {tiers.dram.has, tiers.ssd.has, tiers.lookups.has, tiers.steps.has, int64_t(front.program.finished),
                     front.program.done});
    }
};

struct RowRequestsOf : Part, RowRequests {
    using RowRequests::RowRequests;
    void shows(int64_t* shown) const override { give(shown, {has, int64_t(o.at), o.beats, ring, full()}); }
};

struct JoinerOf : Part, WriteJoiner {
    using WriteJoiner::WriteJoiner;
    void shows(int64_t* shown) const override { give(shown, {has, int64_t(o.out), o.beats, o.bags, o.last}); }
};

// A row as the hardware has it, less one.
struct RowGiven {
    uint32_t offset, beats, piece, vector, form, last, copy, ring;

    Fetched row() const {
        return {offset, uint16_t(beats), uint16_t(piece), uint16_t(vector), uint8_t(form), last != 0, copy != 0, ring != 0};
    }
};

// A row of a tier in front of the arbiter, beats in full; offered: from which cycle on.
struct TierRow {
    int64_t offered, offset, beats, vector, last, copy;
};

// What the arbiter is shown in a cycle; returned: beats of DRAM's vectors, of the SSD's, copied rows.
struct ArbiterShown {
    int64_t ready, filled, returned[3];
};

// The rows of a tier one after the other.
struct Offered {
    std::vector<Job> jobs;
    std::vector<Row> rows;
    const TierRow* given;
    size_t next = 0;
    Fifo<Row> queue{1};

    Offered(const TierRow* list, uint64_t count) : jobs(count), given(list) {
        for (uint64_t k = 0; k < count; k++) {
            jobs[k].opcode = list[k].copy ? FILL : BAGS;
            jobs[k].stored = jobs[k].piece = list[k].beats;
            jobs[k].row_beats = list[k].vector;
            rows.push_back({&jobs[k], uint32_t(list[k].offset), list[k].last != 0});
        }
    }
    void show(int64_t cycle) {
        queue.has = next < rows.size() && given[next].offered <= cycle;
        if (queue.has) queue.o = rows[next];
    }
};

template <uint32_t LAP_BITS>
void run(const uint32_t* s, const RowGiven* rows, const int64_t* offered, uint64_t count, uint64_t beats, int64_t latency,
         int64_t* taken, int64_t* requested, int64_t* left) {
    RowFetch<LAP_BITS> fetch(s[0], s[1], s[2], s[3], s[4], s[5]);
    std::vector<int64_t> answers;
    size_t answered = 0;
    uint64_t entered = 0, out = 0;
    for (int64_t cycle = 0; out < beats; cycle++) {
        const RowRequests& requests = fetch.requests;
        if (fetch.out) left[out++] = cycle;
        const bool beat = answered < answers.size() && answers[answered] <= cycle;
        answered += beat;
        if (requests.has) {
            give(requested, {cycle, int64_t(requests.o.at), requests.o.beats, requests.ring});
            requested += 4;
            answers.insert(answers.end(), requests.o.beats, cycle + latency);
        }
        const bool enters = fetch.ready && entered < count && offered[entered] <= cycle;
        Fetched row{};
        if (enters) {
            row = rows[entered].row();
            taken[entered++] = cycle;
        }
        fetch.step(enters, row, beat, requests.has, false);
    }
}
}  // namespace

extern "C" {
Part* front_new(const Job* jobs, uint64_t count, uint64_t code, uint64_t inputs, const uint32_t* sizes) {
    return new FrontOf(jobs, count, code, inputs, sizes);
}
// requested, dealt: bits of the clients, and of dram, ssd, lookups and steps, that are taken; the same of the beats. A front
// that says that it is still is left alone until something comes to it.
uint32_t front_step(FrontOf* of, uint32_t starts, uint32_t requested, const uint32_t* const* data, uint32_t dealt,
                    uint32_t bags_done) {
    bool taken[4] = {};
    uint32_t stands = 0;
    for (uint32_t k = 0; k < 4; k++) stands |= uint32_t(data[k] != nullptr) << k;
    const bool comes = starts || requested || dealt || bags_done || stands != of->stood;
    of->stood = stands;
    if (of->calm && !comes) return 0;
    const bool moved = of->front.step(starts, of->code, of->inputs, requested, data, taken, bags_done, false,
                                     {(dealt & 1) != 0, (dealt & 2) != 0, (dealt & 4) != 0, (dealt & 8) != 0, false});
    const bool quiet = !comes && !moved && of->front.still();
    of->calm = quiet && of->quiet;
    of->quiet = quiet;
    return uint32_t(taken[0] | taken[1] << 1 | taken[2] << 2 | taken[3] << 3);
}
// Rows from an ideal memory: the cycles in which each is taken, each request stands there (with its beat, its length and
// whether it is of the ring), each beat leaves. sizes: the parameters of RowFetch.
void rows_run(const uint32_t* sizes, uint32_t lap_bits, const RowGiven* rows, const int64_t* offered, uint64_t count,
              uint64_t beats, int64_t latency, int64_t* taken, int64_t* requested, int64_t* left) {
    (lap_bits == 2 ? run<2> : run<8>)(sizes, rows, offered, count, beats, latency, taken, requested, left);
}
// The arbiter of the tiers: the cycles behind which each row stands at its output, and in which it waits for a row.
// sizes: its parameters, and beats of the ring.
void arbiter_run(const uint32_t* sizes, const TierRow* dram_rows, uint64_t drams, const TierRow* ssd_rows, uint64_t ssds,
                 const ArbiterShown* shown, uint64_t cycles, int64_t* dram_taken, int64_t* ssd_taken, int64_t* waiting) {
    Arbiter arbiter(sizes[0], sizes[1], sizes[2], sizes[3]);
    Offered dram(dram_rows, drams), ssd(ssd_rows, ssds);
    for (uint64_t cycle = 0; cycle < cycles; cycle++) {
        const ArbiterShown& now = shown[cycle];
        const bool moves = now.ready || !arbiter.has;
        waiting[cycle] = arbiter.waiting;
        dram.show(int64_t(cycle));
        ssd.show(int64_t(cycle));
        arbiter.decide(dram.queue, now.ready);
        dram.next += arbiter.dram_taken;
        ssd.next += arbiter.ssd_taken && ssd.queue.has;
        arbiter.step(dram.queue, ssd.queue, uint32_t(now.filled), now.returned[0], now.returned[1], now.returned[2]);
        if (moves && arbiter.has) *(arbiter.o.ring ? ssd_taken : dram_taken)++ = int64_t(cycle);
    }
}

Part* row_requests_new(int64_t stripe, int64_t banks, int64_t rows) {
    return new RowRequestsOf(uint32_t(stripe), uint32_t(banks), uint32_t(rows));
}
// The bank of the beat that comes back, -1 for none. row: that enters, null for none.
int32_t row_requests_step(RowRequestsOf* of, const RowGiven* row, int32_t taken, int32_t beat) {
    const int32_t bank = beat ? int32_t(of->lands()) : -1;
    of->step(row, row ? row->row() : Fetched{}, taken);
    return bank;
}

Part* joiner_new(int64_t block) { return new JoinerOf(uint32_t(block)); }
void joiner_step(JoinerOf* of, int32_t comes, uint32_t out, uint32_t beats, int32_t last) {
    of->step(comes, {out, beats, 1, last != 0});
}
}
