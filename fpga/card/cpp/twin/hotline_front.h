// The front of the Hotline core: program, samples and images of the logger on their way. golden.hotline.program without
// faults.
#pragma once

#include "hotline_bags.h"

namespace twin {

// hw.hotline.transfers.InputReader
class InputReader {
  public:
    Requester requests;
    SampleBeat o{};
    bool has_sample = false, has_image = false;     // at the outputs

    bool ready(bool sample_ready, bool image_ready) const {
        return moving && ((!has_sample && !has_image) || (has_sample && sample_ready) || (has_image && image_ready));
    }
    bool passed() const { return !moving && !has_sample && !has_image; }
    void step(bool data, bool request_taken, bool sample_ready, bool image_ready) {
        const bool take = data && ready(sample_ready, image_ready);
        requests.step(request_taken, false);
        if (sample_ready) has_sample = false;
        if (image_ready) has_image = false;
        if (!take) return;
        has_sample = !image, has_image = image;
        const bool ends = part == sample_beats - 1;
        o = {number++, ends};
        part = ends ? 0 : part + 1;
        moving = --left;
    }
    // at, beats: of all that is read; first: the number of the first sample's first beat.
    void begin(uint64_t at, int64_t beats, bool of_image, int64_t per_sample, int64_t first) {
        requests.begin(at, uint64_t(beats));
        left = beats, image = of_image, sample_beats = per_sample, number = uint32_t(first);
        part = 0, moving = true;
    }

  private:
    int64_t left = 0, part = 0, sample_beats = 1;
    uint32_t number = 0;
    bool moving = false, image = false;
};

// hw.hotline.transfers.ImageWriter
class ImageWriter {
  public:
    Request o{};

    bool has() const { return to_ask; }
    bool done() const { return !to_come; }
    void begin(uint64_t at, int64_t chunk, int64_t chunks) {
        o = {at, uint32_t(chunk), 0};
        to_ask = to_come = chunks;
    }
    void step(bool taken, bool written) {
        if (taken) o.at += o.beats, to_ask--;
        to_come -= written;
    }

  private:
    int64_t to_ask = 0, to_come = 0;
};

// hw.hotline.image.ImageMover
class ImageMover {
  public:
    bool done = false;

    explicit ImageMover(const HotlineShape& s) : parts(s.words / 4), sets(s.banks * s.sets) {}
    bool writes() const { return left; }
    bool asks() const { return asking; }
    bool beats() const { return whole; }
    bool beat_ready(bool set_ready) const { return loading && more && (!left || (left == 1 && set_ready)); }
    bool image_ready(bool beat_taken) const { return !whole || beat_taken; }
    // beat: comes, of a load; set_ready, ask_ready: at the logger; image: a set from it; o_ready: a beat is taken.
    void step(bool beat, bool set_ready, bool ask_ready, bool image, bool o_ready, bool save, bool load) {
        const bool written = left && set_ready, fills = beat && beat_ready(set_ready), asked = asking && ask_ready;
        const bool put = image && image_ready(o_ready), sent = whole && o_ready, last = number == sets - 1;
        done = (loading && written && last) || (saving && sent && !asking && !came);
        if (fills) {
            more = came != sets - parts;
            came = (came + parts) % sets;
            left = parts;
        } else if (written) {
            left--;
        }
        whole = (put && came % parts == parts - 1) || (whole && !o_ready);
        if (put) came = (came + 1) % sets;
        if (asked && last) asking = false;
        if (written || asked) number = (number + 1) % sets;
        if (done) saving = loading = false;
        if (save) saving = asking = true;
        if (load) loading = more = true;
    }

  private:
    const int64_t parts, sets;
    int64_t left = 0, number = 0, came = 0;
    bool saving = false, loading = false, asking = false, whole = false, more = false;
};

// One instruction after the other.
class HotlineProgram {
  public:
    Requester requests;
    InputReader reader;
    ImageWriter writer;
    const HotlineJob* job = nullptr;        // the present one
    bool begins = false, trains = false, clear = false, saves = false, loads = false;       // pulses
    bool flush = false, finish = false, done = false;

