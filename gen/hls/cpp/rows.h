// Rows as they are stored, and vectors as they are written.
//
// Golden: golden.emb.row_decoder, golden.emb.packer, golden.emb.stripes
#pragma once

#include "fp32.h"

namespace hotrail {

inline int code_bits(int form) { return form == FLOAT32 ? 32 : form == INT8 ? 8 : form == INT4 ? 4 : 16; }

// Beats, of a row's values, that scale and bias take the room of.
inline int header_beats(int form) { return form >= INT8 ? 2 : 0; }

// Beats of a row of `row_beats` beats of values as it is stored.
inline int stored_beats(int row_beats, int form) {
    return ceil_div((row_beats + header_beats(form)) * code_bits(form), 32);
}

// Beats of a vector in the outputs.
inline int vector_beats(int row_beats, int format) { return format == FLOAT32 ? row_beats : (row_beats + 1) / 2; }

// Code number `at` of `bits` bits each.
inline uint32_t code_of(const Beat &beat, int at, int bits) {
    const int place = at * bits;
    const Word word = beat.word[place / 32];
    return bits == 32 ? word : word >> (place % 32) & ((1u << bits) - 1);
}

// Beat j of a stored row's values; initiation interval 1.
inline Beat decode_beat(const Beat stored[], int j, int form) {
#pragma HLS inline
    const int bits = code_bits(form), codes = 32 / bits, place = header_beats(form) + j;
    const Beat beat = stored[place / codes];
    Word scale = stored[0].word[0], bias = stored[0].word[1];
    if (form == INT4) {
        bias = widen_float16(scale >> 16);
        scale = widen_float16(scale & 0xFFFF);
    }
    Beat values;
    for (int w = 0; w < WORDS; w++) {
        const uint32_t code = code_of(beat, place % codes * WORDS + w, bits);
        values.word[w] = form == FLOAT32 ? code
            : form == FLOAT16 ? flush(widen_float16(code))
            : form == BFLOAT16 ? flush(code << 16) : scaled(code, scale, bias);
    }
    return values;
}

// Where the rows of a table lie in card memory, in beats from the table's first.
struct Stripes {
    int row_beats, piece_beats;

    bool whole() const {
        return piece_beats == 0 || (piece_beats < EMB_STRIPE_BEATS && (piece_beats & (piece_beats - 1)) == 0
                                    && row_beats % piece_beats == 0);
    }
    uint32_t block_rows() const { return piece_beats ? EMB_STRIPE_BEATS / piece_beats : 1; }
    // Beats of so many rows: those of whole blocks.
    uint64_t beats(uint32_t rows) const {
        const uint64_t block = block_rows();
        return (uint64_t(rows) + block - 1) / block * block * row_beats;
    }
    uint64_t place(uint32_t row, int j) const {
        const int piece = piece_beats ? piece_beats : row_beats;
        const uint32_t inside = row % block_rows();
        return uint64_t(row - inside) * row_beats + uint64_t(inside) * piece + j / piece * EMB_STRIPE_BEATS + j % piece;
    }
};

}  // namespace hotrail
