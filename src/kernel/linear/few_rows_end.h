/* few_rows_end.h - what is done with the sums of a strip of columns, 2^columns_shift of them, which
 * belongs to a block or to a cluster of 2^split blocks, among which k is dealt. Each block of a
 * cluster finishes as many of the columns: it is given the others' sums of them, in its shared
 * memory, and adds them in the order of the blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FEW_ROWS_END_H
#define MP_KERNEL_FEW_ROWS_END_H

#include "kernel/core/meet.h"
#include "kernel/linear/linear_args.h"

typedef struct r_strip {
    const mp_few_rows_args *args;
    float *given; /* [block][row][column], of those that this block finishes */
    int64_t first;
    int32_t block, shift; /* of the cluster; it finishes 2^shift columns */
} r_strip;

K_FN r_strip r_strip_of(const mp_few_rows_args *args, int32_t columns_shift, float *given) {
    r_strip s;
    s.args = args;
    s.given = given;
    s.first = (int64_t)(blockIdx.x >> args->split) << columns_shift;
    s.block = (int32_t)blockIdx.x & ((1 << args->split) - 1);
    s.shift = columns_shift - args->split;
    return s;
}

/* The block that finishes a column of the strip. */
K_FN int32_t r_owner(const r_strip *s, int32_t column) {
    return column >> s->shift;
}

/* Where it wants what this block has of an element of that column. */
K_FN float *r_room(const r_strip *s, int32_t row, int32_t column) {
    const int32_t mine = column & ((1 << s->shift) - 1);
    return s->given + ((s->block * s->args->m + row) << s->shift) + mine;
}

/* Element `i` of those that this block finishes, row by row, when all have been given. */
K_FN float r_given(const r_strip *s, int32_t i) {
    float sum = 0;
    K_UNROLL
    for (int32_t block = 0; block < 1 << K_FEW_ROWS_SPLIT; block++) {
        if (block < 1 << s->args->split) {
            sum += s->given[((block * s->args->m) << s->shift) + i];
        }
    }
    return sum;
}

/* Where element `i` lies in the result; its column. */
typedef struct r_element {
    int64_t at, column;
    int is;
} r_element;

K_FN r_element r_element_of(const r_strip *s, int32_t i) {
    const int32_t row = i >> s->shift, mine = i & ((1 << s->shift) - 1);
    r_element e;
    e.column = s->first + (s->block << s->shift) + mine;
    e.at = row * s->args->n + e.column;
    e.is = row < s->args->m && e.column < s->args->n;
    return e;
}

/* What is added to an element, asked for before it is wanted: to convert it would be to wait. */
typedef struct r_more {
    T bias, d;
} r_more;

K_FN r_more r_ask(const mp_few_rows_args *args, r_element e) {
    r_more more;
    more.bias = e.is && args->bias != 0 ? ((const T *)args->bias)[e.column] : T_store(0);
    more.d = e.is && args->d != 0 ? ((const T *)args->d)[e.at] : T_store(0);
    return more;
}

K_FN void r_put(const mp_few_rows_args *args, r_element e, float sum, r_more more) {
    if (e.is) {
        float y = args->alpha * sum;
        y += args->d != 0 ? args->beta * T_load(more.d) : 0;
        y += args->bias != 0 ? T_load(more.bias) : 0;
        ((T *)args->out)[e.at] = T_store(y);
    }
}

#endif
