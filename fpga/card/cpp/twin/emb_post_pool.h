// A bag's vectors put together, and joined into writes. hw.emb.post_pool,
// hw.emb.write_joiner.
#pragma once

#include "emb_rows.h"

namespace twin {

// Vectors of consecutive bags joined into one write.
class WriteJoiner {
  public:
    struct Joined {
        uint64_t out;
        uint32_t beats, bags;
        bool last;      // of an instruction
    };
    Joined o{};
    bool has = false;

    explicit WriteJoiner(uint32_t block) : block(block) {}
    bool still() const { return !(some || has || (kept && !open())); }      // nothing changes before something comes
    void step(bool comes, const Joined& item) {
        const bool open = this->open();
        has = false;
        if (!some) {
            if (kept && !open) leave();
        } else if (open && now.out == held.out + held.beats) {
            held = {held.out, held.beats + now.beats, held.bags + 1, now.last};
        } else {
            if (kept) leave();
            held = now, kept = true;
        }
        some = comes;
        now = item;
    }

  private:
    uint32_t block;
    Joined now{}, held{};
    bool some = false, kept = false;
    bool open() const { return kept && !held.last && (held.out + held.beats) / block == held.out / block; }
    void leave() { o = held, has = true, kept = false; }
};

// A beat a cycle, as far as there is room for what comes out.
class PostPool {
  public:
    static constexpr int PACKER = 3;        // cycles that half precision takes longer
    struct Taken {
        bool steps = false, tt = false, dram = false, ssd = false;
    };
    Fifo<Request> requests;
    bool instruction_done = false;

    PostPool(uint32_t output_beats, uint32_t block, uint32_t latency)
        : requests(output_beats), latency(latency), credits(int(output_beats)), joiner(block), under_way(output_beats) {}
    // A beat of a result stands at the write port.
    bool data() const { return pool & 1 || packed & 1; }
    Taken step(const Fifo<Step>& steps, bool tt, bool dram, bool ssd, bool request_taken, bool written) {
        const uint32_t offered = uint32_t(tt) | dram << 1 | ssd << 2 | steps.has << 3;
        if (calm && offered == seen && !request_taken && !written) {
            cycle++;
            return {};
        }
        const bool could = may;
        const int source = sources & 1 ? TT : sources & 2 ? DRAM : sources & 4 ? SSD : NONE;
        const bool there = source == TT ? tt : source == DRAM ? dram : source == SSD ? ssd : true;
        const bool fire = busy && may && there, final = fire && beat == now.job->row_beats - 1;
        const bool only = !(sources & (sources - 1)), ends = final && only, half = busy && now.job->format != FLOAT32;
        const bool used = fire && now.end && only && (!half || final || beat % 2 == 1);
        const bool bag_ends = ends && now.end, free = ends || !busy;
        Taken taken;
        taken.tt = fire && source == TT, taken.dram = fire && source == DRAM, taken.ssd = fire && source == SSD;

        bool start = false, ready = ahead;
        if (ahead && next.job->mode == MEAN && next.factor >= KNOWN) {
            start = !divided;
            ready = divided && cycle >= divided;
        }
        ready = ready && !(next.job->format == FLOAT32 && (half || leaving > 0));
        leaving = half ? PACKER - 1 : leaving ? leaving - 1 : 0;
        const bool move = ready && free;
        taken.steps = (!ahead || move) && steps.has;
        const bool divides = ahead && divided && cycle < divided;
        seen = offered;
        calm = !(fire || move || start || divides || taken.steps || request_taken || written || back || leaving);

        may = credits > 1 || (credits == 1 && !used);
        credits += back - used;
        back = written ? int(under_way.o.beats) : 0;
        instruction_done = written && under_way.o.last;
        leave(bag_ends, written, request_taken);
        pool = pool >> 1 | uint64_t(used && !half) << (latency - 1);
        packed = packed >> 1 | uint64_t(used && half) << (latency + PACKER - 1);
        if (fire) {
            beat = final ? 0 : beat + 1;
            if (final) sources &= sources - 1;
        }
        if (start) divided = cycle + 28 + 16 - uint64_t(31 - __builtin_clz(next.factor));
        if (free) {
            busy = ready;
            if (ready) now = next;
            sources = ready ? next.tt | next.dram << 1 | next.ssd << 2 : 0;
        }
        if (!ahead || move) {
            ahead = steps.has;
            if (ahead) next = steps.o;
            if (ahead && next.first) divided = 0;
        }
        cycle++;
        calm = calm && may == could && !(pool || packed) && joiner.still() && requests.still() && under_way.still();
        return taken;
    }

  private:
    static constexpr uint32_t KNOWN = 64;   // means of fewer indices have their factor at once
    Step next{}, now{};
    bool ahead = false, busy = false, may = false;
    bool calm = false;                      // nothing changes before other than what was `seen` is offered
    uint32_t seen = 0;
    uint32_t sources = 0;                   // vectors that the step still takes: tt, dram, ssd
    uint32_t latency;
    int beat = 0, credits, back = 0, leaving = 0;
    WriteJoiner joiner;
    Fifo<WriteJoiner::Joined> under_way;
    uint64_t pool = 0, packed = 0;          // beats in the pooling unit and the packer, the next to leave lowest
    uint64_t divided = 0, cycle = 0;        // divided: when the factor is there; 0: not asked for

    void leave(bool bag_ends, bool written, bool request_taken) {
        const WriteJoiner::Joined joined = joiner.o;
        requests.step(joiner.has, {joined.out, joined.beats, 0}, request_taken);
        under_way.step(joiner.has, joined, written);
        WriteJoiner::Joined vector{};
        if (bag_ends) {
            const int64_t beats = now.job->format == FLOAT32 ? now.job->row_beats : (now.job->row_beats + 1) / 2;
            vector = {now.out, uint32_t(beats), 1, now.last};
        }
        joiner.step(bag_ends, vector);
    }
};

}  // namespace twin
