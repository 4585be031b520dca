/* host_product.c - matrix products by loops of our own.
 *
 * A block of op(B) is packed so that TILE_N columns of one row lie together, and TILE_M rows of
 * op(A) so that one column of them does; the innermost loops then have fixed lengths, which the
 * compiler turns into vector instructions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_blas.h"

#include "base/macros.h"

#include <stddef.h>

enum { TILE_M = 4, TILE_N = 8, BLOCK_N = 32, BLOCK_K = 256 };

#define DEFINE_PRODUCT(T, word)                                                                 \
    static void scale_##word(const host_product *p) {                                           \
        const T beta = (T)p->beta;                                                              \
        for (int64_t i = 0; i < p->m; i++) {                                                    \
            T *row = (T *)p->c + i * p->ldc;                                                    \
            for (int64_t j = 0; j < p->n; j++) {                                                \
                row[j] = beta == 0 ? 0 : beta * row[j];                                         \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    /* Rows of `count` elements (zeros beyond), `depth` of them, from column `first` on. */     \
    static void pack_##word(T *to, const T *from, bool across, int64_t ld, int64_t first,       \
                            int64_t count, int64_t begin, int64_t depth, int tile) {            \
        for (int64_t p = 0; p < depth; p++) {                                                   \
            for (int64_t j = 0; j < tile; j++) {                                                \
                const int64_t at =                                                              \
                    across ? (first + j) * ld + begin + p : (begin + p) * ld + first + j;       \
                to[p * tile + j] = j < count ? from[at] : 0;                                    \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void tile_##word(const T *restrict a, const T *restrict b, int64_t depth,            \
                            T sums[TILE_M][TILE_N]) {                                           \
        T acc[TILE_M][TILE_N] = {{0}};                                                          \
        for (int64_t p = 0; p < depth; p++) {                                                   \
            for (int i = 0; i < TILE_M; i++) {                                                  \
                for (int j = 0; j < TILE_N; j++) {                                              \
                    acc[i][j] += a[p * TILE_M + i] * b[p * TILE_N + j];                         \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
        for (int i = 0; i < TILE_M; i++) {                                                      \
            for (int j = 0; j < TILE_N; j++) {                                                  \
                sums[i][j] = acc[i][j];                                                         \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void add_tile_##word(const host_product *p, T sums[TILE_M][TILE_N], int64_t i0,      \
                                int64_t j0) {                                                   \
        const int64_t rows = MP_MIN(TILE_M, p->m - i0), columns = MP_MIN(TILE_N, p->n - j0);    \
        const T alpha = (T)p->alpha;                                                            \
        for (int64_t i = 0; i < rows; i++) {                                                    \
            T *row = (T *)p->c + (i0 + i) * p->ldc + j0;                                        \
            for (int64_t j = 0; j < columns; j++) {                                             \
                row[j] += alpha * sums[i][j];                                                   \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    static void block_##word(const host_product *p, int64_t j0, int64_t k0) {                   \
        T packed_b[BLOCK_N / TILE_N][BLOCK_K * TILE_N], packed_a[BLOCK_K * TILE_M];             \
        T sums[TILE_M][TILE_N];                                                                 \
        const int64_t depth = MP_MIN(BLOCK_K, p->k - k0);                                       \
        const int64_t j_end = MP_MIN(j0 + BLOCK_N, p->n);                                       \
        for (int64_t j = j0; j < j_end; j += TILE_N) {                                          \
            pack_##word(packed_b[(j - j0) / TILE_N], p->b, p->trans_b, p->ldb, j, p->n - j, k0, \
                        depth, TILE_N);                                                         \
        }                                                                                       \
        for (int64_t i = 0; i < p->m; i += TILE_M) {                                            \
            pack_##word(packed_a, p->a, !p->trans_a, p->lda, i, p->m - i, k0, depth, TILE_M);   \
            for (int64_t j = j0; j < j_end; j += TILE_N) {                                      \
                tile_##word(packed_a, packed_b[(j - j0) / TILE_N], depth, sums);                \
                add_tile_##word(p, sums, i, j);                                                 \
            }                                                                                   \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    void mp__host_product_loops_##word(const host_product *p) {                                 \
        scale_##word(p);                                                                        \
        for (int64_t j = 0; j < p->n; j += BLOCK_N) {                                           \
            for (int64_t k = 0; k < p->k; k += BLOCK_K) {                                       \
                block_##word(p, j, k);                                                          \
            }                                                                                   \
        }                                                                                       \
    }

DEFINE_PRODUCT(float, f32)
DEFINE_PRODUCT(double, f64)
