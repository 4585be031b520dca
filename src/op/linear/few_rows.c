/* few_rows.c - see few_rows.h.
 *
 * A product of few rows takes as long as its matrix takes to come, and a library's, which is made
 * for more, waits for that several times in turn.
 * Kernels: linear/few_rows.cu, linear/few_rows_mma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/few_rows.h"

#include "kernel/linear/linear_args.h"
#include "op/linear/rows_mma.h"
#include "op/linear/rows_wgmma.h"
#include "op/linear/tile_wgmma.h"

enum {
    COLUMNS_MIN = 256, /* below, there are few blocks */
    DEPTH_MIN = 32,
    DEPTH_MAX = 1 << 14,
    PACK_BYTES = 16,
    STRIP_MIN = 4,        /* packs side by side: of fewer, memory is read by too small pieces ... */
    SMALL_MAX = 20 << 20, /* ... which a matrix of so many bytes outweighs by a sooner start */
    SEVERAL_MAX = 2 << 20, /* the same of several rows without tensor cores, and of more than ... */
    NARROW = 8,            /* ... with them, where others go on ... */
    MATRIX_MAX = 64 << 20, /* ... until a library's start weighs little */
    MATRIX_ARCH = 80,
    MATRIX_DEPTH = 32,    /* numbers along k that a warp takes at once */
    WAY_MIN = 128,        /* of k, to a block of a cluster: below, lanes have too few loads ... */
    WAY_TURNED_MIN = 512, /* ... and where their numbers are neighbours along k */
};

/* How a product is dealt out to blocks. */
typedef struct deal {
    const mp_gemm *gemm;
    bool is_matrix;  /* by tensor cores */
    int32_t across;  /* lanes side by side */
    int32_t columns; /* of a block, or of a cluster */
    int32_t split;   /* of k, as a power of two */
} deal;

static int64_t pack_of(const mp_gemm *g) {
    return PACK_BYTES / (int64_t)mp_dtype_size(g->type);
}

static int64_t strips_of(const deal *d) {
    return MP_CEIL_DIV(d->gemm->n, d->columns);
}

/* So many blocks for a strip that there are three for two multiprocessors, if each has something to
 * do. */
static int32_t split_of(const mp_planner *p, const deal *d) {
    const mp_device_info *info = &p->device->info;
    const int64_t wanted = (int64_t)info->multiprocessors * 3 / 2, strips = strips_of(d);
    const int64_t way = d->gemm->trans_b ? WAY_TURNED_MIN : WAY_MIN;
    int32_t split = 0;
    while (split < K_FEW_ROWS_SPLIT && 2 << split <= info->cluster_blocks_max &&
           strips << split < wanted && d->gemm->k >> (split + 1) >= way) {
        split++;
    }
    return split;
}

/* Whether tensor cores can, and fill the device. */
static bool is_matrix(const mp_planner *p, const mp_gemm *g) {
    const int64_t strips = g->n >> K_FEW_ROWS_MATRIX_SHIFT;
    return p->device->info.arch >= MATRIX_ARCH && mp_dtype_size(g->type) == 2 &&
           g->k % MATRIX_DEPTH == 0 &&
           (g->trans_b || p->device->info.cluster_blocks_max > 1 ||
            strips >= (int64_t)p->device->info.multiprocessors);
}

static void lay_across(const mp_planner *p, int32_t across, deal *d) {
    d->across = across;
    d->columns = across * (int32_t)pack_of(d->gemm);
    d->split = split_of(p, d);
}

