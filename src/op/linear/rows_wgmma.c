/* rows_wgmma.c - see rows_wgmma.h.
 *
 * Kernel: linear/rows_wgmma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/rows_wgmma.h"

#include "base/macros.h"
#include "kernel/linear/linear_args.h"
#include "op/core/op.h"
#include "op/linear/rows_launch.h"

enum {
    ARCH = 90, /* the only one that has what the kernel is made of */
    ALIGN = 16,
    ROWS_MIN = 9,
    ROWS_MAX = 1 << 16,
    NEAR = 1 << 24, /* of columns, and of k: numbers of tiles and chunks are far from overflow */
    SPLITS_MAX = K_ROWS_MMA_SPLITS_MAX,
};

/* ---- how it is cut ---- */

/* Columns of a block's tile, and blocks that share one's sums along k. */
typedef struct group_cut {
    int32_t columns, splits;
    int64_t cost;
} group_cut;

static const int32_t widths[] = {32, 64};

static int64_t tiles_of(const mp_gemm *g, const group_cut *cut) {
    return MP_CEIL_DIV(g->m, K_ROWS_WGMMA_ROWS) * MP_CEIL_DIV(g->n, cut->columns);
}

static int64_t chunks_of(const mp_gemm *g) {
    return MP_CEIL_DIV(g->k * (int64_t)mp_dtype_size(g->type), K_ROWS_WGMMA_CHUNK);
}

/* What a multiprocessor fetches, in bytes, which is what a product takes its time for; to meet, and
 * to exchange sums, takes as long as some of them. */
static int64_t cost_of(const mp_device_info *info, const mp_gemm *g, const group_cut *cut) {
    enum { MEETING = 40 << 10, EXCHANGES = 3 };
    const int64_t turns = MP_CEIL_DIV(tiles_of(g, cut) * cut->splits, info->multiprocessors);
    const int64_t chunks = MP_CEIL_DIV(chunks_of(g), cut->splits);
    const int64_t sums = (int64_t)K_ROWS_WGMMA_ROWS * cut->columns * (int64_t)sizeof(float);
    return turns * (chunks * K_ROWS_WGMMA_STAGE(cut->columns) +
                    (cut->splits > 1 ? MEETING + EXCHANGES * sums : 0));
}

static group_cut cut_of(const mp_device_info *info, const mp_gemm *g) {
    group_cut best = {0};
    for (size_t i = 0; i < MP_COUNT_OF(widths); i++) {
        group_cut cut = {.columns = widths[i], .splits = 1};
        if (!g->trans_b && cut.columns < 64) {
            continue; /* rows of B are read by 128 bytes */
        }
        for (; cut.splits <= MP_MIN(SPLITS_MAX, MP_MAX(info->cluster_blocks_max, 1));
             cut.splits *= 2) {
            const bool fits =
                cut.splits == 1 || chunks_of(g) >= cut.splits * (K_ROWS_WGMMA_LANES / 128);
            cut.cost = cost_of(info, g, &cut);
            if (fits && (best.splits == 0 || cut.cost < best.cost)) {
                best = cut;
            }
        }
    }
    return best;
}

/* ---- which ---- */

/* Up to which cost products are taken, measured beside cuBLASLt's on an H100 in graphs of products
 * with weights from memory, by the size of an element; with an activation that the library would
 * need a kernel for, up to twice that. */
static int64_t cost_max(const mp_gemm *g) {
    const int64_t most = mp_dtype_size(g->type) == 4 ? 512 << 10 : 300 << 10;
    return mp_library_activates(g) ? most : 2 * most;
}

bool mp_rows_wgmma_can(const mp_planner *p, const mp_gemm *g) {
    const int64_t pack = ALIGN / (int64_t)mp_dtype_size(g->type);
    const bool is_half = g->type == MP_F16 || g->type == MP_BF16;
    return p->device->info.arch == ARCH &&
           (is_half || (g->type == MP_F32 && g->tf32 && g->trans_b)) && !g->trans_a &&
           g->batch == 1 && g->m >= ROWS_MIN && g->m <= ROWS_MAX && g->n >= pack && g->n <= NEAR &&
           g->n % pack == 0 && g->k > 0 && g->k <= NEAR && g->k % pack == 0 && g->align >= ALIGN &&
           g->lda % pack == 0 && g->ldb % pack == 0 && g->ldc % pack == 0 &&
           g->activation != MP_ACTIVATION_OTHER;
}

bool mp_rows_wgmma_takes(const mp_planner *p, const mp_gemm *g) {
    const mp_device_info *info = &p->device->info;
    return mp_rows_wgmma_can(p, g) && cut_of(info, g).cost <= cost_max(g);
}

/* Floats that are multiplied by TF32; and halves, of which products of a few rows gain most, and
 * those of large matrices lose (measured on an H200: one to eight rows times 2 to 8 MB 0.82 to 0.92
 * of the time, times 23 MB 1.0, times 34 MB 1.1). */
bool mp_wants_turned(const mp_planner *p, mp_dtype type, int64_t k, int64_t n) {
    enum { HALF_DEPTH = 32, HALF_COLUMNS_MIN = 256, HALF_MAX = 24 << 20 };
    const int64_t pack = ALIGN / (int64_t)sizeof(float);
    if (p->device->info.arch != ARCH || k < pack || n < pack) {
        return false;
    }
    if (type == MP_F16 || type == MP_BF16) {
        return k % HALF_DEPTH == 0 && n % (2 * pack) == 0 && n >= HALF_COLUMNS_MIN &&
               k <= HALF_MAX / 2 / n;
    }
    return type == MP_F32 && p->node->options.tf32 && k % pack == 0 && n % pack == 0;
}

/* ---- the step ---- */

mp_status mp_plan_rows_wgmma(mp_planner *p, const mp_gemm *g,
                             const mp_ref operands[MP_GEMM_OPERANDS]) {
    const group_cut cut = cut_of(&p->device->info, g);
    const mp_rows_cut as = {.rows = K_ROWS_WGMMA_ROWS,
                            .splits = cut.splits,
                            .tiles = tiles_of(g, &cut),
                            .lanes = K_ROWS_WGMMA_LANES,
                            .shared_bytes = (uint32_t)K_ROWS_WGMMA_HELD(cut.columns, cut.splits)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "rows_wgmma_%d_%d_%s", cut.columns, g->trans_b,
                          mp_dtype_word(g->type)));
    return mp_rows_launch(p, g, operands, kernel, &as);
}
