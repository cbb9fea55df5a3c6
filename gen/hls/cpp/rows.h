// Rows as they are stored, and vectors as they are written.
//
// Golden: golden.emb.row_decoder, golden.emb.packer, golden.emb.stripes
#pragma once

#include "fp32.h"

namespace hotrail {

// Codes of a format in a word, as a power of two.
inline int codes_log2(int form) { return form == FLOAT32 ? 0 : form == INT8 ? 2 : form == INT4 ? 3 : 1; }

// Beats, of a row's values, that scale and bias take the room of.
inline int header_beats(int form) { return form >= INT8 ? 2 : 0; }

// Beats of a row of `row_beats` beats of values as it is stored.
inline int stored_beats(int row_beats, int form) {
    const int log2 = codes_log2(form);
    return (row_beats + header_beats(form) + (1 << log2) - 1) >> log2;
}

// Beats of a vector in the outputs.
inline int vector_beats(int row_beats, int format) { return format == FLOAT32 ? row_beats : (row_beats + 1) / 2; }

// Code number `at` of a beat.
inline uint32_t code_of(const Beat &beat, int at, int log2) {
    const int bits = 32 >> log2;
    return beat.word[at >> log2] >> (at & ((1 << log2) - 1)) * bits & (0xFFFFFFFF >> (32 - bits));
}

// Beat j of a stored row's values; initiation interval 1.
inline Beat decode_beat(const Beat stored[], int j, int form) {
#pragma HLS inline
    const int log2 = codes_log2(form), place = header_beats(form) + j;
    const Beat beat = stored[place >> log2];
    Word scale = stored[0].word[0], bias = stored[0].word[1];
    if (form == INT4) {
        bias = widen_float16(scale >> 16);
        scale = widen_float16(scale & 0xFFFF);
    }
    Beat values;
    for (int w = 0; w < WORDS; w++) {
        const uint32_t code = code_of(beat, (place & ((1 << log2) - 1)) * WORDS + w, log2);
        values.word[w] = form == FLOAT32 ? code
            : form == FLOAT16 ? flush(widen_float16(code))
            : form == BFLOAT16 ? flush(code << 16) : scaled(code, scale, bias);
    }
    return values;
}

// Where the rows of a table lie in card memory, in beats from the table's first: one after the other, or, in blocks of
// rows, in pieces of piece_beats, of which EMB_STRIPE_BEATS lie side by side.
struct Stripes {
    int row_beats, piece_beats;

    bool whole() const {
        return piece_beats == 0 || (piece_beats < EMB_STRIPE_BEATS && (piece_beats & (piece_beats - 1)) == 0
                                    && (row_beats & (piece_beats - 1)) == 0);
    }
    int piece_log2() const { return bit_length(piece_beats) - 1; }
    // Rows of a block, as a power of two.
    int block_log2() const { return piece_beats ? EMB_STRIPE_LOG2 - piece_log2() : 0; }
    // Beats of so many rows: those of whole blocks.
    uint64_t beats(uint32_t rows) const {
        const uint64_t last = (1u << block_log2()) - 1;
        return ((rows + last) & ~last) * row_beats;
    }
    uint64_t place(uint32_t row, int j) const {
        if (piece_beats == 0) return uint64_t(row) * row_beats + j;
        const uint32_t inside = row & ((1u << block_log2()) - 1);
        return uint64_t(row - inside) * row_beats + (inside << piece_log2())
            + (j >> piece_log2() << EMB_STRIPE_LOG2) + (j & (piece_beats - 1));
    }
};

}  // namespace hotrail
