// The first two processes of BAGS: lengths and index words out of the inputs, and what becomes of each.
//
// Golden  golden.emb.core
#pragma once

#include "emb_checks.h"
#include "pooling.h"
#include "tt.h"

namespace hotrail {

struct Bag {
    uint32_t length;
    bool wrong;             // no bag may be so long; nothing comes behind it
};

struct Indexed {
    Word word, weight;
};

struct Row {                // what the pooling unit is sent, and where the row is: of its table, or a ring position
    PoolToken token;
    uint32_t number;
};

struct Counts {             // of one instruction
    uint32_t dram, tt, ssd;
};

// What one beat of lengths says, then the words of its bags: a word every two cycles, as indices and weights share an
// interface.
inline void read_inputs(const Beat *inputs, Instruction item, hls::stream<Bag> &bags, hls::stream<Indexed> &words) {
    Held indices = none_held(), weights = none_held();
    uint32_t number = 0;
    bool wrong = false;
LENGTHS:
    for (uint64_t first = 0; first < item.count && !wrong; first += WORDS) {
#pragma HLS loop_tripcount min=1 max=256
        const Beat lengths = inputs[item.lengths + first / WORDS];
        uint32_t end = number;
    BAGS:
        for (int w = 0; w < WORDS; w++) {
#pragma HLS pipeline II=1
            if (wrong || first + w >= item.count) continue;
            const uint32_t length = lengths.word[w], left = item.indices_count - end;
            wrong = length > left || length > HOTRAIL_LONGEST_BAG || (first + w == item.count - 1 && length != left);
            bags.write({length, wrong});
            if (!wrong) end += length;
        }
    INDICES:
        for (; number < end; number++) {
#pragma HLS pipeline II=2
#pragma HLS loop_tripcount min=1 max=65536
            const Word weight = item.weighted ? word_at(inputs, item.weights, number, weights) : ONE_WORD;
            words.write({word_at(inputs, item.indices, number, indices), weight});
        }
    }
}

// Checks bags and indices; an index per cycle. The stream of rows ends with ALL_DONE, that of lookups with stop.
inline void issue(Instruction item, Buffers buffers, bool loaded, uint32_t tt_rows, uint32_t released,
                  hls::stream<Bag> &bags, hls::stream<Indexed> &words, hls::stream<Row> &rows,
                  hls::stream<Lookup> &lookups, Fault &fault, Counts &counts) {
    const int beats = stored_beats(item.row_beats, item.row_format);
    uint32_t number = 0;
    Fault first = no_fault();
    Counts found = {0, 0, 0};
    bool wrong = false;
BAGS:
    for (uint32_t at = 0; at < item.count && !wrong; at++) {
#pragma HLS loop_tripcount min=1 max=4096
        const Bag bag = bags.read();
        wrong = bag.wrong;
        if (wrong && !first.code) first = fault_of(HOTRAIL_EMB_CODE_LENGTHS, bag.length, at, number);
        const uint32_t length = wrong ? 0 : bag.length;
        const Word mean = item.mode == HOTRAIL_EMB_MODE_MEAN && length ? reciprocal(length) : ONE_WORD;
        uint32_t in_chunk = 0;
        // A lookup is held back until it is known whether its chunk goes on. The chunk's token follows its last lookup:
        // nothing waits for a vector whose row is held.
        Lookup lookup = {0, false, false};
        Word factor = mean;
        bool held = false;
    INDICES:
        for (uint32_t k = 0; k < length; k++, number++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=65536
            const Indexed index = words.read();
            if (first.code) continue;
            const uint32_t device = index.word >> HOTRAIL_POSITION_BITS, row = index.word & POSITION_MASK;
            if (device == HOTRAIL_EMB_DEVICE_DRAM && row < item.dram_rows) {
                rows.write({{DRAM_ROW, index.weight, mean}, row});
                found.dram++;
            } else if (device == HOTRAIL_EMB_DEVICE_SSD && in_ring(item, buffers, released, row, beats)) {
                rows.write({{SSD_ROW, index.weight, mean}, row});
                found.ssd++;
            } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows && loaded) {
                if (held) lookups.write(lookup);
                if (lookup.ends) rows.write({{TT_VECTOR, 0, factor}, 0});
                held = true;
                lookup = {row, ++in_chunk == item.chunk_rows, false};
                in_chunk = lookup.ends ? 0 : in_chunk;
                factor = item.weighted ? index.weight : mean;
                found.tt++;
            } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows) {
                first = fault_of(HOTRAIL_EMB_CODE_TT_TABLE, item.tt_table, at, number);
            } else {
                first = fault_of(device > HOTRAIL_EMB_DEVICE_SSD ? HOTRAIL_EMB_CODE_INDEX_DEVICE
                                 : HOTRAIL_EMB_CODE_INDEX_RANGE, index.word, at, number);
            }
        }
        if (first.code) continue;
        if (held) {
            lookup.ends = true;
            lookups.write(lookup);
            rows.write({{TT_VECTOR, 0, factor}, 0});
        }
        rows.write({{BAG_END, 0, mean}, 0});
    }
    lookups.write({0, false, true});
    rows.write({{ALL_DONE, 0, 0}, 0});
    fault = first;
    counts = found;
}

}  // namespace hotrail
