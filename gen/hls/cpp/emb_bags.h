// BAGS: a dataflow region of processes that streams connect, each with a memory interface of its own.
//
//   read_inputs    lengths, then the index and weight words of so many bags                inputs
//   issue          checks them, sends each row to its tier
//   request_rows   waits for rows from the SSD, makes addresses of beats                   result
//   read_rows      brings these beats                                                      rows, ring
//   decode_rows    makes values of them
//   tt_unit, vector_pooling_unit   see tt.h, pooling.h
//   store_vectors  writes results                                                          outputs
//
// A fault leaves no stream with anything in it: what is behind it is read and dropped.
//
// Timing  the slowest process decides: an index per 2 cycles, a beat per cycle of addresses, reads and results; a row's
//         stored beats, then its values' beats. No request for a row waits for the answer to another.
// Golden  golden.emb.core
#pragma once

#include "emb_issue.h"

namespace hotrail {

struct Address {            // of a stored beat
    bool ring, stop;
    uint64_t beat;
};

struct Stored {
    Beat beat;
    bool stop;
};

// Waits for rows that have not landed, and passes tokens on to the pooling unit. Behind a fault only those that empty
// its streams: no bag ends, so nothing is written.
inline void request_rows(const volatile Beat *result, Instruction item, Buffers buffers, uint32_t released,
                         uint32_t &filled, hls::stream<Row> &rows, hls::stream<Address> &addresses,
                         hls::stream<PoolToken> &tokens, Fault &fault) {
    const Stripes stripes = stripes_of(item);
    Ring ring = {released, filled};
    Fault first = no_fault();
    bool more = true;
ROWS:
    while (more) {
#pragma HLS loop_tripcount min=1 max=65536
        const Row row = rows.read();
        const int what = row.token.what;
        const bool ssd = what == SSD_ROW, brings = ssd || what == DRAM_ROW;
        more = what != ALL_DONE;
        if (ssd && !first.code) first = wait_for_row(result, buffers, ring, row.number, stripes.row_beats);
        if (!first.code || what == TT_VECTOR || !more) tokens.write(row.token);
        if (!brings || first.code) continue;
    BEATS:
        for (int j = 0; j < stripes.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            const uint64_t beat = ssd ? uint64_t(row.number & (buffers.ring_beats - 1)) + j
                                      : item.dram_base + stripes.place(row.number, j);
            addresses.write({ssd, false, beat});
        }
    }
    addresses.write({false, true, 0});
    filled = ring.filled;
    fault = first;
}

// A beat per cycle; as many requests are under way as the interfaces allow.
inline void read_rows(const Beat *rows, const Beat *ring, hls::stream<Address> &addresses,
                      hls::stream<Stored> &stored) {
    bool stop = false;
BEATS:
    while (!stop) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=65536
        const Address at = addresses.read();
        stop = at.stop;
        stored.write({stop ? zero_beat() : at.ring ? ring[at.beat] : rows[at.beat], stop});
    }
}

// The stored beats of a row, then the beats of its values.
inline void decode_rows(Instruction item, hls::stream<Stored> &in, hls::stream<Beat> &values) {
    Beat row[EMB_ROW_BEATS_MAX];
#pragma HLS aggregate variable=row
    const int beats = stored_beats(item.row_beats, item.row_format);
ROWS:
    for (Stored stored = in.read(); !stored.stop; stored = in.read()) {
#pragma HLS loop_tripcount min=1 max=65536
        row[0] = stored.beat;
    READ:
        for (int j = 1; j < beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            row[j] = in.read().beat;
        }
    DECODE:
        for (int j = 0; j < int(item.row_beats); j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            values.write(decode_beat(row, j, item.row_format));
        }
    }
}

// Writes vectors as they come, a beat per cycle.
inline void store_vectors(Beat *outputs, Instruction item, hls::stream<Beat> &vectors, hls::stream<bool> &follows) {
    const int beats = vector_beats(item.row_beats, item.format);
    uint64_t to = item.out;
    int j = 0;
    bool more = follows.read();
BEATS:
    while (more) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=65536
        outputs[to + j] = vectors.read();
        if (++j < beats) continue;
        j = 0;
        to += item.out_stride;
        more = follows.read();
    }
}

// All that a BAGS instruction does. Scalars come by value, as any process may read those; every other argument and every
// stream belongs to one process, or to one that writes it and one that reads it.
inline void bags_region(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring, const Beat *result,
                        const TTMemory &memory, Instruction item, Buffers buffers, TTJob tt, PoolJob pool, bool loaded,
                        uint32_t tt_rows, uint32_t released, uint32_t &filled, Fault &refused, Fault &missing,
                        Counts &counts) {
#pragma HLS dataflow
    hls::stream<Bag> lengths("lengths");
#pragma HLS stream variable=lengths depth=64
    hls::stream<Indexed> words("words");
#pragma HLS stream variable=words depth=64
    hls::stream<Row> issued("issued");
#pragma HLS stream variable=issued depth=512
    hls::stream<Lookup> lookups("lookups");
#pragma HLS stream variable=lookups depth=512
    hls::stream<Address> addresses("addresses");
#pragma HLS stream variable=addresses depth=64
    hls::stream<PoolToken> tokens("tokens");
#pragma HLS stream variable=tokens depth=512
    hls::stream<Stored> stored("stored");
#pragma HLS stream variable=stored depth=512
    hls::stream<Beat> values("values");
#pragma HLS stream variable=values depth=512
    hls::stream<Beat> tt_vectors("tt_vectors");
#pragma HLS stream variable=tt_vectors depth=512
    hls::stream<Beat> vectors("vectors");
#pragma HLS stream variable=vectors depth=512
    hls::stream<bool> follows("follows");
#pragma HLS stream variable=follows depth=512
    read_inputs(inputs, item, lengths, words);
    issue(item, buffers, loaded, tt_rows, released, lengths, words, issued, lookups, refused, counts);
    request_rows(result, item, buffers, released, filled, issued, addresses, tokens, missing);
    read_rows(rows, ring, addresses, stored);
    decode_rows(item, stored, values);
    tt_unit(lookups, tt_vectors, memory, tt);
    vector_pooling_unit(tokens, values, tt_vectors, vectors, follows, pool);
    store_vectors(outputs, item, vectors, follows);
}

inline Fault bags(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring_memory, const Beat *result,
                  const Instruction &item, const Buffers &buffers, const TTMemory &memory, const Tables &tables,
                  Ring &ring, Counts &counts) {
    const bool loaded = tt_is_loaded(tables, item.tt_table);
    const uint32_t known = memory.table[item.tt_table & (TT_TABLES - 1)].split_rows;
    const PoolJob pool = {item.mode == HOTRAIL_EMB_MODE_MAX, int(item.row_beats), int(item.format)};
    const TTJob tt = {int(item.tt_table), int(item.row_beats)};
    Fault refused, missing;
    bags_region(inputs, outputs, rows, ring_memory, result, memory, item, buffers, tt, pool, loaded,
                loaded ? smaller(item.tt_rows, known) : item.tt_rows, ring.released, ring.filled, refused, missing,
                counts);
    return missing.code ? missing : refused;    // a row that was waited for was issued before anything was refused
}

}  // namespace hotrail
