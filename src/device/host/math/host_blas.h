/* host_blas.h - matrix products on one thread, row-major.
 *
 * OpenBLAS does them where it is found (PyPI's scipy-openblas32, or the system's), set to one
 * thread since the callers share work among the workers themselves; loops of our own otherwise, or
 * with MILLPOND_HOST_BLAS=off.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_BLAS_H
#define MP_DEVICE_HOST_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] + beta * C; C is not read when beta is 0. */
typedef struct host_product {
    bool trans_a, trans_b; /* A is stored [k,m], B is stored [n,k] */
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    const void *a, *b;
    void *c;
    float alpha, beta;
} host_product;

void mp__host_product_f32(const host_product *product);
void mp__host_product_f64(const host_product *product);

/* The same, always by our own loops. */
void mp__host_product_loops_f32(const host_product *product);
void mp__host_product_loops_f64(const host_product *product);

/* The file OpenBLAS was opened from; NULL where our own loops are used. */
const char *mp__host_blas_file(void);

#endif