static deal deal_of(const mp_planner *p, const mp_gemm *g) {
    deal d = {.gemm = g, .is_matrix = is_matrix(p, g), .across = 1};
    if (d.is_matrix) {
        d.columns = 1 << (g->trans_b ? K_FEW_ROWS_MATRIX_TURNED_SHIFT : K_FEW_ROWS_MATRIX_SHIFT);
        d.split = split_of(p, &d);
    } else if (g->trans_b) {
        d.columns = K_FEW_ROWS_TURNED;
        d.split = split_of(p, &d);
    } else {
        lay_across(p, K_FEW_ROWS_ACROSS, &d);
    }
    /* As many lanes side by side as leave a block for each multiprocessor. */
    while (d.across > 1 && strips_of(&d) << d.split < p->device->info.multiprocessors) {
        lay_across(p, d.across / 2, &d);
    }
    return d;
}

/* Measured on an H200, as shares of what cuBLASLt takes in a graph: by tensor cores one row times
 * 8 MB 0.67, times 32 MB 0.82; four rows 0.67 and 0.86; 16 rows times 2 MB 0.94, times 8 MB 1.18,
 * of matrices stored turned 0.63 and 0.80. Without: one row times 16 MB of floats 0.9; four rows
 * times 8 MB of halves 1.5. */
static bool is_sooner(const deal *d) {
    const mp_gemm *g = d->gemm;
    const int64_t bytes = g->k * g->n * (int64_t)mp_dtype_size(g->type);
    if (d->is_matrix) {
        const bool is_narrow = g->m <= NARROW || g->trans_b;
        return g->m == 1 || bytes <= (is_narrow ? MATRIX_MAX : SEVERAL_MAX);
    }
    return g->m == 1 ? bytes <= SMALL_MAX || g->trans_b || d->across >= STRIP_MIN
                     : bytes <= SEVERAL_MAX;
}

/* Whether all rows of B as they are stored can be read 16 bytes at a time. */
static bool is_even(const mp_gemm *g) {
    const int64_t row = g->trans_b ? g->k : g->n;
    return g->align >= PACK_BYTES && row % pack_of(g) == 0 && g->lda == g->k && g->ldb == row &&
           g->ldc == g->n;
}

/* Whether a kernel can. Of turned matrices of 16-bit numbers only tensor cores can. */
static bool can_take(const mp_planner *p, const mp_gemm *g) {
    const bool is_kept = g->type == MP_F32 || g->type == MP_F16 || g->type == MP_BF16;
    return is_kept && g->batch == 1 && !g->trans_a && g->activation == MP_ACTIVATION_NONE &&
           is_even(g) && g->n >= COLUMNS_MIN && g->k >= DEPTH_MIN && g->k <= DEPTH_MAX &&
           (is_matrix(p, g) ? g->m <= K_FEW_ROWS_MATRIX
                            : g->m <= K_FEW_ROWS && (!g->trans_b || g->type == MP_F32));
}

/* Which kernel, and how much shared memory it wants but for a row that is made. */
static mp_status kernel_of(mp_planner *p, const deal *d, const mp_before *before,
                           const mp_kernel **kernel, int64_t *shared) {
    const mp_gemm *g = d->gemm;
    const char *word = mp_dtype_word(g->type), *matrix = d->is_matrix ? "_mma" : "";
    const char *turned = g->trans_b ? "_turned" : "";
    int rows = g->m == 1 ? 1 : K_FEW_ROWS;
    if (d->is_matrix) {
        rows = g->m <= NARROW ? NARROW : K_FEW_ROWS_MATRIX;
        *shared = (int64_t)K_FEW_ROWS_LANES / 32 * K_FEW_ROWS_MATRIX_AREA(rows, g->trans_b) +
                  K_FEW_ROWS_BOX + g->m * d->columns * (int64_t)sizeof(float);
    } else {
        const int64_t each = g->trans_b ? K_FEW_ROWS_TURNED : pack_of(g);
        *shared =
            (K_FEW_ROWS_LANES * rows * each + K_FEW_ROWS_GIVEN(rows)) * (int64_t)sizeof(float);
    }
    return before != NULL
               ? mp_plan_kernel(p, kernel, "%s_row%s_%s", mp_before_word(before), matrix, word)
               : mp_plan_kernel(p, kernel, "few_rows%s%s_%d_%s", turned, matrix, rows, word);
}