    HotlineProgram(const std::vector<HotlineJob>& jobs, const HotlineShape& s, int64_t output_beats)
        : all(jobs), beats(s.words < 16 ? 16 / s.words : 1), image_beats(s.banks * s.sets * 4 / s.words),
          chunk(std::min(output_beats / 2, image_beats)) {}
    bool takes(bool data) const { return state == NEXT && number < all.size() && data; }
    void start(uint64_t program) {
        requests.step(false, true);
        requests.begin(program, all.size() * uint64_t(beats));
        state = NEXT;
    }
    // Whether nothing of the instruction is left to read or to write.
    bool passed() const { return reader.passed() && writer.done(); }
    // inputs, mailbox: where they lie, in beats; data: a beat of the program; moved_now: the logger has moved an image;
    // all_passed: `passed` before the edge of reader and writer.
    void step(bool data, bool request_taken, bool moved_now, bool all_passed, bool idle_lookup, bool flushed, bool idle,
              uint64_t inputs, uint64_t mailbox) {
        requests.step(request_taken, false);
        const int calm_before = calm;
        const bool was_quiet = quiet, reads = begin_read, writes = begin_write;
        begins = trains = clear = saves = loads = finish = begin_read = begin_write = false;
        calm = 0;
        const bool passed = all_passed && (moved || (job && job->opcode < SAVE));
        moved |= moved_now;
        switch (state) {
        case IDLE:
            break;
        case NEXT:
            if (number == all.size()) {
                done = true, state = IDLE;
            } else if (data && ++got == beats) {
                got = 0, wait = 4, job = &all[number];
                state = CHECK;
            }
            break;
        case CHECK:
            if (--wait) break;
            wait = sums();
            state = wait ? SUM : BEGIN;
            break;
        case SUM:
            if (!--wait) state = BEGIN;
            break;
        case BEGIN: {
            const int64_t kind = job->opcode;
            begin_read = kind == LEARN || kind == TRAIN || kind == LOAD, begin_write = kind == SAVE;
            moved = false;
            clear = kind == CLEAR, saves = kind == SAVE, loads = kind == LOAD, trains = kind == TRAIN;
            begins = kind == LEARN || kind == TRAIN;
            state = PAUSE;
            break;
        }
        case PAUSE:
            if (reads) {
                const int64_t of_samples = job->count * job->sample_beats;
                const bool image = job->opcode == LOAD;
                reader.begin(inputs + uint64_t(job->source), image ? image_beats : of_samples, image, job->sample_beats,
                             job->first_beat);
            }
            if (writes) writer.begin(mailbox + uint64_t(job->out), chunk, image_beats / chunk);
            state = PASS;
            break;
        case PASS:
            if (passed) state = SETTLE;
            break;
        case SETTLE:
            calm = idle_lookup ? calm_before + 1 : 0;
            if (calm_before < CALM) break;
            calm = 0;
            flush = job->opcode == TRAIN;
            state = flush ? FLUSH : STEP;
            break;
        case FLUSH:
            quiet = flushed && idle;
            calm = was_quiet ? calm_before + 1 : 0;
            if (calm_before < CALM) break;
            flush = quiet = false;
            state = STEP;
            break;
        case STEP:
            finish = true;
            number++;
            state = NEXT;
            break;
        }
    }

  private:
    enum State { IDLE, NEXT, CHECK, SUM, BEGIN, PAUSE, PASS, SETTLE, FLUSH, STEP };
    static constexpr int CALM = 8;
    const std::vector<HotlineJob>& all;
    const int64_t beats, image_beats, chunk;
    State state = IDLE;
    size_t number = 0;
    int64_t got = 0;
    int wait = 0, calm = 0;
    bool moved = false, quiet = false, begin_read = false, begin_write = false;

    // Cycles of the sums that an instruction is checked with: three for each, and one for each bit of its multiplier.
    int sums() const {
        const auto sum = [](int64_t by) { return 3 + (by ? 64 - __builtin_clzll(uint64_t(by)) : 0); };
        const HotlineJob& j = *job;
        if (j.opcode == LEARN) return sum(j.sample_beats);
        if (j.opcode == SAVE || j.opcode == LOAD) return sum(1);
        if (j.opcode != TRAIN) return 0;
        int cycles = 2 * sum(j.sample_beats) + 2 * sum(j.mailbox_slots) + sum(j.indices) + 2 * sum(j.row_beats());
        if (j.pooled) cycles += int(j.indices) + 1 + sum(j.vectors) + sum(j.row_beats());
        return cycles;
    }
};

}  // namespace twin
