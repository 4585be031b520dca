/* few_rows.cu - up to K_ROWS rows times a matrix: bound by how soon the matrix comes. A block makes
 * a strip of columns; its lanes deal out k, and so do the blocks of a cluster. A lane asks for all
 * it needs of the matrix at once, of a constant before the kernel before has ended. The lanes' sums
 * meet in shared memory, in a fixed order.
 *     b [k][n]  a lane has 16 bytes of a row; as many are side by side as leave blocks for all
 *               multiprocessors
 *     b [n][k]  a lane has 16 bytes of each of several columns, neighbours those behind them
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/linear/few_rows_end.h"
#include "kernel/rows/before.h"

enum {
    F_AHEAD = 8,                                       /* loads of a lane at once */
    F_WORDS = 4,                                       /* of one */
    F_COLUMNS = K_TURNED ? K_FEW_ROWS_TURNED : K_PACK, /* of a lane */
    F_DEPTH = K_TURNED ? K_PACK : F_AHEAD,             /* numbers of each, of a round */
    F_STEP = K_TURNED ? K_PACK : 1,                    /* numbers along k from a lane to the next */
};

/* What a lane does of a strip: columns from `column` on, and of each what begins at `k`, with
 * `step` lanes along k in all. */
typedef struct f_lane {
    int64_t column, k, step;
} f_lane;

#if K_TURNED
K_FN void f_load(const mp_few_rows_args *args, const f_lane *l, int64_t k, k_pack *w) {
    K_UNROLL
    for (int i = 0; i < F_AHEAD; i++) {
        const int is = k < args->k && l->column + i < args->n;
        const T *from = (const T *)args->b + (is ? (l->column + i) * args->k + k : 0);
        k_fetch(from, is, w[i].words.at);
    }
}

K_FN void f_add(const mp_few_rows_args *args, const T *a, const f_lane *l, int64_t k,
                const k_pack *w, K_SUM (*sum)[F_COLUMNS]) {
    float x[K_ROWS][K_PACK];
    (void)l;
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        const int is = k < args->k && r < args->m;
        const k_pack pack = b_read(a + (is ? r * args->k + k : 0), 0, is);
        K_UNROLL
        for (int j = 0; j < F_WORDS; j++) {
            T_unpack(pack.words.at[j], x[r] + j * K_WORD);
        }
    }
    K_UNROLL
    for (int i = 0; i < F_COLUMNS; i++) {
        float v[K_PACK];
        K_UNROLL
        for (int j = 0; j < F_WORDS; j++) {
            T_unpack(w[i].words.at[j], v + j * K_WORD);
        }
        K_UNROLL
        for (int e = 0; e < K_ROWS * K_PACK; e++) {
            const int r = e / K_PACK, at = e % K_PACK;
            sum[r][i] += (K_SUM)x[r][at] * (K_SUM)v[at];
        }
    }
}
#else
K_FN void f_load(const mp_few_rows_args *args, const f_lane *l, int64_t k, k_pack *w) {
    const T *from = (const T *)args->b + k * args->n + l->column;
    K_UNROLL
    for (int i = 0; i < F_AHEAD; i++) {
        const int is = k + i * l->step < args->k && l->column < args->n;
        k_fetch(from + (is ? i * l->step * args->n : 0), is, w[i].words.at);
    }
}

