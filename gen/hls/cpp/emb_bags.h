// BAGS: a dataflow region. `issue` reads lengths, indices and weights, checks them, sends each row to its tier;
// `fetch_rows` and `tt_unit` bring values; the pooling unit adds up; `store_vectors` writes.
//
// Timing  the slowest process of the region decides: an index per cycle; a row's stored beats, then its values' beats;
//         a slot of the TT unit per cycle, see there and in pooling.h
// Golden  golden.emb.core
#pragma once

#include "emb_checks.h"
#include "pooling.h"
#include "tt.h"

namespace hotrail {

struct Fetch {
    bool ring, stop;
    uint32_t row;           // of the table, or a ring position
};

struct Counts {             // of one instruction
    uint32_t dram, tt, ssd;
};

// Reads and checks all lengths, indices and weights; one index a cycle. Ends every stream with its last token, also
// where something is not allowed.
inline void issue(const Beat *inputs, const volatile Beat *result, const Instruction &item, const Buffers &buffers,
                  bool loaded, uint32_t tt_rows, Ring &ring, hls::stream<Fetch> &rows, hls::stream<Lookup> &lookups,
                  hls::stream<PoolToken> &tokens, Fault &fault, Counts &counts) {
    Held lengths = none_held(), indices = none_held(), weights = none_held();
    const int beats = stored_beats(item.row_beats, item.row_format);
    uint32_t start = 0;
    fault = no_fault();
    Counts found = {0, 0, 0};
BAGS:
    for (uint32_t bag = 0; bag < item.count && !fault.code; bag++) {
#pragma HLS loop_tripcount min=1 max=4096
        const uint32_t length = word_at(inputs, item.lengths, bag, lengths);
        const uint64_t end = uint64_t(start) + length;
        if (end > item.indices_count || length > HOTRAIL_LONGEST_BAG
            || (bag == item.count - 1 && end != item.indices_count)) {
            fault = fault_of(HOTRAIL_EMB_CODE_LENGTHS, length, bag, start);
            break;
        }
        const Word mean = item.mode == HOTRAIL_EMB_MODE_MEAN && length ? reciprocal(length) : ONE_WORD;
        uint32_t in_chunk = 0;
        Lookup lookup = {0, false, false};
        uint32_t number = start;
    ROWS:
        while (number < end && !fault.code) {
#pragma HLS loop_tripcount min=1 max=65536
            uint32_t position = 0;
            bool waits = false;     // for a row that has not landed; the loop of an index per cycle goes on behind it
        INDICES:
            for (; number < end && !waits && !fault.code; number += !waits) {
#pragma HLS loop_tripcount min=1 max=65536
#pragma HLS pipeline II=1
                const Word word = word_at(inputs, item.indices, number, indices);
                const uint32_t device = word >> HOTRAIL_POSITION_BITS, row = word & POSITION_MASK;
                const Word weight = item.weighted ? word_at(inputs, item.weights, number, weights) : ONE_WORD;
                PoolToken token = {DRAM_ROW, weight, mean};
                Fetch row_fetch = {false, false, row};
                if (device == HOTRAIL_EMB_DEVICE_DRAM && row < item.dram_rows) {
                    rows.write(row_fetch);
                    tokens.write(token);
                    found.dram++;
                } else if (device == HOTRAIL_EMB_DEVICE_SSD && in_ring(item, buffers, ring, row, beats)) {
                    position = row;
                    waits = !has_landed(buffers, ring, row, beats);
                    if (!waits) {
                        row_fetch.ring = true;
                        rows.write(row_fetch);
                        token.what = SSD_ROW;
                        tokens.write(token);
                        found.ssd++;
                    }
                } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows && loaded) {
                    // A row waits until it is known whether its chunk goes on.
                    if (in_chunk) lookups.write(lookup);
                    lookup.index = row;
                    lookup.ends = ++in_chunk == item.chunk_rows;
                    if (lookup.ends) {
                        token.what = TT_VECTOR;
                        token.factor = item.weighted ? weight : mean;
                        lookups.write(lookup);
                        tokens.write(token);
                        in_chunk = 0;
                    }
                    found.tt++;
                } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows) {
                    fault = fault_of(HOTRAIL_EMB_CODE_TT_TABLE, item.tt_table, bag, number);
                } else {
                    const bool no_device = device > HOTRAIL_EMB_DEVICE_SSD;
                    fault = fault_of(no_device ? HOTRAIL_EMB_CODE_INDEX_DEVICE : HOTRAIL_EMB_CODE_INDEX_RANGE, word,
                                     bag, number);
                }
            }
            if (waits) fault = wait_for_row(result, buffers, ring, position, beats);
        }
        if (fault.code) break;
        if (in_chunk) {
            lookup.ends = true;
            lookups.write(lookup);
            tokens.write({TT_VECTOR, ONE_WORD, mean});
        }
        tokens.write({BAG_END, ONE_WORD, mean});
        start = uint32_t(end);
    }
    rows.write({false, true, 0});
    lookups.write({0, false, true});
    tokens.write({ALL_DONE, 0, 0});
    counts = found;
}

