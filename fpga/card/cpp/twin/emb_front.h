// The front of the EMB core: program, regions, feeder, tiers. hw.emb.front without faults; what is dealt out is said by
// golden.emb.tokens.
#pragma once

#include <algorithm>

#include "layouts.h"
#include "ports.h"

namespace twin {

using namespace emb;

constexpr uint32_t POSITIONS = 1u << 30;
constexpr Device NONE = Device(SSD + 1);
enum Client { PROGRAM, LENGTHS, INDICES, WEIGHTS };

struct Job : JobFields {
    int64_t vector() const { return opcode == FILL ? stored : row_beats; }
    int64_t form() const { return opcode == FILL ? int64_t(FLOAT32) : row_format; }
    int64_t offset(int64_t row) const {
        int64_t inside = row % block_rows;
        return dram_base + (row - inside) * stored + inside * piece;
    }
};

struct Token {
    const Job* job;
    Device device;
    bool copy, last, final;     // copy: where a row of a FILL goes
    uint32_t offset, factor, out;
};

struct Row {
    const Job* job;
    uint32_t offset;
    bool last;
};

struct Step {
    const Job* job;
    bool tt, dram, ssd, first, end, last;
    uint32_t factor, out;
};

// One instruction at a time, while those before are carried out.
class Program {
  public:
    struct Region {
        int client;
        uint64_t begin, end;
    };
    Requester requests;
    bool has_region = false, done = false, flush_window = false, flush_tt = false, load = false, finish = false;
    Region region{};
    Fifo<const Job*> jobs{16, 2};
    uint32_t finished = 0;
    int64_t released = 0;

    // ring: there is one, and no instruction goes on before it is known where it begins.
    Program(const std::vector<Job>& jobs, uint32_t words, bool ring)
        : all(jobs), words(words), beats(words < 16 ? 16 / words : 1), begun(ring ? UNKNOWN : BEGUN) {}
    void ring_begins(int64_t position) {
        released = position;
        begun = 0;
    }
    bool takes(bool data) const { return state == NEXT && number < all.size() && data; }
    void start(uint64_t program) {
        requests.step(false, true);
        requests.begin(program, all.size() * beats);
        state = NEXT;
    }
    // Nothing changes before there is data, or a request, a job or something finished goes.
    bool still() const {
        return (state == IDLE || (state == NEXT && number < all.size()) || waits) && !has_region && !finish &&
               requests.still() && jobs.still() && releases.still() && (begun == UNKNOWN || begun == BEGUN);
    }
    // Beats of the image that `load` begins with.
    int64_t loading() const { return all[number].count; }
    // entered: the region is; load_busy: the loader is at work; row_done: a row of a FILL has been written.
    void step(bool data, bool request_taken, bool entered, bool job_taken, bool bags_done, bool row_done,
              bool load_busy) {
        requests.step(request_taken, false);
        const bool ready = begun == BEGUN;
        if (begun != UNKNOWN && !ready) begun++;
        const Job* item = number < all.size() ? &all[number] : nullptr;
        const bool quiet = !releases.held(), busy = has_region, rooms = releases.room && jobs.room;
        const bool bags = item && item->opcode == BAGS;
        bool issue = false, retire = bags_done;
        waits = false;
        flush_window = flush_tt = load = false;
        if (entered) has_region = false;
        const bool last_row = rows_left == 1;
        if (row_done) rows_left--;
        switch (state) {
        case IDLE:
            break;
        case NEXT:
            if (!item) {
                state = DRAIN;
            } else if (data && ++got == beats) {
                got = 0;
                wait = 4;
                checks(*item);
                state = ALLOWED;
            }
            break;
        case ALLOWED:
            if (!--wait) state = SUMS;
            break;
        case SUMS:
            state = check < sums.size() ? ADD : SEND;
            if (state == ADD) bits = sums[check].bits;
            break;
        case ADD:
            if (bits)
                bits--;
            else
                state = COMPARE;
            break;
        case COMPARE:
            if (busy) break;
            if (sums[check].reads) region = sums[check].region, has_region = true;
            check++;
            state = SUMS;
            break;
        case SEND:
            rows_left = item->count;
            issue = ready && (bags ? rooms : quiet && !load_busy);
            waits = !issue;
            if (waits) break;
            load = item->opcode == LOAD;
            wait = 0;
            state = bags ? STEP : load ? LOADS : FILLS;
            break;
        case FILLS:
            if (!row_done || !last_row) break;
            flush_window = retire = true;
            state = STEP;
            break;
        case LOADS:
            if (wait && !load_busy) {
                flush_tt = retire = true;
                state = STEP;
            }
            wait = 1;
            break;
        case STEP:
            number++;
            state = NEXT;
            break;
        case DRAIN:
            waits = !quiet;
            if (quiet) done = true, state = IDLE;
            break;
        }
        finish = retire;
        if (retire) {
            if (uint32_t(releases.o - released) % POSITIONS < POSITIONS / 2) released = releases.o;
            finished++;
        }
        jobs.step(issue && item->opcode != LOAD, item, job_taken);
        releases.step(issue, item ? item->release : 0, retire);
        waits = waits && rooms == (releases.room && jobs.room);     // else it looks at the new room
    }

