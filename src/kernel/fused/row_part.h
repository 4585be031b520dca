/* row_part.h - rows of fused kernels with reductions: which of a row's elements a lane has, and how
 * lanes reduce. Groups of lanes share rows as in kernel/core/row_lanes.h.
 *
 * A lane has some packs of elements of a row at a time, which lie a group's packs apart. Where a
 * row is no whole aligned packs, each element of them lies a group's elements apart.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROW_PART_H
#define MP_KERNEL_ROW_PART_H

#include "kernel/core/row_lanes.h"
#include "kernel/fused/fused_args.h"

/* A lane's part of a row. */
typedef struct f_part {
    int64_t row;     /* 0 where there is none */
    uint32_t begin;  /* its first element */
    int32_t columns; /* 0 where there is no row */
    int32_t base;    /* column of the first element that the group has now */
    int32_t lane, width;
    int packed;
} f_part;

K_FN f_part f_part_of(const mp_fused_args *args, const k_round *t, int64_t row, int packed) {
    f_part p;
    const int is = row < args->rows;
    p.row = is ? row : 0;
    p.begin = (uint32_t)p.row * (uint32_t)args->columns;
    p.columns = is ? args->columns : 0;
    p.base = 0;
    p.lane = (int32_t)t->lane;
    p.width = (int32_t)t->width;
    p.packed = packed;
    return p;
}

/* Whether rows are packs of so many elements that are written at once, where whole tensors have
 * that skew. */
K_FN int f_is_in_packs(const mp_fused_args *args, int32_t pack, uint64_t skew) {
    return skew == 0 && args->columns % pack == 0 && args->walk.length >= (uint32_t)pack;
}

/* Of element `k` of those that a lane has at a time. */
K_FN int32_t f_column_in_packs(const f_part *p, int32_t pack, int32_t k) {
    const int32_t at = k / pack * p->width + p->lane;
    return p->base + (p->packed ? at * pack + k % pack : k * p->width + p->lane);
}

/* What nothing reduces to, two partial results, and those of all lanes of a group. */
#define F_REDUCTION(name, type, word, none, combine, block) \
    K_FN type f_##name##_none_##word(void) {                \
        return none;                                        \
    }                                                       \
    K_FN type f_##name##_of_##word(type a, type b) {        \
        return combine;                                     \
    }                                                       \
    K_GROUP_REDUCE(f_##name##_##word, type, block, combine)

#define F_REDUCTIONS(type, word)                                  \
    F_REDUCTION(rowsum, type, word, 0, a + b, k_block_sum_##word) \
    F_REDUCTION(rowmax, type, word, -(type)K_INF,                 \
                a != a   ? a                                      \
                : b != b ? b                                      \
                : a > b  ? a                                      \
                         : b,                                      \
                k_block_max_##word)                               \
    F_REDUCTION(rowmin, type, word, (type)K_INF,                  \
                a != a   ? a                                      \
                : b != b ? b                                      \
                : a < b  ? a                                      \
                         : b,                                      \
                k_block_min_##word)                               \
    F_REDUCTION(rowproduct, type, word, 1, a *b, k_block_product_##word)

F_REDUCTIONS(float, f32)
F_REDUCTIONS(double, f64)

#endif
