// Four numbers that share an exponent: the grouped and the exact kind of dot.h.
#pragma once

#include "dot.h"

namespace hotrail {

const int GROUP = 4, GUARD_BITS = 2, REACH = 32;

// What an operand is beside an infinity or a NaN: nothing at all, a zero, a sign, or itself one.
enum Kind { PADDING, ZERO, PLUS, MINUS, PLUS_INFINITY, MINUS_INFINITY, NOT_A_NUMBER };

// Signed mantissas, 2^25 for the hidden bit of a number with the group's exponent.
struct Group {
    Int<27> mantissa[GROUP];
    UInt<8> exponent;
    UInt<3> kind[GROUP];
};

inline int kind_of(Word word, bool padded) {
    const Number x = unpack(word);
    if (x.nan) return NOT_A_NUMBER;
    if (x.infinite) return x.sign ? MINUS_INFINITY : PLUS_INFINITY;
    if (x.mantissa == 0) return padded && x.sign ? PADDING : ZERO;
    return x.sign ? MINUS : PLUS;
}

// padded: -0 stands for no operand at all.
inline Group group_of(const Word word[GROUP], bool padded) {
    Group group;
    int peak = 0;
    for (int k = 0; k < GROUP; k++) {
        const int exponent = word[k] >> 23 & 0xFF;
        peak = exponent == 255 ? peak : larger(peak, exponent);
    }
    for (int k = 0; k < GROUP; k++) {
        const Number x = unpack(word[k]);
        const int exponent = x.exponent;
        const bool number = exponent != 0 && exponent != 255;
        const int64_t mantissa = number ? int64_t(x.mantissa) << GUARD_BITS >> reach(peak - exponent) : 0;
        group.mantissa[k] = x.sign ? -mantissa : mantissa;
        group.kind[k] = kind_of(word[k], padded);
    }
    group.exponent = peak;
    return group;
}

inline void set_operand(Group &operand, const Word word[GROUP], bool padded) { operand = group_of(word, padded); }

inline int64_t exact_product(const Group &x, const Group &y) {
    int64_t sum = 0;
    for (int k = 0; k < GROUP; k++) sum += int64_t(x.mantissa[k]) * int64_t(y.mantissa[k]);
    return sum;
}

inline int group_exponent(const Group &x, const Group &y) {
    return int(x.exponent) == 0 || int(y.exponent) == 0 ? 0 : int(x.exponent) + int(y.exponent);
}

inline int group_special(const Group &x, const Group &y) {
    int special = 0;
    for (int k = 0; k < GROUP; k++) {
        const int a = x.kind[k], b = y.kind[k];
        const bool wild = a >= PLUS_INFINITY || b >= PLUS_INFINITY, none = a == PADDING || b == PADDING;
        const bool nan = a == NOT_A_NUMBER || b == NOT_A_NUMBER || a == ZERO || b == ZERO;
        const bool minus = (a == MINUS || a == MINUS_INFINITY) != (b == MINUS || b == MINUS_INFINITY);
        if (wild && !none) special |= nan ? IS_NAN : minus ? IS_NEGATIVE : IS_POSITIVE;
    }
    return special;
}

// -- The grouped kind.

const int GROUP_DROPPED_BITS = 19, UNIT_GROUPED = GROUP_DROPPED_BITS - 2 * GUARD_BITS - 46 - 2 * BIAS;

// A beat of one group: floor, and nothing where its product lies far below.
inline void accumulate(Sum &sum, const Group &x, const Group &y) {
    raise(sum, larger(int(sum.peak), group_exponent(x, y)));
    const int shift = int(sum.peak) - group_exponent(x, y);
    if (shift < REACH) sum.total = int64_t(sum.total) + (exact_product(x, y) >> GROUP_DROPPED_BITS >> shift);
    sum.special = int(sum.special) | group_special(x, y);
}

// -- The exact kind. A sum's peak is the largest exponent of all its terms before the first is added.

const int CUT_BITS = 21, UNUSED_BITS = 2, UNIT_EXACT = CUT_BITS + 1 - 2 * GUARD_BITS - 46 - 2 * BIAS;

inline void add_exact(Sum &sum, const Group &x, const Group &y) {
    const int shift = int(sum.peak) - group_exponent(x, y);
    if (shift < REACH)
        sum.total = int64_t(sum.total) + (((exact_product(x, y) >> CUT_BITS >> shift) + 1) >> 1);
    sum.special = int(sum.special) | group_special(x, y);
}

// Four sums of one peak as a group.
inline Group regroup(const Sum sum[GROUP]) {
    const int PLACES = 23 + GUARD_BITS;
    int64_t bits[GROUP];
    uint64_t spread = 0;
    for (int k = 0; k < GROUP; k++) {
        bits[k] = int64_t(sum[k].total) >> UNUSED_BITS;
        spread |= uint64_t(bits[k] < 0 ? ~bits[k] : bits[k]);
    }
    const int width = bit_length(spread);
    const int exponent = int(sum[0].peak) + UNIT_EXACT + UNUSED_BITS + BIAS + width - 1;
    const bool under = width == 0 || exponent <= 0, over = !under && exponent >= 255;
    const int left = PLACES + 1 - width;
    Group group;
    for (int k = 0; k < GROUP; k++) {
        const int64_t moved = left < 0 ? bits[k] >> -left : bits[k] * (int64_t(1) << (left < 0 ? 0 : left));
        group.mantissa[k] = under || over ? int64_t(0) : moved;
        int kind = under || bits[k] >= 0 ? PLUS : MINUS;
        if (over) kind = bits[k] < 0 ? MINUS_INFINITY : PLUS_INFINITY;
        const int special = sum[k].special;
        if (special) kind = special == IS_POSITIVE ? PLUS_INFINITY
                          : special == IS_NEGATIVE ? MINUS_INFINITY : NOT_A_NUMBER;
        group.kind[k] = kind;
    }
    group.exponent = under || over ? 0 : exponent;
    return group;
}

// -- What a unit multiplies: a group where its numbers share an exponent, else TERMS numbers.

template <bool GROUPED, int TERMS> struct OperandOf {
    typedef Words<TERMS> type;
};
template <int TERMS> struct OperandOf<true, TERMS> {
    typedef Group type;
};

template <class Operand> inline Operand operand_of(const Word word[], bool padded) {
    Operand operand;
    set_operand(operand, word, padded);
    return operand;
}

}  // namespace hotrail