static mp_grid grid_of(const mp_planner *p, const deal *d, int64_t shared) {
    mp_grid grid = mp_plan_grid_rows(p, strips_of(d), K_FEW_ROWS_LANES);
    if (d->is_matrix || d->split > 0) { /* whose blocks have one strip */
        grid.blocks = (uint32_t)(strips_of(d) << d->split);
    }
    grid.shared_bytes = (uint32_t)shared;
    grid.meets = d->split > 0 ? 1U << d->split : 0;
    return grid;
}

/* `before`: what A is made of, instead of its operand; or NULL. */
static mp_status launch(mp_planner *p, const deal *d, const mp_ref operands[MP_GEMM_OPERANDS],
                        const mp_before *before) {
    static const mp_before nothing = {.x = {MP_PLACE_NONE, 0, 0}};
    const mp_gemm *gemm = d->gemm;
    mp_few_rows_args args = {
        .n = gemm->n,
        .k = gemm->k,
        .m = (int32_t)gemm->m,
        .across = d->across,
        .constant = mp_plan_is_constant(p, operands[MP_GEMM_B]),
        .alpha = gemm->alpha,
        .beta = gemm->beta,
        .split = d->split,
    };
    const mp_kernel *kernel = NULL;
    int64_t shared = 0;
    MP_TRY(kernel_of(p, d, before, &kernel, &shared));
    if (before != NULL) {
        args.before = before->args;
        shared += gemm->k * (int64_t)mp_dtype_size(gemm->type);
    } else {
        before = &nothing;
    }
    return MP_LAUNCH(p, kernel, grid_of(p, d, shared), args,
                     MP_BIND(mp_few_rows_args, a, operands[MP_GEMM_A]),
                     MP_BIND(mp_few_rows_args, b, operands[MP_GEMM_B]),
                     MP_BIND(mp_few_rows_args, bias, operands[MP_GEMM_BIAS]),
                     MP_BIND(mp_few_rows_args, d, operands[MP_GEMM_D]),
                     MP_BIND(mp_few_rows_args, out, operands[MP_GEMM_C]),
                     MP_BEFORE_BINDS(mp_few_rows_args, before));
}

mp_status mp_plan_some_rows(mp_planner *p, const mp_gemm *gemm,
                            const mp_ref operands[MP_GEMM_OPERANDS]) {
    if (mp_tile_wgmma_takes(p, gemm)) {
        return mp_plan_tile_wgmma(p, gemm, operands);
    }
    if (mp_rows_wgmma_takes(p, gemm)) {
        return mp_plan_rows_wgmma(p, gemm, operands);
    }
    return mp_rows_mma_takes(p, gemm) ? mp_plan_rows_mma(p, gemm, operands)
                                      : mp_plan_gemm(p, gemm, operands);
}

mp_status mp_plan_rows(mp_planner *p, const mp_gemm *gemm,
                       const mp_ref operands[MP_GEMM_OPERANDS]) {
    if (can_take(p, gemm)) {
        const deal d = deal_of(p, gemm);
        if (is_sooner(&d)) {
            return launch(p, &d, operands, NULL);
        }
    }
    return mp_plan_some_rows(p, gemm, operands);
}

mp_status mp_plan_made_rows(mp_planner *p, const mp_gemm *gemm,
                            const mp_ref operands[MP_GEMM_OPERANDS], const mp_before *before) {
    if (can_take(p, gemm) && mp_before_fits(p, before, K_FEW_ROWS_LANES)) {
        const deal d = deal_of(p, gemm);
        return launch(p, &d, operands, before);
    }
    mp_ref with[MP_GEMM_OPERANDS];
    memcpy(with, operands, sizeof with);
    MP_TRY(mp_plan_before(p, before, &with[MP_GEMM_A]));
    return mp_plan_rows(p, gemm, with);
}
