/* moe_rows.cu - few routes an expert: bound by the reading of the weights. A group of lanes takes
 * K_NBITS_COLUMNS columns and the routes of a tile.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/quantize/moe.h"

enum { PIECE = K_NBITS_PIECE, COLUMNS = K_NBITS_COLUMNS, ROWS = K_MOE_FEW, GROUP = 32, AHEAD = 4 };

/* Adds what a piece of each column gives with the rows of a tile. */
K_FN void add(const mp_moe_product_args *args, const m_tile *tile, int64_t k,
              float (*weight)[PIECE], float (*sum)[ROWS]) {
    const k_nbits *w = &args->w;
    K_UNROLL for (int r = 0; r < ROWS; r++) {
        float x[PIECE];
        if (r >= tile->count) {
            continue;
        }
        w_elements(m_row(args, tile, r), k, w->k, w->aligned, x);
        K_UNROLL for (int c = 0; c < COLUMNS; c++) {
            K_UNROLL for (int i = 0; i < PIECE; i++) {
                sum[c][r] += x[i] * weight[c][i];
            }
        }
    }
}

/* A column among those of all matrices; the last one of its matrix for none. */
K_FN int64_t m_column(const k_nbits *w, const m_tile *tile, int64_t column) {
    return tile->expert * w->n + (column < w->n ? column : w->n - 1);
}

K_FN void multiply(const mp_moe_product_args *args, const k_round *t, const m_tile *tile,
                   int64_t column, float (*sum)[ROWS]) {
    const k_nbits *w = &args->w;
    for (int64_t k = (int64_t)t->lane * PIECE; k < w->k; k += (int64_t)t->width * PIECE) {
        float weight[COLUMNS][PIECE];
        K_UNROLL for (int c = 0; c < COLUMNS; c++) {
            w_numbers(w, tile->expert, m_column(w, tile, column + c), k, weight[c]);
        }
        add(args, tile, k, weight, sum);
    }
}

/* The same of packed weights: a piece is so small that a lane has several on their way. */
K_FN void multiply_packed(const mp_moe_product_args *args, const k_round *t, const m_tile *tile,
                          int64_t column, float (*sum)[ROWS]) {
    const k_nbits *w = &args->w;
    const int64_t step = (int64_t)t->width * PIECE;
    w_block common[COLUMNS] = {{0, 0}};
    int64_t known = -1; /* the block that `common` is of */
    for (int64_t first = (int64_t)t->lane * PIECE; first < w->k; first += AHEAD * step) {
        uint64_t packed[AHEAD][COLUMNS];
        K_UNROLL for (int i = 0; i < AHEAD * COLUMNS; i++) {
            const int64_t k = first + i / COLUMNS * step;
            packed[i / COLUMNS][i % COLUMNS] =
                w_packed(w, m_column(w, tile, column + i % COLUMNS), k < w->k ? k : first);
        }
        K_ONE_COPY for (int64_t k = first; k < first + AHEAD * step && k < w->k; k += step) {
            const int64_t block = w_block_of(w, k);
            float weight[COLUMNS][PIECE];
            K_UNROLL for (int c = 0; block != known && c < COLUMNS; c++) {
                common[c] = w_common(w, tile->expert, m_column(w, tile, column + c), block);
            }
            known = block;
            K_UNROLL for (int c = 0; c < COLUMNS; c++) {
                K_UNROLL for (int e = 0; e < PIECE; e++) {
                    weight[c][e] = k + e < w->k ? w_value(w, packed[0][c], e, &common[c]) : 0;
                }
                K_UNROLL for (int i = 0; i + 1 < AHEAD; i++) { /* the next one's turn */
                    packed[i][c] = packed[i + 1][c];
                }
            }
            add(args, tile, k, weight, sum);
        }
    }
}

K_BLOCK_KERNEL(mp_moe_product_args, args) {
    const k_round t = k_rounds(GROUP);
    const int64_t all = args.tiles_max * args.tiles_across;
    for (int64_t first = t.first; first < all; first += t.step) {
        const int64_t item = first + t.group;
        const int64_t column = item % args.tiles_across * COLUMNS;
        float sum[COLUMNS][ROWS] = {{0}};
        m_tile tile = {0, 0, 0};
        if (item < all) {
            tile = m_tile_at(&args, item / args.tiles_across, ROWS);
        }
        if (tile.count > 0 && K_WEIGHTS == K_NBITS_PLAIN) {
            multiply(&args, &t, &tile, column, sum);
        } else if (tile.count > 0) {
            multiply_packed(&args, &t, &tile, column, sum);
        }
        K_UNROLL for (int r = 0; r < ROWS; r++) {
            float total[COLUMNS];
            K_UNROLL for (int c = 0; c < COLUMNS; c++) {
                total[c] = (float)k_group_sum(sum[c][r], t.width);
            }
            K_UNROLL for (int c = 0; c < COLUMNS; c += 2) {
                if (t.lane == 0 && r < tile.count && column + c < args.w.n) {
                    m_put(&args, &tile, r, column + c, total[c], total[c + 1]);
                }
            }
        }
    }
}
