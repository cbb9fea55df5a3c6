// The Hotline core's input buffer.
#pragma once

#include "hotline_logger.h"

namespace twin {

struct Place {
    int64_t frame, beat;
};

// A mini-batch in the input buffer.
struct FramePart {
    int64_t frame, samples;
};

// One whose cold rows have landed: from which sample of its frame on; `last` of the frame.
struct Gathered {
    int64_t frame = 0, start = 0, samples = 0, batch = 0, rows = 0, news = 0;
    bool last = true;
};

// golden.hotline.frames.InputBuffer
class InputBuffer {
  public:
    Fifo<FramePart> out[2];             // popular, cold
    Fifo<uint32_t> read[2]{Fifo<uint32_t>(DEPTH), Fifo<uint32_t>(DEPTH)};
    bool flushed = false, idle = false, waiting = false;

    explicit InputBuffer(const HotlineShape& s)
        : out{Fifo<FramePart>(depth(s.frames)), Fifo<FramePart>(depth(s.frames))}, frames(s.frames),
          free((1u << s.frames) - 1), content(size_t(s.frames), std::vector<uint32_t>(size_t(s.frame_beats))) {}
    bool ready(bool cold, bool writes) const { return !writes && !waits(cold); }
    bool grants(int client, const bool* wanted) const {
        const bool could[2] = {wanted[0] && level[0] < int(DEPTH), wanted[1] && level[1] < int(DEPTH)};
        return could[client] && !(could[1 - client] && turn != client);
    }
    // comes: a beat of a class, `last` of its sample; writes: one is written over; places: that the clients ask for;
    // frees: that is not needed any more, -1: none.
    void step(int64_t batch, bool comes, bool cold, const SampleBeat& item, bool writes, const bool* wanted,
              const Place* places, const bool* frames_taken, const bool* beats_taken, int64_t frees, bool flush) {
        const bool takes = comes && ready(cold, writes), held = out[0].held() || out[1].held();
        const bool granted[2] = {grants(0, wanted), grants(1, wanted)};
        flushed = flushing && !(open[0].there || open[1].there || hands || held);
        idle = free == (1u << frames) - 1 && !level[0] && !level[1] && !comes && !writes && !wanted[0] && !wanted[1];
        waiting = comes && waits(cold);
        const int client = granted[0] ? 0 : granted[1] ? 1 : -1;
        const Place from = client < 0 ? Place{0, 0} : places[client];
        const Under done = under_way.step({client, client < 0 ? 0 : content[size_t(from.frame)][size_t(from.beat)]});
        for (int k = 0; k < 2; k++) {
            read[k].step(done.client == k, done.number, beats_taken[k]);
            level[k] += int(granted[k]) - int(beats_taken[k]);
            out[k].step(hands && handed_cold == bool(k), handed, frames_taken[k]);
        }
        if (client >= 0) turn = 1 - client;
        const uint32_t was_free = free;
        bool opens = false;
        hands = false;
        if (takes) {
            Open& mine = open[cold];
            if (!mine.there) {
                opens = true;
                mine = {true, cold ? highest : lowest, 0, 0};
                free &= ~(1u << mine.frame);
            }
            content[size_t(mine.frame)][size_t(mine.beats++)] = item.number;
            mine.samples += item.last;
            if (mine.samples == batch) hand(cold);
        } else if (flushing && (open[0].there || open[1].there)) {
            hand(!open[0].there);
        }
        chosen = was_free && !opens;
        if (chosen) lowest = __builtin_ctz(was_free), highest = 31 - __builtin_clz(was_free);
        if (frees >= 0) free |= 1u << frees;
        flushing = flush && !comes;
    }

  private:
    static constexpr uint32_t DEPTH = 16;
    static constexpr size_t STAGES = 3;         // address, array, register
    struct Open {
        bool there;
        int64_t frame, beats, samples;
    };
    struct Under {
        int client = -1;
        uint32_t number = 0;
    };
    const int64_t frames;
    uint32_t free;
    std::vector<std::vector<uint32_t>> content;     // numbers of the beats, by frame
    Open open[2]{};
    FramePart handed{};
    bool chosen = false, hands = false, handed_cold = false, flushing = false;
    int lowest = 0, highest = 0, level[2] = {0, 0}, turn = 0;
    Delay<Under> under_way{STAGES};

    static uint32_t depth(int64_t frames) { return frames > 2 ? 1u << (32 - __builtin_clz(uint32_t(frames - 1))) : 2; }
    bool waits(bool cold) const { return !open[cold].there && !chosen; }
    void hand(bool cold) {
        hands = true, handed_cold = cold;
        handed = {open[cold].frame, open[cold].samples};
        open[cold].there = false;
    }
};

}  // namespace twin
