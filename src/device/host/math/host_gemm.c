/* host_gemm.c - batched matrix products, cut into tiles for the workers.
 *
 * Tiles of float and double matrices are computed in place. Narrow types are widened a panel at a
 * time into the thread's scratch memory, summed up there, and narrowed once at the end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_math.h"

#include "base/worker.h"

#include <stdatomic.h>
#include <string.h>

enum {
    STEP = 16,            /* tiles begin at multiples of it */
    NARROW_ROWS = 128,    /* of a tile that is widened */
    NARROW_COLUMNS = 256, /* of a tile that is widened */
    NARROW_DEPTH = 512,   /* of the panels such a tile is summed from */
};

#define SMALL_WORK INT64_C(65536) /* multiplications that one thread does sooner than two */

typedef struct plan {
    const mp_gemm *gemm;
    const host_real *real;
    const mp_addr *operands;
    int64_t tile_m, tile_n, tiles_m, tiles_n;
    atomic_bool failed;
} plan;

typedef struct tile {
    const char *a, *b, *d, *bias;
    char *c;
    int64_t m, n; /* of this tile */
} tile;

static tile find_tile(const plan *p, int64_t index) {
    const mp_gemm *g = p->gemm;
    const int64_t size = (int64_t)p->real->size;
    const int64_t batch = index / (p->tiles_m * p->tiles_n);
    const int64_t rest = index % (p->tiles_m * p->tiles_n);
    const int64_t i = rest / p->tiles_n * p->tile_m, j = rest % p->tiles_n * p->tile_n;
    const int64_t a = batch * g->stride_a + (g->trans_a ? i : i * g->lda);
    const int64_t b = batch * g->stride_b + (g->trans_b ? j * g->ldb : j);
    const int64_t c = batch * g->stride_c + i * g->ldc + j;
    return (tile){
        .a = (const char *)p->operands[MP_GEMM_A] + a * size,
        .b = (const char *)p->operands[MP_GEMM_B] + b * size,
        .c = (char *)p->operands[MP_GEMM_C] + c * size,
        .d = g->beta == 0 ? NULL : (const char *)p->operands[MP_GEMM_D] + c * size,
        .bias = g->bias ? (const char *)p->operands[MP_GEMM_BIAS] + j * size : NULL,
        .m = MP_MIN(p->tile_m, g->m - i),
        .n = MP_MIN(p->tile_n, g->n - j),
    };
}

/* ---- float and double ---- */

static void run_direct(const plan *p, const tile *t) {
    const mp_gemm *g = p->gemm;
    const size_t size = p->real->size;
    if (t->d != NULL && t->d != t->c) {
        for (int64_t i = 0; i < t->m; i++) {
            const size_t at = (size_t)(i * g->ldc) * size;
            memcpy(t->c + at, t->d + at, (size_t)t->n * size);
        }
    }
    p->real->product(&(host_product){
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .m = t->m,
        .n = t->n,
        .k = g->k,
        .lda = g->lda,
        .ldb = g->ldb,
        .ldc = g->ldc,
        .a = t->a,
        .b = t->b,
        .c = t->c,
        .alpha = g->alpha,
        .beta = g->beta,
    });
    for (int64_t i = 0; t->bias != NULL && i < t->m; i++) {
        p->real->add(t->c + (size_t)(i * g->ldc) * size, t->bias, (size_t)t->n, 1.0F);
    }
}

/* ---- narrow types ---- */

/* Widens `rows` rows of `columns` elements. */
static void widen(const host_real *real, float *to, const char *from, int64_t rows, int64_t columns,
                  int64_t ld) {
    for (int64_t i = 0; i < rows; i++) {
        real->load(to + i * columns, from + (size_t)(i * ld) * real->size, (size_t)columns, 1);
    }
}

