/* moe_rows.cu - few routes an expert: bound by the reading of the weights. A group of lanes takes
 * K_NBITS_COLUMNS columns and the routes of a tile.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/quantize/moe.h"

enum { PIECE = K_NBITS_PIECE, COLUMNS = K_NBITS_COLUMNS, ROWS = K_MOE_FEW, GROUP = 32 };

K_FN void multiply(const mp_moe_product_args *args, const k_round *t, const m_tile *tile,
                   int64_t column, float (*sum)[ROWS]) {
    const k_nbits *w = &args->w;
    for (int64_t k = (int64_t)t->lane * PIECE; k < w->k; k += (int64_t)t->width * PIECE) {
        float weight[COLUMNS][PIECE];
        K_UNROLL for (int c = 0; c < COLUMNS; c++) {
            const int64_t at = column + c < w->n ? column + c : w->n - 1;
            w_numbers(w, tile->expert, tile->expert * w->n + at, k, weight[c]);
        }
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
        if (tile.count > 0) {
            multiply(&args, &t, &tile, column, sum);
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
