/* rows_mma.c - see rows_mma.h.
 *
 * Kernel: linear/rows_mma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/rows_mma.h"

#include "base/macros.h"
#include "kernel/linear/linear_args.h"
#include "op/linear/rows_launch.h"

enum {
    ARCH = 80, /* whose tensor cores the kernel is written for */
    ALIGN = 16,
    ROWS_MIN = 9,   /* below, few_rows.cu and the library's own kernels for few rows */
    ROWS_FEW = 256, /* of a text; an image has more */
    ROWS_MAX = 1 << 16,
    COLUMNS_STEP = 8,
    NEAR = 1 << 24, /* of columns, and of k: numbers of tiles and chunks are far from overflow */
};

/* ---- which ---- */

/* Which products are taken: for what reason, and up to how many billions of additions and
 * multiplications, by the size of an element. Beyond, the library's products are faster by more
 * than a launch takes. */
typedef enum reason {
    BEHIND, /* an activation, for which the library would need a kernel behind its product ... */
    BEHIND_MANY, /* ... of more rows than a few */
    IDLE,        /* the library has so few tiles that it leaves multiprocessors idle, or has several
                  * blocks share the sums of one and adds them up in a kernel behind */
    REASONS
} reason;
static const double billions_max[REASONS][2] = {
    /* 2 bytes, 4 bytes */
    [BEHIND] = {0.12, 0.12},
    [BEHIND_MANY] = {0.6, 0.4},
    [IDLE] = {0.12, 0.12},
};
enum {
    LIBRARY_TILE = 64,    /* rows and columns of one, ... */
    IDLE_SHARE = 2,       /* ... of which there is less than one for so many multiprocessors */
    IDLE_DEPTH_MIN = 256, /* of k: below, no sum is worth sharing */
};

/* Whether the kernel can. */
static bool can_take(const mp_gemm *g) {
    const int64_t size = (int64_t)mp_dtype_size(g->type), pack = ALIGN / size;
    const bool is_kept = g->type == MP_F16 || g->type == MP_BF16 || (g->type == MP_F32 && g->tf32);
    return is_kept && !g->trans_a && g->batch == 1 && g->m >= ROWS_MIN && g->m <= ROWS_MAX &&
           g->n >= COLUMNS_STEP && g->n <= NEAR && g->n % COLUMNS_STEP == 0 && g->k > 0 &&
           g->k <= NEAR && g->k * size % K_ROWS_MMA_CHUNK == 0 && g->align >= ALIGN &&
           g->lda % pack == 0 && g->ldb % pack == 0 && g->ldc % pack == 0 &&
           g->activation != MP_ACTIVATION_OTHER;
}

static bool is_sooner(const mp_device_info *info, const mp_gemm *g) {
    const double billions = 2e-9 * (double)g->m * (double)g->n * (double)g->k;
    const int wide = mp_dtype_size(g->type) == 4;
    const int64_t tiles = MP_CEIL_DIV(g->m, LIBRARY_TILE) * MP_CEIL_DIV(g->n, LIBRARY_TILE);
    const reason behind = g->m > ROWS_FEW ? BEHIND_MANY : BEHIND;
    if (!mp_library_activates(g) && billions <= billions_max[behind][wide]) {
        return true;
    }
    return g->k >= IDLE_DEPTH_MIN && billions <= billions_max[IDLE][wide] &&
           tiles * IDLE_SHARE < info->multiprocessors;
}

bool mp_rows_mma_takes(const mp_planner *p, const mp_gemm *gemm) {
    return p->device->info.arch >= ARCH && can_take(gemm) && is_sooner(&p->device->info, gemm);
}

/* ---- how it is cut ---- */

/* Rows and columns of a block, and blocks that share one's sums along k. */
typedef struct mma_cut {
    int32_t rows, columns, splits;
} mma_cut;

/* As kernels.txt has them. */
static const mma_cut tiles[] = {{16, 32, 1}, {32, 32, 1}, {32, 64, 1}, {64, 48, 1}};

static int64_t tiles_of(const mp_gemm *g, mma_cut cut) {
    return MP_CEIL_DIV(g->m, cut.rows) * MP_CEIL_DIV(g->n, cut.columns);
}

static int32_t held_by(const mp_gemm *g, mma_cut cut) {
    return K_ROWS_MMA_HELD(cut.rows, cut.columns, g->trans_b, (int32_t)mp_dtype_size(g->type),
                           cut.splits);
}

/* What a multiprocessor has to fetch, in bytes, which is what a product takes its time for; to meet
 * takes as long as some of them. */
static int64_t cost_of(const mp_device_info *info, const mp_gemm *g, mma_cut cut) {
    enum { MEETING = 40 << 10 };
    const int64_t row = g->k * (int64_t)mp_dtype_size(g->type);
    const int64_t turns = MP_CEIL_DIV(tiles_of(g, cut) * cut.splits, info->multiprocessors);
    return turns * ((cut.rows + cut.columns) * (row / cut.splits)) + (cut.splits > 1 ? MEETING : 0);
}

static mma_cut cut_of(const mp_device_info *info, const mp_gemm *g) {
    const int64_t chunks = g->k * (int64_t)mp_dtype_size(g->type) / K_ROWS_MMA_CHUNK;
    const int32_t warps = K_ROWS_MMA_LANES / 32;
    mma_cut best = tiles[0];
    int64_t least = cost_of(info, g, best);
    for (size_t i = 0; i < MP_COUNT_OF(tiles); i++) {
        mma_cut cut = tiles[i];
        for (; cut.splits <= K_ROWS_MMA_SPLITS_MAX; cut.splits *= 2) {
            const bool fits = cut.splits == 1 || (cut.splits <= info->cluster_blocks_max &&
                                                  chunks >= cut.splits * warps);
            const int64_t cost = cost_of(info, g, cut);
            if (fits && held_by(g, cut) <= (int64_t)info->shared_bytes_max && cost < least) {
                best = cut;
                least = cost;
            }
        }
    }
    return best;
}

/* ---- the step ---- */

mp_status mp_plan_rows_mma(mp_planner *p, const mp_gemm *g,
                           const mp_ref operands[MP_GEMM_OPERANDS]) {
    const mma_cut cut = cut_of(&p->device->info, g);
    const mp_rows_cut as = {.rows = cut.rows,
                            .splits = cut.splits,
                            .tiles = tiles_of(g, cut),
                            .lanes = K_ROWS_MMA_LANES,
                            .shared_bytes = (uint32_t)held_by(g, cut)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "rows_mma_%d_%d_%d_%s", cut.rows, cut.columns, g->trans_b,
                          mp_dtype_word(g->type)));
    return mp_rows_launch(p, g, operands, kernel, &as);
}
