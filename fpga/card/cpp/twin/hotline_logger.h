// The Hotline core's way from samples to their classes: lookup engines, the logger with its banks, the classifier.
#pragma once

#include <memory>

#include "ports.h"

namespace twin {

// Sizes of a core, names as in its preset.
struct HotlineShape {
    int64_t lanes, words, banks, sets, queue, waves, frames, frame_beats, row_slots, embedding_beats, batches,
        domain_bits, positions;
};

// What is known of the beats of all samples before a run, by the beat's number: of each word its bank, or NOWHERE where
// it is not looked up; which words are cold; of those the row's number and where it lies; the word as translated.
struct SampleBeats {
    static constexpr uint8_t NOWHERE = 255;
    const uint8_t* banks;
    const uint8_t* asked;
    const uint64_t* cold;
    const int64_t* rows;
    const uint32_t *places, *words;
};

// A beat of a sample on its way.
struct SampleBeat {
    uint32_t number;
    bool last;
};

// What goes in comes out `length` steps later.
template <class T>
class Delay {
  public:
    explicit Delay(size_t length) : items(length) {}
    T step(const T& item) {
        T oldest = items[at];
        items[at] = item;
        at = at + 1 == items.size() ? 0 : at + 1;
        return oldest;
    }

  private:
    std::vector<T> items;
    size_t at = 0;
};

// Beats that are looked up together.
struct Wave {
    uint32_t beats[8];
    int count;
};

// golden.hotline.scheduler.Scheduler: accesses by how many of a wave each bank has.
class BankScheduler {
  public:
    static constexpr int BANKS = 64, COLUMNS = 8, MARGIN = 8;
    struct Runs {
        uint8_t lengths[BANKS];
        int slot;
        bool heavy;
    };
    bool ready = false, released = false;
    uint64_t issued = 0;        // the slots of the waves of which banks take an access

    explicit BankScheduler(const HotlineShape& s)
        : lanes(int(s.lanes)), banks(int(s.banks)), columns(std::min(COLUMNS, lanes)),
          depth(std::max(32, int(4 * s.queue / s.banks))), room(lanes > 8 ? 32 : 16), sorting(sorting_cycles(lanes)),
          splitting(size_t(3 + levels(banks))), waves(uint32_t(room)), parts(uint32_t(room)), credits(s.queue) {
        done[0] = done[1] = all();
    }
    // wave: that is on offer, or null.
    void step(const Runs* wave) {
        const Runs* taken = ready ? wave : nullptr;
        const bool hold = holds & 1;
        holds >>= 1;
        uint64_t goes[2] = {0, 0};
        if (older && !hold) goes[0] = affordable(*older, ~done[0] & all());
        if (newer && !hold) goes[1] = affordable(*newer, done[0] & ~done[1]);
        const bool advance = !older || (!hold && older->costs[banks - 1] <= credits);
        const bool free = advance || !newer;
        const Part* load = free && parts.has ? parts.o : nullptr;
        const bool ended = advance && older && older->last;
        int64_t back = 0;
        uint64_t still = 0;
        for (uint64_t left = waiting | goes[0] | goes[1]; left; left &= left - 1) {
            const int b = __builtin_ctzll(left);
            if ((goes[0] | goes[1]) >> b & 1)
                waits[b] += int((goes[0] >> b & 1 ? older : newer)->lengths[b]) - 1;
            else
                waits[b]--, back++;
            if (waits[b]) still |= 1ull << b;
        }
        waiting = still;
        issued = issues.step(queues(goes));
        released = ends.step(ended);
        credits += returned;
        returned = back;
        const uint64_t before = done[1] | goes[1];
        if (advance)
            older = newer, newer = nullptr, done[0] = before, done[1] = all();
        else
            done[0] |= goes[0], done[1] = before;
        if (load) {
            newer = load;
            done[1] = all();
            for (int b = 0; b < banks; b++)
                if (load->lengths[b]) done[1] &= ~(1ull << b);
        }
        front(taken, load != nullptr);
    }

