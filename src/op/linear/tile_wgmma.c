/* tile_wgmma.c - see tile_wgmma.h.
 *
 * Kernel: linear/tile_wgmma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/tile_wgmma.h"

#include "base/macros.h"
#include "kernel/linear/linear_args.h"
#include "op/core/op.h"
#include "op/linear/rows_launch.h"
#include "op/linear/rows_wgmma.h"

enum { WIDEST = 192 };

/* Widths of tiles, and clocks that a chunk along k takes of each, as measured on an H200: a chunk
 * of 128 columns was not. */
typedef struct tile_width {
    int32_t columns, clocks;
} tile_width;

static const tile_width widths[] = {{96, 750}, {128, 800}, {WIDEST, 950}};

static int64_t tiles_of(const mp_gemm *g, int32_t columns) {
    return MP_CEIL_DIV(g->m, K_TILE_WGMMA_ROWS) * MP_CEIL_DIV(g->n, columns);
}

/* Clocks until the first chunk is there, for all of them, and for the results, where each
 * multiprocessor makes one tile after the other. */
static int64_t clocks_of(const mp_device_info *info, const mp_gemm *g, const tile_width *width) {
    enum { BEGIN = 3000, END_A_COLUMN = 20 };
    const int64_t chunks = MP_CEIL_DIV(g->k * (int64_t)mp_dtype_size(g->type), K_ROWS_WGMMA_CHUNK);
    return MP_CEIL_DIV(tiles_of(g, width->columns), info->multiprocessors) *
           (BEGIN + chunks * width->clocks + END_A_COLUMN * (int64_t)width->columns);
}

static int32_t columns_of(const mp_device_info *info, const mp_gemm *g) {
    const tile_width *best = &widths[0];
    for (size_t i = 1; i < MP_COUNT_OF(widths); i++) {
        if (clocks_of(info, g, &widths[i]) < clocks_of(info, g, best)) {
            best = &widths[i];
        }
    }
    return best->columns;
}

/* Measured in whole encoders on an H200: BERT-base and ViT-B, of which one to four texts or images
 * take 0.87 to 0.96 of the time with it in the place of two kernels; and with floats in tiles of
 * the widest kind, eight texts 0.95. Tiles that take turns, or leave multiprocessors idle, are
 * slower than the library's. */
bool mp_tile_wgmma_takes(const mp_planner *p, const mp_gemm *g) {
    enum { BUSY_NUM = 7, BUSY_DEN = 10 }; /* part of the multiprocessors that have a tile */
    const mp_device_info *info = &p->device->info;
    if (!mp_rows_wgmma_can(p, g) || !g->trans_b || g->m < K_TILE_WGMMA_ROWS) {
        return false;
    }
    const int32_t columns = columns_of(info, g);
    const int64_t tiles = tiles_of(g, columns);
    return tiles <= info->multiprocessors && tiles * BUSY_DEN >= info->multiprocessors * BUSY_NUM &&
           (!mp_library_activates(g) || (g->type == MP_F32 && columns == WIDEST)) &&
           (size_t)K_TILE_WGMMA_HELD(columns) <= info->shared_bytes_max;
}

mp_status mp_plan_tile_wgmma(mp_planner *p, const mp_gemm *g,
                             const mp_ref operands[MP_GEMM_OPERANDS]) {
    const int32_t columns = columns_of(&p->device->info, g);
    const mp_rows_cut cut = {.rows = K_TILE_WGMMA_ROWS,
                             .splits = 1,
                             .tiles = tiles_of(g, columns),
                             .lanes = K_TILE_WGMMA_LANES,
                             .shared_bytes = (uint32_t)K_TILE_WGMMA_HELD(columns)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "tile_wgmma_%d_%s", columns, mp_dtype_word(g->type)));
    return mp_rows_launch(p, g, operands, kernel, &cut);
}
