// Parts of the EMB core's cycle model, each by itself, for the benches of the units that they are held to: see
// verif.emb.cycles.
#include "../../fpga/card/cpp/twin/emb_rows.h"

using namespace twin;

namespace {
struct FrontOf {
    std::vector<Job> jobs;
    uint64_t code, inputs;
    Front front;
    uint32_t stood = 0;                 // clients whose beats stood there
    bool quiet = false, calm = false;   // as in the core: nothing moved, nor will before something comes

    FrontOf(const Job* list, uint64_t count, uint64_t code, uint64_t inputs, const uint32_t* sizes)
        : jobs(list, list + count), code(code), inputs(inputs),
          front(jobs, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], false) {}
};

// What shows of a row fetch in a cycle.
struct RowsShown {
    uint64_t ready, requested, at, beats, ring, out;
};

// A row as the hardware has it, less one.
struct RowGiven {
    uint32_t offset, beats, piece, vector, form, last, copy, ring;
};

template <class Fetch>
void show(const Fetch& fetch, RowsShown& shown) {
    const Request& request = fetch.requests.o;
    shown = {fetch.ready, fetch.requests.has, request.at, request.beats, fetch.requests.ring, fetch.out};
}

template <uint32_t LAP_BITS>
void run(const uint32_t* s, const RowGiven* rows, const int64_t* offered, uint64_t count, uint64_t beats, int64_t latency,
         int64_t* taken, int64_t* requested, int64_t* left) {
    RowFetch<LAP_BITS> fetch(s[0], s[1], s[2], s[3], s[4], s[5]);
    std::vector<int64_t> answers;
    size_t answered = 0;
    uint64_t entered = 0, out = 0;
    RowsShown shown;
    for (int64_t cycle = 0; out < beats; cycle++) {
        show(fetch, shown);
        if (shown.out) left[out++] = cycle;
        const bool beat = answered < answers.size() && answers[answered] <= cycle;
        answered += beat;
        if (shown.requested) {
            for (int64_t value : {cycle, int64_t(shown.at), int64_t(shown.beats), int64_t(shown.ring)})
                *requested++ = value;
            answers.insert(answers.end(), shown.beats, cycle + latency);
        }
        const bool enters = shown.ready && entered < count && offered[entered] <= cycle;
        Fetched row{};
        if (enters) {
            const RowGiven& given = rows[entered];
            row = {given.offset, uint16_t(given.beats), uint16_t(given.piece), uint16_t(given.vector),
                   uint8_t(given.form), given.last != 0, given.copy != 0, given.ring != 0};
            taken[entered++] = cycle;
        }
        fetch.step(enters, row, beat, shown.requested, false);
    }
}
}  // namespace

extern "C" {
void* front_new(const Job* jobs, uint64_t count, uint64_t code, uint64_t inputs, const uint32_t* sizes) {
    return new FrontOf(jobs, count, code, inputs, sizes);
}
void front_delete(void* h) { delete static_cast<FrontOf*>(h); }
// Of each client whether a request stands there, its beat and its length; whether rows of DRAM and SSD, a lookup and a
// step do; instructions finished, and whether all are.
void front_shows(void* h, uint64_t* shown) {
    const Front& front = static_cast<FrontOf*>(h)->front;
    for (int k = 0; k < 4; k++)
        for (uint64_t value : {uint64_t(front.requests(k).has), front.requests(k).o.at, uint64_t(front.requests(k).o.beats)})
            *shown++ = value;
    const Tiers& tiers = front.tiers;
    const uint64_t rest[] = {tiers.dram.has, tiers.ssd.has, tiers.lookups.has, tiers.steps.has, front.program.finished,
                             front.program.done};
    for (uint64_t value : rest) *shown++ = value;
}
// requested, dealt: bits of the clients, and of dram, ssd, lookups and steps, that are taken; the same of the beats. A front
// that says that it is still is left alone until something comes to it.
uint32_t front_step(void* h, uint32_t starts, uint32_t requested, const uint32_t* const* data, uint32_t dealt,
                    uint32_t bags_done) {
    FrontOf& of = *static_cast<FrontOf*>(h);
    bool taken[4] = {};
    uint32_t stands = 0;
    for (uint32_t k = 0; k < 4; k++) stands |= uint32_t(data[k] != nullptr) << k;
    const bool comes = starts || requested || dealt || bags_done || stands != of.stood;
    of.stood = stands;
    if (of.calm && !comes) return 0;
    const bool moved = of.front.step(starts, of.code, of.inputs, requested, data, taken, bags_done, false,
                                     {(dealt & 1) != 0, (dealt & 2) != 0, (dealt & 4) != 0, (dealt & 8) != 0, false});
    const bool quiet = !comes && !moved && of.front.still();
    of.calm = quiet && of.quiet;
    of.quiet = quiet;
    return uint32_t(taken[0] | taken[1] << 1 | taken[2] << 2 | taken[3] << 3);
}
// Rows from an ideal memory: the cycles in which each is taken, each request stands there (with its beat, its length and
// whether it is of the ring), each beat leaves. sizes: the parameters of RowFetch.
void rows_run(const uint32_t* sizes, uint32_t lap_bits, const RowGiven* rows, const int64_t* offered, uint64_t count,
              uint64_t beats, int64_t latency, int64_t* taken, int64_t* requested, int64_t* left) {
    (lap_bits == 2 ? run<2> : run<8>)(sizes, rows, offered, count, beats, latency, taken, requested, left);
}
}
