// The TT computation unit: row numbers in, sums of rows of tensor-train tables out.
//
//   E(i, :) = G_1[i_1] G_2[i_2] .. G_d[i_d], d = 2, 3 or 4         (SCRec II.B eq. 2, III.E Alg. 1)
//
// Alg. 1 here:  index split   i = ((i_1 I_2 + i_2) I_3 + i_3) ..                          split_index
//               slices        line of G_k[i_k] = base_k + i_k stride_k                    split_index
//               product       T_k = T_{k-1} G_k[i_k], a slot a cycle                      run_product
//               reshape       results go where the next product reads them                write_line, write_tile
//
// The grid has n x n cells of n dot products of n terms, n = 2^TT_GRID_LOG2. A slot multiplies an X line (quarter q,
// row r, word w) by a Y line (cell c, sub-dot s, word w): z[r, c, s] += sum_w X[q(s), r, w] Y[c, t(s), w]. Bits of s
// mean rows, columns or ranks of the operand (golden.tt.layout); ranks add up in the cell, columns turn in time.
//
// Timing  a slot a cycle (initiation interval 1) in each pass. Where sums share an exponent a tile's slots are passed
//         twice, for the largest exponent first, and the loop of the sum is one adder; else once, and its loop is a
//         shift and an adder, so that a clock of 250 MHz may ask for an interval of 2 to 4. A lookup has
//         golden.tt.layout.plan(..).slots slots; a tile of the last product takes n^3 cycles more to leave.
//         The RTL overlaps lookups, runs two lanes and reuses first products; this unit does not.
// Golden  golden.tt.rows, golden.tt.image, golden.tt.load
#ifndef HOTRAIL_TT_H
#define HOTRAIL_TT_H

#include "descriptor.h"
#include "dot.h"

