// The three kinds of fused dot products: see docs/numerics.md. Each is rounded once. The last two are in groups.h.
//
//   single    products of 31 bits, shifted to the largest exponent so far          golden.fp.fp32.dot
//   grouped   exact sums of four products, likewise                                golden.fp.fp32.dot(grouped=True)
//   exact     exact sums of four, shifted to the largest exponent of the whole sum golden.fp.group_dot
#pragma once

#include "fp32.h"

namespace hotrail {

// Terms of a sum that are not finite, as bits.
const int IS_NAN = 1, IS_POSITIVE = 2, IS_NEGATIVE = 4;

inline Word special_word(int special) {
    if ((special & IS_NAN) || special == (IS_POSITIVE | IS_NEGATIVE)) return NAN_WORD;
    return special == IS_POSITIVE ? INFINITY_WORD : INFINITY_WORD | SIGN_BIT;
}

inline int special_product(Number x, Number y) {
    const bool zero_x = x.mantissa == 0, zero_y = y.mantissa == 0;
    if (x.nan || y.nan || (x.infinite && zero_y) || (y.infinite && zero_x)) return IS_NAN;
    if (x.infinite || y.infinite) return x.sign != y.sign ? IS_NEGATIVE : IS_POSITIVE;
    return 0;
}

// A sum under way, in units that `peak`, the largest exponent so far, decides. 2^16 terms of 31 bits and the sign.
struct Sum {
    Int<48> total;
    UInt<9> peak;
    UInt<3> special;
};

inline Sum empty_sum() { return {0, 0, 0}; }

// A term: its value counts 2^(exponent - 254 - 46 + the bits that were dropped).
struct Term {
    Int<36> value;
    UInt<9> exponent;
    UInt<3> special;
};

inline int reach(int shift) { return shift < 63 ? shift : 63; }

// -- The single kind.

const int DROPPED_BITS = 17, UNIT_SINGLE = DROPPED_BITS - 46 - 2 * BIAS;

inline Term multiply(Word a, Word b) {
    const Number x = unpack(a), y = unpack(b);
    const bool counts = x.mantissa != 0 && y.mantissa != 0 && int(x.exponent) != 255 && int(y.exponent) != 255;
    const int64_t size = int64_t((uint64_t(x.mantissa) * uint64_t(y.mantissa)) >> DROPPED_BITS);
    if (!counts) return {0, 0, unsigned(special_product(x, y))};
    return {x.sign != y.sign ? -size : size, unsigned(x.exponent) + unsigned(y.exponent), 0};
}

// The accumulator with its new peak.
inline void raise(Sum &sum, int peak) {
    sum.total = int64_t(sum.total) >> reach(peak - int(sum.peak));
    sum.peak = peak;
}

// Adds a term whose exponent is at most the peak: magnitudes are cut off.
inline void add_term(Sum &sum, Term term) {
    const int shift = reach(int(sum.peak) - int(term.exponent));
    const int64_t value = term.value;
    sum.total = int64_t(sum.total) + (value < 0 ? -(-value >> shift) : value >> shift);
    sum.special = int(sum.special) | int(term.special);
}

// Operands as they are. padded: -0 stands for no operand at all.
template <int TERMS> struct Words {
    Word word[TERMS];
    bool padded;
};

template <int TERMS> inline void set_operand(Words<TERMS> &operand, const Word word[TERMS], bool padded) {
    for (int k = 0; k < TERMS; k++) operand.word[k] = word[k];
    operand.padded = padded;
}

template <int TERMS>
inline void multiply_words(Term term[TERMS], const Words<TERMS> &x, const Words<TERMS> &y, bool counts = true) {
    for (int k = 0; k < TERMS; k++) {
        const bool none = !counts || (x.padded && x.word[k] == SIGN_BIT) || (y.padded && y.word[k] == SIGN_BIT);
        term[k] = multiply(none ? 0 : x.word[k], none ? 0 : y.word[k]);
    }
}

// A beat of terms, all shifted to the largest exponent so far.
template <int TERMS> inline void add_terms(Sum &sum, const Term term[TERMS]) {
    int peak = sum.peak;
    for (int k = 0; k < TERMS; k++) peak = larger(peak, int(term[k].exponent));
    raise(sum, peak);
    for (int k = 0; k < TERMS; k++) add_term(sum, term[k]);
}

template <int TERMS> inline void accumulate(Sum &sum, const Words<TERMS> &x, const Words<TERMS> &y) {
    Term term[TERMS];
    multiply_words<TERMS>(term, x, y);
    add_terms<TERMS>(sum, term);
}

inline Word round_sum(Sum sum, int unit = UNIT_SINGLE) {
    return int(sum.special) ? special_word(int(sum.special)) : round_signed(int64_t(sum.total), int(sum.peak) + unit);
}

}  // namespace hotrail