  private:
    static constexpr int UNKNOWN = -1, BEGUN = 5;   // cycles since it is known where the ring begins
    enum State { IDLE, NEXT, ALLOWED, SUMS, ADD, COMPARE, SEND, FILLS, LOADS, STEP, DRAIN };
    // A sum that is checked: bits of its multiplier, and the region that may be read then.
    struct Check {
        int bits;
        bool reads;
        Region region;
    };
    const std::vector<Job>& all;
    uint32_t words, beats, got = 0, wait = 0;
    size_t number = 0, check = 0;
    int bits = 0, begun;
    int64_t rows_left = 0;
    State state = IDLE;
    bool waits = false;     // for what is under way
    std::vector<Check> sums;
    Fifo<int64_t> releases{64, 3};

    static int width(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }
    void sum(int bits) { sums.push_back({bits, false, {}}); }
    void reads(int bits, int client, int64_t at, int64_t count) {
        sums.push_back({bits, true, {client, uint64_t(at), uint64_t(at + (count + words - 1) / words)}});
    }
    void checks(const Job& item) {
        sums.clear();
        check = 0;
        if (item.opcode == LOAD) {      // the image, then its blocks of 16 headers
            int64_t block = words < 16 ? 16 / words : 1;
            sum(1);
            reads(int(block), INDICES, item.indices, (item.count + (item.count + 15) / 16 * block) * words);
            return;
        }
        sum(1);                         // ring
        if (item.opcode == FILL) {
            reads(1, INDICES, item.indices, 2 * item.count);
            sum(width(item.stored));
            return;
        }
        reads(1, LENGTHS, item.lengths, item.count);
        reads(1, INDICES, item.indices, item.indices_count);
        if (item.weighted) reads(1, WEIGHTS, item.weights, item.indices_count);
        sum(width(item.stored));        // rows
        sum(1);                         // a vector, and then all of them
        sum(width(item.count - 1));
    }
};

// Brings load images in: 16 headers word by word, then beats, each in two cycles and those that the unit aligns it in;
// behind the last one its signature.
class Loader {
  public:
    explicit Loader(uint32_t align) : align(align) {}
    bool busy() const { return left || closing; }
    // Whether a beat is taken.
    bool step(bool start, int64_t count, bool beat, uint32_t words) {
        if (start) left = count, heads = 16, place = 0;
        if (!left) {
            closing -= closing > 0;
            return false;
        }
        if (heads) {
            if (!beat) return false;
            ready = false;
            bool gone = ++place == words;
            if (gone) place = 0;
            if (!--heads) group = 16;
            return gone;
        }
        if (!ready) {
            ready = true;
            age = 0;
            return false;
        }
        if (!beat || age++ < align) return false;
        ready = false;
        if (!--left) closing = CLOSING;
        if (!--group) heads = 16;
        return true;
    }