  private:
    struct Part {
        uint8_t starts[BANKS], lengths[BANKS];
        int64_t costs[BANKS];       // all there ever were, up to each bank
        int slot;
        bool last;
    };
    struct Run {
        uint8_t column, left, slot;
    };
    const int lanes, banks, columns, depth, room;
    Delay<const Runs*> sorting;
    Delay<const Part*> splitting;
    Fifo<const Runs*> waves;
    Fifo<const Part*> parts;
    std::array<Part, 256> made{};       // those under way, one after the other
    size_t making = 0;
    int ahead = 0, behind = 0, part = 0;
    bool left_wave = false, left_part = false, may_split = false;
    int64_t cost = 0, credits, returned = 0;
    const Part *older = nullptr, *newer = nullptr;
    uint64_t done[2], waiting = 0, busy = 0, holds = 0;
    int waits[BANKS] = {};
    std::array<Ring<Run>, BANKS> runs;
    Run now[BANKS] = {};
    int held[BANKS][COLUMNS] = {};
    Delay<uint64_t> issues{4};
    Delay<bool> ends{4};

    static int levels(int64_t of) { return of > 1 ? 32 - __builtin_clz(uint32_t(of - 1)) : 0; }
    static size_t sorting_cycles(int lanes) {
        const int log = levels(lanes);
        return size_t(1 + log * (log + 1) / 2 + 1 + (log + 3) / 4);
    }
    uint64_t all() const { return ~0ull >> (64 - banks); }
    uint64_t affordable(const Part& of, uint64_t among) const {
        uint64_t found = 0;
        for (; among; among &= among - 1) {
            const int b = __builtin_ctzll(among);
            if (of.costs[b] <= credits) found |= 1ull << b;
        }
        return found;
    }
    // Runs enter the banks' queues, each bank takes its next access.
    uint64_t queues(const uint64_t* goes) {
        bool full_runs = false, full_columns = false;
        uint64_t slots = 0;
        for (uint64_t left = busy | goes[0] | goes[1]; left; left &= left - 1) {
            const int b = __builtin_ctzll(left);
            if ((goes[0] | goes[1]) >> b & 1) {
                const Part& of = goes[0] >> b & 1 ? *older : *newer;
                if (of.lengths[b]) {
                    runs[size_t(b)].push({uint8_t(of.starts[b] % columns), of.lengths[b], uint8_t(of.slot)});
                    for (int k = 0; k < of.lengths[b]; k++) held[b][(of.starts[b] + k) % columns]++;
                }
            }
            full_runs |= int(runs[size_t(b)].size()) >= 2 * depth - MARGIN;
            for (int k = 0; k < columns; k++) full_columns |= held[b][k] >= depth - MARGIN;
            if (!now[b].left && !runs[size_t(b)].empty()) now[b] = runs[size_t(b)].pop();
            if (now[b].left) {
                held[b][now[b].column]--;
                slots |= 1ull << now[b].slot;
                now[b].column = uint8_t((now[b].column + 1) % columns);
                now[b].left--;
            }
            if (now[b].left || !runs[size_t(b)].empty())
                busy |= 1ull << b;
            else
                busy &= ~(1ull << b);
        }
        holds |= uint64_t(full_runs) << 4 | uint64_t(full_columns) << 5;
        return slots;
    }
    // From waves to parts of waves.
    void front(const Runs* taken, bool loads) {
        const Part* split = nullptr;
        bool final = false;
        if (waves.has && may_split) {
            const Runs& wave = *waves.o;
            Part& next = made[making++ % made.size()];
            int begin = 0;
            for (int b = 0; b < banks; b++) {
                const int length = std::min(std::max(int(wave.lengths[b]) - part * columns, 0), columns);
                next.starts[b] = uint8_t(begin + part * columns);
                next.lengths[b] = uint8_t(length);
                cost += std::max(length - 1, 0);
                next.costs[b] = cost;
                begin += wave.lengths[b];
            }
            final = !wave.heavy || part == lanes / columns - 1;
            next.slot = wave.slot;
            next.last = final;
            part = final ? 0 : part + 1;
            split = &next;
        }
        const Part* leaves = splitting.step(split);
        const Runs* sorted = sorting.step(taken);
        parts.step(leaves != nullptr, leaves, loads);
        waves.step(sorted != nullptr, sorted, final);
        ahead += int(taken != nullptr) - int(left_wave);
        ready = ahead < room;
        behind += int(split != nullptr) - int(left_part);
        may_split = behind < room;
        left_wave = final, left_part = loads;
    }
};

// hw.hotline.logger.Logger, what its banks answer being known.
class Logger {
  public:
    static constexpr int LATENCY = 5, RANDOMIZER = 2, IMAGES = 16;
    bool room = true;       // a wave is taken
    bool has = false;       // answers stand at the output
    bool busy = false;
    Fifo<uint8_t> images{IMAGES};

