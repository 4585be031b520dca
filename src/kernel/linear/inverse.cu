/* inverse.cu - inverses, by elimination with the largest pivot of each column (Gauss and Jordan),
 * in place; a block a matrix. A matrix that has none becomes NaN.
 *
 * Step c puts the row with the largest element of column c into row c, divides it by that element
 * and takes it off all other rows; in place of column c, which then is that of the unit matrix,
 * stands what was done to it. As rows were exchanged, the columns of the result are, in turn.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/index.h"
#include "kernel/linear/linear_args.h"

#if T_DOUBLE
#define i_block_max k_block_max_f64
#define i_abs       fabs
#else
#define i_block_max k_block_max_f32
#define i_abs       fabsf
#endif

/* What a block works on, in shared memory or in its part of scratch memory. */
typedef struct i_matrix {
    TA *m;          /* [side][side] */
    TA *factor;     /* [side]: of the pivot's row in each other one */
    int32_t *pivot; /* [side]: the row that row c was exchanged with */
    int32_t *order; /* [side]: the column that belongs here */
    int32_t side;
} i_matrix;

K_FN i_matrix i_matrix_at(void *memory, int64_t side) {
    i_matrix x;
    x.m = (TA *)memory;
    x.factor = x.m + side * side;
    x.pivot = (int32_t *)(x.factor + side);
    x.order = x.pivot + side;
    x.side = (int32_t)side;
    return x;
}

/* The row from `c` on with the largest element of column c; -1 where all are 0. */
K_FN int64_t i_pivot(const i_matrix *x, int64_t c) {
    TA best = -1;
    int64_t row = x->side;
    K_BLOCK_LOOP(i, x->side - c) {
        const TA size = i_abs(x->m[(c + i) * x->side + c]);
        if (size > best || size != size) {
            best = size;
            row = c + i;
        }
    }
    const TA top = i_block_max(best);
    row = k_block_min_i64(best == top ? row : x->side);
    return top == 0 ? -1 : row < x->side ? row : c; /* a NaN: any row */
}

/* Row `row` divided by its element in column c, and with that replaced, as row c; row c as it. */
K_FN void i_exchange(const i_matrix *x, int64_t c, int64_t row) {
    TA *here = x->m + c * x->side, *there = x->m + row * x->side;
    const TA divisor = there[c];
    __syncthreads(); /* all have read the divisor */
    K_BLOCK_LOOP(k, x->side) {
        const TA moved = here[k], pivot = there[k];
        there[k] = moved; /* the same element where row is c: the next line counts */
        here[k] = (k == c ? (TA)1 : pivot) / divisor;
    }
    if (threadIdx.x == 0) {
        x->pivot[c] = (int32_t)row;
    }
    __syncthreads();
}

K_FN void i_eliminate(const i_matrix *x, int64_t c, k_divider by_side) {
    K_BLOCK_LOOP(r, x->side) {
        x->factor[r] = x->m[r * x->side + c];
    }
    __syncthreads();
    K_BLOCK_LOOP(e, (int64_t)x->side * x->side) {
        const int64_t r = k_divide((uint32_t)e, by_side), k = e - r * x->side;
        if (r != c) {
            x->m[e] = (k == c ? (TA)0 : x->m[e]) - x->factor[r] * x->m[c * x->side + k];
        }
    }
    __syncthreads();
}

/* Whether there is one. */
K_FN int i_invert(const i_matrix *x, k_divider by_side) {
    for (int64_t c = 0; c < x->side; c++) {
        const int64_t row = i_pivot(x, c);
        if (row < 0) {
            return 0;
        }
        i_exchange(x, c, row);
        i_eliminate(x, c, by_side);
    }
    if (threadIdx.x == 0) {
        for (int32_t c = 0; c < x->side; c++) {
            x->order[c] = c;
        }
        for (int32_t c = x->side - 1; c >= 0; c--) {
            const int32_t moved = x->order[c];
            x->order[c] = x->order[x->pivot[c]];
            x->order[x->pivot[c]] = moved;
        }
    }
    __syncthreads();
    return 1;
}

K_BLOCK_KERNEL_UP_TO(512, mp_inverse_args, args) {
    K_SHARED(unsigned char, shared);
    void *memory = args.work ? (char *)args.work + blockIdx.x * args.work_size : (char *)shared;
    const i_matrix x = i_matrix_at(memory, args.side);
    const int64_t count = args.side * args.side;
    for (int64_t i = blockIdx.x; i < args.matrices; i += gridDim.x) {
        const T *in = (const T *)args.x + i * count;
        T *out = (T *)args.out + i * count;
        K_BLOCK_LOOP(e, count) {
            x.m[e] = (TA)T_load(in[e]);
        }
        __syncthreads();
        const int found = i_invert(&x, args.by_side);
        K_BLOCK_LOOP(e, count) {
            const int64_t r = k_divide((uint32_t)e, args.by_side), k = e - r * args.side;
            out[e] = T_store(found ? (TC)x.m[r * args.side + x.order[k]] : (TC)K_NAN);
        }
        __syncthreads(); /* all is read before the next matrix is loaded */
    }
}