  private:
    int64_t left = 0;
    uint32_t align, age = 0, heads = 0, group = 0, place = 0, closing = 0;
    bool ready = false;
};

// Lengths ahead into a queue of bags; an index or a pair of the bag that is under way a cycle.
class Feeder {
  public:
    static constexpr int STAGES = 6;
    bool stalls = false;    // the front waits for words
    struct Tokens {
        Token token[2];
        int count = 0;
    };

    explicit Feeder(uint32_t words) : words(words) {}
    bool job_ready() const { return !lengths_left && !waits && !started; }
    bool still() const { return calm && empty == STAGES; }      // nothing changes before a job, room or words come
    const Tokens& tokens() const { return stage[at]; }

    // job: on offer or null; data: the clients' beats or null. Which of them are taken goes to `taken`.
    void step(const Job* offered, bool open, const uint32_t* const* data, bool* taken) {
        const bool accept = offered && job_ready(), some = under_way || lengths_left;
        Bag read{};
        bool reads = lengths_left && room && (job->opcode == FILL || data[LENGTHS]);
        if (reads) {
            bool copy = job->opcode == FILL, last = lengths_left == 1;
            read = {job, copy ? 2 : data[LENGTHS][place[LENGTHS]], 0, 0, lengths_read == 0, last};
            read.left = read.length;
            read.number = lengths_read++;
            if (!copy) taken[LENGTHS] = move(LENGTHS, 1, last);
            lengths_left--;
            room--;
        }
        Tokens& out = stage[at];
        out.count = 0;
        at = at + 1 == STAGES ? 0 : at + 1;
        bool ends = false;
        if (under_way && open) ends = index(data, taken, out);
        stalls = open && some && !out.count;
        const bool next = !waiting.empty() && (!under_way || ends);
        bool starts = false;
        if (next) {
            bag = waiting.pop();
            under_way = true;
            room++;
            starts = bag.first;
        } else if (ends) {
            under_way = false;
        }
        if (line_has >> 2 & 1) waiting.push(line[line_at]);
        line[line_at] = read;
        line_at = line_at == 2 ? 0 : line_at + 1;
        line_has = (line_has << 1 | reads) & 7;
        started = (started << 1 | starts) & 0x3F;
        empty = out.count ? 0 : empty < STAGES ? empty + 1 : STAGES;
        calm = !(accept || reads || next || ends || line_has || started || (!under_way && !waiting.empty()));
        if (accept) {
            job = offered;
            lengths_left = job->count, lengths_read = 0;
            waits = true;
        } else if (starts) {
            waits = false;
        }
    }

  private:
    struct Bag {
        const Job* job;
        uint32_t length, left, number;
        bool first, last;
    };
    uint32_t words;
    const Job* job = nullptr;
    int64_t lengths_left = 0;
    uint32_t lengths_read = 0, room = 16, started = 0, line_has = 0, line_at = 0;
    bool waits = false, under_way = false, calm = true;
    int empty = STAGES;     // tokens that are none, the last ones
    Bag line[3]{}, bag{};
    Ring<Bag> waiting{32};
    uint32_t place[4] = {};
    Tokens stage[STAGES];
    int at = 0;

