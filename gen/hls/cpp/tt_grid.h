// The grid of the TT unit: n x n cells of n dot products of n terms, and what its results become.
//
// A slot multiplies an X line (quarter q, row r, word w) by a Y line (cell c, sub-dot s, word w):
// z[r, c, s] += sum_w X[q(s), r, w] Y[c, t(s), w]. Bits of s mean rows, columns or ranks of the operand: ranks add up
// in the cell, columns turn in time. Golden: golden.tt.layout
#pragma once

#include "tt_memory.h"

namespace hotrail {

const int HIGH_SUB = N / 2;

// A product's loops, counts less one; ranks: sub-dot bits that mean ranks.
struct Stage {
    int tiles, blocks, groups, lines, ranks, columns_log2, combine;
};

inline Stage first_stage(const Descriptor &d) {
    return {int(d.products_first_tiles), int(d.products_first_blocks), 0, int(d.products_first_lines),
            d.products_first_wide ? HIGH_SUB : 0, 0, int(d.products_first_wide)};
}

inline Stage middle_stage(const Descriptor &d) {
    return {int(d.products_middle_tiles), int(d.products_middle_blocks), int(d.products_middle_groups),
            int(d.products_middle_lines), int(d.products_middle_ranks), int(d.products_middle_columns_log2),
            int(d.products_middle_combine)};
}

inline Stage last_stage(const Descriptor &d) {
    return {int(d.last_tiles), int(d.last_blocks), int(d.last_groups), int(d.last_lines), int(d.last_ranks),
            int(d.last_columns_log2), int(d.last_combine)};
}

// What the bits of a sub-dot number stand for, as masks; combined: ranks that a cell adds up.
struct Roles {
    int rows, columns, ranks, combined;
};

inline Roles roles_of(const Stage &stage) {
    const int columns = stage.columns_log2 == 0 ? 0 : stage.columns_log2 == 2 ? N - 1 : 1;
    const int combined = stage.combine == 0 ? 0 : stage.combine == 1 ? HIGH_SUB : N - 1;
    return {~columns & ~stage.ranks & (N - 1), columns, stage.ranks, combined};
}

// Turns of a kind, less one: its column bits, whose place in the line time has to take.
inline int turns_of(int mask) { return mask == 0 ? 0 : mask == 3 ? 3 : 1; }

inline int turned_bits(const Roles &roles, int row_turn, int rank_turn) {
    const bool low_rank = roles.ranks & 1, high_rank = roles.ranks >> 1 & 1;
    const int low = low_rank ? rank_turn : row_turn, high = high_rank ? rank_turn : row_turn;
    // Of two turning bits of one kind the high one turns faster.
    const bool both = roles.columns == 3 && low_rank == high_rank;
    return both ? (low >> 1 & 1) | (high & 1) << 1 : (low & 1) | (high & 1) << 1;
}

// The bits of `mask`, low to high, from the low bits of `value`.
inline int spread(int value, int mask) {
    int out = 0;
    for (int bit = 0; bit < 2; bit++) {
        out |= (mask >> bit & value & 1) << bit;
        value >>= mask >> bit & 1;
    }
    return out;
}

// The bits of `value` under `mask`, moved together.
inline int gather(int value, int mask) {
    return mask == 2 ? value >> 1 & 1 : value & mask;
}

inline int bits_of(int mask) { return (mask & 1) + (mask >> 1 & 1); }

struct Tile {
    Sum z[N][N][N];         // row, cell, sub-dot
};

// A slot's operands: X[q(s), r] and Y[c, t(s)], Y of the upper rows from the second line of a pair.
struct Slot {
    Line x, low, high;
    int rows, place, columns, turn, combined;
};

template <bool PEAKS> inline void grid_step(Tile &tile, const Slot &slot) {
#pragma HLS inline
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) {
            for (int leader = 0; leader < N; leader++) {
                if (leader & slot.combined) continue;
                Sum &sum = tile.z[r][c][leader];
#if TT_GROUPED
                int peak = sum.peak;
#else
                Term term[N * N];
#endif
                for (int s = 0; s < N; s++) {
                    const bool counts = (s & ~slot.combined) == leader;
                    const int quarter = (s & ~slot.rows) | slot.place, turned = (s & ~slot.columns) | slot.turn;
                    const Operand &x = slot.x.at[quarter][r];
                    const Operand &y = r < N / 2 ? slot.low.at[c][turned] : slot.high.at[c][turned];
#if TT_GROUPED
                    if (counts && PEAKS) peak = larger(peak, group_exponent(x, y));
                    else if (counts) add_exact(sum, x, y);
#else
                    multiply_words<N>(term + s * N, x, y, counts);
#endif
                }
#if TT_GROUPED
                if (PEAKS) sum.peak = peak;
#else
                add_terms<N * N>(sum, term);
#endif
            }
        }
    }
}

