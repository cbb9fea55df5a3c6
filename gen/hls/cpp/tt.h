// The TT computation unit: row numbers in, sums of rows of tensor-train tables out.
//
//   E(i, :) = G_1[i_1] G_2[i_2] .. G_d[i_d], d = 2, 3 or 4         (SCRec II.B eq. 2, III.E Alg. 1)
//
// Alg. 1 here:  index split   i = ((i_1 I_2 + i_2) I_3 + i_3) ..                          split_index
//               slices        line of G_k[i_k] = base_k + i_k stride_k                    split_index
//               product       T_k = T_{k-1} G_k[i_k], a slot a cycle                      run_product
//               reshape       results go where the next product reads them                line_of, write_tile
//
// Timing  a slot a cycle (initiation interval 1) and the pipeline's depth for each pass of a tile. Where sums share an
//         exponent there are two, for the largest exponent first, and the loop of the sum is one adder; else one, and
//         its loop is a shift and an adder, so that a clock of 250 MHz may ask for an interval of 2 to 4. A lookup has
//         golden.tt.layout.plan(..).slots slots; a tile of the last product takes n^3 cycles more to leave.
//         The RTL overlaps lookups, runs two lanes and reuses first products; this unit does not.
// Golden  golden.tt.rows, golden.tt.image, golden.tt.load
#pragma once

#include "tt_grid.h"

namespace hotrail {

const int CHUNK_ROWS = TT_CHUNK_ROWS;

struct Slices {             // where the slices of a row begin, in operands
    int first, middle, last, second;
};

inline Slices split_index(const Descriptor &d, uint32_t index) {
    const uint32_t inside = index < d.split_rows ? index : 0;
    const uint32_t last = d.split_last + 1, middle = d.split_middle + 1, second = d.split_second + 1;
    const uint32_t i_last = inside % last, rest = inside / last;
    const uint32_t i_middle = rest % middle, rest_2 = rest / middle;
    const uint32_t i_second = rest_2 % second, i_first = rest_2 / second;
    const uint32_t x = (1u << TT_X_BITS) - 1, y = (1u << TT_Y_BITS) - 1;
    return {int((d.where_first + i_first * d.where_first_stride) & x),
            int((d.where_middle + i_middle * d.where_middle_stride) & x),
            int((d.where_last + i_last * d.where_last_stride) & x),
            int((d.where_second + i_second * d.where_second_stride) & y)};
}

// Where a product's operands begin: of each row of the chunk, in X and in Y, T or the middle products.
struct Source {
    int rows, x[CHUNK_ROWS], y[CHUNK_ROWS];
};

inline Slot fetch(const TTMemory &memory, const Products &products, const Descriptor &d, int product,
                  const Roles &roles, int x, int y, int turn) {
#pragma HLS inline
    const bool block = product == LAST ? d.last_block : d.products_first_block;
    const bool paired = product == FIRST && d.products_first_paired;
    const Line own = read_line<TT_X_LINES>(memory.x, x >> bits_of(roles.rows), block);
    const Line low = product == LAST && d.products_middle_present ? products.t_middle[y & (T_MIDDLE_LINES - 1)]
        : product != FIRST && d.products_first_present ? products.t[y & (T_LINES - 1)]
        : read_line<TT_Y_LINES>(memory.y, paired ? 2 * y : y, block);
    return {own, low, paired ? read_line<TT_Y_LINES>(memory.y, 2 * y + 1, block) : low, roles.rows,
            spread(x, roles.rows), roles.columns, turn & roles.columns, roles.combined};
}

// Runs a product tile after tile; source: of one row, or, of the last product, of all rows of the chunk.
// to: the first line of T or of the middle products that it writes.
inline void run_product(const TTMemory &memory, Products &products, const Descriptor &d, int product,
                        const Stage &stage, const Source &source, int to, Word vector[]) {
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
            // The held pointer walks a group's lines once a block, the running one all operands of it.
            int held = row_start + group * lines, running = block * beats, rank_turn = 0, k = 0;
        SLOTS:
            for (int slot = 0; slot < beats * source.rows; slot++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=4096
                const int x = source.x[k] + (product == FIRST ? held : running);
                const int y = source.y[k] + (product == FIRST ? running : held);
                const Slot operands = fetch(memory, products, d, product, roles, x & ((1 << TT_X_BITS) - 1), y,
                                            turned_bits(roles, row_turn, rank_turn));
                if (pass) grid_step<false>(tile, operands);
                else grid_step<true>(tile, operands);
                // Rows turn fastest, then ranks, then lines.
                if (++k < source.rows) continue;
                k = 0;
                running++;
                if (rank_turn++ < rank_turns) continue;
                rank_turn = 0;
                held++;
            }
            if (!pass && product != LAST) share_peaks(tile, product);
        }
        const int line_to = to + number;
        if (product == FIRST) products.t[line_to & (T_LINES - 1)] = line_of(tile, product, d.products_first_swap);
        else if (product == MIDDLE) products.t_middle[line_to & (T_MIDDLE_LINES - 1)] = line_of(tile, product, false);
        else write_tile(tile, d, roles, number / (stage.blocks + 1), block, vector);
        // Blocks turn fastest, then groups of lines, then row turns.
        if (block++ < stage.blocks) continue;
        block = 0;
        if (group++ < stage.groups) continue;
        group = 0;
        if (row_turn++ < row_turns) continue;
        row_turn = 0;
        row_start += (stage.groups + 1) * lines;
    }
}

// The sum of a chunk's rows, in `vector`.
inline void tt_chunk(const TTMemory &memory, Products &products, const Descriptor &d, const uint32_t index[CHUNK_ROWS],
                     int rows, Word vector[]) {
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
            run_product(memory, products, d, FIRST, first, source, last.y[k], vector);
        }
        if (d.products_middle_present) {
            source.x[0] = at.middle;
            source.y[0] = last.y[k];
            last.y[k] = k * (middle.tiles + 1);
            run_product(memory, products, d, MIDDLE, middle, source, last.y[k], vector);
        }
    }
    run_product(memory, products, d, LAST, last_stage(d), last, 0, vector);
}

struct Lookup {
    uint32_t index;
    bool ends;              // the chunk ends behind this row
    bool stop;              // nothing comes any more
};

struct TTJob {
    int table, row_beats;
};

// Chunks of rows of one table until `stop`; a vector leaves in `row_beats` beats, +0 past its end.
inline void tt_unit(hls::stream<Lookup> &lookups, hls::stream<Beat> &o, const TTMemory &memory, TTJob job) {
    static Products products;
#pragma HLS aggregate variable=products.t
#pragma HLS aggregate variable=products.t_middle
    uint32_t index[CHUNK_ROWS];
    Word vector[TT_DIM_MAX];
#pragma HLS array_partition variable=vector cyclic factor=WORDS
    const Descriptor d = memory.table[job.table & (TT_TABLES - 1)];
    int rows = 0;
LOOKUPS:
    for (Lookup lookup = lookups.read(); !lookup.stop; lookup = lookups.read()) {
#pragma HLS loop_tripcount min=1 max=65536
        index[rows++ & (CHUNK_ROWS - 1)] = lookup.index;
        if (!lookup.ends) continue;
        tt_chunk(memory, products, d, index, smaller(rows, CHUNK_ROWS), vector);
        rows = 0;
    BEATS:
        for (int j = 0; j < job.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            Beat beat;
            for (int w = 0; w < WORDS; w++)
                beat.word[w] = j * WORDS + w < vector_words(d) ? vector[j * WORDS + w] : 0;
            o.write(beat);
        }
    }
}

}  // namespace hotrail
