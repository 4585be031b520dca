/* few_rows.cu - up to K_ROWS rows times a matrix: bound by how soon the matrix comes. A block makes
 * a slab of columns, of which a lane has 16 bytes of a row; so many lanes are side by side that
 * there are blocks for all multiprocessors, and the others go along k. A lane asks for all it needs
 * of the matrix at once, of a constant before the kernel before has ended. The lanes' sums meet in
 * shared memory, in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/before.h"

enum { F_AHEAD = 8, F_WORDS = 4 }; /* loads of a lane at once; words of one */

/* What a lane does of a slab: elements [column, column + K_PACK) of every `step`th row. */
typedef struct f_lane {
    int64_t column, step;
} f_lane;

K_FN void f_load(const mp_few_rows_args *args, const f_lane *l, int64_t k, k_pack *w) {
    const T *from = (const T *)args->b + k * args->n + l->column;
    K_UNROLL
    for (int i = 0; i < F_AHEAD; i++) {
        const int is = k + i * l->step < args->k && l->column < args->n;
        k_fetch(from + (is ? i * l->step * args->n : 0), is, w[i].words.at);
    }
}

K_FN void f_add(const mp_few_rows_args *args, const T *a, const f_lane *l, int64_t k,
                const k_pack *w, K_SUM (*sum)[K_PACK]) {
    float x[F_AHEAD][K_ROWS];
    K_UNROLL
    for (int i = 0; i < F_AHEAD; i++) {
        const int64_t row = k + i * l->step;
        K_UNROLL
        for (int r = 0; r < K_ROWS; r++) {
            x[i][r] = row < args->k && r < args->m ? T_load(a[r * args->k + row]) : 0;
        }
    }
    K_UNROLL
    for (int i = 0; i < F_AHEAD; i++) {
        float v[K_PACK];
        K_UNROLL
        for (int j = 0; j < F_WORDS; j++) {
            T_unpack(w[i].words.at[j], v + j * K_WORD);
        }
        K_UNROLL
        for (int r = 0; r < K_ROWS; r++) {
            K_UNROLL
            for (int e = 0; e < K_PACK; e++) {
                sum[r][e] += (K_SUM)x[i][r] * (K_SUM)v[e];
            }
        }
    }
}

K_FN void f_store(const mp_few_rows_args *args, int r, int64_t column, K_SUM sum) {
    const int64_t at = r * args->n + column;
    if (r >= args->m || column >= args->n) {
        return;
    }
    float y = args->alpha * (float)sum;
    y += args->d != 0 ? args->beta * T_load(((const T *)args->d)[at]) : 0;
    y += args->bias != 0 ? T_load(((const T *)args->bias)[column]) : 0;
    ((T *)args->out)[at] = T_store(y);
}

/* The sums of all lanes of a slab's columns, which begin at `first`. On a GPU a warp, and all of
 * it, adds those of one element of all packs. */
K_FN void f_join(const mp_few_rows_args *args, float *part, int64_t first, int32_t across,
                 K_SUM (*sum)[K_PACK]) {
    const int32_t lanes = (int32_t)blockDim.x, lane = (int32_t)threadIdx.x;
    K_UNROLL
    for (int c = 0; c < K_ROWS * K_PACK; c++) {
        part[c * lanes + lane] = (float)sum[c / K_PACK][c % K_PACK];
    }
    __syncthreads();
#if K_HOST
    for (int32_t o = lane; o < K_ROWS * K_PACK * across; o += lanes) {
        const int32_t c = o / across, pack = o % across;
        K_SUM total = 0;
        for (int32_t i = pack; i < lanes; i += across) {
            total += part[c * lanes + i];
        }
        f_store(args, c / K_PACK, first + pack * K_PACK + c % K_PACK, total);
    }
#else
    const int32_t pack = lane % 32;
    for (int32_t c = lane / 32; c < K_ROWS * K_PACK; c += K_FEW_ROWS_LANES / 32) {
        float total = 0;
        K_UNROLL
        for (int32_t i = 0; i < K_FEW_ROWS_LANES; i += 32) {
            total += part[c * K_FEW_ROWS_LANES + pack + i];
        }
        for (int32_t half = 16; half >= across; half /= 2) {
            total += __shfl_xor_sync(0xffffffffu, total, half);
        }
        if (pack < across) {
            f_store(args, c / K_PACK, first + pack * K_PACK + c % K_PACK, total);
        }
    }
#endif
    __syncthreads();
}

/* On a GPU always with K_FEW_ROWS_LANES. */
K_BLOCK_KERNEL_LATE(K_FEW_ROWS_LANES, mp_few_rows_args, args) {
    const int32_t lanes = (int32_t)blockDim.x, lane = (int32_t)threadIdx.x;
    const int32_t across = args.across < lanes ? args.across : lanes;
    const uint32_t shift = k_log2((uint32_t)across);
    const int64_t wide = (int64_t)across * K_PACK;
    f_lane l = {blockIdx.x * wide + (lane & (across - 1)) * K_PACK, lanes >> shift};
    K_SHARED(float, part);
#if K_BEFORE == K_BEFORE_NOTHING
    const T *a = (const T *)args.a;
#else
    k_pack *row = (k_pack *)(void *)(part + K_FEW_ROWS_LANES * K_ROWS * K_PACK);
    const T *a = (const T *)row;
    int made = 0;
#endif
    if (!args.constant) {
        k_wait();
    }
    K_ONE_COPY
    for (int64_t first = blockIdx.x * wide; first < args.n; first += gridDim.x * wide) {
        K_SUM sum[K_ROWS][K_PACK];
        K_UNROLL
        for (int c = 0; c < K_ROWS * K_PACK; c++) {
            sum[c / K_PACK][c % K_PACK] = 0;
        }
        K_ONE_COPY
        for (int64_t k = 0; k < args.k; k += F_AHEAD * l.step) { /* the same for all lanes */
            k_pack w[F_AHEAD];
            f_load(&args, &l, k + (lane >> shift), w);
#if K_BEFORE == K_BEFORE_NOTHING
            k_wait();
#else
            if (!made) { /* the same for all lanes */
                b_make(&args.before, row, 0);
                made = 1;
            }
#endif
            f_add(&args, a, &l, k + (lane >> shift), w, sum);
        }
        f_join(&args, part, first, across, sum);
        l.column += gridDim.x * wide;
    }
}
