/* few_rows.cu - up to K_ROWS rows times a matrix: bound by how soon the matrix comes. A block makes
 * a slab of columns, of which a lane has 16 bytes of a row; so many lanes are side by side that
 * there are blocks for all multiprocessors, and the others go along k. Each lane has a ring of its
 * own in shared memory, so that F_SLOTS loads of it are always under way, the first of a constant
 * before the kernel before has ended, and registers are left for the next kernel's blocks. The
 * lanes' sums meet in shared memory, in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/before.h"

enum { F_SLOTS = K_FEW_ROWS_SLOTS, F_EACH = 2, F_WORDS = 4, F_STAGED = 4 };

/* What a lane asks for next: 16 bytes at `from`, of row k. */
typedef struct f_lane {
    const T *from;
    int64_t stride; /* of its rows, in elements */
    int32_t k, step;
    k_pack *ring; /* slot i is at i * blockDim.x */
} f_lane;

#if K_WARP_MATRIX
#define F_GROUP      k_copies_group
#define F_WAIT(left) K_COPIES_WAIT(left)

K_FN void f_copy(k_pack *to, const T *from, int is) {
    k_copy_begin(to, from, is ? 16 : 0);
}
#else
#define F_GROUP()
#define F_WAIT(left)

K_FN void f_copy(k_pack *to, const T *from, int is) {
    k_fetch(from, is, to->words.at);
}
#endif

/* A lane beside the matrix asks for nothing, and gets zeros. */
K_FN f_lane f_lane_at(const mp_few_rows_args *args, int64_t column, int32_t row, int32_t step,
                      k_pack *ring) {
    f_lane l;
    l.from = (const T *)args->b + row * args->n + column;
    l.stride = step * args->n;
    l.k = column < args->n ? row : (int32_t)args->k;
    l.step = step;
    l.ring = ring;
    return l;
}

/* Asks for F_EACH rows, which go to the ring from `slot` on. */
K_FN void f_ask(const mp_few_rows_args *args, f_lane *l, int32_t slot) {
    K_UNROLL
    for (int i = 0; i < F_EACH; i++) {
        const int is = l->k < (int32_t)args->k;
        f_copy(l->ring + (slot + i) * (int32_t)blockDim.x, is ? l->from : (const T *)args->b, is);
        l->from += l->stride;
        l->k += is ? l->step : 0;
    }
    F_GROUP();
}

/* Row `k` of the matrix, whose elements the slot has, times the rows of A. */
K_FN void f_add(const mp_few_rows_args *args, const T *a, int32_t k, const k_pack *slot,
                K_SUM (*sum)[K_PACK]) {
    float x[K_ROWS], v[K_PACK];
    k_pack w;
    w.words = slot->words;
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        x[r] = k < (int32_t)args->k && r < args->m ? T_load(a[r * (int32_t)args->k + k]) : 0;
    }
    K_UNROLL
    for (int j = 0; j < F_WORDS; j++) {
        T_unpack(w.words.at[j], v + j * K_WORD);
    }
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        K_UNROLL
        for (int e = 0; e < K_PACK; e++) {
            sum[r][e] += (K_SUM)x[r] * (K_SUM)v[e];
        }
    }
}

#if K_BEFORE == K_BEFORE_NOTHING
/* A into shared memory, by packs as far as they go. */
K_FN void f_stage(const mp_few_rows_args *args, T *to) {
    const int32_t lanes = (int32_t)blockDim.x, count = (int32_t)(args->m * args->k);
    const int32_t packs = count / K_PACK;
    k_wait();
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < packs; i += F_STAGED * lanes) {
        k_pack pack[F_STAGED];
        K_UNROLL
        for (int j = 0; j < F_STAGED; j++) {
            const int32_t at = i + j * lanes;
            pack[j].words = ((const k_pack *)args->a)[at < packs ? at : i].words;
        }
        K_UNROLL
        for (int j = 0; j < F_STAGED; j++) {
            if (i + j * lanes < packs) {
                ((k_pack *)(void *)to)[i + j * lanes].words = pack[j].words;
            }
        }
    }
    K_ONE_COPY
    for (int32_t i = packs * K_PACK + (int32_t)threadIdx.x; i < count; i += lanes) {
        to[i] = ((const T *)args->a)[i];
    }
    __syncthreads();
}
#endif

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
    F_WAIT(0);
    __syncthreads(); /* the rings were there */
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
    const int32_t step = lanes >> k_log2((uint32_t)across), begin = lane / across;
    const int64_t wide = (int64_t)across * K_PACK;
    K_SHARED(k_pack, shared);
    k_pack *row = shared + F_SLOTS * K_FEW_ROWS_LANES;
    const T *a = (const T *)(const void *)row;
    int made = 0;
    if (!args.constant) {
        k_wait();
    }
    K_ONE_COPY
    for (int64_t first = blockIdx.x * wide; first < args.n; first += gridDim.x * wide) {
        const int64_t column = first + (lane & (across - 1)) * K_PACK;
        f_lane l = f_lane_at(&args, column, begin, step, shared + lane);
        K_SUM sum[K_ROWS][K_PACK];
        K_UNROLL
        for (int c = 0; c < K_ROWS * K_PACK; c++) {
            sum[c / K_PACK][c % K_PACK] = 0;
        }
        K_UNROLL
        for (int i = 0; i < F_SLOTS; i += F_EACH) {
            f_ask(&args, &l, i);
        }
        if (!made) { /* the same for all lanes */
#if K_BEFORE == K_BEFORE_NOTHING
            f_stage(&args, (T *)(void *)row);
#else
            b_make(&args.before, row, 0);
#endif
            made = 1;
        }
        int32_t slot = 0;
        K_ONE_COPY
        for (int32_t k = begin; k - begin < (int32_t)args.k;
             k += F_EACH * step) { /* of all lanes */
            F_WAIT(F_SLOTS / F_EACH - 1);
            K_UNROLL
            for (int i = 0; i < F_EACH; i++) {
                f_add(&args, a, k + i * step, l.ring + (slot + i) * lanes, sum);
            }
            f_ask(&args, &l, slot);
            slot = (slot + F_EACH) % F_SLOTS;
        }
        f_join(&args, (float *)(void *)shared, first, across, sum);
    }
}
