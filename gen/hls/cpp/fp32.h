// binary32 arithmetic on integers, so that no compiler decides how a result is rounded.
//
// Round to nearest even; subnormal operands count as zero of their sign, subnormal results become zero of their sign;
// every NaN is 0x7FC00000.      Golden: golden.fp.fp32, golden.fp.narrow, golden.emb.row_decoder.scaled
#pragma once

#include "types.h"

namespace hotrail {

const Word NAN_WORD = 0x7FC00000, INFINITY_WORD = 0x7F800000, SIGN_BIT = 0x80000000, ONE_WORD = 0x3F800000;
const int BIAS = 127;

// (-1)^sign * mantissa * 2^(exponent - 150); mantissa 0 where the number is zero.
struct Number {
    bool sign, nan, infinite;
    UInt<8> exponent;
    UInt<24> mantissa;
};

inline Number unpack(Word word) {
    const Word exponent = word >> 23 & 0xFF, fraction = word & 0x7FFFFF;
    const bool top = exponent == 255;
    return {word >> 31 != 0, top && fraction != 0, top && fraction == 0, exponent,
            exponent == 0 ? 0 : fraction | 0x800000};
}

inline Word flush(Word word) {
    if ((word & INFINITY_WORD) == 0) return word & SIGN_BIT;
    return (word & ~SIGN_BIT) > INFINITY_WORD ? NAN_WORD : word;
}

inline int bit_length(uint64_t value) {
    int width = 0;
    for (int step = 32; step > 0; step >>= 1) {
        const int moved = value >> step ? step : 0;
        width += moved;
        value >>= moved;
    }
    return width + (value != 0);
}

// The word of (-1)^sign * magnitude * 2^exponent, rounded once; magnitude < 2^62.
inline Word round_word(bool sign, uint64_t magnitude, int exponent) {
    const Word signed_zero = sign ? SIGN_BIT : 0;
    if (magnitude == 0) return signed_zero;
    const int width = bit_length(magnitude), drop = larger(width - 24, 1);
    // At least one bit is dropped; what rounding carries counts into the exponent.
    const uint64_t given = magnitude << (width > 24 ? 0 : 25 - width), rest = given & ((uint64_t(1) << drop) - 1);
    const uint64_t half = uint64_t(1) << (drop - 1), cut = given >> drop;
    const uint64_t kept = cut + (rest > half || (rest == half && (cut & 1)));
    const int biased = exponent + width - 1 + BIAS + int(kept >> 24);
    if (biased >= 255) return signed_zero | INFINITY_WORD;
    return biased <= 0 ? signed_zero : signed_zero | Word(biased) << 23 | Word(kept & 0x7FFFFF);
}

inline Word round_signed(int64_t total, int exponent) {     // an exact zero is +0
    return round_word(total < 0, total < 0 ? uint64_t(-total) : uint64_t(total), exponent);
}

inline Word add(Word a, Word b) {
    const Number x = unpack(a), y = unpack(b);
    if (x.nan || y.nan || (x.infinite && y.infinite && x.sign != y.sign)) return NAN_WORD;
    if (x.infinite || y.infinite) return ((x.infinite ? x.sign : y.sign) ? SIGN_BIT : 0) | INFINITY_WORD;
    const bool swap = (uint32_t(x.exponent) << 24 | uint32_t(x.mantissa))
        < (uint32_t(y.exponent) << 24 | uint32_t(y.mantissa));
    const Number large = swap ? y : x, small = swap ? x : y;
    const int shift = int(large.exponent) - int(small.exponent);
    const int right = shift < 62 ? shift : 62;
    // Bits that are shifted out leave a mark in the lowest one; 30 spare bits keep it away from the rounding.
    const uint64_t high = uint64_t(large.mantissa) << 30, low = uint64_t(small.mantissa) << 30;
    uint64_t moved = low >> right;
    moved |= (moved << right) != low;
    const uint64_t total = x.sign == y.sign ? high + moved : high - moved;
    const bool sign = total == 0 ? x.sign && y.sign : large.sign;
    return round_word(sign, total, int(large.exponent) - BIAS - 23 - 30);
}

// Integers in the order of flushed values, -0 below +0.
inline int64_t order(Word flushed) {
    return flushed >> 31 ? -1 - int64_t(flushed & 0x7FFFFFFF) : int64_t(flushed);
}

inline Word maximum(Word a, Word b) {
    const Word x = flush(a), y = flush(b);
    if (x == NAN_WORD || y == NAN_WORD) return NAN_WORD;
    return order(x) >= order(y) ? x : y;
}

// 1 / n, rounded once; 1 <= n <= 2^24.
inline Word reciprocal(uint32_t n) {
    const int width = bit_length(n);
    const uint64_t divisor = uint64_t(n) << (24 - width), dividend = uint64_t(1) << (23 + 28);
    const uint64_t quotient = dividend / divisor;
    const bool inexact = quotient * divisor != dividend;
    return round_word(false, quotient << 1 | inexact, 1 - width - 29);
}

// -- Rows in other formats.

inline Word widen_float16(uint32_t code) {
    const Word sign = (code & 0x8000) << 16, fraction = code & 0x3FF;
    const int exponent = code >> 10 & 31;
    if (exponent == 31) return sign | INFINITY_WORD | fraction << 13;
    if (exponent) return sign | Word(exponent + 112) << 23 | fraction << 13;
    if (!fraction) return sign;
    const int width = bit_length(fraction);         // a subnormal of 16 bits is a normal number of 32
    return sign | Word(102 + width) << 23 | (fraction << (24 - width) & 0x7FFFFF);
}

inline Word narrow(Word word, int form) {
    const bool half = form == FLOAT16;
    const int fraction = half ? 10 : 7, bias = half ? 112 : 0;
    const Word infinity = half ? 0x7C00 : 0x7F80, nan = half ? 0x7E00 : 0x7FC0;
    const int exponent = word >> 23 & 0xFF;
    const Word mantissa = word & 0x7FFFFF;
    if (exponent == 255 && mantissa) return nan;
    const Word significand = exponent == 0 ? 0 : mantissa | 0x800000;
    const int own = exponent - bias, biased = own > 1 ? own : 1;
    const int below = biased - own, drop = 23 - fraction + (below < 24 ? below : 24);
    // Below 2^24, so that nothing is left of it where more is dropped.
    Word kept = drop > 31 ? 0 : significand >> drop;
    const uint64_t rest = significand - (uint64_t(kept) << drop), middle = uint64_t(1) << (drop - 1);
    if (rest > middle || (rest == middle && (kept & 1))) kept++;
    // The leading one of a normal number, and what rounding carries, count into the exponent.
    const Word code = (Word(biased - 1) << fraction) + kept;
    return word >> 31 << 15 | (code < infinity ? code : infinity);
}

// code * scale + bias, rounded once. scale, bias: flushed.
inline Word scaled(uint32_t code, Word scale, Word bias) {
    const int FAR = 34, FRACTION = 3;
    const int s_field = scale >> 23 & 255, b_field = bias >> 23 & 255;
    if (s_field == 255 || b_field == 255) return NAN_WORD;
    const int s_exponent = s_field ? s_field : 1, b_exponent = b_field ? b_field : 1;
    const int64_t s_mantissa = s_field ? (scale & 0x7FFFFF) | 0x800000 : 0;
    const uint64_t b_mantissa = b_field ? (bias & 0x7FFFFF) | 0x800000 : 0;
    const int64_t product = (scale >> 31 ? -s_mantissa : s_mantissa) * int64_t(code);
    const bool alone = product == 0;                        // the bias as it is
    const int distance = alone ? 0 : b_exponent - s_exponent;
    const int high = distance < 0 ? 0 : distance < FAR ? distance : FAR;
    const int low = distance > 0 ? 0 : -distance < 24 + FRACTION + 1 ? -distance : 24 + FRACTION + 1;
    const uint64_t magnitude = b_mantissa << (high + FRACTION);
    const int64_t moved = int64_t(magnitude >> low) | ((magnitude & ((uint64_t(1) << low) - 1)) != 0);
    const int64_t total = product * (1 << FRACTION) + (bias >> 31 ? -moved : moved);
    const int last = (alone || distance > FAR ? b_exponent - high : s_exponent) - 150 - FRACTION;
    return round_signed(total, last);
}

}  // namespace hotrail