    explicit Logger(const HotlineShape& s, const SampleBeats& beats) : s(s), beats(beats), scheduler(s) {}
    bool image_ready() const { return empty && !clearing; }
    bool ask_ready(bool image) const { return empty && !clearing && asked < IMAGES && !image && !written; }
    // wave: that stands there, or null; o_ready: answers are taken; image, ask: a set to write, to read.
    void step(const Wave* wave, bool o_ready, bool clear, bool image, bool ask, bool image_taken) {
        const bool enters = wave && room, move = !has || o_ready, leaves = there && move;
        const bool takes = image && image_ready(), sweeps = clearing && empty;
        const bool asks = ask && ask_ready(image), loading = written || asked;
        busy = !empty || clearing || clear || wave || image || loading || images.held();
        const int after = inside + int(enters) - int(left);
        if (enters) fill(*wave);
        // Between the randomizers and the banks.
        const bool sent = waiting && scheduler.ready, comes = randomized.step(enters);
        const BankScheduler::Runs* offered = waiting ? &slots[turn % size_t(s.waves)] : nullptr;
        const bool released = scheduler.released;
        const uint64_t issued = scheduler.issued;
        calm = enters || inside || busy ? 0 : calm + 1;
        if (calm < REST) scheduler.step(offered);
        level += int(comes) - int(sent);
        turn += sent;
        waiting = level != 0;
        // Answers.
        const bool told = tells.step(released), done = some && (!there || move) && !(answers.o >> head % 64 & 1);
        answers.o = answers.line.step(issued);
        some = told_now || due >> 1 || (due & 1 && !done);
        due += int(told_now) - int(done);
        told_now = told;
        head = done ? (head + 1) % uint32_t(s.waves) : head;
        if (move) has = there;
        if (!there || move) there = done;
        left = leaves;
        inside = after;
        // Images.
        images.step(read.step(asked_now), 0, image_taken);
        asked_now = asks;
        asked += int(asks) - int(image_taken);
        written = takes || sweeps;
        const bool swept_all = sweeps && swept == s.sets - 1;
        room = after != s.waves && !clearing && !clear;
        clearing = clear || (clearing && !swept_all);
        swept = sweeps && !swept_all ? swept + 1 : 0;
        empty = after == 0;
    }

  private:
    static constexpr int REST = 256;    // cycles without a wave after which the scheduler stands still
    struct Answers {
        uint64_t o = 0;         // the slots of which banks answer an access
        Delay<uint64_t> line{LATENCY - 1};
    };
    const HotlineShape s;
    const SampleBeats beats;
    BankScheduler scheduler;
    std::array<BankScheduler::Runs, 64> slots{};
    uint32_t tail = 0, turn = 0, head = 0;
    int inside = 0, level = 0, due = 0, asked = 0, calm = 0;
    int64_t swept = 0;
    bool empty = true, clearing = false, left = false, waiting = false, some = false, there = false, written = false;
    bool told_now = false, asked_now = false;
    Delay<bool> randomized{RANDOMIZER}, tells{LATENCY - 1}, read{LATENCY + 1};
    Answers answers;

    void fill(const Wave& wave) {
        BankScheduler::Runs& runs = slots[tail];
        runs = BankScheduler::Runs();
        runs.slot = int(tail);
        for (int k = 0; k < wave.count; k++)
            for (int64_t w = 0; w < s.words; w++) {
                const uint8_t bank = beats.banks[int64_t(wave.beats[k]) * s.words + w];
                if (bank != SampleBeats::NOWHERE) runs.heavy |= ++runs.lengths[bank] > std::min<int64_t>(8, s.lanes);
            }
        tail = (tail + 1) % uint32_t(s.waves);
    }
};

// hw.hotline.lookup.LookupArray
class LookupArray {
  public:
    bool ready = true, has = false, idle = false;
    SampleBeat o{};

