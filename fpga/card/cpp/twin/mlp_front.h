// The front of the MLP core: program and loaders. A run of the twin has no faults; those that a unit's bench brings about
// are `bad` beats and refused instructions.
#pragma once

#include "layouts.h"
#include "ports.h"

namespace twin {

using namespace mlp;
using MlpJob = Job;

struct MlpShape : ShapeFields {
    int64_t columns() const { return 2 * rows; }
    int64_t samples() const { return units * rows; }
    int64_t pieces() const { return words / std::max<int64_t>(2, width); }
    int64_t parts() const { return std::max<int64_t>(2, width) / width; }
    int64_t groups_per_beat() const { return words / columns(); }
    int64_t line_beats() const { return columns() * width / words; }
};

inline int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Loads and layers that are done in this run.
struct Done {
    int64_t rows = 0, weights = 0, layers = 0;
};

// One instruction at a time, each to its engine's queue.
class MlpProgram {
  public:
    enum Engine { ROWS, PARAMETERS, LAYERS, ENGINES };
    Requester requests;
    Fifo<const MlpJob*> queues[ENGINES]{Fifo<const MlpJob*>(QUEUE), Fifo<const MlpJob*>(QUEUE),
                                        Fifo<const MlpJob*>(QUEUE)};
    // Of an instruction, where its checks find it; the last two when it has been handed on.
    enum Refusal { ALLOWED_ALL, MALFORMED, OUT_OF_BOUNDS, OVERLAPS, TOO_EARLY };
    bool done = false, error = false;
    uint64_t number = 0;        // instructions that have been handed on
    int64_t late = -1;          // the one that is refused when it has been

    MlpProgram(const std::vector<MlpJob>& jobs, const MlpShape& shape)
        : all(jobs), shape(shape), beats(shape.words < 16 ? 16 / shape.words : 1) {}
    bool takes(bool data) const { return state == NEXT && number < count && data && !error; }
    void start(uint64_t program) { start(program, all.size()); }
    void start(uint64_t program, uint64_t instructions) {
        requests.step(false, true);
        requests.begin(program, instructions * uint64_t(beats));
        if (state != IDLE) return;
        for (auto& of_engine : unwaited) std::fill(std::begin(of_engine), std::end(of_engine), 0);
        std::fill(std::begin(before), std::end(before), 0);
        count = instructions;
        state = NEXT;
    }
    // data: a beat stands at the client, bad: with an error; taken: of the three queues; refusal: of the instruction.
    void step(bool data, bool request_taken, const bool* taken, bool bad = false, Refusal refusal = ALLOWED_ALL) {
        requests.step(request_taken, false);
        bool push[ENGINES] = {}, held = false;
        for (const auto& queue : queues) held |= queue.held();
        const MlpJob* item = number < all.size() ? &all[number] : nullptr;
        // The lines of the one that was handed on, beside those of the ones that it does not wait for.
        const bool begins = state == ALLOWED && wait == 3, known = ages >> (LINES - 1) & 1;
        const bool compares = handed && (known || recorded), settling = handed || left_over || settles;
        const bool blocked = handed || left_over || settles > 1, ends = endings >> (FOUND - 1) & 1;
        bool sent = false, asks = left_over == 1, works = left_over;
        ages = (ages << 1 | begins) & ((1u << LINES) - 1);
        recorded = (known || recorded) && !compares;
        if (left_over) left_over--;
        if (compares) {
            left_over = pending(*compared);
            works = outcome == OVERLAPS;
            asks = works && !left_over;
        }
        settles = works ? FOUND : std::max(0, settles - 1);
        endings = (endings << 1 | asks) & ((1u << FOUND) - 1);
        handed &= !compares;
        switch (state) {
        case IDLE:
            break;
        case NEXT:
            if (number == count || error) {
                state = DRAIN;
            } else if (data && bad) {
                refuse();
            } else if (data && ++got == beats) {
                got = 0;
                wait = 3;
                state = ALLOWED;
            }
            break;
        case ALLOWED:
            if (--wait) break;
            if (refusal == MALFORMED) {
                wait = 1;
                if (error || !settling) refuse();
                break;
            }
            sums(*item);
            state = left ? LOAD : SEND;
            break;
        case LOAD:
            wait = bits[--left];
            state = ADD;
            break;
        case ADD:
            if (wait)
                wait--;
            else
                state = left ? LOAD : COMPARE;
            break;
        case COMPARE:
            if (refusal != OUT_OF_BOUNDS)
                state = SEND;
            else if (error || !settling)
                refuse();
            break;
        case SEND: {
            const Engine engine = engine_of(*item);
            if (blocked || !queues[engine].ready()) break;
            push[engine] = sent = true;
            number++;
            state = NEXT;
            break;
        }
        case DRAIN:
            if (!held && !settling) done = true, state = error ? DRAIN : IDLE;
            break;
        }
        if (ends && outcome >= OVERLAPS && !error) error = true, late = compared - all.data();
        if (sent) hand_on(*item, refusal);
        for (int k = 0; k < ENGINES; k++) queues[k].step(push[k], item, taken[k]);
    }