K_FN void f_add(const mp_few_rows_args *args, const T *a, const f_lane *l, int64_t k,
                const k_pack *w, K_SUM (*sum)[F_COLUMNS]) {
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

#endif

/* ---- what lanes have found ---- */

K_FN void f_give(const r_strip *strip, int32_t row, int32_t column, float sum) {
    float *room = r_room(strip, row, column);
    if (row < strip->args->m && strip->args->split > 0) {
        k_cluster_store(room, r_owner(strip, column), sum);
    } else if (row < strip->args->m) {
        *room = sum;
    }
}

/* The sums of all lanes of a strip's columns. On a GPU a warp, and all of it, adds those of one
 * column of each lane. */
K_FN void f_join(const r_strip *strip, float *part, int32_t across, K_SUM (*sum)[F_COLUMNS]) {
    const int32_t lanes = (int32_t)blockDim.x, lane = (int32_t)threadIdx.x;
    K_UNROLL
    for (int c = 0; c < K_ROWS * F_COLUMNS; c++) {
        part[c * lanes + lane] = (float)sum[c / F_COLUMNS][c % F_COLUMNS];
    }
    __syncthreads();
#if K_HOST
    for (int32_t o = lane; o < K_ROWS * F_COLUMNS * across; o += lanes) {
        const int32_t c = o / across, beside = o % across;
        K_SUM total = 0;
        for (int32_t i = beside; i < lanes; i += across) {
            total += part[c * lanes + i];
        }
        f_give(strip, c / F_COLUMNS, beside * F_COLUMNS + c % F_COLUMNS, (float)total);
    }
#else
    const int32_t beside = lane % 32;
    for (int32_t c = lane / 32; c < K_ROWS * F_COLUMNS; c += K_FEW_ROWS_LANES / 32) {
        float total = 0;
        K_UNROLL
        for (int32_t i = 0; i < K_FEW_ROWS_LANES; i += 32) {
            total += part[c * K_FEW_ROWS_LANES + beside + i];
        }
        for (int32_t half = 16; half >= across; half /= 2) {
            total += __shfl_xor_sync(0xffffffffu, total, half);
        }
        if (beside < across) {
            f_give(strip, c / F_COLUMNS, beside * F_COLUMNS + c % F_COLUMNS, total);
        }
    }
#endif
}

/* The strip's end; on a GPU there are no more elements than lanes. */
K_FN void f_end(const r_strip *strip, float *part, int32_t across, K_SUM (*sum)[F_COLUMNS]) {
    int32_t i = (int32_t)threadIdx.x;
    r_element e = r_element_of(strip, i);
    r_more more = r_ask(strip->args, e);
    k_cluster_wait(); /* all blocks have begun */
    f_join(strip, part, across, sum);
    k_cluster_arrive();
    k_cluster_wait();
    if (e.is) {
        r_put(strip->args, e, r_given(strip, i), more);
    }
#if K_HOST
    while ((i += (int32_t)blockDim.x) < strip->args->m << strip->shift) {
        e = r_element_of(strip, i);
        more = r_ask(strip->args, e);
        r_put(strip->args, e, r_given(strip, i), more);
    }
#endif
}

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define F_BLOCKS (K_ROWS == 1 && K_BEFORE == K_BEFORE_NOTHING ? 3 : 2)

/* On a GPU always with K_FEW_ROWS_LANES; blocks of a cluster have one strip. */
K_BLOCK_KERNEL_LATE_OF(K_FEW_ROWS_LANES, F_BLOCKS, mp_few_rows_args, args) {
    const int32_t lanes = (int32_t)blockDim.x, lane = (int32_t)threadIdx.x;
    const int32_t across = args.across < lanes ? args.across : lanes;
    const uint32_t shift = k_log2((uint32_t)across);
    const int32_t wide = across * F_COLUMNS;
    const int64_t blocks = gridDim.x >> args.split;
    K_SHARED(float, part);
    float *given = part + K_FEW_ROWS_LANES * K_ROWS * F_COLUMNS;
    r_strip strip = r_strip_of(&args, (int32_t)k_log2((uint32_t)wide), given);
    const int32_t along = lanes >> shift;
    f_lane l;
    l.column = strip.first + (lane & (across - 1)) * F_COLUMNS;
    l.k = (strip.block * along + (lane >> shift)) * F_STEP;
    l.step = (int64_t)along << args.split;
#if K_BEFORE == K_BEFORE_NOTHING
    const T *a = (const T *)args.a;
#else
    k_pack *row = (k_pack *)(void *)(given + K_FEW_ROWS_GIVEN(K_ROWS));
    const T *a = (const T *)row;
    int made = 0;
#endif
    if (!args.constant) {
        k_wait();
    }
    K_ONE_COPY
    for (; strip.first < args.n; strip.first += blocks * wide) {
        K_SUM sum[K_ROWS][F_COLUMNS];
        k_cluster_begin();
        K_UNROLL
        for (int c = 0; c < K_ROWS * F_COLUMNS; c++) {
            sum[c / F_COLUMNS][c % F_COLUMNS] = 0;
        }
        K_ONE_COPY
        for (int64_t k = 0; k < args.k; k += F_DEPTH * l.step) { /* the same for all lanes */
            k_pack w[F_AHEAD];
            f_load(&args, &l, k + l.k, w);
#if K_BEFORE == K_BEFORE_NOTHING
            k_wait();
#else
            if (!made) { /* the same for all lanes */
                b_make(&args.before, row, 0);
                made = 1;
            }
#endif
            f_add(&args, a, &l, k + l.k, w, sum);
        }
        f_end(&strip, part, across, sum);
        l.column += blocks * wide;
    }
}