namespace hotrail {

const int N_LOG2 = TT_GRID_LOG2, N = 1 << N_LOG2, LINE = N * N * N;
const int CHUNK_ROWS = 8, HIGH_SUB = N / 2;
const int T_LINES = TT_T_LINES, T_MIDDLE_LINES = TT_T_MIDDLE_LINES;

// -- Operands: single words, or groups of four that share an exponent.

#if TT_GROUPED
typedef Group Operand;                              // the N = 4 words of a dot product
#else
struct Operand {
    Word word[N];
    bool padded;                                    // -0 stands for no operand at all
};
#endif

inline Operand operand_of(const Word word[N], bool padded) {
#if TT_GROUPED
    return group_of(word, padded);
#else
    Operand operand;
    for (int w = 0; w < N; w++) {
#pragma HLS unroll
        operand.word[w] = word[w];
    }
    operand.padded = padded;
    return operand;
#endif
}

// Operands [a][b]: X by quarter and row, Y and T by cell and sub-dot.
struct Line {
    Operand at[N][N];
};

// -- Memories of cores: each line has two planes of 64 bits for four words. A float32 line takes both; a line of
// block16, 14 bits a value and 8 for the exponent, takes one.

struct TTMemory {
    uint64_t x[TT_X_LINES][2][LINE / 4], y[TT_Y_LINES][2][LINE / 4];
    Line t[T_LINES], t_middle[T_MIDDLE_LINES];      // first and middle products
    Descriptor table[TT_TABLES];
};

#if TT_GROUPED
const int BLOCK_PADDING = -8192, BLOCK_SHIFT = 13;  // a code of block16 that no value has; to a group's mantissa

inline uint64_t to_block(const Word word[4]) {
    const Group group = group_of(word, true);
    uint64_t block = uint64_t(int(group.exponent)) << 56;
    for (int k = 0; k < 4; k++) {
#pragma HLS unroll
        const int code = int(group.kind[k]) == PADDING ? BLOCK_PADDING : int(int64_t(group.mantissa[k]) >> BLOCK_SHIFT);
        block |= uint64_t(code & 0x3FFF) << 14 * k;
    }
    return block;
}

inline Group from_block(uint64_t block) {
    Group group;
    group.exponent = int(block >> 56);
    for (int k = 0; k < 4; k++) {
#pragma HLS unroll
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
#pragma HLS unroll
            Word word[N];
            for (int w = 0; w < N; w++) {
                const int at = (a * N + b) * N + w;
                word[w] = Word(store[line][at % 4 / 2][at / 4] >> at % 2 * 32);
            }
            out.at[a][b] = operand_of(word, true);
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
#pragma HLS unroll
        const Word *word = beat.word + 4 * g;
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

// One beat of a load; header: {block[22], flip[21:20], part[19:18], target[17:16], address[15:0]}, checked before.
inline void tt_load(TTMemory &memory, Word header, const Beat &beat) {
    const int address = header & 0xFFFF, target = header >> 16 & 3, part = header >> 18 & 3;
    const bool block = header >> 22 & 1;
    if (target == 0) write_quarter<TT_X_LINES>(memory.x, address, block, part, beat);
    else if (target == 1) write_quarter<TT_Y_LINES>(memory.y, address, block, part, beat);
    else load_descriptor(memory.table[address & (TT_TABLES - 1)], part, beat.word);
}

// -- One product.

struct Slices {             // where the slices of a row begin, in operands
    int first, middle, last, second;
};

inline Slices split_index(const Descriptor &d, uint32_t index) {
    const uint32_t inside = index < d.split_rows ? index : 0;
    const uint32_t last = d.split_last + 1, middle = d.split_middle + 1, second = d.split_second + 1;
    const uint32_t i_last = inside % last, rest = inside / last;
    const uint32_t i_middle = rest % middle, rest_2 = rest / middle;
    const uint32_t i_second = rest_2 % second, i_first = rest_2 / second;
    Slices at;
    at.first = (d.where_first + i_first * d.where_first_stride) & ((1u << TT_X_BITS) - 1);
    at.middle = (d.where_middle + i_middle * d.where_middle_stride) & ((1u << TT_X_BITS) - 1);
    at.last = (d.where_last + i_last * d.where_last_stride) & ((1u << TT_X_BITS) - 1);
    at.second = (d.where_second + i_second * d.where_second_stride) & ((1u << TT_Y_BITS) - 1);
    return at;
}

// A product's loops, counts less one; ranks: sub-dot bits that mean ranks.
struct Stage {
    int tiles, blocks, groups, lines, ranks, columns_log2, combine;
};

inline Stage first_stage(const Descriptor &d) {
    const Stage stage = {int(d.products_first_tiles), int(d.products_first_blocks), 0, int(d.products_first_lines),
                         d.products_first_wide ? HIGH_SUB : 0, 0, int(d.products_first_wide)};
    return stage;
}

inline Stage middle_stage(const Descriptor &d) {
    const Stage stage = {int(d.products_middle_tiles), int(d.products_middle_blocks), int(d.products_middle_groups),
                         int(d.products_middle_lines), int(d.products_middle_ranks),
                         int(d.products_middle_columns_log2), int(d.products_middle_combine)};
    return stage;
}

inline Stage last_stage(const Descriptor &d) {
    const Stage stage = {int(d.last_tiles), int(d.last_blocks), int(d.last_groups), int(d.last_lines),
                         int(d.last_ranks), int(d.last_columns_log2), int(d.last_combine)};
    return stage;
}

// What the bits of a sub-dot number stand for, as masks; combined: ranks that a cell adds up.
struct Roles {
    int rows, columns, ranks, combined;
};

inline Roles roles_of(const Stage &stage) {
    Roles roles;
    roles.columns = stage.columns_log2 == 0 ? 0 : stage.columns_log2 == 2 ? N - 1 : 1;
    roles.ranks = stage.ranks;
    roles.rows = ~roles.columns & ~roles.ranks & (N - 1);
    roles.combined = stage.combine == 0 ? 0 : stage.combine == 1 ? HIGH_SUB : N - 1;
    return roles;
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
#pragma HLS unroll
        if (mask >> bit & 1) {
            out |= (value & 1) << bit;
            value >>= 1;
        }
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
#pragma HLS unroll
        for (int c = 0; c < N; c++) {
#pragma HLS unroll
            for (int leader = 0; leader < N; leader++) {
#pragma HLS unroll
                if (leader & slot.combined) continue;
                Sum &sum = tile.z[r][c][leader];
                int peak = sum.peak;
#if !TT_GROUPED
                Term term[N][N];
#endif
                for (int s = 0; s < N; s++) {
#pragma HLS unroll
                    if ((s & ~slot.combined) != leader) continue;
                    const int quarter = (s & ~slot.rows) | slot.place, turned = (s & ~slot.columns) | slot.turn;
                    const Operand &x = slot.x.at[quarter][r];
                    const Operand &y = r < N / 2 ? slot.low.at[c][turned] : slot.high.at[c][turned];
#if TT_GROUPED
                    if (PEAKS) peak = larger(peak, group_exponent(x, y));
                    else add_exact(sum, x, y);
#else
                    for (int w = 0; w < N; w++) {
#pragma HLS unroll
                        const bool none = (x.padded && x.word[w] == SIGN_BIT) || (y.padded && y.word[w] == SIGN_BIT);
                        term[s][w] = multiply(none ? 0 : x.word[w], none ? 0 : y.word[w]);
                        peak = larger(peak, int(term[s][w].exponent));
                    }
#endif
                }
#if TT_GROUPED
                if (PEAKS) sum.peak = peak;
#else
                raise(sum, peak);
                for (int s = 0; s < N; s++) {
#pragma HLS unroll
                    if ((s & ~slot.combined) != leader) continue;
                    for (int w = 0; w < N; w++) add_term(sum, term[s][w]);
                }
#endif
            }
        }
    }
}

enum Product { FIRST, MIDDLE, LAST };

// Where a product's operands begin: of each row of the chunk, in X and in Y, T or the middle products.
struct Source {
    int rows, x[CHUNK_ROWS], y[CHUNK_ROWS];
};

inline Slot fetch(const TTMemory &memory, const Descriptor &d, int product, const Roles &roles, int x, int y,
                  int turn) {
#pragma HLS inline
    Slot slot;
    const bool block = product == LAST ? d.last_block : d.products_first_block;
    slot.rows = roles.rows;
    slot.columns = roles.columns;
    slot.combined = roles.combined;
    slot.turn = turn & roles.columns;
    slot.place = spread(x, roles.rows);
    slot.x = read_line<TT_X_LINES>(memory.x, x >> bits_of(roles.rows), block);
    if (product == LAST && d.products_middle_present) {
        slot.low = slot.high = memory.t_middle[y & (T_MIDDLE_LINES - 1)];
    } else if (product != FIRST && d.products_first_present) {
        slot.low = slot.high = memory.t[y & (T_LINES - 1)];
    } else if (product == FIRST && d.products_first_paired) {
        slot.low = read_line<TT_Y_LINES>(memory.y, 2 * y, block);
        slot.high = read_line<TT_Y_LINES>(memory.y, 2 * y + 1, block);
    } else {
        slot.low = slot.high = read_line<TT_Y_LINES>(memory.y, y, block);
    }
    return slot;
}

inline void clear_tile(Tile &tile) {
    for (int r = 0; r < N; r++)
        for (int c = 0; c < N; c++)
            for (int s = 0; s < N; s++) {
#pragma HLS unroll
                tile.z[r][c][s] = empty_sum();
            }
}

// Results of a first product share the exponent of a row's cells, those of a middle one that of a cell's rows: they
// become groups.
inline void share_peaks(Tile &tile, int product) {
    for (int a = 0; a < N; a++)
        for (int s = 0; s < N; s++) {
#pragma HLS unroll
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
    Line line;
    for (int c = 0; c < N; c++)
        for (int s = 0; s < N; s++) {
#pragma HLS unroll
            Sum sum[N];
            for (int w = 0; w < N; w++) {
                if (product == MIDDLE) sum[w] = tile.z[w][N == 4 ? (s & 1) << 1 | s >> 1 : s][c];
                else if (swap) sum[w] = tile.z[(s >> 1) << 1 | c >> 1][w][(s & 1) << 1 | (c & 1)];
                else sum[w] = tile.z[s][w][c];
            }
#if TT_GROUPED
            line.at[c][s] = regroup(sum);
#else
            Word word[N];
            for (int w = 0; w < N; w++) word[w] = round_sum(sum[w]);
            line.at[c][s] = operand_of(word, false);
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
                if (at < dim) vector[at] = round_sum(tile.z[r][c][s], TT_GROUPED ? UNIT_EXACT
                                                                                                    : UNIT_SINGLE);
            }
        }
    }
}

// Runs a product tile after tile; source: of one row, or, of the last product, of all rows of the chunk.
// to: the first line of T or of the middle products that it writes.
inline void run_product(TTMemory &memory, const Descriptor &d, int product, const Stage &stage, const Source &source,
                        int to, Word vector[]) {
    const Roles roles = roles_of(stage);
    const int row_turns = turns_of(roles.columns & ~roles.ranks & (N - 1));
    const int rank_turns = turns_of(roles.columns & roles.ranks);
    const int lines = stage.lines + 1, beats = lines * (rank_turns + 1);
    int block = 0, group = 0, row_turn = 0, row_start = 0;
TILES:
    for (int number = 0; number <= stage.tiles; number++) {
#pragma HLS loop_tripcount min=1 max=4096
        Tile tile;
#pragma HLS array_partition variable=tile.z complete dim=0
        clear_tile(tile);
    PASSES:
        for (int pass = TT_GROUPED ? 0 : 1; pass < 2; pass++) {
        SLOTS:
            for (int line = 0; line < lines; line++) {
#pragma HLS loop_tripcount min=1 max=128
                for (int rank_turn = 0; rank_turn <= rank_turns; rank_turn++) {
#pragma HLS loop_tripcount min=1 max=4
                    for (int k = 0; k < source.rows; k++) {
#pragma HLS loop_tripcount min=1 max=8
#pragma HLS pipeline II=1
                        // The held pointer walks a group's lines once a block, the running one all operands of it.
                        const int held = row_start + group * lines + line;
                        const int running = block * beats + line * (rank_turns + 1) + rank_turn;
                        const int x = source.x[k] + (product == FIRST ? held : running);
                        const int y = source.y[k] + (product == FIRST ? running : held);
                        const Slot slot = fetch(memory, d, product, roles, x & ((1 << TT_X_BITS) - 1), y,
                                                turned_bits(roles, row_turn, rank_turn));
                        if (pass) grid_step<false>(tile, slot);
                        else grid_step<true>(tile, slot);
                    }
                }
            }
            if (!pass && product != LAST) share_peaks(tile, product);
        }
        const int line_to = to + number;
        if (product == FIRST) memory.t[line_to & (T_LINES - 1)] = line_of(tile, product, d.products_first_swap);
        else if (product == MIDDLE) memory.t_middle[line_to & (T_MIDDLE_LINES - 1)] = line_of(tile, product, false);
        else write_tile(tile, d, roles, number / (stage.blocks + 1), block, vector);
        if (block < stage.blocks) {
            block++;
        } else {
            block = 0;
            if (group < stage.groups) {
                group++;
            } else {
                group = 0;
                if (row_turn < row_turns) row_turn++;
                else {
                    row_turn = 0;
                    row_start += (stage.groups + 1) * lines;
                }
            }
        }
    }
}

// The sum of a chunk's rows, in `vector`.
inline void tt_chunk(TTMemory &memory, const Descriptor &d, const uint32_t index[CHUNK_ROWS], int rows, Word vector[]) {
    const Stage first = first_stage(d), middle = middle_stage(d);
    Source last;
    last.rows = rows;
ROWS:
    for (int k = 0; k < rows; k++) {
#pragma HLS loop_tripcount min=1 max=8
        const Slices at = split_index(d, index[k]);
        Source source;
        source.rows = 1;
        last.x[k] = at.last;
        last.y[k] = at.second;
        if (d.products_first_present) {
            last.y[k] = k * (first.tiles + 1);
            source.x[0] = at.first;
            source.y[0] = at.second;
            run_product(memory, d, FIRST, first, source, last.y[k], vector);
        }
        if (d.products_middle_present) {
            source.x[0] = at.middle;
            source.y[0] = last.y[k];
            last.y[k] = k * (middle.tiles + 1);
            run_product(memory, d, MIDDLE, middle, source, last.y[k], vector);
        }
    }
    run_product(memory, d, LAST, last_stage(d), last, 0, vector);
}

// -- The unit on its streams.

struct Lookup {
    uint32_t index;
    bool ends;              // the chunk ends behind this row
    bool stop;              // nothing comes any more
};

// Chunks of rows of one table until `stop`; a vector leaves in `row_beats` beats, +0 past its end.
inline void tt_unit(hls::stream<Lookup> &lookups, hls::stream<Beat> &o, TTMemory &memory, int table, int row_beats) {
    uint32_t index[CHUNK_ROWS];
    Word vector[TT_DIM_MAX];
#pragma HLS array_partition variable=vector cyclic factor=WORDS
    const Descriptor d = memory.table[table & (TT_TABLES - 1)];
    int rows = 0;
LOOKUPS:
    for (Lookup lookup = lookups.read(); !lookup.stop; lookup = lookups.read()) {
#pragma HLS loop_tripcount min=1 max=65536
        index[rows++ & (CHUNK_ROWS - 1)] = lookup.index;
        if (!lookup.ends) continue;
        tt_chunk(memory, d, index, smaller(rows, CHUNK_ROWS), vector);
        rows = 0;
    BEATS:
        for (int j = 0; j < row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            Beat beat;
            for (int w = 0; w < WORDS; w++) {
#pragma HLS unroll
                const int at = j * WORDS + w;
                beat.word[w] = at < vector_words(d) ? vector[at] : 0;
            }
            o.write(beat);
        }
    }
}

}  // namespace hotrail

#endif
