/* fused_rows.h - rows of a fused kernel that has reductions. Groups of lanes share rows as in
 * kernel/core/row_lanes.h; the texts that src/op/fused writes include it for a GPU.
 *
 * A lane has F_PACKS packs of K_WALK elements of a row at a time, which lie a group's packs apart.
 * Where a row is no whole aligned packs, each element of them lies a group's elements apart. What
 * is computed with them is one text: it only asks in which column an element is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FUSED_ROWS_H
#define MP_KERNEL_FUSED_ROWS_H

#include "kernel/core/row_lanes.h"
#include "kernel/core/walk.h"
#include "kernel/fused/fused_args.h"

enum { F_KEEP = F_PACKS * K_WALK };

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

/* Whether rows are packs that are written at once, where whole tensors have that skew. */
K_FN int f_is_packed(const mp_fused_args *args, uint64_t skew) {
    return skew == 0 && args->columns % K_WALK == 0 && args->walk.length >= K_WALK;
}

/* Of kept element `k`. */
K_FN int32_t f_column(const f_part *p, int32_t k) {
    const int32_t pack = k / K_WALK * p->width + p->lane;
    return p->base + (p->packed ? pack * K_WALK + k % K_WALK : k * p->width + p->lane);
}

/* Reads of a row that begins at x, or of a view; writes. What a row has not is 0. */
#define F_ROW_ACCESS(word)                                                                         \
    K_FN void f_run_##word(const k_##word *x, const f_part *p, k_##word *to) {                     \
        const int at_once = p->packed && K_WALK_SKEW(x, k_##word) == 0;                            \
        K_UNROLL                                                                                   \
        for (int32_t i = 0; i < F_PACKS; i++) {                                                    \
            const int32_t first = f_column(p, i * K_WALK);                                         \
            pack_##word pack;                                                                      \
            K_UNROLL                                                                               \
            for (int32_t k = 0; k < K_WALK; k++) {                                                 \
                pack.lane[k] = k_store_##word((kc_##word)0);                                       \
            }                                                                                      \
            if (at_once && first < p->columns) {                                                   \
                pack.words = ((const pack_##word *)(x + first))->words;                            \
            } else if (!at_once) {                                                                 \
                K_UNROLL                                                                           \
                for (int32_t k = 0; k < K_WALK; k++) {                                             \
                    const int32_t c = f_column(p, i * K_WALK + k);                                 \
                    if (c < p->columns) {                                                          \
                        pack.lane[k] = x[c];                                                       \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            K_UNROLL                                                                               \
            for (int32_t k = 0; k < K_WALK; k++) {                                                 \
                to[i * K_WALK + k] = pack.lane[k];                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    K_FN void f_view_##word(const k_##word *x, const k_walk *walk, const f_part *p, int32_t views, \
                            int32_t v, k_##word *to) {                                             \
        K_UNROLL                                                                                   \
        for (int32_t i = 0; i < F_PACKS; i++) {                                                    \
            const int32_t first = f_column(p, i * K_WALK);                                         \
            if (p->packed && first < p->columns) {                                                 \
                const k_spot spot = k_spot_of(walk, (p->begin + first) / K_WALK, views);           \
                const pack_##word pack = read_##word(x, walk, &spot, v);                           \
                K_UNROLL                                                                           \
                for (int32_t k = 0; k < K_WALK; k++) {                                             \
                    to[i * K_WALK + k] = pack.lane[k];                                             \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            K_UNROLL                                                                               \
            for (int32_t k = 0; k < K_WALK; k++) {                                                 \
                const int32_t c = f_column(p, i * K_WALK + k);                                     \
                uint32_t at[K_WALK_VIEWS] = {0};                                                   \
                to[i * K_WALK + k] = k_store_##word((kc_##word)0);                                 \
                if (c < p->columns) {                                                              \
                    k_walk_to(walk, p->begin + (uint32_t)c, views, at);                            \
                    to[i * K_WALK + k] = x[at[v]];                                                 \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    K_FN void f_put_##word(k_##word *out, const f_part *p, const k_##word *from) {                 \
        K_UNROLL                                                                                   \
        for (int32_t i = 0; i < F_PACKS; i++) {                                                    \
            const int32_t first = f_column(p, i * K_WALK);                                         \
            if (p->packed && first < p->columns) {                                                 \
                pack_##word pack;                                                                  \
                K_UNROLL                                                                           \
                for (int32_t k = 0; k < K_WALK; k++) {                                             \
                    pack.lane[k] = from[i * K_WALK + k];                                           \
                }                                                                                  \
                *(pack_##word *)(out + first) = pack;                                              \
            } else if (!p->packed) {                                                               \
                K_UNROLL                                                                           \
                for (int32_t k = 0; k < K_WALK; k++) {                                             \
                    const int32_t c = f_column(p, i * K_WALK + k);                                 \
                    if (c < p->columns) {                                                          \
                        out[c] = from[i * K_WALK + k];                                             \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
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
