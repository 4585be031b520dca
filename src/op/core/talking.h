/* talking.h - what one kernel takes of attention whose heads talk (op/attention/talking_heads.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_TALKING_H
#define MP_OP_TALKING_H

#include "base/macros.h"

#include <stdbool.h>
#include <stdint.h>

enum { MP_TALKING_PACK = 8 /* heads that a lane mixes at once */ };

/* Floats of a matrix in shared memory, and what is added. */
static inline int64_t mp_talking_matrix(int64_t from, int64_t to) {
    return MP_ALIGN_UP(to, (int64_t)MP_TALKING_PACK) *
           (MP_ALIGN_UP(from, (int64_t)MP_TALKING_PACK) + 1);
}

/* Floats of a block: the matrices by which `from` heads become `between`, and these `to`, and the
 * scores of so many keys. */
static inline int64_t mp_talking_floats(int64_t from, int64_t between, int64_t to, int64_t keys) {
    return mp_talking_matrix(from, between) + mp_talking_matrix(between, to) + between * keys;
}

/* Whether a block has room for them. */
static inline bool mp_talking_fits(int64_t from, int64_t between, int64_t to, int64_t keys) {
    enum { HEADS_MAX = 64, KEYS_MAX = 1 << 14, FLOATS_MAX = 12288 /* 48 KB */ };
    return from > 0 && between > 0 && to > 0 && keys > 0 && from <= HEADS_MAX &&
           between <= HEADS_MAX && to <= HEADS_MAX && keys <= KEYS_MAX &&
           mp_talking_floats(from, between, to, keys) <= FLOATS_MAX;
}

#endif
