// Integer types and the beat of a port.
//
// Loops inside of a pipelined loop have constant bounds and are unrolled by the compiler, as is what they call.
//
// Widths are ap_int's where a Vitis HLS compiler reads this, or with -DHOTRAIL_AP_INT and AMD's headers on the include
// path. Without them every width is 64 bits, and g++ alone compiles the kernel: no value passes its width, so the
// results are the same.
#pragma once

#include <stdint.h>

#include "config.h"
#include "hls_stream.h"

#if defined(__VITIS_HLS__) || defined(HOTRAIL_AP_INT)
#include "ap_int.h"
template <int W> using Int = ap_int<W>;
template <int W> using UInt = ap_uint<W>;
#else
template <int W> using Int = int64_t;
template <int W> using UInt = uint64_t;
#endif

namespace hotrail {

typedef uint32_t Word;      // the bit pattern of a binary32 number, or a plain 32-bit word

// What a port carries in a cycle.
struct Beat {
    Word word[WORDS];
};

inline Beat zero_beat() {
    const Beat beat = {{0}};
    return beat;
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <class T> inline T larger(T a, T b) { return a > b ? a : b; }
template <class T> inline T smaller(T a, T b) { return a < b ? a : b; }

}  // namespace hotrail