    LookupArray(const HotlineShape& s, const SampleBeats& beats)
        : beats(beats), parts(int(s.lanes / s.words)), depth(waiting_beats(s)), waiting(depth), sizes(depth) {}
    // The wave that stands at the logger, or null.
    const Wave* wave() {
        if (parts > 1) return offers ? &making : nullptr;
        making.count = 1, making.beats[0] = rows.o;
        return rows.has ? &making : nullptr;
    }
    // Before the edge: whether a beat goes on; answers: stand there.
    void decide(bool answers, bool o_ready) {
        const bool asks = waiting.has && beats.asked[waiting.o.number];
        put = waiting.has && (!asks || (answers && (parts == 1 || sizes.has))) && (!has || o_ready);
        taken = put && asks;
    }
    bool answers_taken() const { return taken && (parts == 1 || turn == sizes.o); }
    void step(bool comes, const SampleBeat& item, bool wave_ready, bool learn, bool o_ready) {
        const bool ends = answers_taken(), push = stage[3].there;
        const SampleBeat behind = stage[3].beat;
        const bool asks = push && beats.asked[behind.number];
        const bool enters = comes && ready;
        idle = !(enters || stage[0].there || stage[1].there || stage[2].there || push || waiting.held() || has);
        if (put) o = waiting.o;
        has = (put && !learn) || (has && !o_ready);
        const bool free = parts == 1 ? wave_ready : !offers || wave_ready, row_taken = rows.has && free;
        ready = waits <= int(depth) - MARGIN && row_waits <= ROWS - MARGIN;
        waits += int(push) - int(put);
        row_waits += int(asks) - int(row_taken);
        if (parts > 1) make(row_taken, wave_ready, ends);
        waiting.step(push, behind, put);
        rows.step(asks, behind.number, row_taken);
        for (int k = 3; k; k--) stage[k] = stage[k - 1];
        stage[0] = {enters, item};
    }

  private:
    static constexpr int MARGIN = 8, ROWS = 16;
    struct Stage {
        bool there;
        SampleBeat beat;
    };
    const SampleBeats beats;
    const int parts;
    const uint32_t depth;
    Fifo<SampleBeat> waiting;
    Fifo<int> sizes;
    Fifo<uint32_t> rows{ROWS};
    Stage stage[4]{};
    Wave making{};
    int filled = 0, turn = 0, waits = 0, row_waits = 0;
    bool offers = false, put = false, taken = false;

    static uint32_t waiting_beats(const HotlineShape& s) {
        const uint32_t least = uint32_t(s.waves * (s.lanes / s.words) + 2 * MARGIN);
        return 1u << (32 - __builtin_clz(least - 1));
    }
    // A wave of several beats.
    void make(bool load, bool wave_ready, bool ends) {
        sizes.step(offers && wave_ready, filled, ends);
        if (taken) turn = ends ? 0 : turn + 1;
        if (load) {
            const int at = offers ? 0 : filled;
            const bool full = !offers && filled == parts - 1;
            making.beats[at] = rows.o;
            making.count = at + 1;
            offers = full;
            filled = at + !full;
        } else if (!offers) {
            offers = filled != 0;
            if (filled) filled--;
        } else if (wave_ready) {
            offers = false, filled = 0;
        }
    }
};

// hw.hotline.classifier.Classifier
class Classifier {
  public:
    bool idle = false;

    explicit Classifier(const SampleBeats& beats) : known(beats) {}
    bool ready() const { return beats.ready() && classes.ready(); }
    bool has() const { return beats.has && classes.has; }
    const SampleBeat& o() const { return beats.o; }
    bool cold() const { return classes.o; }
    void step(bool comes, const SampleBeat& item, bool o_taken) {
        const bool taken = comes && ready(), ends = o_taken && beats.o.last;
        idle = !(comes || beats.held());
        if (taken) some |= known.cold[item.number] != 0;
        classes.step(taken && item.last, some, ends);
        beats.step(taken, item, o_taken);
        if (taken && item.last) some = false;
    }

  private:
    static constexpr uint32_t DEPTH = 16;       // two of the longest samples
    const SampleBeats known;
    Fifo<SampleBeat> beats{DEPTH};
    Fifo<uint8_t> classes{DEPTH};
    bool some = false;      // a beat of this sample was cold
};

}  // namespace twin