static void sum_panels(const plan *p, const tile *t, float *a, float *b, float *sums) {
    const mp_gemm *g = p->gemm;
    const int64_t size = (int64_t)p->real->size;
    p->real->fill(sums, NULL, (size_t)(t->m * t->n));
    for (int64_t k = 0; k < g->k; k += NARROW_DEPTH) {
        const int64_t depth = MP_MIN(NARROW_DEPTH, g->k - k);
        const int64_t rows_a = g->trans_a ? depth : t->m, columns_a = g->trans_a ? t->m : depth;
        const int64_t rows_b = g->trans_b ? t->n : depth, columns_b = g->trans_b ? depth : t->n;
        widen(p->real, a, t->a + (g->trans_a ? k * g->lda : k) * size, rows_a, columns_a, g->lda);
        widen(p->real, b, t->b + (g->trans_b ? k : k * g->ldb) * size, rows_b, columns_b, g->ldb);
        p->real->product(&(host_product){
            .trans_a = g->trans_a,
            .trans_b = g->trans_b,
            .m = t->m,
            .n = t->n,
            .k = depth,
            .lda = columns_a,
            .ldb = columns_b,
            .ldc = t->n,
            .a = a,
            .b = b,
            .c = sums,
            .alpha = g->alpha,
            .beta = 1.0F,
        });
    }
}

static void run_narrow(plan *p, const tile *t) {
    const mp_gemm *g = p->gemm;
    const host_real *real = p->real;
    const size_t a_count = NARROW_ROWS * NARROW_DEPTH, b_count = NARROW_DEPTH * NARROW_COLUMNS;
    const size_t sums_count = NARROW_ROWS * NARROW_COLUMNS;
    float *a = mp__host_scratch((a_count + b_count + sums_count + NARROW_COLUMNS) * sizeof *a);
    if (a == NULL) {
        atomic_store(&p->failed, true);
        return;
    }
    float *b = a + a_count, *sums = b + b_count, *row = sums + sums_count;
    sum_panels(p, t, a, b, sums);
    for (int64_t i = 0; i < t->m; i++) {
        const size_t at = (size_t)(i * g->ldc) * real->size, count = (size_t)t->n;
        if (t->d != NULL) {
            real->load(row, t->d + at, count, 1);
            real->add(sums + i * t->n, row, count, g->beta);
        }
        if (t->bias != NULL) {
            real->load(row, t->bias, count, 1);
            real->add(sums + i * t->n, row, count, 1.0F);
        }
        real->store(t->c + at, sums + i * t->n, count);
    }
}

/* ---- all tiles ---- */

static void run_tiles(void *context, size_t begin, size_t end) {
    plan *p = context;
    for (size_t i = begin; i < end; i++) {
        const tile t = find_tile(p, (int64_t)i);
        if (p->real->direct) {
            run_direct(p, &t);
        } else {
            run_narrow(p, &t);
        }
    }
}

/* Cuts the larger side until there are a few tiles for every worker. */
static void choose_tiles(plan *p, int64_t wanted) {
    const mp_gemm *g = p->gemm;
    const int64_t parts = MP_CEIL_DIV(wanted, g->batch);
    p->tile_m = g->m;
    p->tile_n = g->n;
    if (g->n >= g->m) {
        p->tile_n = MP_CEIL_DIV(MP_CEIL_DIV(g->n, parts), STEP) * STEP;
    } else {
        p->tile_m = MP_CEIL_DIV(MP_CEIL_DIV(g->m, parts), STEP) * STEP;
    }
    if (!p->real->direct) {
        p->tile_m = MP_MIN(p->tile_m, NARROW_ROWS);
        p->tile_n = MP_MIN(p->tile_n, NARROW_COLUMNS);
    }
    p->tiles_m = MP_CEIL_DIV(g->m, p->tile_m);
    p->tiles_n = MP_CEIL_DIV(g->n, p->tile_n);
}

mp_status mp__host_gemm_run(const mp_gemm *gemm, const mp_addr *operands) {
    plan p = {.gemm = gemm, .real = mp__host_real(gemm->type), .operands = operands};
    const double work = (double)gemm->m * (double)gemm->n * (double)gemm->k * (double)gemm->batch;
    const bool small = work < (double)SMALL_WORK;
    choose_tiles(&p, small ? 1 : (int64_t)mp_worker_count() * 2);
    const size_t count = (size_t)(gemm->batch * p.tiles_m * p.tiles_n);
    const size_t piece = count / (mp_worker_count() * 8);
    mp_worker_run(count, small ? count : piece > 0 ? piece : 1, run_tiles, &p);
    if (atomic_load(&p.failed)) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate scratch memory for a matrix product on the CPU");
    }
    return MP_OK;
}
