/* host_blas.c - finds OpenBLAS at run time and calls it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_blas.h"

#include "base/dynlib.h"
#include "base/log.h"

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS's values */

typedef void gemm_f32_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void gemm_f64_fn(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                         const double *a, int lda, const double *b, int ldb, double beta, double *c,
                         int ldc);
typedef void gemv_f32_fn(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                         const float *x, int x_step, float beta, float *y, int y_step);
typedef void set_threads_fn(int count);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    gemm_f32_fn *gemm_f32;
    gemm_f64_fn *gemm_f64;
    gemv_f32_fn *gemv_f32;
    const char *file; /* NULL: not found, and nothing above may be called */
} blas;

/* Finds "<prefix><name>" for the first prefix that has it. */
static bool symbol_find(void *library, const char *name, void *out) {
    static const char *const prefixes[] = {"scipy_", ""};
    for (size_t i = 0; i < MP_COUNT_OF(prefixes); i++) {
        char symbol[64];
        void *address = NULL;
        (void)snprintf(symbol, sizeof symbol, "%s%s", prefixes[i], name);
        if (mp_dynlib_symbol(library, symbol, &address) == MP_OK) {
            memcpy(out, &address, sizeof address);
            return true;
        }
    }
    return false;
}

static void open_blas(void) {
    static const char *const names[] = {"libscipy_openblas.so", "libopenblas.so.0", NULL};
    static const mp_dynlib_place place = {
        .names = names,
        .package = "scipy_openblas32",
        .subdir = "lib",
        .remedy = "install it with: pip install scipy-openblas32",
    };
    const char *wish = getenv("MILLPOND_HOST_BLAS");
    if (wish != NULL && strcmp(wish, "off") == 0) {
        return;
    }
    void *library = NULL;
    if (mp_dynlib_open(&place, &library) != MP_OK) {
        MP_LOG(INFO, "matrix products use plain loops: %s", mp_error_message());
        return;
    }
    set_threads_fn *set_threads = NULL;
    if (!symbol_find(library, "cblas_sgemm", &blas.gemm_f32) ||
        !symbol_find(library, "cblas_dgemm", &blas.gemm_f64) ||
        !symbol_find(library, "cblas_sgemv", &blas.gemv_f32) ||
        !symbol_find(library, "openblas_set_num_threads", &set_threads)) {
        MP_LOG(WARNING, "matrix products use plain loops: %s", mp_error_message());
        return;
    }
    set_threads(1);
    blas.file = mp_dynlib_file(library);
    MP_LOG(INFO, "matrix products use %s", blas.file);
}

const char *mp__host_blas_file(void) {
    (void)pthread_once(&once, open_blas);
    return blas.file;
}

static bool blas_can(const host_product *p) {
    return mp__host_blas_file() != NULL && p->k > 0 && p->m <= INT_MAX && p->n <= INT_MAX &&
           p->k <= INT_MAX && p->lda <= INT_MAX && p->ldb <= INT_MAX && p->ldc <= INT_MAX;
}

/* One row of C: the matrix is op(B) transposed, the vector is the row of op(A). */
static void row_f32(const host_product *p) {
    const int rows = (int)(p->trans_b ? p->n : p->k), columns = (int)(p->trans_b ? p->k : p->n);
    blas.gemv_f32(ROW_MAJOR, p->trans_b ? NO_TRANS : TRANS, rows, columns, p->alpha, p->b,
                  (int)p->ldb, p->a, p->trans_a ? (int)p->lda : 1, p->beta, p->c, 1);
}

static void column_f32(const host_product *p) {
    const int rows = (int)(p->trans_a ? p->k : p->m), columns = (int)(p->trans_a ? p->m : p->k);
    blas.gemv_f32(ROW_MAJOR, p->trans_a ? TRANS : NO_TRANS, rows, columns, p->alpha, p->a,
                  (int)p->lda, p->b, p->trans_b ? 1 : (int)p->ldb, p->beta, p->c, (int)p->ldc);
}

void mp__host_product_f32(const host_product *p) {
    if (!blas_can(p)) {
        mp__host_product_loops_f32(p);
    } else if (p->m == 1) {
        row_f32(p);
    } else if (p->n == 1) {
        column_f32(p);
    } else {
        blas.gemm_f32(ROW_MAJOR, p->trans_a ? TRANS : NO_TRANS, p->trans_b ? TRANS : NO_TRANS,
                      (int)p->m, (int)p->n, (int)p->k, p->alpha, p->a, (int)p->lda, p->b,
                      (int)p->ldb, p->beta, p->c, (int)p->ldc);
    }
}

void mp__host_product_f64(const host_product *p) {
    if (!blas_can(p)) {
        mp__host_product_loops_f64(p);
    } else {
        blas.gemm_f64(ROW_MAJOR, p->trans_a ? TRANS : NO_TRANS, p->trans_b ? TRANS : NO_TRANS,
                      (int)p->m, (int)p->n, (int)p->k, (double)p->alpha, p->a, (int)p->lda, p->b,
                      (int)p->ldb, (double)p->beta, p->c, (int)p->ldc);
    }
}
