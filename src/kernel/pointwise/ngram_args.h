/* ngram_args.h - arguments of the kernel that hashes n-grams of a packed batch.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NGRAM_ARGS_H
#define MP_KERNEL_NGRAM_ARGS_H

#include "kernel/core/types.h"

enum { K_NGRAM_HASH, K_NGRAM_STATE };

/* The `kept` ids before an entry's first one are its past; where there is none they are the end id,
 * if that is given, or `pad`. Pointers from `past` on may be NULL. */
typedef struct mp_ngram_args {
    const void *ids, *multipliers, *sizes;
    const void *past, *offsets, *end;
    const int32_t *segments, *past_segments, *starts, *counts;
    void *hashes, *present, *update;
    int32_t *present_segments;
    int64_t batch, tokens, rows; /* as in kernel/core/packed_batch.h */
    int64_t kept, heads;         /* n-grams of 2 to kept + 1 ids, `heads` hashes of each */
    int64_t capacity;            /* tokens whose states `update` has room for */
    int64_t pad;
    int32_t resets; /* nothing before an end id counts */
    int32_t stage;  /* K_NGRAM_... */
} mp_ngram_args;

#endif
