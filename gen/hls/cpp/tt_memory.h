// The memories of the TT unit: cores as X and Y lines of n^3 words, first and middle products as lines of operands,
// descriptors of tables; and the beats that load them.
//
// Golden  golden.tt.image, golden.tt.load, golden.tt.block16
#pragma once

#include "descriptor.h"
#include "groups.h"

namespace hotrail {

const int N_LOG2 = TT_GRID_LOG2, N = 1 << N_LOG2, LINE = N * N * N;
const int T_LINES = TT_T_LINES, T_MIDDLE_LINES = TT_T_MIDDLE_LINES;

typedef OperandOf<TT_GROUPED, N>::type Operand;     // the N words of a dot product

// Operands [a][b]: X by quarter and row, Y and T by cell and sub-dot.
struct Line {
    Operand at[N][N];
};

// -- Memories of cores: each line has two planes of 64 bits for four words. A float32 line takes both; a line of
// block16, 14 bits a value and 8 for the exponent, takes one.

struct TTMemory {
    uint64_t x[TT_X_LINES][2][LINE / 4], y[TT_Y_LINES][2][LINE / 4];
    Descriptor table[TT_TABLES];
};

struct Products {           // first and middle ones, a line a word of memory
    Line t[T_LINES], t_middle[T_MIDDLE_LINES];
};

#if TT_GROUPED
const int BLOCK_PADDING = -8192, BLOCK_SHIFT = 13;  // a code of block16 that no value has; to a group's mantissa

inline uint64_t to_block(const Word word[4]) {
    const Group group = group_of(word, true);
    uint64_t block = uint64_t(int(group.exponent)) << 56;
    for (int k = 0; k < 4; k++) {
        const int code = int(group.kind[k]) == PADDING ? BLOCK_PADDING : int(int64_t(group.mantissa[k]) >> BLOCK_SHIFT);
        block |= uint64_t(code & 0x3FFF) << 14 * k;
    }
    return block;
}

inline Group from_block(uint64_t block) {
    Group group = {{0}, unsigned(block >> 56), {0}};
    for (int k = 0; k < 4; k++) {
        const int field = int(block >> 14 * k & 0x3FFF), code = field >= 8192 ? field - 16384 : field;
        const bool padding = code == BLOCK_PADDING;
        group.mantissa[k] = padding ? 0 : code * (1 << BLOCK_SHIFT);
        group.kind[k] = padding ? PADDING : code == 0 ? ZERO : code < 0 ? MINUS : PLUS;
    }
    return group;
}
#endif

// A line's place: of block16 two share one of the memory.
inline int memory_line(int address, bool block, int lines) {
    const int line = block ? address >> 1 : address;
    return line < lines ? line : 0;
}

template <int LINES>
inline Line read_line(const uint64_t store[LINES][2][LINE / 4], int address, bool block) {
#pragma HLS inline
    const int line = memory_line(address, block, LINES);
    Line out;
    for (int a = 0; a < N; a++) {
        for (int b = 0; b < N; b++) {
            Word word[N];
            for (int w = 0; w < N; w++) {
                const int at = (a * N + b) * N + w;
                word[w] = Word(store[line][at % 4 / 2][at / 4] >> at % 2 * 32);
            }
            out.at[a][b] = operand_of<Operand>(word, true);
#if TT_GROUPED
            if (block) out.at[a][b] = from_block(store[line][address & 1][a * N + b]);
#endif
        }
    }
    return out;
}

template <int LINES>
inline void write_quarter(uint64_t store[LINES][2][LINE / 4], int address, bool block, int part, const Beat &beat) {
    const int line = memory_line(address, block, LINES);
    for (int g = 0; g < N * N / 4; g++) {
        const Word word[4] = {beat.word[4 * g], beat.word[4 * g + 1], beat.word[4 * g + 2], beat.word[4 * g + 3]};
        const int place = (part & (N - 1)) * (N * N / 4) + g;
#if TT_GROUPED
        if (block) {
            store[line][address & 1][place] = to_block(word);
            continue;
        }
#endif
        for (int h = 0; h < 2; h++) store[line][h][place] = word[2 * h] | uint64_t(word[2 * h + 1]) << 32;
    }
}

// One beat of a load, whose header has been checked.
inline void tt_load(TTMemory &memory, const LoadHeader &to, const Beat &beat) {
    if (to.target == TARGET_X) write_quarter<TT_X_LINES>(memory.x, to.address, to.block, to.part, beat);
    else if (to.target == TARGET_Y) write_quarter<TT_Y_LINES>(memory.y, to.address, to.block, to.part, beat);
    else load_descriptor(memory.table[to.address & (TT_TABLES - 1)], to.part, beat.word);
}

}  // namespace hotrail