enum Product { FIRST, MIDDLE, LAST };

inline void clear_tile(Tile &tile) {
#pragma HLS pipeline II=1
    for (int r = 0; r < N; r++)
        for (int c = 0; c < N; c++)
            for (int s = 0; s < N; s++) tile.z[r][c][s] = empty_sum();
}

// Results of a first product share the exponent of a row's cells, those of a middle one that of a cell's rows: they
// become groups.
inline void share_peaks(Tile &tile, int product) {
#pragma HLS pipeline II=1
    for (int a = 0; a < N; a++)
        for (int s = 0; s < N; s++) {
            int cells = 0, rows = 0;
            for (int b = 0; b < N; b++) {
                cells = larger(cells, int(tile.z[a][b][s].peak));
                rows = larger(rows, int(tile.z[b][a][s].peak));
            }
            for (int b = 0; b < N; b++) {
                if (product == FIRST) tile.z[a][b][s].peak = cells;
                else tile.z[b][a][s].peak = rows;
            }
        }
}

// Alg. 1's reshape: the line of T that a first or middle product's results become.
inline Line line_of(const Tile &tile, int product, bool swap) {
#pragma HLS pipeline II=1
    Line line;
    for (int c = 0; c < N; c++)
        for (int s = 0; s < N; s++) {
            Sum sum[N];
            for (int w = 0; w < N; w++) {
                if (product == MIDDLE) sum[w] = tile.z[w][N == 4 ? (s & 1) << 1 | s >> 1 : s][c];
                else if (swap && N == 4) sum[w] = tile.z[((s >> 1) << 1 | c >> 1) % N][w][((s & 1) << 1 | (c & 1)) % N];
                else sum[w] = tile.z[s][w][c];
            }
#if TT_GROUPED
            line.at[c][s] = regroup(sum);
#else
            Word word[N];
            for (int w = 0; w < N; w++) word[w] = round_sum(sum[w]);
            line.at[c][s] = operand_of<Operand>(word, false);
#endif
        }
    return line;
}

inline int vector_words(const Descriptor &d) {
    return smaller(int(d.last_beats) * N * N + int(d.last_tail) + 1, TT_DIM_MAX);
}

// A tile of the last product: its words in the vector's order, in `vector`.
inline void write_tile(const Tile &tile, const Descriptor &d, const Roles &roles, int number, int block,
                       Word vector[]) {
    const int columns = N << d.last_columns_log2, blocks = d.last_blocks + 1;
    const int rows = N << bits_of(roles.rows);
    const int dim = vector_words(d);
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) {
            for (int s = 0; s < N; s++) {
#pragma HLS pipeline II=1
                if (s & roles.combined) continue;
                // Of two bits that mean rows the low one counts more.
                const int high = roles.rows == 3 ? (s & 1) << 1 | s >> 1 : gather(s, roles.rows);
                const int row = number * rows + high * N + c;
                const int column = (block << d.last_columns_log2 | gather(s, roles.columns)) * N + r;
                const int at = row * blocks * columns + column;
                if (at < dim) vector[at] = round_sum(tile.z[r][c][s], TT_GROUPED ? UNIT_EXACT : UNIT_SINGLE);
            }
        }
    }
}

}  // namespace hotrail
