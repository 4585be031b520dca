/* fused_rows.h - rows of a fused kernel that has reductions, as the texts that src/op/fused writes
 * include it for a GPU. A lane has F_PACKS packs of K_WALK elements of a row at a time
 * (row_part.h). What is computed with them is one text: it only asks in which column an element is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FUSED_ROWS_H
#define MP_KERNEL_FUSED_ROWS_H

#include "kernel/core/walk.h"
#include "kernel/fused/row_part.h"

enum { F_KEEP = F_PACKS * K_WALK };

K_FN int f_is_packed(const mp_fused_args *args, uint64_t skew) {
    return f_is_in_packs(args, K_WALK, skew);
}

/* Of kept element `k`. */
K_FN int32_t f_column(const f_part *p, int32_t k) {
    return f_column_in_packs(p, K_WALK, k);
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

#endif
