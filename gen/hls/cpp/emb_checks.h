// What the EMB kernel knows of a run and refuses: faults, buffers, the ring of rows from the SSD, instructions.
//
// Golden  golden.emb.core
#pragma once

#include "hotrail_emb.h"
#include "instruction.h"
#include "rows.h"
#include "tt_memory.h"

#if defined(HOTRAIL_CSIM)
extern "C" void hotrail_host_step();        // the host's part between two polls: the testbench brings pages
#define HOTRAIL_HOST_STEP() hotrail_host_step()
#else
#define HOTRAIL_HOST_STEP()
#endif

namespace hotrail {

const uint32_t POSITION_MASK = (1u << HOTRAIL_POSITION_BITS) - 1;   // of an index word, and of ring positions

struct Fault {
    uint32_t code, bag, index, detail;
};

inline Fault fault_of(uint32_t code, uint32_t detail, uint32_t bag = 0, uint32_t index = 0) {
    return {code, bag, index, detail};
}

inline Fault no_fault() { return fault_of(HOTRAIL_EMB_CODE_OK, 0); }

// Beats of the kernel's buffers, and what the ring's doorbell said last.
struct Buffers {
    uint32_t inputs_beats, outputs_beats, rows_beats, ring_beats, timeout;
};

struct Ring {
    uint32_t released, filled;
};

// A word of the result block, by its byte offset.
inline Word result_word(const volatile Beat *result, int offset) {
    return result[offset / 4 / WORDS].word[offset / 4 % WORDS];
}

// Word `number` of a region of the inputs from beat `first` on; the beat that was read last is kept.
struct Held {
    uint32_t number;
    bool any;
    Beat beat;
};

inline Held none_held() { return {0, false, zero_beat()}; }

inline Word word_at(const Beat *inputs, uint32_t first, uint32_t number, Held &held) {
#pragma HLS inline
    const uint32_t beat = number / WORDS;
    if (!held.any || beat != held.number) held.beat = inputs[first + beat];
    held.number = beat;
    held.any = true;
    return held.beat.word[number % WORDS];
}

inline bool inside(uint32_t beats, uint64_t first, uint64_t count) { return first + count <= beats; }
inline uint64_t beats_of(uint64_t words) { return (words + WORDS - 1) / WORDS; }

// -- The ring of rows from the SSD.

// Whether the row is one of the instruction's, and not before what was released or the run's first position.
inline bool in_ring(const Instruction &item, const Buffers &buffers, uint32_t released, uint32_t position, int beats) {
    if (buffers.ring_beats == 0 || position > POSITION_MASK) return false;
    const uint32_t ahead = (released - item.ring_first) & POSITION_MASK;
    const uint32_t gone = ahead <= POSITION_MASK / 2 ? ahead : 0;
    return uint64_t((position - item.ring_first - gone) & POSITION_MASK) + beats + gone <= item.ring_count
        && uint64_t(position & (buffers.ring_beats - 1)) + beats <= buffers.ring_beats;
}

// Whether the row was there when the doorbell was read last.
inline bool has_landed(const Buffers &buffers, const Ring &ring, uint32_t position, int beats) {
    return ((ring.filled - position - beats) & POSITION_MASK) < buffers.ring_beats;
}

// Waits until the row has landed; golden.emb.core's TIMEOUT where it never does.
inline Fault wait_for_row(const volatile Beat *result, const Buffers &buffers, Ring &ring, uint32_t position,
                          int beats) {
    uint32_t left = buffers.timeout;
WAIT:
    while (!has_landed(buffers, ring, position, beats)) {
#pragma HLS loop_tripcount min=0 max=100000
        if (left-- == 0) return fault_of(HOTRAIL_EMB_CODE_TIMEOUT, position);
        HOTRAIL_HOST_STEP();
        ring.filled = result_word(result, HOTRAIL_EMB_RESULT_FILLED) & POSITION_MASK;
        const uint32_t ahead = (ring.filled - ring.released) & POSITION_MASK;
        if (ahead <= POSITION_MASK / 2 && ahead > buffers.ring_beats)
            return fault_of(HOTRAIL_EMB_CODE_RING_OVERFLOW, ring.filled);
    }
    return no_fault();
}

// -- What an instruction may ask for, before anything is done.

struct Tables {             // of the TT unit, as programs have to keep to them
    bool loaded[TT_TABLES];
};

inline Stripes stripes_of(const Instruction &item) {
    return {stored_beats(item.row_beats, item.row_format), int(item.piece_beats)};
}

inline bool tt_is_loaded(const Tables &tables, uint32_t table) {
    return table < TT_TABLES && tables.loaded[table & (TT_TABLES - 1)];
}

inline bool allowed(const Instruction &item, const Buffers &buffers, const TTMemory &memory, const Tables &tables) {
    if (!item.in_range || item.reserved) return false;
    if (item.opcode == HOTRAIL_EMB_LOAD) return true;
    if (item.ring_count && (buffers.ring_beats & (buffers.ring_beats - 1))) return false;
    if (!stripes_of(item).whole()) return false;
    if (item.opcode == HOTRAIL_EMB_FILL) return true;
    const bool maximum_of = item.mode == HOTRAIL_EMB_MODE_MAX;
    if (item.weighted && item.mode != HOTRAIL_EMB_MODE_SUM) return false;
    if ((item.weighted || maximum_of) && item.chunk_rows != 1) return false;
    if (item.tt_rows > 1u << TT_INDEX_BITS) return false;
    if (item.tt_rows == 0 || !tt_is_loaded(tables, item.tt_table)) return true;
    const Descriptor &d = memory.table[item.tt_table & (TT_TABLES - 1)];
    return item.row_beats == d.last_beats + 1 && item.chunk_rows <= d.last_chunk + 1;
}

inline Fault check_bounds(const Instruction &item, const Buffers &buffers) {
    if (item.ring_count > buffers.ring_beats) return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_RING);
    const bool fill = item.opcode == HOTRAIL_EMB_FILL;
    const uint64_t indices = beats_of(fill ? 2 * uint64_t(item.count) : item.indices_count);
    if (!inside(buffers.inputs_beats, item.indices, indices)
        || (!fill && !inside(buffers.inputs_beats, item.lengths, beats_of(item.count)))
        || (item.weighted && !inside(buffers.inputs_beats, item.weights, indices)))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_INPUTS);
    if (!inside(buffers.rows_beats, item.dram_base, stripes_of(item).beats(item.dram_rows)))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_ROWS);
    const uint64_t outputs = uint64_t(item.count - 1) * item.out_stride + vector_beats(item.row_beats, item.format);
    if (!fill && !inside(buffers.outputs_beats, item.out, outputs))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_OUTPUTS);
    return no_fault();
}

}  // namespace hotrail