  private:
    static constexpr uint32_t QUEUE = 32;
    static constexpr int LINES = 7;         // cycles until it is known which ones an instruction uses: hw.mlp.stretches
    static constexpr int FOUND = 4;         // from the last one that is compared: hw.mlp.waits
    static constexpr int64_t FAR = WINDOW + 1;
    enum State { IDLE, NEXT, ALLOWED, LOAD, ADD, COMPARE, SEND, DRAIN };
    const std::vector<MlpJob>& all;
    const MlpShape shape;
    int64_t beats, got = 0;
    uint64_t count = 0;         // instructions
    // hw.mlp.waits: one that is handed on and compared, and how that ends; instructions that are left to compare it with;
    // bit k: k + 1 cycles ago one came, a comparison ended.
    const MlpJob* compared = nullptr;
    Refusal outcome = ALLOWED_ALL;
    bool handed = false, recorded = false;
    int64_t left_over = 0;
    int settles = 0;
    uint32_t ages = 0, endings = 0;
    // unwaited: how many of another engine, or of its own, the last one of an engine may not find done.
    int64_t unwaited[ENGINES][ENGINES] = {}, before[ENGINES] = {};
    int wait = 0, left = 0, bits[3] = {};       // of the multipliers of the sums that are left, the next one last
    State state = IDLE;

    void refuse() {
        error = true;
        state = DRAIN;
    }
    void hand_on(const MlpJob& item, Refusal refusal) {
        const Engine own = engine_of(item);
        const int64_t waits[ENGINES] = {item.wait_rows, item.wait_weights, item.wait_layers};
        for (int other = 0; other < ENGINES; other++) {
            int64_t& open = unwaited[own][other];
            open = std::min({open + (other == own), before[other] - waits[other], FAR});
            if (other != own) unwaited[other][own] = std::min(unwaited[other][own] + 1, FAR);
        }
        before[own]++;
        compared = &item;
        outcome = refusal;
        handed = true;
    }
    // How many it is compared with.
    int64_t pending(const MlpJob& item) const {
        const Engine own = engine_of(item);
        const int64_t layers = unwaited[own][LAYERS];
        return own == LAYERS ? unwaited[own][ROWS] + unwaited[own][PARAMETERS] + layers : layers;
    }
    static int width(int64_t value) { return value ? 64 - __builtin_clzll(uint64_t(value)) : 0; }
    static Engine engine_of(const MlpJob& item) {
        return item.opcode == LOAD_ROWS ? ROWS : item.opcode < LAYER ? PARAMETERS : LAYERS;
    }
    void sums(const MlpJob& item) {
        left = 0;
        if (item.opcode == LOAD_ROWS) {
            bits[left++] = width(item.stride);
            bits[left++] = width(item.features);
            if (const int64_t group = item.features_in ? item.feature / shape.rows : 0) bits[left++] = width(group);
        } else if (item.opcode == LOAD_WEIGHTS) {
            bits[left++] = width(item.steps);
        } else if (item.opcode == LOAD_ADDENDS) {
            bits[left++] = 1;
        } else if (item.opcode == LAYER && item.target == TO_MEMORY) {
            bits[left++] = width(item.out_stride);
        }
    }
};

// What both loaders do with their instructions: ask for the data at once, begin each when its waits are over.
class MlpLoader {
  public:
    Requester requests;
    bool done = false, error = false;       // error: a beat had one, and nothing more is taken or asked for

    bool ready() const { return !requests.asking && jobs.ready(); }
    const MlpJob* under_way() const { return active ? now : nullptr; }

  protected:
    Fifo<const MlpJob*> jobs{JOBS};
    const MlpJob *next = nullptr, *now = nullptr;
    bool may = false, active = false;

    bool waits() const { return jobs.held() || next || active; }
    // job: that stands there; over: the waits of `next` are; begins: `next` does; hold: no request is made. Whether the job
    // is taken.
    bool accept(const MlpJob* job, bool request_taken, bool over, bool begins, bool hold) {
        const bool accepts = job && ready(), fetch = !next && jobs.has;
        requests.step(request_taken, accepts || hold);
        may = next && !begins && over;
        if (begins)
            next = nullptr;
        else if (fetch)
            next = jobs.o;
        jobs.step(accepts, job, fetch);
        return accepts;
    }

