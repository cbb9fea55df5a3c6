// The vector pooling unit: rows in, one vector a bag out.
//
//   tier      s[d] = sum_k w[k] v[k, d], k ascending, of card memory and of the SSD
//   bag       o[d] = sum_p f[p] partial[p, d], order TT chunks, card memory, SSD
//   maximum   the same order with max; an empty bag is +0
//
// Timing  initiation interval 1: a beat of a row a cycle. The end of a bag takes `beats` cycles a partial vector and
//         `beats` for the result. The loop of a sum is a compare, a shift and an adder, 2 to 4 cycles at 250 MHz, and
//         every beat of a row has its own: rows of at least so many beats do not wait for it.
// Source  SCRec III.E, Fig. 7a. Golden: golden.emb.pooling, golden.emb.bags
#pragma once

#include "dot.h"
#include "rows.h"

namespace hotrail {

enum Tier { TIER_DRAM, TIER_SSD, TIERS };
// A partial vector or a row that follows in one of the streams, or the end of a bag or of all.
enum What { DRAM_ROW, SSD_ROW, TT_VECTOR, BAG_END, ALL_DONE };

struct PoolToken {
    int what;
    Word weight;            // of a row of card memory or of the SSD
    Word factor;            // of a partial vector
};

struct PoolJob {
    bool maximum;
    int row_beats, format;
};

// One beat of sums or maxima.
struct Lanes {
    Sum sum[WORDS];
    Word most[WORDS];
};

inline void pool_beat(Lanes &lanes, const Beat &beat, Word weight, bool first, bool maximum_of) {
#pragma HLS inline
    for (int w = 0; w < WORDS; w++) {
        if (first) {
            lanes.sum[w] = empty_sum();
            lanes.most[w] = flush(beat.word[w]);
        }
        const Term term[1] = {multiply(beat.word[w], weight)};
        if (maximum_of) lanes.most[w] = maximum(lanes.most[w], beat.word[w]);
        else add_terms<1>(lanes.sum[w], term);
    }
}

// A row or a partial vector out of its stream.
inline void pool_row(Lanes lanes[], hls::stream<Beat> &row, Word weight, bool first, const PoolJob &job) {
#pragma HLS inline
ROW:
    for (int j = 0; j < job.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
        pool_beat(lanes[j], row.read(), weight, first, job.maximum);
    }
}

inline Beat pooled_beat(const Lanes &lanes, bool maximum_of) {
    Beat beat;
    for (int w = 0; w < WORDS; w++) beat.word[w] = maximum_of ? lanes.most[w] : round_sum(lanes.sum[w]);
    return beat;
}

// Writes a vector in its format: FP32 beats as they are, or two beats of half-precision words in one.
inline void write_vector(const Lanes bag[], bool empty, const PoolJob &job, hls::stream<Beat> &o) {
    Beat packed = zero_beat();
WRITE:
    for (int j = 0; j < job.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
        const Beat beat = empty ? zero_beat() : pooled_beat(bag[j], job.maximum);
        if (job.format == FLOAT32) {
            o.write(beat);
            continue;
        }
        for (int w = 0; w < WORDS; w++) {
            const int place = (j & 1) * WORDS + w;
            packed.word[place / 2] |= narrow(beat.word[w], job.format) << place % 2 * 16;
        }
        if ((j & 1) || j == job.row_beats - 1) {
            o.write(packed);
            packed = zero_beat();
        }
    }
}

// Bags until ALL_DONE. rows: of card memory and the SSD, vectors: of the TT unit, `row_beats` beats each, in the order
// of the tokens. follows: true with each vector of o, false behind the last.
inline void vector_pooling_unit(hls::stream<PoolToken> &tokens, hls::stream<Beat> &rows, hls::stream<Beat> &vectors,
                                hls::stream<Beat> &o, hls::stream<bool> &follows, PoolJob job) {
    Lanes tier[TIERS][EMB_ROW_BEATS_MAX];
    Lanes bag[EMB_ROW_BEATS_MAX];
#pragma HLS aggregate variable=tier
#pragma HLS aggregate variable=bag
    bool held[TIERS] = {false, false}, any = false;

TOKENS:
    for (PoolToken token = tokens.read(); token.what != ALL_DONE; token = tokens.read()) {
#pragma HLS loop_tripcount min=1 max=65536
        if (token.what == BAG_END) {
        PARTIALS:
            for (int t = 0; t < TIERS; t++) {
                if (!held[t]) continue;
                for (int j = 0; j < job.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
                    pool_beat(bag[j], pooled_beat(tier[t][j], job.maximum), token.factor, !any, job.maximum);
                }
                held[t] = false;
                any = true;
            }
            follows.write(true);
            write_vector(bag, !any, job, o);
            any = false;
        } else if (token.what == TT_VECTOR) {
            pool_row(bag, vectors, token.factor, !any, job);
            any = true;
        } else {
            const int t = token.what == DRAM_ROW ? TIER_DRAM : TIER_SSD;
            pool_row(tier[t], rows, token.weight, !held[t], job);
            held[t] = true;
        }
    }
    follows.write(false);
}

}  // namespace hotrail