    // Takes what the bag under way has next; whether it ends with it.
    bool index(const uint32_t* const* data, bool* taken, Tokens& out) {
        const Job& item = *bag.job;
        if (!bag.length) {
            out.token[out.count++] = token(NONE, 0, 0);
            if (bag.last)
                for (int client : {INDICES, WEIGHTS}) {
                    taken[client] = place[client] != 0;
                    place[client] = 0;
                }
            return true;
        }
        if (!data[INDICES] || (item.weighted && !data[WEIGHTS])) return false;
        const uint32_t at = place[INDICES], *index = data[INDICES];
        const bool copy = item.opcode == FILL;
        const bool pair = !copy && bag.left > 1 && at % 2 == 0 && (index[at] >> 30 == TT) != (index[at + 1] >> 30 == TT);
        const int count = pair ? 2 : 1;
        bag.left -= uint32_t(count - 1);
        for (int k = 0; k < count; k++) {
            uint32_t word = index[at + k], weight = item.weighted ? data[WEIGHTS][at + k] : ONE;
            Device device = copy ? bag.left > 1 ? SSD : DRAM : Device(word >> 30);
            out.token[out.count++] = token(device, word % POSITIONS, weight);
        }
        const bool closes = bag.last && bag.left == 1;
        taken[INDICES] = move(INDICES, count, closes);
        if (item.weighted) taken[WEIGHTS] = move(WEIGHTS, count, closes);
        return !--bag.left;
    }
    static constexpr uint32_t ONE = 0x3F800000;

    // Words are taken: whether their beat goes with them.
    bool move(int client, int count, bool last) {
        bool gone = last || place[client] + count == words;
        place[client] = gone ? 0 : place[client] + count;
        return gone;
    }
    Token token(Device device, uint32_t row, uint32_t weight) const {
        const Job& item = *bag.job;
        bool ends = bag.left <= 1;
        return {&item, device, item.opcode == FILL && device == DRAM, ends, ends && bag.last,
                device == DRAM ? uint32_t(item.offset(row)) : row, item.mode == MEAN ? bag.length : weight,
                uint32_t(item.out + bag.number * item.out_stride)};
    }
};

// Rows held back until it is known whether they are their bag's last.
class Tiers {
  public:
    static constexpr uint32_t SLACK = 14;
    Fifo<Row> dram, ssd;
    Fifo<uint8_t> lookups;
    Fifo<Step> steps;
    Fifo<Row> fills{32, SLACK};
    bool open = false;

    Tiers(uint32_t dram, uint32_t ssd, uint32_t tt, uint32_t steps)
        : dram(dram, SLACK), ssd(ssd, SLACK), lookups(tt, SLACK), steps(steps, SLACK) {}
    bool still() const { return calm; }     // nothing changes before something comes or goes

    void step(const Feeder::Tokens& tokens, bool dram_taken, bool ssd_taken, bool tt_taken, bool steps_taken,
              bool fill_taken) {
        if (calm && !tokens.count && !(dram_taken || ssd_taken || tt_taken || steps_taken || fill_taken)) return;
        const bool is_open = dram.room && ssd.room && lookups.room && steps.room && fills.room;
        bool comes[NONE + 1] = {}, push_fill = false;
        Row fill{};
        for (int k = 0; k < tokens.count; k++) {
            const Token& token = tokens.token[k];
            comes[token.copy ? NONE : token.device] = true;
            if (token.copy) fill = {token.job, token.offset, false}, push_fill = true;
        }
        const bool dram_push = has[DRAM] && (ended || comes[DRAM]), ssd_push = has[SSD] && (ended || comes[SSD]);
        const bool tt_push = has[TT] && (ended || comes[TT]);
        const bool chunk_ends = tt_push && (ended || in_chunk == held[TT].job->chunk_rows);
        const bool push = (ended || chunk_ends) && bag.job->opcode != FILL;
        Step step{};
        if (push) {
            step = {bag.job, has[TT], ended && has[DRAM], ended && has[SSD], first, ended, ended && bag.final,
                    has[TT] ? held[TT].factor : bag.factor, bag.out};
            first = ended;
        }
        const Row dram_row{held[DRAM].job, held[DRAM].offset, ended}, ssd_row{held[SSD].job, held[SSD].offset, ended};
        dram.step(dram_push, dram_row, dram_taken);
        ssd.step(ssd_push, ssd_row, ssd_taken);
        lookups.step(tt_push, true, tt_taken);
        steps.step(push, step, steps_taken);
        fills.step(push_fill, fill, fill_taken);
        open = is_open;
        if (ended) has[DRAM] = has[TT] = has[SSD] = false;
        for (int k = 0; k < tokens.count; k++) {
            const Token& token = tokens.token[k];
            bag = token;
            if (token.copy || token.device == NONE) continue;
            if (token.device == TT) in_chunk = has[TT] && in_chunk != token.job->chunk_rows ? in_chunk + 1 : 1;
            held[token.device] = token;
            has[token.device] = true;
        }
        ended = tokens.count && bag.last;
        calm = !tokens.count && open == (dram.room && ssd.room && lookups.room && steps.room && fills.room) &&
               dram.still() && ssd.still() && lookups.still() && steps.still() && fills.still();
    }