  private:
    static constexpr uint32_t JOBS = 32;
};

class RowLoader : public MlpLoader {
  public:
    explicit RowLoader(uint64_t base) : base(base) {}
    bool idle() const { return !waits() && !out.has; }
    bool load() const { return out.has; }
    bool takes(bool data) const { return uses(data) && (!now->half || of_row % 2 || of_row == now->row_beats - 1); }
    // bad: the beat has an error. Whether it, or half of it, goes on.
    bool step(const MlpJob* job, bool data, bool request_taken, bool load_taken, const Done& so_far, bool bad = false) {
        const bool push = uses(data), last = push && left == 1, hold = error;
        error |= push && bad;
        const bool begins = may && (!active || last);
        if (push) left--, of_row = of_row == now->row_beats - 1 ? 0 : of_row + 1;
        if (begins) {
            active = true;
            now = next;
            left = now->count * now->features * now->row_beats;
        } else if (last) {
            active = false;
        }
        done = load_taken && out.o;
        out.step(push && !bad, last, load_taken);
        const bool over = next && so_far.weights >= next->wait_weights && so_far.layers >= next->wait_layers;
        if (!accept(job, request_taken, over, begins, hold)) return push && !bad;
        const uint64_t at = base + uint64_t(job->source), rows = uint64_t(job->count * job->features);
        const int64_t stored = job->half ? ceil_div(job->row_beats, 2) : job->row_beats;
        if (job->stride == stored)
            requests.begin(at, rows * uint64_t(stored));
        else
            requests.begin(at, uint64_t(stored), rows - 1, uint64_t(job->stride));
        return push && !bad;
    }

  private:
    uint64_t base;
    int64_t left = 0, of_row = 0;       // beats of the instruction, and those of the row that have gone on
    SkidBuffer<bool> out;       // whether it is its instruction's last beat

    bool uses(bool data) const { return active && data && !out.held && !error; }
};

class ParameterLoader : public MlpLoader {
  public:
    ParameterLoader(uint64_t base, const MlpShape& shape) : base(base), shape(shape) {}
    bool idle() const { return !waits() && !weights; }
    bool line() const { return weights; }                               // of weights leaves
    bool addends() const { return active && of_addends() && beat; }     // a line of them stands there
    int64_t part() const { return half; }                               // which line of its beat it is
    // room: addends are taken.
    bool takes(bool data, bool room) const {
        if (!active || !data || error) return false;
        return !of_addends() || !beat || (room && half == shape.groups_per_beat() - 1 && at != now->count - 1);
    }
    // bad: the beat has an error.
    void step(const MlpJob* job, bool data, bool request_taken, bool room, const Done& so_far, bool bad = false) {
        const bool taken = takes(data, room), hold = error;
        error |= taken && bad;
        bool line = false, ends = false;
        if (active && of_addends()) {
            if (beat && room) {
                ends = at++ == now->count - 1;
                beat = !ends && half++ != shape.groups_per_beat() - 1;
            }
            if (taken) beat = !bad, half = 0;
        } else if (taken && ++gathered == shape.line_beats()) {
            gathered = 0;
            line = true;
            ends = at++ == now->count * now->steps - 1;
        }
        done = (weights && last_line) || (active && of_addends() && ends);
        weights = line && !bad;
        last_line = line && ends;
        const bool begins = may && (!active || ends);
        if (begins) {
            now = next;
            active = true;
            at = 0;
        } else if (ends) {
            active = false;
        }
        const bool over = next && so_far.rows >= next->wait_rows && so_far.layers >= next->wait_layers;
        if (!accept(job, request_taken, over, begins, hold)) return;
        const int64_t lines = job->opcode == LOAD_ADDENDS ? ceil_div(job->count, shape.groups_per_beat())
                                                          : job->count * job->steps * shape.line_beats();
        requests.begin(base + uint64_t(job->source), uint64_t(lines));
    }

  private:
    uint64_t base;
    const MlpShape shape;
    int64_t at = 0, gathered = 0, half = 0;     // lines that are through, beats of a line, lines of a beat of addends
    bool beat = false;                          // one of addends is there
    bool weights = false, last_line = false;    // a line of weights leaves

    bool of_addends() const { return now->opcode == LOAD_ADDENDS; }
};

}  // namespace twin