// Brings rows of card memory and of the ring; one stored beat a cycle, then one beat of values a cycle.
inline void fetch_rows(const Beat *rows, const Beat *ring, const Instruction &item, uint32_t ring_beats,
                       hls::stream<Fetch> &wanted, hls::stream<Beat> &values) {
    Beat stored[EMB_ROW_BEATS_MAX];
    const Stripes stripes = stripes_of(item);
ROWS:
    for (Fetch fetch = wanted.read(); !fetch.stop; fetch = wanted.read()) {
#pragma HLS loop_tripcount min=1 max=65536
    READ:
        for (int j = 0; j < stripes.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            stored[j] = fetch.ring ? ring[(fetch.row & (ring_beats - 1)) + j]
                                   : rows[item.dram_base + stripes.place(fetch.row, j)];
        }
    DECODE:
        for (int j = 0; j < int(item.row_beats); j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            values.write(decode_beat(stored, j, item.row_format));
        }
    }
}

// Writes vectors as they come, a beat a cycle.
inline void store_vectors(Beat *outputs, const Instruction &item, hls::stream<Beat> &vectors,
                          hls::stream<bool> &follows) {
    const int beats = vector_beats(item.row_beats, item.format);
    uint64_t to = item.out;
STORE:
    while (follows.read()) {
#pragma HLS loop_tripcount min=1 max=4096
        for (int j = 0; j < beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            outputs[to + j] = vectors.read();
        }
        to += item.out_stride;
    }
}

struct BagsJob {            // what all processes of a BAGS instruction know
    Instruction item;
    PoolJob pool;
    bool loaded;
    uint32_t tt_rows;
};

inline void bags_region(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring_memory,
                        const volatile Beat *result, const BagsJob &job, const Buffers &buffers, TTMemory &memory,
                        Ring &ring, Fault &fault, Counts &counts) {
#pragma HLS dataflow
    hls::stream<Fetch> wanted("wanted");
#pragma HLS stream variable=wanted depth=512
    hls::stream<Lookup> lookups("lookups");
#pragma HLS stream variable=lookups depth=512
    hls::stream<PoolToken> tokens("tokens");
#pragma HLS stream variable=tokens depth=1024
    hls::stream<Beat> values("values");
#pragma HLS stream variable=values depth=1024
    hls::stream<Beat> tt_vectors("tt_vectors");
#pragma HLS stream variable=tt_vectors depth=1024
    hls::stream<Beat> vectors("vectors");
#pragma HLS stream variable=vectors depth=512
    hls::stream<bool> follows("follows");
#pragma HLS stream variable=follows depth=512
    issue(inputs, result, job.item, buffers, job.loaded, job.tt_rows, ring, wanted, lookups, tokens, fault, counts);
    fetch_rows(rows, ring_memory, job.item, buffers.ring_beats, wanted, values);
    tt_unit(lookups, tt_vectors, memory, job.item.tt_table, job.item.row_beats);
    vector_pooling_unit(tokens, values, tt_vectors, vectors, follows, job.pool);
    store_vectors(outputs, job.item, vectors, follows);
}

inline Fault bags(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring_memory,
                  const volatile Beat *result, const Instruction &item, const Buffers &buffers, TTMemory &memory,
                  const Tables &tables, Ring &ring, Counts &counts) {
    const bool loaded = tt_is_loaded(tables, item.tt_table);
    const uint32_t known = memory.table[item.tt_table & (TT_TABLES - 1)].split_rows;
    const BagsJob job = {item, {item.mode == HOTRAIL_EMB_MODE_MAX, int(item.row_beats), int(item.format)}, loaded,
                         loaded ? smaller(item.tt_rows, known) : item.tt_rows};
    Fault fault;
    bags_region(inputs, outputs, rows, ring_memory, result, job, buffers, memory, ring, fault, counts);
    return fault;
}

}  // namespace hotrail