  private:
    bool calm = false;
    Token held[NONE]{}, bag{};
    bool has[NONE] = {}, ended = false, first = true;
    int64_t in_chunk = 0;
};

// The parts together.
class Front {
  public:
    Program program;
    Requester region[3];
    Feeder feeder;
    Tiers tiers;
    Loader loader;

    // Of the streams that it deals out: what is taken.
    struct Dealt {
        bool dram, ssd, tt, steps, fill;
        bool any() const { return dram || ssd || tt || steps || fill; }
    };

    Front(const std::vector<Job>& jobs, uint32_t words, uint32_t dram, uint32_t ssd, uint32_t tt, uint32_t steps,
          uint32_t load_wait, bool ring)
        : program(jobs, words, ring), feeder(words), tiers(dram, ssd, tt, steps), loader(load_wait), words(words) {}
    const Requester& requests(int client) const { return client ? region[client - 1] : program.requests; }
    bool still() const {
        return feeder.still() && tiers.still() && program.still() && region[0].still() && region[1].still() &&
               region[2].still();
    }
    // The edge; whether anything moved. starts: a program at `code`, whose inputs are at `inputs`, in beats; requested:
    // bits of the clients whose requests are taken; data: their beats or null, of which those taken go to `taken`.
    bool step(bool starts, uint64_t code, uint64_t inputs, uint32_t requested, const uint32_t* const* data, bool* taken,
              bool bags_done, bool row_done, const Dealt& dealt) {
        const bool entered = program.has_region && !region[program.region.client - 1].asking;
        const Program::Region opened = program.region;
        taken[PROGRAM] = program.takes(data[PROGRAM] != nullptr);
        const bool offers = program.jobs.has, job_taken = offers && feeder.job_ready();
        const Job* job = offers ? program.jobs.o : nullptr;
        const bool load_busy = loader.busy(), load = program.load, open = tiers.open;
        tiers.step(feeder.tokens(), dealt.dram, dealt.ssd, dealt.tt, dealt.steps, dealt.fill);
        feeder.step(job, open, data, taken);
        if (load_busy || load)
            taken[INDICES] |= loader.step(load, load ? program.loading() : 0, data[INDICES] != nullptr, words);
        const bool asked = requested & 1;
        if (starts)
            program.start(code);
        else if (taken[PROGRAM] || asked || entered || job_taken || bags_done || row_done || load_busy || !program.still())
            program.step(taken[PROGRAM], asked, entered, job_taken, bags_done, row_done, load_busy);
        for (int k = 0; k < 3; k++) {
            const bool mine = entered && opened.client == k + 1;
            region[k].step(requested >> (k + 1) & 1, mine);
            if (mine) region[k].begin(inputs + opened.begin, opened.end - opened.begin);
        }
        return entered || job_taken || load_busy || load || taken[PROGRAM] || taken[LENGTHS] || taken[INDICES] ||
               taken[WEIGHTS];
    }

  private:
    uint32_t words;
};

}  // namespace twin
